"""The stable sort and the scan beside torch.sort, torch.unique and torch.cumsum.

They are no ops of their own: they are timed through those that are thinnest around them. `group_points`
reads points, sorts their cells' numbers and writes the groups; `crop_box(compact=True)` marks points, scans
the marks and moves the points. A peer is given as numbers what ours must first make of points, once with
the primitive alone (`eager`), which is less work than ours, and once with all of it (`eager_all`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from common import Record, Target, number, options, print_table, rows_option, setup
from timing import event_time, neighbours, race

CONTENDERS = ["robocache", "eager", "eager_all"]


@dataclass(frozen=True)
class Row:
    """`count` keys of so many bits, or as many marks of which a part is set."""

    what: str  # sort, scan
    count: int
    bits: int = 24
    keys: str = "random"  # equal, sorted
    part: float = 0.5

    def __str__(self) -> str:
        kind = f"{self.bits} bits, {self.keys}" if self.what == "sort" else f"{self.part:.0%} set"
        return f"{self.what} {self.count}, {kind}"


ROWS = [
    *(Row("sort", 10**6, bits) for bits in (8, 16, 24, 40)),
    Row("sort", 10**6, 24, "equal"),
    Row("sort", 10**6, 24, "sorted"),
    Row("sort", 10**7, 24),
    *(Row("scan", 10**6, part=part) for part in (0.05, 0.5, 1.0)),
    Row("scan", 10**7),
]

Calls = dict[str, Callable[[], Any]]


def sort_calls(row: Row, generator: torch.Generator, device: str) -> Calls:
    from robocache import _core

    high = row.bits // 2
    keys = torch.randint(0, 1 << row.bits, (row.count,), device=device, generator=generator)
    if row.keys == "equal":
        keys.fill_(5)
    if row.keys == "sorted":
        keys = keys.sort().values
    # Cells of size 1: the key's upper and lower half are exact in float32.
    low = row.bits - high
    halves = [torch.zeros_like(keys), keys >> low, keys & ((1 << low) - 1)]
    points = torch.stack(halves, dim=1).float() + 0.5
    shape = (1, 1 << high, 1 << low)
    grid = {"origin": (0.0, 0.0, 0.0), "voxel_size": 1.0, "shape": shape}
    calls: Calls = {
        "robocache": lambda: _core.group_points(points, **grid),
        "eager": lambda: torch.sort(keys, stable=True),
        "eager_all": lambda: torch.unique(keys, return_inverse=True, return_counts=True),
    }
    want, order = calls["eager"]()
    cells, starts, got, _, _, count = calls["robocache"]()
    found = cells[: int(count)].repeat_interleave(starts[: int(count) + 1].diff().long())
    if not (torch.equal(found, want) and torch.equal(got.long(), order)):
        sys.exit(f"lab: {row}: wrong result")
    return calls


def scan_calls(row: Row, generator: torch.Generator, device: str) -> Calls:
    import robocache as rc

    points = torch.rand((row.count, 3), device=device, generator=generator)
    low, high = (0.0, 0.0, 0.0), (row.part, 2.0, 2.0)
    mask = points[:, 0] < row.part
    calls: Calls = {
        "robocache": lambda: rc.crop_box(points, low, high, compact=True),
        "eager": lambda: torch.cumsum(mask, 0),
        "eager_all": lambda: points[((points >= lows) & (points < highs)).all(-1)],
    }
    lows, highs = (torch.tensor(x, device=device) for x in (low, high))
    got = calls["robocache"]()
    if not torch.equal(got.points, points[mask]) or int(got.lengths) != int(mask.sum()):
        sys.exit(f"lab: {row}: wrong result")
    return calls


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.set_defaults(seconds=0.4)
    args = parser.parse_args()
    setup(args)
    record = Record("sort", args)
    for index in args.rows:
        row = ROWS[index]
        generator = torch.Generator(args.device).manual_seed(args.seed + index)
        make = partial(sort_calls if row.what == "sort" else scan_calls, row, generator)
        calls = make(args.device)
        with neighbours() as others:
            if args.device == "cpu":
                times = race(calls, args.seconds, least=1)
            else:  # the sizes are asked for, so nothing can be captured
                times = {name: event_time([call], args.seconds) for name, call in calls.items()}
        own = times["robocache"].median
        # The primitive alone is less than ours does, so it is told and not judged.
        alone, whole = (times[name].median / own for name in CONTENDERS[1:])
        least = 5.0 if args.device == "cpu" else 1.0
        target = Target("against all of it by torch", whole, least, True, " x")
        figures = {
            "row": str(row),
            "keys_per_s": row.count / own,
            "other_cores": others[0] if others else None,
            "times": {"call": {name: spread.json() for name, spread in times.items()}},
            "against_the_primitive": alone,
            "targets": [target.json()],
        }
        print(f"  {index:2} {row}  {target}; against the primitive: {alone:.3g} x", flush=True)
        record.rows.append(figures)
        record.flush()
    lines = [
        [row["row"], *(number(row["times"]["call"][name]["median_us"]) for name in CONTENDERS)]
        for row in record.rows
    ]
    print("\ncall, median in us")
    print_table(["row", *CONTENDERS], lines)
    record.finish()


if __name__ == "__main__":
    main()
