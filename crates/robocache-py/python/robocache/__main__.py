"""The command `robocache`, also as `python -m robocache`."""

import sys

from robocache import _core


def main() -> int:
    """Runs the command line and returns its exit code."""
    return _core.command_line(["robocache", *sys.argv[1:]])


if __name__ == "__main__":
    raise SystemExit(main())
