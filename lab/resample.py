"""resample (linear) beside torch eager and torch.compile, on the rows of performance.md.

Every contender is checked against a float64 NumPy oracle before it is timed. Bytes: each touched
input row once, each output once, stamps and targets once. Floor: bytes over the bandwidth of a
plain copy that is measured in the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from common import Record, Target, number, options, print_table, rows_option, setup
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

STEP = 0.01  # Mean distance of two stamps in seconds.
CHECKED_ROWS = 64  # Of a batch, by the oracle.
EPOCH_NS = 1_760_000_000_000_000_000
STAMPS = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}

CPU_TIMES_EAGER, CPU_TIMES_EAGER_ROWS = 5.0, (0, 1, 2)
CPU_COPY_FRACTION, CPU_AT_SIZE = 0.60, 400e6
GPU_AT_SIZE = 100e6
GPU_COPY_FRACTIONS = ((256, 0.90), (64, 0.80))  # Bytes of a row of values, fraction.
GPU_SMALL_FACTOR, GPU_SMALL_LAUNCH = 1.3, 2e-6


@dataclass(frozen=True)
class Row:
    """One size: batch, samples, targets, width, type of the values."""

    batch: int
    samples: int
    targets: int
    dim: int
    dtype: torch.dtype

    def __str__(self) -> str:
        kind = {torch.bfloat16: "bf16", torch.float32: "f32"}[self.dtype]
        return f"{self.batch},{self.samples},{self.targets},{self.dim} {kind}"


ROWS = [
    Row(32, 500, 256, 256, torch.bfloat16),
    Row(16, 4096, 1024, 32, torch.float32),
    Row(256, 500, 250, 128, torch.bfloat16),
    Row(1024, 1024, 1024, 64, torch.bfloat16),
    Row(1024, 1024, 1024, 64, torch.float32),
    Row(4096, 512, 256, 32, torch.bfloat16),
    Row(256, 4096, 4096, 14, torch.float32),
]


@dataclass(frozen=True)
class Inputs:
    """One set of buffers."""

    values: torch.Tensor
    times: torch.Tensor
    targets: torch.Tensor
    out: torch.Tensor

    @classmethod
    def random(cls, row: Row, stamps: str, rng: np.random.Generator) -> Inputs:
        """Jittered sorted stamps; sorted targets anywhere between the first and the last."""
        jitter = rng.uniform(-0.4, 0.4, (row.batch, row.samples))
        times = (np.arange(row.samples) + jitter) * STEP
        first, last = times[:, :1], times[:, -1:]
        targets = np.sort(first + (last - first) * rng.random((row.batch, row.targets)), axis=1)
        targets = np.clip(targets, first, last)
        if stamps == "int64":
            times, targets = (
                np.rint(x * 1e9).astype(np.int64) + EPOCH_NS for x in (times, targets)
            )
        kind = STAMPS[stamps]
        return cls(
            values=torch.randn(row.batch, row.samples, row.dim).to(row.dtype),
            times=torch.from_numpy(times).to(kind),
            targets=torch.from_numpy(targets).to(kind),
            out=torch.full((row.batch, row.targets, row.dim), torch.nan, dtype=row.dtype),
        )

    def copy_to(self, device: str) -> Inputs:
        """The same numbers in buffers of their own."""
        return Inputs(*(x.clone().to(device) for x in vars(self).values()))

    def bytes(self) -> int:
        return sum(x.nbytes for x in vars(self).values())


class Oracle:
    """Linear interpolation in float64, and the bytes that it cannot avoid."""

    def __init__(self, row: Row, inputs: Inputs) -> None:
        self.row, self.inputs = row, inputs
        times, targets = inputs.times.numpy(), inputs.targets.numpy()
        found = [np.searchsorted(t, x, "right") for t, x in zip(times, targets, strict=True)]
        self.lower = np.clip(np.stack(found), 1, row.samples - 1) - 1
        if times.dtype.kind == "f":
            times, targets = times.astype(np.float64), targets.astype(np.float64)
        start, end = (np.take_along_axis(times, self.lower + i, 1) for i in (0, 1))
        self.weight = (targets - start) / (end - start)
        touched = np.zeros(times.shape, bool)
        for i in (0, 1):
            np.put_along_axis(touched, self.lower + i, True, 1)
        row_bytes = row.dim * inputs.values.itemsize
        self.bytes = {
            "values": int(touched.sum()) * row_bytes,
            "out": inputs.out.nbytes,
            "stamps": inputs.times.nbytes,
            "targets": inputs.targets.nbytes,
        }

    def check(self, name: str, result: torch.Tensor, *, weight_in_dtype: bool) -> float:
        """The largest error; ends the run when it is more than rounding explains.

        Allowed are a few roundings in f32 and the one of the result; peers also round the weight
        to the type of the values.
        """
        kind = torch.finfo(self.row.dtype)
        slack = 4 * torch.finfo(torch.float32).eps + (kind.eps if weight_in_dtype else 0)
        largest = 0.0
        if result.shape != self.inputs.out.shape or result.dtype != self.row.dtype:
            sys.exit(f"lab: {name}: {self.row}: wrong result: {result.dtype} {list(result.shape)}")
        # All of a small batch, some rows of a large one.
        rows = np.random.default_rng().permutation(self.row.batch)[:CHECKED_ROWS]
        for b, got in zip(rows, result[torch.from_numpy(rows)].cpu(), strict=True):
            values = self.inputs.values[b].double().numpy()
            low, high = values[self.lower[b]], values[self.lower[b] + 1]
            expected = low + self.weight[b][:, None] * (high - low)
            error = np.abs(got.double().numpy() - expected)
            allowed = slack * np.maximum(np.abs(low), np.abs(high)) + kind.eps / 2 * np.abs(
                expected
            )
            wrong = np.argwhere(~(error <= allowed))
            if len(wrong):
                t, d = wrong[0]
                sys.exit(
                    f"lab: {name}: {self.row}: wrong result: {len(wrong)} of batch {b}, first at "
                    f"[{b},{t},{d}]: {got[t, d].item()}, expected {expected[t, d]}"
                )
            largest = max(largest, float(error.max()))
        return largest


# --- peers ------------------------------------------------------------------------------------


def around(times: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Which sample is behind each target, and the stamps before and behind it."""
    high = torch.searchsorted(times, targets, right=True).clamp_(1, times.shape[1] - 1)
    return high, times.gather(1, high - 1), times.gather(1, high)


