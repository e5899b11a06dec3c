"""What the ops on point clouds must compute, in NumPy, written from the contract alone."""

from __future__ import annotations

import numpy as np


def compute_type(dtype: np.dtype) -> type:
    """What coordinates compute in."""
    return np.float64 if dtype == np.float64 else np.float32


def cells_of(points: np.ndarray, origin, voxel_size, shape) -> np.ndarray:
    """`[..., 3]` coordinates to `[..., 3]` int64 cells; -1 in all three where there is none."""
    kind = compute_type(points.dtype)
    with np.errstate(all="ignore"):
        places = (points.astype(kind) - np.asarray(origin, kind)) / np.broadcast_to(
            np.asarray(voxel_size, kind), 3
        )
        assert places.dtype == kind
        places = np.floor(places)
        inside = ((places >= 0) & (places < np.asarray(shape, kind))).all(axis=-1)
        cells = np.where(inside[..., None], places, -1.0).astype(np.int64)
    return cells


def real_points(points: np.ndarray, lengths) -> np.ndarray:
    """`[B,N]` bool: what is not padding."""
    batch, count = points.shape[:2]
    if lengths is None:
        return np.ones((batch, count), bool)
    return np.arange(count) < np.broadcast_to(np.asarray(lengths), (batch,))[:, None]


def reduced(values: np.ndarray, reduce: str) -> np.ndarray:
    """`[n, F]` features of one cell to `[F]`, in float64."""
    values = values.astype(np.float64)
    if reduce == "sum":
        return values.sum(axis=0)
    if reduce == "mean":
        return values.sum(axis=0) / len(values)
    # -0 is below +0, and NaN is the answer wherever it is.
    order = np.where(np.signbit(values) & (values == 0), -1, 0)
    pick = np.lexsort((order, values), axis=0)[-1 if reduce == "max" else 0]
    best = np.take_along_axis(values, pick[None], 0)[0]
    return np.where(np.isnan(values).any(axis=0), np.nan, best)


def voxelize(
    points, features=None, *, origin, voxel_size, shape, reduce="occupancy", lengths=None, fill=0
):
    """The grid (float64, `[B,X,Y,Z(,F)]`), counts, dropped, and the magnitude of sums."""
    batch = max(len(points), 1 if features is None else len(features))
    if lengths is not None and np.ndim(lengths):
        batch = max(batch, len(lengths))
    if batch > 1:
        points = np.broadcast_to(points, (batch, *points.shape[1:]))
        if features is not None:
            features = np.broadcast_to(features, (batch, *features.shape[1:]))
    cells = cells_of(points, origin, voxel_size, shape)
    real = real_points(points, lengths)
    inside = real & (cells[..., 0] >= 0)
    counts = np.zeros((len(points), *shape), np.int32)
    width = () if features is None else features.shape[-1:]
    grid = np.full((len(points), *shape, *width), fill, np.float64)
    scale = np.zeros_like(grid)
    for b in range(len(points)):
        kept = np.flatnonzero(inside[b])
        flat = np.ravel_multi_index(tuple(cells[b, kept].T), shape)
        np.add.at(counts[b].reshape(-1), flat, 1)
        if features is None:
            continue
        order = np.argsort(flat, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(flat[order])) + 1):
            if len(group):
                where = np.unravel_index(flat[group[0]], shape)
                values = features[b, kept[group]]
                with np.errstate(all="ignore"):
                    grid[(b, *where)] = reduced(values, reduce)
                scale[(b, *where)] = np.abs(values.astype(np.float64)).sum(axis=0)
                if reduce == "mean":
                    scale[(b, *where)] /= len(group)
    if features is None:
        grid = np.where(counts > 0, 1 if reduce == "occupancy" else counts, fill).astype(np.float64)
    return grid, counts, (real & ~inside).sum(axis=1), scale


def transform(points: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Points moved by matrices `[..., 3|4, 4]` or by xyz and quaternion `[..., 7]`, in float64."""
    if pose.shape[-1] == 7:
        x, y, z, w = np.moveaxis(
            pose[..., 3:] / np.linalg.norm(pose[..., 3:], axis=-1)[..., None], -1, 0
        )
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        turn = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
        step = pose[..., :3]
    else:
        turn, step = pose[..., :3, :3], pose[..., :3, 3]
    if turn.ndim == 3:
        return (turn[:, None] * points[..., None, :]).sum(axis=-1) + step[:, None]
    return (turn * points[..., None, :]).sum(axis=-1) + step


def unproject(depth, intrinsics, extrinsics=None, depth_scale=1e-3) -> np.ndarray:
    """`[..., H, W]` depth to `[..., H*W, 3]` points in float64, NaN where there is none."""
    height, width = depth.shape[-2:]
    v, u = np.divmod(np.arange(height * width), max(width, 1))
    camera = intrinsics.astype(np.float64)
    if camera.shape[-1] == 3:
        camera = np.stack(
            [camera[..., 0, 0], camera[..., 1, 1], camera[..., 0, 2], camera[..., 1, 2]], axis=-1
        )
    fx, fy, cx, cy = (camera[..., i, None] for i in range(4))
    with np.errstate(all="ignore"):
        z = depth.astype(np.float64).reshape(*depth.shape[:-2], -1) * depth_scale
        z = np.where((z > 0) & np.isfinite(z), z, np.nan)
        points = np.stack([(u - cx) / fx * z, (v - cy) / fy * z, z], axis=-1)
        return points if extrinsics is None else transform(points, extrinsics.astype(np.float64))


def farthest_points(points: np.ndarray, k: int, start: int) -> list[int]:
    """One cloud, one point after the other, in what the points compute in."""
    points = points.astype(compute_type(points.dtype))
    finite = np.isfinite(points).all(axis=-1)
    nearest = np.where(finite, np.inf, -1.0).astype(points.dtype)
    taken: list[int] = []
    at = start
    while len(taken) < k:
        taken.append(at)
        with np.errstate(all="ignore"):
            d = points - points[at]
            distance = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
            nearest = np.where((nearest >= 0) & (distance < nearest), distance, nearest)
        nearest[at] = -2
        at = int(np.argmax(nearest))
    return taken


def clouds(rng: np.random.Generator, kind: str, count: int, low=-1.0, high=3.0) -> np.ndarray:
    """`[count, 3]` float64 points about the cube from 0 to 2."""
    if kind == "uniform":
        points = rng.uniform(low, high, (count, 3))
    elif kind == "clustered":  # as a LiDAR sees walls and people
        centres = rng.uniform(0, 2, (max(1, count // 200), 3))
        points = centres[rng.integers(0, len(centres), count)] + rng.normal(0, 0.02, (count, 3))
    elif kind == "raster":  # as a depth camera sees a slope, row by row
        side = max(1, int(np.ceil(np.sqrt(count))))
        v, u = np.divmod(np.arange(count), side)
        points = np.stack([u / side * 2, v / side * 2, 1 + 0.3 * np.sin(5 * u / side)], axis=1)
    elif kind == "one voxel":
        points = np.full((count, 3), 0.77)
    elif kind == "borders":
        points = rng.integers(-2, 12, (count, 3)) * 0.25
    else:
        raise ValueError(kind)
    return points.reshape(count, 3)


KINDS = ("uniform", "clustered", "raster", "one voxel", "borders")


def spoil(rng: np.random.Generator, points: np.ndarray, share: float = 0.03) -> np.ndarray:
    """Some coordinates become NaN, infinite or huge."""
    points = points.copy()
    bad = rng.random(points.shape) < share
    points[bad] = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0], int(bad.sum()))
    return points
