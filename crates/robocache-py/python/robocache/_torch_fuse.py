"""`fuse` and its gradient, registered with torch."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._arguments import invalid
from robocache._errors import InvalidArgument
from robocache._stream import Stream
from robocache._torch_arguments import (
    IN_VALUES,
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
    refuse,
    refuse_gradients,
    refuse_options,
    refuse_stored,
    refuse_tangents,
    spread,
    stored_as,
    with_batch,
)
from robocache._torch_library import Op, call
from robocache._torch_resample import load_gradient, reads_values


@dataclass(frozen=True)
class _Streams:
    """What a call of `fuse` holds beside its tensors and numbers, as text that a schema can hold.

    The gaps are numbers of the schema, which also holds those that no literal does; infinity is no gap.
    """

    methods: tuple[str, ...]
    dims: tuple[int | None, ...]
    names: tuple[str | None, ...]
    tensors: tuple[tuple[bool, bool, bool], ...]
    """For each stream: whether it has samples, lengths, a scale."""
    has_target_lengths: bool

    @classmethod
    def of(cls, text: str) -> _Streams:
        return cls(*ast.literal_eval(text))

    def __str__(self) -> str:
        return repr(tuple(getattr(self, name) for name in self.__dataclass_fields__))

    def label(self, index: int) -> str:
        """What errors call a stream."""
        return _label(index, self.names)

    def columns(self, values: Sequence[Tensor]) -> list[int]:
        """The width of every stream."""
        left = iter(values)
        return [
            next(left).shape[-1] if present else int(dim or 0)
            for (present, _, _), dim in zip(self.tensors, self.dims, strict=True)
        ]

    def split(self, others: Sequence[Tensor]) -> tuple[Tensor, Tensor | None, list[Any]]:
        """Targets, their lengths, and (times, lengths, scale) of each stream."""
        left = iter(others)
        targets = next(left)
        target_lengths = next(left) if self.has_target_lengths else None
        streams = [
            tuple(next(left) if present else None for present in parts) for parts in self.tensors
        ]
        return targets, target_lengths, streams

    def axes(self) -> list[int | None]:
        """For each of those tensors: its axes beside the batch; a scale never has one."""
        found: list[int | None] = [1, 0] if self.has_target_lengths else [1]
        for parts in self.tensors:
            found += [own for own, is_there in zip((1, 0, None), parts, strict=True) if is_there]
        return found


def _label(index: int, names: Sequence[str | None]) -> str:
    """What errors call a stream, as the engine does: its place where another has the same name."""
    name = names[index]
    is_its_own = name is not None and list(names).count(name) == 1
    return f'streams["{name}"]' if is_its_own else f"streams[{index}]"


def _known(dim: int | None) -> int | None:
    """A number that torch.compile would keep open, as one that it knows: texts hold no others."""
    return None if dim is None else int(f"{int(dim)}")


def _list_of(streams: Any, op: str) -> list[Stream]:
    """The streams of a list or tuple."""
    if not isinstance(streams, (list, tuple)):
        text = f"expected a list of Stream, got {type(streams).__name__}"
        refuse(InvalidArgument, op, "streams", text)
    for index, each in enumerate(streams):
        if not isinstance(each, Stream):
            text = f"expected a Stream at index {index}, got {type(each).__name__}"
            refuse(InvalidArgument, op, "streams", text)
        if not torch.compiler.is_compiling() and not hasattr(each, "_parts"):
            text = "expected a Stream that was made by its own class"
            refuse(InvalidArgument, op, "streams", text)
    return list(streams)


def fuse(
    streams: Any,
    targets: Any,
    *,
    out_dtype: Any = None,
    extrapolate: Any = "clamp",
    target_lengths: Any = None,
    return_valid: bool = False,
    return_age: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """`robocache.fuse` of torch tensors through the registered op."""
    op = "fuse"
    refuse_options(op, out=out, stream=stream)
    return_valid = as_flag("return_valid", return_valid, op)
    return_age = as_flag("return_age", return_age, op)
    check = as_flag("check", check, op, True)
    streams = _list_of(streams, op)
    targets = as_tensor(targets, "targets", op)
    target_lengths = as_tensor(target_lengths, "target_lengths", op)
    refuse_gradients(op, IN_VALUES, targets=targets, target_lengths=target_lengths)
    values, others = [], [targets, *([] if target_lengths is None else [target_lengths])]
    present, methods, gaps = [], [], []
    names = tuple(each.name for each in streams)
    for index, each in enumerate(streams):
        label = _label(index, names)
        times = as_tensor(each.times, f"{label}.times", op)
        lengths = as_tensor(each.lengths, f"{label}.lengths", op)
        scale = as_factor(each.scale, op, f"{label}.scale")
        named = {"times": times, "lengths": lengths, "scale": scale}
        refuse_gradients(op, IN_VALUES, **{f"{label}.{k}": tensor for k, tensor in named.items()})
        if each.values is not None:
            values.append(as_tensor(each.values, f"{label}.values", op))
            refuse_stored(op, f"{label}.values", values[-1])
            refuse_tangents(op, f"{label}.values", values[-1])
        given = (times, lengths, scale)
        others += [tensor for tensor in given if tensor is not None]
        present.append((times is not None, lengths is not None, scale is not None))
        methods.append(name_of_method(each.method, op, f"{label}.method"))
        gap = as_seconds(each.max_gap, op, f"{label}.max_gap")
        gaps.append(math.inf if gap is None else gap)
    spec = _Streams(
        tuple(methods),
        tuple(_known(each.dim) for each in streams),
        names,
        tuple(present),
        target_lengths is not None,
    )
    results = call(
        op,
        values,
        others,
        str(spec),
        gaps,
        as_name("extrapolate", extrapolate, op, "clamp"),
        as_dtype(out_dtype, op),
        return_valid,
        return_age,
        as_device(device, op),
        as_text(max_memory),
        check,
    )
    return chosen(results, (True, return_valid, return_age))


_DTYPES = (torch.float32, torch.bool, torch.float32)
"""Of the result, where nothing says another, of `valid` and of `age`."""


def _fuse_kernel(
    values: list[Tensor],
    others: list[Tensor],
    streams: str,
    max_gaps: list[float],
    extrapolate: str,
    out_dtype: torch.dtype | None,
    return_valid: bool,
    return_age: bool,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, ...]:
    spec = _Streams.of(streams)
    targets, target_lengths, parts = spec.split(others)
    left = iter(values)
    made = [
        Stream(
            None if times is None else next(left),
            times,
            method=method_of(method),
            max_gap=max_gap,
            lengths=lengths,
            scale=scale,
            dim=dim,
            name=name,
        )
        for (times, lengths, scale), method, max_gap, dim, name in zip(
            parts, spec.methods, max_gaps, spec.dims, spec.names, strict=True
        )
    ]
    found = _core.fuse(
        made,
        targets,
        out_dtype=out_dtype,
        extrapolate=extrapolate,  # type: ignore[arg-type]
        target_lengths=target_lengths,
        return_valid=return_valid,
        return_age=return_age,
        device=device,
        max_memory=max_memory,
        check=check,
    )
    return spread(found, (True, return_valid, return_age), _DTYPES, (values or [targets])[0])


def _fuse_fake(
    values: list[Tensor],
    others: list[Tensor],
    streams: str,
    max_gaps: list[float],
    extrapolate: str,
    out_dtype: torch.dtype | None,
    return_valid: bool,
    return_age: bool,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    spec = _Streams.of(streams)
    targets, target_lengths, parts = spec.split(others)
    tensors = [("targets", targets, 1), ("target_lengths", target_lengths, 0)]
    left = iter(values)
    for index, (times, lengths, _scale) in enumerate(parts):
        label = spec.label(index)
        if times is not None:
            tensors += [(f"{label}.values", next(left), 2), (f"{label}.times", times, 1)]
        tensors += [(f"{label}.lengths", lengths, 0)]
    batch = common_batch("fuse", *tensors)
    steps = with_batch(batch, targets.shape[-1])
    if out_dtype is None:
        out_dtype = _promoted(values, spec, parts)
    like, count = (values or [targets])[0], len(parts)
    return (
        like.new_empty((*steps, sum(spec.columns(values))), dtype=out_dtype),
        like.new_empty((*steps, count) if return_valid else (0,), dtype=torch.bool),
        like.new_empty((*steps, count) if return_age else (0,), dtype=torch.float32),
    )


def _promoted(values: list[Tensor], spec: _Streams, parts: list[Any]) -> torch.dtype:
    """The dtype that holds all streams, by the engine's own table."""
    left, known = iter(values), None
    for index, (times, _, scale) in enumerate(parts):
        if times is None:
            continue
        name = str(stored_as(next(left).dtype, scale)).removeprefix("torch.")
        common = _core.promoted([name] if known is None else [known, name])
        if common is None:
            text = f"{spec.label(index)} has {name}, which has no common type with {known}"
            raise invalid("streams", text, "fuse")
        known = common
    found: torch.dtype = torch.float32 if known is None else getattr(torch, known)
    return found


