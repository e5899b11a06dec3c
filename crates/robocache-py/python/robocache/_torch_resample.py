"""`resample` and its gradient, registered with torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._torch_arguments import (
    IN_VALUES,
    as_data,
    as_device,
    as_dtype,
    as_factor,
    as_flag,
    as_name,
    as_seconds,
    as_tensor,
    as_text,
    chosen,
    common_batch,
    method_of,
    name_of_method,
    no_second_gradient,
    refuse_gradients,
    refuse_options,
    refuse_stored,
    refuse_tangents,
    spread,
    stored_as,
    with_batch,
)
from robocache._torch_library import Op, call


def resample(
    values: Any,
    times: Any,
    targets: Any,
    *,
    method: Any = "linear",
    extrapolate: Any = "clamp",
    lengths: Any = None,
    target_lengths: Any = None,
    max_gap: Any = None,
    scale: Any = None,
    out_dtype: Any = None,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """`robocache.resample` of torch tensors through the registered op."""
    op = "resample"
    refuse_options(op, out=out, stream=stream)
    return_valid = as_flag("return_valid", return_valid, op)
    check = as_flag("check", check, op, True)
    times, targets = as_tensor(times, "times", op), as_tensor(targets, "targets", op)
    lengths = as_tensor(lengths, "lengths", op)
    target_lengths = as_tensor(target_lengths, "target_lengths", op)
    scale = as_factor(scale, op)
    refuse_gradients(
        op,
        IN_VALUES,
        times=times,
        targets=targets,
        lengths=lengths,
        target_lengths=target_lengths,
        scale=scale,
    )
    refuse_stored(op, "values", values)
    refuse_tangents(op, "values", values)
    results = call(
        op,
        as_data("values", values, op),
        times,
        targets,
        lengths,
        target_lengths,
        scale,
        name_of_method(method, op),
        as_name("extrapolate", extrapolate, op, "clamp"),
        as_seconds(max_gap, op),
        as_dtype(out_dtype, op),
        return_valid,
        as_device(device, op),
        as_text(max_memory),
        check,
    )
    return chosen(results, (True, return_valid))


def _resample_kernel(
    values: Tensor,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    scale: Tensor | None,
    method: str,
    extrapolate: str,
    max_gap: float | None,
    out_dtype: torch.dtype | None,
    return_valid: bool,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, ...]:
    resample: Any = _core.resample  # whose names and flags are typed as literals
    found = resample(
        values,
        times,
        targets,
        method=method_of(method),
        extrapolate=extrapolate,
        lengths=lengths,
        target_lengths=target_lengths,
        max_gap=max_gap,
        scale=scale,
        out_dtype=out_dtype,
        return_valid=return_valid,
        device=device,
        max_memory=max_memory,
        check=check,
    )
    return spread(found, (True, return_valid), (values.dtype, torch.bool), values)


def _resample_fake(
    values: Tensor,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    scale: Tensor | None,
    method: str,
    extrapolate: str,
    max_gap: float | None,
    out_dtype: torch.dtype | None,
    return_valid: bool,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, Tensor]:
    batch = common_batch(
        "resample",
        ("values", values, 2),
        ("times", times, 1),
        ("targets", targets, 1),
        ("lengths", lengths, 0),
        ("target_lengths", target_lengths, 0),
    )
    steps = with_batch(batch, targets.shape[-1])
    dtype = out_dtype or stored_as(values.dtype, scale)
    valid = values.new_empty(steps if return_valid else (0,), dtype=torch.bool)
    return values.new_empty((*steps, values.shape[-1]), dtype=dtype), valid


def reads_values(method: str) -> bool:
    """Whether the gradient depends on the values. Otherwise nothing needs to keep them alive."""
    return any(name in method for name in ("cubic", "slerp", "rot6d"))


def _resample_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, times, targets, lengths, target_lengths, _, method, extrapolate, *_, check = inputs
    # Under vmap the call itself does not know yet that a gradient is wanted.
    refuse_stored("resample", "values", values, ctx.needs_input_grad[0])
    kept = values if reads_values(method) else None
    ctx.save_for_backward(kept, times, targets, lengths, target_lengths)
    ctx.shape, ctx.dtype = values.shape, values.dtype
    ctx.options = method, extrapolate, check
    ctx.mark_non_differentiable(output[1])


def _resample_gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    result = None
    if ctx.needs_input_grad[0]:
        saved, grad = ctx.saved_tensors, grad.to(ctx.dtype)
        result = call("resample_backward", grad, *saved, ctx.shape, *ctx.options, "resample")
    return (result, *(None,) * 13)


def _backward_kernel(
    grad: Tensor,
    values: Tensor | None,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    shape: list[int],
    method: str,
    extrapolate: str,
    check: bool,
    of: str = "resample",
) -> Tensor:
    result: Tensor = _core.resample_backward(
        grad,
        values,
        times,
        targets,
        shape=list(shape),
        method=method_of(method),
        extrapolate=extrapolate,  # type: ignore[arg-type]
        lengths=lengths,
        target_lengths=target_lengths,
        check=check,
    )
    return result


def _backward_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.of = inputs[-1]


def _backward_fake(grad: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty(arguments[5])


def load_gradient(
    values: Tensor,
    times: Any,
    targets: Any,
    *,
    method: Any = "linear",
    extrapolate: Any = "clamp",
    lengths: Any = None,
    target_lengths: Any = None,
    check: bool = True,
    named: tuple[str, str] = ("resample", "values"),
    **others: Any,
) -> None:
    """Called by `warmup`: the engine loads kernels and computes nothing.

    `named` is what errors call the op and the values.
    """
    if not (isinstance(values, Tensor) and values.requires_grad):
        return  # another argument wants one, which the call itself refuses
    refuse_stored(*named, values)
    op, _ = named
    lengths = as_tensor(lengths, "lengths", op)
    target_lengths = as_tensor(target_lengths, "target_lengths", op)
    stamps = as_tensor(times, "times", op), as_tensor(targets, "targets", op)
    like = *stamps, lengths, target_lengths
    result, _ = _resample_fake(values, *like, None, "", "", None, None, False, None, None, check)
    options = {"extrapolate": extrapolate, "lengths": lengths, "target_lengths": target_lengths}
    _core.resample_backward(
        result, values, times, targets, shape=values.shape, method=method, check=check, **options
    )


RESAMPLE = Op(
    name="resample",
    schema="(Tensor values, Tensor times, Tensor targets, Tensor? lengths, "
    "Tensor? target_lengths, Tensor? scale, str method, str extrapolate, float? max_gap, "
    "ScalarType? out_dtype, bool return_valid, str? device, str? max_memory, bool check) "
    "-> (Tensor, Tensor)",
    kernel=_resample_kernel,
    fake=_resample_fake,
    inner={0: 2, 1: 1, 2: 1, 3: 0, 4: 0},
    backward=_resample_gradient,
    setup_context=_resample_setup,
    within="values",
)
RESAMPLE_BACKWARD = Op(
    name="resample_backward",
    schema="(Tensor grad, Tensor? values, Tensor times, Tensor targets, Tensor? lengths, "
    "Tensor? target_lengths, SymInt[] shape, str method, str extrapolate, bool check, "
    'str of="resample") -> Tensor',
    kernel=_backward_kernel,
    fake=_backward_fake,
    inner={0: 2, 1: 2, 2: 1, 3: 1, 4: 0, 5: 0},
    backward=no_second_gradient("resample"),
    setup_context=_backward_setup,
    of="resample",
    within="values",
    shape=6,
    full=(0, 1),
)
