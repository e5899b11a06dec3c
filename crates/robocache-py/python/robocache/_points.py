"""Point clouds: the sparse form of `voxelize`, and what waits for a number before it allocates.

torch.compile traces these functions; what they call of the engine becomes a node of its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robocache import _core, _ops
from robocache._arguments import device_of, flag, invalid, whole
from robocache._depth import DepthImage, op_of, tensors_of

REDUCES_FEATURES = ("sum", "mean", "max", "min")


@dataclass(frozen=True)
class SparseVoxels:
    """Occupied cells, sorted by batch, x, y and z."""

    coords: Any
    """`[M,4]` int64: row of the batch, x, y, z."""
    features: Any
    """`[M,F]`, the reduced features; None without a reduction of features."""
    counts: Any
    """`[M]` int32: points of each cell."""
    inverse: Any
    """`[B,N]` int64: the row of each point's cell, -1 for none."""
    dropped: Any
    """`[B]` int64: points outside of the grid, NaN or infinite."""
    voxels: Any
    """`[M,P,3+F]`: the first P points of each cell with their features, zero-padded; None unless
    `max_points_per_voxel` was given."""
    count: Any
    """`[]` int64: how many cells are occupied; with `max_voxels` it may be more than the rows."""


@dataclass(frozen=True)
class Cropped:
    """Points within a box, at the front of their rows."""

    points: Any
    """`[M,3]`, or `[B,M,3]` with NaN behind the last of a row."""
    index: Any
    """`[M]` or `[B,M]` int64: where they were, -1 behind the last."""
    lengths: Any
    """`[]` or `[B]` int64: how many a row has."""


