"""The ops registered with torch; imported when one is needed, never by `import robocache`.

A call comes here when torch must see it: a gradient is wanted, torch.compile traces it, a mode or
functorch is at work, or a tensor is of a subclass. The functions have the names of those in `_ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robocache import _torch_depth, _torch_fuse, _torch_resample, _torch_sparse, _torch_voxelize
from robocache._depth import DepthImage
from robocache._points import REDUCES_FEATURES
from robocache._torch_depth import (
    GATHER_DEPTH,
    GROUP_DEPTH,
    VOXELIZE_DEPTH,
    VOXELIZE_DEPTH_BACKWARD,
)
from robocache._torch_fuse import FUSE, fuse
from robocache._torch_library import register
from robocache._torch_points import (
    CROP_BOX,
    FARTHEST_POINTS,
    TRANSFORM_POINTS,
    UNPROJECT,
    crop_box,
    farthest_points,
    transform_points,
    unproject,
    wait_for,
)
from robocache._torch_resample import RESAMPLE, RESAMPLE_BACKWARD, resample
from robocache._torch_sparse import (
    GATHER_VOXELS,
    GATHER_VOXELS_BACKWARD,
    GROUP_POINTS,
)
from robocache._torch_voxelize import VOXELIZE, VOXELIZE_BACKWARD


def voxelize(points: Any, *arguments: Any, **options: Any) -> Any:
    """Of points, or of depth images."""
    form: Any = _torch_depth if isinstance(points, DepthImage) else _torch_voxelize
    return form.voxelize(points, *arguments, **options)


def group_points(points: Any, **options: Any) -> Any:
    """Of points, or of depth images."""
    form: Any = _torch_depth if isinstance(points, DepthImage) else _torch_sparse
    return form.group_points(points, **options)


def gather_voxels(points: Any, *arguments: Any, **options: Any) -> Any:
    """Of points, or of depth images."""
    form: Any = _torch_depth if isinstance(points, DepthImage) else _torch_sparse
    return form.gather_voxels(points, *arguments, **options)


def _load_gradient_of_voxelize(
    points: Any,
    features: Any = None,
    *,
    reduce: str = "occupancy",
    sparse: bool = False,
    **options: Any,
) -> None:
    if reduce in REDUCES_FEATURES:
        form = _torch_sparse if sparse else _torch_voxelize
        form.load_gradient(points, features, reduce=reduce, **options)


GRADIENTS: dict[str, Callable[..., None]] = {
    "fuse": _torch_fuse.load_gradients,
    "resample": _torch_resample.load_gradient,
    "voxelize": _load_gradient_of_voxelize,
    "voxelize_depth": _torch_depth.load_gradient,
}
"""By op: what loads the kernels of its gradient, for `warmup`."""

for _op in (
    RESAMPLE,
    RESAMPLE_BACKWARD,
    FUSE,
    VOXELIZE,
    VOXELIZE_BACKWARD,
    GROUP_POINTS,
    GATHER_VOXELS,
    GATHER_VOXELS_BACKWARD,
    VOXELIZE_DEPTH,
    VOXELIZE_DEPTH_BACKWARD,
    GROUP_DEPTH,
    GATHER_DEPTH,
    TRANSFORM_POINTS,
    CROP_BOX,
    UNPROJECT,
    FARTHEST_POINTS,
):
    register(_op)

__all__ = [
    "GRADIENTS",
    "crop_box",
    "farthest_points",
    "fuse",
    "gather_voxels",
    "group_points",
    "resample",
    "transform_points",
    "unproject",
    "voxelize",
    "wait_for",
]
