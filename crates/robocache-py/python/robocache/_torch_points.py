"""The small ops on points, registered with torch. None of them has a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._torch_arguments import (
    NOWHERE,
    as_data,
    as_device,
    as_flag,
    as_number,
    as_numbers,
    as_tensor,
    as_whole,
    chosen,
    common_batch,
    refuse_gradients,
    refuse_options,
    spread,
    with_batch,
)
from robocache._torch_library import Op, call


def wait_for(count: Tensor, most: int) -> int:
    """As in `_ops`: a size that a graph knows only when it runs."""
    found = int(count.item())
    for fits in (found >= 0, found <= most):
        torch._check(fits)  # type: ignore[no-untyped-call]
    return found


# -- transform_points -----------------------------------------------------------------------------


def pose_axes(pose: Tensor) -> int:
    """Seven numbers, or a matrix."""
    return 1 if pose.shape[-1] == 7 else 2


def transform_points(
    points: Any, pose: Any, *, out: Any = None, device: Any = None, stream: Any = None
) -> Any:
    """`robocache.transform_points` of torch tensors through the registered op."""
    op = "transform_points"
    refuse_options(op, out=out, stream=stream)
    pose = as_tensor(pose, "pose", op)
    refuse_gradients(op, NOWHERE, points=points, pose=pose)
    return call(op, as_data("points", points, op), pose, as_device(device, op))


def _transform_kernel(points: Tensor, pose: Tensor, device: str | None) -> Tensor:
    return _core.transform_points(points, pose, device=device)


def _transform_fake(points: Tensor, pose: Tensor, device: str | None) -> Tensor:
    batch = common_batch("transform_points", ("points", points, 2), ("pose", pose, pose_axes(pose)))
    return points.new_empty(with_batch(batch, points.shape[-2], 3))


TRANSFORM_POINTS = Op(
    name="transform_points",
    schema="(Tensor points, Tensor pose, str? device) -> Tensor",
    kernel=_transform_kernel,
    fake=_transform_fake,
    inner={0: 2, 1: lambda _, pose, *__: pose_axes(pose)},
)


# -- crop_box -------------------------------------------------------------------------------------


def crop_box(
    points: Any,
    low: Any,
    high: Any,
    *,
    lengths: Any = None,
    compact: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    check: bool = True,
) -> Any:
    """The engine's `crop_box` of torch tensors through the registered op."""
    op = "crop_box"
    refuse_options(op, out=out, stream=stream)
    lengths = as_tensor(lengths, "lengths", op)
    refuse_gradients(op, NOWHERE, points=points, lengths=lengths)
    points = as_data("points", points, op)
    low, high = as_numbers("low", low, op), as_numbers("high", high, op)
    check = as_flag("check", check, op, True)
    results = call(op, points, lengths, low, high, compact, as_device(device, op), check)
    return chosen(results, (True, compact, compact))


def _crop_kernel(
    points: Tensor,
    lengths: Tensor | None,
    low: list[float],
    high: list[float],
    compact: bool,
    device: str | None,
    check: bool,
) -> tuple[Tensor, ...]:
    found = _core.crop_box(
        points, low, high, lengths=lengths, compact=compact, device=device, check=check
    )
    dtypes = (points.dtype, torch.int64, torch.int64)
    return spread(found, (True, compact, compact), dtypes, points)


def _crop_fake(
    points: Tensor, lengths: Tensor | None, low: Any, high: Any, compact: bool, *_: Any
) -> tuple[Tensor, ...]:
    batch = common_batch("crop_box", ("points", points, 2), ("lengths", lengths, 0))
    rows = with_batch(batch, points.shape[-2])
    if not compact:
        empty = points.new_empty((0,), dtype=torch.int64)
        return points.new_empty(rows, dtype=torch.bool), empty, torch.empty_like(empty)
    return (
        points.new_empty((*rows, 3)),
        points.new_empty(rows, dtype=torch.int64),
        points.new_empty(with_batch(batch), dtype=torch.int64),
    )


CROP_BOX = Op(
    name="crop_box",
    schema="(Tensor points, Tensor? lengths, float[] low, float[] high, bool compact, "
    "str? device, bool check) -> (Tensor, Tensor, Tensor)",
    kernel=_crop_kernel,
    fake=_crop_fake,
    inner={0: 2, 1: 0},
)


