"""What the empty cells of a grid hold: integers exactly, over the whole range of the grid's dtype."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import robocache as rc
from cases_clouds import GRID
from helpers import on, to_numpy
from refusal import assert_refused
from torch_clouds import CAMERA

pytestmark = pytest.mark.usefixtures("fresh_compiler")

# One occupied cell, the first.
CLOUD = np.zeros((1, 3, 3), np.float32)
EMPTY = (0, 7, 7, 7)
ABOVE = 2**53 + 1
INTEGERS = ["bool", "uint8", "int8", "int32", "int64"]
# torch computes little with these; on the CPU NumPy has them.
UNSIGNED = ["uint16", "uint32", "uint64", "int16"]


class Named(torch.Tensor):
    """A tensor that only torch knows how to open."""


def ends_of(dtype: str) -> tuple[int, int]:
    return (0, 1) if dtype == "bool" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def assert_filled(points, fill, dtype: str, **options) -> None:
    grid = to_numpy(rc.voxelize(points, dtype=dtype, fill=fill, **options, **GRID))
    assert grid.dtype == np.dtype(dtype)
    assert int(grid[EMPTY]) == int(fill), f"{dtype} {fill}"
    assert int(grid[0, 0, 0, 0]) == (3 if options.get("reduce") == "count" else 1)


def assert_too_large(points, fill, dtype: str, **options) -> None:
    call = lambda: rc.voxelize(points, dtype=dtype, fill=fill, **options, **GRID)  # noqa: E731
    assert_refused(call, "InvalidArgument", "fill", dtype, op="voxelize")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("reduce", ["occupancy", "count"])
def test_integers_are_exact_to_the_ends_of_their_dtype(reduce, dtype, device):
    if reduce == "count" and dtype not in ("int32", "int64"):
        pytest.skip("counts are held in int32 and int64")
    points, (least, most) = on(device)(CLOUD), ends_of(dtype)
    for fill in {least, most, *(x for x in (ABOVE, -ABOVE) if least <= x <= most)}:
        assert_filled(points, fill, dtype, reduce=reduce)
    for fill in (least - 1, most + 1, 2**200, -(2**200)):
        assert_too_large(points, fill, dtype, reduce=reduce)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_integers_of_numpy_are_exact(dtype):
    least, most = ends_of(dtype)
    for fill in {least, most, *(x for x in (ABOVE,) if x <= most)}:
        assert_filled(CLOUD, fill, dtype)
        assert_filled(CLOUD, np.dtype(dtype).type(fill), dtype)
    for fill in (least - 1, most + 1):
        assert_too_large(CLOUD, fill, dtype)


@pytest.mark.parametrize("fill", [np.int64(ABOVE), torch.tensor(ABOVE), np.array(ABOVE)], ids=str)
def test_whoever_says_the_integer(fill, device):
    assert_filled(on(device)(CLOUD), fill, "int64", reduce="count")


@pytest.mark.parametrize("fill", [0.5, float("nan"), float("inf"), -0.25, 1e300, Fraction(1, 3)])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_is_no_integer_is_refused(fill, dtype, device):
    assert_too_large(on(device)(CLOUD), fill, dtype, reduce="count")


@pytest.mark.parametrize(("dtype", "fill"), [("float16", 70000), ("float32", 1e39)])
def test_what_a_float_holds_as_infinity_only_is_refused(dtype, fill, device):
    points = on(device)(CLOUD)
    assert_too_large(points, fill, dtype)
    grid = rc.voxelize(points, dtype=dtype, fill=-float("inf"), **GRID)
    assert float(grid[EMPTY]) == -np.inf


@pytest.mark.parametrize("fill", [2**60 + 2**36 + 1, -(2**60) - 2**36 - 1, 2**60 + 3 * 2**36 - 1])
def test_an_integer_that_a_float_does_not_hold_is_rounded_once(fill, device):
    grid = rc.voxelize(on(device)(CLOUD), dtype="float32", fill=fill, **GRID)
    assert float(grid[EMPTY]) == np.sign(fill) * (2.0**60 + 2.0**37)


@pytest.mark.parametrize("fill", [True, np.True_, np.array(True), torch.tensor(True)], ids=repr)
def test_a_switch_is_no_number(fill, device):
    points = on(device)(CLOUD)
    for given in (points, points.as_subclass(Named)):
        call = lambda: rc.voxelize(given, fill=fill, **GRID)  # noqa: B023, E731
        assert_refused(call, "InvalidArgument", "fill", "a number", op="voxelize")


# -- where torch must see the call --------------------------------------------------------------


@pytest.mark.parametrize("fill", [ABOVE, 2**63 - 1, -(2**63), 0, -7])
def test_the_registered_op_fills_alike(fill, device):
    points = on(device)(CLOUD)

    def count(points):
        return rc.voxelize(points * 1, reduce="count", dtype="int64", fill=fill, **GRID)

    compiled = torch.compile(count, fullgraph=True, backend="aot_eager")
    for got in (count(points.as_subclass(Named)), compiled(points)):
        assert int(got.as_subclass(torch.Tensor)[EMPTY]) == fill


def test_a_compiled_call_takes_another_fill(device):
    def count(points, fill):
        return rc.voxelize(points * 1, reduce="count", dtype="int64", fill=fill, **GRID)

    compiled = torch.compile(count, fullgraph=True, backend="aot_eager")
    for fill in (0, 3, ABOVE, ABOVE + 2):
        assert int(compiled(on(device)(CLOUD), fill)[EMPTY]) == fill


@pytest.mark.parametrize("fill", [2**63, 0.5, float("nan")])
def test_the_registered_op_refuses_alike(fill, device):
    points = on(device)(CLOUD).as_subclass(Named)
    assert_too_large(points, fill, "int64", reduce="count")


def test_depth_images_fill_alike(device):
    depth = on(device)(np.ones((1, 2, 2), np.float32))
    options = {"depth_scale": 1.0, "reduce": "count", "dtype": "int64", "fill": ABOVE, **GRID}
    for image in (depth, depth.as_subclass(Named)):
        grid = rc.voxelize_depth(image, CAMERA, **options).as_subclass(torch.Tensor)
        assert int(grid[EMPTY]) == ABOVE
