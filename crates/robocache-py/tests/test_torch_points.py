"""Point clouds inside torch: opcheck, torch.compile, vmap, modes, subclasses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import robocache as rc
from cases_clouds import GRID
from helpers import assert_same_bits, can_compile
from refusal import assert_refused
from robocache._torch_points import (
    read_crop_box,
    read_farthest_points,
    read_group_points,
    read_transform_points,
    read_unproject,
    read_voxelize,
)
from robocache._torch_points import read_gather_voxels as read_gather
from torch_clouds import BOX, CAMERA, POSE, SIZES, cloud, images

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def sparse_fields(voxels):
    found = voxels.coords, voxels.features, voxels.counts, voxels.inverse, voxels.dropped
    return tuple(x for x in (*found, voxels.voxels, voxels.count) if x is not None)


def dense(points, features, lengths):
    return rc.voxelize(
        points * 1,
        features * 2,
        reduce="mean",
        lengths=lengths,
        return_counts=True,
        return_dropped=True,
        fill=-1,
        **GRID,
    )


def static(points, features, lengths):
    found = rc.voxelize(
        points, features * 2, reduce="max", sparse=True, lengths=lengths, max_voxels=90, **GRID
    )
    return sparse_fields(found)


def hard(points, features, lengths):
    found = rc.voxelize(
        points, features, sparse=True, max_voxels=50, max_points_per_voxel=2, **GRID
    )
    return sparse_fields(found)


def waits(points, features, lengths):
    return sparse_fields(rc.voxelize(points, features, reduce="sum", sparse=True, **GRID))


def compacted(points, _, lengths):
    found = rc.crop_box(points, *BOX, lengths=lengths, compact=True)
    return found.points, found.index, found.lengths


CALLS = {
    "dense": (dense, cloud),
    "occupancy": (lambda p, f, n: rc.voxelize(p * 1, dtype="f16", **GRID), cloud),
    "static": (static, cloud),
    "hard": (hard, cloud),
    "waits": (waits, cloud),
    "transform": (lambda p, f, n: rc.transform_points(p * 1, POSE) + 1, cloud),
    "crop": (lambda p, f, n: rc.crop_box(p * 1, *BOX, lengths=n), cloud),
    "compacted": (compacted, cloud),
    "farthest": (lambda p, f, n: rc.farthest_points(p * 1, 7, lengths=n), cloud),
    "unproject": (lambda d: rc.unproject(d * 1, CAMERA, POSE, 1.0, return_valid=True), images),
    "depth": (
        lambda d: rc.voxelize_depth(
            d, CAMERA, depth_scale=1.0, features=d.reshape(3, 30, 1), reduce="max", **GRID
        ),
        images,
    ),
}


def results(found) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


# -- the registration -----------------------------------------------------------------------------


def op_calls(device: str, requires_grad: bool):
    """Arguments of every registered op, by its name; a tensor, a list or a flag each."""
    points, features, lengths = cloud(device)
    features.requires_grad_(requires_grad)
    rc.voxelize(points, features.detach().requires_grad_(), reduce="sum", **GRID)  # registers
    (depth,) = images(device)
    pose, camera = torch.tensor(POSE, device=device), torch.tensor(CAMERA, device=device)
    with torch.no_grad():
        groups = torch.ops.robocache.group_points(
            *read_group_points(points, lengths=lengths, **GRID)
        )
    parts = [groups[part] for part in (0, 1, 2, 5)]
    kept = features.detach()
    shape = list(features.shape)
    grad, rows = torch.rand(3, 8, 8, 8, 4, device=device), torch.rand(70, 4, device=device)
    no_image = None, None, 0.0
    for reduce in ("sum", "mean", "max", "min"):
        read = kept if reduce in ("max", "min") else None
        for flag in (False, True):
            flags = {"return_counts": flag, "return_dropped": flag, "fill": 0.5}
            given = read_voxelize(points, features, lengths=lengths, reduce=reduce, **flags, **GRID)
            yield "voxelize", given
        options = {"reduce": reduce, "dtype": torch.float64, "return_dropped": True}
        yield "voxelize", read_voxelize(points[0], features, **options, **GRID)
        yield "gather_voxels", read_gather(points, features, groups, 70, reduce=reduce, **GRID)
        if requires_grad:
            given = grad, points, *no_image, read, lengths, shape, torch.float32, *SIZES, reduce
            yield "voxelize_backward", given
            given = rows, read, *parts, list(points.shape[:2]), shape, torch.float32, reduce
            yield "gather_voxels_backward", given
    if requires_grad:
        return
    for reduce in ("occupancy", "count"):
        flags = {"return_counts": True, "return_dropped": True}
        yield "voxelize", read_voxelize(points[0], reduce=reduce, **flags, **GRID)
    # A point in each cell: what lies behind the last group is unspecified, and differs.
    alone = torch.cartesian_prod(*[torch.arange(8.0, device=device) / 4 + 0.1] * 3)
    full = lengths * 0 + 170
    yield "group_points", read_group_points(alone[:510].view(3, 170, 3), lengths=full, **GRID)
    yield "group_points", read_group_points(alone, max_voxels=512, **GRID)
    hard = {"reduce": "occupancy", "max_points": 2}
    yield "gather_voxels", read_gather(points, features.half(), groups, 9, **hard, **GRID)
    for given in (points, points[0], points.double()):
        for at in (pose, torch.eye(4, device=device).expand(3, 4, 4)):
            yield "transform_points", read_transform_points(given, at)
    yield "crop_box", read_crop_box(points, *BOX, lengths=lengths)
    yield "crop_box", read_crop_box(points[0], *BOX)
    # All of it: opcheck takes NaN for a difference.
    yield "crop_box", read_crop_box(points, [-9.0] * 3, [9.0] * 3, compact=True)
    depth, cameras = depth.abs() + 0.1, torch.eye(3, device=device).expand(3, 3, 3)
    yield "unproject", read_unproject(depth, camera, pose, 1.0, return_valid=True)
    yield "unproject", read_unproject(depth[0], cameras, None, 1.0)
    yield "farthest_points", read_farthest_points(points, 5, 1, lengths=lengths)
    yield "farthest_points", read_farthest_points(points[0], 0, 0)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(requires_grad, device):
    for name, arguments in op_calls(device, requires_grad):
        torch.library.opcheck(getattr(torch.ops.robocache, name).default, arguments)


def test_a_plain_call_registers_nothing():
    code = (
        "import sys, torch, robocache as rc\n"
        "points = torch.zeros(2, 3)\n"
        "grid = dict(origin=(0, 0, 0), voxel_size=1.0, shape=(2, 2, 2))\n"
        "rc.voxelize(points, **grid), rc.voxelize(points, sparse=True, **grid)\n"
        "rc.crop_box(points, (0, 0, 0), (1, 1, 1), compact=True)\n"
        "rc.farthest_points(rc.transform_points(points, torch.eye(4)), 1)\n"
        "print('robocache._torch_ops' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- torch.compile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_compiled_without_a_graph_break(name, device):
    call, make = CALLS[name]
    inputs = make(device)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    want = results(call(*inputs))
    for mine, theirs in zip(results(compiled(*inputs)), want, strict=True):
        assert_same_bits(mine, theirs, name)


@pytest.mark.parametrize("call", [dense, static, waits])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_gradients(call, backend, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")
    points, features, lengths = cloud(device)
    features.requires_grad_()
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    found = []
    for way in (call, compiled):
        (grid,) = (x for x in way(points, features, lengths) if x.requires_grad)
        found.append((grid, *torch.autograd.grad(grid.square().sum(), features)))
    for mine, theirs in zip(found[1], found[0], strict=True):
        assert_same_bits(mine.detach(), theirs.detach())


@pytest.mark.parametrize("name", ["dense", "static", "waits", "transform", "crop", "farthest"])
def test_compiled_once_for_all_sizes(name):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    call, make = CALLS[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for batch, count in ((6, 40), (5, 90), (2, 31)):
        inputs = make("cpu", batch, count)
        for mine, theirs in zip(results(compiled(*inputs)), results(call(*inputs)), strict=True):
            assert_same_bits(mine, theirs, name)
    assert len(graphs) == 1


def test_a_sparse_grid_that_comes_out_of_a_compiled_function():
    points, features, _ = cloud("cpu")
    compiled = torch.compile(rc.voxelize, fullgraph=True, backend="aot_eager")
    got = compiled(points, features, reduce="mean", sparse=True, **GRID)
    want = rc.voxelize(points, features, reduce="mean", sparse=True, **GRID)
    assert isinstance(got, rc.SparseVoxels) and got.voxels is None
    assert_same_bits(got.coords, want.coords)
    assert_same_bits(got.features, want.features)


def test_refusals_in_a_compiled_function():
    """A whole graph cannot be made, and torch says why in our words; otherwise the call raises as ever."""
    points, features, _ = cloud("cpu")

    def call(points):
        return rc.voxelize(points * 1, features, reduce="sum", **GRID)

    whole = torch.compile(call, fullgraph=True, backend="eager")
    with pytest.raises(
        Exception, match="points: requires grad, but gradients exist in the features"
    ):
        whole(points.requires_grad_())
    in_parts = torch.compile(call, backend="eager")
    refused = lambda: in_parts(points)  # noqa: E731
    assert_refused(refused, "Unsupported", "points", "features only", op="voxelize")
    bad = torch.compile(
        lambda x: rc.voxelize(x, reduce="median", **GRID), fullgraph=True, backend="eager"
    )
    unknown = lambda: bad(points.detach())  # noqa: E731
    assert_refused(unknown, "InvalidArgument", "reduce", "median", op="voxelize")


def test_export():
    class Model(torch.nn.Module):
        def forward(self, points, features):
            moved = rc.transform_points(points, POSE)
            return rc.voxelize(moved, features, reduce="mean", **GRID) + 1

    call = cloud("cpu")[:2]
    exported = torch.export.export(Model(), call)
    assert torch.equal(exported.module()(*call), Model()(*call))


# -- functorch --------------------------------------------------------------------------------------


def test_vmap_is_a_batch(device):
    points, features, _ = cloud(device)
    for name in ("dense", "occupancy", "transform", "crop", "farthest", "unproject"):
        call, make = CALLS[name]
        inputs = make(device)
        got = results(torch.func.vmap(call)(*inputs))
        torch.compiler.reset()
        within = torch.compile(torch.func.vmap(call), backend="eager", fullgraph=True)(*inputs)
        for mine, theirs in zip((*got, *results(within)), results(call(*inputs)) * 2, strict=True):
            assert_same_bits(mine, theirs, name)
    # Over another axis, over one argument; what is not mapped over is shared.
    poses = torch.randn(7, 3, device=device)
    moved = torch.func.vmap(rc.transform_points, in_dims=(None, 1))(points[0], poses)
    assert_same_bits(moved, rc.transform_points(points[0], poses.T.contiguous()))
    matrices = torch.randn(3, 3, 4, device=device)
    moved = torch.func.vmap(rc.transform_points)(points, matrices)
    assert_same_bits(moved, rc.transform_points(points, matrices))
    (depth,) = images(device)
    cameras = torch.rand(3, 4, device=device) + 1
    seen = torch.func.vmap(rc.unproject)(depth, cameras, poses.T)
    assert_same_bits(seen, rc.unproject(depth, cameras, poses.T))

    def summed(features):
        return rc.voxelize(points[0], features, reduce="sum", **GRID)

    assert_same_bits(torch.func.vmap(summed)(features), summed(features))


def test_vmap_over_calls_that_have_a_batch(device):
    points, features, lengths = cloud(device, batch=6)
    want = rc.voxelize(points, features, reduce="max", lengths=lengths, **GRID)
    shaped = points.view(3, 2, 40, 3), features.view(3, 2, 40, 4), lengths.view(3, 2)

    def call(points, features, lengths):
        return rc.voxelize(points, features, reduce="max", lengths=lengths, **GRID)

    assert_same_bits(torch.func.vmap(call)(*shaped).flatten(0, 1), want)
    shared = torch.func.vmap(lambda p: call(p, features[:2], lengths[:2]))(points)
    for row in range(6):
        assert_same_bits(shared[row], call(points[row], features[:2], lengths[:2]))
    nested = torch.func.vmap(torch.func.vmap(call))(*shaped)
    assert_same_bits(nested.flatten(0, 1), want)


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_gradients_of_every_example_at_once(reduce, device):
    points, features, _ = cloud(device)

    def loss(features, points):
        moved = rc.transform_points(points, POSE)
        return rc.voxelize(moved, features, reduce=reduce, **GRID).square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(features, points)
    for row in range(3):
        assert_same_bits(each[row], torch.func.grad(loss)(features[row], points[row]))
    # The features of one cloud on several, and a batch of clouds that shares them.
    rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(features[0], points)
    for row in range(3):
        assert_same_bits(rows[row], torch.func.grad(loss)(features[0], points[row]))
    shared = torch.func.grad(loss)(features[0], points)
    torch.testing.assert_close(shared, rows.sum(0))


def test_a_constant_gradient_of_mapped_stamps():
    """What comes back from a sum is not mapped over, though the call is."""
    values, times = torch.randn(5, 2, dtype=torch.float64), torch.arange(5.0).expand(3, 5) + 0.1

    def loss(values, times):
        return rc.resample(values, times, torch.tensor([0.5, 2.5])).sum()

    got = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, times)
    assert torch.equal(got[1], torch.func.grad(loss)(values, times[1]))


def test_what_functorch_cannot_do_is_refused():
    points, features, _ = cloud("cpu")

    def sparse(points):
        return rc.voxelize(points, sparse=True, max_voxels=9, **GRID).coords

    mapped = lambda: torch.func.vmap(sparse)(points)  # noqa: E731
    assert_refused(mapped, "Unsupported", None, "vmap is not supported", op="voxelize")

    def reduced(features):
        return rc.voxelize(points, features, reduce="sum", **GRID)

    tangent = lambda: torch.func.jvp(reduced, (features,), (features,))  # noqa: E731
    assert_refused(tangent, "Unsupported", "features", "forward-mode", op="voxelize")

    def moved(points):
        return rc.transform_points(points, POSE).sum()

    for call in (
        lambda: torch.func.grad(moved)(points),
        lambda: torch.func.jvp(moved, (points,), (points,)),
    ):
        assert_refused(call, "Unsupported", "points", "gradients", op="transform_points")


# -- modes and subclasses -----------------------------------------------------------------------------


def test_a_dispatch_mode_sees_the_calls():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            seen.append(str(function))
            return function(*arguments, **(options or {}))

    for call, make in CALLS.values():
        inputs = make("cpu")
        with Watch():
            got = results(call(*inputs))
        for mine, theirs in zip(got, results(call(*inputs)), strict=True):
            assert_same_bits(mine, theirs)
    ops = "voxelize group_points gather_voxels transform_points crop_box unproject farthest_points"
    for name in ops.split():
        assert any(f"robocache.{name}." in function for function in seen), name


def test_numpy_stays_numpy():
    """Whose results they are is decided by the points or values, not by what stands beside them."""

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            return function(*arguments, **(options or {}))

    class Named(torch.Tensor):
        pass

    points, _, lengths = cloud("cpu")
    want = rc.voxelize(points, lengths=lengths, **GRID)
    times = torch.arange(40.0)
    stream = rc.Stream(points.numpy(), times.as_subclass(Named))
    with Watch():
        got = rc.voxelize(points.numpy(), lengths=lengths, **GRID)
        fused = rc.fuse([rc.Stream(points.numpy(), times)], times)
    for mine in (got, rc.voxelize(points.numpy(), lengths=lengths.as_subclass(Named), **GRID)):
        assert not isinstance(mine, torch.Tensor)
        assert_same_bits(mine, want)
    for mine in (fused, rc.fuse([stream], times), rc.resample(stream.values, stream.times, times)):
        assert not isinstance(mine, torch.Tensor)
        assert_same_bits(mine, points)


def test_gradients_beside_numpy_are_refused():
    points, features, _ = cloud("cpu")
    call = lambda: rc.voxelize(points.numpy(), features.requires_grad_(), reduce="sum", **GRID)  # noqa: E731
    assert_refused(call, "InvalidArgument", "points", "torch.Tensor.*ndarray", op="voxelize")
    times = torch.arange(40.0, requires_grad=True)
    call = lambda: rc.resample(points.numpy(), times, [0.5])  # noqa: E731
    assert_refused(call, "Unsupported", "times", "values only")


def test_fake_tensors_have_the_right_shape():
    with FakeTensorMode() as mode:
        points, features, lengths = (mode.from_tensor(x) for x in cloud("cpu"))
        grid, counts, dropped = dense(points, features, lengths)
        assert grid.shape == (3, 8, 8, 8, 4) and grid.dtype == torch.float32
        assert counts.shape == (3, 8, 8, 8) and dropped.shape == (3,)
        coords, reduced, *_ = static(points, features, lengths)
        assert coords.shape == (90, 4) and reduced.shape == (90, 4)
        call = lambda: rc.voxelize(points, lengths=lengths[:2], **GRID)  # noqa: E731
        assert_refused(call, "InvalidArgument", "lengths", "batch of 2", op="voxelize")


def test_a_subclass_stays_one():
    class Named(torch.Tensor):
        pass

    points, features, _ = cloud("cpu")
    for out in (
        rc.voxelize(points.as_subclass(Named), **GRID),
        rc.voxelize(points, features.as_subclass(Named), reduce="sum", **GRID),
        rc.transform_points(points.as_subclass(Named), POSE),
    ):
        assert type(out) is Named
