"""The engine as the package calls it: so that torch can look into calls.

A call that torch must see (a gradient is wanted, a mode or functorch is at work, a tensor is of a
subclass) goes to the function of the same name in `_torch_ops`, which calls the op registered with torch;
and so does one that torch.compile traces, which takes `_sees` for `_must_see`. Here nothing imports torch,
and other calls pay for two more frames only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from robocache import _core
from robocache._core import torch_must_see
from robocache._stream import Stream

if TYPE_CHECKING:
    from robocache._core import farthest_points, fuse, resample, transform_points, unproject

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _must_see(arguments: tuple[Any, ...], options: dict[str, Any] | None = None) -> bool:
    """Whether torch must see a call."""
    return torch_must_see(arguments, options)


def _sees(arguments: tuple[Any, ...], options: dict[str, Any] | None = None) -> bool:
    """As `_must_see` where torch.compile traces it: always, but for what only the engine does, which ends the graph."""
    import torch

    if options is None:
        return True
    reason = ""
    if options.get("out") is not None or options.get("stream") is not None:
        reason = "`out` and `stream` cannot be used where torch must see the call"
    named = [options[name] for name in _DATA if name in options]
    data = arguments[0] if arguments else named[0] if named else None
    if isinstance(data, (list, tuple)):
        values = [each.values for each in data if isinstance(each, Stream)]
        there = [x for x in values if x is not None]
        # Without any values the targets decide, which torch takes as they are.
        data = there[0] if there else None if values else data
    if data is not None and not isinstance(data, torch.Tensor):
        reason = "only calls on torch tensors can be in a graph"
    if reason:
        dynamo: Any = torch._dynamo
        dynamo.graph_break(msg=f"robocache: {reason}")
    return True


_DATA = ("values", "streams", "points", "depth", "count")
"""What decides about the framework of a result."""
_must_see._torchdynamo_inline = _sees  # type: ignore[attr-defined]


def _traceable(function: _Function) -> _Function:
    """`function`, such that torch sees it where it must."""
    name = function.__name__

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if _must_see(arguments, options):
            return getattr(_torch_ops(), name)(*arguments, **options)
        return function(*arguments, **options)

    call.__module__ = "robocache"
    return call  # type: ignore[return-value]


def engine(*tensors: Any) -> Any:
    """What computes a call with these tensors, the first of which is the data: `_core` or `_torch_ops`."""
    return _torch_ops() if _must_see(tensors) else _core


def _torch_ops() -> Any:
    from robocache import _torch_ops

    return _torch_ops


@_traceable
def wait_for(count: Any, most: int) -> int:
    """A number that an op counted, at most `most`: this waits for a GPU."""
    # A call that only warms up counts nothing, so any number may stand there.
    return min(max(int(count), 0), most)


if not TYPE_CHECKING:
    farthest_points = _traceable(_core.farthest_points)
    fuse = _traceable(_core.fuse)
    resample = _traceable(_core.resample)
    transform_points = _traceable(_core.transform_points)
    unproject = _traceable(_core.unproject)

__all__ = [
    "engine",
    "farthest_points",
    "fuse",
    "resample",
    "transform_points",
    "unproject",
    "wait_for",
]
