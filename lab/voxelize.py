"""Point clouds beside torch eager and torch.compile, on the rows of performance.md.

Every contender is checked against a NumPy oracle before it is timed. Bytes: points and features once,
each result once. Floor: bytes over the bandwidth of a plain copy that is measured in the same run.
A row takes a few seconds at most; its figures are printed, and written to the file of `--json`, as soon
as they are known, and after `--limit` seconds no further row begins.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import torch

from cloud_rows import (
    CAMERA,
    DENSE,
    HIGH,
    IMAGES,
    LOW,
    PLAIN,
    POSE,
    REDUCES,
    ROWS,
    SCALE,
    WIDTH,
    Inputs,
    Oracle,
    Row,
    peer,
)
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

CPU_TIMES_EAGER = 5.0
WAITS = ("sparse", "hard")  # Peers that ask for a number cannot be captured.

Contenders = dict[str, Callable[[Inputs], Any]]


def own_call(rc: ModuleType, row: Row, x: Inputs, rows: int | None, **more: Any) -> Any:
    if row.what in PLAIN:
        return {
            "farthest": lambda: rc.farthest_points(x.points, row.width),
            "transform": lambda: rc.transform_points(x.points, POSE, **more),
            "crop": lambda: rc.crop_box(x.points, LOW, HIGH, **more),
            "unproject": lambda: rc.unproject(x.points, CAMERA, POSE, SCALE, **more),
        }[row.what]()
    if row.what == "depth":
        return rc.voxelize_depth(x.points, CAMERA, POSE, SCALE, **row.grid, **more)
    if row.what == "sparse":
        got = rc.voxelize(
            x.points, x.features, reduce="mean", sparse=True, max_voxels=rows, **row.grid
        )
        return got.coords, got.counts, got.features
    if row.what == "hard":
        hard = {"sparse": True, "max_points_per_voxel": row.width, "max_voxels": rows}
        got = rc.voxelize(x.points, **hard, **row.grid)
        return got.coords, got.counts, got.voxels
    features = [x.features] if row.what in REDUCES else []
    return rc.voxelize(x.points, *features, reduce=row.what, dtype=row.dtype, **row.grid, **more)


def gather_contenders(rc: ModuleType, row: Row, oracle: Oracle, compile: bool) -> Contenders:
    """`robocache_out` makes no result of its own: into `out=`, or as many rows as there are."""
    contenders: Contenders = {"robocache": lambda x: own_call(rc, row, x, None)}
    if row.what in WAITS:
        rows = len(oracle.occupied)
        contenders["robocache_out"] = lambda x: own_call(rc, row, x, rows)
    elif row.what != "farthest":
        contenders["robocache_out"] = lambda x: own_call(rc, row, x, None, out=x.out)
    if row.what == "depth":
        # Not torch, whose cells would differ where it rounds differently: our own two ops, with the cloud between.
        contenders["composed"] = lambda x: rc.voxelize(
            rc.unproject(x.points, CAMERA, POSE, SCALE), out=x.out, **row.grid
        )
        return contenders
    contenders["eager"] = lambda x: peer(row, x.points, x.features)
    if compile and row.compile:
        torch.compiler.reset()
        function = torch.compile(partial(peer, row), dynamic=False)
        contenders["compile"] = lambda x: function(x.points, x.features)
    return contenders


# --- one row ----------------------------------------------------------------------------------

Times = dict[str, dict[str, Spread]]  # Kind of time, then contender.


def measure(rc: ModuleType, index: int, args: argparse.Namespace, copy: Copy) -> dict[str, Any]:
    row = ROWS[index]
    inputs = Inputs.random(row, args.seed + index, args.device)
    oracle = Oracle(row, inputs)
    contenders = gather_contenders(rc, row, oracle, not args.no_compile)
    failed = {}
    for name, call in list(contenders.items()):
        try:
            result = call(inputs)
        except Exception as error:  # Whatever the compiler stumbles over: the peer is absent.
            if name != "compile":
                raise
            failed[name] = type(error).__name__
            print(f"lab: torch.compile does not take it: {error!r:.200}")
            del contenders[name]
            continue
        try:
            oracle.check(name, result)
        except SystemExit as error:  # What it compiles may round cells otherwise: no peer, either.
            if name != "compile":
                raise
            failed[name] = "wrong result"
            print(error)
            del contenders[name]
        del result
    with neighbours() as others:
        if args.device == "cpu":
            calls = {name: partial(call, inputs) for name, call in contenders.items()}
            times: Times = {"call": race({"copy": copy.call} | calls, args.seconds, least=1)}
        else:
            times = measure_gpu(row, contenders, inputs, copy, args.seconds)
    bandwidth = copy.bandwidth(times["graph_cold" if args.device == "cuda" else "call"]["copy"])
    moved = sum(oracle.moved().values())
    figures = {
        "index": index,
        "row": str(row),
        "in_grid": oracle.in_grid,
        "occupied": len(oracle.occupied),
        "bytes": oracle.moved() | {"total": moved},
        "floor_us": moved / bandwidth * 1e6,
        "copy_gb_s": bandwidth / 1e9,
        "other_cores": others[0] if others else None,
        "compile_failed": failed,
        "times": {
            kind: {name: spread.json() for name, spread in spreads.items()}
            for kind, spreads in times.items()
        },
    }
    return figures | {
        "targets": judge(row, args.device, moved / bandwidth, times, inputs.out.nbytes)
    }


def measure_gpu(
    row: Row, contenders: Contenders, inputs: Inputs, copy: Copy, seconds: float
) -> Times:
    """All clocks of all contenders in about `seconds` for each kind of time."""
    copies = [inputs.copy() for _ in range(buffer_sets(inputs.bytes()) - 1)]
    # What waits for a number of the GPU cannot be captured.
    fixed = {
        name: call
        for name, call in contenders.items()
        if row.what not in WAITS or name == "robocache_out"
    }
    if row.what == "farthest":
        fixed = {"robocache": contenders["robocache"]}
    cold = {name: [partial(call, x) for x in [inputs, *copies]] for name, call in fixed.items()}
    each = seconds / (len(contenders) + 1)
    return {
        "graph_hot": {
            name: graph_time([partial(call, inputs)], each) for name, call in fixed.items()
        },
        "graph_cold": {
            name: graph_time(calls, each) for name, calls in ({"copy": [copy.call]} | cold).items()
        },
        "call": {
            name: event_time([partial(call, inputs)], each) for name, call in contenders.items()
        },
        "host": {
            name: host_time(partial(call, inputs), each)
            for name, call in contenders.items()
            if name.startswith("robocache")
        },
    }


def judge(row: Row, device: str, floor: float, times: Times, grid_bytes: int) -> list[Target]:
    """The promises of performance.md; clustered rows are judged beside their uniform row by eye."""
    if row.what == "depth":
        spreads = times["call" if device == "cpu" else "graph_cold"]
        ratio = spreads["composed"].median / spreads["robocache_out"].median
        return [Target("against unproject, then voxelize", ratio, 1.0, True, " x")]
    if device == "cpu":
        spreads = times["call"]
        # With `out` nobody waits for the system to clear fresh pages, which large grids spend most on.
        names = {"robocache": "against torch eager", "robocache_out": "with out="}
        return [
            Target(
                text, spreads["eager"].median / spreads[name].median, CPU_TIMES_EAGER, True, " x"
            )
            for name, text in names.items()
            if name in spreads
        ]
    own = "robocache" if row.what == "farthest" else "robocache_out"
    hot, cold = times["graph_hot"][own].median * 1e6, times["graph_cold"][own].median * 1e6
    targets = []
    if row.points == 10**7:
        bound = 100.0 if row.what == "occupancy" else 130.0
        bound *= 1.0 if row.cloud == "uniform" else 1.5
        targets.append(Target("10M points", hot, bound, False, " us"))
    elif row.what in ("occupancy", "count") and grid_bytes >= 50e6:
        targets.append(Target("of the floor", cold / (floor * 1e6), 1.3, False, " x"))
    elif row.what in ("occupancy", "count"):
        targets.append(Target("graph replay", hot, 2 * (3 + floor * 1e6), False, " us"))
    elif row.what in DENSE:
        targets.append(Target("of the copy bandwidth", floor * 1e6 / cold, 0.7, True))
    elif row.what in ("sparse", "hard", "farthest"):
        bounds = {"sparse": 150.0, "hard": 100.0, "farthest": 3000.0}
        targets.append(Target("graph replay", hot, bounds[row.what], False, " us"))
    if "compile" in times["graph_cold"]:
        ratio = times["graph_cold"]["compile"].median * 1e6 / cold
        targets.append(Target("against torch.compile, graph_cold", ratio, 1.0, True, " x"))
    return targets


# --- report -----------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]]) -> None:
    contenders = ["robocache_out", "robocache", "eager", "compile", "composed"]
    for kind in rows[0]["times"]:
        print(f"\n{kind}, median in us")
        lines = []
        for row in rows:
            seen = [row["times"][kind].get(name) for name in contenders]
            cells = [number(x and x["median_us"]) for x in seen]
            lines.append([row["row"], f"{row['in_grid']:.1%}", number(row["floor_us"]), *cells])
        print_table(["row", "in grid", "floor", *contenders], lines)
    print()
    for row in rows:
        for target in row["targets"]:
            print(f"{row['row']:<44}  {target}")


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--scale", type=float, default=1.0, help="of the points, for a quick look")
    parser.add_argument(
        "--limit", type=float, help="seconds after which no row begins; 110 with a GPU, else none"
    )
    parser.set_defaults(seconds=0.4)
    started = time.monotonic()
    args = parser.parse_args()
    if args.limit is None and args.device == "cuda":
        args.limit = 110.0
    rc = setup(args)
    record = Record("voxelize", args)
    copy = cpu_copy(args.threads) if args.device == "cpu" else gpu_copy()
    record.ceilings = {"copy": copy.name, "copy_bytes": copy.bytes_moved}
    if args.scale != 1.0:
        ROWS[:] = [scaled(row, args.scale) for row in ROWS]
    rows: list[dict[str, Any]] = []
    for index in args.rows:
        if args.limit and time.monotonic() - started > args.limit:
            print(f"lab: past --limit {args.limit:g}, left out: {ROWS[index]}", flush=True)
            continue
        rows.append(measure(rc, index, args, copy))
        seconds = time.monotonic() - started
        targets = "; ".join(str(target) for target in rows[-1]["targets"])
        print(f"  {seconds:5.0f} s  {index:2} {ROWS[index]}  {targets}", flush=True)
        record.rows.append(rows[-1] | {"targets": [x.json() for x in rows[-1]["targets"]]})
        record.flush()
    if args.record and len(rows) < len(args.rows):
        print("lab: rows were left out")
        args.record = False
    if rows:
        report(rows)
    record.finish()


def scaled(row: Row, scale: float) -> Row:
    """With so many times the points; images keep whole lines."""
    unit = WIDTH if row.what in IMAGES else 1
    points = max(1, int(row.points * scale) // unit) * unit
    return replace(row, points=points, width=min(row.width, points))


if __name__ == "__main__":
    main()
