"""Where data lives: CPU and CUDA mixed, `device=`, pinned and managed memory, CuPy and its streams."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same
from faults import FAULTS, good_call, placed
from gpu import A_WHILE, assert_gpu_works, assert_raises_once
from refusal import assert_refused

pytestmark = pytest.mark.gpu

NAMES = ("values", "times", "targets", "lengths", "target_lengths", "out")


def whole_call() -> dict:
    call = placed(good_call(), "cuda")
    return {**call, "out": torch.zeros(4, 10, 3, device="cuda")}


@pytest.mark.parametrize("how", ["torch", "numpy", "pinned"])
@pytest.mark.parametrize("name", NAMES)
def test_24_one_argument_on_the_host(name, how):
    """Nothing is copied between host and device behind the caller's back."""
    call = whole_call()
    here = call[name].cpu()
    call[name] = {"torch": here, "numpy": here.numpy(), "pinned": here.pin_memory()}[how]
    # Everything is compared with the values, so odd values show at the argument after them.
    argument = "times" if name == "values" else name
    raised = assert_refused(lambda: rc.resample(**call), "InvalidArgument", argument, "cpu")
    assert "cuda:0" in str(raised)
    assert_gpu_works()


@pytest.mark.parametrize("name", NAMES)
def test_24_one_argument_on_the_gpu(name):
    call = {key: x.cpu() if isinstance(x, torch.Tensor) else x for key, x in whole_call().items()}
    call[name] = call[name].cuda()
    argument = "times" if name == "values" else name
    assert_refused(lambda: rc.resample(**call), "InvalidArgument", argument, "cuda:0")


@pytest.mark.parametrize(
    "device",
    [None, "cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), "auto"],
    ids=str,
)
def test_devices_that_hold_the_data(device, caplog):
    call = placed(good_call(), "cuda")
    with caplog.at_level(logging.WARNING):
        out = rc.resample(**call, device=device)
    assert out.device == torch.device("cuda", 0)
    assert_same(out.cpu(), rc.resample(**good_call()))
    assert not caplog.records, "data on a GPU is no reason to warn"


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "cuda:63", "cuda:99", "cuda:4294967295"])
def test_devices_that_do_not_hold_the_data(device):
    call = placed(good_call(), "cuda")
    raised = assert_refused(lambda: rc.resample(**call, device=device), "InvalidArgument", "device")
    assert device in str(raised) and "cuda:0" in str(raised)


@pytest.mark.parametrize(
    "device", ["cuda:-1", "cuda:99999999999", "cuda:", "cuda:x", "CUDA", "gpu"]
)
def test_names_of_no_device(device):
    for call in (placed(good_call(), "cuda"), good_call()):
        assert_refused(lambda c=call: rc.resample(**c, device=device), "InvalidArgument", "device")


def test_87_an_ordinal_that_does_not_exist_for_data_on_the_host():
    """§8: an unknown device is `InvalidArgument`, and a GPU that is there does not change that."""
    call = good_call()
    assert_refused(lambda: rc.resample(**call, device="cuda:99"), "InvalidArgument", "device", "99")


def test_27_pinned_memory_is_the_cpu():
    call = good_call()
    pinned = {k: v.pin_memory() if isinstance(v, torch.Tensor) else v for k, v in call.items()}
    assert pinned["values"].is_pinned()
    for device in (None, "cpu"):
        out = rc.resample(**pinned, device=device)
        assert out.device.type == "cpu"
        assert_same(out, rc.resample(**call))
    out = torch.zeros(4, 10, 3).pin_memory()
    assert rc.resample(**pinned, out=out) is out
    assert_same(out, rc.resample(**call))


@pytest.mark.parametrize("kind", ["parameter", "subclass", "inference", "negated"])
def test_torch_tensors_of_other_kinds(kind):
    """Those that do not take the short way into the engine, on a side stream."""
    call = placed(good_call(), "cuda")
    plain = call["values"]
    want = rc.resample(**good_call())
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.inference_mode(kind == "inference"), torch.no_grad(), torch.cuda.stream(side):
        torch.cuda._sleep(A_WHILE)
        call["values"] = {
            "parameter": lambda: torch.nn.Parameter(plain),
            "subclass": lambda: plain.clone().as_subclass(type("Sub", (torch.Tensor,), {})),
            "inference": lambda: plain.clone(),
            "negated": lambda: torch.complex(torch.zeros_like(plain), -plain).conj().imag,
        }[kind]()
        out = rc.resample(**call)
    side.synchronize()
    assert isinstance(out, torch.Tensor) and out.is_cuda
    assert_same(out.cpu(), want)


