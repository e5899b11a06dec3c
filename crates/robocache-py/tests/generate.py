"""Random inputs of `resample` that visit the corners: ragged rows with garbage in their padding,
duplicates, exact hits, ties, neighbours of stamps, targets outside, NaN and infinite targets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import oracle
from helpers import COPIED, FLOATS, STAMPS, assert_matches, dtype_of

EPOCH_NS = 1_760_000_000_000_000_000


@dataclass
class Case:
    """Inputs in neutral form. `options` are the keywords beside method and extrapolate."""

    values: np.ndarray
    times: np.ndarray
    targets: np.ndarray
    method: str
    extrapolate: str
    options: dict = field(default_factory=dict)

    def expected(self) -> oracle.Expected:
        return oracle.resample(
            self.values,
            self.times,
            self.targets,
            method=self.method,
            extrapolate=self.extrapolate,
            **self.options,
        )

    def verify(self, op, place) -> None:
        """Calls the op with every array where `place` puts it, and compares."""
        out, valid = self.run(op, place, return_valid=True)
        assert_matches(out, valid, self.expected(), self.values)

    def run(self, resample, place, **more):
        """Calls the op under test with every array where `place` puts it."""
        options = {
            key: place(value) if isinstance(value, np.ndarray) else value
            for key, value in self.options.items()
        }
        return resample(
            place(self.values),
            place(self.times),
            place(self.targets),
            method=self.method,
            extrapolate=self.extrapolate,
            **options,
            **more,
        )


def random_values(rng: np.random.Generator, shape, dtype: str, nan_share: float = 0.0):
    """Values over the whole range of integers; floats of mixed signs and magnitudes."""
    kind = dtype_of(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not oracle.is_float(kind):
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)
    values[rng.random(shape) < 0.05] = 0.0
    values[rng.random(shape) < 0.02] = -0.0
    values[rng.random(shape) < nan_share] = np.nan
    return values.astype(kind)


def random_stamps(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Sorted stamps at about 500 Hz with jitter, runs of duplicates and sometimes a long pause."""
    steps = rng.integers(1, 4_000_000, count)
    steps[rng.random(count) < 0.15] = 0
    steps[rng.random(count) < 0.05] *= 400
    nanoseconds = np.cumsum(steps)
    if dtype == "int64":
        return nanoseconds + rng.choice([0, -EPOCH_NS, EPOCH_NS, -5_000_000])
    origin = rng.choice([0.0, -3.0, 40.0]) if dtype == "float32" else rng.choice([-7.0, 1.76e9])
    return np.sort((origin + nanoseconds * 1e-9).astype(dtype))


def random_targets(rng, stamps: np.ndarray, count: int, method: str, extrapolate: str):
    """Targets of all sorts around sorted `stamps` (which may be none at all)."""
    floating = stamps.dtype.kind == "f"
    if len(stamps) == 0:
        return rng.integers(0, 100, count).astype(stamps.dtype)
    first, last = stamps[0], stamps[-1]
    margin = 1e-2 if floating else 10_000_000
    which = rng.integers(0, len(stamps), count)
    left, right = stamps[which], stamps[np.minimum(which + 1, len(stamps) - 1)]
    inside = left + (rng.random(count) * (right - left)).astype(stamps.dtype)
    middle = left + (right - left) // 2 if not floating else left + (right - left) / 2
    above = np.nextafter(left, np.array(np.inf, left.dtype)) if floating else left + 1
    below = np.nextafter(left, np.array(-np.inf, left.dtype)) if floating else left - 1
    beyond = (rng.random(count) * margin).astype(stamps.dtype)
    kinds = [inside, inside, left, middle, above, below, first - beyond, last + beyond]
    targets = np.choose(rng.integers(0, len(kinds), count), kinds)
    if extrapolate == "error":
        targets = np.clip(targets, first, last)
    if floating:
        targets[rng.random(count) < 0.05] = np.nan
        # What an infinite step along a slope is, nobody defined; everywhere else it is "outside".
        if extrapolate not in ("error", "linear"):
            odd = rng.random(count) < 0.05
            targets[odd] = rng.choice([np.inf, -np.inf], int(odd.sum()))
    return targets.astype(stamps.dtype)


