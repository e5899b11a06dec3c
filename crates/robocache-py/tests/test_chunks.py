"""Calls in parts: `chunk=` and `max_memory=` give the bits of the whole, for every op of the table."""

from __future__ import annotations

import contextlib
import dataclasses
from operator import attrgetter

import numpy as np
import pytest
import torch

import cases
import robocache as rc
from devices import DEVICES, marks
from helpers import assert_same_bits, on, to_numpy

ROWS = [
    pytest.param(*row, id=f"{row[0]}-{row[1].name}-{row[2]}-{row[3]}", marks=marks(row[3]))
    for row in cases.sample_rows(DEVICES)
    if row[0] != "voxelize_pointcloud"  # an older name, which takes less
]


def flat(result) -> list:
    """All tensors of a result."""
    if dataclasses.is_dataclass(result):
        result = [getattr(result, field.name) for field in dataclasses.fields(result)]
    if isinstance(result, (tuple, list)):
        return [tensor for each in result for tensor in flat(each)]
    return [] if result is None else [to_numpy(result)]


def assert_same(got, want, context) -> None:
    got, want = flat(got), flat(want)
    assert len(got) == len(want), context
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, context
        assert_same_bits(mine, theirs, context)


@pytest.mark.parametrize(("op", "sample", "dtype", "device"), ROWS)
def test_parts_have_the_bits_of_the_whole(op, sample, dtype, device):
    function = attrgetter(op)(rc)

    def in_parts(*arguments, **options):
        with rc.memory_profile() as profile:
            whole = function(*arguments, **options)
        for size in (1, 2, 5):
            assert_same(function(*arguments, **options, chunk=size), whole, f"chunk={size}")
        most = max(snapshot.bytes for snapshot in profile.snapshots)
        assert_same(function(*arguments, **options, max_memory=max(most, 1)), whole, "all")
        for budget in (most * 2 // 3, most // 4):
            # What cannot be cut so far is refused.
            with contextlib.suppress(rc.InvalidArgument):
                got = function(*arguments, **options, max_memory=max(budget, 1))
                assert_same(got, whole, f"max_memory={budget}")
        return whole

    sample.make(dtype).verify(in_parts, on(device))


def trajectory(batch=7, samples=50, targets=40, width=6):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(batch, samples, width)).astype(np.float32)
    times = np.sort(rng.integers(0, 10**9, (batch, samples)), axis=1)
    return values, times, np.sort(rng.integers(0, 10**9, (batch, targets)), axis=1)


def counted(op="resample"):
    return rc.metrics().get(op, {"calls": 0, "chunks": 0, "bytes": 0, "errors": 0, "fallbacks": 0})


def test_parts_are_as_large_as_the_budget_allows():
    call = trajectory()
    whole = rc.resample(*call)
    row = sum(x.nbytes for x in (*call, whole)) // 7
    for budget, parts in ((7 * row, 1), (7 * row - 1, 2), (3 * row, 3), (row, 7)):
        before = counted()["chunks"]
        assert_same(rc.resample(*call, max_memory=budget), whole, budget)
        assert counted()["chunks"] - before == parts, budget


def test_the_targets_of_a_row_are_cut_where_one_row_is_too_much():
    values, times, targets = (x[0] for x in trajectory())
    whole = rc.resample(values, times, targets, return_valid=True)
    fixed, each = values.nbytes + times.nbytes, 8 + 6 * 4 + 1
    before = counted()["chunks"]
    got = rc.resample(values, times, targets, return_valid=True, max_memory=fixed + 15 * each)
    assert_same(got, whole, "targets")
    assert counted()["chunks"] - before == 3
    with pytest.raises(rc.InvalidArgument, match=f"{fixed + each} bytes or more, which one target"):
        rc.resample(values, times, targets, return_valid=True, max_memory=fixed)


def test_lengths_go_with_their_rows_and_targets_with_lengths_stay_whole():
    values, times, targets = trajectory()
    lengths = np.array([50, 3, 0, 7, 50, 1, 20])
    ends = np.array([40, 0, 5, 40, 1, 2, 3])
    options = {"lengths": lengths, "target_lengths": ends, "return_valid": True}
    whole = rc.resample(values, times, targets, **options)
    for chunk in (1, 3, 6):
        assert_same(
            rc.resample(values, times, targets, **options, chunk=chunk), whole, f"chunk={chunk}"
        )
    with pytest.raises(rc.InvalidArgument, match="which one row takes"):
        rc.resample(values, times, targets, **options, max_memory=100)


def test_views_and_outs_are_cut_where_they_are():
    values, times, targets = trajectory()
    wide = np.zeros((14, 40, 12), np.float32)
    out = wide[::-2, :, 3:9]
    rc.resample(values[:, :, ::-1], times, targets, chunk=2, out=out)
    assert_same(out, rc.resample(values[:, :, ::-1].copy(), times, targets), "out")
    assert not wide[::2].any() and not wide[:, :, :3].any()


def test_an_error_says_from_where_its_rows_are_counted():
    values, times, targets = trajectory()
    times[5, 9] = 0
    with pytest.raises(rc.InvalidArgument, match=r"row 1 .* begins at its row 4"):
        rc.resample(values, times, targets, chunk=2)
    assert rc.resample(values[:5], times[:5], targets[:5], chunk=2).shape == (5, 40, 6)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, "2", True])
def test_sizes_that_are_none(chunk):
    with pytest.raises(rc.InvalidArgument) as error:
        rc.resample(*trajectory(), chunk=chunk)
    assert error.value.argument == "chunk"


def test_a_function_is_told_about_progress():
    call, told = trajectory(), []
    rc.resample(*call, chunk=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(ZeroDivisionError):
        rc.resample(*call, chunk=3, progress=lambda done, total: 1 / 0)
    with pytest.raises(rc.InvalidArgument) as error:
        rc.resample(*call, progress=3)
    assert error.value.argument == "progress"


def test_a_bar_ends_with_a_line(capsys):
    rc.resample(*trajectory(), chunk=3, progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("robocache [###") and "3/3" in shown and shown.endswith(" s\n")
    rc.resample(*trajectory(), chunk=3, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_no_rows_and_one_row(batch):
    call = tuple(x[:batch] for x in trajectory())
    assert_same(rc.resample(*call, chunk=2, max_memory="auto"), rc.resample(*call), batch)
    assert_same(rc.resample(*call, max_memory="auto"), rc.resample(*call), batch)


def test_gradients_and_compiled_calls_take_parts():
    values, times, targets = (torch.from_numpy(x) for x in trajectory())
    values.requires_grad_()
    whole, parts = rc.resample(values, times, targets), rc.resample(values, times, targets, chunk=2)
    assert torch.equal(whole, parts)
    want = torch.autograd.grad(whole.square().sum(), values)[0]
    assert torch.equal(torch.autograd.grad(parts.square().sum(), values)[0], want)
    compiled = torch.compile(rc.resample, backend="eager", fullgraph=True)
    plain = values.detach()
    assert torch.equal(compiled(plain, times, targets, chunk=3), whole)
    assert torch.equal(compiled(plain, times, targets, max_memory="10KiB"), whole)
    with pytest.raises(rc.Unsupported) as error:
        rc.resample(values, times, targets, progress=print)
    assert error.value.argument == "progress"