def _fuse_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, others, ctx.streams, _, ctx.extrapolate, *_, ctx.check = inputs
    spec = _Streams.of(ctx.streams)
    there = [index for index, (present, _, _) in enumerate(spec.tensors) if present]
    for index, tensor in zip(there, values, strict=True):
        # Under vmap the call itself does not know yet that a gradient is wanted.
        refuse_stored("fuse", f"{spec.label(index)}.values", tensor, tensor.requires_grad)
    methods = [spec.methods[index] for index in there]
    kept = [v if reads_values(m) else None for v, m in zip(values, methods, strict=True)]
    ctx.shapes = [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in values]
    ctx.columns, ctx.count = spec.columns(values), len(values)
    ctx.save_for_backward(*kept, *others)
    ctx.mark_non_differentiable(*output[1:])


def _fuse_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
    """One gradient of `resample` for each stream, on its columns."""
    spec = _Streams.of(ctx.streams)
    kept, others = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
    targets, target_lengths, parts = spec.split(others)
    if grad.dim() == 3:
        # The batch may be that of another stream.
        targets = targets.expand(grad.shape[0], targets.shape[-1])
    results: list[Tensor | None] = []
    left = iter(zip(kept, ctx.shapes, strict=True))
    start = 0
    for (times, lengths, _scale), method, width in zip(
        parts, spec.methods, ctx.columns, strict=True
    ):
        if times is not None:
            values, (shape, dtype, wanted) = next(left)
            given = grad[..., start : start + width]
            results.append(
                call(
                    "resample_backward",
                    given.to(dtype),
                    values,
                    times,
                    targets,
                    lengths,
                    target_lengths,
                    shape,
                    method,
                    ctx.extrapolate,
                    ctx.check,
                    "fuse",
                )
                if wanted
                else None
            )
        start += width
    return (results, [None] * len(others), *(None,) * 9)


def load_gradients(streams: Any, targets: Any, **options: Any) -> None:
    """Called by `warmup`, as `load_gradient` of each stream that wants a gradient."""
    names = [each.name for each in streams]
    for index, each in enumerate(streams):
        given = {"method": each.method, "lengths": each.lengths, **options}
        named = "fuse", f"{_label(index, names)}.values"
        load_gradient(each.values, each.times, targets, named=named, **given)


FUSE = Op(
    name="fuse",
    schema="(Tensor[] values, Tensor[] others, str streams, float[] max_gaps, "
    "str extrapolate, ScalarType? out_dtype, bool return_valid, bool return_age, str? device, "
    "str? max_memory, bool check) -> (Tensor, Tensor, Tensor)",
    kernel=_fuse_kernel,
    fake=_fuse_fake,
    inner={
        0: lambda values, *_: [2] * len(values),
        1: lambda _values, _others, streams, *_: _Streams.of(streams).axes(),
    },
    backward=_fuse_gradient,
    setup_context=_fuse_setup,
    within="values",
)
