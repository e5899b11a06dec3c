"""Gradients of `voxelize` in the features, against torch's own and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cloud_oracle
import robocache as rc
from cases_clouds import GRID
from helpers import assert_same_bits, to_numpy
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


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_the_gpu_gives_the_bits_of_the_cpu(reduce):
    for count in (1, 129, 4097, 100_000):
        _, points, features = cloud("cpu", count=count, dtype=torch.float32)
        points[0] = points[0, :1]  # one crowded cell
        grad = torch.rand(2, 8, 8, 8, 3)
        want = voxelize_backward(points, features, grad, reduce=reduce, **GRID)
        got = voxelize_backward(points.cuda(), features.cuda(), grad.cuda(), reduce=reduce, **GRID)
        assert_same_bits(got, want, f"{reduce} {count}")
