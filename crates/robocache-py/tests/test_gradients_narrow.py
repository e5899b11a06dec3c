"""Gradients of rows of few columns, which from sm_90 on a block makes as a whole: the same bits as the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same
from gradient_cases import Call, gradient
from helpers import scaled

pytestmark = pytest.mark.gpu

METHODS = ("linear", "angle", "previous")


def batch() -> int:
    """More rows than multiprocessors; rows are made in parts where there are fewer."""
    return torch.cuda.get_device_properties(0).multi_processor_count + 5


def random_rows(
    seed: list[int], dtype=torch.float32, stamps=torch.float32, method="linear"
) -> Call:
    """Rows of whole units of 16 bytes, with gaps, crowds and lengths."""
    rng = np.random.default_rng(seed)
    rows, width = batch(), int(rng.integers(1, 128 // dtype.itemsize + 1))
    samples, steps = (int(rng.integers(*sizes)) * 8 for sizes in ((130, 300), (130, 400)))
    times = np.cumsum(rng.integers(1, 9, (rows, samples)), axis=1)
    first, last = (
        sorted(rng.integers(-50, 6 * samples, 2)) if rng.random() < 0.5 else (-9, 5 * samples)
    )
    targets = np.sort(rng.integers(first, last + 1, (rows, steps)), axis=1)
    outside = ["clamp", "nan", *(["linear"] if method == "linear" else [])]
    options = {"method": method, "extrapolate": str(rng.choice(outside))}
    if rng.random() < 0.4:
        options["lengths"] = torch.from_numpy(rng.integers(0, samples + 1, rows).astype("i4"))
    if rng.random() < 0.4:
        options["target_lengths"] = torch.from_numpy(rng.integers(0, steps + 1, rows))
    values = torch.from_numpy(rng.normal(size=(rows, samples, width))).to(dtype)
    return Call(values, *(torch.from_numpy(x).to(stamps) for x in (times, targets)), options)


def compare(call: Call) -> None:
    shape = (len(call.values), call.targets.shape[-1], call.values.shape[-1])
    grad = torch.from_numpy(np.random.default_rng(3).normal(size=shape)).to(call.values)
    # What weighs nothing must not matter, not even as NaN.
    grad[:, 3] = torch.nan
    assert_same(gradient(call.on("cuda"), grad.cuda()).cpu(), gradient(call, grad))


def test_they_are_made_as_a_whole():
    """Else all that follows is about another kernel."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("before sm_90 there is no copy engine")
    call = random_rows([1]).on("cuda")
    grad = torch.ones(*call.targets.shape, call.values.shape[-1], device="cuda")
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        gradient(call, grad)
        torch.cuda.synchronize()
    names = {event.name for event in profile.events()}
    assert any(name.startswith("rc_resample_backward_narrow") for name in names), names


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stamps", [torch.int64, torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_as_on_the_host(method, stamps, dtype):
    for seed in range(scaled(10)):
        compare(random_rows([seed, METHODS.index(method), dtype.itemsize], dtype, stamps, method))


def test_rows_that_are_left_to_others_are_made_too():
    """Some rows have targets in any order, equal stamps, or a target that is NaN."""
    call = random_rows([6])
    call.targets[::5] = call.targets[::5].flip(1)
    call.times[1::5, 40:45] = call.times[1::5, 40:41]
    call.targets[2::5, 70] = torch.nan
    call.targets[3::50, -1] = torch.inf
    compare(call)


def test_many_targets_in_one_place_come_in_pieces():
    call = random_rows([9], stamps=torch.int64)
    call.targets[:] = call.targets[:, :1]
    call.targets[::2] = call.times[::2, -1:] + 5
    compare(call)


def test_a_gap_that_no_float_holds():
    call = random_rows([2], stamps=torch.float64)
    call.options = {"method": "linear", "extrapolate": "linear"}
    call.times[:, -2:] = torch.tensor([-1e308, 1e308], dtype=torch.float64)
    double = torch.float64
    call.times[:, :-2] = torch.linspace(-1.5e308, -1.1e308, call.times.shape[1] - 2, dtype=double)
    call.targets[:] = torch.linspace(-1.5e308, 1e308, call.targets.shape[1], dtype=double)
    compare(call)


@pytest.mark.parametrize("tensor", ["times", "targets", "both"])
def test_stamps_that_lie_anyhow(tensor):
    """Shared by the batch, every other number of a row, and away from multiples of 16 bytes."""
    for seed in range(3):
        call = random_rows([seed, 5]).on("cuda")
        on_host = random_rows([seed, 5])
        for name in ("times", "targets") if tensor == "both" else (tensor,):
            row = getattr(call, name)[0]
            scattered = torch.zeros(len(row), 2, device="cuda")[:, 1]
            given = (
                row,
                scattered.copy_(row),
                torch.zeros(len(row) + 1, device="cuda")[1:].copy_(row),
            )
            setattr(call, name, given[seed])
            setattr(on_host, name, getattr(on_host, name)[0])
        if tensor != "times":
            on_host.options.pop("target_lengths", None)
            call.options.pop("target_lengths", None)
        shape = (*rc.resample(on_host.values, on_host.times, on_host.targets).shape,)
        grad = torch.randn(shape)
        assert_same(gradient(call, grad.cuda()).cpu(), gradient(on_host, grad))


def test_gradients_that_lie_anyhow():
    call = random_rows([4])
    shape = (*call.targets.shape, call.values.shape[-1])
    grad = torch.randn(shape)
    want = gradient(call, grad)
    at_odd_place = torch.zeros(grad.numel() + 1, device="cuda")[1:].view(shape).copy_(grad)
    apart = torch.zeros(*shape[:2], shape[2] + 3, device="cuda")[..., : shape[2]].copy_(grad)
    for given in (at_odd_place, apart):
        assert_same(gradient(call.on("cuda"), given).cpu(), want)
    one_row = grad[:1].expand(shape)
    assert_same(gradient(call.on("cuda"), one_row.cuda()).cpu(), gradient(call, one_row))


@pytest.mark.parametrize("extrapolate", ["clamp", "error"])
def test_rows_that_the_call_refuses_get_no_gradient(extrapolate):
    rows, samples = batch(), 512
    values = torch.randn(rows, samples, 14, device="cuda", requires_grad=True)
    times = torch.arange(float(samples), device="cuda").repeat(rows, 1)
    targets = times + 0.25
    targets[:, -1] = samples - 1
    if extrapolate == "error":
        targets[7, -1] = samples
    else:
        times[7, 100] = 3.0
    out = rc.resample(values, times, targets, extrapolate=extrapolate)
    with pytest.raises(rc.InvalidArgument, match="row 7"):
        rc.synchronize()
    out.backward(torch.ones_like(out))
    rc.synchronize()
    assert (values.grad[7] == 0).all()
    others = torch.arange(rows, device="cuda") != 7
    torch.testing.assert_close(
        values.grad[others].sum((1, 2)), torch.full((rows - 1,), samples * 14.0, device="cuda")
    )


def test_a_graph_of_it():
    call = random_rows([8]).on("cuda")
    call.options = {"method": "linear", "extrapolate": "linear"}
    values = call.values.requires_grad_()
    rc.warmup("resample", values, call.times, call.targets, **call.options)
    grad = torch.randn(*call.targets.shape, values.shape[-1], device="cuda")
    arguments = (None, call.times, call.targets, None, None, values.shape, "linear", "linear", True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.ops.robocache.resample_backward(grad, *arguments)
    grad.normal_()
    graph.replay()
    assert_same(result, torch.ops.robocache.resample_backward(grad, *arguments))
