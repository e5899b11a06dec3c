"""The command `robocache`, also as `python -m robocache`."""

import signal
import sys

from robocache import _core


def main() -> int:
    """Runs the command line and returns its exit code."""
    # The command runs outside the interpreter, where Python's handler would wait for its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.command_line(["robocache", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
