"""What must happen in a process of its own: `python cuda_children.py NAME` prints "ok" at its end.

First calls, lost devices, hanging kernels, forks. test_cuda_failures.py starts them; each can be
run by hand as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import torch

import robocache as rc
from agreement import assert_same
from fake_dlpack import CUDA, Producer
from faults import FAULTS, good_call, placed

LONG = 40_000_000_000  # cycles: 20 s and more


def expect(error: type, call, *words: str) -> Exception:
    """`call` raises `error` with these words in its text."""
    raised = None
    try:
        call()
    except error as caught:
        raised = caught
    assert raised is not None, f"no {error.__name__}"
    for word in words:
        assert word in str(raised), f"{word!r} is not in {raised}"
    return raised


def assert_cpu_works() -> None:
    got = rc.resample(np.array([[0.0], [8.0]]), np.array([0.0, 2.0]), np.array([0.5, 1.0]))
    assert got.tolist() == [[2.0], [4.0]]


def assert_gpu_works() -> None:
    call = good_call()
    assert_same(rc.resample(**placed(call, "cuda")).cpu(), rc.resample(**call))


def assert_lost() -> None:
    """Every way to the GPU says so, every time; the CPU goes on."""
    call = placed_before["call"]
    for _ in range(3):
        error = expect(rc.DeviceLost, lambda: rc.resample(**call), "cuda:0", "lost", "CPU")
        assert error.kind == "device_lost" and error.op == "resample"
        expect(rc.DeviceLost, rc.synchronize, "lost")
        expect(rc.DeviceLost, lambda: rc.synchronize(timeout=1), "lost")
        expect(rc.DeviceLost, lambda: rc.warmup("resample", **call), "lost")
        assert_cpu_works()


# Tensors that were made while the GPU worked; nothing can be copied to a lost one.
placed_before: dict = {}


def before_the_loss() -> dict:
    assert_gpu_works()
    placed_before["call"] = placed(good_call(), "cuda")
    out = torch.zeros(4, 10, 3, device="cuda")
    torch.cuda.synchronize()
    return {**placed_before["call"], "out": out}


def illegal_address() -> None:
    """89: a kernel reads where nothing is, since a producer of DLPack lied about its pointer."""
    with_out = before_the_loss()
    stamps = np.zeros((4, 40), np.float32)
    liar = Producer(stamps, data=4096, device=(CUDA, 0))
    rc.resample(**{**placed_before["call"], "times": liar})
    expect(RuntimeError, torch.cuda.synchronize, "CUDA error")
    expect(rc.DeviceLost, lambda: rc.resample(**with_out), "lost")
    assert_lost()


def device_assert() -> None:
    """89: a kernel of somebody else fails an assertion."""
    with_out = before_the_loss()
    torch._assert_async(torch.zeros(1, device="cuda"))
    expect(RuntimeError, torch.cuda.synchronize, "assert")
    expect(rc.DeviceLost, lambda: rc.resample(**with_out), "lost")
    assert_lost()


def seen_by_synchronize() -> None:
    """89: `rc.synchronize` is the first to hear of the fault, and latches it too."""
    before_the_loss()
    torch._assert_async(torch.zeros(1, device="cuda"))
    expect(rc.DeviceLost, rc.synchronize, "lost")
    assert_lost()


def device_reset() -> None:
    """93: another library destroys the context under everybody's feet."""
    with_out = before_the_loss()
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuDevicePrimaryCtxReset_v2(0) == 0
    expect(rc.DeviceLost, lambda: rc.resample(**with_out), "lost")
    assert_lost()
    print("ok", flush=True)
    os._exit(0)  # torch's own end in such a process is not our business


