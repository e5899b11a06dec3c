"""`voxelize`, dense and sparse, and its gradients, registered with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._points import voxelize_backward
from robocache._torch_arguments import (
    IN_FEATURES,
    as_data,
    as_device,
    as_dtype,
    as_fill,
    as_flag,
    as_name,
    as_numbers,
    as_sizes,
    as_tensor,
    as_text,
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

GRID = "float[] origin, float[] voxel_size, SymInt[] shape"


def grid_of(
    origin: Any, voxel_size: Any, shape: Any, op: str = "voxelize"
) -> tuple[list[float], list[float], list[int]]:
    size = as_numbers("voxel_size", voxel_size, op)
    return (
        as_numbers("origin", origin, op),
        size * 3 if len(size) == 1 else size,
        as_sizes("shape", shape, op),
    )


def reads_features(reduce: str) -> bool:
    """Whether the gradient depends on them. Otherwise nothing needs to keep them alive."""
    return reduce in ("max", "min")


def points_of(points: Any, features: Any, lengths: Any) -> tuple[Tensor, Any, Any]:
    """The tensors of a call; gradients exist in the features."""
    op = "voxelize"
    refuse_gradients(op, IN_FEATURES, points=points, lengths=lengths)
    refuse_tangents(op, "features", features)
    features = as_tensor(features, "features", op)
    return as_data("points", points, op), features, as_tensor(lengths, "lengths", op)


def voxelize(
    points: Any,
    features: Any = None,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: Any = "occupancy",
    lengths: Any = None,
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
    """The engine's `voxelize` of torch tensors through the registered op."""
    op = "voxelize"
    refuse_options(op, out=out, stream=stream)
    points, features, lengths = points_of(points, features, lengths)
    return_counts = as_flag("return_counts", return_counts, op)
    return_dropped = as_flag("return_dropped", return_dropped, op)
    fill, digits = as_fill(fill, op)
    results = call(
        op,
        points,
        features,
        lengths,
        *grid_of(origin, voxel_size, shape),
        as_name("reduce", reduce, op),
        as_dtype(dtype, op, "dtype"),
        fill,
        return_counts,
        return_dropped,
        as_device(device, op),
        as_text(max_memory),
        as_flag("check", check, op, True),
        digits,
    )
    return chosen(results, (True, return_counts, return_dropped))


DTYPES = (torch.uint8, torch.int32, torch.int64)
"""Of occupancy, of counts, and of what is dropped."""


def _voxelize_kernel(
    points: Tensor,
    features: Tensor | None,
    lengths: Tensor | None,
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
    check: bool,
    fill_digits: str | None = None,
) -> tuple[Tensor, ...]:
    found = _core.voxelize(
        points,
        features,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        reduce=reduce,  # type: ignore[arg-type]
        lengths=lengths,
        dtype=dtype,
        fill=fill_of(fill, fill_digits),
        return_counts=return_counts,
        return_dropped=return_dropped,
        device=device,
        max_memory=max_memory,
        check=check,
    )
    return spread(found, (True, return_counts, return_dropped), DTYPES, points)


def voxelize_fake(
    points: Tensor,
    features: Tensor | None,
    lengths: Tensor | None,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
    dtype: torch.dtype | None,
    fill: float,
    return_counts: bool,
    return_dropped: bool,
    *_: Any,
    op: str = "voxelize",
) -> tuple[Tensor, Tensor, Tensor]:
    batch = common_batch(
        op, ("points", points, 2), ("features", features, 2), ("lengths", lengths, 0)
    )
    cells = with_batch(batch, *shape)
    grid, own = cells, DTYPES[1] if reduce == "count" else DTYPES[0]
    if features is not None:
        grid, own = (*cells, features.shape[-1]), features.dtype
    return (
        points.new_empty(grid, dtype=dtype or own),
        points.new_empty(cells if return_counts else (0,), dtype=DTYPES[1]),
        points.new_empty(with_batch(batch) if return_dropped else (0,), dtype=DTYPES[2]),
    )


def _voxelize_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    points, features, lengths, *rest = inputs
    grid, reduce = rest[:3], rest[3]
    ctx.save_for_backward(points, features if reads_features(reduce) else None, lengths)
    ctx.features = None if features is None else (features.shape, features.dtype)
    ctx.grid, ctx.reduce = grid, reduce
    ctx.mark_non_differentiable(*output[1:])


def _voxelize_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    result = None
    if ctx.needs_input_grad[1]:
        saved, (shape, dtype) = ctx.saved_tensors, ctx.features
        result = call("voxelize_backward", grad, *saved, shape, dtype, *ctx.grid, ctx.reduce)
    return (None, result, *(None,) * 13)


def _backward_kernel(
    grad: Tensor,
    points: Tensor,
    features: Tensor | None,
    lengths: Tensor | None,
    features_shape: list[int],
    dtype: torch.dtype,
    origin: list[float],
    voxel_size: list[float],
    shape: list[int],
    reduce: str,
) -> Tensor:
    batch = grad.shape[0] if grad.dim() == 5 else None
    result = voxelize_backward(
        of_batch(points, batch),
        of_batch(described(features, features_shape, dtype, grad), batch),
        grad,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        reduce=reduce,
        lengths=lengths,
    )
    return as_shared(result, features_shape)


def described(
    features: Tensor | None, shape: Sequence[int], dtype: torch.dtype, like: Tensor
) -> Tensor:
    """The features, or something of their shape that nobody reads."""
    return like.new_empty((), dtype=dtype).expand(shape) if features is None else features


def of_batch(tensor: Tensor, batch: int | None) -> Tensor:
    """A tensor `[..,N,K]` with the batch of the call: the gradient wants a row for each."""
    own = tensor.shape[-2:]
    return tensor.reshape(own) if batch is None else tensor.expand(batch, *own)


def as_shared(result: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient of features of this shape: where a batch shares them, its rows are added up."""
    rows = shape[0] if len(shape) == 3 else 1
    if result.dim() == 3 and result.shape[0] != rows:
        result = result.sum(0)
    return result.reshape(*shape)


def _backward_fake(grad: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty(arguments[3], dtype=arguments[4])


VOXELIZE = Op(
    name="voxelize",
    schema=f"(Tensor points, Tensor? features, Tensor? lengths, {GRID}, str reduce, "
    "ScalarType? dtype, float fill, bool return_counts, bool return_dropped, str? device, "
    "str? max_memory, bool check, str? fill_digits=None) -> (Tensor, Tensor, Tensor)",
    kernel=_voxelize_kernel,
    fake=voxelize_fake,
    inner={0: 2, 1: 2, 2: 0},
    backward=_voxelize_gradient,
    setup_context=_voxelize_setup,
    within="features",
)
VOXELIZE_BACKWARD = Op(
    name="voxelize_backward",
    schema="(Tensor grad, Tensor points, Tensor? features, Tensor? lengths, "
    f"SymInt[] features_shape, ScalarType dtype, {GRID}, str reduce) -> Tensor",
    kernel=_backward_kernel,
    fake=_backward_fake,
    inner={0: 4, 1: 2, 2: 2, 3: 0},
    backward=no_second_gradient("voxelize"),
    of="voxelize",
    within="features",
    shape=4,
    full=(0,),
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
    grid = grid_of(origin, voxel_size, shape)
    lengths = as_tensor(lengths, "lengths", "voxelize")
    like = voxelize_fake(points, features, lengths, *grid, reduce, None, 0, False, False)
    kind: Any = list(features.shape), features.dtype, *grid, reduce
    _backward_kernel(like[0], points, features, lengths, *kind)
