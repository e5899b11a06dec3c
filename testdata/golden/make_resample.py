#!/usr/bin/env python3
"""Makes testdata/golden/resample/*.json: small cases of `resample` that a person can check.

    python testdata/golden/make_resample.py [DIRECTORY]

Expected results are computed here with fractions.Fraction and rounded once, to the nearest even;
neither NumPy nor the engine takes part. The same input gives the same files.

Each file is {"cases": [case, ...]}. A case is

    name            what it shows
    values, times, targets, expect
                    {"dtype", "shape", "bits"}: dtype is float32, float64, uint8 or int64; bits are
                    the elements in row-major order, each the hexadecimal digits of its bit
                    pattern as an unsigned integer, most significant digit first ("3f800000" is
                    1.0f32, "ffffffffffffffff" is -1i64)
    method, extrapolate
                    as in the call
    max_gap         seconds, or null
    lengths, target_lengths
                    a list of integers [B] (pass as int64), or null
    valid           0 or 1 per target, row-major, of the shape of `expect` without its last axis
    ulp             how far a float of the result may be from `expect`, in steps from one float to
                    the next; 0: the same bits. A NaN in `expect` stands for any NaN.

Stamps are int64 nanoseconds or float seconds. The engine divides the weight in f32 (f64 for f64
values), so a blend may differ from the exact result by about 2 ulp of the larger sample; cases
avoid cancellation, so that this is also about 2 ulp of the result.
"""

from __future__ import annotations

from fractions import Fraction

from common import EPOCH, INF, NAN, nearest_float, tensor, write


def resample_row(values, stamps, targets, dtype, method, extrapolate, max_gap, seconds):
    """One row by the rules of the contract. `seconds` is how long one unit of stamps lasts."""
    missing = 0 if dtype == "uint8" else NAN
    samples = {}
    for stamp, value in zip(stamps, values, strict=True):
        samples[stamp] = value  # of equal stamps, the last one stays
    stamps = sorted(samples)
    out, valid = [], []
    for x in targets:
        width = len(values[0]) if values else 0
        if x != x or not stamps:
            out.append([missing] * width)
            valid.append(0)
        elif x in samples:
            out.append(list(samples[x]))
            valid.append(1)
        elif x < stamps[0] or x > stamps[-1]:
            assert extrapolate != "error", "this golden would raise"
            valid.append(0)
            if extrapolate == "nan":
                out.append([missing] * width)
            elif extrapolate == "clamp" or len(stamps) == 1:
                out.append(list(samples[stamps[0] if x < stamps[0] else stamps[-1]]))
            else:
                pair = stamps[:2] if x < stamps[0] else stamps[-2:]
                out.append(blend(samples, *pair, x, dtype))
        else:
            low = max(s for s in stamps if s < x)
            high = min(s for s in stamps if s > x)
            gap = (Fraction(high) - Fraction(low)) * seconds
            valid.append(int(max_gap is None or max_gap == INF or gap <= Fraction(max_gap)))
            earlier = Fraction(x) - Fraction(low) <= Fraction(high) - Fraction(x)
            if method == "linear":
                out.append(blend(samples, low, high, x, dtype))
            elif method == "previous" or (method == "nearest" and earlier):
                out.append(list(samples[low]))
            else:
                out.append(list(samples[high]))
    return out, valid


def blend(samples, low, high, x, dtype):
    weight = (Fraction(x) - Fraction(low)) / (Fraction(high) - Fraction(low))
    out = []
    for a, b in zip(samples[low], samples[high], strict=True):
        if a != a or b != b:
            out.append(NAN)
        else:
            exact = Fraction(a) + weight * (Fraction(b) - Fraction(a))
            out.append(nearest_float(exact, dtype))
    return out


