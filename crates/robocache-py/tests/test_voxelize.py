"""`voxelize`: random clouds against the oracle, layouts, bits, and what frameworks hand over."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from agreement import LAYOUTS, moved, scatter, seeded
from cases_clouds import GRID, assert_grid
from generate import random_values
from helpers import FLOATS, assert_same_bits, dtype_of, on, scaled, to_numpy, to_torch

REDUCES = ("occupancy", "count", "sum", "mean", "max", "min")


def random_call(rng: np.random.Generator, kind: str, reduce: str) -> tuple[dict, dict]:
    """Arrays and options of a call with a grid of any proportions."""
    batch, count = int(rng.integers(1, 4)), int(rng.integers(0, 600))
    shape = tuple(int(n) for n in rng.integers(1, 20, 3))
    point, feature = (str(rng.choice(FLOATS)) for _ in range(2))
    points = np.stack([cloud_oracle.clouds(rng, kind, count) for _ in range(batch)])
    with np.errstate(over="ignore"):
        arrays = {"points": cloud_oracle.spoil(rng, points).astype(dtype_of(point))}
    if reduce in REDUCES[2:]:
        width = int(rng.choice([1, 2, 5, 16, 33]))
        arrays["features"] = random_values(rng, (batch, count, width), feature, 0.01)
    if rng.random() < 0.5:
        kind = rng.choice(["int32", "int64"])
        arrays["lengths"] = rng.integers(0, count + 1, batch).astype(kind)
    options = {
        "origin": tuple(rng.uniform(-1, 1, 3)),
        "voxel_size": tuple(rng.uniform(0.05, 0.5, 3)),
        "shape": shape,
        "reduce": reduce,
        "fill": int(rng.integers(0, 2)),
    }
    return arrays, options


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("kind", cloud_oracle.KINDS)
def test_random_clouds(kind, reduce, device):
    for index in range(scaled(6)):
        arrays, options = random_call(seeded(kind, reduce, index), kind, reduce)
        want, counts, dropped, scale = cloud_oracle.voxelize(**arrays, **options)
        place = on(device)
        got = rc.voxelize(
            **{name: place(array) for name, array in arrays.items()},
            **options,
            return_counts=True,
            return_dropped=True,
        )
        default = {"occupancy": np.dtype("uint8"), "count": np.dtype("int32")}
        dtype = default.get(reduce) or arrays["features"].dtype
        context = f"{kind} {reduce} {index}"
        assert_grid(got[0], want, scale, dtype, reduce not in ("sum", "mean"), context)
        assert_same_bits(got[1], counts, context)
        assert_same_bits(got[2], dropped.astype(np.int64), context)


@pytest.mark.parametrize("reduce", REDUCES)
def test_views_give_the_bits_of_their_copies(reduce, device):
    for index, layout in enumerate(LAYOUTS * scaled(3)):
        rng = seeded(reduce, layout, index)
        arrays, options = random_call(rng, "uniform", reduce)
        tensors = {name: to_torch(array) for name, array in arrays.items()}
        want = rc.voxelize(**tensors, **options)
        views = {name: moved(scatter(x, layout, rng), device) for name, x in tensors.items()}
        assert_same_bits(rc.voxelize(**views, **options), want, f"{reduce} {layout}")


def test_negative_and_zero_strides(device):
    rng = seeded("strides")
    points, features = rng.uniform(0, 2, (40, 3)), rng.normal(size=(40, 2))
    want = rc.voxelize(points[::-1].copy(), features[::-1].copy(), reduce="sum", **GRID)
    assert_same_bits(rc.voxelize(points[::-1], features[::-1], reduce="sum", **GRID), want)
    place = on(device)
    one = place(points).expand(5, 40, 3)
    many = rc.voxelize(one, reduce="count", **GRID)
    single = rc.voxelize(place(points), reduce="count", **GRID)
    for row in many:
        assert_same_bits(row, single)
    # A batch of one is shared by the batch of the other.
    shared = rc.voxelize(
        place(points)[None], place(features).expand(3, 40, 2), reduce="mean", **GRID
    )
    alone = rc.voxelize(place(points), place(features), reduce="mean", **GRID)
    for row in shared:
        assert_same_bits(row, alone)


@pytest.mark.parametrize("dtype", FLOATS)
def test_borders_belong_to_the_upper_cell(dtype, device):
    """Multiples of the size, and their neighbours, in the type that points compute in."""
    kind = dtype_of(dtype)
    compute = cloud_oracle.compute_type(kind)
    size, origin = compute(0.1), compute(-0.3)
    steps = np.arange(-2, 30).astype(compute)
    border = (origin + steps * size).astype(compute)
    near = [border, np.nextafter(border, compute(-9)), np.nextafter(border, compute(9))]
    x = np.concatenate(near).astype(kind)
    points = np.stack([x, np.full_like(x, 0.5), np.full_like(x, 0.5)], axis=1)
    options = {"origin": (-0.3, 0, 0), "voxel_size": (0.1, 1, 1), "shape": (20, 1, 1)}
    want, _, dropped, _ = cloud_oracle.voxelize(points[None], reduce="count", **options)
    got, lost = rc.voxelize(on(device)(points), reduce="count", return_dropped=True, **options)
    assert_same_bits(got, want[0].astype(np.int32))
    assert int(lost) == dropped[0]


def test_points_far_away_are_dropped_not_wrapped(device):
    """37: 1e30 must not become an integer; nothing is lost in silence."""
    far = [1e30, -1e30, 3.4e38, -3.4e38, 2.0**31, 2.0**32, 2.0**63, 2.0**64, np.inf, np.nan]
    points = np.full((len(far) * 3, 3), 0.5, np.float32)
    for axis in range(3):
        for i, x in enumerate(far):
            points[axis * len(far) + i, axis] = x
    grid, dropped = rc.voxelize(on(device)(points), return_dropped=True, **GRID)
    assert int(to_numpy(grid).sum()) == 0 and int(dropped) == len(points)


def test_the_largest_of_negative_features_is_negative(device):
    place = on(device)
    points = place(np.zeros((3, 3), np.float32))
    features = np.array([[-5.0, -0.0, 1.0], [-2.0, 0.0, np.nan], [-9.0, -0.0, 2.0]], np.float32)
    options = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 1)}
    largest = to_numpy(rc.voxelize(points, place(features), reduce="max", **options))[0, 0, 0]
    assert_same_bits(largest, np.array([-2.0, 0.0, np.nan], np.float32))
    least = to_numpy(rc.voxelize(points, place(features), reduce="min", **options))[0, 0, 0]
    assert_same_bits(least, np.array([-9.0, -0.0, np.nan], np.float32))


def test_sums_do_not_lose_small_features_beside_large_ones(device):
    """1e-6 relative to the sum of magnitudes, where float32 sums lose all of the small ones."""
    count = 20_000
    points = np.full((count, 3), 0.5, np.float32)
    features = np.full((count, 1), 1e-3, np.float32)
    features[0] = 1e4
    place = on(device)
    options = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 1)}
    got = float(
        to_numpy(rc.voxelize(place(points), place(features), reduce="sum", **options))[0, 0, 0, 0]
    )
    want = features.astype(np.float64).sum()
    assert abs(got - want) <= 1e-7 * want


def test_out_is_written_and_returned(device):
    place = on(device)
    points = place(np.random.default_rng(0).uniform(0, 2, (2, 99, 3)).astype("f4"))
    want = rc.voxelize(points, reduce="count", return_dropped=True, **GRID)
    out = torch.full((2, 8, 8, 8), -7, dtype=torch.int32, device=device)
    dropped = torch.full((2,), -7, device=device)
    got = rc.voxelize(points, reduce="count", return_dropped=True, out=(out, dropped), **GRID)
    assert got[0] is out and got[1] is dropped
    assert_same_bits(out, want[0])
    assert_same_bits(dropped, want[1])
    # One element off: no vectors.
    memory = torch.full((2 * 512 + 1,), 9, dtype=torch.uint8, device=device)
    rc.voxelize(points, out=memory[1:].view(2, 8, 8, 8), **GRID)
    assert_same_bits(memory[1:].view(2, 8, 8, 8), rc.voxelize(points, **GRID))
    assert int(memory[0]) == 9


LARGE = ("bool", "uint8", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", LARGE)
def test_large_results_are_whole(dtype, framework):
    """They lie in fresh pages, which the system has cleared, or in those of a result that is gone."""
    points = torch.rand(2, 5000, 3, generator=torch.Generator().manual_seed(5)) * 1.1
    given = points if framework == "torch" else points.numpy()
    kind = getattr(torch, dtype)
    shape = (36 * 8 // torch.empty(0, dtype=kind).element_size(), 256, 256)
    options = {"origin": (0, 0, 0), "voxel_size": 1 / 256, "shape": shape, "dtype": dtype}
    for fill in (0, -0.0) if kind.is_floating_point else (0, 1):
        want = torch.full((2, *shape), 9 if dtype != "bool" else 1, dtype=kind)
        rc.voxelize(points, out=want, fill=fill, **options)
        assert bool((want == fill).any()) and bool((want == 1).any())
        places, held = [], []
        for _ in range(2):
            got = rc.voxelize(given, fill=fill, **options)
            assert_same_bits(got if framework == "torch" else to_torch(got), want)
            places.append(address(got))
            got[:] = 1  # What the next must not show.
            if framework == "torch":
                assert got.is_contiguous() and not got._is_view()
            else:
                assert got.flags.c_contiguous and got.flags.writeable
            del got
            # Takes the place of what was given back to the system, so that only kept memory comes again.
            held.append(np.ones(38 << 20, np.uint8))
        assert places[0] % 64 == 0
        assert places[0] == places[1] or not can_be_lent()


def can_be_lent():
    """Whether the system takes kept memory only when it needs it; where not, this much is not kept."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(mmap.MADV_FREE)
        except OSError:
            return False
    return True


