"""The ops on points and depth images, registered with torch. Gradients exist in the features of grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._depth import op_of
from robocache._points import REDUCES_FEATURES, voxelize_backward
from robocache._torch_arguments import (
    common_batch,
    exists_only_in,
    refuse_gradients,
    with_batch,
)
from robocache._torch_kinds import (
    GROUPS,
    POINTS,
    Part,
    camera_axes,
    groups_of,
    part,
    points_of,
    pose_axes,
)
from robocache._torch_library import (
    Arguments,
    Gradient,
    Op,
    Output,
    call,
    described,
    no_second_gradient,
)


def wait_for(count: Tensor, most: int) -> int:
    """As in `_ops`: a size that a graph knows only when it runs."""
    found = int(count.item())
    for fits in (found >= 0, found <= most):
        torch._check(fits)  # type: ignore[no-untyped-call]
    return found


# -- ops without a gradient -------------------------------------------------------------------------


def _transform_outputs(a: Arguments) -> Sequence[Output]:
    rows = with_batch(TRANSFORM_POINTS.batch(a), a.points.shape[-2], 3)
    return [(True, rows, a.points.dtype)]


TRANSFORM_POINTS, read_transform_points = described(
    _core.transform_points, outputs=_transform_outputs
)


def _crop_outputs(a: Arguments) -> Sequence[Output]:
    batch = CROP_BOX.batch(a)
    rows = with_batch(batch, a.points.shape[-2])
    inside = ((*rows, 3), a.points.dtype) if a.compact else (rows, torch.bool)
    return [
        (True, *inside),
        (a.compact, rows, torch.int64),
        (a.compact, with_batch(batch), torch.int64),
    ]


CROP_BOX, read_crop_box = described(
    _core.crop_box, outputs=_crop_outputs, results=3, flags=(None, "compact", "compact")
)


def _unproject_outputs(a: Arguments) -> Sequence[Output]:
    rows = with_batch(UNPROJECT.batch(a), a.depth.shape[-2] * a.depth.shape[-1])
    return [(True, (*rows, 3), torch.float32), (a.return_valid, rows, torch.bool)]


UNPROJECT, read_unproject = described(
    _core.unproject,
    outputs=_unproject_outputs,
    results=2,
    flags=(None, "return_valid"),
    optional=lambda a: [(True, torch.float32), (a.return_valid, torch.bool)],
)


def _farthest_outputs(a: Arguments) -> Sequence[Output]:
    return [(True, with_batch(FARTHEST_POINTS.batch(a), a.k), torch.int64)]


FARTHEST_POINTS, read_farthest_points = described(_core.farthest_points, outputs=_farthest_outputs)


# -- points of a grid -------------------------------------------------------------------------------


def _cloud(a: Arguments, others: bool = True) -> tuple[Any, Any, torch.dtype]:
    """The batch of a call, how many points a row has, and their dtype, be they points or pixels."""
    is_image = a.intrinsics is not None
    batch = common_batch(
        _called(a),
        ("depth" if is_image else "points", a.points, 2),
        ("intrinsics", a.intrinsics, camera_axes(a.intrinsics)),
        ("extrinsics", a.extrinsics, pose_axes(a.extrinsics)),
        ("features", getattr(a, "features", None) if others else None, 2),
        ("lengths", getattr(a, "lengths", None) if others else None, 0),
    )
    if is_image:
        return batch, a.points.shape[-2] * a.points.shape[-1], torch.float32
    return batch, a.points.shape[-2], a.points.dtype


def _called(a: Arguments) -> str:
    return "voxelize" if a.intrinsics is None else "voxelize_depth"


def _points(a: Arguments) -> Any:
    return points_of(a.points, a.intrinsics, a.extrinsics, a.depth_scale)


def _reads_features(reduce: str | None) -> bool:
    """Whether the gradient depends on them. Otherwise nothing needs to keep them alive."""
    return reduce in ("max", "min")


def _described(features: Tensor | None, like: Tensor, a: Arguments) -> Tensor:
    """The features, or something of their shape that nobody reads."""
    if features is not None:
        return features
    return like.new_empty((), dtype=a.dtype).expand(a.features_shape)


def _of_batch(tensor: Tensor, batch: int | None) -> Tensor:
    """A tensor `[..,N,K]` with the batch of the call: the gradient wants a row for each."""
    own = tensor.shape[-2:]
    return tensor.reshape(own) if batch is None else tensor.expand(batch, *own)


def _as_shared(result: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient of features of this shape: where a batch shares them, its rows are added up."""
    rows = shape[0] if len(shape) == 3 else 1
    if result.dim() == 3 and result.shape[0] != rows:
        result = result.sum(0)
    return result.reshape(*shape)


