"""Laws that hold for every input of `resample`, searched by Hypothesis."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oracle
import robocache as rc
from generate import EPOCH_NS
from helpers import FLOATS, assert_same_bits, on, to_numpy

MAX_SOURCE, MAX_STEPS, MAX_DIM = 12, 16, 20


@st.composite
def problems(draw, batched=False, stamp_dtypes=("int64", "float64", "float32")):
    """values, times, targets and keywords; duplicates, hits and outside targets are common."""
    rows = draw(st.integers(1, 4)) if batched else 1
    source, steps = draw(st.integers(1, MAX_SOURCE)), draw(st.integers(1, MAX_STEPS))
    dim = draw(st.integers(1, MAX_DIM))
    stamp_dtype = draw(st.sampled_from(stamp_dtypes))
    # Whole numbers of eighths are exact in every stamp type: hits and ties really happen.
    ticks = hnp.arrays(np.int64, (rows, source), elements=st.integers(0, 40))
    times = np.sort(draw(ticks), axis=1)
    targets = draw(hnp.arrays(np.int64, (rows, steps), elements=st.integers(-10, 90)))
    if stamp_dtype == "int64":
        times, targets = times * 2 + EPOCH_NS, targets + EPOCH_NS
    else:
        times, targets = (times / 4.0).astype(stamp_dtype), (targets / 8.0).astype(stamp_dtype)
    numbers = st.floats(-1000.0, 1000.0, width=32)
    values = draw(hnp.arrays(np.float32, (rows, source, dim), elements=numbers))
    method = draw(st.sampled_from(oracle.METHODS))
    choices = ["clamp", "nan"] + (["linear"] if method == "linear" else [])
    keywords = {"method": method, "extrapolate": draw(st.sampled_from(choices))}
    if draw(st.booleans()):
        keywords["max_gap"] = draw(st.sampled_from([0.0, 2e-9, 0.5, 3.0]))
    if batched:
        if draw(st.booleans()):
            lengths = draw(hnp.arrays(np.int64, rows, elements=st.integers(0, source)))
            keywords["lengths"] = lengths
        return values, times, targets, keywords
    return values[0], times[0], targets[0], keywords


def run(device, values, times, targets, keywords):
    place = on(device)
    keywords = dict(keywords)
    if "lengths" in keywords:
        keywords["lengths"] = place(keywords["lengths"])
    return rc.resample(place(values), place(times), place(targets), return_valid=True, **keywords)


@given(problem=problems(), data=st.data())
def test_the_order_of_targets_does_not_matter(device, problem, data):
    values, times, targets, keywords = problem
    order = np.array(data.draw(st.permutations(range(len(targets)))))
    out, valid = run(device, values, times, targets, keywords)
    out_shuffled, valid_shuffled = run(device, values, times, targets[order], keywords)
    assert_same_bits(out_shuffled, to_numpy(out)[order])
    assert_same_bits(valid_shuffled, to_numpy(valid)[order])


@given(problem=problems(), constant=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_constant_stays_exactly_constant(device, problem, constant):
    values, times, targets, keywords = problem
    values = np.full_like(values, constant)
    out = to_numpy(run(device, values, times, targets, keywords)[0])
    present = ~np.isnan(out) if keywords["extrapolate"] == "nan" else np.ones(out.shape, bool)
    assert (out[present] == np.float32(constant)).all()
    assert present[(targets >= times[0]) & (targets <= times[-1])].all()


@given(
    problem=problems(stamp_dtypes=("int64", "float64")),
    slope=st.floats(-100.0, 100.0),
    offset=st.floats(-100.0, 100.0),
)
def test_linear_reproduces_affine_functions_of_time(device, problem, slope, offset):
    _, times, targets, keywords = problem
    keywords = {**keywords, "method": "linear", "extrapolate": "linear"}
    origin = times[0]
    values = (slope * (times - origin).astype(np.float64) + offset)[:, None]
    out, _ = run(device, values, times, targets, keywords)
    along = (targets - origin).astype(np.float64)
    if len(np.unique(times)) == 1:
        along[:] = 0.0  # one distinct stamp carries no slope: a constant
    largest = np.abs(along).max() * abs(slope) + abs(offset)
    np.testing.assert_allclose(
        to_numpy(out)[:, 0], slope * along + offset, rtol=0, atol=1e-12 * largest + 1e-300
    )


@given(problem=problems(stamp_dtypes=("int64",)), shift=st.integers(-(2**62), 2**62))
def test_shifting_all_int64_stamps_changes_no_bit(device, problem, shift):
    values, times, targets, keywords = problem
    want, want_valid = run(device, values, times, targets, keywords)
    out, valid = run(device, values, times + shift, targets + shift, keywords)
    assert_same_bits(out, want)
    assert_same_bits(valid, want_valid)


@given(problem=problems(batched=True))
def test_a_batch_is_its_rows_one_by_one(device, problem):
    values, times, targets, keywords = problem
    out, valid = run(device, values, times, targets, keywords)
    lengths = keywords.pop("lengths", None)
    for b in range(len(values)):
        source = values.shape[1] if lengths is None else int(lengths[b])
        if source == 0:
            assert np.isnan(to_numpy(out)[b]).all() and not to_numpy(valid)[b].any()
            continue
        row, row_valid = run(device, values[b, :source], times[b, :source], targets[b], keywords)
        assert_same_bits(row, to_numpy(out)[b])
        assert_same_bits(row_valid, to_numpy(valid)[b])


@given(problem=problems(), rows=st.integers(1, 5))
def test_what_is_shared_equals_its_copies(device, problem, rows):
    values, times, targets, keywords = problem
    want, want_valid = run(device, values, times, targets, keywords)
    repeated = np.repeat(targets[None], rows, axis=0)
    for shared_values, shared_times in itertools.product(
        (values, values[None]), (times, times[None])
    ):
        out, valid = run(device, shared_values, shared_times, repeated, keywords)
        assert_same_bits(out, np.repeat(to_numpy(want)[None], rows, axis=0))
        assert_same_bits(valid, np.repeat(to_numpy(want_valid)[None], rows, axis=0))


def strided_copies(tensor: torch.Tensor):
    """Views with the same elements as `tensor`, each in a way that vector loads dislike."""
    last = tensor.dim() - 1
    yield "transposed", tensor.transpose(0, last).contiguous().transpose(0, last)
    stepped = tensor.new_zeros([*tensor.shape[:-1], tensor.shape[-1] * 2 + 1])
    stepped[..., 1::2] = tensor
    yield "every second element", stepped[..., 1::2]
    outer = tensor.new_zeros([tensor.shape[0] * 3, *tensor.shape[1:]])
    outer[2::3] = tensor
    yield "every third row", outer[2::3]
    flat = tensor.new_zeros(tensor.numel() + 1)
    flat[1:] = tensor.reshape(-1)
    yield "one element off", flat[1:].view(tensor.shape)
    padded = tensor.new_zeros([*tensor.shape[:-1], tensor.shape[-1] + 3])
    padded[..., 2:-1] = tensor
    yield "a column range", padded[..., 2:-1]


@given(problem=problems(batched=True), dtype=st.sampled_from(FLOATS))
def test_views_give_the_bits_of_their_copies(device, problem, dtype):
    values, times, targets, keywords = problem
    place = on(device)
    arguments = [place(values).to(getattr(torch, dtype)), place(times), place(targets)]
    if "lengths" in keywords:
        keywords["lengths"] = place(keywords["lengths"])
    want, want_valid = rc.resample(*arguments, return_valid=True, **keywords)
    for which in range(3):
        for name, view in strided_copies(arguments[which]):
            changed = [*arguments[:which], view, *arguments[which + 1 :]]
            out, valid = rc.resample(*changed, return_valid=True, **keywords)
            assert_same_bits(out, want, f"argument {which}: {name}")
            assert_same_bits(valid, want_valid, f"argument {which}: {name}")


@given(problem=problems(), rows=st.integers(1, 4))
def test_expanded_views_give_the_bits_of_their_copies(device, problem, rows):
    values, times, targets, keywords = problem
    place = on(device)
    arguments = [place(x).expand(rows, *x.shape) for x in (values, times, targets)]
    out, valid = rc.resample(*arguments, return_valid=True, **keywords)
    copies = [x.contiguous() for x in arguments]
    want, want_valid = rc.resample(*copies, return_valid=True, **keywords)
    assert_same_bits(out, want)
    assert_same_bits(valid, want_valid)
    # One value column for all of D: the innermost stride is 0.
    narrow = place(values)[:, :1].expand(-1, 7)
    rest = arguments[1][0], arguments[2][0]
    want = rc.resample(narrow.contiguous(), *rest, **keywords)
    assert_same_bits(rc.resample(narrow, *rest, **keywords), want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@given(problem=problems(batched=True))
def test_negative_strides_give_the_bits_of_their_copies(axis, problem):
    """NumPy only: torch has no negative strides."""
    values, times, targets, keywords = problem
    flipped = np.flip(np.ascontiguousarray(np.flip(values, axis)), axis)
    assert flipped.size <= 1 or flipped.strides[axis] < 0 or flipped.shape[axis] == 1
    backwards = np.ascontiguousarray(np.flip(targets, 1))[:, ::-1]
    backward_times = np.ascontiguousarray(np.flip(times, 1))[:, ::-1]
    want, want_valid = rc.resample(values, times, targets, return_valid=True, **keywords)
    out, valid = rc.resample(flipped, backward_times, backwards, return_valid=True, **keywords)
    assert_same_bits(out, want)
    assert_same_bits(valid, want_valid)
