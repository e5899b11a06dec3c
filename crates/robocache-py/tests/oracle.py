"""What `robocache.resample` must compute, one target at a time.

Written from the contract alone, slow and plain on purpose: it shares no code, no formula order
and no layout tricks with the engine. Stamps of int64 are compared and subtracted as Python
integers, so nothing can overflow; floating stamps are subtracted in their own type, as the
contract says. Everything after that is float64.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

METHODS = ("linear", "nearest", "previous", "next")
EXTRAPOLATIONS = ("clamp", "linear", "nan", "error")

# What `Expected.sample` holds where no single sample is the answer.
MISSING = -1  # NaN for floats, 0 for integers
BLENDED = -2  # computed from two samples, compare with a tolerance


class OutsideTarget(Exception):
    """`extrapolate="error"` met a target outside the first..last stamp."""

    def __init__(self, row: int, index: int) -> None:
        super().__init__(f"row {row}, target {index}")
        self.row = row
        self.index = index


@dataclass
class Expected:
    """The answer, always with a batch axis; `unbatched` says that the caller sees none."""

    out: np.ndarray  # [B,T,D] float64, or the dtype of the values for integers
    valid: np.ndarray  # [B,T] bool
    sample: np.ndarray  # [B,T] index of the sample that must come back bit for bit, or the above
    scale: np.ndarray  # [B,T,D] magnitude that tolerances are relative to
    unbatched: bool


def is_float(dtype: np.dtype) -> bool:
    """Whether values of this dtype can be blended; ml_dtypes' bfloat16 has kind 'V'."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _rows(array: np.ndarray | None, rank: int) -> tuple[np.ndarray | None, int | None]:
    """Adds a batch axis where there is none. The batch size is None for "shared"."""
    if array is None:
        return None, None
    array = np.asarray(array)
    if array.ndim == rank:
        return array[None], None
    assert array.ndim == rank + 1, array.shape
    return array, array.shape[0]


def _last_of_each_run(stamps: list) -> list[int]:
    """Indices of the samples that exist: of equal neighbours only the last one does."""
    return [i for i in range(len(stamps)) if i + 1 == len(stamps) or stamps[i + 1] != stamps[i]]


def _scalars(row: np.ndarray) -> list:
    """Exact Python integers for int64, NumPy scalars of the own type for floats."""
    return [int(x) for x in row] if row.dtype.kind == "i" else list(row)


def _gap_limit(max_gap: float | None, integer_stamps: bool) -> float | int | None:
    if max_gap is None or math.isinf(max_gap):
        return None
    return round(max_gap * 1e9) if integer_stamps else max_gap


def _weight(dt, gap) -> float:
    """dt / gap; Python's int / int is correctly rounded, so no precision is lost for int64."""
    return dt / gap if isinstance(gap, int) else float(dt) / float(gap)


def _rounded_weight(dt, gap, wide: bool) -> float:
    """The weight in the engine's compute type: only whether it is exactly 0 or 1 matters."""
    if wide:
        return _weight(dt, gap)
    with np.errstate(all="ignore"):
        return float(np.float32(float(dt)) / np.float32(float(gap)))


