"""Random shapes beside torch: how a call does on shapes that nobody tuned it for.

Shapes are drawn log-uniformly from a seed; calls move 1 MiB to 2 GiB (`--most`). Every contender is
checked against a float64 reference before it is timed. On a GPU ours and torch.compile are replayed
from CUDA graphs; on a CPU ours races the faster of torch eager's two forms with the same threads. Where
we are slower both are timed three times, and the medians count: peers move by 15 % between runs.

`--part I/N` measures every N-th shape from the I-th on. `--merge FILE...` makes one record of parts.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import cloud_rows
from common import RESULTS, Record, Target, number, options, part_of, print_table, setup, slug
from fuse import by_torch
from resample import FORMS, around
from timing import graph_time, neighbours, race

CHECKED_ROWS = 64
MISSED = 1e-4  # Cells that a peer may get wrong, for each number of the points.
LEAST, MOST = 1 << 20, {"cuda": 2 << 30, "cpu": 256 << 20}
DTYPES = [torch.float32, torch.float32, torch.bfloat16, torch.float16]
KINDS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
RETRIES = 3
COMPILERS = 8  # Processes that compile ahead, each with a part of the shapes.
# Geometric mean, 5th percentile, part that is slower (performance.md); CPU: geometric mean.
TARGETS = {
    "resample": (1.2, 0.85, 0.06),
    "fuse": (1.5, 0.9, 0.04),
    "backward": (1.5, 0.85, 0.10),
    "voxelize": (2.2, 0.8, 0.08),
}
CPU_MEAN = {"resample": 3.0, "fuse": 3.0}

Call = Callable[[], Any]


@dataclass(frozen=True)
class Shape:
    """One call: what is drawn."""

    batch: int
    targets: int
    streams: tuple[tuple[int, int], ...]  # samples, width
    dtype: torch.dtype

    def __str__(self) -> str:
        streams = " + ".join(f"{samples}x{width}" for samples, width in self.streams)
        return f"{self.batch} x ({streams} -> {self.targets}) {KINDS[self.dtype]}"

    @property
    def width(self) -> int:
        return sum(width for _, width in self.streams)

    def bytes(self) -> int:
        """Each touched row once, each output once, stamps and targets once."""
        rows = sum(min(samples, 2 * self.targets) * width for samples, width in self.streams)
        stamps = 4 * (self.targets + sum(samples for samples, _ in self.streams))
        return self.batch * ((rows + self.targets * self.width) * self.dtype.itemsize + stamps)


def log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw_stream(rng: np.random.Generator) -> Shape:
    batch, samples = log_uniform(rng, 8, 8192), log_uniform(rng, 8, 2000)
    targets, width = log_uniform(rng, 8, 1000), log_uniform(rng, 3, 128)
    return Shape(batch, targets, ((samples, width),), DTYPES[rng.integers(4)])


def draw_streams(rng: np.random.Generator) -> Shape:
    batch, targets = log_uniform(rng, 16, 4096), log_uniform(rng, 8, 300)
    count = int(rng.integers(2, 5))
    streams = tuple((log_uniform(rng, 10, 600), log_uniform(rng, 3, 200)) for _ in range(count))
    return Shape(batch, targets, streams, DTYPES[rng.integers(4)])


def draw_cloud(rng: np.random.Generator) -> cloud_rows.Row:
    what = ("occupancy", "count", "mean", "max")[rng.integers(4)]
    batch, points = log_uniform(rng, 1, 64), log_uniform(rng, 500, 300_000)
    dtype = {"occupancy": torch.uint8, "count": torch.int32}.get(what, torch.float32)
    width = log_uniform(rng, 1, 32) if what in cloud_rows.REDUCES else 0
    return cloud_rows.Row(what, batch, points, log_uniform(rng, 16, 200), dtype=dtype, width=width)


def bytes_of(shape: Shape | cloud_rows.Row) -> int:
    if isinstance(shape, Shape):
        return shape.bytes()
    features = shape.batch * shape.points * (12 + 4 * shape.width)
    return features + math.prod(shape.out_shape) * shape.dtype.itemsize


def shapes(op: str, seed: int, count: int, most: int) -> list[Any]:
    """The first so many that move a sensible number of bytes."""
    rng = np.random.default_rng([seed, *op.encode()])
    draw = {"fuse": draw_streams, "voxelize": draw_cloud}.get(op, draw_stream)
    found: list[Any] = []
    while len(found) < count:
        shape = draw(rng)
        if LEAST <= bytes_of(shape) <= most:
            found.append(shape)
    return found


# --- contenders ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Calls on the same inputs, and what says whether a result is right."""

    ours: Call
    unchecked: Call
    peers: dict[str, Callable[..., Any]]
    arguments: tuple[Any, ...]
    check: Callable[[Any], bool]
    # What is enough for a peer.
    about: Callable[[Any], bool]


