"""`DepthImage`, a plain class of Python: torch.compile makes one within its graph."""

from __future__ import annotations

from typing import Any


class DepthImage:
    """Images whose pixels an op takes as points: what `unproject` takes, in its order."""

    # One tuple, which the engine reads at once.
    __slots__ = ("_parts",)

    def __init__(self, depth: Any, intrinsics: Any, extrinsics: Any, depth_scale: Any) -> None:
        self._parts = (depth, intrinsics, extrinsics, depth_scale)

    @property
    def parts(self) -> tuple[Any, Any, Any, Any]:
        return self._parts


def tensors_of(points: Any) -> tuple[Any, ...]:
    """The tensors that points come from, that which decides about the framework first."""
    return points.parts[:3] if isinstance(points, DepthImage) else (points,)


def op_of(points: Any) -> str:
    """The op that was called for such points."""
    return "voxelize_depth" if isinstance(points, DepthImage) else "voxelize"
