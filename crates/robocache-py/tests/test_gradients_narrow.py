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
    seed: int, dtype: torch.dtype, stamps: torch.dtype, width: int, method: str
) -> Call:
    """Rows of whole units of 16 bytes, with gaps, crowds and lengths."""
    rng = np.random.default_rng(seed)
    rows = batch()
    samples, steps = (int(rng.integers(*sizes)) * 8 for sizes in ((130, 300), (130, 400)))
    times = np.cumsum(rng.integers(1, 9, (rows, samples)), axis=1)
    first, last = sorted(rng.integers(-50, 6 * samples, 2)) if seed % 3 else (-9, 5 * samples)
    targets = np.sort(rng.integers(first, last + 1, (rows, steps)), axis=1)
    outside = ("clamp", "nan", "linear" if method == "linear" else "clamp")
    options = {"method": method, "extrapolate": outside[seed % 3]}
    if seed % 2:
        options["lengths"] = torch.from_numpy(rng.integers(1, samples + 1, rows))
    if seed % 4 > 1:
        options["target_lengths"] = torch.from_numpy(rng.integers(0, steps + 1, rows))
    values = torch.from_numpy(rng.normal(size=(rows, samples, width))).to(dtype)
    return Call(values, *(torch.from_numpy(x).to(stamps) for x in (times, targets)), options)


def compare(call: Call, seed: int) -> None:
    shape = (*call.targets.shape, call.values.shape[-1])
    grad = torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(call.values)
    # What weighs nothing must not matter, not even as NaN.
    grad[:, 3] = torch.nan
    assert_same(gradient(call.on("cuda"), grad.cuda()).cpu(), gradient(call, grad))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stamps", [torch.int64, torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_as_on_the_host(method, stamps, dtype):
    for seed, width in enumerate((1, 2, 3, 4, 7, 8, 14, 16, 24, 32)[: scaled(10)]):
        compare(random_rows(seed, dtype, stamps, width, method), seed)


def test_rows_that_are_left_to_others_are_made_too():
    """Some rows have targets in any order, equal stamps, or a target that is NaN."""
    call = random_rows(6, torch.float32, torch.float32, 14, "linear")
    call.targets[::5] = call.targets[::5].flip(1)
    call.times[1::5, 40:45] = call.times[1::5, 40:41]
    call.targets[2::5, 70] = torch.nan
    call.targets[3::50, -1] = torch.inf
    compare(call, 6)


def test_a_row_has_a_few_samples_and_many_targets_in_one_place():
    call = random_rows(9, torch.float32, torch.int64, 14, "linear")
    call.targets[:] = call.targets[:, :1]
    call.targets[::2] = call.times[::2, -1:] + 5
    compare(call, 9)


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
    call = random_rows(8, torch.float32, torch.float32, 14, "linear").on("cuda")
    values = call.values.requires_grad_()
    rc.warmup("resample", values, call.times, call.targets, **call.options)
    grad = torch.randn(*call.targets.shape, 14, device="cuda")
    arguments = (None, call.times, call.targets, None, None, values.shape, "linear", "linear", True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.ops.robocache.resample_backward(grad, *arguments)
    grad.normal_()
    graph.replay()
    assert_same(result, torch.ops.robocache.resample_backward(grad, *arguments))
