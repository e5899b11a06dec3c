"""Whose stream the work goes to, what it waits for, what keeps its memory; many threads at once."""

from __future__ import annotations

import threading

import pytest
import torch

import robocache as rc
from agreement import assert_same
from gpu import A_WHILE, LONG, assert_gpu_works
from refusal import assert_refused

pytestmark = pytest.mark.gpu

BATCH, SOURCE, STEPS, DIM = 16, 512, 256, 256  # 8 MiB of values, 4 MiB of results


def inputs(seed: int, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-500, 500, (BATCH, SOURCE, DIM), generator=generator).to(dtype)
    times = torch.cumsum(torch.randint(1, 99, (BATCH, SOURCE), generator=generator), 1)
    targets = torch.randint(0, 25_000, (BATCH, STEPS), generator=generator)
    return values, times, targets


@pytest.fixture
def ready():
    """Inputs on the GPU and the CPU's result; kernels loaded, nothing queued."""
    here = inputs(1)
    there = [tensor.cuda() for tensor in here]
    rc.warmup("resample", *there)
    torch.cuda.synchronize()
    return there, rc.resample(*here)


def test_work_goes_to_the_current_stream_in_its_order(ready):
    """A producer before and a consumer after the call, all on a side stream, nobody waits."""
    (values, times, targets), want = ready
    fresh = values.clone()
    values.zero_()
    torch.cuda.synchronize()
    rc.warmup("resample", values, times, targets)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        # torch itself waits where it loads a kernel, or takes memory for a stream, for the first time.
        _ = torch.empty_like(want, device="cuda") * 2
        side.synchronize()
        torch.cuda._sleep(A_WHILE)
        values.copy_(fresh)
        out = rc.resample(values, times, targets)
        doubled = out * 2
    assert not side.query(), "the call waited"
    side.synchronize()
    assert_same(out.cpu(), want)
    assert_same(doubled.cpu(), want * 2)


def test_work_waits_for_no_other_stream(ready):
    (values, times, targets), want = ready
    busy, side = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(LONG)
    with torch.cuda.stream(side):
        out = rc.resample(values, times, targets)
    side.synchronize()
    assert not busy.query(), "the call waited for another stream"
    with torch.cuda.stream(side):
        assert_same(out.cpu(), want)
    busy.synchronize()


