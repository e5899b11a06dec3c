"""`rotation.convert` and its gradient, registered with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from robocache import _core
from robocache._torch_arguments import with_batch
from robocache._torch_kinds import Part, part, rotation_axes
from robocache._torch_library import (
    Arguments,
    Gradient,
    Op,
    Output,
    call,
    described,
    load_gradient,
    no_second_gradient,
)

NAME = "rotation.convert"


def _outputs(a: Arguments) -> Sequence[Output]:
    return [(True, with_batch(CONVERT.batch(a), *_core.ROTATIONS[a.target]), a.x.dtype)]


def _save(ctx: Any, a: Arguments) -> None:
    ctx.save_for_backward(a.x)
    ctx.names = a.source, a.target


def _gradient(ctx: Any, grad: Tensor) -> dict[str, Any]:
    return {"x": call("rotation_backward", *ctx.saved_tensors, grad, *ctx.names)}


CONVERT, read_convert = described(
    _core.rotation_convert,
    outputs=_outputs,
    of=NAME,
    gradient=Gradient("x", _save, _gradient),
)

BACKWARD = Op(
    "rotation_backward",
    (
        part("x"),
        Part("grad", "Tensor", lambda a: rotation_axes(a.target)),
        part("source"),
        part("target"),
    ),
    outputs=lambda a: [(True, tuple(a.x.shape), a.x.dtype)],
    compute=lambda a: _core.rotation_backward(a.x, a.grad, a.source, a.target),
    gradient=no_second_gradient("x", lambda _: NAME),
    of=NAME,
    full=("x", "grad"),
)


def load(x: Tensor, source: str, target: str, **options: Any) -> None:
    """For `warmup`, with rows as the engine takes them."""
    rows = x.reshape(-1, *_core.ROTATIONS[source])
    load_gradient(CONVERT, read_convert)(rows, source, target, **options)
