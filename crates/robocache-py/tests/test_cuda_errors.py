"""Bad data on a GPU: nothing waits, the row is NaN, a later call raises once and does no work."""

from __future__ import annotations

import threading

import pytest
import torch

import robocache as rc
from agreement import assert_same
from faults import BAD_ROW, FAULTS, GOOD_ROWS, SOURCE, good_call, placed, rows_of
from gpu import A_WHILE, assert_gpu_works, assert_raises_once, assert_reported, capture
from refusal import assert_works

pytestmark = pytest.mark.gpu

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
UNSORTED, OUTSIDE, NEGATIVE = FAULTS[0], FAULTS[4], FAULTS[5]


def assert_row_is_missing(out, valid, call) -> None:
    """NaN (integers 0) and not valid in the bad row, the CPU's bits in the others."""
    out, valid = out.cpu(), valid.cpu()
    row = out[BAD_ROW]
    assert bool(row.isnan().all() if row.is_floating_point() else (row == 0).all())
    assert not valid[BAD_ROW].any()
    want, want_valid = rc.resample(**rows_of(call, GOOD_ROWS), return_valid=True)
    assert_same(out[GOOD_ROWS], want)
    assert_same(valid[GOOD_ROWS], want_valid)


@each_fault
def test_the_cpu_says_the_same(fault):
    """The texts that the reports are compared with are those of the CPU."""
    with pytest.raises(rc.InvalidArgument, match=fault.message) as caught:
        rc.resample(**fault.call())
    assert caught.value.argument == fault.argument


@each_fault
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8])
def test_the_next_call_raises_once_and_has_done_nothing(fault, dtype):
    call, good = fault.call(dtype), placed(good_call(dtype), "cuda")
    want = rc.resample(**good_call(dtype))
    bad = placed(call, "cuda")
    rc.warmup("resample", **bad)
    torch.cuda.synchronize()

    torch.cuda._sleep(A_WHILE)
    out, valid = rc.resample(**bad, return_valid=True)  # raises nothing
    assert not torch.cuda.current_stream().query(), "the call waited for the GPU"
    torch.cuda.synchronize()
    assert_row_is_missing(out, valid, call)
    assert_works()  # a call on the CPU is not concerned

    untouched = torch.full_like(out, 77)
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.resample(**good, out=untouched)
    assert_reported(caught.value, fault)
    torch.cuda.synchronize()
    assert bool((untouched == 77).all()), "the raising call did its work"
    assert_same(rc.resample(**good, out=untouched).cpu(), want)
    rc.synchronize()


@each_fault
def test_synchronize_raises_it_too(fault):
    rc.resample(**placed(fault.call(), "cuda"))
    assert_raises_once(rc.synchronize, fault)
    assert_gpu_works()


@each_fault
def test_synchronize_with_a_timeout_raises_it_too(fault):
    rc.resample(**placed(fault.call(), "cuda"))
    assert_raises_once(lambda: rc.synchronize(timeout=30), fault)
    rc.synchronize(timeout=30)


def test_warming_up_is_a_later_call_too():
    bad, good = placed(UNSORTED.call(), "cuda"), placed(good_call(), "cuda")
    rc.resample(**bad)
    torch.cuda.synchronize()
    assert_raises_once(lambda: rc.warmup("resample", **good), UNSORTED)
    rc.warmup("resample", **good)


@each_fault
def test_unchecked_calls_report_nothing(fault):
    out = rc.resample(**placed(fault.call(), "cuda"), check=False)
    rc.synchronize()
    assert out.shape == (4, 10, 3)
    assert_gpu_works()


def reports_left(fault) -> int:
    """Waits until nothing is left to report."""
    for count in range(10):
        try:
            rc.synchronize()
        except rc.InvalidArgument as error:
            assert_reported(error, fault)
        else:
            return count
    raise AssertionError("the reports do not end")


