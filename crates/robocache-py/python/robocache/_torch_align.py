"""`resample` and `fuse` and their gradients, registered with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._arguments import invalid
from robocache._torch_arguments import (
    method_of,
    reads_values,
    refuse_stored,
    stored_as,
    with_batch,
)
from robocache._torch_kinds import Part, label, part, streams_in
from robocache._torch_library import (
    Arguments,
    Gradient,
    Op,
    Output,
    call,
    described,
    no_second_gradient,
)

# -- the gradient of both --------------------------------------------------------------------------


def _backward(a: Arguments) -> Any:
    return _core.resample_backward(
        a.grad,
        a.values,
        a.times,
        a.targets,
        shape=list(a.shape),
        method=method_of(a.method),
        extrapolate=a.extrapolate or "clamp",
        lengths=a.lengths,
        target_lengths=a.target_lengths,
        check=a.check is not False,
    )


RESAMPLE_BACKWARD = Op(
    "resample_backward",
    (
        Part("grad", "Tensor", 2),
        Part("values", "Tensor?", 2),
        *(part(name) for name in ("times", "targets", "lengths", "target_lengths")),
        Part("shape", "SymInt[]"),
        *(part(name) for name in ("method", "extrapolate", "check")),
        Part("of", "str"),
    ),
    outputs=lambda a: [(True, tuple(a.shape), a.grad.dtype)],
    compute=_backward,
    gradient=no_second_gradient("values", lambda a: str(a.of)),
    of="resample",
    shape="shape",
    full=("grad", "values"),
)


# -- resample --------------------------------------------------------------------------------------


def _resample_outputs(a: Arguments) -> Sequence[Output]:
    steps = with_batch(RESAMPLE.batch(a), a.targets.shape[-1])
    dtype = a.out_dtype or stored_as(a.values.dtype, a.scale)
    return [(True, (*steps, a.values.shape[-1]), dtype), (a.return_valid, steps, torch.bool)]


def _resample_save(ctx: Any, a: Arguments) -> None:
    # Under vmap the call itself does not know yet that a gradient is wanted.
    refuse_stored("resample", "values", a.values, a.values.requires_grad)
    kept = a.values if reads_values(a.method) else None
    ctx.save_for_backward(kept, a.times, a.targets, a.lengths, a.target_lengths)
    ctx.shape, ctx.dtype = a.values.shape, a.values.dtype
    ctx.options = a.method, a.extrapolate, a.check


def _resample_gradient(ctx: Any, grad: Tensor) -> dict[str, Any]:
    if not ctx.needs_input_grad[0]:
        return {}
    grad, options = grad.to(ctx.dtype), ctx.options
    found = call("resample_backward", grad, *ctx.saved_tensors, ctx.shape, *options, "resample")
    return {"values": found}


RESAMPLE, read_resample = described(
    _core.resample,
    outputs=_resample_outputs,
    results=2,
    flags=(None, "return_valid"),
    optional=lambda a: [(True, a.values.dtype), (a.return_valid, torch.bool)],
    gradient=Gradient("values", _resample_save, _resample_gradient),
)


# -- fuse ------------------------------------------------------------------------------------------


def _fuse_outputs(a: Arguments) -> Sequence[Output]:
    streams = streams_in(a)
    names = [each.name for each in streams]
    tensors: list[tuple[str, Tensor | None, int]] = []
    width = 0
    for index, each in enumerate(streams):
        called = label(index, names)
        if each.values is not None:
            tensors += [(f"{called}.values", each.values, 2), (f"{called}.times", each.times, 1)]
        tensors.append((f"{called}.lengths", each.lengths, 0))
        width += int(each.dim or 0) if each.values is None else each.values.shape[-1]
    steps = with_batch(FUSE.batch(a, *tensors), a.targets.shape[-1])
    return [
        (True, (*steps, width), a.out_dtype or _promoted(streams, names)),
        (a.return_valid, (*steps, len(streams)), torch.bool),
        (a.return_age, (*steps, len(streams)), torch.float32),
    ]


def _promoted(streams: list[Any], names: list[str | None]) -> torch.dtype:
    """The dtype that holds all streams, by the engine's own table."""
    known = None
    for index, each in enumerate(streams):
        if each.values is None:
            continue
        name = str(stored_as(each.values.dtype, each.scale)).removeprefix("torch.")
        common = _core.promoted([name] if known is None else [known, name])
        if common is None:
            text = f"{label(index, names)} has {name}, which has no common type with {known}"
            raise invalid("streams", text, "fuse")
        known = common
    found: torch.dtype = torch.float32 if known is None else getattr(torch, known)
    return found


def _fuse_save(ctx: Any, a: Arguments) -> None:
    streams = streams_in(a)
    names = [each.name for each in streams]
    kept = []
    for index, each in enumerate(streams):
        if each.values is not None:
            # Under vmap the call itself does not know yet that a gradient is wanted.
            called = f"{label(index, names)}.values"
            refuse_stored("fuse", called, each.values, each.values.requires_grad)
            kept.append(each.values if reads_values(each.method) else None)
    ctx.shapes = [(x.shape, x.dtype, x.requires_grad) for x in a.values]
    ctx.count, ctx.others = len(kept), len(a.others)
    ctx.packed = {"layout": a.layout, "max_gaps": a.max_gaps}
    ctx.options = a.extrapolate, a.check
    ctx.save_for_backward(*kept, *a.others, a.targets, a.target_lengths)


def _fuse_gradient(ctx: Any, grad: Tensor) -> dict[str, Any]:
    """One gradient of `resample` for each stream, on its columns."""
    *saved, targets, target_lengths = ctx.saved_tensors
    kept, others = saved[: ctx.count], saved[ctx.count :]
    if grad.dim() == 3:
        # The batch may be that of another stream.
        targets = targets.expand(grad.shape[0], targets.shape[-1])
    results: list[Tensor | None] = []
    left = iter(zip(kept, ctx.shapes, strict=True))
    start = 0
    for each in streams_in(Arguments(values=kept, others=others, **ctx.packed)):
        if each.times is None:
            start += each.dim or 0
            continue
        values, (shape, dtype, wanted) = next(left)
        given = grad[..., start : start + shape[-1]].to(dtype)
        start += shape[-1]
        if not wanted:
            results.append(None)
            continue
        rest = each.lengths, target_lengths, shape, each.method, *ctx.options, "fuse"
        results.append(call("resample_backward", given, values, each.times, targets, *rest))
    return {"values": results, "others": [None] * ctx.others}


FUSE, read_fuse = described(
    _core.fuse,
    outputs=_fuse_outputs,
    results=3,
    flags=(None, "return_valid", "return_age"),
    optional=lambda a: [
        (True, torch.float32),
        (a.return_valid, torch.bool),
        (a.return_age, torch.float32),
    ],
    like=lambda a: a.values[0] if a.values else a.targets,
    gradient=Gradient("values", _fuse_save, _fuse_gradient),
)
