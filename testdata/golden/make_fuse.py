#!/usr/bin/env python3
"""Makes testdata/golden/fuse/*.json: every method of alignment, alone and side by side.

    python testdata/golden/make_fuse.py [DIRECTORY]

The format is in common.py, the methods are in alignment.py; neither NumPy nor the engine takes part.
What is copied must have the same bits. What is blended may be off by 2e-6 of the largest sample that
it is made of, by 1e-12 for float64 values; an age by 2e-6 of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from alignment import UNIT, of_unit

from common import EPOCH, NAN, array, flat, nested, rounded, short, write

RELATIVE = {"float64": 1e-12, "float32": 2e-6}
INTEGERS = ("uint8", "int64")
SECOND = 1_000_000_000


@dataclass
class Stream:
    """As robocache.Stream; `values` and `times` with a batch or without, None where it is missing."""

    values: list | None = None
    times: list | None = None
    method: str | list = "linear"
    dtype: str = "float32"
    max_gap: float | None = None
    lengths: list | None = None
    scale: float | None = None
    dim: int | None = None

    @property
    def width(self) -> int:
        if self.values is None:
            return self.dim
        return len(self.values[0][0] if isinstance(self.values[0][0], list) else self.values[0])

    @property
    def sizes(self) -> list[int]:
        """Of the batch axes that there are."""
        sizes = [] if self.lengths is None else [len(self.lengths)]
        if self.values is not None:
            sizes += [len(self.values)] if isinstance(self.values[0][0], list) else []
            sizes += [len(self.times)] if isinstance(self.times[0], list) else []
        return sizes

    def row(self, b: int) -> tuple[list, list]:
        """Stamps and values that exist: up to the length, and of equal stamps the last."""
        values, times = self.values, self.times
        if isinstance(values[0][0], list):
            values = values[b if len(values) > 1 else 0]
        if isinstance(times[0], list):
            times = times[b if len(times) > 1 else 0]
        length = len(times) if self.lengths is None else self.lengths[b]
        samples = {}
        for stamp, row in zip(times[:length], values[:length], strict=True):
            samples[Decimal(stamp)] = [self.number(x) for x in row]
        return list(samples), list(samples.values())

    def number(self, x) -> Decimal:
        """A sample as the engine computes with it."""
        if self.scale is None:
            return x if isinstance(x, Decimal) else Decimal(rounded(x, self.dtype))
        product = Decimal(x) * Decimal(rounded(self.scale, "float32"))
        return Decimal(rounded(product, "float32"))

    def written(self, stamps: str) -> dict:
        """As the test will make it."""
        lengths = {} if self.lengths is None else {"lengths": array(self.lengths, "int64")}
        if self.values is None:
            return {"values": None, "dim": self.dim} | lengths
        plain = {"max_gap": self.max_gap, "scale": self.scale}
        return {
            "values": array(nested(self.values, lambda x: rounded(x, self.dtype)), self.dtype),
            "times": array(self.times, stamps),
            "method": self.method,
            **{k: v for k, v in plain.items() if v is not None},
            **lengths,
        }


@dataclass
class Part:
    """What one stream gives at one target."""

    numbers: list
    bounds: list  # how far each number may be off
    valid: bool = False
    age: float = NAN


def part(stream: Stream, row, x, seconds, extrapolate, floating) -> Part:
    if stream.values is None:
        return Part([0] * stream.dim, [0] * stream.dim)
    stamps, values = row
    if not stamps or x != x:
        return Part([NAN if floating else 0] * stream.width, [0] * stream.width)
    compute = "float64" if stream.dtype == "float64" else "float32"
    made = Part([], [])
    # The sample after the target, or the second or the last one.
    high = next((i for i, stamp in enumerate(stamps) if stamp > x and i), len(stamps) - 1)
    whole = [(stream.method, 0, stream.width)]
    for method, start, end in whole if isinstance(stream.method, str) else stream.method:
        unit = UNIT.get(method, 1)
        for at in range(start, end, unit):
            columns = [v[at : at + unit] for v in values]
            got, factor = of_unit(method, stamps, columns, x, extrapolate, compute)
            reach = 2 if method == "cubic" else 1
            used = columns[max(high - reach, 0) : high + reach]
            largest = max((abs(float(c)) for v in used for c in v if c == c), default=0)
            largest = 1 if method in UNIT else max(largest, 3.2 * (method == "angle"))
            made.numbers += got
            made.bounds += [factor * RELATIVE[compute] * largest] * unit
    made.valid = stamps[0] <= x <= stamps[-1]
    if made.valid and x not in stamps and stream.max_gap is not None:
        gap = Fraction(stamps[high] - stamps[high - 1]) * seconds
        made.valid = gap <= Fraction(stream.max_gap)
    past = [stamp for stamp in stamps if stamp <= x]
    made.age = float(Fraction(x - past[-1]) * seconds) if past else NAN
    return made


def rows_in(streams, targets, target_lengths) -> int | None:
    """The size of the batch; None where nothing has one."""
    sizes = [size for stream in streams for size in stream.sizes]
    sizes += [len(targets)] if isinstance(targets[0], list) else []
    sizes += [] if target_lengths is None else [len(target_lengths)]
    return max(sizes) if sizes else None


def fuse(streams, targets, stamps, *, extrapolate="clamp", target_lengths=None, floating=True):
    """`[B][T][N]` parts."""
    seconds = Fraction(1, 10**9) if stamps == "int64" else Fraction(1)
    batch = []
    for b in range(rows_in(streams, targets, target_lengths) or 1):
        at = targets
        if isinstance(targets[0], list):
            at = targets[b if len(targets) > 1 else 0]
        stop = len(at) if target_lengths is None else target_lengths[b]
        at = [Decimal(x) if t < stop else Decimal("NaN") for t, x in enumerate(at)]
        rows = [stream.row(b) if stream.values is not None else None for stream in streams]
        batch.append(
            [
                [
                    part(stream, row, x, seconds, extrapolate, floating)
                    for stream, row in zip(streams, rows, strict=True)
                ]
                for x in at
            ]
        )
    return batch


def case(name, streams, targets, dtype="float32", stamps="int64", out_dtype=None, **options):
    """Computes what is expected and writes the inputs down beside it. `dtype` is the result's."""
    parts = fuse(streams, targets, stamps, floating=dtype not in INTEGERS, **options)
    lengths = options.pop("target_lengths", None)
    if rows_in(streams, targets, lengths) is None:
        parts = parts[0]
    out = nested_rows(parts, lambda row: [rounded(x, dtype) for p in row for x in p.numbers])
    bounds = nested_rows(parts, lambda row: [short(b) for p in row for b in p.bounds])
    valid = nested_rows(parts, lambda row: [p.valid for p in row])
    age = nested_rows(parts, lambda row: [rounded(p.age, "float32") for p in row])
    bounds = [b if x == x else 0 for x, b in zip(flat(out), flat(bounds), strict=True)]
    tolerance = {"out": bounds, "age": 2e-6} if any(bounds) else {"age": 2e-6}
    arguments = {
        "streams": [stream.written(stamps) for stream in streams],
        "targets": array(targets, stamps),
        "return_valid": True,
        "return_age": True,
        **({} if out_dtype is None else {"out_dtype": out_dtype}),
        **({} if lengths is None else {"target_lengths": array(lengths, "int64")}),
        **options,
    }
    expect = {
        "out": array(out, dtype),
        "valid": array(valid, "bool"),
        "age": array(age, "float32"),
    }
    made = {"name": name, "op": "fuse", "arguments": arguments, "expect": expect}
    return made | {"tolerance": tolerance}


