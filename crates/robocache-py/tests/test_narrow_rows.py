"""Rows of several methods on a GPU, narrow ones above all, which a thread makes as a whole: the bits of the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import compare, random_call, seeded
from helpers import STAMPS, scaled
from test_cuda_agreement import DEVICE, some_layouts

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
    """Zero, tiny, huge, infinite and no numbers, beside usual ones; weights of 0, 1 and hardly more, and none."""
    rng = seeded("pairs", dtype)
    batch, samples = 300, 40
    values = torch.from_numpy(rng.normal(size=(batch, samples, 24)))
    for scale in (0.0, 1e-30, 1e-5, 1e4, 1e30, np.inf, np.nan):
        where = rng.random((batch, samples, 6)) < 0.02
        values = torch.where(
            torch.from_numpy(where).repeat_interleave(4, 2), values * scale, values
        )
    times = torch.arange(float(samples), dtype=torch.float64).repeat(batch, 1)
    # As many targets for each thread that some make an odd number of them, and others an even one.
    for steps in (200, 171):
        targets = rng.uniform(-1, samples + 1, (batch, steps))
        targets[:, ::5] = targets[:, ::5].round()
        targets[:, 1::5] = np.nextafter(targets[:, 1::5].round(), np.inf)
        targets[:, 2::5] = np.nextafter(targets[:, 2::5].round(), -np.inf)
        targets[:, 7] = np.nan
        call = {
            "values": values.to(getattr(torch, dtype)),
            "times": times,
            "targets": torch.from_numpy(targets),
        }
        for method in ("slerp", [("slerp", 0, 16), ("linear", 16, 24)]):
            for extrapolate in ("clamp", "nan"):
                compare({**call, "method": method, "extrapolate": extrapolate}, {}, DEVICE, rng)


def spacings(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Gaps between stamps that are nothing like a clock's."""
    growth = 1e9 ** (np.arange(count) / max(count - 1, 1))
    return {
        "clock": np.full(count, 1_000_000),
        "slower and slower": growth.astype(np.int64),
        "faster and faster": growth[::-1].astype(np.int64),
        "bursts": np.where(np.arange(count) % 50 == 0, 100_000_000, 1_000),
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
        for method in ("linear", [("linear", 0, 3), ("nearest", 3, 5)]):
            call = {"values": values, "times": times, "targets": torch.from_numpy(targets),
                    "method": method}  # fmt: skip
            compare(call, {}, DEVICE, rng, context=(name, method))


CHILD = """
import sys
import torch
import robocache as rc
from agreement import assert_same

METHOD = [("linear", 0, 7), ("slerp", 7, 11), ("previous", 11, 12)]


def inputs(batch):
    times, targets = torch.rand(batch, 30).sort(1)[0], torch.rand(batch, 20).sort(1)[0]
    return tuple(x.cuda() for x in (torch.randn(batch, 30, 12), times, targets))


def captured(static, out):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rc.resample(*static, method=METHOD, out=out)
    graph.replay()
    torch.cuda.synchronize()


warm, batch = map(int, sys.argv[1:])
rc.warmup("resample", *inputs(warm), method=METHOD)
static, out = inputs(batch), torch.empty(batch, 20, 12, device="cuda")
captured(static, out)
assert_same(out.cpu(), rc.resample(*(x.cpu() for x in static), method=METHOD))
print("ok")
"""


@pytest.mark.parametrize(("warm", "batch"), [(1, 2000), (2000, 1)])
def test_a_graph_of_another_batch_than_that_of_the_warmup(warm, batch):
    """Small and large batches of narrow rows take different kernels: both are loaded. In a process that has loaded none."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(warm), str(batch)],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=Path(__file__).parent,
    )
    assert done.stdout == "ok\n", done.stdout + done.stderr


@pytest.mark.parametrize("stamps", STAMPS)
def test_stamps_that_no_guess_fits(stamps):
    """Spans that overflow, vanish or fill all numbers; and, unchecked, stamps in no order: these do no harm."""
    if stamps == "int64":
        rows = [[-(2**63), 0, 2**63 - 1], [2**63 - 3, 2**63 - 2, 2**63 - 1], [-5, -5, 2**62]]
    else:
        tiny, huge = np.finfo(stamps).tiny, float(np.finfo(stamps).max)
        rows = [[-huge, 0.0, huge], [0.0, tiny / 4, tiny], [-huge, -huge / 2, 1.0]]
    times = np.array(rows, stamps)
    targets = np.concatenate([times, times[:, 1:], times[:, :1]], 1)
    values = torch.from_numpy(np.random.default_rng(5).normal(size=(3, 3, 4))).float()
    call = {
        "values": values,
        "targets": torch.from_numpy(targets),
        "method": [("linear", 0, 3), ("nearest", 3, 4)],
    }
    rng = np.random.default_rng(6)
    compare({**call, "times": torch.from_numpy(times), "check": False}, {}, DEVICE, rng)
    for _ in range(20):
        mixed = rng.permutation(np.concatenate([times] * 30, 1), axis=1)
        many = values.repeat(1, 30, 1).to(DEVICE)
        moved_call = {
            **call,
            "values": many,
            "times": torch.from_numpy(mixed).to(DEVICE),
            "check": False,
        }
        rc.resample(**{**moved_call, "targets": call["targets"].to(DEVICE)})
    rc.synchronize()
