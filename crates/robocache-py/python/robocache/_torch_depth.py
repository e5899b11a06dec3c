"""`voxelize_depth`, dense and sparse, and its gradients, registered with torch.

Twins of the ops in `_torch_voxelize` and `_torch_sparse` that take points; where only the shape of points
matters, something of that shape stands in for them, and nothing of that size is in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._depth import DepthImage
from robocache._points import REDUCES_FEATURES, voxelize_backward
from robocache._torch_arguments import (
    IN_FEATURES,
    as_data,
    as_device,
    as_dtype,
    as_fill,
    as_flag,
    as_name,
    as_number,
    as_tensor,
    as_text,
    as_whole,
    chosen,
    common_batch,
    fill_of,
    no_second_gradient,
    refuse_gradients,
    refuse_options,
    refuse_tangents,
    spread,
    with_batch,
)
from robocache._torch_library import Op, call
from robocache._torch_points import camera_axes, pose_axes
from robocache._torch_sparse import GROUPS, gather_fake, group_fake, groups_of
from robocache._torch_voxelize import (
    DTYPES,
    GRID,
    as_shared,
    described,
    grid_of,
    of_batch,
    reads_features,
    voxelize_fake,
)

_OP = "voxelize_depth"
_IMAGE = "Tensor depth, Tensor intrinsics, Tensor? extrinsics, float depth_scale"

Image = tuple[Tensor, Tensor, Tensor | None, float]
"""As ops take it, one after the other."""


def _image_of(image: DepthImage) -> Image:
    """The arguments of a call; gradients exist in the features."""
    depth, intrinsics, extrinsics, scale = image.parts
    intrinsics = as_tensor(intrinsics, "intrinsics", _OP)
    extrinsics = as_tensor(extrinsics, "extrinsics", _OP)
    others = {"intrinsics": intrinsics, "extrinsics": extrinsics}
    refuse_gradients(_OP, IN_FEATURES, depth=depth, **others)
    scale = 1e-3 if scale is None else as_number("depth_scale", scale, _OP)
    return as_data("depth", depth, _OP), intrinsics, extrinsics, scale


def _features_of(features: Any) -> Any:
    refuse_tangents(_OP, "features", features)
    return as_tensor(features, "features", _OP)


def _cloud_shape(depth: Tensor, intrinsics: Tensor, extrinsics: Tensor | None) -> tuple[Any, ...]:
    """Of the points that nobody writes."""
    batch = common_batch(
        _OP,
        ("depth", depth, 2),
        ("intrinsics", intrinsics, camera_axes(intrinsics)),
        ("extrinsics", extrinsics, 0 if extrinsics is None else pose_axes(extrinsics)),
    )
    return with_batch(batch, depth.shape[-2] * depth.shape[-1], 3)


def _stand_in(like: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Points of this shape that nobody reads."""
    return like.new_empty((), dtype=torch.float32).expand(shape)


def _axes(at: int, axes: Any) -> Any:
    """Of the tensor at this position, which may not be there."""

    def count(*arguments: Any) -> int:
        return 0 if arguments[at] is None else int(axes(arguments[at]))

    return count


# -- dense ----------------------------------------------------------------------------------------


