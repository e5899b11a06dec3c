"""Clouds of every kind and size against NumPy, and against Open3D where it is installed."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from helpers import assert_same_bits, on, to_numpy

SIZES = (0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097)
# Several tasks, sorts in several parts, and blocks that are not full.
MANY = 100_003
KINDS = ("uniform", "clustered", "raster", "one voxel")
GRID = {"origin": (-0.1, 0.0, 0.05), "voxel_size": (0.07, 0.11, 0.13), "shape": (29, 17, 16)}
HUGE = {"origin": (-1, -1, -1), "voxel_size": 1e-5, "shape": (1 << 20, 1 << 20, 1 << 20)}


def cloud(kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, some of which are NaN, infinite or far away, and features."""
    rng = np.random.default_rng(zlib.crc32(f"{kind} {count}".encode()))
    points = cloud_oracle.spoil(rng, cloud_oracle.clouds(rng, kind, count), 0.002).astype("f4")
    return points, rng.normal(size=(count, 9)).astype("f4")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [*SIZES, MANY])
def test_dense_grids(kind, count, device):
    points, features = cloud(kind, count)
    cells = cloud_oracle.cells_of(points, **GRID)
    inside = cells[:, 0] >= 0
    flat = np.ravel_multi_index(tuple(cells[inside].T), GRID["shape"])
    counts = np.bincount(flat, minlength=29 * 17 * 16).reshape(GRID["shape"]).astype(np.int32)
    place = on(device)
    points, values = place(points), place(features)
    got, dropped = rc.voxelize(points, return_dropped=True, **GRID)
    assert_same_bits(got, (counts > 0).astype(np.uint8))
    assert int(dropped) == count - int(inside.sum())
    assert_same_bits(rc.voxelize(points, reduce="count", **GRID), counts)
    kept = features[inside].astype(np.float64)
    for reduce, add, start in (
        ("max", np.maximum, -np.inf),
        ("min", np.minimum, np.inf),
        ("sum", np.add, 0.0),
    ):
        want = np.full((counts.size, 9), start)
        add.at(want, flat, kept)
        want = np.where(counts.reshape(-1, 1) > 0, want, 7.0).reshape(*counts.shape, 9)
        got = rc.voxelize(points, values, reduce=reduce, fill=7, **GRID)
        if reduce != "sum":
            assert_same_bits(got, want.astype(np.float32))
            continue
        size = np.zeros((counts.size, 9))
        np.add.at(size, flat, np.abs(kept))
        size = size.reshape(*counts.shape, 9) + 1e-30
        assert (np.abs(to_numpy(got) - want) <= 1e-6 * size + (counts == 0)[..., None]).all()
        mean = to_numpy(rc.voxelize(points, values, reduce="mean", **GRID))
        most = np.maximum(counts, 1)[..., None]
        want = np.where(counts[..., None] > 0, want, 0.0)
        assert (np.abs(mean - want / most) <= 1e-6 * size / most).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", [GRID, HUGE], ids=["small", "more than 2^32 cells"])
def test_many_points_in_sparse_grids(kind, grid, device):
    """Sizes below are in test_points.py."""
    points, features = cloud(kind, MANY)
    cells = cloud_oracle.cells_of(points, **grid)
    inside = cells[:, 0] >= 0
    place = on(device)
    got = rc.voxelize(
        place(points),
        place(features),
        reduce="max",
        sparse=True,
        max_points_per_voxel=2,
        **grid,
    )
    coords, inverse, counts = np.unique(
        cells[inside], axis=0, return_inverse=True, return_counts=True
    )
    assert_same_bits(got.coords[:, 1:], coords)
    assert_same_bits(got.counts, counts.astype(np.int32))
    rows = np.full(MANY, -1, np.int64)
    rows[inside] = inverse.reshape(-1)
    assert_same_bits(got.inverse, rows)
    want = np.full((len(coords), 9), -np.inf, np.float32)
    np.maximum.at(want, rows[inside], features[inside])
    assert_same_bits(got.features, want)
    # Hard voxels: the first two of each cell in the order of the input.
    order = np.argsort(rows[inside], kind="stable")
    first = np.cumsum(counts) - counts
    both = np.concatenate([points, features], axis=1)[inside][order]
    assert_same_bits(got.voxels[:, 0], both[first])
    second = np.where((counts > 1)[:, None], both[np.minimum(first + 1, len(both) - 1)], 0)
    assert_same_bits(got.voxels[:, 1], second.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [*SIZES[1:], 20_011])