def address(result):
    return result.data_ptr() if isinstance(result, torch.Tensor) else result.ctypes.data


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_results_that_live_share_no_memory(framework):
    cells = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (340, 320, 320)}
    results = []
    for at in range(3):
        points = torch.full((1, 3), at + 0.5)
        results.append(rc.voxelize(points if framework == "torch" else points.numpy(), **cells))
    assert len({address(result) for result in results}) == 3
    part = results.pop()[:3]  # A view keeps all of it.
    results.append(rc.voxelize(points if framework == "torch" else points.numpy(), **cells))
    for at, result in enumerate(results):
        assert int(result.sum()) == 1 and int(result[at, at, at]) == 1
    assert int(part.sum()) == 1 and int(part[2, 2, 2]) == 1


def test_large_results_of_many_rows_are_whole():
    """Rows that are small enough for one thread each, and outputs beside the grid."""
    points = torch.rand(40, 700, 3, generator=torch.Generator().manual_seed(6)) * 1.2
    options = {"origin": (0, 0, 0), "voxel_size": 1 / 96, "shape": (96, 96, 96)}
    options |= {"return_counts": True, "return_dropped": True}
    size = (40, 96, 96, 96)
    want = (
        torch.full(size, 7, dtype=torch.uint8),
        torch.full(size, 7, dtype=torch.int32),
        torch.full((40,), 7),
    )
    rc.voxelize(points, out=want, **options)
    for mine, theirs in zip(rc.voxelize(points, **options), want, strict=True):
        assert_same_bits(mine, theirs)
    plain = options | {"return_counts": False, "return_dropped": False}
    assert_same_bits(rc.voxelize(points, **plain), want[0])


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_large_results_of_features_are_whole(reduce):
    generator = torch.Generator().manual_seed(6)
    points = torch.rand(3000, 3, generator=generator)
    features = torch.randn(3000, 4, generator=generator)
    options = {"origin": (0, 0, 0), "voxel_size": 1 / 130, "shape": (130, 130, 130)}
    want = torch.full((130, 130, 130, 4), 7.0)
    rc.voxelize(points, features, reduce=reduce, out=want, **options)
    assert_same_bits(rc.voxelize(points, features, reduce=reduce, **options), want)
    # Autograd lets nobody change a view in place that an op has made.
    features.requires_grad_()
    rc.voxelize(points, features, reduce=reduce, **options).relu_().sum().backward()
    assert features.grad is not None and bool((features.grad != 0).any())


