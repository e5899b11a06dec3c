"""Which devices this machine and this build can compute on. Importing it uses the GPU."""

from __future__ import annotations

import os

import pytest
import torch

import robocache as rc

# Nothing waits on a GPU, and the tests hold it to that: `assert_refused` asks `rc.synchronize()` for
# what a call found. The variable has a test of its own, in a process of its own.
os.environ.pop("ROBOCACHE_BLOCKING", None)
# JAX is tested on the CPU; a GPU it would take as a whole. One test asks for the GPU, in a child.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _why_no_cuda() -> str | None:
    """Why nothing is tested on a GPU, or None where one works."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    probe = torch.zeros(2, 1, device="cuda"), torch.arange(2.0, device="cuda")
    try:
        rc.resample(probe[0], probe[1], probe[1])
    except (rc.NoDevice, rc.Unsupported) as error:
        return str(error)
    return None


NO_CUDA = _why_no_cuda()
DEVICES = ["cpu"] if NO_CUDA else ["cpu", "cuda"]


def marks(device: str) -> tuple:
    """Tests that need a GPU can be chosen by `-m gpu`, whichever file they are in."""
    return (pytest.mark.gpu,) if device == "cuda" else ()