def by_gather(values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The usual words: searchsorted, gather, lerp."""
    high, start, end = around(times, targets)
    weight = blend(targets - start, end - start, values.dtype).unsqueeze(-1)
    low, high = (i.unsqueeze(-1).expand(-1, -1, values.shape[2]) for i in (high - 1, high))
    return torch.lerp(values.gather(1, low), values.gather(1, high), weight)


def by_index_select(
    values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Whole rows of the flattened values, blended in place."""
    batch, samples, dim = values.shape
    high, start, end = around(times, targets)
    weight = blend(targets - start, end - start, values.dtype).view(-1, 1)
    first = torch.arange(0, batch * samples, samples, device=high.device).unsqueeze(1)
    high = (high + first).view(-1)
    rows = values.view(batch * samples, dim)
    upper = rows.index_select(0, high)
    return rows.index_select(0, high - 1).lerp_(upper, weight).view(batch, -1, dim)


def blend(part: torch.Tensor, whole: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weight, divided in f32, in the type of the values as lerp wants it."""
    return (part.float() / whole.float()).to(dtype)


def by_loop(values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One row of the batch after the other, as a first version of a data loader does it."""
    rows = zip(values, times, targets, strict=True)
    return torch.stack([by_gather(v[None], t[None], x[None])[0] for v, t, x in rows])


def by_matrix(values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Interpolation as a batched matrix product with two weights in every row."""
    high = torch.searchsorted(times, targets, right=True).clamp_(1, times.shape[1] - 1)
    start, end = times.gather(1, high - 1), times.gather(1, high)
    weight = blend(targets - start, end - start, values.dtype)
    matrix = values.new_zeros(*targets.shape, times.shape[1])
    matrix.scatter_(2, (high - 1).unsqueeze(2), (1 - weight).unsqueeze(2))
    matrix.scatter_(2, high.unsqueeze(2), weight.unsqueeze(2))
    return torch.bmm(matrix, values)


FORMS = {"gather": by_gather, "index_select": by_index_select}
LOOP_LIMIT = 256  # Rows of a batch that a loop is tried on.
MATRIX_LIMIT = 1 << 28  # Elements of the weights' matrix; larger ones are no sensible peer.

Contenders = dict[str, Callable[[Inputs], torch.Tensor]]


def on_inputs(form: Callable[..., torch.Tensor]) -> Callable[[Inputs], torch.Tensor]:
    return lambda x: form(x.values, x.times, x.targets)


def compiled(inputs: Inputs) -> tuple[Contenders, dict[str, str]]:
    """The forms that torch.compile takes here, compiled and run once; for others, why not."""
    torch.compiler.reset()
    done: Contenders = {}
    failed: dict[str, str] = {}
    # On a GPU the compiler fuses the usual words into one kernel; to try both takes minutes.
    forms = FORMS if inputs.values.device.type == "cpu" else {"gather": by_gather}
    for name, form in forms.items():
        function = on_inputs(torch.compile(form, dynamic=False))
        try:
            function(inputs)
            done[name] = function
        except Exception as error:  # Whatever the compiler stumbles over: the peer is absent.
            failed[name] = type(error).__name__
            print(f"lab: torch.compile does not take the {name} form: {error!r:.200}")
    return done, failed


def form_times(forms: Contenders, inputs: Inputs) -> dict[str, float]:
    """Microseconds of each form, by a short look: only to choose among them."""
    calls = {name: partial(form, inputs) for name, form in forms.items()}
    if inputs.values.device.type == "cuda":
        calls = {name: partial(and_wait, call) for name, call in calls.items()}
    seen = race(calls, 0.3, rounds=2, least=1)
    return {name: spread.median * 1e6 for name, spread in seen.items()}


def and_wait(call: Callable[[], torch.Tensor]) -> None:
    call()
    torch.cuda.synchronize()


def gather_contenders(
    rc: ModuleType, inputs: Inputs, *, compile: bool
) -> tuple[Contenders, dict[str, Any]]:
    """Who takes part: torch eager in the usual words (`eager`) and by whole rows (`eager_rows`),
    and the faster of both compiled."""
    compile_forms, failed = compiled(inputs) if compile else ({}, {})
    contenders: Contenders = {
        "robocache_out": lambda x: rc.resample(x.values, x.times, x.targets, out=x.out),
        "robocache": lambda x: rc.resample(x.values, x.times, x.targets),
        "eager": on_inputs(by_gather),
        "eager_rows": on_inputs(by_index_select),
    }
    notes: dict[str, Any] = {"compile_failed": failed}
    seen = notes["compile_forms_us"] = form_times(compile_forms, inputs)
    if compile_forms:
        contenders["compile"] = compile_forms[min(seen, key=seen.__getitem__)]
    others: Contenders = {}
    if len(inputs.values) <= LOOP_LIMIT:
        others["loop"] = on_inputs(by_loop)
    if inputs.targets.numel() * inputs.times.shape[1] <= MATRIX_LIMIT:
        others["matrix"] = on_inputs(by_matrix)
    notes["other_forms_us"] = form_times(others, inputs)
    return contenders, notes


# --- one row ----------------------------------------------------------------------------------


def measure(rc: ModuleType, index: int, args: argparse.Namespace, copy: Copy) -> dict[str, Any]:
    """Oracle first, then the times, then what they mean."""
    row = ROWS[index]
    source = Inputs.random(row, args.stamps, np.random.default_rng([args.seed, index]))
    oracle = Oracle(row, source)
    inputs = source if args.device == "cpu" else source.copy_to(args.device)
    contenders, notes = gather_contenders(rc, inputs, compile=not args.no_compile)
    errors = {}
    for name, call in contenders.items():
        own, into = name.startswith("robocache"), name.endswith("_out")
        made = call(inputs)
        errors[name] = oracle.check(name, inputs.out if into else made, weight_in_dtype=not own)
    clock = measure_cpu if args.device == "cpu" else measure_gpu
    with neighbours() as others:
        times = clock(contenders, inputs, copy, args.seconds)
    bandwidth = copy.bandwidth(times["graph_cold" if args.device == "cuda" else "call"]["copy"])
    moved = sum(oracle.bytes.values())
    result: dict[str, Any] = {
        "index": index,
        "row": str(row),
        "bytes": oracle.bytes | {"total": moved},
        "floor_us": moved / bandwidth * 1e6,
        "copy_gb_s": bandwidth / 1e9,
        "other_cores": others[0] if others else None,
        "largest_error": errors,
        **notes,
        "times": {
            kind: {name: spread.json() for name, spread in spreads.items()}
            for kind, spreads in times.items()
        },
    }
    judge = judge_cpu if args.device == "cpu" else judge_gpu
    figures, targets = judge(index, moved, bandwidth, times)
    return result | figures | {"targets": targets}


Times = dict[str, dict[str, Spread]]  # Kind of time, then contender.


def measure_cpu(contenders: Contenders, inputs: Inputs, copy: Copy, seconds: float) -> Times:
    calls = {name: partial(call, inputs) for name, call in contenders.items()}
    return {"call": race({"copy": copy.call} | calls, seconds)}


def measure_gpu(contenders: Contenders, inputs: Inputs, copy: Copy, seconds: float) -> Times:
    copies = [inputs.copy_to("cuda") for _ in range(buffer_sets(inputs.bytes()) - 1)]
    hot = {name: [partial(call, inputs)] for name, call in contenders.items()}
    cold = {
        name: [partial(call, x) for x in [inputs, *copies]] for name, call in contenders.items()
    }
    return {
        "graph_hot": {name: graph_time(calls, seconds) for name, calls in hot.items()},
        "graph_cold": {
            name: graph_time(calls, seconds)
            for name, calls in ({"copy": [copy.call]} | cold).items()
        },
        "call": {name: event_time(calls, seconds) for name, calls in hot.items()},
        "host": {name: host_time(calls[0], seconds) for name, calls in hot.items()},
    }


def ratios(spreads: Mapping[str, Spread], own: str) -> dict[str, float | None]:
    """How many times longer the peers take."""
    return {
        f"times_{peer}": spreads[peer].median / spreads[own].median if peer in spreads else None
        for peer in ("eager", "eager_rows", "compile")
    }


def judge_cpu(
    index: int, moved: int, bandwidth: float, times: Times
) -> tuple[dict[str, Any], list[Target]]:
    """The peers allocate, so the ratio is that of the call that allocates too; a copy does not."""
    spreads = times["call"]
    figures: dict[str, Any] = {
        "copy_fraction": moved / spreads["robocache_out"].median / bandwidth,
        **ratios(spreads, "robocache"),
    }
    targets = []
    if index in CPU_TIMES_EAGER_ROWS:
        for peer, words in (("eager", "the usual words"), ("eager_rows", "whole rows")):
            name = f"against torch eager, {words}"
            targets.append(Target(name, figures[f"times_{peer}"], CPU_TIMES_EAGER, True, " x"))
    if moved >= CPU_AT_SIZE:
        value = figures["copy_fraction"]
        targets.append(Target("of a memcpy at size", value, CPU_COPY_FRACTION, True))
    return figures, targets


def judge_gpu(
    index: int, moved: int, bandwidth: float, times: Times
) -> tuple[dict[str, Any], list[Target]]:
    """At size: cold, against the copy. Below: replayed from a graph, against launch + floor.

    The peers allocate, which in a graph gives all calls one output that stays in the L2, so the
    ratios are those of the call that allocates too.
    """
    row = ROWS[index]
    own = "robocache_out"
    figures: dict[str, Any] = {
        "copy_fraction": moved / times["graph_cold"][own].median / bandwidth,
        **ratios(times["graph_cold"], "robocache"),
    }
    targets = []
    if moved >= GPU_AT_SIZE:
        row_bytes = row.dim * row.dtype.itemsize
        for least, fraction in GPU_COPY_FRACTIONS:
            if row_bytes >= least:
                value = figures["copy_fraction"]
                targets.append(Target("of the copy bandwidth", value, fraction, True))
                break
    else:
        bound = GPU_SMALL_FACTOR * (GPU_SMALL_LAUNCH + moved / bandwidth) * 1e6
        value = times["graph_hot"][own].median * 1e6
        targets.append(Target("graph replay", value, bound, False, " us"))
    for kind in ("graph_hot", "graph_cold", "call"):
        if "compile" in times[kind]:
            value = ratios(times[kind], "robocache")["times_compile"] or 0.0
            targets.append(Target(f"against torch.compile, {kind}", value, 1.0, True, " x"))
    return figures, targets


# --- report -----------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]], device: str) -> None:
    """One table, then what was promised."""
    contenders = ["robocache_out", "robocache", "eager", "eager_rows", "compile"]
    kinds = ["call"] if device == "cpu" else ["graph_hot", "graph_cold", "call", "host"]
    for kind in kinds:
        print(f"\n{kind}, median in us" + (" (p10-p90)" if device == "cpu" else ""))
        lines = []
        for row in rows:
            cells = []
            for name in contenders:
                seen = row["times"][kind].get(name)
                text = number(seen and seen["median_us"])
                if seen and device == "cpu":
                    text += f" ({number(seen['p10_us'])}-{number(seen['p90_us'])})"
                cells.append(text)
            lines.append([row["row"], number(row["floor_us"]), *cells])
        print_table(["B,S,T,D", "floor", *contenders], lines)
    print()
    print_table(
        ["B,S,T,D", "MB", "copy GB/s", "of copy", "x eager", "x rows", "x compile", "others in us"],
        [
            [
                row["row"],
                number(row["bytes"]["total"] / 1e6),
                number(row["copy_gb_s"]),
                number(row["copy_fraction"], 2),
                number(row["times_eager"]),
                number(row["times_eager_rows"]),
                number(row["times_compile"]),
                ", ".join(f"{form} {number(us)}" for form, us in row["other_forms_us"].items()),
            ]
            for row in rows
        ],
    )
    print()
    for row in rows:
        for target in row["targets"]:
            print(f"{row['row']:<24}  {target}")


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--stamps", choices=STAMPS, default="float32")
    args = parser.parse_args()
    rc = setup(args)
    record = Record("resample", args)
    copy = cpu_copy(args.threads) if args.device == "cpu" else gpu_copy()
    record.ceilings = {"copy": copy.name, "copy_bytes": copy.bytes_moved}
    rows = []
    for index in args.rows:
        print(f"  {ROWS[index]} ...", flush=True)
        rows.append(measure(rc, index, args, copy))
    report(rows, args.device)
    record.rows = [row | {"targets": [target.json() for target in row["targets"]]} for row in rows]
    record.finish()


if __name__ == "__main__":
    main()
