"""The oracle itself against NumPy and SciPy, so that a fault is not defined to be right."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import oracle

interp1d = pytest.importorskip("scipy.interpolate").interp1d  # in requirements.txt


def plain_inputs(seed: int, source: int = 30, steps: int = 200, dim: int = 3):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.random(source) + 0.01)
    targets = rng.uniform(times[0] - 1.0, times[-1] + 1.0, steps)
    targets[:source] = times
    return rng.normal(size=(source, dim)), times, targets


@pytest.mark.parametrize("seed", range(5))
def test_linear_is_numpys_interp(seed):
    values, times, targets = plain_inputs(seed)
    got = oracle.resample(values, times, targets).out[0]
    want = np.stack([np.interp(targets, times, column) for column in values.T], axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", oracle.METHODS)
def test_every_method_is_scipys_interp1d_with_nan_outside(method):
    values, times, targets = plain_inputs(11)
    got = oracle.resample(values, times, targets, method=method, extrapolate="nan")
    scipy = interp1d(times, values, kind=method, axis=0, bounds_error=False, fill_value=np.nan)
    np.testing.assert_allclose(got.out[0], scipy(targets), rtol=1e-12, atol=1e-14)
    assert (got.valid[0] == np.isfinite(got.out[0]).all(axis=1)).all()


def test_linear_extrapolation_is_scipys():
    values, times, targets = plain_inputs(12)
    got = oracle.resample(values, times, targets, extrapolate="linear").out[0]
    scipy = interp1d(times, values, axis=0, fill_value="extrapolate")
    np.testing.assert_allclose(got, scipy(targets), rtol=1e-11, atol=1e-13)


def test_a_tie_of_nearest_is_scipys_rounding_down():
    times, targets = np.arange(6.0), np.arange(5.0) + 0.5
    values = np.arange(6.0)[:, None]
    got = oracle.resample(values, times, targets, method="nearest").out[0]
    np.testing.assert_array_equal(got, interp1d(times, values, kind="nearest", axis=0)(targets))
    np.testing.assert_array_equal(got[:, 0], np.arange(5.0))


def test_int64_differences_do_not_overflow():
    low, high = -(2**63), 2**63 - 1
    times = np.array([low, high])
    targets = np.array([low, -1, 0, 2**62, high])
    got = oracle.resample(np.array([[0.0], [1.0]]), times, targets).out[0, :, 0]
    want = [float(Fraction(int(x) - low, high - low)) for x in targets]
    np.testing.assert_array_equal(got, want)


def test_only_the_last_of_equal_stamps_exists():
    times = np.array([0, 0, 10, 10, 10, 20, 20])
    values = np.array([[9.0], [1.0], [8.0], [7.0], [3.0], [6.0], [5.0]])
    targets = np.array([-5, 0, 5, 10, 15, 20, 25])
    got = oracle.resample(values, times, targets).out[0, :, 0]
    np.testing.assert_array_equal(got, [1, 1, 2, 3, 4, 5, 5])
    got = oracle.resample(values, times, targets, extrapolate="linear").out[0, :, 0]
    np.testing.assert_array_equal(got, [0, 1, 2, 3, 4, 5, 6])


def test_gap_hits_and_padding_decide_valid():
    values, times = np.zeros((1, 4, 1)), np.array([[0, 1_000_000_000, 5_000_000_000, 0]])
    targets = np.array([[0, 500_000_000, 3_000_000_000, 5_000_000_000, 6_000_000_000, 0]])
    got = oracle.resample(
        values, times, targets, lengths=np.array([3]), target_lengths=np.array([5]), max_gap=1.0
    )
    np.testing.assert_array_equal(got.valid, [[True, True, False, True, False, False]])
    np.testing.assert_array_equal(np.isnan(got.out[0, :, 0]), [False] * 5 + [True])


def test_error_names_row_and_target():
    with pytest.raises(oracle.OutsideTarget) as caught:
        oracle.resample(
            np.zeros((2, 2, 1)), np.array([0, 10]), np.array([[5, 5], [5, 11]]), extrapolate="error"
        )
    assert (caught.value.row, caught.value.index) == (1, 1)


@pytest.mark.parametrize("method", oracle.METHODS)
@pytest.mark.parametrize("stamp_dtype", ["int64", "float64"])
def test_the_fast_twin_agrees(method, stamp_dtype):
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.integers(1, 9, (3, 40)), axis=1).astype(stamp_dtype)
    targets = rng.integers(-5, 250, (3, 100)).astype(stamp_dtype)
    values = rng.normal(size=(3, 40, 2))
    got = oracle.resample_fast(values, times, targets, method)
    want = oracle.resample(values, times, targets, method=method).out
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
