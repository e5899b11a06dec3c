"""Sparse grids and their gradients, registered with torch: the two halves of the engine's op."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._points import REDUCES_FEATURES, voxelize_backward
from robocache._torch_arguments import (
    as_device,
    as_dtype,
    as_flag,
    as_name,
    as_text,
    as_whole,
    chosen,
    common_batch,
    no_second_gradient,
    refuse_gradients,
    refuse_options,
    spread,
    with_batch,
)
from robocache._torch_library import Op, call
from robocache._torch_voxelize import (
    GRID,
    as_shared,
    described,
    grid_of,
    of_batch,
    points_of,
    reads_features,
)


def group_points(
    points: Any,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    lengths: Any = None,
    max_voxels: int | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """The engine's `group_points` of torch tensors through the registered op."""
    refuse_options("voxelize", stream=stream)
    points, _, lengths = points_of(points, None, lengths)
    grid = grid_of(origin, voxel_size, shape)
    check = as_flag("check", check, "voxelize", True)
    options = as_device(device, "voxelize"), as_text(max_memory), check
    return call("group_points", points, lengths, *grid, max_voxels, *options)


def _group_kernel(
    points: Tensor,
    lengths: Tensor | None,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    max_voxels: int | None,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, ...]:
    return _core.group_points(
        points,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        lengths=lengths,
        max_voxels=max_voxels,
        device=device,
        max_memory=max_memory,
        check=check,
    )