def test_out_must_not_overlap_the_points():
    memory = torch.zeros(2 * 512, dtype=torch.float32)
    points = memory[: 99 * 3].view(99, 3)
    with pytest.raises(rc.InvalidArgument, match="shares memory with points"):
        rc.voxelize(points, dtype="float32", out=memory[:512].view(8, 8, 8), **GRID)


def test_dtypes_are_named_in_every_way():
    points = np.zeros((1, 3), np.float32)
    for name in ("float16", np.float16, np.dtype("float16"), torch.float16, "f16"):
        assert rc.voxelize(points, dtype=name, **GRID).dtype == np.float16
    assert rc.voxelize(torch.zeros(1, 3), dtype=torch.bfloat16, **GRID).dtype is torch.bfloat16
    assert rc.voxelize(torch.zeros(1, 3), dtype=bool, **GRID).dtype is torch.bool


def test_small_parameters_may_be_tensors():
    points = torch.rand(50, 3)
    want = rc.voxelize(points, **GRID)
    got = rc.voxelize(
        points,
        origin=torch.zeros(3),
        voxel_size=np.full(3, 0.25),
        shape=torch.tensor([8, 8, 8]),
    )
    assert_same_bits(got, want)


def test_numpy_and_lists_come_back_as_numpy():
    grid = rc.voxelize([[0.1, 0.1, 0.1]], **GRID)
    assert isinstance(grid, np.ndarray) and grid.sum() == 1 and grid[0, 0, 0] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", REDUCES)
