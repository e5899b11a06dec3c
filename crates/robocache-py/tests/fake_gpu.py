"""A GPU for processes of their own: arrays that say they live there, as CuPy's would.

Together with the driver of `crates/fake-cuda`, which fails on demand, and computes only if it is told
to, whole calls run from Python without a GPU. Imported only by the children of
test_fake_driver.py.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np

import robocache as rc
from fake_dlpack import CUDA, Producer, pose_as_cupy


class Array(Producer):
    """An array on a device; its memory is the host's, which nobody looks at."""

    def __init__(self, data, ordinal: int = 0) -> None:
        super().__init__(np.ascontiguousarray(data), device=(CUDA, ordinal))


pose_as_cupy(Array, lambda shape, dtype: Array(np.zeros(shape, dtype)))


def call(ordinal: int = 0, **keywords):
    """A call on the GPU that any working device can do."""
    values, stamps = np.ones((3, 1), np.float32), np.arange(3)
    return rc.resample(*(Array(a, ordinal) for a in (values, stamps, stamps)), **keywords)


def refused(work=call) -> str:
    """The class of what `work` raises, what it says about itself, and its text, in one line."""
    try:
        work()
    except rc.RoboCacheError as error:
        name = type(error).__name__
        kind = error.kind if error.kind.title().replace("_", "") == name else f"{name}?"
        return f"{kind} {error.op} {error.argument} | {error}"
    return "nothing"


def assert_cpu_works() -> None:
    got = rc.resample(np.array([[0.0], [8.0]]), np.array([0, 2]), np.array([1]))
    np.testing.assert_array_equal(got, [[4.0]])


def driver_calls(function: str) -> int:
    """How often a function of the fake driver was called in this process."""
    count = ctypes.CDLL(os.environ["ROBOCACHE_LIBCUDA"]).fakeCudaCalls
    count.restype = ctypes.c_uint64
    return count(function.encode())