@pytest.mark.parametrize("how", ["torch stream", "integer", "external stream"])
def test_stream_overrides_the_current_one(ready, how):
    """The current stream sleeps, so the result comes from the chosen one or not in time."""
    (values, times, targets), want = ready
    busy, side = torch.cuda.Stream(), torch.cuda.Stream()
    chosen = {
        "torch stream": side,
        "integer": side.cuda_stream,
        "external stream": torch.cuda.ExternalStream(side.cuda_stream),
    }[how]
    out = torch.zeros_like(want, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(LONG)
        rc.resample(values, times, targets, out=out, stream=chosen)
    side.synchronize()
    assert not busy.query(), "the call went to the current stream"
    with torch.cuda.stream(side):
        assert_same(out.cpu(), want)
    busy.synchronize()


def test_order_on_a_chosen_stream(ready):
    (values, times, targets), want = ready
    fresh = values.clone()
    values.zero_()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(A_WHILE)
        values.copy_(fresh)
    out = rc.resample(values, times, targets, stream=side)
    assert not side.query(), "the call waited"
    side.synchronize()
    assert_same(out.cpu(), want)


@pytest.mark.parametrize("handle", [0, 1, 2], ids=["default", "legacy", "per-thread"])
def test_streams_that_have_numbers(ready, handle):
    """CUDA's own handles: 0 and 1 are the legacy default stream, 2 the thread's default stream."""
    arguments, want = ready
    out = rc.resample(*arguments, stream=handle)
    torch.cuda.synchronize()
    assert_same(out.cpu(), want)


@pytest.mark.parametrize(
    "stream", ["side", -1, 1.5, object(), [0]], ids=["text", "negative", "float", "object", "list"]
)
def test_what_is_no_stream(ready, stream):
    arguments, _ = ready
    assert_refused(lambda: rc.resample(*arguments, stream=stream), "InvalidArgument", "stream")
    assert_gpu_works()


def test_the_cpu_has_no_streams():
    here = inputs(1)
    assert_refused(lambda: rc.resample(*here, stream=0), "InvalidArgument", "stream")
    side = torch.cuda.Stream()
    assert_refused(lambda: rc.resample(*here, stream=side), "InvalidArgument", "stream")


def test_29_freed_inputs_stay_until_a_chosen_stream_has_passed(ready):
    """torch would hand the memory out again at once: it knows of its own streams only."""
    (values, times, targets), want = ready
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
    out = rc.resample(values, times, targets, stream=side)
    freed = {tensor.data_ptr() for tensor in (values, times, targets)}
    shapes = [(tensor.shape, tensor.dtype) for tensor in (values, times, targets)]
    ready[0].clear()
    del values, times, targets
    trash = [torch.full(s, 99, dtype=d, device="cuda") for s, d in shapes for _ in range(4)]
    assert not side.query(), "too late to tell"
    reused = freed & {tensor.data_ptr() for tensor in trash}
    torch.cuda.synchronize()
    assert not reused, "memory that is still read was handed out"
    assert_same(out.cpu(), want)


def test_29_a_freed_result_stays_until_a_chosen_stream_has_passed(ready):
    arguments, want = ready
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
    out = rc.resample(*arguments, stream=side)
    address = out.data_ptr()
    del out
    others = [torch.zeros_like(want, device="cuda") for _ in range(4)]
    assert not side.query(), "too late to tell"
    assert address not in {other.data_ptr() for other in others}
    torch.cuda.synchronize()
    assert all(bool((other == 0).all()) for other in others), "a late write hit another tensor"


def test_29_freed_inputs_on_the_current_stream(ready):
    """The usual case: torch reuses the memory in the order of the stream, so nothing is lost."""
    arguments, want = ready
    shapes = [(tensor.shape, tensor.dtype) for tensor in arguments]
    torch.cuda._sleep(A_WHILE)
    out = rc.resample(*arguments)
    arguments.clear()
    trash = [torch.full(s, 99, dtype=d, device="cuda") for s, d in shapes for _ in range(4)]
    assert_same(out.cpu(), want)
    assert len(trash) == 12


def run_threads(work, count: int = 8) -> list:
    """`work(index)` in threads that start together; what went wrong in them."""
    wrong, start = [], threading.Barrier(count)

    def body(index):
        try:
            start.wait(60)
            work(index)
        except BaseException as error:
            wrong.append((index, error))

    threads = [threading.Thread(target=body, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a call hangs"
    return wrong


def test_eight_threads_with_streams_of_their_own():
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    here = [inputs(index, dtypes[index % 4]) for index in range(8)]
    wants = [rc.resample(*tensors).cuda() for tensors in here]
    there = [[tensor.cuda() for tensor in tensors] for tensors in here]
    torch.cuda.synchronize()

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(30):
                out, valid = rc.resample(*there[index], return_valid=True)
                if turn % 10 == 0:
                    assert torch.equal(out, wants[index]) and valid.any()
            assert torch.equal(out, wants[index])
            torch.cuda.current_stream().synchronize()

    assert not run_threads(work)


def test_threads_that_are_refused_disturb_nobody():
    here = inputs(3)
    there, want = [tensor.cuda() for tensor in here], rc.resample(*here).cuda()
    torch.cuda.synchronize()

    def work(index):
        for _ in range(30):
            if index % 2:
                with pytest.raises(rc.InvalidArgument, match="method"):
                    rc.resample(*there, method="none")
            else:
                assert torch.equal(rc.resample(*there), want)

    assert not run_threads(work)


def test_the_current_device_and_stream_stay_as_they_are(ready):
    arguments, _ = ready
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        rc.resample(*arguments)
        rc.resample(*arguments, stream=torch.cuda.Stream())
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.synchronize()