def test_the_gpu_gives_the_bits_of_the_cpu(reduce):
    for kind in cloud_oracle.KINDS:
        for index in range(scaled(4)):
            arrays, options = random_call(seeded("gpu", kind, reduce, index), kind, reduce)
            tensors = {name: to_torch(array) for name, array in arrays.items()}
            options |= {"return_counts": bool(index % 2), "return_dropped": True}
            want = rc.voxelize(**tensors, **options)
            there = {name: x.cuda() for name, x in tensors.items()}
            got = rc.voxelize(**there, **options)
            for mine, theirs in zip(got, want, strict=True):
                assert_same_bits(mine, theirs, f"{kind} {reduce} {index}")


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("kind", ["uniform", "clustered", "one voxel"])
def test_many_points_on_the_gpu_have_the_same_bits_on_every_run(kind, reduce):
    """Blocks that run side by side: the order in which they come must not matter."""
    rng = seeded("many", kind)
    points = torch.from_numpy(cloud_oracle.clouds(rng, kind, 200_000).astype("f4"))
    features = torch.from_numpy(rng.normal(size=(200_000, 4)).astype("f4"))
    options = {"origin": (0, 0, 0), "voxel_size": 2 / 64, "shape": (64, 64, 64), "reduce": reduce}
    arrays = (points, features) if reduce in REDUCES[2:] else (points,)
    want = rc.voxelize(*arrays, **options, return_dropped=True)
    there = [x.cuda() for x in arrays]
    for _ in range(5):
        got = rc.voxelize(*there, **options, return_dropped=True)
        for mine, theirs in zip(got, want, strict=True):
            assert_same_bits(mine, theirs, kind)