def hanging_kernel() -> None:
    """90 and 97: a kernel that does not end; waiting for it can be interrupted and timed."""
    before_the_loss()
    torch.cuda._sleep(LONG)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    started = time.monotonic()
    timer.start()
    expect(KeyboardInterrupt, rc.synchronize)
    assert time.monotonic() - started < 1.5, "Ctrl-C came late"
    rc.warmup("resample", **placed_before["call"])  # an interrupted wait loses nothing

    started = time.monotonic()
    expect(rc.DeviceLost, lambda: rc.synchronize(timeout=1), "lost")
    seconds = time.monotonic() - started
    assert 0.9 < seconds < 2.0, f"{seconds} s"
    started = time.monotonic()
    assert_lost()
    assert time.monotonic() - started < 1.0, "a latched error has nothing to wait for"
    print("ok", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # whoever waits for the kernel waits long


def in_forked_child(work) -> int:
    """The exit code of a fork that runs `work`; 0 means that it raised nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"in the fork: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork() -> None:
    """91 and P9: before the first use all is well; after it the child gets a clear error."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
    assert in_forked_child(assert_gpu_works) == 0, "a fork before the first use"
    before_the_loss()

    def refused() -> None:
        call = placed_before["call"]
        error = expect(rc.NoDevice, lambda: rc.resample(**call), "fork", "spawn")
        assert error.op == "resample"
        expect(rc.NoDevice, lambda: rc.resample(**good_call(), device="cuda:0"))
        assert_cpu_works()
        rc.synchronize()

    for _ in range(2):
        assert in_forked_child(refused) == 0, "a fork after the first use"
        assert_gpu_works()
        rc.synchronize()


def first_capture() -> None:
    """102: the first call, and the first of a kernel, inside a capture; then as it should be."""
    values, times, targets = (good_call()[name].cuda() for name in ("values", "times", "targets"))
    ones = torch.ones(3, device="cuda")
    more = ones + 1  # torch loads its own kernel
    for dtype in (torch.float32, torch.float64):  # no device open yet; a kernel not loaded yet
        data = values.to(dtype)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            more = ones + 1
            error = expect(
                rc.Unsupported, lambda d=data: rc.resample(d, times, targets), "rc.warmup"
            )
            assert error.op == "resample"
        ones.fill_(4)
        graph.replay()
        assert more.tolist() == [5.0] * 3, "the capture itself is unharmed"

        def as_users_meet_it(data=data) -> None:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                rc.resample(data, times, targets)

        expect(rc.Unsupported, as_users_meet_it, "rc.warmup")
        assert rc.warmup("resample", data, times, targets) is None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = rc.resample(data, times, targets)
        data.mul_(2)
        graph.replay()
        assert_same(out.cpu(), rc.resample(data.cpu(), times.cpu(), targets.cpu()))
    rc.synchronize()


def first_threads() -> None:
    """Eight threads open the device and compile at once."""
    dtypes = (torch.float32, torch.float64, torch.float16, torch.int32)
    calls = [good_call(dtypes[index % 4]) for index in range(8)]
    there = [placed(call, "cuda") for call in calls]
    torch.cuda.synchronize()
    results, start = [None] * 8, threading.Barrier(8)

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            start.wait(60)
            results[index] = rc.resample(**there[index]).cpu()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a first call hangs"
    for call, result in zip(calls, results, strict=True):
        assert result is not None, "a thread failed"
        assert_same(result, rc.resample(**call))


def blocking() -> None:
    """ROBOCACHE_BLOCKING=1: the guilty call raises itself, and graphs can still be captured."""
    assert os.environ["ROBOCACHE_BLOCKING"] == "1"
    for fault in FAULTS:
        call = placed(fault.call(), "cuda")
        error = expect(rc.InvalidArgument, lambda c=call: rc.resample(**c))
        assert (error.op, error.argument) == ("resample", fault.argument), str(error)
        assert_gpu_works()
        rc.synchronize()
    static = placed(good_call(), "cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = rc.resample(**static)
    graph.replay()
    assert_same(out.cpu(), rc.resample(**good_call()))


def jax_arrays() -> None:
    """On a GPU, JAX has no stream to queue on: refused, and it says what to do."""
    try:
        import jax
        import jax.numpy as jnp

        backend = jax.default_backend()
    except (ImportError, RuntimeError) as error:
        print(f"skip: jax does not start: {error}")
        return
    if backend not in ("gpu", "cuda"):
        print(f"skip: jax runs on {backend}")
        return
    call = placed(good_call(), "cuda")
    values = jnp.asarray(good_call()["values"].numpy())
    values.block_until_ready()
    error = expect(
        rc.Unsupported, lambda: rc.resample(**{**call, "values": values}), "torch", "CuPy"
    )
    assert (error.op, error.argument) == ("resample", "values")
    assert_gpu_works()


def quick_allocation() -> None:
    """What torch's compiled code allocates with is not public: where it fails, outputs are made in the public way."""
    asked = []

    def empty(*arguments):
        asked.append(arguments)
        raise RuntimeError("not today")

    torch._C._dynamo.guards._empty_strided_cuda = empty
    for _ in range(3):
        assert_gpu_works()
    assert len(asked) == 3, asked


def first_call() -> None:
    """Seconds of the first call, after torch has made its context and loaded its own."""
    call = placed(good_call(), "cuda")
    torch.cuda.synchronize()
    started = time.perf_counter()
    out = rc.resample(**call)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    assert_same(out.cpu(), rc.resample(**good_call()))
    print("seconds", seconds)


SCENARIOS = {
    work.__name__: work
    for work in (
        illegal_address,
        device_assert,
        seen_by_synchronize,
        device_reset,
        hanging_kernel,
        fork,
        first_capture,
        first_threads,
        blocking,
        jax_arrays,
        quick_allocation,
        first_call,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
    print("ok", flush=True)