def nested_rows(parts, change):
    """`[B][T]` or `[T]` rows of parts, each changed."""
    if isinstance(parts[0], Part):
        return change(parts)
    return [nested_rows(inner, change) for inner in parts]


def ramp(count: int, dim: int) -> list:
    """Small numbers with few digits that differ in every place."""
    return [[float(10 * s + d + 1) / 4 for d in range(dim)] for s in range(count)]


# Stamps 2.1 ms, 1.8 ms and 4.2 ms apart, and targets before, at, between and after them.
TIMES = [EPOCH + ns for ns in (0, 2_100_033, 3_900_001, 8_100_002)]
TARGETS = [
    EPOCH + ns for ns in (-5, 0, 1, 700_011, 2_100_033, 3_000_000, 6_000_001, 8_100_002, 10**7)
]
HALVES = [0.0, 0.5, 2.0, 2.5]  # seconds
BETWEEN = [-1.0, 0.0, 0.125, 0.25, 0.5, 1.25, 1.5, 2.375, 2.5, 4.0]

# Bumps, a flat piece and a steep end: what the limiter of PCHIP is for.
BUMPY = [[0.0, 1.0], [1.0, 1.0], [0.5, 3.0], [2.0, -7.0]]
# The identity, a turn of 120 degrees about (1, 1, 1) with the other sign, and others of other lengths.
TURNS = [[0, 0, 0, 1.0], [-0.5, -0.5, -0.5, -0.5], [1.0, 2.0, 4.0, 2.0], [0, 0.1875, 0.25, 0.3125]]
ANGLES = [[3.0], [-2.75], [0.5], [7.0]]
SIX = [
    [1.0, 0, 0, 0, 1.0, 0],
    [0, 2.0, 0, -1.0, 0.5, 0],
    [1.0, 2.0, 3.0, -1.0, 0.25, 2.0],
    [0, 0, 1.0, 1.0, 0, 0],
]
BY_METHOD = {
    "linear": ramp(4, 2),
    "nearest": ramp(4, 2),
    "previous": ramp(4, 2),
    "next": ramp(4, 2),
    "cubic": BUMPY,
    "slerp": TURNS,
    "angle": ANGLES,
    "rot6d": SIX,
}


