"""`resample` on CUDA gives the bits of the CPU: thousands of random ragged calls, every layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracle
import robocache as rc
from agreement import (
    LAYOUTS,
    assert_same,
    compare,
    moved,
    random_bits,
    random_call,
    scatter,
    seeded,
)
from generate import combinations, random_case
from helpers import COPIED, FLOATS, RARE_INTEGERS, STAMPS, scaled

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
DTYPES = tuple(dict.fromkeys((*COPIED, "bfloat16")))
WIDTHS = (*range(1, 18), 31, 32, 33, 127, 128, 129, 513)
TENSORS = ("values", "times", "targets", "lengths", "target_lengths")


def some_layouts(rng: np.random.Generator) -> dict[str, str]:
    """Half of the calls are plain, so that the widest accesses get their share."""
    if rng.random() < 0.5:
        return {}
    return {name: str(rng.choice(LAYOUTS)) for name in TENSORS}


def options_of(dtype: str) -> list[tuple[str, str]]:
    """The methods and extrapolations of a dtype; bfloat16 has those of all floats."""
    like = "float32" if dtype == "bfloat16" else dtype
    return sorted({(m, e) for d, _, m, e in combinations() if d == like})


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_calls(dtype, stamps):
    """The same generator as on the CPU: shared rows, empty rows, duplicates, NaN, hits and ties."""
    for method, extrapolate in options_of(dtype):
        for index in range(scaled(10 if method == "linear" else 5)):
            rng = seeded(dtype, stamps, method, extrapolate, index)
            like = "float32" if dtype == "bfloat16" else dtype  # NumPy has no bfloat16
            case = random_case(rng, like, stamps, method, extrapolate)
            call = {
                name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for name, value in case.options.items()
            }
            call |= {
                "values": torch.from_numpy(case.values).to(getattr(torch, dtype)),
                "times": torch.from_numpy(case.times),
                "targets": torch.from_numpy(case.targets),
                "method": method,
                "extrapolate": extrapolate,
                "check": bool(rng.random() < 0.7),
            }
            out = str(rng.choice(LAYOUTS)) if rng.random() < 0.5 else None
            context = (dtype, stamps, method, extrapolate, index)
            compare(call, some_layouts(rng), DEVICE, rng, out, context)


# B, S, T, D: stamps that fit the shared memory of a block and that do not, one tile and many.
SIZES = (
    (1, 1, 3000, 7),
    (3, 2, 257, 31),
    (2, 100, 1, 513),
    (5, 300, 255, 16),
    (1, 1000, 3000, 33),
    (2, 5000, 256, 12),
    (1, 13_000, 700, 8),
    (2, 15_000, 300, 4),
    (1, 20_000, 1000, 5),
    (3, 20_000, 9, 2),
    (70, 40, 33, 3),
    (2500, 18, 19, 7),
    (3000, 9, 1, 4),
    (1200, 200, 5, 14),
)


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_sizes(sizes, stamps):
    for index in range(scaled(8)):
        rng = seeded(sizes, stamps, index)
        dtype = str(rng.choice([name for name in DTYPES if name not in RARE_INTEGERS]))
        method, extrapolate = (str(x) for x in rng.choice(options_of(dtype)))
        call = random_call(rng, dtype, stamps, method, extrapolate, sizes)
        out = str(rng.choice(LAYOUTS)) if rng.random() < 0.3 else None
        compare(call, some_layouts(rng), DEVICE, rng, out, (sizes, stamps, dtype, index))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32", "float64"])
def test_widths(dtype, layout):
    """Every width of an access, whole and with a rest, for rows that lie well and that do not."""
    method = "nearest" if dtype == "uint8" else "linear"
    for dim in WIDTHS:
        rng = seeded(dtype, layout, dim)
        call = random_call(rng, dtype, "int64", method, "clamp", (3, 50, 40, dim))
        compare(call, {"values": layout}, DEVICE, rng, layout, (dtype, layout, dim))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64"])
def test_expanded_views(dtype, axis):
    """Stride 0 along the batch, the samples or the columns."""
    rng = seeded(dtype, axis)
    method = "nearest" if dtype == "uint8" else "linear"
    for dim in (1, 8, 33):
        shape = [4, 20, dim]
        shape[axis] = 1
        narrow = random_bits(rng, shape, dtype)
        call = random_call(rng, dtype, "float64", method, "clamp", (4, 20, 50, dim))
        call["values"] = narrow.expand(4, 20, dim)
        del call["lengths"]
        call["times"] = call["times"][:1].expand(4, -1)
        call["targets"] = call["targets"][:1].expand(4, -1)
        there = {
            name: moved(value, DEVICE)
            for name, value in call.items()
            if isinstance(value, torch.Tensor)
        }
        assert there["values"].stride() == call["values"].stride()
        got = rc.resample(**{**call, **there})
        assert_same(got.cpu(), rc.resample(**call), (dtype, axis, dim))


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("method", oracle.METHODS)
def test_a_shared_row_equals_its_copies(method, stamps):
    """Batches of one and no batch at all take other strides than copies do."""
    rng = seeded(method, stamps)
    one = random_call(rng, "float32", stamps, method, "clamp", (1, 60, 90, 9))
    one = {**one, "lengths": torch.tensor([60])}
    one.pop("target_lengths", None)
    want = rc.resample(**one)
    for changes in (
        {"values": one["values"][0]},
        {"times": one["times"][0], "targets": one["targets"][0]},
        {"lengths": torch.full((7,), 60)},
        {"targets": one["targets"].repeat(7, 1)},
        {"values": one["values"].repeat(7, 1, 1), "times": one["times"][0]},
    ):
        call = {**one, **changes}
        there = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in call.items()}
        got = rc.resample(**there).cpu()
        assert_same(got, want.expand(got.shape).contiguous(), sorted(changes))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_empty_sizes(dtype):
    """No rows, no targets or no columns: nothing to compute, but shapes, and `valid` without columns."""
    for batch, steps, dim in ((0, 5, 3), (2, 0, 3), (2, 5, 0), (0, 0, 0), (2, 0, 0)):
        values = torch.ones(batch, 4, dim, dtype=getattr(torch, dtype))
        times = torch.arange(4.0).expand(batch, 4) if batch else torch.arange(4.0)
        targets = torch.linspace(-1.0, 4.0, steps).expand(max(batch, 1), steps)
        arguments = values, times, targets
        want = rc.resample(*arguments, method="nearest", return_valid=True)
        there = [x.to(DEVICE) for x in arguments]
        got = rc.resample(*there, method="nearest", return_valid=True)
        for mine, theirs in zip(got, want, strict=True):
            assert mine.device.type == DEVICE
            assert_same(mine.cpu(), theirs, (batch, steps, dim))


def test_the_same_bits_on_every_run():
    rng = seeded("again")
    call = random_call(rng, "bfloat16", "int64", "linear", "linear", (40, 700, 300, 60))
    there = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in call.items()}
    first = rc.resample(**there)
    for _ in range(20):
        again = rc.resample(**there)
        assert torch.equal(again.view(torch.int16), first.view(torch.int16))


def test_out_over_any_view_is_all_that_is_written():
    """Widths 1 to 9 between neighbours that must keep their bytes."""
    for dim in range(1, 10):
        for layout in LAYOUTS:
            rng = seeded(dim, layout)
            call = random_call(rng, "float16", "float32", "linear", "nan", (2, 30, 70, dim))
            compare(call, {}, DEVICE, rng, layout, (dim, layout))
    template = scatter(torch.zeros(2, 3, 4), "rows apart", seeded("one"))
    assert moved(template, DEVICE).stride() == template.stride()


def test_there_are_thousands_of_calls():
    """What this file promises: a change of the loops above must not empty them."""
    per_stamp = sum(
        scaled(10 if method == "linear" else 5) for d in DTYPES for method, _ in options_of(d)
    )
    total = len(STAMPS) * (per_stamp + len(SIZES) * scaled(8)) + 5 * len(LAYOUTS) * len(WIDTHS)
    assert total >= min(2000, scaled(2000))
    assert set(FLOATS) <= set(DTYPES)
