"""The faults of docs/faults.md that concern ops on points: names carry their numbers.

Sizes of more than 2^31 elements (11, 12) run on a GPU only; here, what they would need is refused or
counted without having it. Voxel sizes (38) are rows of the table, too: cases_clouds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from agreement import LAYOUTS, moved, scatter
from cases_clouds import GRID
from fake_dlpack import Producer
from helpers import FLOATS, assert_same_bits, dtype_of, on, to_numpy, to_torch
from refusal import assert_refused, assert_works

CLOUD = np.random.default_rng(0).uniform(-0.1, 2.1, (2, 70, 3)).astype("f4")
CAMERA = [40.0, 41.0, 1.0, 30.0]


def features_of(points: Any) -> Any:
    """One for each point, of the same framework and device: its own coordinates."""
    return torch.nan_to_num(points) if isinstance(points, torch.Tensor) else np.nan_to_num(points)


def sparse(points: Any, **options: Any) -> Any:
    got = rc.voxelize(points, sparse=True, max_points_per_voxel=2, **GRID, **options)
    return got.coords, got.counts, got.inverse, got.dropped, got.voxels


# Each takes one tensor `[B,N,3]`; depth is an image of three columns.
CALLS: dict[str, Callable[..., Any]] = {
    "occupancy": lambda x, **o: rc.voxelize(x, return_dropped=True, **GRID, **o),
    "count": lambda x, **o: rc.voxelize(x, reduce="count", return_dropped=True, **GRID, **o),
    "mean": lambda x, **o: rc.voxelize(x, features_of(x), reduce="mean", **GRID, **o),
    "sparse": sparse,
    "crop_box": lambda x, **o: rc.crop_box(x, (0, 0, 0), (1, 1, 1), **o),
    "compact": lambda x: vars(rc.crop_box(x, (0, 0, 0), (1, 1, 1), compact=True)),
    "transform_points": lambda x, **o: rc.transform_points(x, [1, 2, 3, 0.1, 0.2, 0.3, 0.9], **o),
    "farthest_points": lambda x, **o: rc.farthest_points(x, min(9, x.shape[1]), **o),
    "unproject": lambda x, **o: rc.unproject(x, CAMERA, **o),
}
OP_OF = {"occupancy": "voxelize", "count": "voxelize", "mean": "voxelize", "sparse": "voxelize"}
OP_OF |= {"compact": "crop_box"}
every_op = pytest.mark.parametrize("name", CALLS)


def flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple) else [result]


def assert_same_results(got: Any, want: Any, context: object = "") -> None:
    for mine, theirs in zip(flat(got), flat(want), strict=True):
        assert_same_bits(mine, theirs, context)


# What `out=` takes, by call.
OUTPUTS = {
    "transform_points": ((2, 70, 3), np.float32),
    "crop_box": ((2, 70), np.bool_),
    "farthest_points": ((2, 9), np.int64),
    "unproject": ((2, 210, 3), np.float32),
}


@every_op
def test_3_batch_0_is_empty(name, device):
    for result in flat(CALLS[name](on(device)(CLOUD[:0]))):
        assert to_numpy(result).size == 0
    assert_works()


@pytest.mark.parametrize("points", [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1])
def test_11_more_points_than_can_be_grouped(points):
    """A tensor that claims so many without having them: every stride is 0."""
    for shape in ((points, 3), (points, 1, 3)):
        cloud = torch.zeros(1).expand(shape)
        assert_refused(
            lambda cloud=cloud: rc.voxelize(cloud, sparse=True, **GRID),
            "Unsupported",
            "points",
            str(points),
            op="voxelize",
        )


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((1386, 1549411, 1), id="2**31 - 2"),
        pytest.param((1 << 7, 1, 1 << 24), id="2**31"),
        pytest.param((65535, 65537, 1), id="2**32 - 1"),
        pytest.param((1 << 8, 1 << 24, 1), id="2**32"),
        pytest.param((641, 1, 6700417), id="2**32 + 1"),
    ],
)
def test_11_cells_around_2_32_are_told_apart(shape, device):
    """The last cell of each axis is found and the next is not, in two rows of a batch."""
    last = np.array(shape) - 0.5
    points = np.stack([np.array([last, [0.5] * 3, last + np.eye(3)[axis]]) for axis in range(2)])
    grid = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": shape}
    got = rc.voxelize(on(device)(points), sparse=True, **grid)
    ends = [[0, 0, 0], [n - 1 for n in shape]]
    assert_same_bits(got.coords, np.array([[b, *end] for b in range(2) for end in ends]))
    assert_same_bits(got.inverse, np.array([[1, 0, -1], [3, 2, -1]]))
    assert_same_bits(got.dropped, np.array([1, 1]))


def test_12_many_rows_of_few_points(device):
    """More rows than a grid has blocks along y."""
    points = np.tile(np.float32([[[0.1, 0.1, 0.1]]]), (70_000, 1, 1))
    grid = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 2)}
    want = np.tile(np.uint8([1, 0]), (70_000, 1)).reshape(70_000, 1, 1, 2)
    place = on(device)
    assert_same_bits(rc.voxelize(place(points), **grid), want)
    assert_same_bits(rc.crop_box(place(points), (0, 0, 0), (1, 1, 1)), np.ones((70_000, 1), bool))
    assert_same_bits(rc.farthest_points(place(points), 1), np.zeros((70_000, 1), np.int64))
    assert_same_bits(rc.transform_points(place(points), np.eye(4)), points)
    got = rc.voxelize(place(points), sparse=True, **grid)
    assert_same_bits(got.coords[:, 0], np.arange(70_000))


@every_op
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_17_negative_strides(name, axis):
    backwards = np.flip(np.flip(CLOUD, axis).copy(), axis)
    assert backwards.strides[axis] < 0
    assert_same_results(CALLS[name](backwards), CALLS[name](CLOUD))


@pytest.mark.parametrize("name", OUTPUTS)
def test_17_a_reversed_output(name):
    shape, dtype = OUTPUTS[name]
    out = np.zeros(shape, dtype)
    CALLS[name](CLOUD, out=np.flip(out, 1))
    assert_same_bits(np.flip(out, 1), CALLS[name](CLOUD))


@pytest.mark.parametrize("name", [*OUTPUTS, "occupancy"])
def test_18_an_expanded_output(name, device):
    shape, dtype = OUTPUTS.get(name, ((2, 8, 8, 8), np.uint8))
    out = on(device)(np.zeros((1, *shape[1:]), dtype)).expand(shape)
    call = (
        (lambda: rc.voxelize(on(device)(CLOUD), out=out, **GRID))
        if name == "occupancy"
        else (lambda: CALLS[name](on(device)(CLOUD), out=out))
    )
    assert_refused(call, "InvalidArgument", "out", "", op=OP_OF.get(name, name))
    assert not to_numpy(out).any(), "a refused call must not write"


@pytest.mark.parametrize("name", ["transform_points", "unproject", "occupancy", "mean"])
def test_19_output_over_the_points(name, device):
    memory = on(device)(np.zeros(1 << 14, np.float32))
    points = memory[1:421].view(2, 70, 3)
    points.copy_(on(device)(CLOUD))
    before = to_numpy(memory).copy()
    call, argument = {
        "transform_points": (
            lambda: rc.transform_points(points, np.eye(4), out=memory[4:424].view(2, 70, 3)),
            "points",
        ),
        "unproject": (
            lambda: rc.unproject(points, CAMERA, out=memory[:1260].view(2, 210, 3)),
            "depth",
        ),
        "occupancy": (
            lambda: rc.voxelize(
                points, dtype="float32", out=memory[420:1444].view(2, 8, 8, 8), **GRID
            ),
            "points",
        ),
        "mean": (
            lambda: rc.voxelize(
                points + 0,
                points,
                reduce="mean",
                out=memory[: 2 * 512 * 3].view(2, 8, 8, 8, 3),
                **GRID,
            ),
            "features",
        ),
    }[name]
    message = f"shares memory with {argument}"
    assert_refused(call, "InvalidArgument", "out", message, op=OP_OF.get(name, name))
    assert_same_bits(memory, before, "a refused call must not write")


@every_op
def test_20_views_equal_their_copies(name, device):
    """In full in test_voxelize.py and test_points.py; here every op with every layout."""
    rng = np.random.default_rng(20)
    want = CALLS[name](to_torch(CLOUD))
    for layout in LAYOUTS:
        view = moved(scatter(to_torch(CLOUD), layout, rng), device)
        assert_same_results(CALLS[name](view), want, layout)


@every_op
@pytest.mark.parametrize("dtype", FLOATS)
def test_21_one_element_off(name, dtype, device):
    points = CLOUD.astype(dtype_of(dtype))
    want = CALLS[name](on(device)(points))
    memory = on(device)(np.concatenate([points.reshape(-1)[:1], points.reshape(-1)]))
    off = memory[1:].view(points.shape)
    assert off.data_ptr() % 16 != 0
    assert_same_results(CALLS[name](off), want)


def unaligned(array: np.ndarray) -> np.ndarray:
    """The same array at an odd address."""
    view = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


@every_op
def test_22_unaligned_points(name):
    assert_same_results(CALLS[name](unaligned(CLOUD)), CALLS[name](CLOUD))


def test_22_an_unaligned_pointer_through_dlpack():
    calls = {
        ("voxelize", "points"): lambda x: rc.voxelize(x, **GRID),
        ("voxelize", "features"): lambda x: rc.voxelize(CLOUD, x, reduce="sum", **GRID),
        ("crop_box", "points"): CALLS["crop_box"],
        ("transform_points", "points"): CALLS["transform_points"],
        ("farthest_points", "points"): lambda x: rc.farthest_points(x, 1),
        ("unproject", "depth"): CALLS["unproject"],
    }
    for (op, argument), call in calls.items():
        producer = Producer(unaligned(CLOUD))
        assert_refused(
            lambda call=call, x=producer: call(x), "InvalidArgument", argument, "align", op=op
        )
        producer.assert_nothing_leaked()
        nothing = Producer(CLOUD, data=0)
        assert_refused(
            lambda call=call, x=nothing: call(x), "InvalidArgument", argument, "(?i)null", op=op
        )
        nothing.assert_nothing_leaked()


def test_23_a_null_pointer_without_points():
    for shape in ((0, 7, 3), (0, 3), (2, 0, 3)):
        nothing = Producer(np.zeros(shape, np.float32), data=0)
        grid, dropped = rc.voxelize(nothing, return_dropped=True, **GRID)
        assert not np.asarray(grid).any() and not np.asarray(dropped).any()
        nothing.assert_nothing_leaked()
        assert np.asarray(rc.crop_box(nothing, (0, 0, 0), (1, 1, 1))).shape == shape[:-1]
        assert np.asarray(rc.transform_points(nothing, np.eye(4))).shape == shape


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_31_a_nan_feature_reaches_its_own_cell_and_column_only(reduce, device):
    rng = np.random.default_rng(31)
    points = rng.uniform(0, 2, (3000, 3)).astype("f4")
    features = rng.normal(size=(3000, 19)).astype("f4")
    spoiled = features.copy()
    spoiled[7, 3] = np.nan
    place = on(device)
    want = to_numpy(rc.voxelize(place(points), place(features), reduce=reduce, **GRID)).copy()
    want[(*(points[7] / np.float32(0.25)).astype(int), 3)] = np.nan
    got = rc.voxelize(place(points), place(spoiled), reduce=reduce, **GRID)
    assert_same_bits(got, want)


def test_31_a_nan_coordinate_drops_its_own_point_only(device):
    points = np.tile(np.float32([[0.3, 0.4, 0.5]]), (130, 1))
    place = on(device)
    for axis in range(3):
        spoiled = points.copy()
        spoiled[64, axis] = np.nan
        count, dropped = CALLS["count"](place(spoiled[None]))
        assert int(count.max()) == 129 and int(dropped[0]) == 1
        mask = to_numpy(rc.crop_box(place(spoiled), (0, 0, 0), (1, 1, 1)))
        assert (mask == (np.arange(130) != 64)).all()
        moved_points = to_numpy(rc.transform_points(place(spoiled), np.eye(4)))
        assert (
            np.isnan(moved_points[64]).any() and not np.isnan(np.delete(moved_points, 64, 0)).any()
        )
        taken = to_numpy(rc.farthest_points(place(spoiled), 130))
        assert taken[-1] == 64 and len(set(taken)) == 130


@pytest.mark.parametrize("dtype", FLOATS)
def test_36_denormals_and_negative_zero(dtype, device):
    kind = dtype_of(dtype)
    tiny = 2.0 ** {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}[dtype]
    points = np.array([[0, 0, 0], [-0.0, 0, 0], [tiny, 0, 0], [-tiny, 0, 0]]).astype(kind)
    place = on(device)
    grid = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 1)}
    count, dropped = rc.voxelize(place(points), reduce="count", return_dropped=True, **grid)
    # -0 lies in the first cell, what is below it does not, however little.
    assert int(count) == 3 and int(dropped) == 1
    inside = to_numpy(rc.crop_box(place(points), (0, 0, 0), (1, 1, 1)))
    assert inside.tolist() == [True, True, True, False]
    features = points[:, :1]
    at_zero = place(np.zeros_like(points))
    largest = to_numpy(rc.voxelize(at_zero, place(features), reduce="max", **grid))
    assert_same_bits(largest.reshape(1), features[2])
    least = to_numpy(rc.voxelize(at_zero[:2], place(features[:2]), reduce="min", **grid))
    assert np.signbit(least.astype(np.float64)).all()
    total = to_numpy(rc.voxelize(at_zero[2:], place(features[[2, 2]]), reduce="sum", **grid))
    assert float(total.reshape(())) == 2 * tiny


def test_36_sums_of_f16_overflow_to_infinity(device):
    place = on(device)
    points = place(np.zeros((3, 3), np.float16))
    features = place(np.full((3, 1), 60000, np.float16))
    grid = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (1, 1, 1)}
    assert to_numpy(rc.voxelize(points, features, reduce="sum", **grid)).item() == np.inf
    assert to_numpy(rc.voxelize(points, features, reduce="mean", **grid)).item() == 60000
    wide = rc.voxelize(points, features, reduce="sum", dtype="float32", **grid)
    assert to_numpy(wide).item() == 180000


@pytest.mark.parametrize("where", ["outside", "one voxel", "1e30", "2**31", "infinite"])
def test_37_clouds_in_one_place(where, device):
    """Nothing outside becomes an integer, and one crowded cell loses no count."""
    x = {"outside": -0.5, "one voxel": 0.6, "1e30": 1e30, "2**31": 2.0**31, "infinite": np.inf}[
        where
    ]
    count = 40_000
    place = on(device)
    points = place(np.full((count, 3), x, np.float32))
    inside = where == "one voxel"
    counts, dropped = rc.voxelize(points, reduce="count", return_dropped=True, **GRID)
    want = np.zeros((8, 8, 8), np.int32)
    want[2, 2, 2] = count * inside
    assert_same_bits(counts, want)
    assert int(dropped) == count * (not inside)
    assert_same_bits(rc.voxelize(points, **GRID), (want > 0).astype(np.uint8))
    ones = place(np.ones((count, 2), np.float32))
    total = to_numpy(rc.voxelize(points, ones, reduce="sum", **GRID))
    assert_same_bits(total, np.repeat(want[..., None], 2, axis=-1).astype(np.float32))
    got = rc.voxelize(points, sparse=True, max_points_per_voxel=3, **GRID)
    assert len(got.coords) == int(inside) and int(got.dropped) == count * (not inside)
    assert_same_bits(got.inverse, np.full(count, 0 if inside else -1))
    assert to_numpy(rc.crop_box(points, (0, 0, 0), (2, 2, 2))).all() == inside


@pytest.mark.parametrize("size", [0.0, -0.0, -1.0, np.nan, np.inf, 1e-60, 1e60])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_38_sizes_that_are_none(size, form, device):
    for voxel_size in (size, (1.0, size, 1.0)):
        options = GRID | {"voxel_size": voxel_size, "sparse": form == "sparse"}
        assert_refused(
            lambda options=options: rc.voxelize(on(device)(CLOUD), **options),
            "InvalidArgument",
            "voxel_size",
            "",
            op="voxelize",
        )


def test_38_tiny_cells_of_a_grid_past_the_limit(device):
    points = on(device)(CLOUD)
    for shape in ((1 << 25, 1, 1), (1 << 24, 1 << 24, 1 << 24)):
        for form in (False, True):
            assert_refused(
                lambda shape=shape, form=form: rc.voxelize(
                    points, origin=(0, 0, 0), voxel_size=1e-7, shape=shape, sparse=form
                ),
                "InvalidArgument",
                "shape",
                "",
                op="voxelize",
            )
    # As tiny in a grid that can be numbered.
    grid = {"origin": (0, 0, 0), "voxel_size": 1e-6, "shape": (1 << 21, 1 << 21, 1 << 19)}
    got = rc.voxelize(points, sparse=True, **grid)
    cells = cloud_oracle.cells_of(CLOUD, **grid)
    assert len(got.coords) == len(np.unique(cells[cells[..., 0] >= 0], axis=0))
