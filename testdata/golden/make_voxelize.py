#!/usr/bin/env python3
"""Makes testdata/golden/voxelize/*.json: grids that a person can count, dense and sparse.

    python testdata/golden/make_voxelize.py [DIRECTORY]

The format is in common.py. Cells are computed as the contract says, a subtraction and a division of
floats that are rounded once each; sums in float64, in the order of the points. So every result has
the same bits, but means of float64 features, which may be off by 1e-12 of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import copysign, floor, isfinite

from common import INF, NAN, array, nested, rounded, write


def compute_type(dtype: str) -> str:
    """What coordinates of a dtype compute in."""
    return "float64" if dtype == "float64" else "float32"


def cell_of(point, origin, voxel_size, shape, kind):
    """The cell of a point, or None outside of the grid."""
    cell = []
    for p, low, size, count in zip(point, origin, voxel_size, shape, strict=True):
        if not isfinite(p):
            return None
        low, size = (Fraction(rounded(x, kind)) for x in (low, size))
        apart = rounded(Fraction(p) - low, kind)
        place = floor(rounded(Fraction(apart) / size, kind))
        if not 0 <= place < count:
            return None
        cell.append(place)
    return tuple(cell)


def reduced(features: list, reduce: str) -> float:
    """One column of the features of a cell, in the order of the points, in float64."""
    if any(x != x for x in features):
        return NAN
    if reduce in ("max", "min"):  # -0 is below +0
        return (max if reduce == "max" else min)(features, key=lambda x: (x, copysign(1, x)))
    total = features[0]
    for x in features[1:]:
        total += x
    return total / len(features) if reduce == "mean" else total


@dataclass
class Cloud:
    """Points `[B,N,3]`, features `[B,N,F]`, and what is the same for all ways of voxelizing them."""

    points: list
    features: list | None = None
    lengths: list | None = None
    dtype: str = "float32"
    features_dtype: str = "float32"
    origin: tuple = (0.0, 0.0, 0.0)
    voxel_size: object = 1.0
    shape: tuple = (2, 2, 2)
    batch: bool = True
    cells: list = field(default_factory=list)  # [B] dicts from a cell to its points
    inverse_of: list = field(default_factory=list)  # [B][N] cells or None
    dropped: list = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.batch:
            self.points = [self.points]
            self.features = None if self.features is None else [self.features]
        self.points = nested(self.points, lambda x: rounded(x, self.dtype))
        if self.features is not None:
            self.features = nested(self.features, lambda x: rounded(x, self.features_dtype))
        sizes = self.voxel_size
        sizes = sizes if isinstance(sizes, tuple) else (sizes,) * 3
        for b, row in enumerate(self.points):
            stop = len(row) if self.lengths is None else self.lengths[b]
            kind = compute_type(self.dtype)
            found = [cell_of(p, self.origin, sizes, self.shape, kind) for p in row[:stop]]
            members = {}
            for index, cell in enumerate(found):
                if cell is not None:
                    members.setdefault(cell, []).append(index)
            self.cells.append(members)
            self.inverse_of.append(found + [None] * (len(row) - stop))
            self.dropped.append(found.count(None))

    @property
    def width(self) -> int:
        return 0 if self.features is None else len(self.features[0][0])

    def columns(self, b: int, members: list, reduce: str) -> list:
        """`[F]` reduced features of a cell."""
        rows = [self.features[b][i] for i in members]
        return [reduced(list(column), reduce) for column in zip(*rows, strict=True)]

    def arguments(self, reduce: str) -> dict:
        points = self.points if self.batch else self.points[0]
        made = {"points": array(points, self.dtype, (3,))}
        if self.features is not None:
            features = self.features if self.batch else self.features[0]
            made["features"] = array(features, self.features_dtype)
        if self.lengths is not None:
            made["lengths"] = array(self.lengths, "int64")
        return made | {
            "origin": list(self.origin),
            "voxel_size": self.voxel_size,
            "shape": list(self.shape),
            "reduce": reduce,
        }

    def outer(self, rows: list):
        """Without the batch axis where the points have none."""
        return rows if self.batch else rows[0]


def dense(name, cloud, reduce="occupancy", dtype=None, fill=0, op="voxelize", arguments=None):
    """The grid, the counts (beside no features) and the dropped."""
    blends = reduce in ("sum", "mean", "max", "min")
    kind = dtype or (
        cloud.features_dtype if blends else {"occupancy": "uint8", "count": "int32"}[reduce]
    )
    x, y, z = cloud.shape
    grid, counts = [], []
    for b, members in enumerate(cloud.cells):

        def value(cell, b=b, members=members):
            found = members.get(cell)
            if blends:
                row = cloud.columns(b, found, reduce) if found else [fill] * cloud.width
                return [rounded(v, kind) for v in row]
            number = (1 if reduce == "occupancy" else len(found)) if found else fill
            return bool(number) if kind == "bool" else rounded(number, kind)

        def number(cell, members=members):
            return len(members.get(cell, ()))

        for to, of in ((grid, value), (counts, number)):
            to.append([[[of((i, j, k)) for k in range(z)] for j in range(y)] for i in range(x)])
    made = {
        "name": name,
        "op": op,
        "arguments": {
            **(cloud.arguments(reduce) if arguments is None else arguments | {"reduce": reduce}),
            **({"dtype": dtype} if dtype else {}),
            **({"fill": fill} if fill else {}),
            **({} if blends else {"return_counts": True}),
            "return_dropped": True,
        },
        "expect": {
            "out": array(cloud.outer(grid), kind),
            **({} if blends else {"counts": array(cloud.outer(counts), "int32")}),
            "dropped": array(cloud.outer(cloud.dropped), "int64"),
        },
    }
    if reduce == "mean" and kind == "float64":
        made["tolerance"] = {"out": 1e-12}
    return made


def sparse(name, cloud, reduce="occupancy", most=None, rows=None, op="voxelize", arguments=None):
    """The occupied cells in order. `most` is max_points_per_voxel, `rows` is max_voxels."""
    blends = reduce in ("sum", "mean", "max", "min")
    keys = [(b, *cell) for b, members in enumerate(cloud.cells) for cell in sorted(members)]
    count, kept = len(keys), keys if rows is None else keys[:rows]
    place = {key: row for row, key in enumerate(kept)}
    coords, counts, features, voxels = [], [], [], []
    for b, *cell in kept:
        members = cloud.cells[b][tuple(cell)]
        coords.append([b, *cell])
        counts.append(len(members))
        if blends:
            row = cloud.columns(b, members, reduce)
            features.append([rounded(v, cloud.features_dtype) for v in row])
        of = [cloud.points[b][i] + (cloud.features[b][i] if cloud.width else []) for i in members]
        blank = [0.0] * (3 + cloud.width)
        voxels.append((of + [blank] * (most or 0))[:most])
    for _ in range(0 if rows is None else rows - len(kept)):
        coords.append([-1] * 4)
        counts.append(0)
        features.append([0.0] * cloud.width)
        voxels.append([[0.0] * (3 + cloud.width)] * (most or 0))
    inverse = [
        [-1 if cell is None else place.get((b, *cell), -1) for cell in found]
        for b, found in enumerate(cloud.inverse_of)
    ]
    # What holds points and features side by side is of the wider type.
    wide = "float64" if "float64" in (cloud.dtype, cloud.features_dtype) else "float32"
    hard = array(voxels, wide, (most, 3 + cloud.width)) if most else None
    return {
        "name": name,
        "op": op,
        "arguments": {
            **(cloud.arguments(reduce) if arguments is None else arguments | {"reduce": reduce}),
            "sparse": True,
            **({} if most is None else {"max_points_per_voxel": most}),
            **({} if rows is None else {"max_voxels": rows}),
        },
        "expect": {
            "coords": array(coords, "int64", (4,)),
            "features": array(features, cloud.features_dtype, (cloud.width,)) if blends else None,
            "counts": array(counts, "int32"),
            "inverse": array(cloud.outer(inverse), "int64"),
            "dropped": array(cloud.outer(cloud.dropped), "int64"),
            "voxels": hard,
            "count": array(count, "int64"),
        },
    }


# Two points in cell (0,0,0), three in (1,0,1), one in (1,1,1), two outside.
EIGHT = [
    [0.5, 0.5, 0.5],
    [1.5, 0.25, 1.75],
    [-0.5, 0.5, 0.5],
    [1.25, 0.5, 1.5],
    [0.25, 0.75, 0.125],
    [1.5, 1.5, 1.5],
    [1.75, 0.125, 1.25],
    [0.5, 0.5, 2.5],
]
# Rows of the batch: as above, in another order, and without a point inside.
BATCH = [EIGHT, EIGHT[::-1], [[-1.0, 0, 0]] * 8]
# Of the first cell -1 and -2: its max is negative.
NUMBERS = [
    [-1.0, 8.0],
    [3.0, 0.1],
    [99.0, 99.0],
    [4.0, 0.2],
    [-2.0, -8.0],
    [5.0, 0.7],
    [6.5, 0.3],
    [9.0, 9.0],
]
REDUCTIONS = ("sum", "mean", "max", "min")


def dense_cases() -> list:
    eight, batch = Cloud(EIGHT, batch=False), Cloud(BATCH)
    made = [
        dense("occupancy", eight),
        dense("count", eight, "count"),
        dense("batch_occupancy", batch),
        dense("batch_count", batch, "count"),
        dense("lengths", Cloud(BATCH, lengths=[8, 3, 0]), "count"),
        dense("one_for_the_batch", Cloud([EIGHT], lengths=[4]), "count"),
        dense("no_points", Cloud([], batch=False), "count"),
        dense("f64_points", Cloud(BATCH, dtype="float64"), "count"),
        dense("f16_points", Cloud(BATCH, dtype="float16"), "count"),
        dense("count_fill", eight, "count", fill=-7),
        dense("occupancy_fill", eight, fill=9),
        dense("count_fill_float", eight, "count", dtype="float32", fill=-0.5),
        dense(
            "flat_cells",
            Cloud(EIGHT, voxel_size=(0.5, 2.0, 0.25), shape=(4, 1, 8), batch=False),
            "count",
        ),
        dense(
            "origin", Cloud(EIGHT, origin=(-1.0, 0.25, 0.5), shape=(3, 1, 2), batch=False), "count"
        ),
    ]
    made += [
        dense(f"occupancy_{d}", eight, dtype=d)
        for d in ("bool", "float16", "float32", "float64", "int64")
    ]
    made += [dense(f"count_{d}", eight, "count", dtype=d) for d in ("int64", "float32", "float64")]
    return made


def border_cases() -> list:
    """Cells are half-open; the division decides, not what the decimals look like."""
    edges = [-1.0, -1e-30, -0.0, 0.0, 0.99999994, 1.0, 1.0000001, 2.0, 2.9999998, 3.0, 1e30]
    tenths = [k / 10 for k in range(-1, 9)]
    bad = [[NAN, 0, 0], [0, NAN, 0], [0, 0, INF], [-INF, 0, 0], [0.5, 0.5, 0.5], [NAN, NAN, NAN]]
    made = [
        dense(
            "half_open", Cloud([[x, 0.5, 0] for x in edges], shape=(3, 1, 1), batch=False), "count"
        ),
        dense(
            "along_z", Cloud([[0, 0.5, x] for x in edges], shape=(1, 1, 3), batch=False), "count"
        ),
        dense("nan_and_infinite", Cloud(bad, shape=(1, 1, 1), batch=False), "count"),
    ]
    for dtype in ("float32", "float64"):
        # k/10 is rounded, 0.1 is, and so is the quotient: 0.3/0.1 is below 3 in float64, not in float32.
        points = [[x, 0, 0] for x in tenths]
        tenth = Cloud(points, voxel_size=0.1, shape=(7, 1, 1), dtype=dtype, batch=False)
        made.append(dense(f"tenths_{dtype}", tenth, "count"))
        moved = Cloud(
            points, voxel_size=0.1, origin=(-0.3, 0, 0), shape=(9, 1, 1), dtype=dtype, batch=False
        )
        made.append(dense(f"tenths_moved_{dtype}", moved, "count"))
    return made


def feature_cases() -> list:
    made = []
    batch = [NUMBERS, NUMBERS[::-1]]
    zeros = [[x] for x in (0.0, -0.0, NAN, 1.0, -0.0, NAN, -1.0, 1.0)]
    line = {"points": [[0.5, 0, 0]] * 4, "shape": (1, 1, 1), "batch": False}
    many = [[float(i * 37 % 101 - 50)] for i in range(70)]
    crowd = Cloud([[0.5, 0, 0]] * 70, many, shape=(1, 1, 1), batch=False)
    made += [dense(f"{r}_of_a_crowd", crowd, r) for r in ("sum", "max")]
    for reduce in REDUCTIONS:
        for dtype in ("float32", "float64"):
            cloud = Cloud(BATCH[:2], batch, features_dtype=dtype, lengths=[8, 6])
            made.append(dense(f"{reduce}_{dtype}", cloud, reduce))
    alone = Cloud(EIGHT, NUMBERS, batch=False)
    made += [dense(f"{r}_no_batch_fill", alone, r, fill=-100.5) for r in ("mean", "max")]
    made.append(dense("mean_f32_as_f64", alone, "mean", dtype="float64"))
    made += [
        dense(f"{r}_zeros_and_nan", Cloud(EIGHT, zeros, batch=False), r) for r in ("max", "min")
    ]
    made += [
        dense(f"{r}_nan", Cloud(**line, features=[[1.0], [NAN], [2.0], [3.0]]), r)
        for r in ("sum", "mean")
    ]
    # In the order of the points and in float64: 1 is lost beside 1e16, but not beside 1e8 in float32.
    lost = Cloud(**line, features=[[1e16], [1.0], [-1e16], [2.0]], features_dtype="float64")
    made.append(dense("sum_in_order_f64", lost, "sum"))
    made.append(
        dense("sum_in_f64_of_f32", Cloud(**line, features=[[1e8], [1.0], [-1e8], [2.0]]), "sum")
    )
    return made


def sparse_cases() -> list:
    batch = [NUMBERS, NUMBERS[::-1]]
    cloud = Cloud(BATCH[:2], batch, lengths=[8, 6])
    wide = Cloud(BATCH[:2], batch, features_dtype="float64")
    alone = Cloud(EIGHT, NUMBERS, batch=False)
    plain = Cloud(BATCH)
    far = [1e6, 2e6, 2e6]
    huge = Cloud(
        [[0, 0, 0], far, far, [1e6, 2e6, 2e6 - 1]], shape=(1 << 20, 1 << 21, 1 << 21), batch=False
    )
    outside = Cloud(BATCH[2], NUMBERS, batch=False)
    made = [sparse(reduce, cloud, reduce, most=2) for reduce in ("occupancy", *REDUCTIONS)]
    made += [sparse(f"{reduce}_f64", wide, reduce) for reduce in ("sum", "min")]
    made += [
        sparse("no_batch", alone, "sum", most=4),
        sparse("no_features", plain, most=1),
        sparse("huge_grid", huge, most=1),
        sparse("nothing_inside", outside, "max", most=2),
    ]
    made += [sparse(f"max_voxels_{n}", cloud, "sum", most=2, rows=n) for n in (0, 2, 9)]
    return made


FILES = {
    "dense": dense_cases,
    "borders": border_cases,
    "features": feature_cases,
    "sparse": sparse_cases,
}


if __name__ == "__main__":
    write("voxelize", FILES)
