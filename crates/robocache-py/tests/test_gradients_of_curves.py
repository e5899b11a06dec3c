"""The gradient of cubics on a GPU, which walks along intervals, against the host's, which adds target by target."""

from __future__ import annotations

import pytest
import torch

from devices import marks
from gradient_cases import Call, gradient
from test_gradients_any_order import call_of, in_order

ON_CUDA = [pytest.param("cuda", marks=marks("cuda"))]
SIZES = [(1500, 900), (700, 1500), (130, 4000), (5, 300), (2, 40), (1, 7)]


@pytest.mark.parametrize("device", ON_CUDA)
@pytest.mark.parametrize("extrapolate", ["clamp", "linear", "nan"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("samples", "steps"), SIZES)
def test_targets_in_order_and_in_any_order(samples, steps, shared, extrapolate, device):
    """Equal stamps, targets outside and crowds of them, with and without room for them."""
    call, grad = call_of(40, samples, steps, 3, "cubic", extrapolate=extrapolate)
    values, grad = call.values.double(), grad.double()
    call = Call(values[0] if shared else values, call.times, call.targets, call.options)
    want = gradient(call, grad)
    for one, given in ((call, grad), in_order(call, grad)):
        got = gradient(one.on(device), given.to(device)).cpu()
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("device", ON_CUDA)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_and_lengths(dtype, device):
    call, grad = call_of(30, 600, 500, 9, "cubic")
    lengths = torch.arange(30) * 20
    call = Call(
        call.values.to(dtype), call.times, call.targets, {**call.options, "lengths": lengths}
    )
    for one, given in ((call, grad.to(dtype)), in_order(call, grad.to(dtype))):
        got, want = gradient(one.on(device), given.to(device)).cpu(), gradient(one, given)
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)
        assert not got[0].any()


@pytest.mark.parametrize("device", ON_CUDA)
def test_nan_goes_where_it_weighs(device):
    """Also where a weight rounds to 0, and where a slope does not depend on a sample."""
    times = torch.arange(6.0)
    values = torch.tensor([[0.0, 1.0, 1.0, 0.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0, 5.0, 4.0]]).T
    for target in (1.9999, 1.5, 2.0, 3.0001, 4.5, 7.0):
        call = Call(values, times, torch.tensor([target]), {"method": "cubic"})
        grad = torch.full((1, 2), torch.nan)
        got, want = gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad)
        assert torch.equal(got.isnan(), want.isnan()), target
        assert not got.nan_to_num().any()


@pytest.mark.parametrize("device", ON_CUDA)
def test_between_two_samples_no_digits_are_lost(device):
    targets = torch.linspace(0.99998, 0.99999, 500)
    call = Call(torch.zeros(2, 1), torch.arange(2.0), targets, {"method": "cubic"})
    got, want = (
        gradient(call.on(device), torch.ones(500, 1).to(device)).cpu(),
        gradient(call, torch.ones(500, 1)),
    )
    torch.testing.assert_close(got, want, rtol=1e-5, atol=0)
