"""Point clouds inside torch: what is refused, with and without a gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from cases_clouds import GRID
from helpers import assert_same_bits
from refusal import assert_refused
from torch_clouds import CAMERA, POSE, cloud, images

pytestmark = pytest.mark.usefixtures("fresh_compiler")


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("origin", (0, 0)),
        ("origin", "abc"),
        ("voxel_size", None),
        ("voxel_size", (1, 2)),
        ("shape", 8),
        ("shape", (8, 2.5, 8)),
        ("shape", (8, 0, 8)),
        ("reduce", 3),
        ("reduce", "median"),
        ("dtype", "float31"),
        ("fill", "none"),
        ("lengths", [41, 3, 3]),
        ("points", [[0.0, 0.0, 0.0]] * 40),
        ("device", "tpu"),
        ("out", torch.zeros(3, 8, 8, 8, 4)),
    ],
)
def test_errors_beside_features_with_a_gradient(argument, bad):
    points, features, _ = cloud("cpu")
    call = {"points": points, "features": features.requires_grad_(), "reduce": "sum", **GRID}
    error = "Unsupported" if argument == "out" else "InvalidArgument"
    assert_refused(lambda: rc.voxelize(**{**call, argument: bad}), error, argument, op="voxelize")


# -- arguments ------------------------------------------------------------------------------------


def mean(features, points, **options):
    return rc.voxelize(points, features, reduce="mean", **{**GRID, **options})


@pytest.mark.parametrize(
    "option",
    [
        {"fill": torch.tensor(-1.0)},
        {"fill": np.float32(2)},
        {"fill": None},
        {"voxel_size": torch.tensor(0.5)},
    ],
    ids=str,
)
def test_what_works_without_a_gradient_works_with_one(option):
    points, features, _ = cloud("cpu")
    want = mean(features, points, **option)
    got = mean(features.requires_grad_(), points, **option)
    assert got.requires_grad
    assert_same_bits(got.detach(), want)


@pytest.mark.parametrize("fill", ["a", True, [1], [1, 2], (), torch.ones(2)], ids=str)
def test_a_wrong_fill_is_refused_alike_with_a_gradient(fill):
    points, features, _ = cloud("cpu")
    call = lambda: mean(features, points, fill=fill)  # noqa: E731
    plain = assert_refused(call, "InvalidArgument", "fill", "a number", op="voxelize")
    features.requires_grad_()
    seen = assert_refused(call, "InvalidArgument", "fill", "a number", op="voxelize")
    assert str(seen) == str(plain)


def test_a_wrong_pose_is_refused_by_name_where_torch_sees_the_call():
    points, _, _ = cloud("cpu")
    wanted = torch.ones((), requires_grad=True)
    op = "transform_points"
    for pose in ([wanted, 0, 0, 0, 0, 0, 1.0], [[wanted, 1], [2]]):
        call = lambda: rc.transform_points(points, pose)  # noqa: B023, E731
        assert_refused(call, "InvalidArgument", "pose", op=op)
    (depth,) = images("cpu")
    call = lambda: rc.unproject(depth.as_subclass(Named), CAMERA, POSE, [1, 2])  # noqa: E731
    assert_refused(call, "InvalidArgument", "depth_scale", "expected a number", op="unproject")


class Named(torch.Tensor):
    """A tensor that only torch knows how to open."""
