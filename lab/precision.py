"""The precision matrix: what storing a robot's signals in fewer bits costs in error, and gains in speed.

Signals are resampled from what each dtype stores and compared with the float64 result. Errors are shares of a
column's largest number: 0.001 of a joint that reaches 2 rad is 0.002 rad. int8 and float8 are stored
with one scale for each column, from the column's largest number. Speed is that of one call at size, beside
float32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common import ROOT, Record, number, options, print_table, setup
from timing import Spread, event_time, neighbours, race

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
"""What the largest number of a column is stored as."""
AT_SIZE = (256, 512, 64)
"""Rows, samples and columns of the timed call; half as many targets."""


@dataclass(frozen=True)
class Signal:
    name: str
    values: np.ndarray
    """`[S, D]` float64."""
    times: np.ndarray
    method: str = "linear"


def signals(rc: Any, rng: np.random.Generator) -> list[Signal]:
    """Joints and actions as they were recorded; a force and a pose that are made, with their answers known."""
    episode = rc.dataset(ROOT / "testdata" / "lerobot_v30").episode(0)
    found = [
        Signal(
            f"{name} (recorded)", np.asarray(episode[name].values, np.float64), episode[name].times
        )
        for name in ("observation.state", "action")
    ]
    seconds = np.arange(0, 4, 1 / 500)
    stamps = np.rint(seconds * 1e9).astype(np.int64)
    contact = np.where((seconds % 1) > 0.6, 40 * np.exp(-8 * ((seconds % 1) - 0.6)), 0.0)
    force = np.stack([contact, 0.1 * contact, np.full_like(contact, -9.81)], 1)
    found.append(Signal("force, 500 Hz", force + 0.05 * rng.normal(size=force.shape), stamps))
    angle = np.sin(seconds)[:, None] * np.array([[0.3, 0.7, 0.2]])
    half = np.linalg.norm(angle, axis=1, keepdims=True) / 2
    turn = np.concatenate([angle / np.maximum(2 * half, 1e-9) * np.sin(half), np.cos(half)], 1)
    found.append(Signal("orientation", turn, stamps, "slerp"))
    return found


def store(values: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Values as a dtype keeps them, and the scale of each column."""
    kind = getattr(torch, dtype)
    if dtype not in LARGEST:
        return values.to(kind), None
    scale = (values.abs().amax(tuple(range(values.dim() - 1))) / LARGEST[dtype]).float()
    scale = torch.where(scale > 0, scale, 1.0)
    scaled = values / scale
    return (scaled.round() if dtype == "int8" else scaled).to(kind), scale


def resampled(
    rc: Any, stored: torch.Tensor, scale: torch.Tensor | None, *rest: Any, **options: Any
) -> Any:
    return rc.resample(stored, *rest, scale=scale, **options)


def errors(rc: Any, signal: Signal, device: str) -> dict[str, dict[str, float]]:
    """By dtype the largest and the root mean square error, as shares of a column's largest number."""
    times = torch.from_numpy(np.asarray(signal.times)).to(device)
    targets = torch.arange(int(times[0]), int(times[-1]), 3_700_000, device=device)
    values = torch.from_numpy(signal.values).to(device)
    exact = rc.resample(values, times, targets, method=signal.method)
    largest = values.abs().amax(0)
    used = largest > 0
    out = {}
    for dtype in DTYPES[1:]:
        stored, scale = store(values, dtype)
        got = resampled(rc, stored, scale, times, targets, method=signal.method)
        wrong = (got.double() - exact).abs()[:, used] / largest[used]
        out[dtype] = {"largest": float(wrong.max()), "rms": float(wrong.square().mean().sqrt())}
    return out


def timed(rc: Any, args: argparse.Namespace) -> tuple[dict[str, Spread], float]:
    """One call at size by dtype; how many other cores were busy."""
    batch, samples, columns = AT_SIZE
    values = torch.randn(batch, samples, columns, device=args.device, dtype=torch.float64)
    times = torch.cumsum(
        torch.rand(batch, samples, device=args.device, dtype=torch.float64) + 0.1, 1
    )
    targets = times[:, ::2] + 0.01
    calls: dict[str, Callable[[], Any]] = {}
    for dtype in DTYPES:
        stored, scale = store(values, dtype)
        calls[dtype] = lambda stored=stored, scale=scale: resampled(
            rc, stored, scale, times, targets
        )
    with neighbours() as others:
        if args.device == "cpu":
            found = race(calls, args.seconds)
        else:
            found = {dtype: event_time([call], args.seconds) for dtype, call in calls.items()}
    return found, others[0] if others else 0.0


def main() -> None:
    args = options(__doc__.partition("\n")[0]).parse_args()
    rc = setup(args)
    record = Record("precision", args)
    rng = np.random.default_rng(args.seed)
    table = {signal.name: errors(rc, signal, args.device) for signal in signals(rc, rng)}
    print("\nlargest and root mean square error, in thousandths of a column's largest number")
    cell = lambda found: f"{number(1e3 * found['largest'])} / {number(1e3 * found['rms'])}"  # noqa: E731
    print_table(
        ["signal", *DTYPES[1:]],
        [[name, *(cell(found[dtype]) for dtype in DTYPES[1:])] for name, found in table.items()],
    )
    speeds, others = timed(rc, args)
    print(f"\none call, values {list(AT_SIZE)}, half as many targets")
    base = speeds["float32"].median
    print_table(
        ["", *DTYPES],
        [
            ["us", *(number(1e6 * speeds[dtype].median) for dtype in DTYPES)],
            ["of float32", *(number(speeds[dtype].median / base) for dtype in DTYPES)],
        ],
    )
    record.rows = [{"row": name, "errors": found} for name, found in table.items()]
    seconds = {dtype: speeds[dtype].json() for dtype in DTYPES}
    record.rows.append({"row": "one call", "seconds": seconds, "other_cores": others})
    record.finish()


if __name__ == "__main__":
    main()
