"""The gradient of resample in its values beside torch eager and torch.compile autograd.

Every contender is checked against a float64 gradient before it is timed. Bytes: the gradient in the
result read once, the gradient in the values written once, stamps and targets once, and of methods that
are not linear the values once. Floor: bytes over the bandwidth of a plain copy that is measured in the
same run. Only the backward pass is timed, of peers with autograd's way to it, which shows in small
rows. What is not linear is checked against the host; curves have no peer. Rows of rotations have the
columns that make whole ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

import resample as forward
from common import Record, Target, number, options, print_table, rows_option, setup
from resample import ROWS, STAMPS, Row
from robocache._torch_arguments import as_method
from timing import Copy, Spread, cpu_copy, event_time, gpu_copy, graph_time, neighbours, race

COPY_FRACTION, AT_SIZE = 0.60, 100e6
CHECKED_ROWS = 16


@dataclass(frozen=True)
class Inputs:
    """One set of buffers."""

    times: torch.Tensor
    targets: torch.Tensor
    grad: torch.Tensor

    def bytes(self) -> int:
        return sum(x.nbytes for x in vars(self).values())


def inputs(row: Row, args: argparse.Namespace, index: int) -> Inputs:
    """As the forward benchmark has them; targets in order unless the options say otherwise."""
    rng = np.random.default_rng([args.seed, index])
    made = forward.Inputs.random(row, args.stamps, rng)
    targets = made.targets
    if args.any_order:
        targets = targets[:, torch.from_numpy(rng.permutation(row.targets))]
    grad = torch.randn(row.batch, row.targets, row.dim).to(row.dtype)
    return Inputs(*(x.to(args.device) for x in (made.times, targets.contiguous(), grad)))


def own(
    x: Inputs, shape: tuple[int, ...], values: torch.Tensor | None = None, method: str = "linear"
) -> torch.Tensor:
    options = as_method("method", method, "resample"), "clamp", True, "resample"
    arguments = x.grad, values, x.times, x.targets, None, None, shape, *options
    return torch.ops.robocache.resample_backward(*arguments)


def through(
    form: Callable[..., torch.Tensor], x: Inputs, values: torch.Tensor
) -> Callable[[], Any]:
    """The backward pass alone of a forward pass in torch's words."""
    out = form(values, x.times, x.targets)
    return lambda: torch.autograd.grad(out, values, x.grad, retain_graph=True)[0]


def neighbours_of(
    values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor, columns: int
) -> tuple[torch.Tensor, ...]:
    """The samples around each target as rotations of so many columns in float32, and the weight of the second."""
    high, start, end = forward.around(times, targets)
    weight = ((targets - start) / (end - start)).float()[..., None, None]
    both = (i.unsqueeze(-1).expand(-1, -1, values.shape[-1]) for i in (high - 1, high))
    first, second = (values.gather(1, i).float().unflatten(-1, (-1, columns)) for i in both)
    return first, second, weight