_OF_FEATURES = Part("features_shape", "SymInt[]"), Part("dtype", "ScalarType")


# -- dense grids ------------------------------------------------------------------------------------


def _voxelize_outputs(a: Arguments) -> Sequence[Output]:
    batch, _, _ = _cloud(a)
    cells = with_batch(batch, *a.shape)
    grid, own = cells, torch.int32 if a.reduce == "count" else torch.uint8
    if a.features is not None:
        grid, own = (*cells, a.features.shape[-1]), a.features.dtype
    return [
        (True, grid, a.dtype or own),
        (a.return_counts, cells, torch.int32),
        (a.return_dropped, with_batch(batch), torch.int64),
    ]


def _voxelize_save(ctx: Any, a: Arguments) -> None:
    features, kept = a.features, a.features if _reads_features(a.reduce) else None
    ctx.save_for_backward(a.points, a.intrinsics, a.extrinsics, kept, a.lengths)
    ctx.features = None if features is None else (features.shape, features.dtype)
    ctx.scale, ctx.grid = a.depth_scale, (a.origin, a.voxel_size, a.shape, a.reduce)


def _voxelize_gradient(ctx: Any, grad: Tensor) -> dict[str, Any]:
    if not ctx.needs_input_grad[VOXELIZE.index("features")]:
        return {}
    *image, features, lengths = ctx.saved_tensors
    rest = features, lengths, *ctx.features, *ctx.grid
    return {"features": call("voxelize_backward", grad, *image, ctx.scale, *rest)}


VOXELIZE, read_voxelize = described(
    _core.voxelize,
    {"points": POINTS},
    outputs=_voxelize_outputs,
    results=3,
    flags=(None, "return_counts", "return_dropped"),
    optional=lambda a: [
        (True, torch.uint8),
        (a.return_counts, torch.int32),
        (a.return_dropped, torch.int64),
    ],
    called=_called,
    gradient=Gradient("features", _voxelize_save, _voxelize_gradient),
)


def _voxelize_backward(a: Arguments) -> Tensor:
    batch = a.grad.shape[0] if a.grad.dim() == 5 else None
    points = _of_batch(a.points, batch)
    result = voxelize_backward(
        points_of(points, a.intrinsics, a.extrinsics, a.depth_scale),
        _of_batch(_described(a.features, a.grad, a), batch),
        a.grad,
        origin=a.origin,
        voxel_size=a.voxel_size,
        shape=a.shape,
        reduce=a.reduce,
        lengths=a.lengths,
    )
    return _as_shared(result, a.features_shape)


VOXELIZE_BACKWARD = Op(
    "voxelize_backward",
    (
        Part("grad", "Tensor", 4),
        *POINTS.parts,
        *(part(name) for name in ("features", "lengths")),
        *_OF_FEATURES,
        *(part(name) for name in ("origin", "voxel_size", "shape", "reduce")),
    ),
    outputs=lambda a: [(True, tuple(a.features_shape), a.dtype)],
    compute=_voxelize_backward,
    gradient=no_second_gradient("features", _called),
    of="voxelize",
    called=_called,
    shape="features_shape",
    full=("grad",),
)


# -- sparse grids -----------------------------------------------------------------------------------


def _group_outputs(a: Arguments) -> Sequence[Output]:
    batch, count, _ = _cloud(a)
    total = count if batch is None else batch * count
    rows = with_batch(batch, count)
    sizes: list[tuple[tuple[Any, ...], torch.dtype]] = [
        ((total,), torch.int64),
        ((total + 1,), torch.int32),
        ((total,), torch.int32),
        (rows, torch.int64),
        (with_batch(batch), torch.int64),
        ((), torch.int64),
    ]
    return [(True, *size) for size in sizes]


GROUP_POINTS, read_group_points = described(
    _core.group_points,
    {"points": POINTS},
    outputs=_group_outputs,
    results=6,
    vmap=False,
    of="voxelize",
    called=_called,
    why=exists_only_in("features"),
)


def _gather_outputs(a: Arguments) -> Sequence[Output]:
    _, _, points = _cloud(a, others=False)
    width, own = (0, points) if a.features is None else (a.features.shape[-1], a.features.dtype)
    wide = torch.float64 if torch.float64 in (points, own) else torch.float32
    return [
        (a.reduce in REDUCES_FEATURES, (a.rows, width), a.dtype or own),
        (True, (a.rows, 4), torch.int64),
        (True, (a.rows,), torch.int32),
        (
            a.max_points is not None,
            (a.rows, a.max_points, 3 + width),
            own if own == points else wide,
        ),
    ]