def case(
    name,
    values,
    times,
    targets,
    *,
    dtype="float32",
    stamps="int64",
    method="linear",
    extrapolate="clamp",
    max_gap=None,
    lengths=None,
    target_lengths=None,
    ulp=0,
):
    """Computes what is expected and writes the inputs down beside it."""
    batched = [
        isinstance(values[0][0], list),
        isinstance(times[0], list),
        isinstance(targets[0], list),
    ]
    sizes = [len(x) for x, b in zip((values, times, targets), batched, strict=True) if b]
    sizes += [len(x) for x in (lengths, target_lengths) if x is not None]
    rows = max(sizes, default=1)

    def row(nested, has_batch, b):
        return nested[b if len(nested) > 1 else 0] if has_batch else nested

    seconds = Fraction(1, 10**9) if stamps == "int64" else Fraction(1)
    out, valid = [], []
    for b in range(rows):
        data, stamp, target = (
            row(x, has, b) for x, has in zip((values, times, targets), batched, strict=True)
        )
        length = len(stamp) if lengths is None else lengths[b]
        stop = len(target) if target_lengths is None else target_lengths[b]
        got, ok = resample_row(
            data[:length],
            stamp[:length],
            target[:stop],
            dtype,
            method,
            extrapolate,
            max_gap,
            seconds,
        )
        absent = [0 if dtype == "uint8" else NAN] * len(data[0])
        out.append([r if r else absent for r in got] + [absent] * (len(target) - stop))
        valid += ok + [0] * (len(target) - stop)
    if not sizes:
        out = out[0]
    return {
        "name": name,
        "values": tensor(values, dtype),
        "times": tensor(times, stamps),
        "targets": tensor(targets, stamps),
        "method": method,
        "extrapolate": extrapolate,
        "max_gap": max_gap,
        "lengths": lengths,
        "target_lengths": target_lengths,
        "expect": tensor(out, dtype),
        "valid": valid,
        "ulp": ulp,
    }


def third(n: int) -> float:
    """n/3 as f32: values whose significands are full."""
    return nearest_float(Fraction(n, 3), "float32")


def ramp(count: int, dim: int) -> list:
    """Small whole numbers that differ in every place."""
    return [[float(10 * s + d + 1) for d in range(dim)] for s in range(count)]


