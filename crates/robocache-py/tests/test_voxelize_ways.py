"""The ways in which `voxelize` marks and counts cells on a GPU: each gives the bits of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from helpers import assert_same_bits

UNIT = {"origin": (0, 0, 0), "voxel_size": 1.0}


def assert_gpu_is_cpu(points: torch.Tensor, context: str = "", **options: object) -> None:
    """Grid and dropped points, on both devices."""
    options = UNIT | {"return_dropped": True} | options
    there = options | {name: x.cuda() for name, x in options.items() if isinstance(x, torch.Tensor)}
    want = rc.voxelize(points, **options)
    got = rc.voxelize(points.cuda(), **there)
    for mine, theirs in zip(got, want, strict=True):
        assert_same_bits(mine, theirs, context)


def cloud(kind: str, rows: int, count: int, side: float, seed: int = 0) -> torch.Tensor:
    """Points of which some lie outside of 0..side; neighbours share cells unless they are uniform."""
    generator = torch.Generator().manual_seed(seed)
    points = (torch.rand(rows, count, 3, generator=generator) * 1.05 - 0.02) * side
    if kind == "raster":
        points = points.sort(dim=1).values
    elif kind == "one cell":
        points[:] = side / 3
    elif kind == "spots":
        spot = torch.randint(0, 7, (rows, count), generator=generator)
        points = points[:, :7][torch.arange(rows)[:, None], spot]
    elif kind == "outside":
        points -= 2 * side
    return points


KINDS = ("uniform", "raster", "one cell", "spots", "outside")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_stored_in_a_small_grid(kind, dtype):
    for fill in (0, 1) if dtype == "u8" else (0, -2):
        for point in (torch.float32, torch.float64, torch.float16):
            for rows in (3, 4):  # Four of them are whole words, and begin within words.
                points = cloud(kind, rows, 1777, 13.0).to(point)
                assert_gpu_is_cpu(
                    points, f"{fill} {rows}", shape=(13, 15, 11), dtype=dtype, fill=fill
                )
    out = torch.full((13 * 15 * 11 * 3 + 1,), 1, dtype=torch.uint8, device="cuda")
    points = cloud(kind, 3, 1777, 13.0)
    view = out[1:].view(3, 13, 15, 11)  # not aligned to vectors
    rc.voxelize(points.cuda(), **UNIT, shape=(13, 15, 11), out=view)
    assert_same_bits(view, rc.voxelize(points, **UNIT, shape=(13, 15, 11)))
    assert int(out[0]) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_a_large_grid(kind, dtype):
    """Rows that start in the middle of a word, and an end that is no whole vector."""
    lengths = torch.tensor([20_000, 0, 777])
    sizes = {"u8": (241, 231, 233), "f16": (193, 181, 185)}
    shape = sizes.get(dtype, (151, 149, 163))
    for fill in (0, 1):
        points = cloud(kind, 3, 20_000, 149.0)
        assert_gpu_is_cpu(points, lengths=lengths, shape=shape, dtype=dtype, fill=fill)
    if dtype == "u8":
        memory = torch.full((3 * 241 * 231 * 233 + 3,), 9, dtype=torch.uint8, device="cuda")
        view = memory[3:].view(3, *shape)
        rc.voxelize(points.cuda(), **UNIT, shape=shape, out=view)
        assert_same_bits(view, rc.voxelize(points, **UNIT, shape=shape))
        assert memory[:3].tolist() == [9, 9, 9]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_made_by_clusters(kind, dtype):
    """Enough rows for all multiprocessors: a part of a chunk, one part, several, and rows cut short."""
    rows = 150
    lengths = torch.randint(0, 500, (rows,), generator=torch.Generator().manual_seed(1))
    lengths[:2] = torch.tensor([499, 0])
    for shape in ((64, 64, 64), (65, 63, 64), (128, 33, 67)):
        for point in (torch.float32, torch.bfloat16):
            points = cloud(kind, rows, 499, 30.0).to(point)
            assert_gpu_is_cpu(points, f"{shape}", shape=shape, dtype=dtype, lengths=lengths, fill=1)
    if dtype in ("u8", "f32"):
        points = cloud(kind, 24, 5001, 150.0)
        assert_gpu_is_cpu(points, "large", shape=(160, 144, 150), dtype=dtype)
        few = cloud(kind, 2, 70_001, 250.0)
        assert_gpu_is_cpu(few, "few rows of many parts", shape=(288, 256, 256), dtype=dtype)
    memory = torch.full((rows * 64**3 + 1,), 9, dtype=torch.uint8, device="cuda")
    points = cloud(kind, rows, 499, 60.0)
    view = memory[1:].view(rows, 64, 64, 64)  # not aligned to vectors
    rc.voxelize(points.cuda(), **UNIT, shape=(64, 64, 64), out=view)
    assert_same_bits(view, rc.voxelize(points, **UNIT, shape=(64, 64, 64)))
    assert int(memory[0]) == 9


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_large_grids_of_features(kind, dtype):
    """Empty cells hold `fill`, all others what the CPU writes."""
    points = cloud(kind, 2, 70_001, 90.0)
    features = torch.randn(2, 70_001, 4, generator=torch.Generator().manual_seed(2))
    shape = {"f16": (90, 160, 160), "f32": (90, 110, 112), "f64": (90, 80, 81)}[dtype]
    for fill in (0, -1.5):
        want = rc.voxelize(
            points, features, **UNIT, shape=shape, reduce="max", dtype=dtype, fill=fill
        )
        for skip in (0, 1):  # 1: not aligned to vectors
            memory = torch.full((want.numel() + skip,), 7, dtype=want.dtype, device="cuda")
            view = memory[skip:].view(want.shape)
            there = (points.cuda(), features.cuda())
            rc.voxelize(*there, **UNIT, shape=shape, reduce="max", dtype=dtype, fill=fill, out=view)
            assert_same_bits(view, want, f"{fill} {skip}")
            assert skip == 0 or float(memory[0]) == 7


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_more_points_than_cells(kind):
    """With a look first: several rows, or few points."""
    for dtype in ("u8", "f32"):
        points = cloud(kind, 2, 30_001, 17.0)
        assert_gpu_is_cpu(points, shape=(17, 17, 19), dtype=dtype)
        assert_gpu_is_cpu(points[:1].double(), shape=(17, 17, 19), dtype=dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("point", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_in_shared_memory(kind, point):
    """A grid in one part, and one in two; a size without a quick way; lengths that end early."""
    points = cloud(kind, 1, (1 << 20) + 77, 60.0).to(point)
    assert_gpu_is_cpu(points, shape=(61, 59, 60))
    assert_gpu_is_cpu(points[0, 3:], shape=(61, 59, 60), voxel_size=(1, 0.7, 1.3))
    lengths = torch.tensor([len(points[0]) - 4095], dtype=torch.int32)
    assert_gpu_is_cpu(points, lengths=lengths, shape=(3, 1, 5), dtype="f32", fill=2)
    if point != torch.float64:
        tiny = {"voxel_size": (1e-25, 1.0, 1.0), "origin": (20, 0, 0)}
        assert_gpu_is_cpu(points, shape=(4, 61, 61), **tiny)
    if kind == "uniform":
        many = cloud(kind, 1, 5_000_001, 128.0, seed=3).to(point)
        assert_gpu_is_cpu(many, shape=(128, 128, 128))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_crowds_and_of_single_points(kind, dtype):
    for point in (torch.float32, torch.float64):
        for count, side in ((50_003, 100.0), (50_003, 3.0), (31, 4.0)):
            points = cloud(kind, 2, count, side).to(point)
            size = int(side)
            options = {"reduce": "count", "dtype": dtype, "shape": (size, size, size + 1)}
            assert_gpu_is_cpu(points, f"{count} {side}", **options, fill=-1)
            assert_gpu_is_cpu(points, f"{count} {side}", **options)
    halves = cloud("uniform", 1, 5000, 20.0)
    halves[:, ::2] = 1.5  # every other point in one cell
    assert_gpu_is_cpu(halves, reduce="count", dtype=dtype, shape=(20, 20, 20))


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["occupancy", "count"])
def test_borders_of_cells_are_those_of_a_division(reduce):
    """Numbers within a few units in the last place of every border, for sizes of all magnitudes."""
    rng = np.random.default_rng(5)
    sizes = [0.1, 1 / 3, 0.7, 1.0, 3.0, 5.5, 1e3, 1e-6, 2.0**-60, 2.0**60, 1e-30, 1e30, 1e-44]
    sizes += [float(np.nextafter(np.float32(2), np.float32(1))), *rng.uniform(0.01, 9, 8)]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for size in np.array(sizes, "f4"):
            borders = (np.arange(260, dtype="f4") * size)[:, None]
            steps = np.arange(-3, 4, dtype="i4")[None]
            x = (borders.view("i4") + steps).view("f4").ravel()
            x = np.concatenate([x, -x[:20], [-size * np.float32(2.0**-60), -1e-45, 1e-45, -0.0]])
            points = np.zeros((len(x), 3), "f4")
            points[:, 0] = x
            there = torch.from_numpy(points)
            options = {"voxel_size": (float(size), 1, 1), "shape": (256, 1, 1), "reduce": reduce}
            assert_gpu_is_cpu(there, f"{size}", **options)