def slerp_in_torch(
    values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The usual words; samples are normalised once, and what is done to quaternions is done to their weights."""
    unit = torch.nn.functional.normalize(values.float().unflatten(-1, (-1, 4)), dim=-1).flatten(-2)
    first, second, weight = neighbours_of(unit, times, targets, 4)
    product = (first * second).sum(-1, keepdim=True)
    angle = torch.acos(product.abs().clamp(max=1 - 1e-7))
    scale = 1 / torch.sin(angle)
    to = torch.sin(weight * angle) * scale
    to = torch.where(product < 0, -to, to)
    made = torch.sin((1 - weight) * angle) * scale * first + to * second
    return made.flatten(-2).to(values.dtype)


def rot6d_in_torch(
    values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The usual words."""
    first, second, weight = neighbours_of(values, times, targets, 6)
    one, other = torch.lerp(first, second, weight).split(3, dim=-1)
    one = torch.nn.functional.normalize(one, dim=-1)
    rest = other - (one * other).sum(-1, keepdim=True) * one
    made = torch.cat([one, torch.nn.functional.normalize(rest, dim=-1)], dim=-1)
    return made.flatten(-2).to(values.dtype)


PEERS = {"linear": forward.by_gather, "slerp": slerp_in_torch, "rot6d": rot6d_in_torch}
COLUMNS = {"slerp": 4, "rot6d": 6}


def check(name: str, row: Row, x: Inputs, result: torch.Tensor) -> float:
    """The largest error; ends the run when it is more than rounding explains."""
    rows = torch.randperm(row.batch)[:CHECKED_ROWS].to(x.grad.device)
    values = torch.zeros(len(rows), row.samples, row.dim, dtype=torch.float64, device=x.grad.device)
    values.requires_grad_()
    times, targets = x.times[rows], x.targets[rows]
    high, start, end = forward.around(times, targets)
    weight = ((targets - start).double() / (end - start).double()).unsqueeze(-1)
    low, high = (i.unsqueeze(-1).expand(-1, -1, row.dim) for i in (high - 1, high))
    out = torch.lerp(values.gather(1, low), values.gather(1, high), weight)
    (want,) = torch.autograd.grad(out, values, x.grad[rows].double())
    (most,) = torch.autograd.grad(
        torch.lerp(values.gather(1, low), values.gather(1, high), weight),
        values,
        x.grad[rows].double().abs(),
    )
    # Peers round weights, products and every sum to the type of the values.
    mine = name == "robocache"
    slack = 16 * torch.finfo(torch.float32).eps if mine else 64 * torch.finfo(row.dtype).eps
    error = (result[rows].double() - want).abs()
    wrong = ~(error <= slack * (most + 4) + torch.finfo(row.dtype).eps * want.abs())
    if result.shape != (row.batch, row.samples, row.dim) or wrong.any():
        sys.exit(f"lab: {name}: {row}: wrong gradient in {int(wrong.sum())} of {wrong.numel()}")
    return float(error.max())


def check_by_host(
    name: str, row: Row, x: Inputs, values: torch.Tensor, method: str, result: torch.Tensor
) -> float:
    """As `check`, against the engine's own gradient on the host in float64."""
    rows = torch.randperm(row.batch)[:CHECKED_ROWS]
    on_host = Inputs(*(y.cpu()[rows] for y in vars(x).values()))
    exact = Inputs(on_host.times, on_host.targets, on_host.grad.double())
    shape = (len(rows), row.samples, row.dim)
    want = own(exact, shape, values.detach().cpu()[rows].double(), method)
    error = (result.cpu()[rows].double() - want).abs()
    # A slope is a harmonic mean: where two differences cancel, rounding of the values shows. Peers round sums.
    least, roundings = (1e-3, 2) if name == "robocache" else (2e-2, 8)
    slack = least + roundings * torch.finfo(row.dtype).eps * (1 + want.abs())
    wrong = int((~(error <= slack)).sum())
    # Where quaternions nearly agree or disagree, an arc cosine in float32 keeps few digits: peers may lose some there.
    most = 0 if name == "robocache" else error.numel() // 10_000
    if result.shape != (row.batch, row.samples, row.dim) or wrong > most:
        sys.exit(f"lab: {name}: {row}: wrong gradient in {wrong} of {error.numel()}")
    return float(error.max())


def measure(index: int, args: argparse.Namespace, copy: Copy) -> dict[str, Any]:
    row, columns = ROWS[index], COLUMNS.get(args.method, 1)
    row = replace(row, dim=row.dim // columns * columns)
    x = inputs(row, args, index)
    shape = (row.batch, row.samples, row.dim)
    values = torch.randn(shape, device=args.device)
    if args.method == "rot6d":
        # Around one rotation: two columns that are nearly parallel have gradients of any size.
        values = 0.2 * values + torch.eye(3, device=args.device)[:2].flatten().repeat(row.dim // 6)
    values = values.to(row.dtype).requires_grad_()
    reads_values = args.method != "linear"

    def mine(x: Inputs) -> Callable[[], Any]:
        """The call, with values of its own: those of others may still be in a cache."""
        if reads_values:
            return partial(own, x, shape, values.detach().clone(), args.method)
        return partial(own, x, shape)

    calls: dict[str, Callable[[], Any]] = {"robocache": mine(x)}
    if args.method in PEERS:
        peer = PEERS[args.method]
        calls["eager"] = through(peer, x, values)
        if not args.no_compile:
            torch.compiler.reset()
            calls["compile"] = through(torch.compile(peer, dynamic=False), x, values)
    errors = {
        name: check_by_host(name, row, x, values, args.method, call())
        if reads_values
        else check(name, row, x, call())
        for name, call in calls.items()
    }
    moved = x.bytes() + (2 if reads_values else 1) * values.nbytes
    times: dict[str, dict[str, Spread]] = {}
    with neighbours() as others:
        if args.device == "cpu":
            times["call"] = race({"copy": copy.call} | calls, args.seconds)
            seen, clock = times["call"], "call"
        else:
            # Autograd of the peers is not captured: they are timed back to back, and so are we.
            times["call"] = {name: event_time([call], args.seconds) for name, call in calls.items()}
            sets = [x, *(Inputs(*(y.clone() for y in vars(x).values())) for _ in range(3))]
            cold = [mine(each) for each in sets]
            times["graph_cold"] = {
                "copy": graph_time([copy.call], args.seconds),
                "robocache": graph_time(cold, args.seconds),
            }
            seen, clock = times["graph_cold"], "graph_cold"
    bandwidth = copy.bandwidth(seen["copy"])
    fraction = moved / seen["robocache"].median / bandwidth
    targets = []
    if args.device == "cuda" and moved >= AT_SIZE and record_name(args) == "backward":
        targets.append(Target("of the copy bandwidth", fraction, COPY_FRACTION, True))
    median = times["call"]["robocache"].median
    ratios = {
        f"times_{peer}": times["call"][peer].median / median if peer in calls else None
        for peer in ("eager", "compile")
    }
    return {
        "index": index,
        "row": str(row),
        "bytes": moved,
        "floor_us": moved / bandwidth * 1e6,
        "copy_gb_s": bandwidth / 1e9,
        "copy_fraction": fraction,
        "clock": clock,
        **ratios,
        "other_cores": others[0] if others else None,
        "largest_error": errors,
        "times": {
            kind: {name: spread.json() for name, spread in spreads.items()}
            for kind, spreads in times.items()
        },
        "targets": targets,
    }


def record_name(args: argparse.Namespace) -> str:
    method = "" if args.method == "linear" else f"_{args.method}"
    return f"backward{method}{'_any_order' if args.any_order else ''}"


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--any-order", action="store_true", help="targets that are not in order")
    parser.add_argument("--method", choices=["linear", "cubic", *COLUMNS], default="linear")
    parser.add_argument("--stamps", choices=STAMPS, default="float32")
    args = parser.parse_args()
    rc = setup(args)
    rc.resample(torch.zeros(2, 1, requires_grad=True), [0, 1], [0])  # registers the ops
    record = Record(record_name(args), args)
    copy = cpu_copy(args.threads) if args.device == "cpu" else gpu_copy()
    record.ceilings = {"copy": copy.name, "copy_bytes": copy.bytes_moved}
    rows = []
    for index in args.rows:
        print(f"  {ROWS[index]} ...", flush=True)
        rows.append(measure(index, args, copy))
    print(f"\ngradient of resample, {args.method}, median in us")
    print_table(
        ["B,S,T,D", "floor", "own", "own, call", "of copy", "x eager", "x compile"],
        [
            [
                row["row"],
                number(row["floor_us"]),
                number(row["times"][row["clock"]]["robocache"]["median_us"]),
                number(row["times"]["call"]["robocache"]["median_us"]),
                number(row["copy_fraction"], 2),
                number(row["times_eager"]),
                number(row["times_compile"]),
            ]
            for row in rows
        ],
    )
    for row in rows:
        for target in row["targets"]:
            print(f"{row['row']:<24}  {target}")
    record.rows = [row | {"targets": [target.json() for target in row["targets"]]} for row in rows]
    record.finish()


if __name__ == "__main__":
    main()