def voxelize(
    points: Any,
    features: Any = None,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: str = "occupancy",
    lengths: Any = None,
    dtype: Any = None,
    fill: float = 0,
    sparse: bool = False,
    return_counts: bool = False,
    return_dropped: bool = False,
    max_points_per_voxel: int | None = None,
    max_voxels: int | None = None,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any:
    """Points counted, or their features reduced, in the cells of a grid.

    The cell of a point is `floor((p - origin) / voxel_size)`, with origin and size rounded to what
    the points compute in (float32, or float64 for float64 points), a subtraction and an IEEE division:
    the same cell on CPU and GPU, also for points on borders. Cells are half-open. Points outside of
    the grid, NaN and infinite ones are dropped.

    Args:
        points: `[B,N,3]` or `[N,3]`: float16, bfloat16, float32 or float64.
        features: `[B,N,F]` or `[N,F]` floats, for the reductions of features.
        origin: three numbers, the lower corner of cell (0, 0, 0).
        voxel_size: a number, or three for x, y and z.
        shape: `(X, Y, Z)`, cells along the axes, up to 2**24 each.
        reduce: "occupancy" (1 where there is a point), "count", or "sum", "mean", "max" and "min" of
            the features. A NaN feature makes its cell's result NaN; -0 is below +0. Sums are taken in
            float64 in the order of the points (in 32 interleaved sums where a cell has 64 points or
            more), so all results have the same bits on every run, and on CPU and GPU.
        lengths: `[B]` int32 or int64, how many points of each row exist; the rest is padding.
        dtype: of the grid. Occupancy: any, uint8 by default; counts: int32 (default), int64, float32
            or float64; features: a float, that of `features` by default.
        fill: what empty cells hold: integer grids hold it exactly, floats round it. Not for sparse grids.
        sparse: return the occupied cells only, for grids whose dense form would not fit: fewer than
            2**63 cells in all. Waits once for their number, like `torch.unique`, unless `max_voxels` says
            it.
        return_counts: also return `counts [B,X,Y,Z]` int32.
        return_dropped: also return `dropped [B]` int64; padding does not count.
        max_points_per_voxel: of a sparse grid: also return `.voxels`, the first so many points of each
            cell in the order of the input, with their features, zero-padded ("hard voxels").
        max_voxels: of a sparse grid: so many rows, without waiting (for CUDA graphs). Rows past the
            occupied cells hold -1 as coordinates and 0 elsewhere; cells past the rows are left out, and
            `.count` tells how many there are.
        out: a row-major tensor for the grid, or a tuple for all results.
        device: None or where the data lives. Data on the host can be streamed through a GPU, a list of
            GPUs, or "auto", the first that works (docs/multi-gpu.md).
        stream: a CUDA stream (an integer handle or a torch stream) instead of the current one.
        max_memory: bytes, a size like "2GiB", or "auto": the call runs in parts of the batch that take no more,
            with the same bits (docs/memory.md). A sparse grid is made in one part.
        chunk: rows of a part, instead.
        progress: True shows a bar, a function is called with the parts that are done and all of them.
        check: look for bad lengths. On the CPU they raise; on CUDA nothing waits: the row counts as
            empty, and the next call on the device or `synchronize()` raises. Without it they are
            clamped.

    What has a batch of 1 is shared by the batch.

    torch: gradients pass through the features of "sum", "mean", "max" and "min" (to the first point that
    holds the value), dense and sparse, backward and once; the same bits on every run. Points and hard
    voxels have none. `torch.compile` makes such a call a node of its graph, also a sparse one: static with
    `max_voxels`; without, of a size that is known when it runs (with `fullgraph=True`; otherwise the graph
    breaks where the call waits). `torch.func.vmap` maps dense grids.

    Returns:
        `[B,X,Y,Z]`, or `[B,X,Y,Z,F]` for features (without B for `[N,3]`), in the framework of
        `points`; with the counts and the dropped, in this order, where they were asked for. A sparse
        grid is a `SparseVoxels`: `.coords`, `.features`, `.counts`, `.inverse`, `.dropped`, `.voxels`,
        `.count`.
    """
    op = op_of(points)
    if not flag("sparse", sparse, op):
        for name, value in (
            ("max_points_per_voxel", max_points_per_voxel),
            ("max_voxels", max_voxels),
        ):
            if value is not None:
                raise invalid(name, "only a sparse grid has one; pass sparse=True", op)
        return _ops.engine(*tensors_of(points), features, lengths, out).voxelize(
            points,
            features,
            origin=origin,
            voxel_size=voxel_size,
            shape=shape,
            reduce=reduce,
            lengths=lengths,
            dtype=dtype,
            fill=fill,
            return_counts=return_counts,
            return_dropped=return_dropped,
            out=out,
            device=device,
            stream=stream,
            max_memory=max_memory,
            chunk=chunk,
            progress=progress,
            check=check,
        )
    if out is not None:
        raise invalid("out", "a sparse grid allocates its results", op)
    reduces = reduce in REDUCES_FEATURES
    if dtype is not None and not reduces:
        raise invalid("dtype", "a sparse grid has one only for reduced features", op)
    grid = {"origin": origin, "voxel_size": voxel_size, "shape": shape}
    rows = None if max_voxels is None else whole("max_voxels", max_voxels, 0, op=op)
    engine = _ops.engine(*tensors_of(points), features, lengths)
    groups = engine.group_points(
        points,
        **grid,
        lengths=lengths,
        max_voxels=rows,
        device=device,
        stream=stream,
        max_memory=max_memory,
        chunk=chunk,
        progress=progress,
        check=check,
    )
    if rows is None:
        # The one place that waits.
        rows = _ops.wait_for(groups[5], len(groups[0]))
    found = list(
        engine.gather_voxels(
            points,
            features,
            groups,
            rows,
            **grid,
            reduce=reduce,
            dtype=dtype,
            max_points=max_points_per_voxel,
            device=device,
            stream=stream,
            max_memory=max_memory,
        )
    )
    coords, counts = found[:2]
    return SparseVoxels(
        coords=coords,
        features=found[2] if reduces else None,
        counts=counts,
        inverse=groups[3],
        dropped=groups[4],
        voxels=None if max_points_per_voxel is None else found[-1],
        count=groups[5],
    )


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
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    check: bool = True,
) -> Any:
    """Points within a box: `low <= p < high` along every axis.

    The bounds are rounded to what the points compute in: float32, or float64 for float64 points. NaN
    lies in no box, and neither does padding.

    Args:
        points: `[B,N,3]` or `[N,3]` floats.
        low, high: three numbers each; infinite ones are no bounds.
        lengths: `[B]` int32 or int64, how many points of each row exist.
        compact: return the points instead of a mask. Waits once for their number.
        out: a tensor for the mask.
        device: None or where the data lives. Data on the host can be streamed through a GPU, a list of
            GPUs, or "auto", the first that works (docs/multi-gpu.md).
        stream: a CUDA stream instead of the current one.
        max_memory, chunk, progress: as for `voxelize`; a mask is also cut within a row.
        check: look for bad lengths. On the CPU they raise; on CUDA the row counts as empty, and the
            next call on the device or `synchronize()` raises.

    Returns:
        `mask [B,N]` bool, or a `Cropped` with `.points`, `.index` and `.lengths`.
    """
    compact = flag("compact", compact, "crop_box")
    if compact and out is not None:
        raise invalid("out", "compacted points are allocated", "crop_box")
    found = _ops.engine(points, lengths, out).crop_box(
        points,
        low,
        high,
        lengths=lengths,
        compact=compact,
        out=out,
        device=device,
        stream=stream,
        max_memory=max_memory,
        chunk=chunk,
        progress=progress,
        check=check,
    )
    if not compact:
        return found
    moved, index, kept = found
    # The one place that waits.
    longest = kept.max() if kept.ndim and len(kept) else kept
    most = _ops.wait_for(longest, index.shape[-1]) if not longest.ndim else 0
    return Cropped(moved[..., :most, :], index[..., :most], kept)


