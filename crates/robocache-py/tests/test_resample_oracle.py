"""`resample` against the oracle: random ragged batches over all dtypes, stamps and options."""

from __future__ import annotations

import zlib
from fractions import Fraction

import numpy as np
import pytest

import oracle
import robocache as rc
from generate import EPOCH_NS, combinations, random_case, random_values
from helpers import (
    FLOATS,
    STAMPS,
    TOLERANCE,
    assert_matches,
    assert_same_bits,
    dtype_of,
    on,
    scaled,
    to_numpy,
)


@pytest.mark.parametrize(("dtype", "stamp_dtype", "method", "extrapolate"), combinations())
def test_random_batches(dtype, stamp_dtype, method, extrapolate, device):
    name = f"{dtype} {stamp_dtype} {method} {extrapolate}"
    # Blends are where arithmetic can go wrong, so they get more cases than copies of samples.
    for index in range(scaled(24 if method == "linear" else 6)):
        rng = np.random.default_rng([zlib.crc32(name.encode()), index])
        case = random_case(rng, dtype, stamp_dtype, method, extrapolate)
        out, valid = case.run(rc.resample, on(device), return_valid=True)
        context = f"in case {index} of {name}"
        assert_matches(out, valid, case.expected(), case.values, context)
        plain = case.run(rc.resample, on(device))
        assert_same_bits(plain, out, f"without valid, {context}")
        if device == "cpu" and index % 3 == 0:
            assert_same_bits(case.run(rc.resample, on("cpu", "numpy")), out, f"NumPy, {context}")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stamp_dtype", STAMPS)
def test_unchecked_calls_give_the_same_bits(dtype, stamp_dtype, device):
    for index in range(scaled(6)):
        rng = np.random.default_rng([7, index])
        case = random_case(rng, dtype, stamp_dtype, "linear", "clamp")
        checked = case.run(rc.resample, on(device))
        assert_same_bits(case.run(rc.resample, on(device), check=False), checked)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_epoch_nanoseconds_against_exact_fractions(dtype, device):
    """500 Hz with jitter at today's date: the error must be that of f32 values, not of stamps."""
    rng = np.random.default_rng(2024)
    source, steps, dim = 400, scaled(600), 3
    times = EPOCH_NS + 2_000_000 * np.arange(source) + rng.integers(-300_000, 300_000, source)
    targets = rng.integers(times[0], times[-1], steps)
    values = (rng.normal(size=(source, dim)) * 5.0 + 1.0).astype(dtype)
    place = on(device)
    got = to_numpy(rc.resample(place(values), place(times), place(targets)))
    limit = Fraction(1, 10**6) if dtype == "float32" else Fraction(1, 10**12)
    for t, x in enumerate(targets.tolist()):
        right = int(np.searchsorted(times, x))
        if times[right] == x:
            assert (got[t] == values[right]).all()
            continue
        left = right - 1
        weight = Fraction(x - int(times[left]), int(times[right]) - int(times[left]))
        for d in range(dim):
            low, high = Fraction(float(values[left, d])), Fraction(float(values[right, d]))
            exact = low + weight * (high - low)
            error = abs(Fraction(float(got[t, d])) - exact)
            assert error <= limit * max(abs(low), abs(high)), (t, d, float(error))


@pytest.mark.parametrize("method", oracle.METHODS)
def test_neighbouring_nanoseconds_of_the_epoch_are_told_apart(method, device):
    """f64 seconds cannot tell these stamps apart (they step by 238 ns there); int64 must."""
    times = EPOCH_NS + np.array([0, 1, 2, 3, 1000])
    targets = EPOCH_NS + np.array([0, 1, 2, 3, 4, 501, 502, 1000])
    values = np.array([[0.0], [10.0], [20.0], [30.0], [1027.0]], np.float32)
    place = on(device)
    got = rc.resample(place(values), place(times), place(targets), method=method)
    expected = oracle.resample(values, times, targets, method=method)
    assert_matches(got, None, expected, values, tolerance=1e-6)


def test_stamps_over_the_whole_range_of_int64(device):
    """The gap is 2**64 - 1, more than int64 holds."""
    low, high = -(2**63), 2**63 - 1
    times = np.array([low, high])
    targets = np.array([low, low + 1, -(2**62), -1, 0, 2**62, high - 1, high])
    values = np.array([[1.0], [2.0]], np.float64)
    place = on(device)
    for method in oracle.METHODS:
        got = rc.resample(place(values), place(times), place(targets), method=method)
        want = oracle.resample(values, times, targets, method=method)
        assert_matches(got, None, want, values, method)


# Sizes at and around the widths of registers, blocks and tasks.
EDGES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]


@pytest.mark.parametrize("method", oracle.METHODS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_width_around_powers_of_two(dtype, method, device):
    rng = np.random.default_rng(99)
    times = np.cumsum(rng.integers(1, 2_000_000, (2, 9)), axis=1)
    targets = rng.integers(times.min() - 1000, times.max() + 1000, (2, 21))
    place = on(device)
    for dim in EDGES:
        values = random_values(rng, (2, 9, dim), dtype)
        got = rc.resample(place(values), place(times), place(targets), method=method)
        want = oracle.resample(values, times, targets, method=method)
        assert_matches(got, None, want, values, f"D={dim}")


@pytest.mark.parametrize("method", oracle.METHODS)
@pytest.mark.parametrize(
    ("batch", "source", "steps", "dim"),
    [
        (1, 5000, 20_000, 1),  # one row only: the targets must be split over threads
        (1, 2, 4097, 33),
        (257, 50, 127, 8),
        (3, 4096, 4095, 17),
        (4099, 3, 5, 2),  # many tiny rows
        (2, 100, 3, 20_001),  # very wide samples
    ],
)
def test_large_inputs_that_are_split_over_threads(batch, source, steps, dim, method, device):
    rng = np.random.default_rng([batch, source, steps])
    times = EPOCH_NS + np.cumsum(rng.integers(1, 4_000_000, (batch, source)), axis=1)
    span = times[:, -1:] - times[:, :1]
    targets = times[:, :1] + (rng.uniform(-0.05, 1.05, (batch, steps)) * span).astype(np.int64)
    if batch % 2:  # sorted targets may take another way through the engine than random ones
        targets = np.sort(targets, axis=1)
    values = rng.normal(size=(batch, source, dim)).astype(np.float32)
    place = on(device)
    got = to_numpy(rc.resample(place(values), place(times), place(targets), method=method))
    want = oracle.resample_fast(values, times, targets, method)
    if method == "linear":
        assert np.abs(got - want).max() <= TOLERANCE["float32"] * np.abs(values).max()
    else:
        assert_same_bits(got, want.astype(np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("gap", [1e-300, 1e-46, 1e-43, 1e-39, 1e30, 1e39, 1e300])
def test_float64_stamps_whose_gap_leaves_the_range_of_float32(dtype, gap, device):
    """The weight divides in f32: the quotient must survive when dt and gap do not."""
    times = np.array([0.0, gap])
    targets = np.array([gap * 0.25, gap * 0.5, gap * 0.75])
    values = np.array([[1.0], [2.0]]).astype(dtype_of(dtype))
    place = on(device)
    got = to_numpy(rc.resample(place(values), place(times), place(targets))).astype(np.float64)
    np.testing.assert_allclose(got[:, 0], [1.25, 1.5, 1.75], rtol=1e-6)
