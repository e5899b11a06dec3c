"""Bad data in good shapes (numbers 31 to 36, 99 and 100 of the list): NaN, stamps, lengths, fork."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import oracle
import robocache as rc
from helpers import FLOATS, assert_matches, assert_same_bits, dtype_of, finfo, on, to_numpy
from refusal import assert_refused, assert_works

VALUES = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
TIMES = np.array([0.0, 1.0, 2.0])
TARGETS = np.array([0.5, 1.0, 1.75])


def refused(error, argument, message, values=VALUES, times=TIMES, targets=TARGETS, **keywords):
    def call():
        return rc.resample(values, times, targets, **keywords)

    return assert_refused(call, error, argument, message)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("method", oracle.METHODS)
def test_31_nan_reaches_only_the_targets_that_use_it(dtype, method, device):
    place = on(device)
    times, targets = np.arange(9.0), np.arange(0.0, 8.01, 0.25)
    for where in range(9):
        values = np.arange(18.0).reshape(9, 2).astype(dtype_of(dtype))
        values[where, 1] = np.nan
        out = rc.resample(place(values), place(times), place(targets), method=method)
        assert_matches(out, None, oracle.resample(values, times, targets, method=method), values)
        nan = np.isnan(to_numpy(out).astype(np.float64))
        assert not nan[:, 0].any(), "the other column is clean"
        reach = {"linear": (-1, 1), "nearest": (-0.5, 0.5), "previous": (0, 1), "next": (-1, 0)}
        low, high = reach[method]
        distance = targets - where
        inside = (distance > low) & (distance < high) | (distance == 0)
        if method == "nearest":
            inside |= distance == 0.5  # a tie takes the earlier sample
        assert (nan[:, 1] == inside).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_31_a_weight_that_rounds_to_zero_or_one_does_not_leak(dtype, device):
    """2**62 ns apart, one ns from the sample: the weight is 2**-62, or 1 after rounding."""
    place = on(device)
    times = np.array([0, 2**62, 2**62 + 2**61])
    values = np.array([[1.0], [np.nan], [2.0]]).astype(dtype_of(dtype))
    targets = np.array([0, 2**62, 2**62 + 2**61, 2**62 - 1, 2**62 + 2**61 - 1])
    out = rc.resample(place(values), place(times), place(targets))
    got = to_numpy(out).astype(np.float64)[:, 0]
    np.testing.assert_array_equal(got, [1.0, np.nan, 2.0, np.nan, 2.0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_31_a_weight_that_underflows_does_not_leak(dtype, device):
    """Later than the stamp, yet by less than the weight's type can say."""
    place = on(device)
    values = np.array([[1.0], [np.nan]]).astype(dtype_of(dtype))
    times, target = np.array([0.0, 1e300]), np.array([1e-300])
    out = rc.resample(place(values), place(times), place(target))
    assert to_numpy(out).astype(np.float64)[0, 0] == 1.0


@pytest.mark.parametrize("stamp_dtype", ["float64", "float32"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_32_stamps_that_are_no_times(stamp_dtype, bad, index, device):
    place = on(device)
    times = np.stack([TIMES, TIMES]).astype(stamp_dtype)
    times[1, index] = bad
    keywords = {"values": place(VALUES), "targets": place(TARGETS.astype(stamp_dtype))}
    refused("InvalidArgument", "times", rf"row 1 .*\b{index}\b", times=place(times), **keywords)
    # The row is cut off before the bad stamp: it is never read.
    if index > 0:
        lengths = place(np.array([3, index]))
        out = rc.resample(times=place(times), lengths=lengths, **keywords)
        assert not np.isnan(to_numpy(out)).any()


@pytest.mark.parametrize("stamp_dtype", ["int64", "float64", "float32"])
@pytest.mark.parametrize("row", [0, 3])
@pytest.mark.parametrize("index", [1, 2, 17, 39])
def test_33_unsorted_stamps(stamp_dtype, row, index, device):
    place = on(device)
    times = np.tile(np.arange(40), (4, 1)).astype(stamp_dtype)
    times[row, index] = times[row, index - 1] - 1
    values, targets = np.zeros((40, 1), np.float32), np.array([1]).astype(stamp_dtype)
    message = rf"row {row} .*decreases.*\b{index}\b"
    refused("InvalidArgument", "times", message, place(values), place(times), place(targets))


def test_33_unsorted_stamps_that_nobody_checks(device):
    """`check=False`: any values, but a result of the right shape and no crash."""
    rng = np.random.default_rng(33)
    place = on(device)
    for trial in range(50):
        times = rng.normal(size=(3, 20))
        times[rng.random((3, 20)) < 0.2] = np.nan
        targets = rng.normal(size=(3, 30))
        for method in oracle.METHODS:
            lengths = place(rng.integers(-5, 50, 3))
            out, valid = rc.resample(
                place(rng.normal(size=(3, 20, 2))),
                place(times),
                place(targets),
                method=method,
                lengths=lengths,
                target_lengths=lengths,
                check=False,
                return_valid=True,
            )
            assert out.shape == (3, 30, 2) and valid.shape == (3, 30), trial
    assert_works()


@pytest.mark.parametrize("method", oracle.METHODS)
@pytest.mark.parametrize("stamp_dtype", ["int64", "float64", "float32"])
def test_34_duplicate_stamps(method, stamp_dtype, device):
    place = on(device)
    times = np.array([0, 0, 1, 1, 1, 2, 4, 4]).astype(stamp_dtype)
    targets = np.array([0, 1, 2, 3, 4, -1, 5]).astype(stamp_dtype)
    values = np.arange(8.0, dtype=np.float32)[:, None]
    values[[0, 2, 3, 6]] = np.nan  # the absent ones; nothing of them may show
    out = rc.resample(place(values), place(times), place(targets), method=method)
    assert_matches(out, None, oracle.resample(values, times, targets, method=method), values)
    assert not np.isnan(to_numpy(out)).any()


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000])
def test_34_nothing_but_duplicates(count, device):
    place = on(device)
    values = np.arange(count, dtype=np.float64)[:, None]
    times, targets = np.full(count, 7.0), np.array([6.0, 7.0, 8.0])
    for extrapolate in ("clamp", "linear"):
        out = rc.resample(place(values), place(times), place(targets), extrapolate=extrapolate)
        np.testing.assert_array_equal(to_numpy(out)[:, 0], [count - 1] * 3)


