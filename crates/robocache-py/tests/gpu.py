"""What the tests on a GPU share: known good calls, long kernels, and how a report must look."""

from __future__ import annotations

import re

import pytest
import torch

import robocache as rc
from agreement import assert_same
from faults import Fault, good_call, placed

# Cycles of a kernel that only waits: about 25 ms at the clock of a busy H200, 150 ms at idle.
A_WHILE = 50_000_000
# Long enough that everything that is queued beside it ends first.
LONG = 500_000_000


def assert_gpu_works() -> None:
    """The next good call on the GPU, after whatever happened before."""
    call = good_call()
    assert_same(rc.resample(**placed(call, "cuda")).cpu(), rc.resample(**call))
    rc.synchronize()


def assert_reported(error: rc.RoboCacheError, fault: Fault) -> None:
    """The error of a later call tells what the CPU would have said, and which call it was."""
    text = str(error)
    assert type(error) is rc.InvalidArgument and error.kind == "invalid_argument", text
    assert (error.op, error.argument) == ("resample", fault.argument), text
    assert text.startswith(f"resample: {fault.argument}: "), text
    assert re.search(fault.message, text), text
    assert re.search(r"call \d+ of \d+ on cuda:0", text), text


def assert_raises_once(call, fault: Fault) -> None:
    with pytest.raises(rc.InvalidArgument) as caught:
        call()
    assert_reported(caught.value, fault)
    rc.synchronize()


def capture(call):
    """A CUDA graph of `call`, and what `call` returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result