def test_farthest_points(kind, count, device):
    points, _ = cloud(kind, count)
    k = min(count, 40)
    want = cloud_oracle.farthest_points(points, k, count // 2)
    assert to_numpy(rc.farthest_points(on(device)(points), k, start=count // 2)).tolist() == want


@pytest.mark.parametrize("count", [MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_crops_of_many_points(kind, count, device):
    points, _ = cloud(kind, count)
    low, high = np.float32([0.2, 0.0, 0.1]), np.float32([1.3, 1.7, 1.1])
    with np.errstate(all="ignore"):
        mask = ((points >= low) & (points < high)).all(axis=1)
    here = on(device)(points)
    assert_same_bits(rc.crop_box(here, low.tolist(), high.tolist()), mask)
    got = rc.crop_box(here, low.tolist(), high.tolist(), compact=True)
    assert_same_bits(got.index, np.flatnonzero(mask))
    assert_same_bits(got.points, points[mask])
    assert int(got.lengths) == mask.sum()


# --- Open3D -----------------------------------------------------------------------------------


def open3d_cloud(kind: str, count: int = 5000):
    open3d = pytest.importorskip("open3d", exc_type=ImportError)
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    points = cloud_oracle.clouds(rng, kind, count)
    made = open3d.geometry.PointCloud()
    made.points = open3d.utility.Vector3dVector(points)
    return open3d, made, points


@pytest.mark.parametrize("kind", KINDS)
def test_occupied_cells_are_those_of_open3d(kind):
    open3d, made, points = open3d_cloud(kind)
    low, high, size = np.zeros(3), np.full(3, 1.9), 0.1
    within = open3d.geometry.VoxelGrid.create_from_point_cloud_within_bounds(made, size, low, high)
    theirs = {tuple(map(int, voxel.grid_index)) for voxel in within.get_voxels()}
    got = rc.voxelize(points, origin=(0, 0, 0), voxel_size=size, shape=(30, 30, 30), sparse=True)
    # Open3D keeps the voxels that touch its bounds; ours are those of the points inside of them.
    inside = (points >= low).all(axis=1) & (points <= high).all(axis=1)
    ours = {tuple(map(int, row[1:])) for row in got.coords[np.unique(got.inverse[inside])]}
    assert ours <= theirs
    assert all(max(cell) >= 19 or min(cell) < 0 for cell in theirs - ours)


@pytest.mark.parametrize("kind", KINDS)
def test_means_and_members_are_those_of_open3d(kind):
    _, made, points = open3d_cloud(kind)
    low, high, size = points.min(axis=0) - 0.5, points.max(axis=0) + 0.5, 0.25
    down, _, members = made.voxel_down_sample_and_trace(size, low, high)
    got = rc.voxelize(
        points,
        points,
        origin=tuple(low),
        voxel_size=size,
        shape=(40, 40, 40),
        reduce="mean",
        sparse=True,
    )
    theirs = {tuple(sorted(map(int, member))) for member in members}
    ours = {tuple(map(int, np.flatnonzero(got.inverse == row))) for row in range(len(got.coords))}
    assert ours == theirs
    mine = {int(np.flatnonzero(got.inverse == row)[0]): row for row in range(len(got.coords))}
    for member, mean in zip(members, np.asarray(down.points), strict=True):
        np.testing.assert_allclose(got.features[mine[min(member)]], mean, rtol=1e-9, atol=1e-12)


def test_other_ops_are_those_of_open3d():
    open3d, made, points = open3d_cloud("uniform")
    taken = made.farthest_point_down_sample(50)
    # Open3D gives them in the order of the cloud.
    ours = points[np.sort(rc.farthest_points(points, 50))]
    np.testing.assert_array_equal(ours, np.asarray(taken.points))
    low, high = (0.2, 0.3, 0.1), (1.4, 1.9, 2.2)
    cropped = made.crop(open3d.geometry.AxisAlignedBoundingBox(low, high))
    got = rc.crop_box(points, low, high, compact=True)
    np.testing.assert_array_equal(got.points, np.asarray(cropped.points))
    pose = np.eye(4)
    pose[:3, :3] = open3d.geometry.get_rotation_matrix_from_xyz((0.3, -1.0, 2.0))
    pose[:3, 3] = (1, 2, 3)
    turned = open3d.geometry.PointCloud(made).transform(pose)
    np.testing.assert_allclose(rc.transform_points(points, pose), turned.points, atol=1e-12)


def test_depth_is_that_of_open3d():
    open3d = pytest.importorskip("open3d", exc_type=ImportError)
    rng = np.random.default_rng(3)
    depth = rng.integers(0, 5000, (48, 64)).astype(np.uint16)
    depth[rng.random(depth.shape) < 0.2] = 0
    camera = open3d.camera.PinholeCameraIntrinsic(64, 48, 60.0, 61.0, 31.5, 23.5)
    cloud_of = open3d.geometry.PointCloud.create_from_depth_image
    image = open3d.geometry.Image(depth)
    theirs = np.asarray(cloud_of(image, camera, depth_scale=1000.0, depth_trunc=100.0).points)
    got = rc.unproject(torch.from_numpy(depth), [60.0, 61.0, 31.5, 23.5], depth_scale=1e-3)
    kept = to_numpy(got)[depth.reshape(-1) > 0]
    np.testing.assert_allclose(kept, theirs, rtol=1e-5, atol=1e-6)
