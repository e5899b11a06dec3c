#!/usr/bin/env python3
"""Makes testdata/golden/gradients/*.json: what `backward` leaves in values and features of float64.

    python testdata/golden/make_gradients.py [DIRECTORY]

The format is in common.py, with two more words: `grad` is what flows back into the result (into
`.features` of a sparse grid), and `expect` names arguments: what flows into `values`, `features` or
`streams.0`. Alignment is differentiated by central differences in decimal: with 60 digits and steps of
1e-20 they are exact to 1e-38. A gradient may be off by 1e-12 of itself, of `slerp` and `rot6d` by
1e-12 of the largest of its argument; of methods that copy, of sums, maxima and minima, and where no
result depends on a value, it must have the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from make_fuse import (
    BETWEEN,
    BY_METHOD,
    HALVES,
    SIX,
    TARGETS,
    TIMES,
    TURNS,
    Stream,
    fuse,
    ramp,
    rows_in,
)
from make_voxelize import BATCH, EIGHT, NUMBERS, REDUCTIONS, Cloud, reduced

from common import array, flat, nested, rounded, short, write

STEP, NOISE = Decimal("1e-20"), Decimal("1e-30")
COPIES = ("nearest", "previous", "next")
STEADY = ("linear", "cubic", "angle")  # where nothing cancels
# As in make_fuse.py, but without flat pieces: a PCHIP curve has a kink there.
SMOOTH = BY_METHOD | {"cubic": [[0.0, 1.0], [1.0, 2.0], [0.5, 3.0], [2.0, -7.0]]}


def upstream(count: int) -> list:
    """What flows back: small numbers of both signs that add up exactly."""
    return [(3.0 * i % 7 - 2.75) / 4 for i in range(count)]


def shaped(numbers: list, like):
    """Flat numbers in nested lists as those of `like`."""
    numbers = iter(numbers)
    return nested(like, lambda _: next(numbers))


def results(streams, targets, stamps, options) -> list:
    return [
        x
        for row in fuse(streams, targets, stamps, **options)
        for t in row
        for p in t
        for x in p.numbers
    ]


def gradient(streams, which, targets, stamps, options, grad) -> list:
    """d(grad · result) / d(values of one stream), flat."""
    values = flat(streams[which].values)
    found = []
    for at in range(len(values)):
        ends = []
        for step in (STEP, -STEP):
            moved = [Decimal(x) for x in values]
            moved[at] += step
            changed = replace(streams[which], values=shaped(moved, streams[which].values))
            ends.append(
                results(
                    [*streams[:which], changed, *streams[which + 1 :]], targets, stamps, options
                )
            )
        # What is NaN, or a column of zeros, does not depend on the values.
        slopes = [(a - b) / (2 * STEP) if a == a else 0 for a, b in zip(*ends, strict=True)]
        total = sum(Decimal(g) * slope for g, slope in zip(grad, slopes, strict=True))
        found.append(total)
    return found


def aligned(name, streams, targets, op="fuse", stamps="int64", **options) -> dict:
    for stream in streams:
        stream.dtype = "float64"
    batch = rows_in(streams, targets, options.get("target_lengths"))
    width = sum(stream.width for stream in streams)
    steps = len(targets[0]) if isinstance(targets[0], list) else len(targets)
    grad = upstream((batch or 1) * steps * width)
    expect, tolerance = {}, {}
    for which, stream in enumerate(streams):
        if stream.values is None:
            continue
        found = gradient(streams, which, targets, stamps, options, grad)
        to = "values" if op == "resample" else f"streams.{which}"
        expect[to] = array(
            shaped(
                [rounded(x, "float64") if abs(x) > NOISE else 0.0 for x in found], stream.values
            ),
            "float64",
        )
        largest = max(map(abs, found))
        if stream.method not in COPIES:
            tolerance[to] = [short(1e-12 * float(largest)) if x else 0 for x in found]
        if stream.method in STEADY:
            tolerance[to] = 1e-12
    lengths = options.pop("target_lengths", None)
    inputs = [stream.written(stamps) for stream in streams]
    arguments = {
        **(inputs[0] if op == "resample" else {"streams": inputs}),
        "targets": array(targets, stamps),
        **({} if lengths is None else {"target_lengths": array(lengths, "int64")}),
        **options,
    }
    rows = [grad[i : i + width] for i in range(0, len(grad), width)]
    rows = rows if batch is None else [rows[i : i + steps] for i in range(0, len(rows), steps)]
    made = {"name": name, "op": op, "arguments": arguments}
    made |= {"grad": array(rows, "float64"), "expect": expect}
    return made | ({"tolerance": tolerance} if tolerance else {})


def resample_cases() -> list:
    made = []
    for method, values in SMOOTH.items():
        stream = Stream(values, TIMES, method)
        made.append(aligned(method, [stream], TARGETS, op="resample"))
    for method in ("linear", "nearest", "cubic", "slerp"):
        seconds, stream = (Stream(SMOOTH[method], times, method) for times in (HALVES, TIMES))
        made += [
            aligned(f"{method}_seconds", [seconds], BETWEEN, stamps="float64", op="resample"),
        ]
        if method in ("linear", "slerp"):
            made.append(
                aligned(f"{method}_nan", [stream], TARGETS, extrapolate="nan", op="resample")
            )
    for method in ("linear", "cubic"):
        stream = Stream(SMOOTH["cubic"], TIMES, method)
        made.append(
            aligned(
                f"{method}_extrapolated", [stream], TARGETS, extrapolate="linear", op="resample"
            )
        )
    for method in ("linear", "nearest", "cubic", "slerp"):
        values = SMOOTH[method]
        both = Stream(
            [values, values[::-1]], [[0, 4, 8, 12], [0, 2, -7, -9]], method, lengths=[4, 2]
        )
        duplicates = Stream(values, [0, 4, 4, 12], method)
        targets = [[1, 6, 15], [1, 2, 7]]
        made += [
            aligned(f"{method}_lengths", [both], targets, op="resample", target_lengths=[3, 2]),
            aligned(f"{method}_duplicates", [duplicates], [0, 2, 4, 7, 13], op="resample"),
        ]
        if method in ("linear", "slerp"):
            shared = Stream(values, [0, 4, 8, 12], method)
            made.append(aligned(f"{method}_shared", [shared], targets, op="resample"))
    # Peaks and valleys, where slopes are 0, and ends that are limited.
    pieces = [[0.0], [1.0], [3.0], [3.5], [2.0], [2.5], [9.0]]
    made.append(
        aligned(
            "cubic_pieces",
            [Stream(pieces, [0, 1, 3, 4, 6, 9, 10], "cubic")],
            [1, 2, 5, 7, 8],
            op="resample",
        )
    )
    made.append(
        aligned("cubic_of_two", [Stream(ramp(2, 2), [0, 8], "cubic")], [0, 2, 6, 9], op="resample")
    )
    near = [[0, 0, 0, 1.0], [1e-9, 0, 0, 1.0], [-2e-9, 0, 0, -2.0]]
    made.append(
        aligned(
            "slerp_tiny_angles", [Stream(near, [0, 4, 8], "slerp")], [1, 2, 6, 7], op="resample"
        )
    )
    return made


def fuse_cases() -> list:
    row = [
        [*a, *q, *b, *c]
        for a, q, b, c in zip(ramp(4, 2), TURNS, ramp(4, 1), SMOOTH["cubic"], strict=True)
    ]
    ranges = [("linear", 0, 2), ("slerp", 2, 6), ("previous", 6, 7), ("cubic", 7, 9)]
    slow = Stream(ramp(2, 2), [TIMES[0], TIMES[3]])
    linear, turns = Stream(SMOOTH["cubic"], TIMES), Stream(TURNS, TIMES, "slerp", max_gap=0.002)
    return [
        aligned("columns", [Stream(row, TIMES, ranges)], TARGETS),
        aligned("every_method", [Stream(v, TIMES, m) for m, v in SMOOTH.items()], TARGETS[1:5]),
        aligned("rates_and_a_missing_one", [slow, Stream(dim=2), turns], TARGETS),
        aligned(
            "batch",
            [linear, Stream([SIX, SIX[::-1]], TIMES, "rot6d", lengths=[4, 2])],
            [TARGETS[2:5], TARGETS[4:7]],
            target_lengths=[2, 3],
        ),
    ]


def voxelized(name, cloud, reduce, sparse=False) -> dict:
    """What flows into the features: of the cell's gradient, all, a share, or all to the first that holds the value."""
    keys = [(b, *cell) for b, members in enumerate(cloud.cells) for cell in sorted(members)]
    x, y, z = cloud.shape
    cells = [(i, j, k) for i in range(x) for j in range(y) for k in range(z)]
    rows = keys if sparse else [(b, *cell) for b in range(len(cloud.cells)) for cell in cells]
    grad = upstream(len(rows) * cloud.width)
    grad = [grad[i : i + cloud.width] for i in range(0, len(grad), cloud.width)]
    found = nested(cloud.features, lambda _: 0.0)
    for (b, *cell), row in zip(rows, grad, strict=True):
        members = cloud.cells[b].get(tuple(cell), [])
        for f in range(cloud.width):
            column = [cloud.features[b][i][f] for i in members]
            if reduce in ("max", "min") and members:
                members_of = [members[column.index(reduced(column, reduce))]]
            else:
                members_of = members
            for i in members_of:
                found[b][i][f] = row[f] / (len(members) if reduce == "mean" else 1)
    if not sparse:
        grad = [grad[i : i + z] for i in range(0, len(grad), z)]
        grad = [grad[i : i + y] for i in range(0, len(grad), y)]
        grad = cloud.outer([grad[i : i + x] for i in range(0, len(grad), x)])
    made = {
        "name": name,
        "op": "voxelize",
        "arguments": cloud.arguments(reduce) | ({"sparse": True} if sparse else {}),
        "grad": array(grad, "float64"),
        "expect": {"features": array(cloud.outer(found), "float64")},
    }
    return made | ({"tolerance": {"features": 1e-12}} if reduce == "mean" else {})


def voxelize_cases() -> list:
    made = []
    ties = [[2.0], [1.0], [9.0], [2.0], [2.0], [0.0], [2.0], [9.0]]
    for reduce in REDUCTIONS:
        kind = {"features_dtype": "float64"}
        batch = Cloud(BATCH[:2], [NUMBERS, NUMBERS[::-1]], lengths=[8, 6], **kind)
        made += [
            voxelized(f"{reduce}_batch", batch, reduce),
            voxelized(f"{reduce}_sparse", batch, reduce, sparse=True),
            voxelized(f"{reduce}_ties", Cloud(EIGHT, ties, batch=False, **kind), reduce),
        ]
    return made


FILES = {
    "resample": resample_cases,
    "fuse": fuse_cases,
    "voxelize": voxelize_cases,
}


if __name__ == "__main__":
    write("gradients", FILES)