def group_fake(points: Tensor, lengths: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    batch = common_batch("voxelize", ("points", points, 2), ("lengths", lengths, 0))
    count = points.shape[-2]
    total = count if batch is None else batch * count
    sizes = (total,), (total + 1,), (total,), with_batch(batch, count), with_batch(batch), ()
    dtypes = torch.int64, torch.int32, torch.int32, torch.int64, torch.int64, torch.int64
    return tuple(
        points.new_empty(size, dtype=dtype) for size, dtype in zip(sizes, dtypes, strict=True)
    )


def gather_voxels(
    points: Any,
    features: Any,
    groups: Any,
    rows: int,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: Any = "occupancy",
    dtype: Any = None,
    max_points: Any = None,
    stream: Any = None,
) -> Any:
    """The engine's `gather_voxels` of torch tensors through the registered op."""
    op = "voxelize"
    refuse_options(op, stream=stream)
    points, features, _ = points_of(points, features, None)
    if max_points is not None:
        max_points = as_whole("max_points_per_voxel", max_points, op)
        text = "hard voxels (max_points_per_voxel) have no gradients"
        refuse_gradients(op, text, features=features)
    # The op has the features first: they are what has a gradient.
    reduced, coords, counts, voxels = call(
        "gather_voxels",
        points,
        features,
        *(groups[part] for part in (0, 1, 2, 5)),
        rows,
        *grid_of(origin, voxel_size, shape),
        as_name("reduce", reduce, op),
        as_dtype(dtype, op, "dtype"),
        max_points,
    )
    results = coords, counts, reduced, voxels
    return chosen(results, (True, True, reduce in REDUCES_FEATURES, max_points is not None))


def groups_of(cells: Tensor, starts: Tensor, order: Tensor, count: Tensor) -> Any:
    """As the engine counts them; it does not look at the two that are not there."""
    return cells, starts, order, None, None, count


def _gather_kernel(
    points: Tensor,
    features: Tensor | None,
    cells: Tensor,
    starts: Tensor,
    order: Tensor,
    count: Tensor,
    rows: int,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
    dtype: torch.dtype | None,
    max_points: int | None,
) -> tuple[Tensor, ...]:
    found = _core.gather_voxels(
        points,
        features,
        groups_of(cells, starts, order, count),
        rows,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        reduce=reduce,  # type: ignore[arg-type]
        dtype=dtype,
        max_points=max_points,
    )
    wanted = (True, True, reduce in REDUCES_FEATURES, max_points is not None)
    dtypes = torch.int64, torch.int32, points.dtype, points.dtype
    coords, counts, reduced, voxels = spread(found, wanted, dtypes, points)
    return reduced, coords, counts, voxels


def gather_fake(
    points: Tensor,
    features: Tensor | None,
    cells: Tensor,
    starts: Tensor,
    order: Tensor,
    count: Tensor,
    rows: int,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
    dtype: torch.dtype | None,
    max_points: int | None,
) -> tuple[Tensor, ...]:
    width, own = (0, points.dtype) if features is None else (features.shape[-1], features.dtype)
    wide = torch.float64 if torch.float64 in (points.dtype, own) else torch.float32
    reduced, voxels = points.new_empty((0,)), points.new_empty((0,))
    if reduce in REDUCES_FEATURES:
        reduced = points.new_empty((rows, width), dtype=dtype or own)
    if max_points is not None:
        kind = own if own == points.dtype else wide
        voxels = points.new_empty((rows, max_points, 3 + width), dtype=kind)
    coords = points.new_empty((rows, 4), dtype=torch.int64)
    return reduced, coords, points.new_empty((rows,), dtype=torch.int32), voxels


def _gather_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    points, features, cells, starts, order, count, _, _, _, _, reduce, _, _ = inputs
    kept = features if reads_features(reduce) else None
    ctx.save_for_backward(points, kept, cells, starts, order, count)
    ctx.features = None if features is None else (features.shape, features.dtype)
    ctx.reduce = reduce
    ctx.mark_non_differentiable(*output[1:])


def _gather_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    result = None
    if ctx.needs_input_grad[1]:
        saved = ctx.saved_tensors
        result = call("gather_voxels_backward", grad, *saved, *ctx.features, ctx.reduce)
    return (None, result, *(None,) * 11)


def _gather_backward_kernel(
    grad: Tensor,
    points: Tensor,
    features: Tensor | None,
    cells: Tensor,
    starts: Tensor,
    order: Tensor,
    count: Tensor,
    features_shape: list[int],
    dtype: torch.dtype,
    reduce: str,
) -> Tensor:
    batch = points.shape[0] if points.dim() == 3 else None
    result = _core.voxelize_backward(
        points,
        of_batch(described(features, features_shape, dtype, grad), batch),
        grad.contiguous(),
        groups_of(cells, starts, order, count),
        reduce=reduce,  # type: ignore[arg-type]
        sparse=True,
    )
    return as_shared(result, features_shape)


def _gather_backward_fake(grad: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty(arguments[6], dtype=arguments[7])


GROUPS = "Tensor cells, Tensor starts, Tensor order, Tensor count"
GROUP_POINTS = Op(
    name="group_points",
    schema=f"(Tensor points, Tensor? lengths, {GRID}, SymInt? max_voxels, str? device, "
    "str? max_memory, bool check) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    kernel=_group_kernel,
    fake=group_fake,
    inner=None,
    of="voxelize",
)
GATHER_VOXELS = Op(
    name="gather_voxels",
    schema=f"(Tensor points, Tensor? features, {GROUPS}, SymInt rows, {GRID}, str reduce, "
    "ScalarType? dtype, SymInt? max_points) -> (Tensor, Tensor, Tensor, Tensor)",
    kernel=_gather_kernel,
    fake=gather_fake,
    inner=None,
    of="voxelize",
    backward=_gather_gradient,
    setup_context=_gather_setup,
    within="features",
)
GATHER_VOXELS_BACKWARD = Op(
    name="gather_voxels_backward",
    schema=f"(Tensor grad, Tensor points, Tensor? features, {GROUPS}, SymInt[] features_shape, "
    "ScalarType dtype, str reduce) -> Tensor",
    kernel=_gather_backward_kernel,
    fake=_gather_backward_fake,
    inner=None,
    backward=no_second_gradient("voxelize"),
    of="voxelize",
    within="features",
)


def load_gradient(
    points: Tensor,
    features: Tensor,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: str = "occupancy",
    lengths: Any = None,
    **others: Any,
) -> None:
    """Called by `warmup`: the engine loads kernels and computes nothing."""
    grid = {"origin": origin, "voxel_size": voxel_size, "shape": shape}
    batch = points.shape[0] if points.dim() == 3 else None
    grad, shared = features.new_empty((1, features.shape[-1])), of_batch(features, batch)
    voxelize_backward(points, shared, grad, **grid, reduce=reduce, lengths=lengths, sparse=True)
