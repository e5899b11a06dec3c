"""Sizes beyond 32 bits and beyond a grid (numbers 11 and 12 of the list), on a GPU.

Expected results are known by index, so that billions of elements are compared where they lie.
"""

from __future__ import annotations

import pytest
import torch

import robocache as rc
from agreement import assert_same
from refusal import assert_refused

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
MANY = 2**27 + 3  # rows of 33 are more than 2**32 elements
GIB = 2**30


@pytest.fixture(autouse=True)
def room():
    """Each test finds all of the memory and gives it back."""
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


def need(gib: float) -> None:
    free = torch.cuda.mem_get_info()[0]
    if free < gib * GIB:
        pytest.skip(f"needs {gib} GiB of GPU memory, {free / GIB:.1f} are free")


def pattern(rows: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """[len(rows), dim] of whole numbers that tell row and column; neighbours always differ."""
    column = torch.arange(dim, device=rows.device)
    return ((rows[:, None] * 7 + column * 3) % 251).to(dtype)


def numbers(count: int, start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + count, device=DEVICE)


def edges_and_more(count: int, dim: int) -> torch.Tensor:
    """Row numbers around every power of two that 32-bit arithmetic could trip over, and others."""
    powers = torch.tensor([2**k // dim for k in range(28, 34)])
    near = (powers[:, None] + torch.arange(-2, 3)).reshape(-1)
    generator = torch.Generator().manual_seed(count)
    other = torch.randint(0, count, (500,), generator=generator)
    ends = torch.tensor([0, 1, count - 2, count - 1])
    rows = torch.cat([near, other, ends])
    return rows[(rows >= 0) & (rows < count)].unique()


@pytest.mark.parametrize(
    ("dtype", "dim"), [(torch.uint8, 33), (torch.bfloat16, 32)], ids=["bytes", "vectors"]
)
def test_11_more_than_2_32_elements_out(dtype, dim):
    need(20)
    values = pattern(numbers(1000), dim, dtype)
    times, targets = numbers(1000) * (MANY // 999), numbers(MANY)
    out, valid = rc.resample(values, times, targets, method="previous", return_valid=True)
    rc.synchronize()
    assert out.numel() > 2**32 and out.shape == (MANY, dim)
    assert int(valid.sum()) == min(MANY, int(times[-1]) + 1)
    step = 2**23
    for start in range(0, MANY, step):
        some = targets[start : start + step]
        index = (torch.searchsorted(times, some, right=True) - 1).clamp(0, 999)
        assert torch.equal(out[start : start + step], values[index]), f"rows from {start}"


def test_11_more_than_2_32_blended_elements_out():
    """A position is its own proof: the CPU computes some of the rows, the ends and the powers."""
    need(20)
    dim = 33
    values = pattern(numbers(50), dim, torch.float16)
    times = torch.linspace(0, 100, 50, device=DEVICE)
    targets = torch.arange(MANY, device=DEVICE, dtype=torch.float32) * (100.0 / MANY)
    out = rc.resample(values, times, targets)
    rows = edges_and_more(MANY, dim)
    assert int(rows[-1]) * dim > 2**32
    some = torch.stack([targets[row] for row in rows.tolist()])
    want = rc.resample(values.cpu(), times.cpu(), some.cpu())
    assert_same(torch.stack([out[row] for row in rows.tolist()]).cpu(), want)


def test_11_more_than_2_32_elements_in():
    need(12)
    dim = 33
    values = torch.empty(MANY, dim, dtype=torch.uint8, device=DEVICE)
    for start in range(0, MANY, 2**22):
        part = values[start : start + 2**22]
        part.copy_(pattern(numbers(len(part), start), dim, torch.uint8))
    rows = edges_and_more(MANY, dim).to(DEVICE)
    targets = rows * 1000 + 400  # nearer to the sample before; the last is outside
    for method in ("nearest", "previous"):
        got = rc.resample(values, numbers(MANY) * 1000, targets, method=method)
        assert torch.equal(got, pattern(rows, dim, torch.uint8)), method


def test_11_more_than_2_32_elements_in_a_batch():
    need(10)
    batch, source, dim = 2**20 + 1, 64, 64
    values = torch.empty(batch, source, dim, dtype=torch.uint8, device=DEVICE)
    assert values.numel() > 2**32
    for start in range(0, batch, 2**15):  # numbered through all rows
        part = values[start : start + 2**15].view(-1, dim)
        part.copy_(pattern(numbers(len(part), start * source), dim, torch.uint8))
    row = numbers(batch)
    times, targets = numbers(source).to(torch.float64), (row % source).to(torch.float64)[:, None]
    got = rc.resample(values, times, targets, method="next")
    assert torch.equal(got[:, 0], pattern(row * source + row % source, dim, torch.uint8))


def test_11_2_31_samples_are_refused_by_name():
    """And one less is not: all stamps are one (stride 0), so the last sample is the answer."""
    need(6)
    source = 2**31
    values = torch.zeros(source, 1, dtype=torch.uint8, device=DEVICE)
    values[source - 2], values[5] = 7, 10
    times = torch.full((1,), 3.0, device=DEVICE).expand(source)
    targets = torch.tensor([2.0, 3.0, 4.0], device=DEVICE)
    call = lambda: rc.resample(values, times, targets, method="next")  # noqa: E731
    assert_refused(call, "Unsupported", "times", r"fewer than 2\^31 samples", op="resample")
    values, times = values[:-1], times[:-1]
    for method in ("nearest", "next"):
        got = rc.resample(values, times, targets, method=method)
        assert got.flatten().tolist() == [7, 7, 7]
    lengths = torch.tensor([source - 1, 6], device=DEVICE)
    got = rc.resample(values, times, targets, method="previous", lengths=lengths)
    assert got[:, :, 0].tolist() == [[7] * 3, [10] * 3]


@pytest.mark.parametrize("batch", [65_535, 65_536, 70_001, 3_000_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_12_batches_beyond_a_grid(batch, dtype):
    """A grid has 65,535 blocks along y and z."""
    generator = torch.Generator().manual_seed(batch)
    values = torch.randint(0, 100, (batch, 3, 1), generator=generator).to(dtype)
    times = torch.cumsum(torch.randint(1, 9, (batch, 3), generator=generator), 1)
    targets = torch.randint(-2, 25, (batch, 1), generator=generator)
    method = "linear" if dtype.is_floating_point else "nearest"
    arguments = values, times, targets
    want, want_valid = rc.resample(*arguments, method=method, return_valid=True)
    there = [x.to(DEVICE) for x in arguments]
    got, valid = rc.resample(*there, method=method, return_valid=True)
    assert_same(got.cpu(), want, batch)
    assert_same(valid.cpu(), want_valid, batch)


@pytest.mark.slow
def test_12_more_rows_than_a_grid_has_blocks():
    """2**31 - 1 blocks along x are the most; what is more is launched in parts."""
    need(6)
    batch = 2**31 + 1000
    values = torch.tensor([[3], [5]], dtype=torch.uint8, device=DEVICE)
    times = torch.tensor([0.0, 1.0], device=DEVICE)
    targets = torch.tensor([[0.75]], device=DEVICE).expand(batch, 1)
    out = rc.resample(values, times, targets, method="nearest", check=False)
    assert out.shape == (batch, 1, 1)
    for start in range(0, batch, 2**29):
        assert bool((out[start : start + 2**29] == 5).all()), f"rows from {start}"


@pytest.mark.parametrize("dim", [40_000, 40_001, 65_536, 100_003])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_12_rows_of_several_chunks(dim, dtype):
    generator = torch.Generator().manual_seed(dim)
    values = torch.randint(0, 200, (2, 5, dim), generator=generator).to(dtype)
    times = torch.tensor([0.0, 1.0, 1.0, 3.0, 4.0])
    targets = torch.tensor([-1.0, 0.0, 0.3, 1.0, 2.5, 3.9, 4.0, 9.0, float("nan")])
    method = "linear" if dtype.is_floating_point else "previous"
    arguments = values, times, targets
    want, want_valid = rc.resample(*arguments, method=method, return_valid=True)
    there = [x.to(DEVICE) for x in arguments]
    got, valid = rc.resample(*there, method=method, return_valid=True)
    assert_same(got.cpu(), want, dim)
    assert_same(valid.cpu(), want_valid, dim)


@pytest.mark.parametrize("stamps", [torch.int64, torch.float64, torch.float32])
def test_3_000_000_stamps(stamps):
    generator = torch.Generator().manual_seed(3)
    ticks = torch.cumsum(torch.randint(0, 4, (3_000_000,), generator=generator), 0)
    times = ticks.to(stamps)
    last = int(ticks[-1])
    targets = torch.randint(-5, last + 5, (1000,), generator=generator).to(stamps)
    values = torch.randint(-1000, 1000, (3_000_000, 1), generator=generator).to(torch.float32)
    arguments = values, times, targets
    there = [x.to(DEVICE) for x in arguments]
    for method in ("linear", "nearest"):
        want = rc.resample(*arguments, method=method)
        assert_same(rc.resample(*there, method=method).cpu(), want, method)