def test_several_guilty_calls_are_reported_without_a_hang():
    """How often, the rule leaves open: at least once, and not for ever."""
    bad = placed(UNSORTED.call(), "cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(A_WHILE)  # both are queued before either can be seen
    rc.resample(**bad)
    rc.resample(**bad)
    assert 1 <= reports_left(UNSORTED) <= 2
    assert_gpu_works()

    raised = 0
    for _ in range(50):  # now a call may raise what the one before it found
        try:
            rc.resample(**bad)
        except rc.InvalidArgument as error:
            raised += 1
            assert_reported(error, UNSORTED)
    assert 1 <= raised + reports_left(UNSORTED) <= 50
    assert_gpu_works()


def test_thousands_of_bad_rows_give_one_report():
    rows = 5000
    values = torch.ones(rows, SOURCE, 2, device="cuda")
    times = torch.arange(float(SOURCE), device="cuda").flip(0).expand(rows, SOURCE)
    targets = torch.ones(rows, 7, device="cuda")
    out = rc.resample(values, times, targets)
    with pytest.raises(rc.InvalidArgument, match=r"row \d+ decreases at index 1 \(38 after 39\)"):
        rc.synchronize()
    rc.synchronize()
    assert bool(out.isnan().all())


def test_a_launch_that_still_runs_when_it_is_reported_reports_once():
    """Later blocks of the guilty launch find the letter read, and must not write another."""
    rows = 1 << 22
    values = torch.ones(1, SOURCE, 1, device="cuda")
    times = torch.arange(float(SOURCE), device="cuda").flip(0).expand(rows, SOURCE)
    targets = torch.ones(rows, 1, device="cuda")
    good = placed(good_call(), "cuda")
    rc.warmup("resample", values, times, targets)
    torch.cuda.synchronize()
    stream, raised = torch.cuda.Stream(), 0
    rc.resample(values, times, targets)
    early = False
    while not torch.cuda.current_stream().query() or not raised:
        try:
            rc.resample(**good, stream=stream)
        except rc.InvalidArgument:
            raised += 1
            early = early or not torch.cuda.current_stream().query()
    rc.synchronize()
    assert raised == 1
    assert early, "the launch had ended before it was reported: this shows nothing"


def test_a_row_that_does_not_fit_shared_memory():
    """Long rows are searched where they lie, by other code."""
    source = 40_000
    times = torch.arange(source, dtype=torch.float64, device="cuda").repeat(2, 1)
    times[1, 33_333] = 5.0
    values = torch.ones(2, source, 1, device="cuda")
    targets = torch.tensor([1.5, 2.5], dtype=torch.float64, device="cuda")
    out, valid = rc.resample(values, times, targets, return_valid=True)
    with pytest.raises(rc.InvalidArgument, match=r"row 1 decreases at index 33333 \(5 after 33332"):
        rc.synchronize()
    assert out[:, 0, 0].isnan().tolist() == [False, True]
    assert valid[:, 0].tolist() == [True, False]


@pytest.mark.parametrize("fault", [UNSORTED, OUTSIDE, NEGATIVE], ids=lambda fault: fault.name)
def test_a_replayed_graph_reports_at_every_replay(fault):
    good, bad = good_call(), fault.call()
    static = placed(good, "cuda")
    rc.warmup("resample", **static, return_valid=True)
    graph, (out, valid) = capture(lambda: rc.resample(**static, return_valid=True))

    def load(call):
        for name, value in call.items():
            if isinstance(value, torch.Tensor):
                static[name].copy_(value)

    want = rc.resample(**good)
    for _ in range(3):
        load(good)
        graph.replay()
        rc.synchronize()
        assert_same(out.cpu(), want)
        load(bad)
        for _ in range(2):
            graph.replay()
            assert_raises_once(rc.synchronize, fault)
            assert_row_is_missing(out, valid, bad)
    load(good)
    graph.replay()
    assert_gpu_works()
    assert_same(out.cpu(), want)


def test_of_many_threads_one_gets_the_report():
    good = placed(good_call(), "cuda")
    for _ in range(10):
        rc.resample(**placed(UNSORTED.call(), "cuda"))
        torch.cuda.synchronize()
        raised, start = [], threading.Barrier(8)

        def work(raised=raised, start=start):
            start.wait()
            for _ in range(5):
                try:
                    rc.resample(**good)
                except rc.InvalidArgument as error:
                    raised.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert len(raised) == 1
        assert_reported(raised[0], UNSORTED)


def test_a_report_from_a_side_stream():
    bad = placed(OUTSIDE.call(), "cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        rc.resample(**bad)
    side.synchronize()
    assert_raises_once(lambda: rc.resample(**placed(good_call(), "cuda")), OUTSIDE)
