"""Gradients in the values of `resample`: right, deterministic, the same bits on every device."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same
from devices import marks
from gradient_cases import LINEAR, MIXED, OTHERS, Call, gradient, random_call
from helpers import scaled
from refusal import assert_refused

HALF = (torch.float16, torch.bfloat16)


def random_grad(call: Call, seed: int) -> torch.Tensor:
    shape = call.run(call.values).shape
    numbers = np.random.default_rng(seed).normal(size=tuple(shape))
    return torch.from_numpy(numbers).to(call.values)


@pytest.mark.parametrize("method", [*LINEAR, *OTHERS, MIXED], ids=str)
def test_gradcheck(method, device):
    for seed in range(scaled(12)):
        call = random_call(seed, method).on(device)
        if isinstance(method, str) and call.values.numel() > 200:
            call.values = call.values[..., : {"slerp": 4, "rot6d": 6}.get(method, 3)].contiguous()
        values = call.values.requires_grad_()
        torch.autograd.gradcheck(
            lambda x, call=call: torch.nan_to_num(call.run(x)), (values,), fast_mode=False
        )


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF], ids=str)
def test_against_autograd_through_a_matrix_product(method, dtype, device):
    for seed in range(scaled(60)):
        call = random_call(seed, method, dtype=dtype)
        grad = random_grad(call, seed)
        want = call.expected(grad)
        got = gradient(call.on(device), grad.to(device)).cpu()
        assert got.shape == call.values.shape and got.dtype == dtype
        # Rounding of the result, and of weights and sums in f32 (f64 for f64).
        work = torch.float64 if dtype == torch.float64 else torch.float32
        error = (got.double() - want).abs()
        slack = 4 * torch.finfo(work).eps * (1 + grad.double().abs().sum())
        assert (error <= torch.finfo(dtype).eps * want.abs() + slack).all(), (seed, error.max())


@pytest.mark.parametrize("method", [*OTHERS, MIXED], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_other_methods_in_other_dtypes(method, dtype, device):
    """Against the gradient in float64 of the same numbers."""
    for seed in range(scaled(20)):
        call = random_call(seed, method, dtype=dtype)
        # Values away from where a method bends: lengths of 0, slopes of 0.
        generator = torch.Generator().manual_seed(seed)
        call.values = (torch.rand(call.values.shape, generator=generator) + 0.5).to(dtype)
        grad = random_grad(call, seed)
        exact = Call(call.values.double(), call.times, call.targets, call.options)
        want = gradient(exact, grad.double())
        got = gradient(call.on(device), grad.to(device)).cpu()
        assert got.dtype == dtype
        # Nearly parallel columns and nearly equal slopes lose digits.
        bend = 3e-5 if method in ("angle", "slerp") else 3e-3
        allowed = torch.finfo(dtype).eps * want.abs() + bend * (1 + grad.double().abs().max())
        error = (got.double() - want).abs()
        assert torch.quantile((error / allowed).flatten(), 0.98) <= 1, (seed, error.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nearly_equal_and_opposite_quaternions(dtype, device):
    """Tiny angles use a series; across a sign flip the gradient changes its sign with the sample."""
    base = torch.tensor([0.1, -0.4, 0.3, 0.8], dtype=torch.float64)
    targets = torch.tensor([0.3, 0.6], dtype=torch.float64, device=device)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device)
    for step in (0.0, 1e-9, 1e-4, 4e-3, 6e-3, 0.05, 0.11, 0.5):
        values = torch.stack([base, base + step * torch.tensor([0.5, 0.2, -0.7, 0.1])]).to(dtype)
        found = []
        for sign in (1, -1):
            signed = torch.stack([values[0], sign * values[1]]).to(device).requires_grad_()
            out = rc.resample(signed, times, targets, method="slerp")
            out.backward(torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, -3.0, 2.0, 1.0]]).to(out))
            found.append(signed.grad.cpu().double())
        torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found[0][1], -found[1][1], rtol=1e-5, atol=1e-6)
        assert torch.isfinite(found[0]).all()
        if dtype == torch.float64:
            torch.autograd.gradcheck(
                lambda x: rc.resample(x, times, targets, method="slerp"),
                values.to(device).requires_grad_(),
            )


def test_sorted_targets_against_torch_s_own_words():
    """searchsorted, gather, lerp, and autograd through them."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(3, 50, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    times = torch.cumsum(torch.rand(3, 50, generator=generator, dtype=torch.float64) + 0.1, 1)
    targets = torch.rand(3, 200, generator=generator, dtype=torch.float64).sort(1).values * 40 - 2
    high = torch.searchsorted(times, targets, right=True).clamp(1, 49)
    start, end = times.gather(1, high - 1), times.gather(1, high)
    weight = ((targets - start) / (end - start)).clamp(0, 1).unsqueeze(-1)
    low, high = (i.unsqueeze(-1).expand(-1, -1, 6) for i in (high - 1, high))
    grad = torch.randn(3, 200, 6, generator=generator, dtype=torch.float64)
    out = torch.lerp(values.gather(1, low), values.gather(1, high), weight)
    (want,) = torch.autograd.grad(out, values, grad)
    (got,) = torch.autograd.grad(rc.resample(values, times, targets), values, grad)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF], ids=str)
