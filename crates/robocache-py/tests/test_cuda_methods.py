"""Every method on CUDA gives the bits of the CPU: a thousand random ragged calls of each, and of `fuse`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import LAYOUTS, assert_same, compare, random_call, seeded
from helpers import FLOATS, STAMPS, scaled

pytestmark = pytest.mark.gpu

UNIT = {"slerp": 4, "rot6d": 6}
COPIES = ("nearest", "previous", "next")
LINES = ("linear", "cubic")
METHODS = (*LINES, *COPIES, "slerp", "angle", "rot6d")
DTYPES = (*FLOATS, "bfloat16")
COPIED = (*DTYPES, "bool", "uint8", "int16", "int64")
CASES = 1000


def to(device: str, value):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def random_sizes(rng: np.random.Generator, unit: int) -> tuple[int, int, int, int]:
    batch = int(rng.integers(1, 7))
    samples = int(rng.choice([1, 2, 3, 7, 20, 41, 300]))
    targets = int(rng.choice([1, 2, 15, 33, 64, 257]))
    return batch, samples, targets, unit * int(rng.integers(1, 9))


def random_extrapolation(rng: np.random.Generator, methods: tuple[str, ...], floats: bool) -> str:
    ends = ["clamp", "error"]
    if floats:
        ends += ["nan"]
        if set(methods) <= set(LINES):
            ends += ["linear"]
    return str(rng.choice(ends))


@pytest.mark.parametrize("stamps", STAMPS)
@pytest.mark.parametrize("method", METHODS)
def test_a_thousand_calls(method, stamps):
    dtypes = COPIED if method in COPIES else DTYPES
    for index in range(scaled(CASES // len(STAMPS) + 1)):
        rng = seeded(method, stamps, index)
        dtype = str(rng.choice(dtypes))
        extrapolate = random_extrapolation(rng, (method,), dtype in DTYPES)
        sizes = random_sizes(rng, UNIT.get(method, 1))
        call = random_call(rng, dtype, stamps, method, extrapolate, sizes)
        layouts = {"values": str(rng.choice(LAYOUTS))} if rng.random() < 0.3 else {}
        out = str(rng.choice(LAYOUTS)) if rng.random() < 0.2 else None
        compare(call, layouts, "cuda", rng, out, (method, stamps, dtype, extrapolate, index))


@pytest.mark.parametrize("stamps", STAMPS)
def test_a_thousand_calls_of_fuse(stamps):
    """Of streams that have their own rates, lengths, gaps and methods, one of them missing now and then."""
    for index in range(scaled(CASES // len(STAMPS) + 1)):
        rng = seeded("fuse", stamps, index)
        batch, steps = int(rng.integers(1, 7)), int(rng.choice([1, 2, 15, 33, 64]))
        methods = tuple(str(x) for x in rng.choice(METHODS, int(rng.integers(1, 6))))
        extrapolate = random_extrapolation(rng, methods, True)
        # "error" wants targets within all streams.
        extrapolate = "clamp" if extrapolate == "error" else extrapolate
        dtype = str(rng.choice(DTYPES))
        streams, targets, begins = [], None, None
        for method in methods:
            _, samples, _, width = random_sizes(rng, UNIT.get(method, 1))
            own = dtype if rng.random() < 0.8 else str(rng.choice(DTYPES))
            sizes = (batch, samples, steps, width)
            call = random_call(rng, own, stamps, method, extrapolate, sizes)
            # The targets are those of the first stream, whose rows begin where those of others do.
            if targets is None:
                targets, begins = call["targets"], call["times"][:, :1]
            call["times"] = call["times"] - call["times"][:, :1] + begins
            kept = {k: call[k] for k in ("values", "times", "method", "lengths")}
            streams.append({**kept, "max_gap": call.get("max_gap")})
        if rng.random() < 0.2:
            streams.insert(int(rng.integers(len(streams) + 1)), {"dim": int(rng.integers(1, 5))})
        got, want = (
            rc.fuse(
                [rc.Stream(**{k: to(device, v) for k, v in stream.items()}) for stream in streams],
                targets.to(device),
                extrapolate=extrapolate,
                return_valid=True,
                return_age=True,
            )
            for device in ("cuda", "cpu")
        )
        for mine, theirs in zip(got, want, strict=True):
            assert_same(mine.cpu(), theirs, (stamps, index, dtype, methods, extrapolate))
