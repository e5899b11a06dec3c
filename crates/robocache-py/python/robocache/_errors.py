"""The exceptions of RoboCache. Each is also the built-in exception that fits it."""

from __future__ import annotations

from typing import Any


class RoboCacheError(Exception):
    """The root of all errors that RoboCache raises."""

    kind: str = "robo_cache_error"
    """The class's name in snake case."""

    def __init__(
        self,
        message: str = "",
        *,
        op: str | None = None,
        argument: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.op = op
        """The op that failed."""
        self.argument = argument
        """The argument at fault."""
        self.path = path
        """The file at fault."""

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"op": self.op, "argument": self.argument, "path": self.path}
        return (_restore, (type(self), str(self), place))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def _restore(
    cls: type[RoboCacheError], message: str, place: dict[str, str | None]
) -> RoboCacheError:
    return cls(message, **place)


class InvalidArgument(RoboCacheError, ValueError):
    """An argument has a wrong shape, type, device or content."""

    kind = "invalid_argument"


class UnknownKey(InvalidArgument, KeyError):
    """An `InvalidArgument` of a mapping: it has no such key. Its kind is `invalid_argument`."""


class Unsupported(RoboCacheError, NotImplementedError):
    """Meaningful, but not implemented or not possible for this input."""

    kind = "unsupported"


class OutOfMemory(RoboCacheError, MemoryError):
    """Memory could not be reserved."""

    kind = "out_of_memory"


class FileError(RoboCacheError, OSError):
    """A file could not be opened, read or written."""

    kind = "file_error"


class CorruptData(RoboCacheError):
    """A file does not hold what its format promises."""

    kind = "corrupt_data"


class LimitExceeded(RoboCacheError):
    """A limit that guards against hostile input was exceeded."""

    kind = "limit_exceeded"


class NoDevice(RoboCacheError):
    """No usable device of the requested kind."""

    kind = "no_device"


class DeviceLost(RoboCacheError):
    """The device failed and stays unusable until the process ends."""

    kind = "device_lost"
