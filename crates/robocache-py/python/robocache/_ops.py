"""The ops as users call them.

Each is the engine's own function behind a thin one of Python, which torch.compile can look into: what
it finds in `_torchdynamo_inline` it traces instead, and that calls the op registered with torch. Here
nothing imports torch, and a call that nobody traces pays for one more frame only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from robocache import _core

if TYPE_CHECKING:
    from robocache._core import fuse, resample


def _traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of the engine, such that torch.compile makes it a node of its graph."""
    name = function.__name__

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    def in_graph(*arguments: Any, **options: Any) -> Any:
        from robocache import _torch_ops

        return getattr(_torch_ops, name)(*arguments, **options)

    call.__module__ = "robocache"
    call._torchdynamo_inline = in_graph  # type: ignore[attr-defined]
    return call


if not TYPE_CHECKING:
    fuse = _traceable(_core.fuse)
    resample = _traceable(_core.resample)

__all__ = ["fuse", "resample"]
