"""The older names compute what the new ones do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import robocache as rc
from devices import DEVICES, marks
from robocache._arguments import device_of, mebibytes

ON = [pytest.param(device, marks=marks(device)) for device in DEVICES]


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


def test_mebibytes_are_bytes():
    for given, size in ((None, None), (1024, 1 << 30), (0.5, 1 << 19), (1e-9, 1), ("64", 1 << 26)):
        assert mebibytes("max_memory_mb", given, "") == size
    assert [device_of(name, "") for name in (None, "auto", "cuda:1")] == [None, "auto", "cuda:1"]


def test_any_memory():
    values, times = stream(9, 3)
    want = rc.resample(values, times, TARGETS)
    for options in (
        {},
        *({"max_memory_mb": size} for size in (None, np.int64(7), 0.5, 2**31, "64")),
    ):
        got = rc.resample_trajectories_chunked(values, times, TARGETS, **options)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("device", ON)
def test_on_the_backend_where_the_data_lives(device):
    parts = [
        [torch.tensor(x, device=device) for x in stream(*size)]
        for size in ((9, 3), (30, 2), (5, 4))
    ]
    targets = torch.tensor(TARGETS, device=device)
    flat = [x for part in parts for x in part]
    want = torch.cat([rc.resample(*part, targets) for part in parts], dim=-1)
    assert torch.equal(rc.fuse_multimodal(*flat, targets, backend=device), want)
    first = rc.resample_trajectories(*parts[0], targets, backend=device)
    assert torch.equal(first, want[..., :3])
    chunked = rc.resample_trajectories_chunked(*parts[0], targets, backend=device)
    assert torch.equal(chunked, want[..., :3])


def test_aliases_in_a_compiled_function_and_with_gradients():
    parts = [[torch.tensor(x) for x in stream(*size)] for size in ((9, 3), (30, 2), (5, 4))]
    targets = torch.tensor(TARGETS)

    def align(scale):
        arm, arm_times, *others = (x for part in parts for x in part)
        fused = rc.fuse_multimodal(arm * scale, arm_times, *others, targets, backend="cpu")
        alone = rc.resample_trajectories(arm * scale, arm_times, targets)
        chunked = rc.resample_trajectories_chunked(arm * scale, arm_times, targets, 8)
        return fused.sum() + alone.sum() + chunked.sum()

    eager, compiled = (torch.tensor(2.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    want = align(eager)
    want.backward()
    got = torch.compile(align, fullgraph=True, backend="aot_eager")(compiled)
    got.backward()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_what_cannot_be_is_refused_by_its_own_name():
    values, times = stream(9, 3)
    for memory in (0, -1, float("nan"), float("inf"), "all", True, [1]):
        with pytest.raises(rc.InvalidArgument, match="max_memory_mb"):
            rc.resample_trajectories_chunked(values, times, TARGETS, max_memory_mb=memory)
    calls = [
        lambda backend: rc.resample_trajectories(values, times, TARGETS, backend=backend),
        lambda backend: rc.resample_trajectories_chunked(values, times, TARGETS, backend=backend),
        lambda backend: rc.fuse_multimodal(*(values, times) * 3, TARGETS, backend=backend),
    ]
    for call, backend in itertools.product(calls, ("tpu", 3, ["cuda"])):
        with pytest.raises(rc.InvalidArgument, match=r"cpu.*cuda.*got") as caught:
            call(backend)
        assert caught.value.argument == "backend"
    with pytest.raises(rc.RoboCacheError, match=r"cuda:0|lives on the CPU"):
        rc.resample_trajectories(values, times, TARGETS, backend="cuda")
    # torch.compile cannot trace how an error is made, so there the engine tells.
    tensors = [torch.tensor(x) for x in (values, times, TARGETS)]
    for wrong in ({"backend": "tpu"}, {"max_memory_mb": 0}):
        compiled = torch.compile(rc.resample_trajectories_chunked, backend="eager", fullgraph=True)
        with pytest.raises(rc.InvalidArgument, match=r"tpu|max_memory"):
            compiled(*tensors, **wrong)