def test_the_same_bits_on_every_run_and_device(dtype, device):
    for seed in range(scaled(100)):
        call = random_call(seed, LINEAR[seed % 4], dtype=dtype)
        grad = random_grad(call, seed)
        want = gradient(call, grad)
        moved, grad = call.on(device), grad.to(device)
        got = gradient(moved, grad)
        assert_same(got.cpu(), want, (seed, call.options))
        assert_same(gradient(moved, grad).cpu(), want, seed)


SIZES = [
    (3, 20_000, 50, 2),
    (2, 40, 9000, 5),
    (700, 30, 40, 3),
    (2, 300, 280, 1031),
    (1, 3000, 3000, 64),
    (300, 1100, 1300, 2),
    (300, 1100, 1750, 2),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["sorted", "crowded, sorted", "crowded", "any order", "shared"])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=marks("cuda"))])
def test_sizes_beyond_a_tile_agree(sizes, dtype, kind, device):
    batch, samples, steps, width = sizes
    generator = torch.Generator().manual_seed(samples)
    values = torch.zeros(batch, samples, width, dtype=dtype)
    times = torch.cumsum(torch.randint(0, 9, (batch, samples), generator=generator), 1)
    targets = torch.randint(-9, 4 * samples, (batch, steps), generator=generator)
    if "crowded" in kind:
        targets = targets.clamp(0, samples // 2)
    if "sorted" in kind:
        targets = targets.sort(1).values
    call = Call(values[0] if kind == "shared" else values, times, targets)
    grad = torch.randn(batch, steps, width, generator=generator).to(dtype)
    assert_same(gradient(call.on(device), grad.to(device)).cpu(), gradient(call, grad))


def test_views_of_gradients_give_the_bits_of_their_copies(device):
    call = random_call(3, dtype=torch.float32).on(device)
    shape = call.run(call.values).shape
    for grad in (
        torch.ones((), device=device).expand(shape),
        torch.randn(*shape[:-1], 2 * shape[-1], device=device)[..., ::2],
        torch.randn(*reversed(shape), device=device).permute(*range(len(shape) - 1, -1, -1)),
        torch.randn(shape.numel() + 1, device=device)[1:].view(shape),
    ):
        assert_same(gradient(call, grad), gradient(call, grad.contiguous()))


def test_rows_that_give_nothing_get_nothing(device):
    """No samples, no targets, NaN outside: the gradient is 0 there, not NaN."""
    values = torch.randn(3, 4, 2, dtype=torch.float64, device=device, requires_grad=True)
    times = torch.arange(4, device=device)
    targets = torch.tensor([[-1, 1, 9]], device=device)
    lengths, steps = torch.tensor([4, 0, 4], device=device), torch.tensor([3, 3, 0], device=device)
    out = rc.resample(
        values, times, targets, extrapolate="nan", lengths=lengths, target_lengths=steps
    )
    out.backward(torch.ones_like(out))
    want = torch.zeros(3, 4, 2, dtype=torch.float64)
    want[0, 1] = 1
    assert torch.equal(values.grad.cpu(), want)


def test_empty_shapes(device):
    for shape, steps in (((0, 3, 2), 4), ((2, 3, 2), 0), ((2, 3, 0), 4), ((3, 2), 0)):
        values = torch.randn(shape, device=device, requires_grad=True)
        out = rc.resample(
            values, torch.arange(3, device=device), torch.arange(steps, device=device)
        )
        out.sum().backward()
        assert values.grad.shape == shape and not values.grad.any()
    # A batch of no rows that shares its values.
    values = torch.randn(3, 2, device=device, requires_grad=True)
    targets = torch.zeros(0, 4, dtype=torch.int64, device=device)
    rc.resample(values, torch.arange(3, device=device), targets).sum().backward()
    assert values.grad.shape == (3, 2) and not values.grad.any()


def test_valid_comes_without_a_gradient(device):
    values = torch.randn(4, 2, device=device, requires_grad=True)
    times = torch.arange(4, device=device)
    out, valid = rc.resample(values, times, times + 1, return_valid=True)
    assert out.requires_grad and not valid.requires_grad
    assert valid.tolist() == [True, True, True, False]
    out.sum().backward()
    assert values.grad.sum(1).tolist() == [0.0, 2.0, 2.0, 4.0]


def test_no_grad_and_detached_values_make_no_graph():
    values = torch.randn(4, 2, requires_grad=True)
    times = torch.arange(4)
    with torch.no_grad():
        assert not rc.resample(values, times, times).requires_grad
    assert not rc.resample(values.detach(), times, times).requires_grad
    with torch.inference_mode():
        assert not rc.resample(values, times, times).requires_grad


def test_linear_methods_do_not_keep_their_values():
    leaf = torch.randn(4, 2, requires_grad=True)
    values = leaf * 2
    gone = weakref.ref(values)
    times = torch.arange(4)
    out = rc.resample(values, times, times)
    del values
    gc.collect()
    assert gone() is None
    out.sum().backward()
    assert (leaf.grad == 2).all()


def test_a_write_to_the_stamps_before_backward_is_found():
    values, times = torch.randn(4, 2, requires_grad=True), torch.arange(4.0)
    out = rc.resample(values, times, torch.tensor([0.5, 1.5]))
    times.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_double_backward_is_refused():
    values, times = torch.randn(4, 2, requires_grad=True), torch.arange(4)
    out = rc.resample(values, times, times)
    (grad,) = torch.autograd.grad(
        out, values, torch.ones_like(out, requires_grad=True), create_graph=True
    )
    assert_refused(
        lambda: grad.sum().backward(), "Unsupported", None, "double backward", op="resample"
    )


@pytest.mark.parametrize("argument", ["times", "targets"])
def test_stamps_have_no_gradient(argument):
    call = {"values": torch.randn(4, 2), "times": torch.arange(4.0), "targets": torch.tensor([0.5])}
    call[argument].requires_grad_()
    for wanted in (False, True):
        call["values"].requires_grad_(wanted)
        assert_refused(
            lambda: rc.resample(**call),
            "Unsupported",
            argument,
            "gradients exist in the values only",
        )


@pytest.mark.parametrize("argument", ["out", "stream"])
def test_options_that_do_not_go_with_gradients(argument):
    values, times = torch.randn(4, 2, requires_grad=True), torch.arange(4)
    given = {"out": torch.empty(4, 2), "stream": 0}[argument]
    assert_refused(
        lambda: rc.resample(values, times, times, **{argument: given}),
        "Unsupported",
        argument,
        "gradients",
    )


def test_errors_are_those_of_other_calls():
    values = torch.randn(4, 2, requires_grad=True)
    times = torch.tensor([0, 2, 1, 3])
    assert_refused(
        lambda: rc.resample(values, times, times), "InvalidArgument", "times", "row 0 decreases"
    )
    times = torch.arange(4)
    for option, bad in (
        ("method", "none"),
        ("method", [("linear",)]),
        ("method", 3),
        ("device", "tpu"),
    ):
        assert_refused(
            lambda o=option, b=bad: rc.resample(values, times, times, **{o: b}),
            "InvalidArgument",
            option,
        )


@pytest.mark.parametrize("argument", ["times", "targets", "lengths"])
def test_lists_and_arrays_beside_values_with_a_gradient(argument):
    values = torch.randn(2, 4, 2, dtype=torch.float64)
    call = {"times": np.arange(4.0), "targets": np.array([0.1, 2.2]), "lengths": np.array([4, 3])}
    want = rc.resample(values, **call)
    call[argument] = call[argument].tolist()
    out = rc.resample(values.requires_grad_(), **call)
    assert torch.equal(out, want) and out.requires_grad


def test_a_result_of_another_dtype(device):
    values = torch.randn(4, 2, device=device, requires_grad=True)
    times = torch.arange(4, device=device)
    out = rc.resample(values, times, times, out_dtype=torch.float64)
    assert out.dtype == torch.float64
    out.sum().backward()
    assert values.grad.dtype == torch.float32 and (values.grad == 1).all()


def test_the_values_are_needed_where_the_gradient_depends_on_them():
    rc.resample(torch.zeros(2, 4, requires_grad=True), [0, 1], [0])  # registers the ops
    grad, times = torch.zeros(3, 4), torch.arange(3)
    arguments = (grad, None, times, times, None, None, [3, 4])
    slerp = [rc._core.METHODS.index("slerp")]
    assert_refused(
        lambda: torch.ops.robocache.resample_backward(*arguments, slerp, "clamp", True, "resample"),
        "InvalidArgument",
        "values",
        "depends on them",
        op="resample_backward",
    )


# -- fuse -------------------------------------------------------------------------------------


def streams(device: str, dtype: torch.dtype = torch.float64) -> tuple[list, torch.Tensor]:
    """Three streams, one without a batch, of different rates, methods and types; and targets."""
    generator = torch.Generator().manual_seed(4)

    def random(*shape, dtype=dtype):
        made = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return made.to(device, dtype).requires_grad_()

    def stamps(*shape):
        return torch.cumsum(
            torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.1, -1
        ).to(device)

    first = (random(3, 20, 5), stamps(3, 20), {"method": [("linear", 0, 1), ("slerp", 1, 5)]})
    lengths = torch.tensor([9, 4, 0], device=device)
    second = (random(3, 9, 2), stamps(3, 9), {"method": "cubic", "lengths": lengths})
    third = (random(7, 3), stamps(7), {"method": "previous", "max_gap": 0.5})
    targets = (torch.rand(3, 30, generator=generator, dtype=torch.float64) * 4).to(device)
    return [first, second, third], targets


def fused(parts: list, targets: torch.Tensor, **options):
    made = [rc.Stream(values, times, **more) for values, times, more in parts]
    return rc.fuse([*made[:2], rc.Stream(None, dim=2), made[2]], targets, **options)


def test_gradients_of_fused_streams_are_those_of_each(device):
    parts, targets = streams(device)
    out, valid, age = fused(parts, targets, return_valid=True, return_age=True)
    assert out.requires_grad and not valid.requires_grad and not age.requires_grad
    alone = [
        rc.resample(values, times, targets, method=more["method"], lengths=more.get("lengths"))
        for values, times, more in parts
    ]
    columns = out[..., :5], out[..., 5:7], out[..., 9:]
    loss = torch.nan_to_num(out).square().sum()
    grads = torch.autograd.grad(loss, [part[0] for part in parts], retain_graph=True)
    for mine, own, part, grad in zip(columns, alone, parts, grads, strict=True):
        assert_same(mine.detach().cpu(), own.detach().cpu())
        (want,) = torch.autograd.grad(torch.nan_to_num(own).square().sum(), part[0])
        torch.testing.assert_close(grad, want, rtol=1e-12, atol=1e-12)
    assert not torch.autograd.grad(out[..., 7:9].sum(), parts[0][0])[0].any()


def test_gradcheck_of_fused_streams(device):
    parts, targets = streams(device)

    def call(*values):
        replaced = [(new, *rest) for new, (_, *rest) in zip(values, parts, strict=True)]
        return torch.nan_to_num(fused(replaced, targets[:, :6]))

    torch.autograd.gradcheck(call, tuple(part[0] for part in parts))


def test_one_of_the_fused_streams_wants_a_gradient(device):
    parts, targets = streams(device, torch.float32)
    parts[0] = (parts[0][0].detach().half(), *parts[0][1:])
    parts[2] = (parts[2][0].detach(), *parts[2][1:])
    out = fused(parts, targets)
    assert out.dtype == torch.float32
    torch.nan_to_num(out).sum().backward()
    assert parts[1][0].grad.any() and parts[0][0].grad is None and parts[2][0].grad is None


def test_a_stream_without_a_batch_beside_targets_without_one(device):
    """Only another stream has the batch: the gradients of its rows are added up."""
    parts, targets = streams(device)
    own = fused([parts[0], parts[1], parts[2]], targets[0])
    (grad,) = torch.autograd.grad(own[..., 9:].sum(), parts[2][0])
    alone = rc.resample(parts[2][0], parts[2][1], targets[0], method="previous")
    (want,) = torch.autograd.grad(alone.sum(), parts[2][0])
    torch.testing.assert_close(grad, 3 * want)


def test_fuse_refuses_what_has_no_gradient():
    parts, targets = streams("cpu")
    assert_refused(
        lambda: fused(parts, targets.requires_grad_()),
        "Unsupported",
        "targets",
        "values only",
        op="fuse",
    )
    assert_refused(
        lambda: fused(parts, targets.detach(), out=torch.empty(3, 30, 12)),
        "Unsupported",
        "out",
        op="fuse",
    )


@pytest.mark.gpu
def test_bad_rows_on_a_gpu_get_no_gradient_and_are_reported_once():
    values = torch.randn(3, 4, 2, device="cuda", requires_grad=True)
    times = torch.arange(4.0, device="cuda").repeat(3, 1)
    times[1, 2] = 0.5
    targets = torch.tensor([0.5, 1.5, 2.5], device="cuda")
    out = rc.resample(values, times, targets)
    with pytest.raises(rc.InvalidArgument, match="row 1 decreases at index 2"):
        rc.synchronize()
    out.backward(torch.ones_like(out))
    rc.synchronize()
    assert torch.isnan(out[1]).all()
    assert (values.grad[1] == 0).all() and (values.grad[[0, 2]].sum((1, 2)) == 6).all()


@pytest.mark.gpu
def test_unchecked_stamps_out_of_order_do_no_harm():
    values = torch.randn(1, 8, 1024, device="cuda", requires_grad=True)
    times = torch.tensor([0.0, 8, 9, 1, 2, 3, 4, 5], device="cuda")
    out = rc.resample(values, times, torch.arange(10.0, device="cuda"), check=False)
    out.backward(torch.ones_like(out))
    torch.cuda.synchronize()
    assert values.grad.shape == values.shape


@pytest.mark.gpu
def test_a_graph_of_forward_and_backward():
    values = torch.randn(2, 50, 8, device="cuda", requires_grad=True)
    times, targets = torch.arange(50, device="cuda"), torch.randint(0, 50, (2, 30), device="cuda")
    rc.warmup("resample", values, times, targets)
    values.grad = torch.zeros_like(values)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        rc.resample(values, times, targets).square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values.grad.zero_()
        rc.resample(values, times, targets).square().sum().backward()
    with torch.no_grad():
        values.normal_()
    graph.replay()
    got = values.grad.clone()
    values.grad = None
    rc.resample(values, times, targets).square().sum().backward()
    assert_same(got, values.grad)


@pytest.mark.gpu
def test_warming_up_loads_the_gradient_too():
    """A first backward inside a capture would have to compile."""
    values = torch.randn(2, 50, 3, dtype=torch.float16, device="cuda", requires_grad=True)
    times = torch.arange(50.0, device="cuda")
    rc.warmup("resample", values, times, times)
    grad = torch.ones(2, 50, 3, dtype=torch.float16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = torch.ops.robocache.resample_backward(
            grad, None, times, times, None, None, values.shape, [0], "clamp", True, "resample"
        )
    graph.replay()
    assert (result == 1).all()
