"""Point clouds beside torch eager and torch.compile, on the rows of performance.md.

Every contender is checked against a NumPy oracle before it is timed. Bytes: points and features once,
each result once. Floor: bytes over the bandwidth of a plain copy that is measured in the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
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

SIDE = 2.0  # Edge of the grid in metres.
KINDS = {torch.uint8: "u8", torch.int32: "i32", torch.float32: "f32", torch.bfloat16: "bf16"}
CPU_TIMES_EAGER = 5.0


@dataclass(frozen=True)
class Row:
    """One size: what is computed of a batch of clouds, in a cube of `cells` along each edge."""

    what: str  # occupancy, count, mean, max, sparse, hard, farthest
    batch: int
    points: int
    cells: int
    cloud: str = "uniform"  # clustered, one voxel
    dtype: torch.dtype = torch.uint8
    width: int = 0  # Features of a point; points of a hard voxel; points that are taken.

    def __str__(self) -> str:
        size = f"{self.batch}x{self.points}"
        if self.what == "farthest":
            return f"farthest {size} -> {self.width}"
        wide = f" F={self.width}" if self.what in ("mean", "max", "sparse") else ""
        cloud = "" if self.cloud == "uniform" else f", {self.cloud}"
        return f"{self.what} {size}, {self.cells}^3{wide} {KINDS[self.dtype]}{cloud}"

    @property
    def grid(self) -> dict[str, Any]:
        size = SIDE / self.cells
        return {"origin": (0.0, 0.0, 0.0), "voxel_size": size, "shape": (self.cells,) * 3}


OCCUPANCY = [(1, 500_000, 128), (8, 4096, 64), (32, 16384, 128), (16, 65536, 256), (1, 10**7, 128)]
ROWS = [
    *(
        Row("occupancy", *size, dtype=dtype)
        for size in OCCUPANCY
        for dtype in (torch.uint8, torch.float32)
    ),
    *(Row("occupancy", *OCCUPANCY[-1], cloud=cloud) for cloud in ("clustered", "one voxel")),
    *(
        Row("count", *OCCUPANCY[i], cloud=cloud, dtype=torch.int32)
        for i in (0, 4)
        for cloud in ("uniform", "clustered", "one voxel")
    ),
    *(
        Row(what, 1, 10**6, 200, dtype=torch.float32, width=16)
        for what in ("mean", "max", "sparse")
    ),
    Row("hard", 1, 250_000, 400, dtype=torch.float32, width=8),
    Row("farthest", 16, 16384, 1, dtype=torch.float32, width=1024),
]


@dataclass(frozen=True)
class Inputs:
    """One set of buffers; those that a row does not need are empty."""

    points: torch.Tensor
    features: torch.Tensor
    out: torch.Tensor

    @classmethod
    def random(cls, row: Row, rng: np.random.Generator) -> Inputs:
        shape = (row.batch, row.points, 3)
        if row.cloud == "uniform":
            points = rng.uniform(0, SIDE, shape)
        elif row.cloud == "clustered":  # as a LiDAR sees: a thousand dense spots
            spots = rng.uniform(0.1, SIDE - 0.1, (1000, 3))
            points = spots[rng.integers(0, 1000, shape[:2])] + rng.normal(0, 0.01, shape)
        else:
            points = np.full(shape, SIDE / 3)
        reduces = row.what in ("mean", "max", "sparse")
        features = rng.standard_normal((*shape[:2], row.width), np.float32) if reduces else ()
        wide = (row.width,) if reduces else ()
        dense = row.what not in ("sparse", "hard", "farthest")
        size = (row.batch, *row.grid["shape"], *wide) if dense else (0,)
        return cls(
            points=torch.from_numpy(points.astype(np.float32)),
            features=torch.as_tensor(np.asarray(features, np.float32)),
            out=torch.zeros(size, dtype=row.dtype),
        )

    def copy_to(self, device: str) -> Inputs:
        return Inputs(*(x.clone().to(device) for x in vars(self).values()))

    def bytes(self) -> int:
        return sum(x.nbytes for x in vars(self).values())


class Oracle:
    """The cells by NumPy, in the float32 of the contract; results in float64."""

    def __init__(self, row: Row, inputs: Inputs) -> None:
        self.row, self.inputs = row, inputs
        grid = row.grid
        places = np.floor(inputs.points.numpy() / np.float32(grid["voxel_size"]))
        inside = ((places >= 0) & (places < row.cells)).all(axis=-1)
        self.in_grid = float(inside.mean())
        cells = places.astype(np.int64)
        flat = (cells[..., 0] * row.cells + cells[..., 1]) * row.cells + cells[..., 2]
        flat += np.arange(row.batch)[:, None] * row.cells**3
        self.flat = np.where(inside, flat, row.batch * row.cells**3).reshape(-1)
        self.occupied, self.counts = np.unique(self.flat[inside.reshape(-1)], return_counts=True)
        if row.what == "farthest":
            self.in_grid = 1.0

    def reduced(self, how: str) -> np.ndarray:
        """`[M, F]` in float64, in the order of the occupied cells."""
        order = np.argsort(self.flat, kind="stable")[: int(self.counts.sum())]
        values = self.inputs.features.numpy().reshape(-1, self.row.width)[order].astype(np.float64)
        starts = np.cumsum(self.counts) - self.counts
        if how == "max":
            return np.maximum.reduceat(values, starts)
        return np.add.reduceat(values, starts) / self.counts[:, None]

    def moved(self) -> dict[str, int]:
        """Bytes that cannot be avoided."""
        row, inputs = self.row, self.inputs
        results = {
            "sparse": len(self.occupied) * (32 + 4 + 4 * row.width) + row.batch * row.points * 8,
            "hard": len(self.occupied) * (32 + 4 + 4 * 3 * row.width) + row.batch * row.points * 8,
            "farthest": row.batch * row.width * 8,
        }
        out = results.get(row.what, inputs.out.nbytes)
        return {"points": inputs.points.nbytes, "features": inputs.features.nbytes, "out": out}

    def check(self, name: str, result: Any) -> None:
        """Ends the run when a result is wrong."""
        row = self.row
        if row.what == "farthest":
            good = self._check_farthest(result)
        elif row.what in ("sparse", "hard"):
            coords, counts, values = result
            weight = np.array([row.cells**3, row.cells**2, row.cells, 1])
            good = bool((coords.cpu().numpy() @ weight == self.occupied).all())
            good &= bool((counts.cpu().numpy() == self.counts).all())
            values = values.cpu().numpy()
            if row.what == "sparse":
                good &= bool(np.allclose(values, self.reduced("mean"), rtol=1e-5, atol=1e-6))
            else:
                first = np.unique(self.flat, return_index=True)[1][: len(self.occupied)]
                points = self.inputs.points.numpy().reshape(-1, 3)
                good &= bool((values[:, 0] == points[first]).all())
        else:
            grid = result.cpu().numpy().reshape(row.batch * row.cells**3, -1)
            if row.what in ("occupancy", "count"):
                want = np.zeros(len(grid), np.float64)
                want[self.occupied] = 1 if row.what == "occupancy" else self.counts
                good = bool((grid[:, 0] == want).all())
            else:
                near = np.allclose(
                    grid[self.occupied], self.reduced(row.what), rtol=1e-5, atol=1e-6
                )
                grid[self.occupied] = 0
                good = bool(near) and not grid.any()
        if not good:
            sys.exit(f"lab: {name}: {row}: wrong result")

    def _check_farthest(self, result: torch.Tensor) -> bool:
        """The first few steps of the first cloud; the rest must be different points."""
        points = self.inputs.points[0].numpy()
        nearest, at, index = np.full(len(points), np.inf, np.float32), 0, result[0].cpu().numpy()
        for step in range(min(20, len(index))):
            if index[step] != at:
                return False
            d = points - points[at]
            nearest = np.minimum(
                nearest, (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
            )
            at = int(nearest.argmax())
        return len(np.unique(index)) == len(index)


# --- peers ------------------------------------------------------------------------------------


def cells_of(row: Row, points: torch.Tensor) -> torch.Tensor:
    """`[B*N]` cells numbered through the batch; one past the last for points outside."""
    cells = torch.floor(points / row.grid["voxel_size"]).long()
    inside = ((cells >= 0) & (cells < row.cells)).all(-1)
    flat = (cells[..., 0] * row.cells + cells[..., 1]) * row.cells + cells[..., 2]
    flat = flat + torch.arange(row.batch, device=points.device)[:, None] * row.cells**3
    return torch.where(inside, flat, row.batch * row.cells**3).view(-1)


def peer(row: Row, points: torch.Tensor, features: torch.Tensor) -> Any:
    """The usual words of torch."""
    shape, total = (row.batch, *row.grid["shape"]), row.batch * row.cells**3
    if row.what == "farthest":
        return farthest_peer(points, row.width)
    flat = cells_of(row, points)
    if row.what == "occupancy":
        return points.new_zeros(total + 1, dtype=row.dtype).scatter_(0, flat, 1)[:-1].view(shape)
    ones = torch.ones_like(flat, dtype=torch.int32)
    if row.what == "count":
        return ones.new_zeros(total + 1).scatter_add_(0, flat, ones)[:-1].view(shape)
    if row.what in ("sparse", "hard"):
        return sparse_peer(row, flat, points.view(-1, 3), features)
    values = features.view(-1, row.width)
    index = flat[:, None].expand(-1, row.width)
    if row.what == "max":
        grid = values.new_zeros(total + 1, row.width)
        grid = grid.scatter_reduce_(0, index, values, "amax", include_self=False)
    else:
        grid = values.new_zeros(total + 1, row.width).index_add_(0, flat, values)
        counts = ones.new_zeros(total + 1).scatter_add_(0, flat, ones)
        grid = grid / counts.clamp(min=1)[:, None]
    return grid[:-1].view(*shape, row.width)


def sparse_peer(row: Row, flat: torch.Tensor, points: torch.Tensor, features: torch.Tensor) -> Any:
    """torch.unique, then sums, or the first points of each cell by a stable sort."""
    if row.what == "hard":
        flat, order = torch.sort(flat, stable=True)
        points = points[order]
    keys, inverse, counts = torch.unique(flat, return_inverse=True, return_counts=True)
    side = row.cells
    parts = [keys // side**3, keys // side**2 % side, keys // side % side, keys % side]
    coords = torch.stack(parts, dim=1)
    if row.what == "sparse":
        values = features.view(-1, row.width)
        sums = values.new_zeros(len(keys), row.width).index_add_(0, inverse, values)
        return coords, counts, sums / counts[:, None]
    starts = counts.cumsum(0) - counts
    slot = torch.arange(len(flat), device=flat.device) - starts[inverse]
    kept = slot < row.width
    voxels = points.new_zeros(len(keys), row.width, 3)
    voxels[inverse[kept], slot[kept]] = points[kept]
    return coords, counts, voxels


def farthest_peer(points: torch.Tensor, k: int) -> torch.Tensor:
    """One step after the other, all clouds at once."""
    batch = torch.arange(len(points), device=points.device)
    nearest = torch.full(points.shape[:2], torch.inf, device=points.device)
    taken = [torch.zeros(len(points), dtype=torch.long, device=points.device)]
    for _ in range(k - 1):
        d = points - points[batch, taken[-1]][:, None]
        nearest = torch.minimum(nearest, (d[..., 0] ** 2 + d[..., 1] ** 2) + d[..., 2] ** 2)
        taken.append(nearest.argmax(dim=1))
    return torch.stack(taken, dim=1)


Contenders = dict[str, Callable[[Inputs], Any]]
WAITS = ("sparse", "hard")  # Peers that ask for a number cannot be captured.


def own_call(rc: ModuleType, row: Row, x: Inputs, rows: int | None, **more: Any) -> Any:
    if row.what == "farthest":
        return rc.farthest_points(x.points, row.width)
    if row.what == "sparse":
        got = rc.voxelize(
            x.points, x.features, reduce="mean", sparse=True, max_voxels=rows, **row.grid
        )
        return got.coords, got.counts, got.features
    if row.what == "hard":
        hard = {"sparse": True, "max_points_per_voxel": row.width, "max_voxels": rows}
        got = rc.voxelize(x.points, **hard, **row.grid)
        return got.coords, got.counts, got.voxels
    features = [x.features] if row.what in ("mean", "max") else []
    return rc.voxelize(x.points, *features, reduce=row.what, dtype=row.dtype, **row.grid, **more)


def gather_contenders(rc: ModuleType, row: Row, oracle: Oracle, compile: bool) -> Contenders:
    """`robocache_out` makes no result of its own: into `out=`, or as many rows as there are."""
    contenders: Contenders = {"robocache": lambda x: own_call(rc, row, x, None)}
    if row.what in WAITS:
        rows = len(oracle.occupied)
        contenders["robocache_out"] = lambda x: own_call(rc, row, x, rows)
    elif row.what != "farthest":
        contenders["robocache_out"] = lambda x: own_call(rc, row, x, None, out=x.out)
    contenders["eager"] = lambda x: peer(row, x.points, x.features)
    if compile and row.what != "farthest":
        torch.compiler.reset()
        function = torch.compile(partial(peer, row), dynamic=False)
        contenders["compile"] = lambda x: function(x.points, x.features)
    return contenders


# --- one row ----------------------------------------------------------------------------------

Times = dict[str, dict[str, Spread]]  # Kind of time, then contender.


def measure(rc: ModuleType, row: Row, args: argparse.Namespace, copy: Copy) -> dict[str, Any]:
    source = Inputs.random(row, np.random.default_rng([args.seed, ROWS.index(row)]))
    oracle = Oracle(row, source)
    inputs = source if args.device == "cpu" else source.copy_to(args.device)
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
        oracle.check(name, result)
        del result
    with neighbours() as others:
        if args.device == "cpu":
            calls = {name: partial(call, inputs) for name, call in contenders.items()}
            times: Times = {"call": race({"copy": copy.call} | calls, args.seconds)}
        else:
            times = measure_gpu(row, contenders, inputs, copy, args.seconds)
    bandwidth = copy.bandwidth(times["graph_cold" if args.device == "cuda" else "call"]["copy"])
    moved = sum(oracle.moved().values())
    figures = {
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
    copies = [inputs.copy_to("cuda") for _ in range(buffer_sets(inputs.bytes()) - 1)]
    # What waits for a number of the GPU cannot be captured.
    fixed = {
        name: call
        for name, call in contenders.items()
        if row.what not in WAITS or name == "robocache_out"
    }
    if row.what == "farthest":
        fixed = {"robocache": contenders["robocache"]}
    cold = {name: [partial(call, x) for x in [inputs, *copies]] for name, call in fixed.items()}
    return {
        "graph_hot": {
            name: graph_time([partial(call, inputs)], seconds) for name, call in fixed.items()
        },
        "graph_cold": {
            name: graph_time(calls, seconds)
            for name, calls in ({"copy": [copy.call]} | cold).items()
        },
        "call": {
            name: event_time([partial(call, inputs)], seconds) for name, call in contenders.items()
        },
        "host": {
            name: host_time(partial(call, inputs), seconds)
            for name, call in contenders.items()
            if name.startswith("robocache")
        },
    }


def judge(row: Row, device: str, floor: float, times: Times, grid_bytes: int) -> list[Target]:
    """The promises of performance.md; clustered rows are judged beside their uniform row by eye."""
    if device == "cpu":
        spreads = times["call"]
        ratio = spreads["eager"].median / spreads["robocache"].median
        return [Target("against torch eager", ratio, CPU_TIMES_EAGER, True, " x")]
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
    elif row.what in ("mean", "max"):
        targets.append(Target("of the copy bandwidth", floor * 1e6 / cold, 0.7, True))
    else:
        bounds = {"sparse": 150.0, "hard": 100.0, "farthest": 3000.0}
        targets.append(Target("graph replay", hot, bounds[row.what], False, " us"))
    if "compile" in times["graph_cold"]:
        ratio = times["graph_cold"]["compile"].median * 1e6 / cold
        targets.append(Target("against torch.compile, graph_cold", ratio, 1.0, True, " x"))
    return targets


# --- report -----------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]]) -> None:
    contenders = ["robocache_out", "robocache", "eager", "compile"]
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
    args = parser.parse_args()
    rc = setup(args)
    record = Record("voxelize", args)
    copy = cpu_copy(args.threads) if args.device == "cpu" else gpu_copy()
    record.ceilings = {"copy": copy.name, "copy_bytes": copy.bytes_moved}
    if args.scale != 1.0:
        ROWS[:] = [replace(row, points=max(1, int(row.points * args.scale))) for row in ROWS]
    rows = []
    for index in args.rows:
        print(f"  {ROWS[index]} ...", flush=True)
        rows.append(measure(rc, ROWS[index], args, copy))
    report(rows)
    record.rows = [row | {"targets": [target.json() for target in row["targets"]]} for row in rows]
    record.finish()


if __name__ == "__main__":
    main()
