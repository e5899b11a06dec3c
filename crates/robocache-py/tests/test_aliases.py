"""The older names compute what the new ones do."""

from __future__ import annotations

import numpy as np
import pytest

import robocache as rc


def stream(samples: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(samples)
    return rng.normal(size=(2, samples, width)), np.sort(rng.random((2, samples)), axis=1)


TARGETS = np.random.default_rng(0).random((2, 11))


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_resample_trajectories(backend):
    values, times = stream(9, 3)
    want = rc.resample(values, times, TARGETS)
    got = rc.resample_trajectories(values, times, TARGETS, backend=backend)
    np.testing.assert_array_equal(got, want)
    got = rc.resample_trajectories_chunked(values, times, TARGETS, max_memory_mb=1, backend=backend)
    np.testing.assert_array_equal(got, want)


def test_fuse_multimodal():
    parts = [stream(9, 3), stream(30, 2), stream(5, 4)]
    got = rc.fuse_multimodal(*(x for part in parts for x in part), TARGETS)
    want = np.concatenate([rc.resample(*part, TARGETS) for part in parts], axis=-1)
    np.testing.assert_array_equal(got, want)


def test_what_cannot_be_is_refused_as_by_the_new_names():
    values, times = stream(9, 3)
    with pytest.raises(rc.InvalidArgument, match="max_memory"):
        rc.resample_trajectories_chunked(values, times, TARGETS, max_memory_mb=0)
    with pytest.raises(rc.InvalidArgument, match="device"):
        rc.resample_trajectories(values, times, TARGETS, backend="tpu")
