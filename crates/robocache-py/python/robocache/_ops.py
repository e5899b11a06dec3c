"""The engine as the package calls it: so that torch can look into calls.

Of a call that torch must see (a gradient is wanted, a mode or functorch is at work, a tensor is of a
subclass) the engine returns NotImplemented, and it goes to the function of the same name in `_torch_ops`,
which calls the op registered with torch; and so does one that torch.compile traces. What is made of several
calls asks first (`engine`). Here nothing imports torch, and other calls pay for two more frames only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from robocache import _core
from robocache._arguments import only_named  # noqa: F401 - in the text that `_by_place` writes
from robocache._source import written
from robocache._stream import Stream

if TYPE_CHECKING:
    from robocache._core import (
        farthest_points,
        fk,
        fuse,
        ik,
        jacobian,
        joint_velocity,
        resample,
        rotation_convert,
        transform_points,
        unproject,
    )

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_traced() -> bool:
    """Whether torch.compile traces this call: it takes `_yes` for it."""
    return False


def _yes() -> bool:
    return True


def _joins_a_graph(data: Any, out: Any, stream: Any) -> bool:
    """Whether torch.compile, which traces this call, goes on with it: it takes `_joins` for it."""
    return False


def _joins(data: Any, out: Any, stream: Any) -> bool:
    """As `_joins_a_graph` where it is traced: yes, but for what only the engine does, which ends the graph."""
    import torch

    reason = ""
    if out is not None or stream is not None:
        reason = "`out` and `stream` cannot be used where torch must see the call"
    if isinstance(data, (list, tuple)):
        values = [each.values for each in data if isinstance(each, Stream)]
        there = [x for x in values if x is not None]
        # Without any values the targets decide, which torch takes as they are.
        data = there[0] if there else None if values else data
    if data is not None and not isinstance(data, torch.Tensor):
        reason = "only calls on torch tensors can be in a graph"
    if reason:
        dynamo: Any = torch._dynamo
        # What follows is not traced: `_joins_a_graph` is asked again, and says no.
        dynamo.graph_break(msg=f"robocache: {reason}")
    return True


_is_traced._torchdynamo_inline = _yes  # type: ignore[attr-defined]
_joins_a_graph._torchdynamo_inline = _joins  # type: ignore[attr-defined]


def _traceable(function: _Function) -> _Function:
    """A function of the engine, such that torch sees it where it must."""
    name = function.__name__

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        data = arguments[0] if arguments else options.get("points", options.get("depth"))
        if not (_is_traced() and _joins_a_graph(data, options.get("out"), options.get("stream"))):
            result = function(*arguments, **options)
            if result is not NotImplemented:
                return result
        return getattr(_torch_ops(), name)(*arguments, **options)

    call.__module__ = "robocache"
    return call  # type: ignore[return-value]


def engine(*tensors: Any) -> Any:
    """What computes a call with these tensors, the first of which is the data: `_core` or `_torch_ops`."""
    return _torch_ops() if _is_traced() or _core.torch_must_see(tensors) else _core


def _torch_ops() -> Any:
    from robocache import _torch_ops

    return _torch_ops


def wait_for(count: Any, most: int) -> int:
    """A number that an op counted, at most `most`: this waits for a GPU."""
    if _is_traced() or _core.torch_must_see((count,)):
        found: int = _torch_ops().wait_for(count, most)
        return found
    # A call that only warms up counts nothing, so any number may stand there.
    return min(max(int(count), 0), most)


def _by_place(function: _Function) -> _Function:
    """As `_traceable`, for what is called for every batch. To hand on arguments one by one is quicker than to pack them,
    and options have places, since Python looks the defaults of keyword-only ones up in a dictionary at each call; that
    nobody uses the places is what `_named` watches over. Written as source text, as `dataclass` does it, from the
    signature of the engine's function.
    """
    name, known = function.__name__, inspect.signature(function).parameters
    options = [key for key, x in known.items() if x.kind is x.KEYWORD_ONLY]
    places = [key for key in known if key not in options]
    defaults = [f"{key}={known[key].default!r}" for key in options]
    named = [f"{key}={key}" for key in options]
    lines = f"""
def {name}({", ".join([*places, "_named=...", *defaults])}):
    if _named is not ...:
        raise TypeError(only_named({name!r}, {len(places)}))
    if not (_is_traced() and _joins_a_graph({places[0]}, out, stream)):
        result = _core.{name}({", ".join(known)})
        if result is not NotImplemented:
            return result
    return _torch_ops().{name}({", ".join([*places, *named])})
"""
    call: _Function = written(name, lines, globals())
    call.__module__, call.__qualname__ = "robocache", name
    call.__doc__ = function.__doc__
    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


if not TYPE_CHECKING:
    farthest_points = _traceable(_core.farthest_points)
    fk = _traceable(_core.fk)
    fuse = _by_place(_core.fuse)
    ik = _traceable(_core.ik)
    jacobian = _traceable(_core.jacobian)
    joint_velocity = _traceable(_core.joint_velocity)
    resample = _by_place(_core.resample)
    rotation_convert = _traceable(_core.rotation_convert)
    transform_points = _traceable(_core.transform_points)
    unproject = _traceable(_core.unproject)


__all__ = [
    "engine",
    "farthest_points",
    "fk",
    "fuse",
    "ik",
    "jacobian",
    "joint_velocity",
    "resample",
    "rotation_convert",
    "transform_points",
    "unproject",
    "wait_for",
]