def _gather(a: Arguments) -> tuple[Tensor, ...]:
    """The reduced features first, since they have a gradient; the engine has them behind coordinates and counts."""
    coords, counts, *others = _core.gather_voxels(
        _points(a),
        a.features,
        groups_of(a.cells, a.starts, a.order, a.count),
        a.rows,
        origin=a.origin,
        voxel_size=a.voxel_size,
        shape=a.shape,
        reduce=a.reduce,
        dtype=a.dtype,
        max_points=a.max_points,
        device=a.device,
        max_memory=a.max_memory,
    )
    reduces = a.reduce in REDUCES_FEATURES
    return (*others[:reduces], coords, counts, *others[reduces:])


def _gather_save(ctx: Any, a: Arguments) -> None:
    features, kept = a.features, a.features if _reads_features(a.reduce) else None
    ctx.save_for_backward(kept, a.cells, a.starts, a.order, a.count)
    ctx.features = None if features is None else (features.shape, features.dtype)
    batch, count, _ = _cloud(a, others=False)
    # Of points only the shape matters; they need not be kept alive.
    ctx.rows, ctx.reduce = list(with_batch(batch, count)), a.reduce


def _gather_gradient(ctx: Any, grad: Tensor) -> dict[str, Any]:
    if not ctx.needs_input_grad[GATHER_VOXELS.index("features")]:
        return {}
    rest = ctx.rows, *ctx.features, ctx.reduce
    return {"features": call("gather_voxels_backward", grad, *ctx.saved_tensors, *rest)}


GATHER_VOXELS, _read_gather_voxels = described(
    _core.gather_voxels,
    {"points": POINTS},
    outputs=_gather_outputs,
    results=4,
    vmap=False,
    of="voxelize",
    called=_called,
    compute=_gather,
    gradient=Gradient("features", _gather_save, _gather_gradient),
)


def read_gather_voxels(*arguments: Any, **options: Any) -> tuple[Any, ...]:
    given = _read_gather_voxels(*arguments, **options)
    if given[_MAX_POINTS] is not None:
        text = "hard voxels (max_points_per_voxel) have no gradients"
        refuse_gradients(op_of(arguments[0]), text, features=given[_FEATURES])
    return given


_FEATURES, _MAX_POINTS = (GATHER_VOXELS.index(name) for name in ("features", "max_points"))


def gather_voxels(*arguments: Any, **options: Any) -> Any:
    """As the engine orders its results."""
    given = read_gather_voxels(*arguments, **options)
    reduced, coords, counts, voxels = call("gather_voxels", *given)
    return coords, counts, reduced, voxels


def _gather_backward(a: Arguments) -> Tensor:
    batch = a.rows[0] if len(a.rows) == 2 else None
    like = a.grad.new_empty((), dtype=torch.float32).expand((*a.rows, 3))
    result = _core.voxelize_backward(
        like,
        _of_batch(_described(a.features, a.grad, a), batch),
        a.grad.contiguous(),
        groups_of(a.cells, a.starts, a.order, a.count),
        reduce=a.reduce,
        sparse=True,
    )
    return _as_shared(result, a.features_shape)


GATHER_VOXELS_BACKWARD = Op(
    "gather_voxels_backward",
    (
        Part("grad", "Tensor"),
        Part("features", "Tensor?"),
        *GROUPS.parts,
        Part("rows", "SymInt[]"),
        *_OF_FEATURES,
        Part("reduce", "str"),
    ),
    outputs=lambda a: [(True, tuple(a.features_shape), a.dtype)],
    compute=_gather_backward,
    vmap=False,
    gradient=no_second_gradient("features", lambda _: "voxelize"),
    of="voxelize",
)


def load_sparse_gradient(points: Any, features: Any, **options: Any) -> None:
    """For `warmup`, as `load_gradient` of a dense grid: a sparse one is two ops."""
    grid = {key: options[key] for key in ("origin", "voxel_size", "shape", "reduce")}
    given = POINTS.read("points", points, "voxelize")
    a = Arguments(**dict(zip((part.name for part in POINTS.parts), given, strict=True)))
    batch, _, _ = _cloud(a, others=False)
    grad, shared = features.new_empty((1, features.shape[-1])), _of_batch(features, batch)
    lengths = options.get("lengths")
    voxelize_backward(_points(a), shared, grad, **grid, lengths=lengths, sparse=True)


def load_dense_or_sparse(dense: Callable[..., None]) -> Callable[..., None]:
    """For `warmup` of `voxelize`: what loads the gradient of a call, if it has one."""

    def load(
        points: Any, features: Any = None, *, reduce: str = "occupancy", **options: Any
    ) -> None:
        if reduce not in REDUCES_FEATURES:
            return
        if options.pop("sparse", False):
            load_sparse_gradient(points, features, reduce=reduce, **options)
            return
        for name in ("max_points_per_voxel", "max_voxels"):
            options.pop(name, None)
        dense(points, features, reduce=reduce, **options)

    return load