# -- CuPy -------------------------------------------------------------------------------------


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def in_cupy(cupy, call: dict) -> dict:
    return {
        name: cupy.asarray(value.numpy()) if isinstance(value, torch.Tensor) else value
        for name, value in call.items()
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool"])
def test_cupy_in_cupy_out(cupy, dtype):
    call = good_call(getattr(torch, dtype))
    want, want_valid = rc.resample(**call, return_valid=True)
    out, valid = rc.resample(**in_cupy(cupy, call), return_valid=True)
    assert type(out) is cupy.ndarray and type(valid) is cupy.ndarray
    assert_same(torch.from_numpy(cupy.asnumpy(out)), want)
    assert_same(torch.from_numpy(cupy.asnumpy(valid)), want_valid)
    assert type(rc.resample(**in_cupy(cupy, call))) is cupy.ndarray


def test_cupy_on_its_current_stream(cupy):
    """A producer before, a consumer after, on a stream that synchronises with no other."""
    call = good_call()
    there = in_cupy(cupy, call)
    want = rc.resample(**call)
    fresh = there["values"].copy()
    there["values"][...] = fresh * 2  # CuPy compiles at the first use
    there["values"].fill(0)
    rc.warmup("resample", **there)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
            torch.cuda._sleep(A_WHILE)
        there["values"][...] = fresh
        out = rc.resample(**there)
        doubled = out * 2
        assert not stream.done, "the call waited"
    stream.synchronize()
    assert_same(torch.from_numpy(cupy.asnumpy(out)), want)
    assert_same(torch.from_numpy(cupy.asnumpy(doubled)), want * 2)


def test_cupy_with_a_chosen_stream(cupy):
    call, stream = good_call(), cupy.cuda.Stream(non_blocking=True)
    there = in_cupy(cupy, call)
    cupy.cuda.Device().synchronize()
    for chosen in (stream, stream.ptr):
        out = rc.resample(**there, stream=chosen)
        stream.synchronize()
        assert_same(torch.from_numpy(cupy.asnumpy(out)), rc.resample(**call))


def test_cupy_out_and_views(cupy):
    call = good_call()
    there = in_cupy(cupy, call)
    want = rc.resample(**call)
    wide = cupy.zeros((4, 40, 6), cupy.float32)
    wide[:, :, 1::2] = there["values"]
    turned = cupy.ascontiguousarray(there["values"].transpose(2, 1, 0)).transpose(2, 1, 0)
    for view in (wide[:, :, 1::2], turned):
        result = rc.resample(**{**there, "values": view})
        assert_same(torch.from_numpy(cupy.asnumpy(result)), want)
    out = cupy.full((4, 10, 6), 7, cupy.float32)
    view = out[:, :, ::2]
    assert rc.resample(**there, out=view) is view
    assert_same(torch.from_numpy(cupy.asnumpy(view)), want)
    assert bool((out[:, :, 1::2] == 7).all())


def test_cupy_data_are_checked_too(cupy):
    fault = FAULTS[0]
    rc.resample(**in_cupy(cupy, fault.call()))
    assert_raises_once(rc.synchronize, fault)


def test_torch_and_cupy_mix_and_the_values_decide(cupy):
    call = good_call()
    arrays, tensors = in_cupy(cupy, call), placed(call, "cuda")
    torch.cuda.synchronize()
    want = rc.resample(**call)
    out = rc.resample(**{**arrays, "values": tensors["values"]})
    assert type(out) is torch.Tensor
    assert_same(out.cpu(), want)
    out = rc.resample(**{**tensors, "values": arrays["values"]})
    assert type(out) is cupy.ndarray
    assert_same(torch.from_numpy(cupy.asnumpy(out)), want)


def managed(cupy, array: np.ndarray):
    """A small array in memory that host and device share."""
    pointer = cupy.cuda.malloc_managed(max(array.nbytes, 1))
    made = cupy.ndarray(array.shape, array.dtype, memptr=pointer)
    made.set(array)
    return made


def test_27_managed_memory_counts_as_its_gpu(cupy):
    call = good_call()
    there = {
        k: managed(cupy, v.numpy()) if isinstance(v, torch.Tensor) else v for k, v in call.items()
    }
    assert there["values"].__dlpack_device__()[0] == 13  # kDLCUDAManaged
    want = rc.resample(**call)
    out = rc.resample(**there)
    assert type(out) is cupy.ndarray
    assert_same(torch.from_numpy(cupy.asnumpy(out)), want)
    mixed = rc.resample(**{**placed(call, "cuda"), "times": there["times"]})
    assert_same(mixed.cpu(), want)
    into = managed(cupy, np.zeros((4, 10, 3), np.float32))
    rc.resample(**there, out=into)
    assert_same(torch.from_numpy(cupy.asnumpy(into)), want)
    assert_refused(
        lambda: rc.resample(**{**call, "times": there["times"]}), "InvalidArgument", "times", "cuda"
    )