def voxelize(
    image: DepthImage,
    features: Any = None,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: Any = "occupancy",
    lengths: None = None,
    dtype: Any = None,
    fill: Any = 0,
    return_counts: bool = False,
    return_dropped: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """The engine's `voxelize` of depth images in torch tensors through the registered op."""
    refuse_options(_OP, out=out, stream=stream)
    return_counts = as_flag("return_counts", return_counts, _OP)
    return_dropped = as_flag("return_dropped", return_dropped, _OP)
    as_flag("check", check, _OP, True)
    fill, digits = as_fill(fill, _OP)
    results = call(
        _OP,
        *_image_of(image),
        _features_of(features),
        *grid_of(origin, voxel_size, shape, _OP),
        as_name("reduce", reduce, _OP),
        as_dtype(dtype, _OP, "dtype"),
        fill,
        return_counts,
        return_dropped,
        as_device(device, _OP),
        as_text(max_memory),
        digits,
    )
    return chosen(results, (True, return_counts, return_dropped))


def _voxelize_kernel(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    features: Tensor | None,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
    dtype: torch.dtype | None,
    fill: float,
    return_counts: bool,
    return_dropped: bool,
    device: str | None,
    max_memory: str | None,
    fill_digits: str | None = None,
) -> tuple[Tensor, ...]:
    found = _core.voxelize(
        DepthImage(depth, intrinsics, extrinsics, depth_scale),
        features,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        reduce=reduce,  # type: ignore[arg-type]
        dtype=dtype,
        fill=fill_of(fill, fill_digits),
        return_counts=return_counts,
        return_dropped=return_dropped,
        device=device,
        max_memory=max_memory,
    )
    return spread(found, (True, return_counts, return_dropped), DTYPES, depth)


def _voxelize_fake(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    features: Tensor | None,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    points = _stand_in(depth, _cloud_shape(depth, intrinsics, extrinsics))
    return voxelize_fake(points, features, None, *others, op=_OP)


def _voxelize_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    depth, intrinsics, extrinsics, scale, features, *rest = inputs
    grid, reduce = rest[:3], rest[3]
    kept = features if reads_features(reduce) else None
    ctx.save_for_backward(depth, intrinsics, extrinsics, kept)
    ctx.features = None if features is None else (features.shape, features.dtype)
    ctx.scale, ctx.grid, ctx.reduce = scale, grid, reduce
    ctx.mark_non_differentiable(*output[1:])


def _voxelize_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    result = None
    if ctx.needs_input_grad[4]:
        *image, features = ctx.saved_tensors
        kind = features, *ctx.features, *ctx.grid, ctx.reduce
        result = call("voxelize_depth_backward", grad, *image, ctx.scale, *kind)
    return (*(None,) * 4, result, *(None,) * 11)


def _backward_kernel(
    grad: Tensor,
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    features: Tensor | None,
    features_shape: list[int],
    dtype: torch.dtype,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
) -> Tensor:
    batch = grad.shape[0] if grad.dim() == 5 else None
    result = voxelize_backward(
        DepthImage(of_batch(depth, batch), intrinsics, extrinsics, depth_scale),
        of_batch(described(features, features_shape, dtype, grad), batch),
        grad,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        reduce=reduce,
    )
    return as_shared(result, features_shape)


def _backward_fake(grad: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty(arguments[5], dtype=arguments[6])


VOXELIZE_DEPTH = Op(
    name=_OP,
    schema=f"({_IMAGE}, Tensor? features, {GRID}, str reduce, ScalarType? dtype, float fill, "
    "bool return_counts, bool return_dropped, str? device, str? max_memory, "
    "str? fill_digits=None) "
    "-> (Tensor, Tensor, Tensor)",
    kernel=_voxelize_kernel,
    fake=_voxelize_fake,
    inner={0: 2, 1: _axes(1, camera_axes), 2: _axes(2, pose_axes), 4: 2},
    backward=_voxelize_gradient,
    setup_context=_voxelize_setup,
    within="features",
)
VOXELIZE_DEPTH_BACKWARD = Op(
    name="voxelize_depth_backward",
    schema=f"(Tensor grad, {_IMAGE}, Tensor? features, SymInt[] features_shape, ScalarType dtype, "
    f"{GRID}, str reduce) -> Tensor",
    kernel=_backward_kernel,
    fake=_backward_fake,
    inner={0: 4, 1: 2, 2: _axes(2, camera_axes), 3: _axes(3, pose_axes), 5: 2},
    backward=no_second_gradient(_OP),
    of=_OP,
    within="features",
    shape=6,
    full=(0,),
)


# -- sparse ---------------------------------------------------------------------------------------


def group_points(
    image: DepthImage,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    lengths: None = None,
    max_voxels: int | None = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """The engine's `group_points` of depth images in torch tensors through the registered op."""
    refuse_options(_OP, stream=stream)
    as_flag("check", check, _OP, True)
    grid = grid_of(origin, voxel_size, shape, _OP)
    return call(
        "group_depth",
        *_image_of(image),
        *grid,
        max_voxels,
        as_device(device, _OP),
        as_text(max_memory),
    )


def _group_kernel(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    max_voxels: int | None,
    device: str | None,
    max_memory: str | None,
) -> tuple[Tensor, ...]:
    return _core.group_points(
        DepthImage(depth, intrinsics, extrinsics, depth_scale),
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        max_voxels=max_voxels,
        device=device,
        max_memory=max_memory,
    )


def _group_fake(
    depth: Tensor, intrinsics: Tensor, extrinsics: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    return group_fake(_stand_in(depth, _cloud_shape(depth, intrinsics, extrinsics)), None)


def gather_voxels(
    image: DepthImage,
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
    """The engine's `gather_voxels` of depth images in torch tensors through the registered op."""
    refuse_options(_OP, stream=stream)
    features = _features_of(features)
    if max_points is not None:
        max_points = as_whole("max_points_per_voxel", max_points, _OP)
        text = "hard voxels (max_points_per_voxel) have no gradients"
        refuse_gradients(_OP, text, features=features)
    reduced, coords, counts, voxels = call(
        "gather_depth",
        *_image_of(image),
        features,
        *(groups[part] for part in (0, 1, 2, 5)),
        rows,
        *grid_of(origin, voxel_size, shape, _OP),
        as_name("reduce", reduce, _OP),
        as_dtype(dtype, _OP, "dtype"),
        max_points,
    )
    results = coords, counts, reduced, voxels
    return chosen(results, (True, True, reduce in REDUCES_FEATURES, max_points is not None))


def _gather_kernel(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
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
        DepthImage(depth, intrinsics, extrinsics, depth_scale),
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
    dtypes = torch.int64, torch.int32, torch.float32, torch.float32
    coords, counts, reduced, voxels = spread(found, wanted, dtypes, depth)
    return reduced, coords, counts, voxels


def _gather_fake(
    depth: Tensor,
    intrinsics: Tensor,
    extrinsics: Tensor | None,
    depth_scale: float,
    *others: Any,
) -> tuple[Tensor, ...]:
    return gather_fake(_stand_in(depth, _cloud_shape(depth, intrinsics, extrinsics)), *others)


def _gather_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    depth, intrinsics, extrinsics, _, features, cells, starts, order, count, *rest = inputs
    ctx.reduce = rest[4]
    kept = features if reads_features(ctx.reduce) else None
    ctx.save_for_backward(kept, cells, starts, order, count)
    ctx.features = None if features is None else (features.shape, features.dtype)
    ctx.cloud = _cloud_shape(depth, intrinsics, extrinsics)
    ctx.mark_non_differentiable(*output[1:])


def _gather_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    result = None
    if ctx.needs_input_grad[4]:
        points, kind = _stand_in(grad, ctx.cloud), (*ctx.features, ctx.reduce)
        result = call("gather_voxels_backward", grad, points, *ctx.saved_tensors, *kind)
    return (*(None,) * 4, result, *(None,) * 11)


GROUP_DEPTH = Op(
    name="group_depth",
    schema=f"({_IMAGE}, {GRID}, SymInt? max_voxels, str? device, str? max_memory) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    kernel=_group_kernel,
    fake=_group_fake,
    inner=None,
    of=_OP,
)
GATHER_DEPTH = Op(
    name="gather_depth",
    schema=f"({_IMAGE}, Tensor? features, {GROUPS}, SymInt rows, {GRID}, str reduce, "
    "ScalarType? dtype, SymInt? max_points) -> (Tensor, Tensor, Tensor, Tensor)",
    kernel=_gather_kernel,
    fake=_gather_fake,
    inner=None,
    of=_OP,
    backward=_gather_gradient,
    setup_context=_gather_setup,
    within="features",
)


def load_gradient(
    depth: Tensor,
    intrinsics: Any,
    extrinsics: Any = None,
    depth_scale: Any = 1e-3,
    *,
    features: Any = None,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: str = "occupancy",
    sparse: bool = False,
    **others: Any,
) -> None:
    """Called by `warmup`: the engine loads kernels and computes nothing."""
    if reduce not in REDUCES_FEATURES:
        return
    image = _image_of(DepthImage(depth, intrinsics, extrinsics, depth_scale))
    grid = grid_of(origin, voxel_size, shape, _OP)
    cloud = _cloud_shape(*image[:3])
    if sparse:
        batch = cloud[0] if len(cloud) == 3 else None
        voxelize_backward(
            DepthImage(*image),
            of_batch(features, batch),
            features.new_empty((1, features.shape[-1])),
            origin=origin,
            voxel_size=voxel_size,
            shape=shape,
            reduce=reduce,
            sparse=True,
        )
        return
    like = _voxelize_fake(*image, features, *grid, reduce, None, 0, False, False)
    kind: Any = list(features.shape), features.dtype, *grid, reduce
    _backward_kernel(like[0], *image, features, *kind)
