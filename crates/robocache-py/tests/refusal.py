"""How an error must look: class, kind, op, argument, text, and a healthy process afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import robocache as rc

# Errors are also of the class that Python programs already catch.
BUILTIN = {
    "InvalidArgument": ValueError,
    "Unsupported": NotImplementedError,
    "OutOfMemory": MemoryError,
    "FileError": OSError,
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def assert_works() -> None:
    """The next good call: a result that is easy to know."""
    got = rc.resample(np.array([[0.0], [8.0]]), np.array([0.0, 2.0]), np.array([0.5, 1.0]))
    np.testing.assert_array_equal(got, [[2.0], [4.0]])


def assert_refused(
    call: Callable[[], object],
    error: str,
    argument: str | None,
    message: str = "",
    op: str = "resample",
) -> rc.RoboCacheError:
    """`call` raises exactly `error` about `argument`, and the next good call works.

    What a kernel finds in its data is raised by a later call, here the one that waits.
    """

    def call_and_wait() -> None:
        call()
        rc.synchronize()

    with pytest.raises(rc.RoboCacheError) as caught:
        call_and_wait()
    raised = caught.value
    text = str(raised)
    assert type(raised) is getattr(rc, error), f"{type(raised).__name__}: {text}"
    assert isinstance(raised, BUILTIN.get(error, Exception))
    assert raised.kind == snake_case(error)
    assert raised.op == op, text
    assert raised.argument == argument, text
    assert raised.path is None, text
    prefix = f"{op}: " + (f"{argument}: " if argument else "")
    assert text.startswith(prefix), f"{text!r} does not start with {prefix!r}"
    assert len(text) > len(prefix) + 5, f"{text!r} says nothing"
    assert re.search(message, text[len(prefix) :], re.DOTALL), f"{message!r} is not in {text!r}"
    assert_works()
    return raised