def method_cases() -> list:
    """One stream, every method, values of float32 and float64, most with both sorts of stamps."""
    made = []
    for method, values in BY_METHOD.items():
        for dtype in ("float32", "float64"):
            stream = Stream(values, TIMES, method, dtype)
            made.append(case(f"{method}_{dtype}", [stream], TARGETS, dtype))
        if method not in ("previous", "next", "rot6d"):
            stream = Stream(values, HALVES, method, "float64")
            made.append(case(f"{method}_seconds", [stream], BETWEEN, "float64", "float64"))
    return made


def edge_cases() -> list:
    pi = 3.1415927410125732  # float32
    half = SECOND // 2
    return [
        *(
            case(f"{m}_extrapolated", [Stream(BUMPY, TIMES, m)], TARGETS, extrapolate="linear")
            for m in ("linear", "cubic")
        ),
        case(
            "nan_outside",
            [Stream(v, TIMES, m) for m, v in BY_METHOD.items()],
            TARGETS,
            extrapolate="nan",
        ),
        case("cubic_of_two_is_a_line", [Stream(ramp(2, 2), [0, 8], "cubic")], [0, 2, 6, 8]),
        case("cubic_of_one", [Stream(ramp(1, 2), [5], "cubic")], [4, 5, 6], extrapolate="linear"),
        case(
            "cubic_nan_reaches_two_samples",
            [
                Stream(
                    [[1.0], [2.0], [4.0], [NAN], [5.0], [7.0], [8.0]], [*range(0, 28, 4)], "cubic"
                )
            ],
            [*range(0, 26, 2)],
        ),
        case(
            "cubic_duplicates",
            [Stream([[9.0], [0.0], [1.0], [NAN], [4.0], [5.0]], [0, 0, 4, 8, 8, 12], "cubic")],
            [0, 1, 4, 6, 8, 11, 12],
        ),
        case(
            "slerp_opposite_signs_are_one_rotation",
            [Stream([[0, 0.75, 0, 1.0], [0, -1.5, 0, -2.0]], [0, 8], "slerp", "float64")],
            [0, 1, 4, 7, 8],
            "float64",
        ),
        case(
            "slerp_of_no_direction",
            [Stream([[0, 0, 0, 1.0], [0.0] * 4, [0, 0, 1.0, 0]], [0, 4, 8], "slerp")],
            [0, 2, 4, 6, 8],
        ),
        case("slerp_one_sample", [Stream([[0, 0, 3.0, 4.0]], [5], "slerp")], [4, 5, 6]),
        case(
            "slerp_tiny_angle",
            [Stream([[0, 0, 0, 1.0], [1e-9, 0, 0, 1.0]], [0, 4], "slerp", "float64")],
            [1, 2, 3],
            "float64",
        ),
        case(
            "angle_at_pi",
            [Stream([[pi], [-pi], [1.0], [4.0]], [0, 4, 8, 12], "angle")],
            [0, 4, 8, 12],
        ),
        case(
            "angle_over_the_seam",
            [Stream([[3.0], [-3.0], [3.0]], [0, 1.0, 2.0], "angle", "float64")],
            [0.25, 0.75, 1.25, 1.75],
            "float64",
            "float64",
        ),
        case("angle_of_no_angle", [Stream([[1.0], [2.0**25]], [0, 4], "angle")], [0, 2, 4]),
        case(
            "rot6d_parallel_columns",
            [Stream([[1.0, 0, 0, 2.0, 0, 0], SIX[0]], [0, 4], "rot6d")],
            [0, 4],
        ),
        case(
            "gaps",
            [
                Stream(v, [0, SECOND, 5 * SECOND, 6 * SECOND], m, max_gap=1.0)
                for m, v in BY_METHOD.items()
            ],
            [0, half, SECOND, 3 * SECOND, 5 * SECOND, 5 * SECOND + half, 7 * SECOND],
        ),
    ]


