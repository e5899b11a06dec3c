"""`voxelize_depth` inside torch: opcheck, torch.compile, vmap, gradients. Its bits: test_voxelize_depth.py."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import robocache as rc
from helpers import assert_same_bits, can_compile
from refusal import assert_refused
from robocache._depth import DepthImage
from robocache._torch_points import read_gather_voxels as read_gather
from robocache._torch_points import read_group_points, read_voxelize
from torch_clouds import CAMERA, POSE, SIZES, images, parts
from torch_clouds import DEPTH_GRID as GRID


def features_for(depth: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(3, 30, 4, generator=generator).to(depth.device)


def dense(depth, features, **options):
    return rc.voxelize_depth(
        depth, CAMERA, POSE, 1.0, features=features * 2, reduce="mean", return_dropped=True, **GRID
    )


def static(depth, features):
    found = rc.voxelize_depth(
        depth,
        CAMERA,
        POSE,
        1.0,
        features=features,
        reduce="max",
        sparse=True,
        max_voxels=40,
        **GRID,
    )
    return tuple(parts(found))


def hard(depth, features):
    found = rc.voxelize_depth(
        depth, CAMERA, None, 1.0, sparse=True, max_voxels=40, max_points_per_voxel=2, **GRID
    )
    return tuple(parts(found))


def waits(depth, features):
    found = rc.voxelize_depth(
        depth, CAMERA, POSE, 1.0, features=features, reduce="sum", sparse=True, **GRID
    )
    return tuple(parts(found))


CALLS = (dense, static, hard, waits)


def op_calls(device: str, requires_grad: bool):
    (depth,) = images(device)
    depth = depth.abs() + 0.1
    features = features_for(depth).requires_grad_(requires_grad)
    rc.voxelize_depth(
        depth, CAMERA, features=features.detach().requires_grad_(), reduce="sum", **GRID
    )
    camera, pose = torch.tensor(CAMERA, device=device), torch.tensor(POSE, device=device)
    cameras = torch.eye(3, device=device).expand(3, 3, 3)
    image = DepthImage(depth, camera, pose, 1.0)
    shared = DepthImage(depth[0], cameras, None, 1.0)
    with torch.no_grad():
        groups = torch.ops.robocache.group_points(*read_group_points(image, **GRID))
    shape, grad = list(features.shape), torch.rand(3, 8, 8, 8, 4, device=device)
    for reduce in ("sum", "max"):
        for flag in (False, True):
            flags = {"return_counts": flag, "return_dropped": flag, "fill": 0.5}
            for given in (image, shared):
                yield "voxelize", read_voxelize(given, features, reduce=reduce, **flags, **GRID)
        yield "gather_voxels", read_gather(image, features, groups, 25, reduce=reduce, **GRID)
        if requires_grad:
            kept = features.detach() if reduce == "max" else None
            given = grad, *image.parts, kept, None, shape, torch.float32, *SIZES, reduce
            yield "voxelize_backward", given
    if not requires_grad:
        flags = {"return_counts": True, "return_dropped": True}
        yield "voxelize", read_voxelize(image, None, reduce="count", **flags, **GRID)
        hard = {"reduce": "count", "max_points": 2}
        yield "gather_voxels", read_gather(image, features.half(), groups, 25, **hard, **GRID)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(requires_grad, device):
    for name, arguments in op_calls(device, requires_grad):
        torch.library.opcheck(getattr(torch.ops.robocache, name).default, arguments)


def test_shapes_of_groups(device):
    """What lies behind the last group is unspecified and differs, so opcheck cannot look at it."""
    (depth,) = images(device)
    rc.voxelize_depth(
        depth, CAMERA, features=features_for(depth).requires_grad_(), reduce="sum", **GRID
    )
    for given in (depth, depth[0]):
        image = DepthImage(given, torch.tensor(CAMERA, device=device), None, 1.0)
        arguments = read_group_points(image, **GRID)
        real = torch.ops.robocache.group_points(*arguments)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = torch.ops.robocache.group_points(mode.from_tensor(given), *arguments[1:])
        for mine, theirs in zip(fake, real, strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_without_a_graph_break(call, device):
    (depth,) = images(device)
    features = features_for(depth)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for mine, theirs in zip(compiled(depth, features), call(depth, features), strict=True):
        assert_same_bits(mine, theirs, call.__name__)


@pytest.mark.parametrize("call", [dense, static, waits])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_gradients(call, backend, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")
    (depth,) = images(device)
    features = features_for(depth).requires_grad_()
    found = []
    for way in (call, torch.compile(call, fullgraph=True, backend=backend)):
        (grid,) = (x for x in way(depth, features) if x.requires_grad)
        found.append((grid, *torch.autograd.grad(grid.square().sum(), features)))
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_same_bits(mine.detach(), theirs.detach())


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_those_of_the_points(reduce, sparse, device):
    (depth,) = images(device)
    features = features_for(depth).requires_grad_()
    options = {"reduce": reduce, "sparse": sparse, **GRID}
    found = []
    for grid in (
        rc.voxelize_depth(depth, CAMERA, POSE, 1.0, features=features, **options),
        rc.voxelize(rc.unproject(depth, CAMERA, POSE, 1.0), features, **options),
    ):
        grid = grid.features if sparse else grid
        found.append(torch.autograd.grad(grid.square().sum(), features)[0])
    assert found[1].any()
    assert_same_bits(*found)
    # A batch of cameras on one image and shared features: rows are added up.
    if not sparse:
        cameras = torch.rand(3, 4, device=device) + 4
        one = features[0].detach().requires_grad_()
        found = []
        for grid in (
            rc.voxelize_depth(depth[0], cameras, depth_scale=1.0, features=one, **options),
            rc.voxelize(rc.unproject(depth[0], cameras, depth_scale=1.0), one, **options),
        ):
            found.append(torch.autograd.grad(grid.square().sum(), one)[0])
        assert_same_bits(*found)


def test_what_has_no_gradient_is_refused(device):
    (depth,) = images(device)
    features = features_for(depth).requires_grad_()
    tensors = {
        "depth": depth.clone().requires_grad_(),
        "intrinsics": torch.tensor(CAMERA, device=device, requires_grad=True),
        "extrinsics": torch.tensor(POSE, device=device, requires_grad=True),
    }
    for name, tensor in tensors.items():
        call = {"depth": depth, "intrinsics": CAMERA, name: tensor}
        for options in ({}, {"sparse": True}):
            refused = lambda o=options: rc.voxelize_depth(**call, **GRID, **o)  # noqa: B023, E731
            assert_refused(refused, "Unsupported", name, "features only", op="voxelize_depth")
    points = {"features": features, "sparse": True, "max_points_per_voxel": 2}
    refused = lambda: rc.voxelize_depth(depth, CAMERA, **points, **GRID)  # noqa: E731
    assert_refused(refused, "Unsupported", "features", "hard voxels", op="voxelize_depth")


def test_vmap_is_a_batch(device):
    (depth,) = images(device)
    features = features_for(depth)
    for mine, theirs in zip(
        torch.func.vmap(dense)(depth, features), dense(depth, features), strict=True
    ):
        assert_same_bits(mine, theirs)
    cameras, poses = torch.rand(3, 4, device=device) + 4, torch.randn(3, 7, device=device)
    call = lambda d, c, p: rc.voxelize_depth(d, c, p, 1.0, reduce="count", **GRID)  # noqa: E731
    assert_same_bits(torch.func.vmap(call)(depth, cameras, poses), call(depth, cameras, poses))
    mapped = torch.func.vmap(call, in_dims=(None, 0, None))(depth[0], cameras, poses[0])
    assert_same_bits(mapped, call(depth[0], cameras, poses[0]))

    def loss(features, depth):
        return dense(depth, features)[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(features, depth)
    for row in range(3):
        assert_same_bits(each[row], torch.func.grad(loss)(features[row], depth[row]))
    sparse = torch.func.vmap(lambda d: rc.voxelize_depth(d, CAMERA, sparse=True, **GRID).coords)
    with pytest.raises(rc.Unsupported, match=r"voxelize_depth: torch\.func\.vmap"):
        sparse(depth)


def test_a_plain_call_registers_nothing():
    code = (
        "import sys, torch, robocache as rc\n"
        "depth = torch.ones(4, 5)\n"
        "grid = dict(origin=(0, 0, 0), voxel_size=1.0, shape=(2, 2, 2))\n"
        "rc.voxelize_depth(depth, [5, 5, 2, 2], **grid)\n"
        "rc.voxelize_depth(depth, [5, 5, 2, 2], sparse=True, **grid)\n"
        "print('robocache._torch_ops' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_second_gradient_is_refused_by_the_name_of_the_call():
    (depth,) = images("cpu")
    features = features_for(depth).requires_grad_()
    grid = rc.voxelize_depth(depth, CAMERA, features=features, reduce="sum", **GRID)
    (grad,) = torch.autograd.grad(grid.square().sum(), features, create_graph=True)
    refused = lambda: grad.sum().backward()  # noqa: E731
    assert_refused(refused, "Unsupported", None, "double backward", op="voxelize_depth")


def test_no_reduction_is_the_default_one_where_torch_sees_the_call():
    (depth,) = images("cpu")
    mapped = torch.func.vmap(lambda d: rc.voxelize_depth(d, CAMERA, reduce=None, **GRID))(depth)
    assert torch.equal(mapped, rc.voxelize_depth(depth, CAMERA, reduce=None, **GRID))
