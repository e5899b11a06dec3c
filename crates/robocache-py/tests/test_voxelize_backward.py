"""Gradients of `voxelize` in the features, against torch's own and against NumPy."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from cases_clouds import GRID
from helpers import assert_same_bits, to_numpy
from refusal import assert_refused
from robocache._points import voxelize_backward


def cloud(device, batch=2, count=900, width=3, dtype=torch.float64):
    rng = np.random.default_rng(count)
    points = rng.uniform(-0.2, 2.2, (batch, count, 3)).astype("f4")
    features = torch.from_numpy(rng.normal(size=(batch, count, width))).to(dtype)
    return points, torch.from_numpy(points).to(device), features.to(device)


def by_torch(points: np.ndarray, features: torch.Tensor, grad: torch.Tensor, reduce: str):
    """The same grid in torch's words, and what its autograd makes of the gradient."""
    leaf = features.detach().cpu().clone().requires_grad_()
    cells = cloud_oracle.cells_of(points, **GRID)
    inside = cells[..., 0] >= 0
    flat = np.ravel_multi_index(tuple(np.moveaxis(np.maximum(cells, 0), -1, 0)), GRID["shape"])
    flat = torch.from_numpy(np.where(inside, flat + np.arange(len(points))[:, None] * 512, 1024))
    index = flat.reshape(-1, 1).expand(-1, leaf.shape[-1])
    grid = leaf.new_zeros(1025, leaf.shape[-1])
    how = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}[reduce]
    grid = grid.scatter_reduce(0, index, leaf.reshape(-1, leaf.shape[-1]), how, include_self=False)
    grid[:1024].backward(grad.detach().cpu().reshape(1024, -1))
    return leaf.grad


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_gradients_are_those_of_torch(reduce, device):
    points, there, features = cloud(device)
    grad = torch.rand(2, 8, 8, 8, 3, dtype=torch.float64, device=device)
    got = voxelize_backward(there, features, grad, reduce=reduce, **GRID)
    want = by_torch(points, features, grad, reduce)
    np.testing.assert_allclose(to_numpy(got), want.numpy(), rtol=1e-12)
    # A gradient that is one number everywhere, as `sum().backward()` makes it.
    ones = torch.ones((), dtype=torch.float64, device=device).expand(grad.shape)
    got = voxelize_backward(there, features, ones, reduce=reduce, **GRID)
    np.testing.assert_allclose(
        to_numpy(got), by_torch(points, features, ones, reduce).numpy(), rtol=1e-12
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dense_and_sparse_agree(reduce, dtype, device):
    _, points, features = cloud(device, width=5, dtype=dtype)
    sparse = rc.voxelize(points, features, reduce=reduce, sparse=True, **GRID)
    grad = torch.rand(2, 8, 8, 8, 5, device=device).to(dtype)
    rows = grad[tuple(sparse.coords.T)]
    lengths = torch.tensor([900, 17], device=device)
    for more in ({}, {"lengths": lengths}):
        dense = voxelize_backward(points, features, grad, reduce=reduce, **GRID, **more)
        if not more:
            from_rows = voxelize_backward(
                points, features, rows, reduce=reduce, sparse=True, **GRID
            )
            assert_same_bits(from_rows, dense)
        else:
            assert float(dense[1, 17:].abs().sum()) == 0
    assert dense.dtype is dtype and dense.shape == features.shape


def test_ties_go_to_the_first_point(device):
    points = torch.zeros(200, 3, device=device)
    features = torch.ones(200, 1, device=device)
    features[50:] = 2.0
    grad = torch.full((8, 8, 8, 1), 3.0, device=device)
    got = to_numpy(voxelize_backward(points, features, grad, reduce="max", **GRID))[:, 0]
    assert got[50] == 3 and got.sum() == 3
    got = to_numpy(voxelize_backward(points, features, grad, reduce="min", **GRID))[:, 0]
    assert got[0] == 3 and got.sum() == 3


def test_bad_gradients_are_refused():
    points, features = torch.zeros(5, 3), torch.ones(5, 2)
    with pytest.raises(rc.InvalidArgument, match="grad: expected row-major floats with 2 columns"):
        voxelize_backward(points, features, torch.ones(8, 8, 8, 3), reduce="sum", **GRID)
    with pytest.raises(rc.InvalidArgument, match="reduce: count has no gradient"):
        voxelize_backward(points, features, torch.ones(8, 8, 8, 2), reduce="count", **GRID)
    # A gradient of fewer rows than there are cells reaches nobody out of bounds.
    got = voxelize_backward(points + 1.9, features, torch.ones(3, 2), reduce="sum", **GRID)
    assert float(got.sum()) == 0


# -- as users call it ---------------------------------------------------------------------------


def gradient(points, features, grad, **options) -> torch.Tensor:
    """What `backward` leaves in the features; of a sparse grid, by its cells of a dense gradient."""
    leaf = features.detach().clone().requires_grad_()
    found = rc.voxelize(points, leaf, **options)
    if options.get("sparse"):
        there = found.coords.clamp(min=0)
        rows = grad[tuple(there.T)] if grad.dim() == 5 else grad[tuple(there.T[1:])]
        found.features.backward(rows.to(found.features.dtype))
    else:
        found.backward(grad.to(found.dtype))
    return leaf.grad


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("form", [{}, {"sparse": True}, {"sparse": True, "max_voxels": 1024}])
def test_backward_is_the_gradient(reduce, form, device):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        _, points, features = cloud(device, width=5, dtype=dtype)
        grad = torch.rand(2, 8, 8, 8, 5, device=device).to(dtype)
        want = voxelize_backward(points, features, grad, reduce=reduce, **GRID)
        for _ in range(2):
            got = gradient(points, features, grad, reduce=reduce, **form, **GRID)
            assert got.dtype is dtype
            assert_same_bits(got, want, f"{dtype}")


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("sparse", [False, True])
def test_gradcheck(reduce, sparse, device):
    _, points, features = cloud(device, count=60)
    shapes = [(points, features), (points[0], features[0]), (points, features[:1])]
    shapes += [(points, features[0])]
    if not sparse:  # a sparse grid shares no points
        shapes += [(points[:1], features), (points[0], features)]
    for these, values in shapes:

        def call(x, these=these):
            found = rc.voxelize(these, x, reduce=reduce, sparse=sparse, **GRID)
            return found.features if sparse else found

        torch.autograd.gradcheck(call, (values.clone().requires_grad_(),), fast_mode=True)


def test_lengths_and_shared_features(device):
    _, points, features = cloud(device, width=2)
    lengths = torch.tensor([900, 17], device=device)
    grad = torch.rand(2, 8, 8, 8, 2, dtype=torch.float64, device=device)
    options = {"reduce": "mean", "lengths": lengths, **GRID}
    for more in ({}, {"sparse": True}):
        got = gradient(points, features, grad, **options, **more)
        assert_same_bits(got, voxelize_backward(points, features, grad, **options))
        assert not got[1, 17:].any() and got[1, :17].any()
        # Both clouds share the features of one: the sum of what each hands back.
        both = gradient(points, features[0], grad, **options, **more)
        rows = voxelize_backward(points, features[:1].expand(2, -1, -1), grad, **options)
        torch.testing.assert_close(both, rows.sum(0))


def test_a_grid_of_another_dtype(device):
    _, points, features = cloud(device, dtype=torch.float16)
    features.requires_grad_()
    grid = rc.voxelize(points, features, reduce="sum", dtype="float64", **GRID)
    assert grid.dtype == torch.float64
    grid.backward(torch.ones_like(grid))
    assert features.grad.dtype == torch.float16 and features.grad.max() == 1


def test_counts_and_what_is_dropped_come_without_a_gradient(device):
    _, points, features = cloud(device)
    features.requires_grad_()
    found = rc.voxelize(
        points, features, reduce="mean", return_counts=True, return_dropped=True, **GRID
    )
    assert [x.requires_grad for x in found] == [True, False, False]
    sparse = rc.voxelize(points, features, reduce="mean", sparse=True, **GRID)
    assert [name for name in vars(sparse) if getattr(sparse, name) is not None
            and getattr(sparse, name).requires_grad] == ["features"]  # fmt: skip
    with torch.no_grad():
        assert not rc.voxelize(points, features, reduce="mean", **GRID).requires_grad


def test_of_depth_images(device):
    depth = torch.rand(2, 6, 5, device=device) * 2
    features = torch.randn(2, 30, 3, dtype=torch.float64, device=device, requires_grad=True)
    camera = [5.0, 5.0, 2.0, 2.0]

    def call(x):
        return rc.voxelize_depth(depth, camera, depth_scale=1.0, features=x, reduce="mean", **GRID)

    torch.autograd.gradcheck(call, (features,))
    points = rc.unproject(depth, camera, depth_scale=1.0)
    grad = torch.rand(2, 8, 8, 8, 3, dtype=torch.float64, device=device)
    (got,) = torch.autograd.grad(call(features), features, grad)
    want = voxelize_backward(points, features.detach(), grad, reduce="mean", **GRID)
    assert_same_bits(got, want)
    images = lambda: rc.voxelize_depth(depth.requires_grad_(), camera, **GRID)  # noqa: E731
    assert_refused(images, "Unsupported", "depth", "features only", op="voxelize_depth")


def test_sums_do_not_keep_their_features():
    for reduce, keeps in (("sum", False), ("mean", False), ("max", True)):
        for more in ({}, {"sparse": True}):
            _, points, leaf = cloud("cpu")
            features = leaf.requires_grad_() * 2
            gone = weakref.ref(features)
            out = rc.voxelize(points, features, reduce=reduce, **more, **GRID)
            del features
            gc.collect()
            assert (gone() is None) != keeps, (reduce, more)
            (out.features if more else out).sum().backward()
            assert leaf.grad.any()


@pytest.mark.parametrize("sparse", [False, True])
def test_double_backward_is_refused(sparse):
    _, points, features = cloud("cpu")
    features.requires_grad_()
    out = rc.voxelize(points, features, reduce="sum", sparse=sparse, **GRID)
    out = out.features if sparse else out
    ones = torch.ones_like(out, requires_grad=True)
    (grad,) = torch.autograd.grad(out, features, ones, create_graph=True)
    again = lambda: grad.sum().backward()  # noqa: E731
    assert_refused(again, "Unsupported", None, "double backward", op="voxelize")


@pytest.mark.parametrize("form", [{}, {"sparse": True}])
def test_warming_up_loads_the_gradient_too(form):
    """Also where the batch is that of the features."""
    _, points, features = cloud("cpu")
    features.requires_grad_()
    rc.warmup("voxelize", points, features, reduce="max", **form, **GRID)
    if not form:
        rc.warmup("voxelize", points[0], features, reduce="sum", **GRID)
    out = rc.voxelize(points, features, reduce="max", **form, **GRID)
    assert (out.features if form else out).requires_grad


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_a_graph_of_forward_and_backward(reduce):
    _, points, features = cloud("cuda", dtype=torch.float32)
    features.requires_grad_()
    rc.warmup("voxelize", points, features, reduce=reduce, **GRID)
    grad = torch.rand(2, 8, 8, 8, 3, device="cuda")
    features.grad = torch.zeros_like(features)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        rc.voxelize(points, features, reduce=reduce, **GRID).backward(grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        features.grad.zero_()
        rc.voxelize(points, features, reduce=reduce, **GRID).backward(grad)
    points.uniform_(0, 2)
    graph.replay()
    got = features.grad.clone()
    assert_same_bits(got, gradient(points, features, grad, reduce=reduce, **GRID))


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    ("dtype", "grad_dtype", "width"),
    [
        (torch.float32, torch.float32, 3),
        (torch.float32, torch.float32, 16),
        (torch.float64, torch.float64, 6),
        (torch.bfloat16, torch.bfloat16, 40),
        (torch.float16, torch.float32, 8),
    ],
)
def test_the_gpu_gives_the_bits_of_the_cpu(reduce, dtype, grad_dtype, width):
    for count in (1, 129, 4097, 100_000):
        _, points, features = cloud("cpu", count=count, width=width, dtype=dtype)
        points[0] = points[0, :1]  # one crowded cell
        features[:, ::7, 0] = torch.nan
        grad = torch.rand(2, 8, 8, 8, width).to(grad_dtype)
        want = voxelize_backward(points, features, grad, reduce=reduce, **GRID)
        got = voxelize_backward(points.cuda(), features.cuda(), grad.cuda(), reduce=reduce, **GRID)
        assert_same_bits(got, want, f"{reduce} {count}")
