"""Clouds and pictures for the tests of point clouds inside torch."""

from __future__ import annotations

import torch

import robocache as rc
from cases_clouds import GRID

POSE = [0.1, 0.2, -0.1, 0.0, 0.0, 0.6, 0.8]
CAMERA = [5.0, 5.0, 3.0, 2.0]
BOX = (0.0, 0.2, 0.0), (1.5, 1.5, 2.0)
SIZES = list(GRID.values())
SIZES[1] = [SIZES[1]] * 3
DEPTH_GRID = {"origin": (-2.0, -2.0, 0.0), "voxel_size": 0.25, "shape": (16, 16, 20)}


def cloud(device: str, batch: int = 3, count: int = 40):
    """Points, features and how many of each row there are."""
    generator = torch.Generator().manual_seed(count)
    points = torch.rand(batch, count, 3, generator=generator) * 2.4 - 0.2
    features = torch.randn(batch, count, 4, generator=generator)
    lengths = torch.randint(count // 2, count + 1, (batch,), generator=generator)
    return tuple(x.to(device) for x in (points, features, lengths))


def images(device: str, batch: int = 3):
    generator = torch.Generator().manual_seed(batch)
    return ((torch.rand(batch, 6, 5, generator=generator) * 2 - 0.2).to(device),)


def parts(found) -> list:
    """The results of a call, one after the other; what groups are made of is none."""
    if isinstance(found, rc.SparseVoxels):
        # One by one: torch.compile cannot trace `vars`.
        fields = found.coords, found.features, found.counts, found.inverse, found.dropped
        return [x for x in (*fields, found.voxels, found.count) if x is not None]
    return list(found) if isinstance(found, tuple) else [found]