def _batch_shape(rng, batch: int | None) -> int | None:
    """How one argument takes part: not batched, a batch of one (both shared), or batched."""
    if batch is None:
        return None
    return [None, 1, batch][rng.integers(0, 3)]


def random_case(rng, dtype: str, stamp_dtype: str, method: str, extrapolate: str) -> Case:
    """One random call. Row counts and widths straddle the widths of vector registers."""
    batch = [None, 1, 2, 3, 5][rng.integers(0, 5)]
    source = int(rng.choice([1, 2, 3, 7, 20, 41]))
    steps = int(rng.choice([0, 1, 2, 15, 33, 64]))
    dim = int(rng.choice([0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 33]))
    ragged = batch is not None and rng.random() < 0.6
    ragged_targets = batch is not None and rng.random() < 0.5
    with_values, with_times, with_targets = (_batch_shape(rng, batch) for _ in range(3))
    if batch is not None and not (ragged or ragged_targets):
        with_values = batch  # something must carry the batch
    options: dict = {}
    length_dtype = rng.choice(["int32", "int64"])
    # Rows that share their stamps must agree with every length, so targets are made per row.
    lengths = rng.integers(0, source + 1, batch).astype(length_dtype) if ragged else None
    if ragged:
        options["lengths"] = lengths
    if ragged_targets:
        options["target_lengths"] = rng.integers(0, steps + 1, batch).astype(length_dtype)
    if rng.random() < 0.5:
        options["max_gap"] = float(rng.choice([0.0, 1.00017e-3, 3.3331e-3, 0.7, np.inf]))

    rows = with_times or 1
    times = np.stack([random_stamps(rng, source, stamp_dtype) for _ in range(rows)])
    target_rows = []
    for b in range(with_targets or 1):
        length = source
        if ragged:  # shared targets under "error" must lie inside every row: see below
            length = int(lengths[b]) if (with_targets or 1) > 1 else int(lengths.max())
        stamps = times[b if rows > 1 else 0][:length]
        target_rows.append(random_targets(rng, stamps, steps, method, extrapolate))
    targets = np.stack(target_rows)
    values = random_values(rng, (with_values or 1, source, dim), dtype, nan_share=0.03)

    case = Case(values, times, targets, method, extrapolate, options)
    if extrapolate == "error":
        _pull_inside(case)
    if ragged and rows == batch:
        for b in range(batch):  # stamps past the length are never read: leave them in disorder
            times[b, lengths[b] :] = np.nan if times.dtype.kind == "f" else -(2**63)
    if ragged and (with_values or 1) == batch and oracle.is_float(values.dtype):
        for b in range(batch):
            values[b, lengths[b] :] = np.nan
    if with_values is None:
        case.values = values[0]
    if with_times is None:
        case.times = times[0]
    if with_targets is None:
        case.targets = targets[0]
    return case


def _pull_inside(case: Case) -> None:
    """Moves targets that a row would refuse to one of its stamps, until no row refuses."""
    for _ in range(case.targets.size * 4 + 4):
        try:
            case.expected()
            return
        except oracle.OutsideTarget as outside:
            rows = case.targets.shape[0]
            row = outside.row if rows > 1 else 0
            first = case.times[outside.row if case.times.shape[0] > 1 else 0, 0]
            case.targets[row, outside.index] = first
            if rows == 1 and case.times.shape[0] > 1:
                # Shared targets, different stamps: no common time may exist, so use NaN or
                # make the rows equal.
                case.times[...] = case.times[:1]
    raise AssertionError("could not make a case without outside targets")


def combinations():
    """(dtype, stamp dtype, method, extrapolation) wherever the contract allows all four."""
    for dtype in COPIED:
        for stamp_dtype in STAMPS:
            for method in oracle.METHODS:
                for extrapolate in oracle.EXTRAPOLATIONS:
                    floating = dtype in FLOATS
                    if method == "linear" and not floating:
                        continue  # blending integers is an error, see test_table.py
                    if extrapolate == "linear" and method != "linear":
                        continue  # these cannot extrapolate
                    if extrapolate == "nan" and not floating:
                        continue  # integers have no NaN
                    yield dtype, stamp_dtype, method, extrapolate