def inputs(shape: Shape, device: str, seed: int) -> tuple[Any, ...]:
    """Jittered stamps in order over one second; targets in order inside of them."""
    generator = torch.Generator(device).manual_seed(seed)
    here: dict[str, Any] = {"device": device, "generator": generator}
    values, times = [], []
    for samples, width in shape.streams:
        values.append(torch.randn(shape.batch, samples, width, **here).to(shape.dtype))
        jitter = torch.rand(shape.batch, samples, **here) * 0.8
        times.append((torch.arange(samples, device=device) + jitter) / samples)
    low = torch.stack([t[:, 0] for t in times]).amax(0)[:, None]
    high = torch.stack([t[:, -1] for t in times]).amin(0)[:, None]
    part = torch.rand(shape.batch, shape.targets, **here).sort(dim=1).values
    return tuple(values), tuple(times), low + (high - low) * part


def reference(values: torch.Tensor, times: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """In float64; the weight of float32 stamps is exact there."""
    high, start, end = around(times, targets)
    weight = ((targets.double() - start.double()) / (end.double() - start.double())).unsqueeze(-1)
    low, high = (i.unsqueeze(-1).expand(-1, -1, values.shape[2]) for i in (high - 1, high))
    return torch.lerp(values.double().gather(1, low), values.double().gather(1, high), weight)


def is_close(got: torch.Tensor, want: torch.Tensor, scale: torch.Tensor | float) -> bool:
    """Within what float32 stamps and sums, and the type of the result, explain."""
    # A peer's weight has the type of the values.
    slack = 4e-4 + 4 * torch.finfo(got.dtype).eps
    return got.shape == want.shape and bool(
        ((got.double() - want).abs() <= slack * (4 + scale)).all()
    )


def aligned(rc: ModuleType, shape: Shape, device: str, seed: int) -> Contest:
    """`resample` of one stream, or `fuse` of several."""
    values, times, targets = inputs(shape, device, seed)
    rows = torch.randperm(shape.batch)[:CHECKED_ROWS].to(device)
    want = torch.cat(
        [reference(v[rows], t[rows], targets[rows]) for v, t in zip(values, times, strict=True)],
        dim=-1,
    )

    def ours(**more: Any) -> Any:
        if len(values) == 1:
            return rc.resample(values[0], times[0], targets, **more)
        return rc.fuse(
            [rc.Stream(v, t) for v, t in zip(values, times, strict=True)], targets, **more
        )

    def by_rows(v: Any, t: Any, x: Any) -> Any:
        return torch.cat(
            [FORMS["index_select"](a, b, x) for a, b in zip(v, t, strict=True)], dim=-1
        )

    return Contest(
        ours,
        partial(ours, check=False),
        {"gather": by_torch, "index_select": by_rows},
        (values, times, targets),
        *2 * [lambda got: is_close(got[rows], want, want.abs())],
    )


def gradient(rc: ModuleType, shape: Shape, device: str, seed: int) -> Contest:
    """Forward and the gradient in the values."""
    (values,), (times,), targets = inputs(shape, device, seed)
    values.requires_grad_()
    grad = torch.randn(shape.batch, shape.targets, shape.width, device=device).to(shape.dtype)
    rows = torch.randperm(shape.batch)[:CHECKED_ROWS].to(device)
    exact = values[rows].detach().double().requires_grad_()
    made = reference(exact, times[rows], targets[rows])
    (want,) = torch.autograd.grad(made, exact, grad[rows].double(), retain_graph=True)
    (scale,) = torch.autograd.grad(made, exact, grad[rows].double().abs())

    def through(form: Callable[..., Any], v: Any, t: Any, x: Any, **more: Any) -> Any:
        out = form(v, t, x, **more)
        return out, torch.autograd.grad(out, v, grad)[0]

    return Contest(
        partial(through, rc.resample, values, times, targets),
        partial(through, rc.resample, values, times, targets, check=False),
        {name: partial(through, form) for name, form in FORMS.items()},
        (values, times, targets),
        *2
        * [lambda got: is_close(got[0][rows], made, 4) and is_close(got[1][rows], want, 8 * scale)],
    )


def cloud(rc: ModuleType, row: cloud_rows.Row, device: str, seed: int) -> Contest:
    made = cloud_rows.Inputs.random(row, seed, device)
    oracle = cloud_rows.Oracle(row, made)
    features = [made.features] if row.what in cloud_rows.REDUCES else []
    ours = partial(
        rc.voxelize, made.points, *features, reduce=row.what, dtype=row.dtype, **row.grid
    )

    def check(got: Any) -> bool:
        oracle.check("ours", got)
        return True

    def about(got: Any) -> bool:
        """Triton's division is not exact: of millions of points some fall into the cell beside theirs."""
        differ = (got.reshape(want.shape) - want).abs() > 1e-4 * (1 + want.abs())
        return int(differ.sum()) <= MISSED * made.points.numel()

    want = ours().float()
    peer = partial(cloud_rows.peer, row)
    return Contest(ours, ours, {"words": peer}, (made.points, made.features), check, about)


CONTESTS: dict[str, Callable[..., Contest]] = {
    "resample": aligned,
    "fuse": aligned,
    "backward": gradient,
    "voxelize": cloud,
}


def compiled(contest: Contest) -> Call:
    """The usual words through torch.compile, for this shape alone."""
    torch.compiler.reset()
    form = next(iter(contest.peers.values()))
    if isinstance(form, partial) and len(form.args) == 1 and callable(form.args[0]):
        # Autograd itself is not compiled: what it runs is.
        form = partial(form.func, torch.compile(form.args[0], dynamic=False))
    else:
        form = torch.compile(form, dynamic=False)
    return partial(form, *contest.arguments)


# --- one shape ----------------------------------------------------------------------------------


def measure(rc: ModuleType, args: argparse.Namespace, index: int, shape: Any) -> dict[str, Any]:
    contest = CONTESTS[args.op](rc, shape, args.device, args.seed + index)
    calls: dict[str, Call] = {"ours": contest.ours}
    if args.device == "cuda":
        if contest.unchecked is not contest.ours:
            calls["unchecked"] = contest.unchecked
        calls["compile"] = compiled(contest)
    else:
        peers = contest.peers.items()
        calls |= {name: partial(form, *contest.arguments) for name, form in peers}
    row: dict[str, Any] = {"index": index, "row": str(shape), "bytes": bytes_of(shape)}
    for name, call in calls.items():
        own = name in ("ours", "unchecked")
        if not (contest.check if own else contest.about)(call()):
            if own:
                sys.exit(f"lab: {name}: {shape}: wrong result")
            return row | {"wrong": name}
    with neighbours() as others:
        seen = [times_of(calls, args)]
        while slower(seen) and len(seen) < RETRIES:
            seen.append(times_of(calls, args))
    median = {name: statistics.median(each[name] for each in seen) for name in calls}
    return row | {
        "us": {name: seconds * 1e6 for name, seconds in median.items()},
        "speedup": best_peer(median) / median["ours"],
        "timed": len(seen),
        "other_cores": others[0] if others else None,
    }


def times_of(calls: dict[str, Call], args: argparse.Namespace) -> dict[str, float]:
    if args.device == "cpu":
        return {name: spread.median for name, spread in race(calls, args.seconds).items()}
    return {name: graph_time([call], args.seconds).median for name, call in calls.items()}


def best_peer(times: dict[str, float]) -> float:
    return min(seconds for name, seconds in times.items() if name not in ("ours", "unchecked"))


def slower(seen: list[dict[str, float]]) -> bool:
    return statistics.median(best_peer(each) / each["ours"] for each in seen) < 1


def compile_ahead(args: argparse.Namespace) -> None:
    """torch.compile keeps what it makes on disk: several processes make it at once, seconds a shape."""
    own = [f"--op={args.op}", f"--seed={args.seed}", f"--shapes={args.shapes}", "--device=cuda"]
    own += [f"--most={args.most}", "--part={}/{}".format(*args.part)]
    command = [sys.executable, sys.argv[0], *own, "--compile-only"]
    started = [subprocess.Popen([*command, f"{i}/{COMPILERS}"]) for i in range(1, COMPILERS + 1)]
    for process in started:
        process.wait()


def compile_only(rc: ModuleType, args: argparse.Namespace, chosen: list[tuple[int, Any]]) -> None:
    first, step = args.compile_only
    for index, shape in chosen[first - 1 :: step]:
        compiled(CONTESTS[args.op](rc, shape, args.device, args.seed + index))()


# --- the result ---------------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = [row["speedup"] for row in rows if "speedup" in row]
    free = [
        best_peer(row["us"]) / row["us"]["unchecked"]
        for row in rows
        if "unchecked" in row.get("us", {})
    ]
    return {
        "shapes": len(found),
        "no_peer": len(rows) - len(found),
        "geometric_mean": statistics.geometric_mean(found),
        "geometric_mean_unchecked": statistics.geometric_mean(free) if free else None,
        "median": statistics.median(found),
        "p5": float(np.percentile(found, 5)),
        "slower": sum(speedup < 1 for speedup in found),
    }


def judge(args: argparse.Namespace, seen: dict[str, Any]) -> list[Target]:
    if args.device == "cpu":
        least = CPU_MEAN.get(args.op)
        return (
            [Target("geometric mean", seen["geometric_mean"], least, True, " x")] if least else []
        )
    mean, low, part = TARGETS[args.op]
    return [
        Target("geometric mean", seen["geometric_mean"], mean, True, " x"),
        Target("5th percentile", seen["p5"], low, True, " x"),
        Target("part that is slower", seen["slower"] / seen["shapes"], part, False),
    ]


def picture(op: str, rows: list[dict[str, Any]]) -> str:
    """Speed-up against bytes, both logarithmic, a dot for each shape."""
    dots = [
        (math.log2(row["bytes"]), math.log2(row["speedup"]), row) for row in rows if "us" in row
    ]
    low = min(-2, math.floor(min(y for _, y, _ in dots)))
    high = max(2, math.ceil(max(y for _, y, _ in dots)))

    def place(x: float, y: float) -> tuple[float, float]:
        return 60 + (x - 20) / 11 * 560, 20 + (high - y) / (high - low) * 300

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">',
        '<rect width="640" height="360" fill="white"/>',
    ]
    for y in range(low, high + 1):
        top = place(20, y)[1]
        color = "#222" if y == 0 else "#ddd"
        lines.append(f'<path d="M60 {top:.1f}H620" stroke="{color}"/>')
        lines.append(f'<text x="54" y="{top + 4:.1f}" text-anchor="end">{2.0**y:g}</text>')
    for x, text in ((20, "1 MiB"), (24, "16 MiB"), (28, "256 MiB"), (31, "2 GiB")):
        lines.append(f'<text x="{place(x, 0)[0]:.1f}" y="338" text-anchor="middle">{text}</text>')
    for x, y, row in dots:
        left, top = place(x, y)
        color = "#c33" if y < 0 else "#276"
        title = f"{row['row']}: {row['speedup']:.2f}"
        lines.append(
            f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{color}" fill-opacity="0.7"><title>{title}</title></circle>'
        )
    lines.append(f'<text x="340" y="356" text-anchor="middle">{op}: bytes moved</text>')
    lines.append(
        '<text x="14" y="170" transform="rotate(-90 14 170)" text-anchor="middle">times as fast</text></svg>'
    )
    return "\n".join(lines) + "\n"


