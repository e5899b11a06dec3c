"""What a row of the table of ops is made of; cases.py holds the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Verified(Protocol):
    """A case that knows its answer."""

    def verify(self, op: Callable, place: Callable) -> None:
        """Calls the op with every array where `place` puts it, and compares."""


@dataclass(frozen=True)
class Sample:
    """Good input: `make(dtype)` gives a case that the op's oracle knows the answer to."""

    name: str
    make: Callable[[str], Verified]
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """Bad input: `make(place)` gives positional and keyword arguments; what must be raised."""

    name: str
    make: Callable[[Callable], tuple[tuple, dict[str, Any]]]
    error: str
    argument: str | None
    message: str
    devices: tuple[str, ...] | None = None  # where it can be tried; everywhere by default


@dataclass(frozen=True)
class Row:
    samples: tuple[Sample, ...]
    failures: tuple[Failure, ...]


def broken_call(good: dict[str, Any], positional: tuple[str, ...]):
    """A function that makes failures: `good` but for some changes.

    A change that is a function is called with `place` and builds what is not an array.
    """

    import numpy as np

    def broken(name, error, argument, message, *, devices=None, **changes):
        def make(place):
            merged = {**good, **changes}
            for key, value in merged.items():
                if isinstance(value, np.ndarray):
                    merged[key] = place(value)
                elif callable(value) and not isinstance(value, type):
                    merged[key] = value(place)
            return tuple(merged.pop(key) for key in positional if key in merged), merged

        return Failure(name, make, error, argument, message, devices)

    return broken
