"""DLPack on CUDA (number 28 of the list): producers that lie, capsules of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import assert_same
from fake_dlpack import CUDA, READ_ONLY, Producer
from gpu import assert_gpu_works
from refusal import assert_refused

pytestmark = pytest.mark.gpu

CUDA_HOST, ROCM, MANAGED = 3, 10, 13
TIMES = np.array([0.0, 1.0, 2.0, 4.0])


class Lender(Producer):
    """A producer whose memory is that of a CUDA tensor, which it keeps alive."""

    def __init__(self, array: np.ndarray, **keywords):
        self.tensor = torch.from_numpy(array.copy()).cuda()
        torch.cuda.synchronize()
        keywords = {"data": self.tensor.data_ptr(), "device": (CUDA, 0), **keywords}
        super().__init__(array, **keywords)


@pytest.fixture
def plain():
    """values, targets and the CPU's result; the stamps are what the tests vary."""
    generator = torch.Generator().manual_seed(28)
    values = torch.randn(3, 4, 5, generator=generator)
    targets = torch.tensor([[0.5, 1.0], [3.0, 9.0], [-1.0, 4.0]], dtype=torch.float64)
    want = rc.resample(values, torch.from_numpy(TIMES), targets)
    return values.cuda(), targets.cuda(), want


@pytest.mark.parametrize(
    "keywords",
    [
        pytest.param({}, id="legacy"),
        pytest.param({"versioned": True}, id="versioned"),
        pytest.param({"versioned": True, "version": (1, 7)}, id="newer-minor"),
        pytest.param({"versioned": True, "flags": READ_ONLY}, id="read-only"),
        pytest.param({"versioned": True, "flags": 1 << 40}, id="unknown-flag"),
        pytest.param({"deleter": False}, id="no-deleter"),
        pytest.param({"versioned": True, "deleter": False}, id="versioned-no-deleter"),
        pytest.param({"device": (MANAGED, 0)}, id="managed"),
    ],
)
def test_capsules_that_can_be_read(plain, keywords):
    values, targets, want = plain
    times = Lender(TIMES, **keywords)
    for _ in range(3):
        assert_same(rc.resample(values, times, targets).cpu(), want)
    assert len(times.exported) == 3
    times.assert_nothing_leaked()
    rc.synchronize()


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        pytest.param({"device": (ROCM, 0)}, "Unsupported", "10", id="another-device-type"),
        pytest.param({"device": (99, 0)}, "Unsupported", "99", id="unknown-device-type"),
        pytest.param({"device": (CUDA, -1)}, "Unsupported", "", id="negative-ordinal"),
        pytest.param({"device": (CUDA, 7)}, "InvalidArgument", "cuda:7", id="25-another-gpu"),
        pytest.param({"device": (CUDA_HOST, 0)}, "InvalidArgument", "cpu", id="pinned"),
        pytest.param({"versioned": True, "version": (2, 0)}, "Unsupported", "2.0", id="too-new"),
        pytest.param({"data": 0}, "InvalidArgument", "(?i)null", id="null-pointer"),
        pytest.param({"dtype": (2, 64, 2)}, "Unsupported", "lanes", id="two-lanes"),
    ],
)
def test_capsules_that_are_refused(plain, keywords, error, message):
    """By what they say, before anybody touches the pointer: the process goes on."""
    values, targets, _ = plain
    times = Lender(TIMES, **keywords)
    assert_refused(lambda: rc.resample(values, times, targets), error, "times", message)
    times.assert_nothing_leaked()
    assert_gpu_works()


def test_22_a_pointer_that_is_not_aligned(plain):
    values, targets, _ = plain
    times = Lender(TIMES)
    times.data += 4
    assert_refused(lambda: rc.resample(values, times, targets), "InvalidArgument", "times", "align")
    times.assert_nothing_leaked()


def test_a_capsule_is_consumed_once(plain):
    class Stale(Lender):
        """Returns the same capsule every time."""

        capsule = None

        def __dlpack__(self, **keywords):
            self.capsule = self.capsule or super().__dlpack__(**keywords)
            return self.capsule

    values, targets, want = plain
    times = Stale(TIMES, versioned=True)
    assert_same(rc.resample(values, times, targets).cpu(), want)
    assert_refused(
        lambda: rc.resample(values, times, targets), "InvalidArgument", "times", "DLPack"
    )
    times.assert_nothing_leaked()


def test_out_through_dlpack(plain):
    values, targets, want = plain
    times = torch.from_numpy(TIMES).cuda()
    out = Lender(np.zeros(want.shape, np.float32))
    assert rc.resample(values, times, targets, out=out) is out
    torch.cuda.synchronize()
    assert_same(out.tensor.cpu(), want)
    out.assert_nothing_leaked()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        pytest.param({"versioned": True, "flags": READ_ONLY}, "read-only", id="read-only"),
        pytest.param({"device": (CUDA, 3)}, "cuda:3", id="another-gpu"),
        pytest.param({"device": (CUDA_HOST, 0)}, "cpu", id="pinned"),
        pytest.param({"strides": (0, 5, 1)}, "", id="stride-0"),
    ],
)
def test_out_that_cannot_be_written(plain, keywords, message):
    values, targets, want = plain
    times = torch.from_numpy(TIMES).cuda()
    out = Lender(np.zeros(want.shape, np.float32), **keywords)
    assert_refused(
        lambda: rc.resample(values, times, targets, out=out), "InvalidArgument", "out", message
    )
    torch.cuda.synchronize()
    assert bool((out.tensor == 0).all())
    out.assert_nothing_leaked()


def test_values_of_an_unknown_framework(plain):
    """Nobody could say which stream they are ready on, nor allocate the result."""
    values, targets, _ = plain
    times = torch.from_numpy(TIMES).cuda()
    unknown = Lender(values.cpu().numpy())
    raised = assert_refused(
        lambda: rc.resample(unknown, times, targets), "Unsupported", "values", "torch"
    )
    assert "CuPy" in str(raised)
    unknown.assert_nothing_leaked()


def test_a_tensor_that_came_over_dlpack_and_its_views(plain):
    values, targets, want = plain
    times = torch.from_numpy(TIMES).cuda()
    again = torch.from_dlpack(values)
    assert again.data_ptr() == values.data_ptr()
    assert_same(rc.resample(again, times, targets).cpu(), want)
    assert_same(rc.resample(again.mT.contiguous().mT, times, targets).cpu(), want)