def report(args: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    seen = summary(rows)
    headers = ["shape", "MiB", *rows[0]["us"], "speed-up"] if "us" in rows[0] else ["shape", "MiB"]
    worst = sorted((row for row in rows if "us" in row), key=lambda row: row["speedup"])[:5]
    print(f"\n{args.op}: the five worst of {len(rows)} shapes, us")
    print_table(
        headers,
        [
            [
                row["row"],
                number(row["bytes"] / 2**20),
                *(number(us) for us in row["us"].values()),
                number(row["speedup"]),
            ]
            for row in worst
        ],
    )
    print(", ".join(f"{key} {value:.3g}" for key, value in seen.items() if value is not None))
    for target in judge(args, seen):
        print(f"  {target}")
    return seen


def merged(args: argparse.Namespace) -> Record:
    """One record of parts, which must be of one sweep of one commit."""
    parts = [json.loads(file.read_text()) for file in args.merge]
    same = ("benchmark", "machine", "versions", "git")
    first = parts[0]
    for part in parts[1:]:
        different = [key for key in same if part[key] != first[key]]
        different += [
            key
            for key in ("op", "seed", "shapes", "device", "most")
            if part["options"][key] != first["options"][key]
        ]
        if different:
            sys.exit(f"lab: parts differ in {', '.join(different)}")
    for key in ("op", "seed", "shapes", "device", "most", "threads", "seconds"):
        setattr(args, key, first["options"][key])
    args.merge = [file.name for file in args.merge]
    record = Record(f"sweep-{args.op}", args)
    record.machine, record.versions = first["machine"], first["versions"]
    record.date, record.git = first["date"], first["git"]
    gpu = first["machine"]["gpu"]
    record.name = gpu["name"] if gpu and args.device == "cuda" else first["machine"]["cpu"]
    rows = {row["index"]: row for part in parts for row in part["rows"]}
    record.rows = [rows[index] for index in sorted(rows)]
    missing = args.shapes - len(rows)
    if missing:
        print(f"lab: {missing} of {args.shapes} shapes are in none of the parts")
    return record


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.set_defaults(seconds=0.03)
    parser.add_argument("--op", choices=[*CONTESTS], default="resample")
    parser.add_argument("--shapes", type=int, default=40, metavar="K")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="I/N")
    parser.add_argument("--most", type=int, metavar="BYTES", help="that a call moves")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="FILE", help="parts, as --json wrote them"
    )
    parser.add_argument("--compile-only", type=part_of, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.merge:
        finish(args, merged(args))
        return
    rc = setup(args)
    args.most = args.most or MOST[args.device]
    chosen = [*enumerate(shapes(args.op, args.seed, args.shapes, args.most))]
    chosen = chosen[args.part[0] - 1 :: args.part[1]]
    if args.compile_only:
        compile_only(rc, args, chosen)
        return
    if args.device == "cuda":
        compile_ahead(args)
    record = Record(f"sweep-{args.op}", args)
    for index, shape in chosen:
        row = measure(rc, args, index, shape)
        record.rows.append(row)
        figure = f"{row['speedup']:.2f} x" if "speedup" in row else f"{row['wrong']} is wrong"
        print(f"  {index:3} {shape}: {figure}", flush=True)
        record.flush()
    finish(args, record)


def finish(args: argparse.Namespace, record: Record) -> None:
    seen = report(args, record.rows)
    record.ceilings = {"summary": seen, "targets": [target.json() for target in judge(args, seen)]}
    record.finish()
    if args.record:
        cores = "" if args.device == "cuda" else f"-{record.machine['cores']}-cores"
        file = RESULTS / f"sweep-{args.op}-{slug(record.name)}{cores}.svg"
        file.write_text(picture(args.op, record.rows))
        print(f"written: {file}")


if __name__ == "__main__":
    main()
