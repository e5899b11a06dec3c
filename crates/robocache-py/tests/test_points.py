"""Sparse grids, compacted crops, and the small ops on points, beyond the table of cases.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from agreement import LAYOUTS, moved, scatter, seeded
from cases_clouds import GRID
from helpers import FLOATS, assert_same_bits, dtype_of, on, scaled, to_numpy, to_torch
from refusal import assert_refused

HUGE = {"origin": (-1, -1, -1), "voxel_size": 1e-5, "shape": (1 << 20, 1 << 20, 1 << 20)}
SIZES = (0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097)


def sparse_oracle(points, lengths, grid):
    """Cells in order, the points of each, the row of each point, and how many are dropped."""
    cells = cloud_oracle.cells_of(points, **grid)
    real = cloud_oracle.real_points(points, lengths)
    inside = real & (cells[..., 0] >= 0)
    rows = np.broadcast_to(np.arange(len(points))[:, None], inside.shape)
    keys = np.concatenate([rows[..., None], cells], axis=-1)[inside]
    coords, inverse_of, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    inverse = np.full(inside.shape, -1, np.int64)
    inverse[inside] = inverse_of.reshape(-1)
    return coords.reshape(-1, 4), counts.astype(np.int32), inverse, (real & ~inside).sum(axis=1)


def assert_sparse(got, points, features, lengths, grid, reduce, most) -> None:
    coords, counts, inverse, dropped = sparse_oracle(points, lengths, grid)
    assert_same_bits(got.coords, coords)
    assert_same_bits(got.counts, counts)
    assert_same_bits(got.inverse, inverse)
    assert_same_bits(got.dropped, dropped)
    assert int(got.count) == len(coords)
    flat, values = points.reshape(-1, 3), features.reshape(-1, features.shape[-1])
    members = [np.flatnonzero(inverse.reshape(-1) == row) for row in range(len(coords))]
    if reduce == "occupancy":
        assert got.features is None
    else:
        want = np.array([cloud_oracle.reduced(values[m], reduce) for m in members])
        want = want.reshape(len(coords), values.shape[-1])
        np.testing.assert_allclose(to_numpy(got.features).astype("f8"), want, rtol=1e-5, atol=1e-6)
    voxels = np.zeros((len(coords), most, 3 + values.shape[-1]), np.float32)
    for row, m in enumerate(members):
        kept = m[:most]
        voxels[row, : len(kept)] = np.concatenate([flat[kept], values[kept]], axis=1)
    assert_same_bits(got.voxels, voxels)


@pytest.mark.parametrize("kind", cloud_oracle.KINDS)
@pytest.mark.parametrize("grid", [GRID, HUGE], ids=["small", "huge"])
def test_sparse_grids(kind, grid, device):
    place = on(device)
    for count in SIZES[: -3 if kind == "one voxel" else None]:
        rng = seeded(kind, count)
        points = np.stack([cloud_oracle.clouds(rng, kind, count) for _ in range(2)])
        points = cloud_oracle.spoil(rng, points).astype("f4")
        features = rng.normal(size=(2, count, 2)).astype("f4")
        lengths = rng.integers(0, count + 1, 2)
        reduce = str(rng.choice(["occupancy", "mean", "max"]))
        got = rc.voxelize(
            place(points),
            place(features),
            reduce=reduce,
            lengths=place(lengths),
            sparse=True,
            max_points_per_voxel=3,
            **grid,
        )
        assert_sparse(got, points, features, lengths, grid, reduce, 3)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_sparse_equals_dense(reduce, device):
    rng = seeded("dense", reduce)
    place = on(device)
    points = place(rng.uniform(-0.2, 2.2, (3, 2000, 3)).astype("f4"))
    features = place(rng.normal(size=(3, 2000, 5)).astype("f4"))
    dense, counts, dropped = rc.voxelize(
        points, features, reduce=reduce, return_counts=True, return_dropped=True, **GRID
    )
    sparse = rc.voxelize(points, features, reduce=reduce, sparse=True, **GRID)
    where = tuple(sparse.coords.T)
    assert_same_bits(sparse.features, dense[where])
    assert_same_bits(sparse.counts, counts[where])
    assert_same_bits(sparse.dropped, dropped)
    assert int((counts > 0).sum()) == len(sparse.coords)


def test_sparse_without_a_batch_and_of_other_dtypes(device):
    place = on(device)
    rng = seeded("dtypes")
    for point, feature, voxel in (
        ("float16", "float16", "float16"),
        ("float32", "float16", "float32"),
        ("float16", "float64", "float64"),
    ):
        points = rng.uniform(0, 2, (90, 3)).astype(dtype_of(point))
        features = rng.normal(size=(90, 2)).astype(dtype_of(feature))
        got = rc.voxelize(
            place(points),
            place(features),
            reduce="max",
            dtype="float32",
            sparse=True,
            max_points_per_voxel=2,
            **GRID,
        )
        assert to_numpy(got.features).dtype == np.float32
        assert to_numpy(got.voxels).dtype == dtype_of(voxel)
        assert tuple(got.inverse.shape) == (90,) and tuple(got.dropped.shape) == ()
        assert (to_numpy(got.coords)[:, 0] == 0).all()


def test_a_number_of_voxels_cuts_off_or_pads(device):
    place = on(device)
    points = place(seeded("most").uniform(0, 2, (2, 300, 3)).astype("f4"))
    features = points.clone()
    whole = rc.voxelize(points, features, reduce="sum", sparse=True, **GRID)
    count = len(whole.coords)
    for most in (0, 1, count - 1, count, count + 20):
        got = rc.voxelize(
            points,
            features,
            reduce="sum",
            sparse=True,
            max_voxels=most,
            max_points_per_voxel=2,
            **GRID,
        )
        assert int(got.count) == count and len(got.coords) == most
        kept = min(most, count)
        assert_same_bits(got.coords[:kept], whole.coords[:kept])
        assert_same_bits(got.features[:kept], whole.features[:kept])
        assert bool((got.coords[kept:] == -1).all()) and int(got.counts[kept:].sum()) == 0
        assert (
            float(got.features[kept:].abs().sum()) == 0
            and float(got.voxels[kept:].abs().sum()) == 0
        )
        inverse = to_numpy(whole.inverse)
        assert_same_bits(got.inverse, np.where(inverse < most, inverse, -1))


def test_hard_voxels_keep_the_first_points_in_input_order(device):
    """250k points in few cells: the order must not depend on which block came first."""
    count = scaled(20_000)
    points = np.zeros((count, 3), np.float32)
    points[:, 0] = np.arange(count) % 3
    features = np.arange(count, dtype=np.float32)[:, None]
    got = rc.voxelize(
        on(device)(points),
        on(device)(features),
        origin=(0, 0, 0),
        voxel_size=1.0,
        shape=(3, 1, 1),
        sparse=True,
        max_points_per_voxel=7,
    )
    want = np.stack([np.arange(7) * 3 + cell for cell in range(3)])
    np.testing.assert_array_equal(to_numpy(got.voxels)[..., 3], want)


@pytest.mark.parametrize("batch", [None, 3])
def test_crops_are_compacted_in_order(batch, device):
    rng = seeded("crop", batch)
    place = on(device)
    for count in SIZES:
        shape = (count, 3) if batch is None else (batch, count, 3)
        points = cloud_oracle.spoil(rng, rng.uniform(-1, 2, shape)).astype("f4")
        options = {"low": (0, 0, 0), "high": (1, 1.5, 2)}
        if batch:
            options["lengths"] = place(rng.integers(0, count + 1, batch))
        mask = to_numpy(rc.crop_box(place(points), **options))
        got = rc.crop_box(place(points), **options, compact=True)
        rows = zip(np.atleast_2d(mask), points.reshape(batch or 1, count, 3), strict=True)
        lengths = np.atleast_1d(to_numpy(got.lengths))
        most = max([0, *lengths])
        assert tuple(got.points.shape)[-2:] == (most, 3)
        found = to_numpy(got.points).reshape(batch or 1, most, 3)
        index = to_numpy(got.index).reshape(batch or 1, most)
        for row, (inside, cloud) in enumerate(rows):
            kept = np.flatnonzero(inside)
            assert lengths[row] == len(kept)
            assert_same_bits(found[row, : len(kept)], cloud[kept])
            assert np.isnan(found[row, len(kept) :]).all()
            np.testing.assert_array_equal(index[row, : len(kept)], kept)
            assert (index[row, len(kept) :] == -1).all()


def test_masked_depth_is_told_and_dropped(device):
    depth = np.array([[0, 1000, 65535], [500, 0, 1]], np.uint16)
    points, valid = rc.unproject(on(device)(depth), [2.0, 2.0, 1.0, 0.5], return_valid=True)
    assert_same_bits(valid, depth.reshape(-1) > 0)
    assert (np.isnan(to_numpy(points)).all(axis=1) == (depth.reshape(-1) == 0)).all()
    _, dropped = rc.voxelize(
        points, return_dropped=True, origin=(-99,) * 3, voxel_size=1.0, shape=(200,) * 3
    )
    assert int(dropped) == 2
    exact = rc.unproject(
        on(device)(np.array([[1.5, 0.25]], np.float32)), np.eye(3), depth_scale=1.0
    )
    assert_same_bits(exact, np.array([[0, 0, 1.5], [0.25, 0, 0.25]], np.float32))


@pytest.mark.parametrize("name", ["transform_points", "crop_box", "farthest_points", "unproject"])
def test_views_give_the_bits_of_their_copies(name, device):
    rng = seeded(name)
    for layout in LAYOUTS:
        for dtype in FLOATS:
            points = to_torch(rng.uniform(-1, 2, (2, 130, 3)).astype(dtype_of(dtype)))
            pose = torch.from_numpy(rng.normal(size=(2, 7)))
            call = {
                "transform_points": lambda x, p: rc.transform_points(x, p),
                "crop_box": lambda x, _: rc.crop_box(x, (0, 0, 0), (1, 1, 1)),
                "farthest_points": lambda x, _: rc.farthest_points(x, 9, 4),
                "unproject": lambda x, p: rc.unproject(x, [50.0, 50.0, 2.0, 3.0], p),
            }[name]
            want = call(points, pose)
            there = [moved(scatter(x, layout, rng), device) for x in (points, pose)]
            assert_same_bits(call(*there), want, f"{layout} {dtype}")


def test_poses_on_the_host_beside_data_anywhere(device):
    place = on(device)
    points = place(np.arange(12, dtype=np.float32).reshape(4, 3))
    identity = np.eye(4)
    for pose in (identity, identity.tolist(), torch.eye(4), np.eye(4, dtype=int).tolist()):
        assert_same_bits(rc.transform_points(points, pose), points)
    turned = rc.transform_points(points, [0, 0, 1, 0, 0, 0, 1])
    assert_same_bits(turned, points + place(np.array([0, 0, 1], np.float32)))


def test_out_is_written(device):
    points = torch.rand(2, 40, 3, device=device)
    for call, out in (
        (
            lambda **o: rc.transform_points(points, torch.eye(4).tolist(), **o),
            torch.zeros(2, 40, 3),
        ),
        (
            lambda **o: rc.crop_box(points, (0, 0, 0), (1, 0.5, 1), **o),
            torch.zeros(2, 40, dtype=bool),
        ),
        (lambda **o: rc.farthest_points(points, 5, **o), torch.zeros(2, 5, dtype=torch.int64)),
    ):
        out = out.to(device)
        assert call(out=out) is out
        assert_same_bits(out, call())
        # Not where vectors begin, and with gaps.
        for other in (
            out.new_zeros(out.numel() + 1)[1:].view(out.shape),
            out.new_zeros(*out.shape, 2)[..., 0],
        ):
            call(out=other)
            assert_same_bits(other, out)


# --- on a GPU ---------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["uniform", "clustered", "one voxel", "raster"])
@pytest.mark.parametrize("grid", [GRID, HUGE], ids=["small", "huge"])
def test_many_points_on_the_gpu_give_the_rows_of_the_cpu(kind, grid):
    """Sorts and scans over many tiles; every run has the same bits."""
    for count in (1, 4096, 4097, 100_000, 300_001):
        rng = seeded(kind, count)
        points = torch.from_numpy(cloud_oracle.clouds(rng, kind, count).astype("f4"))
        features = torch.from_numpy(rng.normal(size=(count, 3)).astype("f4"))
        options = {"reduce": "mean", "sparse": True, "max_points_per_voxel": 4, **grid}
        want = rc.voxelize(points, features, **options)
        for _ in range(3):
            got = rc.voxelize(points.cuda(), features.cuda(), **options)
            for name in vars(want):
                assert_same_bits(getattr(got, name), getattr(want, name), f"{name} {count}")


@pytest.mark.gpu
def test_a_large_crop_on_the_gpu():
    points = torch.rand(3, 250_001, 3) * 2
    lengths = torch.tensor([250_001, 0, 77_777])
    want = rc.crop_box(points, (0, 0, 0), (1, 2, 1), lengths=lengths, compact=True)
    got = rc.crop_box(points.cuda(), (0, 0, 0), (1, 2, 1), lengths=lengths.cuda(), compact=True)
    for name in vars(want):
        assert_same_bits(getattr(got, name), getattr(want, name), name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_farthest_points_on_the_gpu_are_those_of_the_cpu(dtype):
    for count, k in (
        (1, 1),
        (31, 31),
        (1031, 1031),
        (8_193, 64),
        (16_384, 64),
        (16_385, 64),
        (60_000, 20),
    ):
        points = to_torch(seeded(dtype, count).normal(size=(3, count, 3)).astype(dtype_of(dtype)))
        lengths = torch.tensor([count, max(k, count // 2), count])
        want = rc.farthest_points(points, k, lengths=lengths)
        got = rc.farthest_points(points.cuda(), k, lengths=lengths.cuda())
        assert_same_bits(got, want, f"{dtype} {count} {k}")


@pytest.mark.gpu
def test_graphs_of_static_sparse_grids_and_small_ops():
    points = torch.rand(2, 5000, 3, device="cuda") * 2
    features = torch.rand(2, 5000, 4, device="cuda")
    pose = torch.rand(2, 7, device="cuda")

    def calls():
        moved_points = rc.transform_points(points, pose)
        sparse = rc.voxelize(
            moved_points, features, reduce="mean", sparse=True, max_voxels=600, **GRID
        )
        mask = rc.crop_box(moved_points, (0, 0, 0), (1, 1, 1))
        far = rc.farthest_points(points, 16)
        return sparse.coords, sparse.features, sparse.count, mask, far

    calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = calls()
    for _ in range(3):
        points.uniform_(0, 2)
        graph.replay()
        torch.cuda.synchronize()
        for mine, theirs in zip(captured, calls(), strict=True):
            assert_same_bits(mine, theirs)


@pytest.mark.gpu
def test_warmup_makes_a_first_capture_possible():
    points = torch.rand(1, 77, 3, device="cuda", dtype=torch.float64)
    options = {"sparse": True, "max_voxels": 10, "max_points_per_voxel": 2, **GRID}
    rc.warmup("voxelize", points, **options)
    rc.warmup("farthest_points", points, 3)
    rc.warmup("transform_points", points, torch.eye(4))
    rc.warmup("crop_box", points, (0, 0, 0), (1, 1, 1))
    rc.warmup("unproject", points[..., 0:2], [1.0, 1.0, 0.0, 0.0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = rc.voxelize(points, **options)
        rc.farthest_points(points, 3)
        rc.transform_points(points, torch.eye(4))
        rc.crop_box(points, (0, 0, 0), (1, 1, 1))
        rc.unproject(points[..., 0:2], [1.0, 1.0, 0.0, 0.0])
    graph.replay()
    assert_same_bits(got.coords, rc.voxelize(points.cpu(), **options).coords)


@pytest.mark.gpu
def test_bad_lengths_on_the_gpu_are_reported():
    points = torch.rand(2, 30, 3, device="cuda")
    bad = torch.tensor([3, -1], device="cuda")
    # A call that is made of two ops may raise by itself what its first half found.
    for op, call in (
        ("crop_box", lambda: rc.crop_box(points, (0, 0, 0), (1, 1, 1), lengths=bad)),
        ("farthest_points", lambda: rc.farthest_points(points, 2, lengths=bad)),
        (
            "voxelize",
            lambda: rc.voxelize(points, lengths=bad, sparse=True, max_voxels=9, **GRID),
        ),
    ):
        assert_refused(call, "InvalidArgument", "lengths", "row 1 is -1", op=op)
    taken = rc.farthest_points(points, 4, lengths=bad.abs(), check=False)
    rc.synchronize()
    assert (taken[1, 1:] == -1).all() and (taken[0, 3:] == -1).all()