def linear_cases() -> list:
    full = [[third(4), third(5)], [third(7), third(8)], [third(5), third(10)]]
    jitter = [EPOCH + 0, EPOCH + 2_100_033, EPOCH + 3_900_001]
    inside = [EPOCH + 1, EPOCH + 700_011, EPOCH + 2_100_032, EPOCH + 2_100_034, EPOCH + 3_000_000]
    return [
        case("quarters", ramp(3, 2), [0, 4, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        case(
            "quarters_of_seconds",
            ramp(3, 2),
            [0.0, 1.0, 2.0],
            [0.25, 0.5, 1.0, 1.75],
            stamps="float64",
        ),
        case(
            "f32_stamps", ramp(3, 1), [0.5, 1.0, 3.0], [0.5, 0.75, 1.5, 2.0, 3.0], stamps="float32"
        ),
        case("f64_values", ramp(3, 1), [0, 4, 8], [1, 4, 7], dtype="float64"),
        case("epoch_thirds_f32", full, jitter, inside, ulp=3),
        case("epoch_thirds_f64", full, jitter, inside, dtype="float64", ulp=3),
        case(
            "seconds_thirds_f64",
            full,
            [0.0, 0.1, 0.3],
            [0.05, 0.1, 0.2, 0.29],
            dtype="float64",
            stamps="float64",
            ulp=3,
        ),
        case(
            "seconds_thirds_f32",
            full,
            [0.0, 0.1, 0.3],
            [0.05, 0.1, 0.2, 0.29],
            stamps="float64",
            ulp=3,
        ),
        case(
            "whole_range_of_int64",
            [[0.0], [1.0]],
            [-(2**63), 2**63 - 1],
            [-(2**63), -(2**62), 0, 2**62, 2**63 - 1],
            dtype="float64",
            ulp=2,
        ),
        case(
            "one_nanosecond_apart",
            ramp(3, 1),
            [EPOCH, EPOCH + 1, EPOCH + 2],
            [EPOCH, EPOCH + 1, EPOCH + 2],
        ),
    ]


def copying_cases() -> list:
    """nearest, previous and next return samples: the same bits for every dtype."""
    made = []
    for method in ("nearest", "previous", "next"):
        for dtype in ("float32", "float64", "uint8"):
            values = [[7, 250], [0, 1], [255, 128]]
            if dtype != "uint8":
                values = [[float(x) / 4 for x in row] for row in values]
            made.append(
                case(
                    f"{method}_{dtype}",
                    values,
                    [EPOCH, EPOCH + 10, EPOCH + 21],
                    [
                        EPOCH - 3,
                        EPOCH,
                        EPOCH + 4,
                        EPOCH + 5,
                        EPOCH + 6,
                        EPOCH + 10,
                        EPOCH + 15,
                        EPOCH + 16,
                        EPOCH + 21,
                        EPOCH + 99,
                    ],
                    dtype=dtype,
                    method=method,
                )
            )
        made.append(
            case(
                f"{method}_seconds",
                ramp(3, 1),
                [0.0, 0.5, 2.0],
                [-1.0, 0.0, 0.125, 0.25, 0.375, 0.5, 1.25, 1.5, 2.0, 3.0],
                stamps="float32",
                method=method,
            )
        )
    return made


def extrapolation_cases() -> list:
    outside = [-8, -1, 0, 2, 8, 9, 16]
    made = [
        case(f"linear_{how}", ramp(3, 2), [0, 4, 8], outside, extrapolate=how)
        for how in ("clamp", "linear", "nan")
    ]
    made += [
        case(f"{method}_nan", ramp(3, 1), [0, 4, 8], outside, method=method, extrapolate="nan")
        for method in ("nearest", "previous", "next")
    ]
    made += [
        case("error_inside", ramp(3, 1), [0, 4, 8], [0, 1, 8], extrapolate="error"),
        case(
            "error_inside_u8",
            [[1], [2]],
            [0, 4],
            [0, 1, 4],
            dtype="uint8",
            method="previous",
            extrapolate="error",
        ),
        case("infinite_targets_clamp", ramp(2, 1), [0.0, 1.0], [-INF, 0.5, INF], stamps="float64"),
        case(
            "infinite_targets_nan",
            ramp(2, 1),
            [0.0, 1.0],
            [-INF, 0.5, INF],
            stamps="float64",
            extrapolate="nan",
        ),
        case("nan_targets", ramp(2, 1), [0.0, 1.0], [NAN, 0.5, NAN], stamps="float32"),
        case(
            "nan_target_u8",
            [[1], [2]],
            [0.0, 1.0],
            [NAN, 1.0],
            dtype="uint8",
            stamps="float64",
            method="nearest",
        ),
        case(
            "nan_target_error",
            ramp(2, 1),
            [0.0, 1.0],
            [NAN, 0.5],
            stamps="float64",
            extrapolate="error",
        ),
        case("one_sample_clamp", ramp(1, 2), [5], [4, 5, 6]),
        case("one_sample_linear", ramp(1, 2), [5], [4, 5, 6], extrapolate="linear"),
        case("one_sample_nan", ramp(1, 2), [5], [4, 5, 6], extrapolate="nan"),
    ]
    return made


def duplicate_cases() -> list:
    values = [[9.0], [1.0], [8.0], [7.0], [3.0], [6.0], [5.0]]
    times = [0, 0, 10, 10, 10, 20, 20]
    targets = [-5, 0, 5, 10, 15, 20, 25]
    made = [
        case(f"{method}_clamp", values, times, targets, method=method)
        for method in ("linear", "nearest", "previous", "next")
    ]
    made += [
        case("linear_extrapolated", values, times, targets, extrapolate="linear"),
        case("all_equal_linear", values[:3], [4, 4, 4], [3, 4, 5], extrapolate="linear"),
        case("seconds", values, [t / 8 for t in times], [t / 8 for t in targets], stamps="float64"),
        case("u8", [[int(v[0])] for v in values], times, targets, dtype="uint8", method="next"),
        # The absent duplicates are NaN here: nothing of them may show.
        case(
            "absent_samples_are_nan",
            [[NAN], [1.0], [NAN], [3.0]],
            [0, 0, 10, 10],
            [-1, 0, 5, 10, 11],
            extrapolate="linear",
            ulp=1,
        ),
    ]
    return made


def valid_cases() -> list:
    second = 1_000_000_000
    times = [0, second, 5 * second]
    targets = [-1, 0, second // 2, second, 3 * second, 5 * second, 6 * second]
    nan_values = [[1.0], [NAN], [3.0], [4.0]]
    return [
        case("gap_of_one_second", ramp(3, 1), times, targets, max_gap=1.0),
        case("gap_zero", ramp(3, 1), times, targets, max_gap=0.0),
        case("gap_infinite", ramp(3, 1), times, targets, max_gap=1e30),
        case("gap_nearest", ramp(3, 1), times, targets, max_gap=2.0, method="nearest"),
        case(
            "gap_previous_u8",
            [[1], [2], [3]],
            times,
            targets,
            dtype="uint8",
            max_gap=2.0,
            method="previous",
        ),
        case(
            "gap_seconds",
            ramp(3, 1),
            [0.0, 1.0, 5.0],
            [0.5, 1.0, 3.0],
            stamps="float32",
            max_gap=1.0,
        ),
        case("nan_reaches_only_its_neighbours", nan_values, [0, 4, 8, 12], [0, 2, 4, 6, 8, 10, 12]),
        case(
            "nan_next_to_exact_hits_extrapolated",
            nan_values,
            [0, 4, 8, 12],
            [-4, 0, 8, 12, 16],
            extrapolate="linear",
        ),
    ]


def ragged_cases() -> list:
    # Padding holds stamps in disorder and NaN: nothing of it may be read.
    values = [ramp(3, 2), [[5.0, 6.0], [7.0, 8.0], [NAN, NAN]], [[NAN, NAN]] * 3]
    times = [[0, 4, 8], [0, 2, -7], [3, 2, 1]]
    targets = [[1, 4, 9], [1, 2, 3], [0, 1, 2]]
    u8 = [[[1], [2], [3]], [[4], [5], [6]]]
    return [
        case("lengths", values, times, targets, lengths=[3, 2, 0]),
        case("lengths_linear", values, times, targets, lengths=[3, 2, 0], extrapolate="linear"),
        case(
            "lengths_error_without_samples",
            values,
            times,
            [[1, 4, 8], [1, 2, 0], [0, 1, 2]],
            lengths=[3, 2, 0],
            extrapolate="error",
        ),
        case(
            "target_lengths",
            values[:2],
            times[:2],
            targets[:2],
            lengths=[3, 2],
            target_lengths=[1, 0],
        ),
        case(
            "u8_padding_is_zero",
            u8,
            times[:2],
            targets[:2],
            dtype="uint8",
            method="nearest",
            lengths=[3, 0],
            target_lengths=[2, 3],
        ),
        case("shared_stamps", [ramp(3, 2), ramp(3, 2)], [0, 4, 8], [[1, 2, 3], [5, 6, 7]]),
        case("shared_values", ramp(3, 2), [[0, 4, 8], [0, 8, 16]], [2, 4]),
        case("batch_of_one", [ramp(3, 1)], [[0, 4, 8]], [[2], [6]]),
        case("lengths_make_the_batch", ramp(3, 1), [0, 4, 8], [6], lengths=[3, 2, 1]),
    ]


FILES = {
    "linear": linear_cases,
    "copying": copying_cases,
    "extrapolate": extrapolation_cases,
    "duplicates": duplicate_cases,
    "valid": valid_cases,
    "ragged": ragged_cases,
}


if __name__ == "__main__":
    write("resample", FILES)
