#!/usr/bin/env python3
"""Makes testdata/golden/points/*.json: transform_points, crop_box, unproject, farthest_points, voxelize_depth.

    python testdata/golden/make_points.py [DIRECTORY]

The format is in common.py. `R p + t` and the pinhole camera are computed as they are written, from left
to right, every product and sum rounded once: the same bits on every machine. A quaternion is made a
matrix in decimal with 60 digits; where its roots are no plain numbers, the points may be off by 1e-6
of what they are made of, by 1e-12 in float64.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isfinite

from make_voxelize import Cloud, compute_type, dense, sparse

from common import INF, NAN, array, flat, nested, rounded, short, write


def times(a: float, b: float, kind: str) -> float:
    if a != a or b != b:
        return NAN
    return rounded(Fraction(a) * Fraction(b), kind)


def plus(a: float, b: float, kind: str) -> float:
    return NAN if a != a or b != b else rounded(Fraction(a) + Fraction(b), kind)


def matrix_of(pose: list) -> list:
    """Three rows of four numbers, of a matrix or of xyz and a quaternion xyzw, which is normalised."""
    if isinstance(pose[0], list):
        return pose[:3]
    x, y, z, w = (Decimal(number) for number in pose[3:])
    length = (x * x + y * y + z * z + w * w).sqrt()
    x, y, z, w = (number / length for number in (x, y, z, w))
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), pose[0]],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w), pose[1]],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y), pose[2]],
    ]


def transformed(point: list, pose: list, kind: str) -> list:
    moved = []
    for row in matrix_of(pose):
        *turn, step = (rounded(number, kind) for number in row)
        total = times(turn[0], point[0], kind)
        for number, p in zip(turn[1:], point[1:], strict=True):
            total = plus(total, times(number, p, kind), kind)
        moved.append(plus(total, step, kind))
    return moved


def bounds_of(points: list, pose: list, kind: str) -> list:
    """How far points may be off after a pose whose numbers are no plain ones."""
    relative = 1e-12 if kind == "float64" else 1e-6
    size = max((abs(x) for x in flat(points) if isfinite(x)), default=0) + max(map(abs, pose[:3]))
    return [short(relative * size)] * len(flat(points))


def case(name, op, arguments, expect, bounds=None) -> dict:
    made = {"name": name, "op": op, "arguments": arguments, "expect": expect}
    return made | ({"tolerance": {"out": bounds}} if bounds else {})


def transform(name, points, pose, dtype="float32", exact=True, batch=False) -> dict:
    """`batch`: both have one."""
    kind = compute_type(dtype)
    points = nested(points, lambda x: rounded(x, dtype))
    pairs = zip(points, pose, strict=True) if batch else [(points, pose)]
    out = [[transformed(p, q, kind) for p in row] for row, q in pairs]
    out = nested(out if batch else out[0], lambda x: rounded(x, dtype))
    bounds = None if exact else bounds_of(points, pose[0] if batch else pose, kind)
    given = nested(pose, lambda x: rounded(x, kind))
    return case(
        name,
        "transform_points",
        {"points": array(points, dtype), "pose": array(given, kind)},
        {"out": array(out, dtype)},
        bounds and [b if x == x else 0 for x, b in zip(flat(out), bounds, strict=True)],
    )


FIVE = [
    [1.0, 2.0, 3.0],
    [-0.5, 0.25, 0.0],
    [0.1, 0.2, 0.3],
    [NAN, 1.0, 2.0],
    [1000.0, -2000.0, 0.125],
]
# A quarter turn about z, and one unit up.
QUARTER = [[0, -1.0, 0, 0], [1.0, 0, 0, 0], [0, 0, 1.0, 1.0], [0, 0, 0, 1.0]]
# Any matrix: the numbers have full significands.
FULL = [[0.1, 0.2, 0.3, 0.4], [-0.5, 0.6, 0.7, 0.8], [0.9, -1.1, 1.2, 1.3], [0, 0, 0, 1.0]]
# A turn of 120 degrees about (1, 1, 1): x to y, y to z, z to x.
THIRD = [10.0, 20.0, 30.0, 0.5, 0.5, 0.5, 0.5]
LONG = [0.5, -0.25, 2.0, 1.0, 2.0, 3.0, 4.0]  # of length sqrt(30)


def transform_cases() -> list:
    identity = [[float(i == j) for j in range(4)] for i in range(4)]
    two = [FIVE, FIVE[::-1]]
    made = [
        transform("identity", FIVE, identity),
        transform("quarter_turn", FIVE, QUARTER),
        transform("three_rows", FIVE, FULL[:3]),
        transform("third_of_a_turn", FIVE, THIRD),
        transform("quaternion_is_normalised", FIVE, [0, 0, 1.0, 0, 0, 0, 2.0]),
        transform("half_turn", FIVE, [0, 0, 0, 0, 3.0, 0, 0]),
        transform("f16", [p for p in FIVE if abs(p[0]) < 100], QUARTER, "float16"),
        transform("a_matrix_for_each", two, [QUARTER, FULL], batch=True),
        transform("seven_for_each", two, [THIRD, [0.0] * 6 + [1.0]], batch=True),
    ]
    for dtype in ("float32", "float64"):
        made.append(transform(f"full_matrix_{dtype}", FIVE, FULL, dtype))
        made.append(transform(f"any_quaternion_{dtype}", FIVE, LONG, dtype, exact=False))
    return made


def crop(
    name, points, low, high, dtype="float32", lengths=None, compact=False, batch=False
) -> dict:
    kind = compute_type(dtype)
    clouds = nested(points if batch else [points], lambda x: rounded(x, dtype))
    ends = [[rounded(x, kind) for x in bound] for bound in (low, high)]
    mask = [
        [
            all(a <= x < b for a, x, b in zip(ends[0], p, ends[1], strict=True))
            and (lengths is None or i < lengths[b])
            for i, p in enumerate(cloud)
        ]
        for b, cloud in enumerate(clouds)
    ]
    arguments = {
        "points": array(clouds if batch else clouds[0], dtype, (3,)),
        "low": array(list(low), "float64"),
        "high": array(list(high), "float64"),
        **({} if lengths is None else {"lengths": array(lengths, "int64")}),
    }
    if not compact:
        return case(name, "crop_box", arguments, {"out": array(mask if batch else mask[0], "bool")})
    kept = [[i for i, inside in enumerate(row) if inside] for row in mask]
    most = max(map(len, kept))
    index = [row + [-1] * (most - len(row)) for row in kept]
    found = [[clouds[b][i] if i >= 0 else [NAN] * 3 for i in row] for b, row in enumerate(index)]
    outer = (lambda rows: rows) if batch else (lambda rows: rows[0])
    expect = {
        "points": array(outer(found), dtype, (3,)),
        "index": array(outer(index), "int64"),
        "lengths": array(outer([len(row) for row in kept]), "int64"),
    }
    return case(name, "crop_box", arguments | {"compact": True}, expect)


def crop_cases() -> list:
    edges = [[x, 0.5, 0.5] for x in (-0.1, -0.0, 0.0, 0.1, 0.5, 1.0, NAN, INF, -INF)]
    edges += [[0.5, 1.0, 0.5], [0.5, 0.5, -1e-30], [0.5, NAN, 0.5]]
    unit = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    open_box = (-INF, 0.0, -INF), (INF, 1.0, 0.25)
    tenth = (0.1, 0.1, 0.1), (0.3, 0.3, 0.3)
    tenths = [[x] * 3 for x in (0.0, 0.1, 0.2, 0.3, 0.4)]
    batch = [FIVE, FIVE[::-1], FIVE]
    box = (-1.0, -2.0, 0.0), (2.0, 3.0, 4.0)
    made = []
    for compact in (False, True):
        end = "_compact" if compact else ""
        made += [
            crop(f"half_open{end}", edges, *unit, compact=compact),
            crop(f"infinite_bounds{end}", edges, *open_box, compact=compact),
            crop(f"bounds_are_rounded{end}", tenths, *tenth, compact=compact),
            crop(f"f64{end}", tenths, *tenth, dtype="float64", compact=compact),
            crop(f"f16{end}", tenths, *tenth, dtype="float16", compact=compact),
            crop(f"lengths{end}", batch, *box, lengths=[5, 3, 0], batch=True, compact=compact),
            crop(f"nothing_inside{end}", FIVE, (5.0,) * 3, (6.0,) * 3, compact=compact),
        ]
    return made


def pixels(depth, camera, pose=None, scale=1e-3) -> list:
    """`[H*W,3]` points of an image, NaN where the depth is masked."""
    kind = "float32"
    if isinstance(camera[0], list):
        camera = [camera[0][0], camera[1][1], camera[0][2], camera[1][2]]
    fx, fy, cx, cy = (rounded(number, kind) for number in camera)
    found = []
    for v, row in enumerate(depth):
        for u, d in enumerate(row):
            if not (isfinite(d) and d > 0):
                found.append([NAN] * 3)
                continue
            z = times(rounded(d, kind), rounded(scale, kind), kind)
            x = rounded(Fraction(plus(u, -cx, kind)) / Fraction(fx), kind)
            y = rounded(Fraction(plus(v, -cy, kind)) / Fraction(fy), kind)
            point = [times(x, z, kind), times(y, z, kind), z]
            found.append(point if pose is None else transformed(point, pose, kind))
    return found


def image_arguments(depth, dtype, camera, pose, scale) -> dict:
    kind = "float32"
    return {
        "depth": array(nested(depth, lambda x: rounded(x, dtype)), dtype),
        "intrinsics": array(nested(camera, lambda x: rounded(x, kind)), kind),
        **({} if pose is None else {"extrinsics": array(nested(pose, float), kind)}),
        **({} if scale == 1e-3 else {"depth_scale": scale}),
    }


def unproject(name, depth, camera, pose=None, scale=1e-3, dtype="uint16", exact=True, batch=False):
    """`batch`: the depth has one, and the camera where it has one more axis than usual."""
    pose = None if pose is None else nested(pose, lambda x: rounded(x, "float32"))
    images = nested(depth if batch else [depth], lambda x: rounded(x, dtype))
    own = batch and len(camera) == len(images) and isinstance(camera[0], list)
    out = [pixels(d, camera[b] if own else camera, pose, scale) for b, d in enumerate(images)]
    valid = [[p[2] == p[2] for p in row] for row in out]
    bounds = None
    if not exact:
        bounds = bounds_of(pixels(images[0], camera, None, scale), pose, "float32")
        bounds = [b if x == x else 0 for x, b in zip(flat(out), bounds, strict=True)]
    out, valid = (out, valid) if batch else (out[0], valid[0])
    return case(
        name,
        "unproject",
        image_arguments(depth, dtype, camera, pose, scale) | {"return_valid": True},
        {"out": array(out, "float32"), "valid": array(valid, "bool")},
        bounds,
    )


# Two rows of three pixels; depth 0 is masked.
IMAGE = [[1000, 0, 2500], [3, 65535, 777]]
CAMERA = [2.0, 4.0, 1.0, 0.5]
FULL_CAMERA = [[525.3, 0, 319.7], [0, 524.9, 239.1], [0, 0, 1.0]]


def unproject_cases() -> list:
    metres = [[1.0, 0.0, -1.0, NAN], [INF, 0.5, 0.1, -0.0]]
    return [
        unproject("metres", metres, CAMERA, scale=1.0, dtype="float32"),
        unproject("metres_f64", metres, CAMERA, scale=1.0, dtype="float64"),
        unproject("metres_f16", metres, CAMERA, scale=1.0, dtype="float16"),
        unproject("millimetres", IMAGE, CAMERA),
        unproject("quarters", IMAGE, CAMERA, scale=0.25),
        unproject("matrix", IMAGE, FULL_CAMERA),
        unproject("quarter_turn", IMAGE, CAMERA, QUARTER),
        unproject("full_matrix", IMAGE, FULL_CAMERA, FULL),
        unproject("third_of_a_turn", IMAGE, CAMERA, THIRD),
        unproject("any_quaternion", IMAGE, FULL_CAMERA, LONG, exact=False),
        unproject("batch", [IMAGE, IMAGE[::-1]], CAMERA, batch=True),
        unproject("camera_for_each", [IMAGE] * 2, [CAMERA, [1.0, 1.0, 0, 0]], QUARTER, batch=True),
    ]


def farthest(name, points, k, start=0, dtype="float32", lengths=None, batch=False) -> dict:
    kind = compute_type(dtype)
    clouds = nested(points if batch else [points], lambda x: rounded(x, dtype))
    taken = []
    for b, cloud in enumerate(clouds):
        cloud = cloud if lengths is None else cloud[: lengths[b]]
        row = [start]
        while len(row) < k:
            left = [i for i in range(len(cloud)) if i not in row]
            row.append(max(left, key=lambda i, c=cloud, r=row: (nearest(c, i, r, kind), -i)))
        taken.append(row)
    arguments = {
        "points": array(clouds if batch else clouds[0], dtype),
        "k": k,
        **({"start": start} if start else {}),
        **({} if lengths is None else {"lengths": array(lengths, "int64")}),
    }
    out = array(taken if batch else taken[0], "int64")
    return case(name, "farthest_points", arguments, {"out": out})


def nearest(cloud: list, i: int, taken: list, kind: str) -> float:
    """The square of the distance to the closest point that was taken; -1 for what is not finite."""
    if not all(map(isfinite, cloud[i])):
        return -1
    squares = [INF]
    for j in taken:
        if all(map(isfinite, cloud[j])):
            apart = [plus(a, -b, kind) for a, b in zip(cloud[i], cloud[j], strict=True)]
            x, y, z = (times(d, d, kind) for d in apart)
            squares.append(plus(plus(x, y, kind), z, kind))
    return min(squares)


def farthest_cases() -> list:
    line = [[float(x), 0, 0] for x in (0, 1, 2, 3, 10)]
    square = [[0, 0, 0], [0, 1.0, 0], [1.0, 0, 0], [1.0, 1.0, 0], [0.5, 0.5, 0]]
    bad = [[NAN, 0, 0], [0, 0, 0], [0, INF, 0], [3.0, 4.0, 0], [1.0, 0, 0]]
    # 1 + 2^-24 is 1 in float32: a tie there, none in float64.
    close = [[0, 0, 0], [-1.0, 0, 0], [1.0 + 2**-24, 0, 0], [0, 0.5, 0]]
    return [
        farthest("line", line, 5),
        farthest("line_start", line, 3, start=2),
        farthest("ties_take_the_lower_index", square, 5),
        farthest("equal_points_are_taken_once", [[1.0, 1.0, 1.0]] * 4, 4, start=2),
        farthest("nan_and_infinite_are_last", bad, 5, start=1),
        farthest("start_is_nan", bad, 5),
        farthest("close_f32", close, 4),
        farthest("close_f64", close, 4, dtype="float64"),
        farthest("lengths", [line, line[::-1]], 3, lengths=[4, 3], batch=True),
        farthest("batch", [line, square], 4, start=1, batch=True),
        farthest("one", line, 1, start=4),
    ]


def depth_cases() -> list:
    """What unproject makes, in cells of 0.75 m."""
    made = []
    colours = [[float(i), 0.5 - i] for i in range(6)]
    grid = {"origin": (-1.5, -1.0, 0.0), "voxel_size": 0.75, "shape": (4, 3, 4)}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in grid.items()}
    for name, images, pose in (
        ("image", [IMAGE], None),
        ("turned", [IMAGE], QUARTER),
        ("batch", [IMAGE, IMAGE[::-1]], None),
    ):
        batch = name == "batch"
        points = [pixels(image, CAMERA, pose) for image in images]
        features = [colours[::-1] if b else colours for b in range(len(images))]
        outer = (lambda rows: rows) if batch else (lambda rows: rows[0])
        cloud = Cloud(outer(points), outer(features), batch=batch, **grid)
        arguments = image_arguments(outer(images), "uint16", CAMERA, pose, 1e-3) | plain
        coloured = arguments | {"features": array(outer(features), "float32")}
        options = {"cloud": cloud, "op": "voxelize_depth"}
        made += [
            dense(f"{name}_count", reduce="count", arguments=arguments, **options),
            dense(f"{name}_mean", reduce="mean", arguments=coloured, **options),
            sparse(f"{name}_sparse", reduce="max", arguments=coloured, **options),
        ]
    return made


FILES = {
    "transform": transform_cases,
    "crop": crop_cases,
    "unproject": unproject_cases,
    "farthest": farthest_cases,
    "depth": depth_cases,
}


if __name__ == "__main__":
    write("points", FILES)
