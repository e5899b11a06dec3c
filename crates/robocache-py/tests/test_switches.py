"""Options that are on or off: True and False of Python and of NumPy, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import robocache as rc
from cases_clouds import GRID
from helpers import to_numpy
from refusal import assert_refused
from torch_clouds import CAMERA

CLOUD = np.random.default_rng(0).uniform(0, 2, (2, 9, 3)).astype("f4")
TIMES = np.arange(9.0)
BOX = (0, 0, 0), (1, 1, 1)

CALLS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "resample": (
        lambda x, **o: rc.resample(x, TIMES, TIMES, **o),
        ("return_valid", "check"),
    ),
    "fuse": (
        lambda x, **o: rc.fuse([rc.Stream(x, TIMES)], TIMES, **o),
        ("return_valid", "return_age", "check"),
    ),
    "voxelize": (
        lambda x, **o: rc.voxelize(x, **GRID, **o),
        ("sparse", "return_counts", "return_dropped", "check"),
    ),
    "crop_box": (lambda x, **o: rc.crop_box(x, *BOX, **o), ("compact", "check")),
    "unproject": (lambda x, **o: rc.unproject(x, CAMERA, **o), ("return_valid",)),
    "farthest_points": (lambda x, **o: rc.farthest_points(x, 3, **o), ("check",)),
    "voxelize_depth": (
        lambda x, **o: rc.voxelize_depth(x, CAMERA, **GRID, **o),
        ("sparse", "return_counts", "return_dropped", "check"),
    ),
}
SWITCHES = [(op, name) for op, (_, names) in CALLS.items() for name in names]


class Named(torch.Tensor):
    """A tensor that only torch knows how to open."""


def parts_of(result: Any) -> list[Any]:
    if isinstance(result, (rc.SparseVoxels, rc.Cropped)):
        return [part for part in vars(result).values() if part is not None]
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize(
    "given", [1, 0, "no", 0.0, [], np.int64(1), np.array([True, False])], ids=str
)
@pytest.mark.parametrize(("op", "name"), SWITCHES)
def test_anything_else_is_refused_by_name(op, name, given, seen):
    points = torch.from_numpy(CLOUD)
    points = points.as_subclass(Named) if seen else points
    call = lambda: CALLS[op][0](points, **{name: given})  # noqa: E731
    assert_refused(call, "InvalidArgument", name, "expected True or False", op=op)


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize(("op", "name"), SWITCHES)
def test_numpy_has_switches_too(op, name, seen):
    points = torch.from_numpy(CLOUD)
    for switch in (True, False):
        want = CALLS[op][0](points, **{name: switch})
        got = CALLS[op][0](
            points.as_subclass(Named) if seen else points, **{name: np.bool_(switch)}
        )
        for mine, theirs in zip(parts_of(got), parts_of(want), strict=True):
            mine = mine.as_subclass(torch.Tensor) if isinstance(mine, Named) else mine
            assert mine.shape == theirs.shape
            if not isinstance(got, rc.SparseVoxels):
                np.testing.assert_array_equal(to_numpy(mine), to_numpy(theirs))


@pytest.mark.parametrize("switch", [np.True_, np.array(True), torch.tensor(True)], ids=repr)
def test_a_switch_is_no_number(switch):
    for call, argument, op in (
        (lambda: rc.farthest_points(CLOUD, switch), "k", "farthest_points"),
        (lambda: rc.crop_box(CLOUD, (switch, 0, 0), (1, 1, 1)), "low", "crop_box"),
        (lambda: rc.unproject(CLOUD, CAMERA, None, switch), "depth_scale", "unproject"),
        (
            lambda: rc.voxelize(CLOUD, sparse=True, max_voxels=switch, **GRID),
            "max_voxels",
            "voxelize",
        ),
    ):
        assert_refused(call, "InvalidArgument", argument, op=op)