# -- unproject ------------------------------------------------------------------------------------


def camera_axes(intrinsics: Tensor) -> int:
    """`fx, fy, cx, cy`, or a matrix."""
    return 1 if intrinsics.shape[-1] == 4 else 2


def unproject(
    depth: Any,
    intrinsics: Any,
    extrinsics: Any = None,
    depth_scale: Any = 1e-3,
    *,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
) -> Any:
    """`robocache.unproject` of torch tensors through the registered op."""
    op = "unproject"
    refuse_options(op, out=out, stream=stream)
    intrinsics = as_tensor(intrinsics, "intrinsics", op)
    extrinsics = as_tensor(extrinsics, "extrinsics", op)
    refuse_gradients(op, NOWHERE, depth=depth, intrinsics=intrinsics, extrinsics=extrinsics)
    depth = as_data("depth", depth, op)
    scale = as_number("depth_scale", depth_scale, op)
    return_valid = as_flag("return_valid", return_valid, op)
    results = call(op, depth, intrinsics, extrinsics, scale, return_valid, as_device(device, op))
    return chosen(results, (True, return_valid))


def _unproject_kernel(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    return_valid: bool,
    device: str | None,
) -> tuple[Tensor, ...]:
    found = _core.unproject(
        depth, intrinsics, extrinsics, depth_scale, return_valid=return_valid, device=device
    )
    return spread(found, (True, return_valid), (torch.float32, torch.bool), depth)


def _unproject_fake(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    return_valid: bool,
    device: str | None,
) -> tuple[Tensor, Tensor]:
    batch = common_batch(
        "unproject",
        ("depth", depth, 2),
        ("intrinsics", intrinsics, camera_axes(intrinsics)),
        ("extrinsics", extrinsics, 0 if extrinsics is None else pose_axes(extrinsics)),
    )
    rows = with_batch(batch, depth.shape[-2] * depth.shape[-1])
    return (
        depth.new_empty((*rows, 3), dtype=torch.float32),
        depth.new_empty(rows if return_valid else (0,), dtype=torch.bool),
    )


UNPROJECT = Op(
    name="unproject",
    schema="(Tensor depth, Tensor intrinsics, Tensor? extrinsics, float depth_scale, "
    "bool return_valid, str? device) -> (Tensor, Tensor)",
    kernel=_unproject_kernel,
    fake=_unproject_fake,
    inner={
        0: 2,
        1: lambda _, intrinsics, *__: camera_axes(intrinsics),
        2: lambda _, __, extrinsics, *___: 0 if extrinsics is None else pose_axes(extrinsics),
    },
)


# -- farthest_points ------------------------------------------------------------------------------


def farthest_points(
    points: Any,
    k: Any,
    start: Any = 0,
    *,
    lengths: Any = None,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    check: bool = True,
) -> Any:
    """`robocache.farthest_points` of torch tensors through the registered op."""
    op = "farthest_points"
    refuse_options(op, out=out, stream=stream)
    lengths = as_tensor(lengths, "lengths", op)
    refuse_gradients(op, NOWHERE, points=points, lengths=lengths)
    points = as_data("points", points, op)
    k, start = as_whole("k", k, op), as_whole("start", start, op)
    check = as_flag("check", check, op, True)
    return call(op, points, lengths, k, start, as_device(device, op), check)


def _farthest_kernel(
    points: Tensor, lengths: Tensor | None, k: int, start: int, device: str | None, check: bool
) -> Tensor:
    found: Tensor = _core.farthest_points(
        points, k, start, lengths=lengths, device=device, check=check
    )
    return found


def _farthest_fake(points: Tensor, lengths: Tensor | None, k: int, *_: Any) -> Tensor:
    batch = common_batch("farthest_points", ("points", points, 2), ("lengths", lengths, 0))
    return points.new_empty(with_batch(batch, k), dtype=torch.int64)


FARTHEST_POINTS = Op(
    name="farthest_points",
    schema="(Tensor points, Tensor? lengths, SymInt k, SymInt start, str? device, bool check) "
    "-> Tensor",
    kernel=_farthest_kernel,
    fake=_farthest_fake,
    inner={0: 2, 1: 0},
)
