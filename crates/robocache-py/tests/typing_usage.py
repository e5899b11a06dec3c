"""Typed calls as users write them. `cargo xtask ci` checks them with mypy; nothing runs them.

An unused `type: ignore` is an error too, so the calls that must be refused are refused.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import assert_type

import robocache as rc


def numpy_in_numpy_out(
    values: npt.NDArray[np.float32], times: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]
) -> None:
    assert_type(rc.resample(values, times, targets), npt.NDArray[np.float32])
    rc.resample(values, times, targets, out=np.empty_like(values))


def torch_in_torch_out(
    values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor
) -> None:
    assert_type(rc.resample(values, times, targets, method="nearest"), torch.Tensor)
    aligned, valid = rc.resample(
        values,
        times,
        targets,
        method="linear",
        extrapolate="clamp",
        lengths=lengths,
        target_lengths=lengths,
        max_gap=0.5,
        return_valid=True,
        device=None,
        max_memory="2GiB",
        check=False,
    )
    assert_type(aligned, torch.Tensor)
    assert_type(valid.all(), torch.Tensor)


def lists_are_copied() -> None:
    assert_type(rc.resample([[0.0], [2.0]], [0.0, 1.0], [0.5]), Any)


def refused(values: torch.Tensor, times: torch.Tensor) -> None:
    rc.resample(values, times)  # type: ignore[call-overload]
    rc.resample(values, times, times, "linear")  # type: ignore[call-overload]
    rc.resample(values, times, times, method="bilinear")  # type: ignore[arg-type]
    rc.resample(values, times, times, extrapolate="wrap")  # type: ignore[call-overload]


def clouds(points: torch.Tensor, depth: npt.NDArray[np.uint16]) -> None:
    grid: Any = rc.voxelize(points, origin=(0, 0, 0), voxel_size=0.1, shape=(8, 8, 8))
    sparse = rc.voxelize(grid, origin=(0, 0, 0), voxel_size=0.1, shape=(8, 8, 8), sparse=True)
    assert_type(sparse, Any)
    assert_type(rc.transform_points(points, [0.0, 0, 0, 0, 0, 0, 1]), torch.Tensor)
    rc.farthest_points(rc.unproject(depth, [1.0, 1.0, 0.0, 0.0]), 16)
    rc.crop_box(points, (0, 0, 0), (1, 1, 1), compact=True)
    rc.voxelize(points)  # type: ignore[call-arg]


def rotations(six: torch.Tensor) -> None:
    rc.rotation.convert(six, "rot6d", "quat_xyzw", device="cpu")
    rc.rotation.convert(six, "rot6d")  # type: ignore[call-arg]


def errors(error: rc.InvalidArgument) -> str:
    root: rc.RoboCacheError = error
    built_in: ValueError = error
    return f"{root.kind} {root.op} {root.argument} {root.path} {built_in}"