def resample(
    values,
    times,
    targets,
    *,
    method: str = "linear",
    extrapolate: str = "clamp",
    lengths=None,
    target_lengths=None,
    max_gap: float | None = None,
) -> Expected:
    """The contract of `robocache.resample` for inputs that are in order."""
    values, batch_values = _rows(values, 2)
    times, batch_times = _rows(times, 1)
    targets, batch_targets = _rows(targets, 1)
    lengths, batch_lengths = _rows(lengths, 0)
    target_lengths, batch_target_lengths = _rows(target_lengths, 0)
    given = [
        n
        for n in (batch_values, batch_times, batch_targets, batch_lengths, batch_target_lengths)
        if n is not None
    ]
    batch = next((n for n in given if n != 1), 1)
    assert all(n in (1, batch) for n in given), given

    def row_of(array, b):
        return array[0 if array.shape[0] == 1 else b]

    steps, dim = targets.shape[1], values.shape[2]
    floating = is_float(values.dtype)
    wide = values.dtype == np.float64
    out = np.zeros((batch, steps, dim), np.float64 if floating else values.dtype)
    valid = np.zeros((batch, steps), bool)
    sample = np.full((batch, steps), MISSING, np.int64)
    scale = np.zeros((batch, steps, dim), np.float64)
    if floating:
        out[...] = np.nan
    limit = _gap_limit(max_gap, times.dtype.kind == "i")

    for b in range(batch):
        length = values.shape[1] if lengths is None else int(row_of(lengths, b))
        stop = steps if target_lengths is None else int(row_of(target_lengths, b))
        stamps_all = _scalars(row_of(times, b)[:length])
        kept = _last_of_each_run(stamps_all)
        stamps = [stamps_all[i] for i in kept]
        data = row_of(values, b)[:length][kept]
        data = data.astype(np.float64) if floating else data
        row_targets = _scalars(row_of(targets, b)[:stop])
        for t, x in enumerate(row_targets):
            answer = _one(stamps, x, method, extrapolate, limit, wide)
            if answer is None:
                raise OutsideTarget(b, t)
            which, left, weight, ok = answer
            valid[b, t] = ok
            if which >= 0:
                out[b, t] = data[which]
                sample[b, t] = kept[which]
            elif which == BLENDED:
                sample[b, t] = BLENDED
                low, high = data[left], data[left + 1]
                with np.errstate(all="ignore"):
                    out[b, t] = low + weight * (high - low)
                    largest = np.maximum(np.abs(low), np.abs(high))
                    scale[b, t] = largest * max(1.0, 2.0 * abs(weight))
    unbatched = not given
    return Expected(out, valid, sample, scale, unbatched)


def _one(stamps, x, method, extrapolate, limit, wide):
    """(sample or MISSING or BLENDED, left neighbour, weight, valid); None where it must raise."""
    if not stamps or x != x:  # no sample at all, or a NaN target
        return MISSING, 0, 0.0, False
    first, last = stamps[0], stamps[-1]
    if x < first or x > last:
        if extrapolate == "error":
            return None
        if extrapolate == "nan":
            return MISSING, 0, 0.0, False
        if extrapolate == "clamp" or len(stamps) == 1:
            return (0 if x < first else len(stamps) - 1), 0, 0.0, False
        assert method == "linear", "only linear extrapolates"
        left = 0 if x < first else len(stamps) - 2
        inside = False
    else:
        right = bisect_left(stamps, x)
        if stamps[right] == x:
            return right, 0, 0.0, True
        left = right - 1
        inside = True
    before, gap = x - stamps[left], stamps[left + 1] - stamps[left]
    ok = inside and (limit is None or not gap > limit)
    if method == "previous":
        return left, left, 0.0, ok
    if method == "next":
        return left + 1, left, 0.0, ok
    if method == "nearest":
        after = stamps[left + 1] - x
        return (left if before <= after else left + 1), left, 0.0, ok
    rounded = _rounded_weight(before, gap, wide)
    if rounded in (0.0, 1.0):  # a sample with weight zero must not leak, not even its NaN
        return left + int(rounded), left, 0.0, ok
    return BLENDED, left, _weight(before, gap), ok


def resample_fast(values, times, targets, method="linear"):
    """A vectorised twin for large plain inputs: [B,S,D], [B,S] increasing, [B,T], clamped."""
    out = np.empty((values.shape[0], targets.shape[1], values.shape[2]), np.float64)
    for b in range(values.shape[0]):
        stamps, x = times[b], np.clip(targets[b], times[b, 0], times[b, -1])
        right = np.clip(np.searchsorted(stamps, x, side="left"), 0, len(stamps) - 1)
        left = np.where((stamps[right] == x) | (right == 0), right, right - 1)
        before = (x - stamps[left]).astype(np.float64)
        gap = np.where(left == right, 1, stamps[right] - stamps[left]).astype(np.float64)
        data = values[b].astype(np.float64)
        if method == "linear":
            weight = (before / gap)[:, None]
            out[b] = data[left] * (1.0 - weight) + data[right] * weight
        elif method == "nearest":
            out[b] = data[np.where(2.0 * before <= gap, left, right)]
        else:
            out[b] = data[left if method == "previous" else right]
    return out
