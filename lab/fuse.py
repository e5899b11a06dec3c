"""fuse and the methods of resample: N streams in one launch beside torch, rotations beside lines.

Every contender is checked before it is timed: fuse and torch against a float64 NumPy oracle, the
methods on a GPU against the CPU. Bytes: each touched input row once, each output once, stamps and
targets once. Floor: bytes over the bandwidth of a plain copy that is measured in the same run. The
promise of performance.md counts every sample, touched or not: both fractions are recorded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from common import Record, Target, number, options, print_table, rows_option, setup
from resample import by_gather
from timing import (
    Copy,
    Spread,
    buffer_sets,
    cpu_copy,
    event_time,
    gpu_copy,
    graph_time,
    host_time,
    neighbours,
    race,
)

STEP = 0.01  # Mean distance of two stamps of the slowest stream in seconds.
ORIGINAL_US = {
    4: 18.0,
    256: 61.0,
    2048: 534.0,
}  # The kernel that this one replaces (performance.md).


@dataclass(frozen=True)
class Row:
    """Streams as (samples, width), a method for all of them."""

    name: str
    batch: int
    targets: int
    streams: tuple[tuple[int, int], ...]
    dtype: torch.dtype
    method: Any = "linear"
    peers: bool = False


ROBOT = ((30, 512), (100, 64), (200, 12))
POSE = [("linear", 0, 7), ("slerp", 7, 11), ("previous", 11, 12)]
ARMS = [("linear", 0, 6), ("previous", 6, 7), ("linear", 7, 13), ("previous", 13, 14)]
WIDE_POSE = [("linear", 0, 16), ("slerp", 16, 24), ("previous", 24, 32)]
ROWS = [
    *(
        Row(f"fuse B={batch}", batch, 50, ROBOT, torch.bfloat16, peers=True)
        for batch in (4, 256, 2048)
    ),
    Row("one stream", 1024, 256, ((256, 512),), torch.float32),
    Row("8 streams", 1024, 256, ((256, 64),) * 8, torch.float32),
    Row("linear 32", 4096, 256, ((512, 32),), torch.float32),
    Row("slerp 32", 4096, 256, ((512, 32),), torch.float32, "slerp"),
    Row("ranges 32", 4096, 256, ((512, 32),), torch.float32, WIDE_POSE),
    Row("cubic 32", 4096, 256, ((512, 32),), torch.float32, "cubic"),
    Row("rot6d 36", 4096, 256, ((512, 36),), torch.float32, "rot6d"),
    Row("linear 12", 4096, 256, ((512, 12),), torch.float32),
    Row("ranges 12", 4096, 256, ((512, 12),), torch.float32, POSE),
    Row("linear 64 bf16", 1024, 1024, ((1024, 64),), torch.bfloat16),
    Row("slerp 64 bf16", 1024, 1024, ((1024, 64),), torch.bfloat16, "slerp"),
    Row("linear 14", 4096, 256, ((512, 14),), torch.float32),
    Row("ranges 14", 4096, 256, ((512, 14),), torch.float32, ARMS),
]
# What is compared with what, and how much longer it may take.
WITHIN = {"8 streams": ("one stream", 1.2), "slerp 32": ("linear 32", 1.3), "ranges 32": ("linear 32", 1.3),
          "ranges 12": ("linear 12", 1.3), "ranges 14": ("linear 14", 1.3), "slerp 64 bf16": ("linear 64 bf16", 1.3)}  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """One set of buffers."""

    values: tuple[torch.Tensor, ...]
    times: tuple[torch.Tensor, ...]
    targets: torch.Tensor
    out: torch.Tensor

    @classmethod
    def random(cls, row: Row, rng: np.random.Generator) -> Inputs:
        """Jittered sorted stamps over one span of time; sorted targets inside all of them."""
        span = row.targets * STEP
        times = []
        for samples, _ in row.streams:
            jitter = rng.uniform(-0.4, 0.4, (row.batch, samples))
            times.append((np.arange(samples) + jitter) / (samples - 1) * span)
        low = np.max([t[:, 0] for t in times], axis=0)[:, None]
        high = np.min([t[:, -1] for t in times], axis=0)[:, None]
        targets = np.sort(low + (high - low) * rng.random((row.batch, row.targets)), axis=1)
        width = sum(width for _, width in row.streams)
        return cls(
            values=tuple(torch.randn(row.batch, s, w).to(row.dtype) for s, w in row.streams),
            times=tuple(torch.from_numpy(t).float() for t in times),
            targets=torch.from_numpy(targets).float(),
            out=torch.full((row.batch, row.targets, width), torch.nan, dtype=row.dtype),
        )

    def copy_to(self, device: str) -> Inputs:
        def copies(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return tuple(x.clone().to(device) for x in tensors)

        return Inputs(copies(self.values), copies(self.times), *copies((self.targets, self.out)))

    def bytes(self) -> int:
        return sum(x.nbytes for x in (*self.values, *self.times, self.targets, self.out))

    def moved(self) -> int:
        """Bytes that cannot be avoided."""
        total = self.out.nbytes + self.targets.nbytes + sum(t.nbytes for t in self.times)
        for values, times in zip(self.values, self.times, strict=True):
            high = torch.searchsorted(times, self.targets, right=True).clamp_(1, times.shape[1] - 1)
            touched = torch.zeros(times.shape, dtype=torch.bool)
            touched.scatter_(1, high, True).scatter_(1, high - 1, True)
            total += int(touched.sum()) * values.shape[2] * values.itemsize
        return total


def fuse_of(rc: ModuleType, row: Row, *, into: bool) -> Callable[[Inputs], torch.Tensor]:
    def call(x: Inputs) -> torch.Tensor:
        out = {"out": x.out} if into else {}
        if len(x.values) == 1:
            return rc.resample(x.values[0], x.times[0], x.targets, method=row.method, **out)
        streams = [
            rc.Stream(v, t, method=row.method) for v, t in zip(x.values, x.times, strict=True)
        ]
        return rc.fuse(streams, x.targets, **out)

    return call


def by_torch(
    values: tuple[torch.Tensor, ...], times: tuple[torch.Tensor, ...], targets: torch.Tensor
) -> torch.Tensor:
    """The usual words, stream by stream, then side by side."""
    return torch.cat([by_gather(v, t, targets) for v, t in zip(values, times, strict=True)], dim=-1)


def check(row: Row, source: Inputs, name: str, result: torch.Tensor, rc: ModuleType) -> None:
    """Ends the run when a result is wrong."""
    if row.method != "linear":
        want = rc.resample(source.values[0], source.times[0], source.targets, method=row.method)
        if not torch.equal(result.cpu(), want):
            sys.exit(f"lab: {name}: {row.name}: differs from the CPU")
        return
    for b in np.random.default_rng().permutation(row.batch)[:16]:
        targets = source.targets[b].double().numpy()
        parts = []
        for values, times in zip(source.values, source.times, strict=True):
            v, t = values[b].double().numpy(), times[b].double().numpy()
            parts.append(np.stack([np.interp(targets, t, column) for column in v.T], axis=1))
        want = np.concatenate(parts, axis=1)
        error = np.abs(result[b].double().cpu().numpy() - want).max()
        if not error <= (0.06 if row.dtype == torch.bfloat16 else 2e-3):
            sys.exit(f"lab: {name}: {row.name}: row {b} is off by {error}")


def measure(rc: ModuleType, index: int, args: argparse.Namespace, copy: Copy) -> dict[str, Any]:
    row = ROWS[index]
    source = Inputs.random(row, np.random.default_rng([args.seed, index]))
    inputs = source if args.device == "cpu" else source.copy_to(args.device)
    calls: dict[str, Callable[[Inputs], torch.Tensor]] = {
        "robocache_out": fuse_of(rc, row, into=True),
        "robocache": fuse_of(rc, row, into=False),
    }
    if row.peers:
        calls["eager"] = lambda x: by_torch(x.values, x.times, x.targets)
        if not args.no_compile:
            torch.compiler.reset()
            function = torch.compile(by_torch, dynamic=False)
            calls["compile"] = lambda x: function(x.values, x.times, x.targets)
    for name, call in calls.items():
        made = call(inputs)
        check(row, source, name, inputs.out if name.endswith("_out") else made, rc)
    with neighbours() as others:
        if args.device == "cpu":
            plain = {name: partial(call, inputs) for name, call in calls.items()}
            times = {"call": race({"copy": copy.call} | plain, args.seconds)}
        else:
            sets = [
                inputs,
                *(inputs.copy_to("cuda") for _ in range(buffer_sets(inputs.bytes()) - 1)),
            ]
            times = gpu_times(calls, sets, copy, args.seconds)
    kind = "graph_cold" if args.device == "cuda" else "call"
    bandwidth, moved = copy.bandwidth(times[kind]["copy"]), source.moved()
    own = times[kind]["robocache_out"].median
    return {
        "index": index,
        "row": row.name,
        "bytes": moved,
        "floor_us": moved / bandwidth * 1e6,
        "copy_gb_s": bandwidth / 1e9,
        "copy_fraction": moved / own / bandwidth,
        "copy_fraction_of_all": source.bytes() / own / bandwidth,
        "other_cores": others[0] if others else None,
        "times": {k: {n: s.json() for n, s in spreads.items()} for k, spreads in times.items()},
        "own_us": own * 1e6,
    }


def gpu_times(
    calls: dict[str, Callable], sets: list[Inputs], copy: Copy, seconds: float
) -> dict[str, dict[str, Spread]]:
    hot = {name: [partial(call, sets[0])] for name, call in calls.items()}
    cold = {name: [partial(call, x) for x in sets] for name, call in calls.items()}
    return {
        "graph_hot": {name: graph_time(each, seconds) for name, each in hot.items()},
        "graph_cold": {
            name: graph_time(each, seconds) for name, each in ({"copy": [copy.call]} | cold).items()
        },
        "call": {name: event_time(each, seconds) for name, each in hot.items()},
        "host": {name: host_time(each[0], seconds) for name, each in hot.items()},
    }


def judge(rows: list[dict[str, Any]], device: str) -> None:
    by_name = {row["row"]: row for row in rows}
    for row in rows:
        targets = []
        times = row["times"]
        if device == "cuda" and row["row"] == "fuse B=2048":
            of_all = row["copy_fraction_of_all"]
            targets.append(Target("of the copy bandwidth, all samples", of_all, 0.85, True))
        if device == "cuda" and row["row"] == "fuse B=4":
            us = times["graph_hot"]["robocache_out"]["median_us"]
            targets.append(Target("graph replay", us, 5.0, False, " us"))
        if device == "cuda" and row["row"].startswith("fuse"):
            batch = int(row["row"].partition("=")[2])
            ratio = ORIGINAL_US[batch] / times["graph_cold"]["robocache_out"]["median_us"]
            targets.append(
                Target(
                    "against the original kernel", ratio, 8.0 if batch == 2048 else 1.0, True, " x"
                )
            )
        if row["row"] in WITHIN and WITHIN[row["row"]][0] in by_name:
            other, most = WITHIN[row["row"]]
            ratio = row["own_us"] / by_name[other]["own_us"]
            targets.append(Target(f"beside {other}", ratio, most, False, " x"))
        for peer in ("eager", "compile"):
            kind = "graph_cold" if device == "cuda" else "call"
            if peer in times[kind]:
                ratio = times[kind][peer]["median_us"] / times[kind]["robocache"]["median_us"]
                least = 5.0 if (device, peer) == ("cpu", "eager") else 1.0
                targets.append(Target(f"against torch {peer}", ratio, least, True, " x"))
        row["targets"] = targets


def report(rows: list[dict[str, Any]], device: str) -> None:
    contenders = ["robocache_out", "robocache", "eager", "compile"]
    for kind in ["call"] if device == "cpu" else ["graph_hot", "graph_cold", "call", "host"]:
        print(f"\n{kind}, median in us")
        lines = [
            [row["row"], number(row["floor_us"]), *(number((row["times"][kind].get(n) or {}).get("median_us")) for n in contenders), number(row["copy_fraction"], 2), number(row["copy_fraction_of_all"], 2)]
            for row in rows
        ]  # fmt: skip
        print_table(["row", "floor", *contenders, "of copy", "of all"], lines)
    print()
    for row in rows:
        for target in row["targets"]:
            print(f"{row['row']:<16}  {target}")


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    args = parser.parse_args()
    rc = setup(args)
    record = Record("fuse", args)
    copy = cpu_copy(args.threads) if args.device == "cpu" else gpu_copy()
    record.ceilings = {"copy": copy.name, "copy_bytes": copy.bytes_moved}
    rows = []
    for index in args.rows:
        print(f"  {ROWS[index].name} ...", flush=True)
        rows.append(measure(rc, index, args, copy))
    judge(rows, args.device)
    report(rows, args.device)
    record.rows = [row | {"targets": [target.json() for target in row["targets"]]} for row in rows]
    record.finish()


if __name__ == "__main__":
    main()
