"""Host time of a warm call from Python with small tensors, and what of it is the allocation.

Beyond allocation = a call that makes its output, less `torch.empty` of such a one, at the same moment.
"""

from __future__ import annotations

import statistics
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from common import Record, Target, number, options, print_table, setup
from timing import Call, Spread, host_race, neighbours, race

SAMPLES, TARGETS, DIM = 8, 4, 4
BEYOND_ALLOCATION = 5e-6
FUSED_BEYOND_ALLOCATION = 8e-6
FUSED = ("fuse, 3 streams", "fuse, 3 streams made for it")


def main() -> None:
    args = options(__doc__.partition("\n")[0]).parse_args()
    rc = setup(args)
    record = Record("call_overhead", args)
    rng = np.random.default_rng(args.seed)
    arrays = (
        rng.standard_normal((1, SAMPLES, DIM), np.float32),
        np.sort(rng.random((1, SAMPLES), np.float32)),
        np.sort(rng.random((1, TARGETS), np.float32)),
    )
    tensors = tuple(torch.from_numpy(x).to(args.device) for x in arrays)
    shape = (1, TARGETS, DIM)
    check(rc.resample(*tensors), arrays)
    check(rc.resample(*tensors, out=torch.full(shape, torch.nan, device=args.device)), arrays)

    empty = partial(torch.empty, shape, dtype=torch.float32, device=args.device)
    scratch = torch.zeros(shape, device=args.device)
    calls: dict[str, Call] = {
        "torch.empty": empty,
        "torch add_": partial(scratch.add_, 1.0),
        "torch": partial(rc.resample, *tensors),
        "torch, out=": partial(rc.resample, *tensors, out=empty()),
        "torch, out=, check=False": partial(rc.resample, *tensors, out=empty(), check=False),
        **fuse_calls(rc, *tensors),
    }
    if args.device == "cpu":
        check(torch.from_numpy(rc.resample(*arrays)), arrays)
        out = np.empty(shape, np.float32)
        calls |= {
            "numpy.empty": partial(np.empty, shape, np.float32),
            "numpy": partial(rc.resample, *arrays),
            "numpy, out=": partial(rc.resample, *arrays, out=out),
        }
    with neighbours() as others:
        if args.device == "cpu":
            times = race(calls, args.seconds)
            allocation = {"torch": "torch.empty", "numpy": "numpy.empty"}
            beyond = {x: times[x].median - times[y].median for x, y in allocation.items()}
        else:
            seen = host_race(calls, args.seconds)
            times = {name: Spread.of(each) for name, each in seen.items()}
            beyond = {x: median_difference(seen[x], seen["torch.empty"]) for x in ("torch", *FUSED)}
    targets = judge(times, beyond, args.device)
    size = f"[1,{SAMPLES},{DIM}] at [1,{TARGETS}]"
    print(f"\nresample {size} f32, or three of it fused, us of host time per warm call")
    print_table(["call", "median", "p10", "p90"], [line(name, x) for name, x in times.items()])
    print()
    for target in targets:
        print(target)
    record.rows = [
        {
            "row": size,
            "other_cores": others[0] if others else None,
            "times": {name: spread.json() for name, spread in times.items()},
            "beyond_allocation_us": {name: us * 1e6 for name, us in beyond.items()},
            "targets": [target.json() for target in targets],
        }
    ]
    record.finish()


def fuse_calls(
    rc: ModuleType, values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor
) -> dict[str, Call]:
    """Three streams: seven inputs and a result, beside torch's own call with as many tensors. To warm up is a call
    without its launch, and a little more."""
    seven = [values.clone() for _ in range(7)]
    streams = [rc.Stream(values.clone(), times.clone()) for _ in range(3)]
    out = rc.fuse(streams, targets)
    (a, b), (c, d), (e, f) = ((x.values, x.times) for x in streams)
    torch.testing.assert_close(out, rc.resample(values, times, targets).repeat(1, 1, 3))
    calls: dict[str, Call] = {
        "torch.cat, 7 tensors": partial(torch.cat, seven, 2),
        "torch.cat, 7 tensors, out=": partial(torch.cat, seven, 2, out=torch.cat(seven, 2)),
        FUSED[0]: partial(rc.fuse, streams, targets),
        FUSED[1]: lambda: rc.fuse([rc.Stream(a, b), rc.Stream(c, d), rc.Stream(e, f)], targets),
        "fuse, 3 streams, out=": partial(rc.fuse, streams, targets, out=out),
    }
    if values.is_cuda:
        calls["fuse, 3 streams, warmup"] = partial(rc.warmup, "fuse", streams, targets, out=out)
    return calls


def median_difference(one: list[float], other: list[float]) -> float:
    return statistics.median(x - y for x, y in zip(one, other, strict=True))


def check(result: torch.Tensor, arrays: tuple[np.ndarray, ...]) -> None:
    """Ends the run when the call that is about to be timed is wrong."""
    values, times, targets = (x[0].astype(np.float64) for x in arrays)
    columns = [np.interp(targets, times, values[:, d]) for d in range(DIM)]
    np.testing.assert_allclose(result.cpu().numpy()[0], np.stack(columns, 1), rtol=1e-5, atol=1e-6)


def judge(times: dict[str, Spread], beyond: dict[str, float], device: str) -> list[Target]:
    bound = BEYOND_ALLOCATION * 1e6
    targets = [
        Target("torch beyond allocation", beyond["torch"] * 1e6, bound, False, " us"),
        Target("torch, out=", times["torch, out="].median * 1e6, bound, False, " us"),
    ]
    if device == "cuda":
        own, add = times["torch, out="].median * 1e6, times["torch add_"].median * 1e6
        targets.append(Target("below torch add_", own, add, False, " us"))
        most = FUSED_BEYOND_ALLOCATION * 1e6
        for name in FUSED:
            targets.append(
                Target(f"{name} beyond allocation", beyond[name] * 1e6, most, False, " us")
            )
    return targets


def line(name: str, spread: Spread) -> list[str]:
    seen: dict[str, Any] = spread.json()
    return [name, *(number(seen[key]) for key in ("median_us", "p10_us", "p90_us"))]


if __name__ == "__main__":
    main()
