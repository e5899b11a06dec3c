"""Rows of several methods on a GPU, narrow ones above all, which a thread makes as a whole: the bits of the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same, compare, random_call
from helpers import STAMPS, scaled
from test_cuda_agreement import DEVICE, seeded, some_layouts

pytestmark = pytest.mark.gpu

SMALL_FLOATS = ("float32", "bfloat16", "float16")
COLUMNS = {"slerp": 4, "rot6d": 6}
METHODS = ("linear", "previous", "next", "nearest", "slerp", "angle", "rot6d", "linear", "slerp")
EXTRAPOLATE = ("clamp", "nan", "error")


def random_ranges(rng: np.random.Generator, width: int) -> list[tuple[str, int, int]]:
    """Ranges of methods that share `width` columns, at least two of them where that is possible."""
    ranges, start = [], 0
    while start < width:
        left = width - start
        method = str(rng.choice([m for m in METHODS if COLUMNS.get(m, 1) <= left]))
        unit = COLUMNS.get(method, 1)
        most = max(left // unit - (start == 0 and left // unit > 1), 1)
        end = start + unit * int(rng.integers(1, most + 1))
        ranges.append((method, start, end))
        start = end
    return ranges


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_random_ranges_of_narrow_rows(dtype, stamps):
    """Every bit pattern, rows of every layout, hits, ties and targets outside, small and large batches."""
    for index in range(scaled(60)):
        rng = seeded("narrow", dtype, stamps, index)
        width = int(rng.integers(2, 17)) if index % 3 else int(rng.choice([4, 8, 12, 14]))
        sizes = [(300, 20, 40, width), (7, 90, 300, width), (1, 5, 3, width)][index % 3]
        ranges = random_ranges(rng, width)
        call = random_call(rng, dtype, stamps, "linear", EXTRAPOLATE[index // 3 % 3], sizes)
        call["method"] = ranges
        compare(call, some_layouts(rng), DEVICE, rng, context=ranges)
        if index % 5 == 0:
            compare(call, {}, DEVICE, rng, "rows apart", context=ranges)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_pairs_of_quaternions_of_unusual_length(dtype):
    """Zero, tiny, huge, infinite and no numbers, beside usual ones; weights of 0 and 1 and none."""
    rng = seeded("pairs", dtype)
    values = torch.from_numpy(rng.normal(size=(40, 50, 24)))
    for scale in (0.0, 1e-30, 1e-5, 1e4, 1e30, np.inf, np.nan):
        where = torch.from_numpy(rng.random((40, 50, 6)) < 0.05).repeat_interleave(4, 2)
        values = torch.where(where, values * scale, values)
    times = torch.arange(50.0).expand(40, 50)
    targets = torch.from_numpy(rng.uniform(-1, 51, (40, 77)))
    targets[:, ::3] = targets[:, ::3].round()
    targets[:, 5] = torch.nan
    for method in ("slerp", [("slerp", 0, 16), ("linear", 16, 24)]):
        call = {"values": values.to(getattr(torch, dtype)), "times": times.contiguous(),
                "targets": targets.float(), "method": method}  # fmt: skip
        for extrapolate in EXTRAPOLATE[:2]:
            compare({**call, "extrapolate": extrapolate}, {}, DEVICE, rng)


def spacings(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Gaps between stamps that are nothing like a clock's."""
    burst = np.where(np.arange(count) % 50 == 0, 100_000_000, 1_000)
    return {
        "clock": np.full(count, 1_000_000),
        "doubling": np.cumprod(np.full(count, 1.01)).astype(np.int64) * 1_000,
        "halving": np.cumprod(np.full(count, 1.01))[::-1].astype(np.int64) * 1_000,
        "bursts": burst,
        "one far away": np.where(np.arange(count) == count // 3, 10**12, 1_000_000),
        "all but equal": (rng.random(count) < 0.01).astype(np.int64),
        "equal": np.zeros(count, np.int64),
    }


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("count", [1, 2, 3, 33, 700, 2500])
def test_stamps_of_any_spacing(count, stamps):
    """Where a target lies is guessed from an even spacing first: that must not matter."""
    rng = seeded("spacing", count, stamps)
    for name, steps in spacings(rng, count).items():
        nanoseconds = np.cumsum(steps)
        exact = nanoseconds if stamps == "int64" else np.sort((nanoseconds * 1e-9).astype(stamps))
        times = torch.from_numpy(exact).expand(3, count).contiguous()
        which = rng.integers(0, count, (3, 400))
        low, high = exact[which], exact[np.minimum(which + 1, count - 1)]
        targets = low + (rng.random((3, 400)) * (high - low)).astype(low.dtype)
        targets[:, ::4] = low[:, ::4]
        targets[:, :2] = [exact[0] - 1, exact[-1] + 1]
        values = torch.from_numpy(rng.normal(size=(3, count, 5))).float()
        for method in ("linear", "nearest", [("linear", 0, 4), ("previous", 4, 5)]):
            call = {"values": values, "times": times, "targets": torch.from_numpy(targets),
                    "method": method}  # fmt: skip
            compare(call, {}, DEVICE, rng, context=(name, method))


def test_a_graph_of_another_batch_than_that_of_the_warmup():
    """Small and large batches of narrow rows take different kernels: both are loaded."""
    method = [("linear", 0, 7), ("slerp", 7, 11), ("previous", 11, 12)]
    rng = np.random.default_rng(3)

    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        times = np.sort(rng.random((batch, 30)), axis=1)
        targets = np.sort(rng.random((batch, 20)), axis=1)
        values = rng.normal(size=(batch, 30, 12))
        return tuple(torch.from_numpy(x).float().to(DEVICE) for x in (values, times, targets))

    for warm, captured in ((1, 2000), (2000, 1)):
        rc.warmup("resample", *inputs(warm), method=method)
        static = inputs(captured)
        out = torch.empty(captured, 20, 12, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            rc.resample(*static, method=method, out=out)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(out.cpu(), rc.resample(*(x.cpu() for x in static), method=method))