def mixed_cases() -> list:
    row = [
        [*a, *q, float(i), *c]
        for i, (a, q, c) in enumerate(zip(ramp(4, 2), TURNS, BUMPY, strict=True))
    ]
    ranges = [("linear", 0, 2), ("slerp", 2, 6), ("previous", 6, 7), ("cubic", 7, 9)]
    slow = Stream(ramp(2, 3), [EPOCH, EPOCH + 8_000_000], "nearest", max_gap=0.005)
    fast_times = [EPOCH + 2_000_000 * i for i in range(-1, 5)]
    fast = Stream(ramp(6, 1), fast_times, "next", max_gap=0.0025)
    bytes_of = Stream([[7], [250], [0], [255]], TIMES, "previous", "uint8")
    every = [Stream(v, TIMES, m) for m, v in BY_METHOD.items()]
    return [
        case("columns_f32", [Stream(row, TIMES, ranges)], TARGETS),
        case("columns_f64", [Stream(row, TIMES, ranges, "float64")], TARGETS, "float64"),
        case(
            "columns_two_quaternions",
            [Stream([[*a, *b] for a, b in zip(TURNS, TURNS[::-1], strict=True)], TIMES, "slerp")],
            TARGETS,
        ),
        case("every_method_at_once", every, TARGETS),
        case("rates_and_a_missing_one", [slow, Stream(dim=2), fast], TARGETS),
        case("all_missing", [Stream(dim=1), Stream(dim=2)], [0, 1]),
        case("promoted", [slow, Stream(BUMPY, TIMES, "previous", "float64")], TARGETS, "float64"),
        case("bytes_beside_floats", [bytes_of, slow], TARGETS),
        case("only_bytes", [bytes_of, Stream(dim=1), bytes_of], TARGETS, "uint8"),
        case(
            "halves",
            [Stream(ramp(3, 2), [0, 4, 8], dtype="float16")],
            [0, 1, 2, 3, 4, 7],
            "float16",
        ),
        case("out_dtype", [slow, bytes_of], TARGETS, "float64", out_dtype="float64"),
        case(
            "scaled_int8",
            [Stream([[-8], [4], [127]], [0, 4, 8], dtype="int8", scale=0.5)],
            [0, 1, 4, 6],
        ),
        case(
            "duplicates",
            [
                Stream([[9.0], [1.0], [7.0], [3.0]], [0, 0, 4, 4], method)
                for method in ("linear", "nearest", "previous", "next")
            ],
            [-1, 0, 2, 4, 5],
        ),
        case(
            "seconds",
            [Stream(ramp(4, 1), HALVES), Stream(ramp(2, 1), [0.25, 1.5], "previous", max_gap=1.0)],
            [*BETWEEN, NAN],
            stamps="float64",
        ),
        case("f32_seconds", [Stream(BUMPY, HALVES, "cubic")], BETWEEN, stamps="float32"),
    ]


def ragged_cases() -> list:
    # Padding holds stamps in disorder and NaN: nothing of it may be read.
    values = [ramp(3, 2), [[5.0, 6.0], [7.0, 8.0], [NAN, NAN]], [[NAN, NAN]] * 3]
    ragged = Stream(values, [[0, 4, 8], [0, 2, -7], [3, 2, 1]], lengths=[3, 2, 0])
    shared = Stream(TURNS, [0, 3, 6, 9], "slerp", lengths=[4, 1, 2])
    whole = Stream(ramp(4, 1), [0, 2, 6, 9], "cubic")
    targets = [[1, 4, 9], [1, 2, 3], [0, 1, 2]]
    return [
        case("lengths", [ragged, shared, whole], targets),
        case("lengths_nan", [ragged, shared, whole], targets, extrapolate="nan"),
        case("target_lengths", [ragged, Stream(dim=1)], targets, target_lengths=[3, 1, 0]),
        case("shared_targets", [ragged, whole], [1, 4, 9]),
        case("a_missing_one_makes_the_batch", [whole, Stream(dim=1, lengths=[1, 1])], [1, 4]),
    ]


FILES = {
    "methods": method_cases,
    "edges": edge_cases,
    "mixed": mixed_cases,
    "ragged": ragged_cases,
}


if __name__ == "__main__":
    write("fuse", FILES)