@pytest.mark.gpu
def test_more_than_four_billion_cells():
    """2^32 and some cells: offsets, bits and keys of 64 bits. Needs 40 GB."""
    if torch.cuda.get_device_properties(0).total_memory < 64e9:
        pytest.skip("the GPU is too small")
    shape = (4100, 1024, 1024)
    points = torch.rand(5000, 3, device="cuda") * torch.tensor([41.0, 10.24, 10.24], device="cuda")
    options = {"origin": (0, 0, 0), "voxel_size": 0.01, "shape": shape}
    cells = (points.cpu().numpy() / np.float32(0.01)).astype(np.int64)
    cells = torch.from_numpy(cells[(cells < np.array(shape)).all(axis=1)])
    occupied = rc.voxelize(points, **options)
    where = cells.cuda()
    assert bool((occupied[where[:, 0], where[:, 1], where[:, 2]] == 1).all())
    assert int(occupied.sum(dtype=torch.int64)) == len(torch.unique(cells, dim=0))
    del occupied
    total = rc.voxelize(
        points, torch.ones(5000, 1, device="cuda"), reduce="sum", dtype="f16", **options
    )
    assert float(total.sum(dtype=torch.float64)) == len(cells)


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["occupancy", "count", "mean"])
def test_a_graph_replays_with_other_points(reduce):
    points = torch.rand(3000, 3, device="cuda") * 2
    features = [torch.rand(3000, 5, device="cuda")] if reduce == "mean" else []
    rc.warmup("voxelize", points, *features, reduce=reduce, **GRID)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = rc.voxelize(points, *features, reduce=reduce, **GRID)
    for _ in range(3):
        points.uniform_(0, 2)
        graph.replay()
        cpu = rc.voxelize(points.cpu(), *(x.cpu() for x in features), reduce=reduce, **GRID)
        assert_same_bits(out, cpu)


@pytest.mark.gpu
def test_a_bad_length_on_the_gpu_is_reported_and_the_row_is_empty():
    points = torch.rand(3, 40, 3, device="cuda")
    lengths = torch.tensor([40, 41, 7], device="cuda")
    counts = rc.voxelize(points, lengths=lengths, reduce="count", **GRID)
    with pytest.raises(rc.InvalidArgument, match="lengths: row 1 is 41, expected 0 to 40"):
        rc.synchronize()
    assert counts.sum(dim=(1, 2, 3)).tolist() == [40, 0, 7]
    clamped = rc.voxelize(points, lengths=lengths, reduce="count", check=False, **GRID)
    rc.synchronize()
    assert clamped.sum(dim=(1, 2, 3)).tolist() == [40, 40, 7]


def test_many_rows_12(device):
    """More rows than a grid of blocks has in its second axis."""
    points = torch.rand(70_000, 2, 3, device=device)
    counts = rc.voxelize(points, origin=(0, 0, 0), voxel_size=1.0, shape=(1, 1, 1), reduce="count")
    assert bool((counts == 2).all()) and len(counts) == 70_000


def test_an_output_that_overlaps_itself_18():
    one = torch.zeros(1, dtype=torch.uint8)
    with pytest.raises(rc.InvalidArgument, match="out"):
        rc.voxelize(torch.rand(5, 3), out=one.expand(8, 8, 8), **GRID)


def test_unaligned_and_swapped_arrays_are_copied_16_22():
    points = np.random.default_rng(0).uniform(0, 2, (50, 3)).astype("f4")
    want = rc.voxelize(points, **GRID)
    memory = np.zeros(points.nbytes + 1, np.uint8)
    odd = memory[1:].view("f4").reshape(points.shape)
    odd[...] = points
    assert_same_bits(rc.voxelize(odd, **GRID), want)
    assert_same_bits(rc.voxelize(points.astype(">f4"), **GRID), want)


def test_denormals_and_overflow_36(device):
    """Denormal coordinates and features are numbers; what a half float cannot hold is infinite."""
    place = on(device)
    tiny = np.float32(1e-42)
    points = np.array([[tiny, 0, 0], [-tiny, 0, 0], [-0.0, 0, 0]], np.float32)
    options = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 1)}
    counts, dropped = rc.voxelize(place(points), reduce="count", return_dropped=True, **options)
    assert int(counts.sum()) == 2 and int(dropped) == 1
    features = np.full((3, 1), 1e-42, np.float32)
    sums = rc.voxelize(place(points), place(features), reduce="sum", **options)
    assert float(to_numpy(sums).reshape(-1)[0]) == float(np.float32(2 * np.float64(features[0, 0])))
    large = np.full((3, 1), 6e4, np.float16)
    sums = to_numpy(rc.voxelize(place(points), place(large), reduce="sum", **options))
    means = to_numpy(rc.voxelize(place(points), place(large), reduce="mean", **options))
    assert np.isinf(sums).all() and means.reshape(-1)[0] == np.float16(6e4)
