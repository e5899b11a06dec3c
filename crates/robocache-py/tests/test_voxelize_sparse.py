"""The ways in which sparse grids are grouped, reduced and gathered on a GPU: each gives the bits of the CPU."""

from __future__ import annotations

import pytest
import torch

import robocache as rc
from helpers import assert_same_bits

UNIT = {"origin": (0, 0, 0), "voxel_size": 1.0, "sparse": True}
WIDTHS = (1, 2, 3, 4, 8, 16, 17, 32, 130, 136, 520)
# Points of cells, one after the other: around what is reduced in lanes, and around whole warps.
SIZES = (1, 2, 3, 5, 31, 32, 33, 62, 63, 64, 65, 95, 96, 97, 128, 700)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def assert_gpu_is_cpu(
    points: torch.Tensor, features: torch.Tensor | None = None, context: str = "", **options: object
) -> None:
    """Every field, on both devices. What is a view stays one."""
    options = UNIT | options
    there = options | {name: x.cuda() for name, x in options.items() if isinstance(x, torch.Tensor)}
    want = rc.voxelize(points, *([] if features is None else [features]), **options)
    mine = [] if features is None else [on_gpu(features)]
    got = rc.voxelize(on_gpu(points), *mine, **there)
    for name in ("coords", "counts", "features", "voxels", "inverse", "dropped", "count"):
        one, other = getattr(got, name), getattr(want, name)
        assert (one is None) == (other is None), f"{name} {context}"
        if one is not None:
            assert_same_bits(one, other, f"{name} {context}")


def on_gpu(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same start within its memory."""
    whole = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    return torch.as_strided(whole.cuda(), x.shape, x.stride(), x.storage_offset())


def cloud_of(sizes: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Points in cells of a line, of so many each, in any order; a few lie outside."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    cells = torch.cat([cells, torch.full((7,), -3)])
    cells = cells[torch.randperm(len(cells), generator=generator)]
    points = torch.rand(len(cells), 3, generator=generator) * 0.9
    points[:, 0] = cells.float() + 0.5
    return points


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[x.abs() < 0.01] = -0.0
    return x


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_all_widths(width, dtype):
    points = cloud_of(SIZES + (1,) * 90 + (2,) * 9)
    features = numbers(len(points), width).to(dtype)
    for reduce in ("sum", "mean", "max", "min"):
        assert_gpu_is_cpu(points, features, reduce, reduce=reduce, shape=(200, 1, 1))
    other = "float64" if dtype != torch.float64 else "float32"
    assert_gpu_is_cpu(points, features, other, reduce="mean", shape=(200, 1, 1), dtype=other)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_features_that_are_no_whole_vectors(dtype):
    """An odd start, padded points, columns apart, rows apart: one by one, or with a jump between rows."""
    points = torch.stack([cloud_of(SIZES, seed) for seed in (1, 2)])
    count = points.shape[1]
    memory = numbers(2, count + 3, 40).to(dtype)
    flat = memory.reshape(-1)
    views = {
        "odd start": flat[1 : 1 + 2 * count * 16].view(2, count, 16),
        "padded points": memory[:, :count, 8:24],
        "odd padding": flat[: 2 * count * 19].view(2, count, 19)[..., :16],
        "columns apart": memory[:, :count, ::2],
        "rows reversed in memory": memory[:, :count, :16]
        .transpose(1, 2)
        .contiguous()
        .transpose(1, 2),
    }
    for name, features in views.items():
        for reduce in ("mean", "min"):
            options = {"reduce": reduce, "max_points_per_voxel": 3}
            assert_gpu_is_cpu(points, features, f"{name} {reduce}", shape=(20, 1, 1), **options)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(40, 41, 43), (1 << 11, 1 << 11, 1 << 11)], ids=["32 bits", "64 bits"]
)
@pytest.mark.parametrize("count", [1, 1023, 1024, 2047, 2048, 2049, 70_001, 600_011])
def test_groups_over_many_tiles(count, shape):
    """Where cells begin is summed over tiles; 600k points take more of them at once."""
    generator = torch.Generator().manual_seed(count)
    points = torch.rand(count, 3, generator=generator) * 41 - 0.3
    features = numbers(count, 4).float()
    assert_gpu_is_cpu(points, features, reduce="mean", shape=shape)
    lengths = torch.tensor([count // 2])
    assert_gpu_is_cpu(points[None], lengths=lengths, shape=shape, max_points_per_voxel=2)
    assert_gpu_is_cpu(points - 100, features, "outside", reduce="max", shape=shape)
    for cell in (0.5, 40.5):
        assert_gpu_is_cpu(
            torch.full_like(points, cell), features, "one cell", reduce="sum", shape=shape
        )


@pytest.mark.gpu
def test_rows_cut_off_and_padded():
    points = cloud_of(SIZES * 8)
    features = numbers(len(points), 12).float()
    occupied = len(SIZES) * 8
    for most in (1, 31, 33, occupied - 1, occupied, occupied + 1, occupied + 300, 5000):
        options = {"max_voxels": most, "max_points_per_voxel": 3, "reduce": "mean"}
        assert_gpu_is_cpu(points, features, f"{most}", shape=(200, 1, 1), **options)


@pytest.mark.gpu
@pytest.mark.parametrize("point", FLOATS, ids=str)
@pytest.mark.parametrize("feature", [None, *FLOATS], ids=str)
def test_hard_voxels_of_all_types(feature, point):
    """Vectors of the result go over the borders of points and rows; the last is not whole."""
    points = torch.stack([cloud_of(SIZES[:9], seed) for seed in (3, 4)]).to(point)
    for width in (0,) if feature is None else (1, 2, 5, 13, 16):
        features = None if feature is None else numbers(*points.shape[:2], width).to(feature)
        for most in (1, 2, 3, 8, 40):
            options = {"max_points_per_voxel": most, "shape": (20, 1, 1)}
            assert_gpu_is_cpu(points, features, f"{width} {most}", **options)
            assert_gpu_is_cpu(points, features, f"{width} {most} cut", max_voxels=7, **options)
