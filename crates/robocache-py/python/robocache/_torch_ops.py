"""The ops registered with torch; imported when one is needed, never by `import robocache`.

A call comes here when torch must see it: a gradient is wanted, torch.compile traces it, a mode or functorch is at work,
or a tensor is of a subclass. The functions have the names of those in `_ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robocache import _torch_align as align
from robocache import _torch_kinematics as kinematics
from robocache import _torch_points as points
from robocache import _torch_rotation as rotation
from robocache._depth import DepthImage
from robocache._torch_library import load_gradient, public, register
from robocache._torch_points import gather_voxels, wait_for

for _op in (
    align.RESAMPLE,
    align.RESAMPLE_BACKWARD,
    align.FUSE,
    points.TRANSFORM_POINTS,
    points.CROP_BOX,
    points.UNPROJECT,
    points.FARTHEST_POINTS,
    points.VOXELIZE,
    points.VOXELIZE_BACKWARD,
    points.GROUP_POINTS,
    points.GATHER_VOXELS,
    points.GATHER_VOXELS_BACKWARD,
    kinematics.FK,
    kinematics.FK_BACKWARD,
    kinematics.JACOBIAN,
    kinematics.JOINT_VELOCITY,
    kinematics.IK,
    rotation.CONVERT,
    rotation.BACKWARD,
):
    register(_op)

resample = public(align.RESAMPLE, align.read_resample)
fuse = public(align.FUSE, align.read_fuse)
transform_points = public(points.TRANSFORM_POINTS, points.read_transform_points)
crop_box = public(points.CROP_BOX, points.read_crop_box)
unproject = public(points.UNPROJECT, points.read_unproject)
farthest_points = public(points.FARTHEST_POINTS, points.read_farthest_points)
voxelize = public(points.VOXELIZE, points.read_voxelize)
rotation_convert = public(rotation.CONVERT, rotation.read_convert)
group_points = public(points.GROUP_POINTS, points.read_group_points)
fk = public(kinematics.FK, kinematics.read_fk)
jacobian = public(kinematics.JACOBIAN, kinematics.read_jacobian)
joint_velocity = public(kinematics.JOINT_VELOCITY, kinematics.read_joint_velocity)
ik = public(kinematics.IK, kinematics.read_ik)

_load_voxelize = points.load_dense_or_sparse(load_gradient(points.VOXELIZE, points.read_voxelize))


def _load_voxelize_depth(
    depth: Any,
    intrinsics: Any,
    extrinsics: Any = None,
    depth_scale: Any = 1e-3,
    *,
    features: Any = None,
    **options: Any,
) -> None:
    _load_voxelize(DepthImage(depth, intrinsics, extrinsics, depth_scale), features, **options)


GRADIENTS: dict[str, Callable[..., None]] = {
    "fk": kinematics.loader_of(kinematics.FK, kinematics.read_fk),
    "fuse": load_gradient(align.FUSE, align.read_fuse),
    "jacobian": kinematics.loader_of(kinematics.JACOBIAN, kinematics.read_jacobian),
    "resample": load_gradient(align.RESAMPLE, align.read_resample),
    "rotation.convert": rotation.load,
    "voxelize": _load_voxelize,
    "voxelize_depth": _load_voxelize_depth,
}
"""By op: what loads the kernels of its gradient, for `warmup`."""

__all__ = [
    "GRADIENTS",
    "crop_box",
    "farthest_points",
    "fk",
    "fuse",
    "gather_voxels",
    "group_points",
    "ik",
    "jacobian",
    "joint_velocity",
    "resample",
    "rotation_convert",
    "transform_points",
    "unproject",
    "voxelize",
    "wait_for",
]
