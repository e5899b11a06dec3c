"""Gradients where the targets of a row are in any order, and more than one tile of samples takes part."""

from __future__ import annotations

import itertools

import pytest
import torch

from agreement import assert_same
from devices import marks
from gradient_cases import Call, gradient

ON_CUDA = [pytest.param("cuda", marks=marks("cuda"))]


def call_of(batch, samples, steps, width, method, **options):
    generator = torch.Generator().manual_seed(steps)
    values = torch.randn(batch, samples, width, generator=generator)
    times = torch.cumsum(torch.randint(0, 9, (batch, samples), generator=generator), 1)
    targets = torch.randint(-9, 4 * samples, (batch, steps), generator=generator)
    grad = torch.randn(batch, steps, width, generator=generator)
    return Call(values, times, targets, {"method": method, **options}), grad


def in_order(call: Call, grad: torch.Tensor) -> tuple[Call, torch.Tensor]:
    order = torch.argsort(call.targets, dim=1, stable=True)
    targets = call.targets.gather(1, order)
    moved = grad.gather(1, order[..., None].expand_as(grad))
    return Call(call.values, call.times, targets, call.options), moved


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("method", ["linear", "previous", "slerp", "cubic"])
@pytest.mark.parametrize(("samples", "steps"), [(1500, 900), (130, 4000)])
def test_the_order_does_not_matter_on_the_host(samples, steps, method, shared):
    """Over many tiles, to which targets in any order are dealt."""
    call, grad = call_of(9, samples, steps, 12, method)
    values, grad = call.values.double(), grad.double()
    call = Call(values[0] if shared else values, call.times, call.targets, call.options)
    want = gradient(*in_order(call, grad))
    torch.testing.assert_close(gradient(call, grad), want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("device", ON_CUDA)
@pytest.mark.parametrize("method", ["slerp", "rot6d", "cubic"])
@pytest.mark.parametrize(("samples", "steps"), [(1500, 900), (700, 1500)])
def test_methods_that_read_values(samples, steps, method, device):
    call, grad = call_of(60, samples, steps, 12, method)
    got, want = gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad)
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4, equal_nan=True)


@pytest.mark.parametrize("device", ON_CUDA)
@pytest.mark.parametrize(
    ("method", "extrapolate"),
    [
        *itertools.product(["linear", "nearest", "previous", "next"], ["clamp", "nan"]),
        ("linear", "linear"),
    ],
)
def test_more_targets_than_samples(method, extrapolate, device):
    call, grad = call_of(80, 900, 3000, 4, method, extrapolate=extrapolate)
    assert_same(gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad))


@pytest.mark.parametrize("device", ON_CUDA)
def test_a_crowd_ahead_of_samples_without_targets(device):
    """As where targets are padded with zeros: all of them belong to one sample."""
    call, grad = call_of(200, 1200, 700, 3, "linear")
    targets = torch.where(call.targets < 3000, 0, call.targets)
    call = Call(call.values, call.times, targets, call.options)
    assert_same(gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad))


@pytest.mark.parametrize("device", ON_CUDA)
def test_rows_of_all_orders_share_their_values(device):
    call, grad = call_of(200, 300, 260, 3, "linear")
    targets = call.targets.clone()
    targets[::3] = targets[::3].sort(1).values
    targets[1::3] = targets[1::3] % 7
    call = Call(call.values[0], call.times, targets, call.options)
    assert_same(gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad))


@pytest.mark.parametrize("device", ON_CUDA)
@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("stamps", ["any order", "nan"])
def test_unchecked_stamps_do_no_harm(stamps, method, device):
    call, grad = call_of(80, 1200, 1300, 3, method, check=False)
    times = call.times.float() / 8
    if stamps == "nan":
        times[:, 100:200] = torch.nan
    else:
        times = times.flip(1)
    call = Call(call.values, times, call.targets.float() / 8, call.options)
    for one, given in ((call, grad), in_order(call, grad)):
        assert gradient(one.on(device), given.to(device)).shape == call.values.shape
