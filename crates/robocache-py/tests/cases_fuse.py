"""The rows of `fuse` in the table of cases.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import robocache as rc
from generate import EPOCH_NS, random_values
from helpers import COPIED, FLOATS
from table import Failure, Row, Sample

TIMES = EPOCH_NS + np.array([0, 2_000_000, 4_100_000, 4_100_000, 9_000_000])
TARGETS = EPOCH_NS + np.array([-5, 0, 10**6, 4_100_000, 5_555_555, 9_000_000, 10**7])


@dataclass(frozen=True)
class Case:
    """Two streams and a missing one are their parts side by side."""

    dtype: str
    method: Any
    width: int
    batch: tuple[int, ...]

    def verify(self, op, place) -> None:
        rng = np.random.default_rng(self.width)
        shape = (*self.batch, len(TIMES), self.width)
        values = [place(random_values(rng, shape, self.dtype)) for _ in range(2)]
        times, targets = place(TIMES), place(TARGETS)
        streams = [rc.Stream(v, times, method=self.method, max_gap=0.0021) for v in values]
        out, valid = op([*streams, rc.Stream(None, dim=2)], targets, return_valid=True)
        for index, stream in enumerate(values):
            alone, own = rc.resample(
                stream, times, targets, method=self.method, max_gap=0.0021, return_valid=True
            )
            part = out[..., index * self.width : (index + 1) * self.width]
            assert bool(((part == alone) | ((part != part) & (alone != alone))).all())
            assert bool((valid[..., index] == own).all())
        assert not bool((out[..., 2 * self.width :] != 0).any()) and not bool(valid[..., 2].any())


def sample(name, dtypes, method, width, batch=()):
    return Sample(name, lambda dtype: Case(dtype, method, width, batch), dtypes)


def bad(name, error, argument, message, method="linear", **changes):
    """A call of one stream that is good but for `changes`."""

    def make(place):
        parts = {"values": np.ones((2, 3, 4), "f4"), "times": np.arange(3.0), **changes}
        placed = {k: place(v) if isinstance(v, np.ndarray) else v for k, v in parts.items()}
        return ([rc.Stream(**placed, method=method)], place(np.array([0.5, 1.5]))), {}

    return Failure(name, make, error, argument, message)


INVALID = "InvalidArgument"
ROW = Row(
    (
        sample("linear", FLOATS, "linear", 5),
        sample("slerp in a batch", FLOATS, "slerp", 8, (3,)),
        sample("by columns", FLOATS, [("cubic", 0, 3), ("angle", 3, 4), ("next", 4, 6)], 6, (2,)),
        sample("previous", COPIED, "previous", 3, (2,)),
    ),
    (
        bad("no columns for slerp", INVALID, "streams[0].method", "5 columns", [("slerp", 0, 5)],
            values=np.ones((3, 5), "f4")),
        bad("lengths > S", INVALID, "streams[0].lengths", "row 1.*4", lengths=np.array([3, 4])),
        bad("unsorted", INVALID, "streams[0].times", r"row 0 .*index 2",
            times=np.array([0.0, 2.0, 1.0])),
        bad("stamps of another type", INVALID, "targets", "int64.*float64",
            times=np.array([0, 1, 2])),
    ),
)  # fmt: skip