def voxelize_backward(
    points: Any,
    features: Any,
    grad: Any,
    *,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    reduce: str,
    lengths: Any = None,
    max_voxels: int | None = None,
    sparse: bool = False,
    stream: Any = None,
) -> Any:
    """The gradient of `features` from `grad`, that of what `voxelize` made of them.

    Sum: all of the cell's gradient; mean: its part; max and min: to the first point that holds the
    value. Points outside of the grid get 0. Nothing is added up: the same bits on every run. Points may
    be a `DepthImage`.
    """
    groups = _core.group_points(
        points,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        lengths=lengths,
        max_voxels=max_voxels,
        stream=stream,
        check=False,
    )
    return _core.voxelize_backward(
        points,
        features,
        grad.contiguous() if hasattr(grad, "contiguous") else grad,
        groups,
        reduce=reduce,  # type: ignore[arg-type]
        sparse=sparse,
        stream=stream,
    )


def voxelize_depth(
    depth: Any,
    intrinsics: Any,
    extrinsics: Any = None,
    depth_scale: float = 1e-3,
    *,
    features: Any = None,
    origin: Any,
    voxel_size: Any,
    shape: Any,
    **options: Any,
) -> Any:
    """Depth images to a grid: `unproject`, then `voxelize`, bit for bit, but without the cloud in memory.

    What lies outside of the grid is dropped, and so is masked depth: `return_dropped` counts both.
    torch: as `voxelize`, with gradients in the features and none in the depth.

    Args:
        depth, intrinsics, extrinsics, depth_scale: as for `unproject`.
        features: `[B,H*W,F]` or `[H*W,F]`, row by row of the image, such as colours.
        origin, voxel_size, shape, **options: as for `voxelize`, but `lengths`.

    Returns:
        What `voxelize` returns.
    """
    if "lengths" in options:
        raise invalid("lengths", "an image has no padding", "voxelize_depth")
    return voxelize(
        DepthImage(depth, intrinsics, extrinsics, depth_scale),
        features,
        origin=origin,
        voxel_size=voxel_size,
        shape=shape,
        **options,
    )


def voxelize_pointcloud(
    points: Any,
    features: Any = None,
    grid_min: Any = (-10.0, -10.0, -10.0),
    voxel_size: Any = 0.1,
    grid_size: Any = (128, 128, 128),
    mode: str = "occupancy",
    backend: str | None = None,
) -> Any:
    """The older name of `voxelize`: occupancy and counts in int32, `backend` for `device`."""
    reduces = mode in REDUCES_FEATURES
    return voxelize(
        points,
        features if reduces else None,
        origin=grid_min,
        voxel_size=voxel_size,
        shape=grid_size,
        reduce=mode,
        dtype=None if reduces else "int32",
        device=device_of(backend, "voxelize_pointcloud"),
    )