def test_35_float32_stamps_too_coarse_to_be_times(device):
    place = on(device)
    values, targets = place(VALUES), place(TARGETS.astype("f4"))
    for bad in ([0, 1, 1.7e18], [-1.7e9, 0, 1], [0, 1, 2**24 + 2]):
        times = place(np.array(bad, "f4"))
        refused("InvalidArgument", "times", "int64.*float64|float64.*int64", values, times, targets)
        assert rc.resample(values, times, targets, check=False).shape == (2, 3, 2)
    edge = place(np.array([0, 1, 2**24], "f4"))
    assert rc.resample(values, edge, targets).shape == (2, 3, 2)
    wide = place(np.array([0, 1, 1.7e18]))
    assert rc.resample(values, wide, place(TARGETS)).shape == (2, 3, 2)


@pytest.mark.parametrize("method", oracle.METHODS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_36_odd_floats_come_back_as_they_are(dtype, method, device):
    """Hits return the sample: denormals, -0, infinities and the largest number included."""
    place = on(device)
    kind = dtype_of(dtype)
    smallest = np.array([1], f"u{kind.itemsize}").view(kind).astype(np.float64)[0]
    odd = np.array([smallest, -smallest, 0.0, -0.0, np.inf, -np.inf, 1.0]).astype(kind)
    times = np.arange(len(odd)) * 1.0
    out = rc.resample(place(odd[:, None]), place(times), place(times), method=method)
    assert_same_bits(out, odd[:, None])


@pytest.mark.parametrize("dtype", FLOATS)
def test_36_denormals_are_not_flushed(dtype, device):
    place = on(device)
    kind = dtype_of(dtype)
    units = np.array([2, 6], f"u{kind.itemsize}").view(kind)[:, None]
    out = rc.resample(place(units), place(np.array([0.0, 1.0])), place(np.array([0.25, 0.5])))
    assert_same_bits(out, np.array([3, 4], f"u{kind.itemsize}").view(kind)[:, None])


def test_36_f16_overflows_to_infinity(device):
    place = on(device)
    values = np.array([[0.0, 0.0], [60_000.0, -60_000.0]], np.float16)
    times, targets = np.array([0.0, 1.0]), np.array([0.5, 2.0])
    out = rc.resample(place(values), place(times), place(targets), extrapolate="linear")
    want = np.array([[30_000.0, -30_000.0], [np.inf, -np.inf]], np.float16)
    assert_same_bits(out, want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_36_ends_too_far_apart_to_subtract(dtype, device):
    """b - a overflows, but every point between them is finite."""
    place = on(device)
    largest = float(finfo(dtype_of(dtype)).max)
    values = np.array([[-largest], [largest]]).astype(dtype_of(dtype))
    times, targets = np.array([0.0, 4.0]), np.array([1.0, 2.0, 3.0])
    got = to_numpy(rc.resample(place(values), place(times), place(targets))).astype(np.float64)
    want = np.array([-0.5, 0.0, 0.5]) * largest
    np.testing.assert_allclose(got[:, 0], want, rtol=1e-2 if "16" in dtype else 1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("along", [10.0, 100.0, 1e6, np.inf])
def test_36_a_line_that_leaves_the_range_goes_to_its_own_infinity(dtype, along, device):
    """Extrapolated far enough a rising line is +inf and a falling one -inf, never the other."""
    place = on(device)
    largest = float(finfo(dtype_of(dtype)).max)
    values = np.array([[0.25, -0.25, 0.5], [0.5, -0.5, 0.25]]) * largest
    times, targets = np.array([0.0, 1.0]), np.array([along, -along])
    arguments = place(values.astype(dtype_of(dtype))), place(times), place(targets)
    got = to_numpy(rc.resample(*arguments, extrapolate="linear")).astype(np.float64)
    np.testing.assert_array_equal(got, np.array([[1, -1, -1], [-1, 1, 1]]) * np.inf)


@pytest.mark.parametrize("dtype", FLOATS)
def test_36_infinite_values(dtype, device):
    """Between a number and an infinity lies the infinity, from the first weight that is not 0."""
    place = on(device)
    values = np.array([[1.0, 1.0], [np.inf, -np.inf], [2.0, 2.0]]).astype(dtype_of(dtype))
    times, targets = np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.25, 1.0, 1.75, 2.0])
    got = to_numpy(rc.resample(place(values), place(times), place(targets))).astype(np.float64)
    want = [[1, 1], [np.inf, -np.inf], [np.inf, -np.inf], [np.inf, -np.inf], [2, 2]]
    np.testing.assert_array_equal(got, want)


BAD_LENGTHS = [
    pytest.param([-1, 3], r"row 0 .*-1", id="99-negative"),
    pytest.param([3, -(2**63)], r"row 1 .*-9223372036854775808", id="99-most-negative"),
    pytest.param([3, 4], r"row 1 .*\b4\b", id="99-too-large"),
    pytest.param([2**62, 3], r"row 0 .*4611686018427387904", id="99-huge"),
]


@pytest.mark.parametrize("name", ["lengths", "target_lengths"])
@pytest.mark.parametrize(("lengths", "message"), BAD_LENGTHS)
def test_lengths_out_of_range(name, lengths, message, device):
    place = on(device)
    arguments = place(VALUES), place(TIMES), place(TARGETS)
    bad = {name: place(np.array(lengths, np.int64))}
    refused("InvalidArgument", name, message, *arguments, **bad)
    # Unchecked, they are clamped before they index anything.
    unchecked = rc.resample(*arguments, check=False, **bad)
    clamped = {name: place(np.clip(np.array(lengths), 0, 3))}
    assert_same_bits(unchecked, rc.resample(*arguments, **clamped))


@pytest.mark.parametrize("name", ["lengths", "target_lengths"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool", "uint64"])
def test_99_lengths_of_another_dtype(name, dtype, device):
    place = on(device)
    bad = {name: place(np.ones(2, dtype))}
    refused("InvalidArgument", name, dtype, place(VALUES), place(TIMES), place(TARGETS), **bad)


@pytest.mark.parametrize("name", ["lengths", "target_lengths"])
def test_99_lengths_of_another_shape(name):
    refused("InvalidArgument", name, r"\[B\]", **{name: np.ones((2, 1), np.int64)})
    refused("InvalidArgument", name, "3.*2", **{name: np.ones(3, np.int64)})


@pytest.mark.parametrize("name", ["values", "times", "targets", "lengths", "target_lengths", "out"])
def test_99_a_tensor_on_another_device(name, device):
    place = on(device)
    keywords = {
        "values": place(VALUES),
        "times": place(TIMES),
        "targets": place(TARGETS),
        "lengths": place(np.array([3, 3])),
        "target_lengths": place(np.array([3, 3])),
        "out": place(np.zeros((2, 3, 2), np.float32)),
    }
    keywords[name] = keywords[name].to("meta")
    with pytest.raises((rc.InvalidArgument, rc.Unsupported)) as caught:
        rc.resample(**keywords)
    assert caught.value.argument == name and "meta" in str(caught.value)
    assert_works()


def large_resample() -> np.ndarray:
    """Enough work that it is spread over the pool."""
    rng = np.random.default_rng(100)
    values = rng.normal(size=(16, 200, 64)).astype(np.float32)
    return rc.resample(values, np.arange(200.0), rng.uniform(0, 199, (16, 2000)))


def exit_code_of(child: int, seconds: float) -> int | None:
    """The exit code of a forked child, or None when it did not end in time (it is then ended)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("rounds", [1, 5])
def test_100_a_forked_child_computes(rounds):
    want = large_resample()  # the pool of the parent runs now
    for _ in range(rounds):
        child = os.fork()
        if child == 0:  # nothing of pytest may run here, whatever happens
            try:
                os._exit(0 if np.array_equal(large_resample(), want) else 3)
            finally:
                os._exit(4)
        assert exit_code_of(child, 60.0) == 0
        assert np.array_equal(large_resample(), want), "the parent still computes"
