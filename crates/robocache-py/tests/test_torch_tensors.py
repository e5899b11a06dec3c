"""torch tensors that are more than plain memory: read as what they mean, or refused by their kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import robocache as rc
from helpers import assert_same_bits
from refusal import assert_refused

VALUES = np.arange(24, dtype=np.float32).reshape(2, 4, 3) * 1.5
TIMES = np.array([0, 10, 20, 40])
TARGETS = np.array([[-1, 0, 5, 17, 40], [3, 20, 39, 41, 10]])
WANT = rc.resample(VALUES, TIMES, TARGETS)


def test_a_negated_view_keeps_its_sign():
    """torch negates lazily: the memory of this view holds the opposite of its values."""
    values = torch.complex(torch.ones(4, 3), torch.tensor(VALUES[0])).conj().imag
    assert values.is_neg()
    want = rc.resample(values.resolve_neg(), TIMES, TARGETS)
    assert_same_bits(rc.resample(values, TIMES, TARGETS), want)


@pytest.mark.parametrize("kind", ["parameter", "inference", "subclass", "pinned-like"])
def test_torch_tensors_of_other_kinds(kind):
    plain = torch.tensor(VALUES)
    with torch.inference_mode(kind == "inference"), torch.no_grad():
        values = {
            "parameter": lambda: torch.nn.Parameter(plain),
            "inference": lambda: plain.clone(),
            "subclass": lambda: plain.as_subclass(type("Sub", (torch.Tensor,), {})),
            "pinned-like": lambda: plain.clone().share_memory_(),
        }[kind]()
        out = rc.resample(values, TIMES, TARGETS)
    assert isinstance(out, torch.Tensor)
    assert_same_bits(out, WANT)


UNREADABLE = {
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "mkldnn": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "meta": lambda x: x.to("meta"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("wanted", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize("argument", ["values", "times", "targets"])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_torch_tensors_without_plain_memory(kind, argument, wanted):
    """None of them is read as something else, whoever sees the call."""
    plain = torch.tensor(VALUES[0], requires_grad=wanted)
    given = {"values": plain, "times": torch.tensor(TIMES)[None], "targets": torch.tensor(TARGETS)}
    given[argument] = UNREADABLE[kind](given[argument].float())
    said = {"nested": "padded", "jagged": "padded", "meta": "no data"}.get(kind, "to_dense")
    assert_refused(lambda: rc.resample(**given), "Unsupported", argument, said)
    times = given.pop("times")
    stream = rc.Stream(given["values"], times, name="arm")
    name = "targets" if argument == "targets" else f'streams["arm"].{argument}'
    call = lambda: rc.fuse([stream], given["targets"])  # noqa: E731
    assert_refused(call, "Unsupported", name, said, op="fuse")


def test_a_trace_of_shapes_takes_meta_tensors():
    with FakeTensorMode():
        given = [torch.empty(size, device="meta") for size in ((2, 5, 4), (5,), (2, 7))]
        assert rc.resample(*given).shape == (2, 7, 4)
    for wanted in (False, True):
        stored = torch.zeros(2, 4, 3, dtype=torch.int8)
        leading = torch.ones(2, 4, 3, requires_grad=wanted)
        streams = [
            rc.Stream(leading, torch.tensor(TIMES)),
            rc.Stream(stored, torch.tensor(TIMES), scale=torch.ones(3, device="meta")),
        ]
        call = lambda s=streams: rc.fuse(s, torch.tensor(TARGETS))  # noqa: E731
        assert_refused(call, "Unsupported", "streams[1].scale", "no data", op="fuse")


def test_a_tensor_whose_memory_was_freed():
    values = torch.tensor(VALUES[0])
    values.untyped_storage().resize_(0)
    assert_refused(lambda: rc.resample(values, TIMES, TARGETS), "InvalidArgument", "values")


def test_dtypes_that_only_torch_knows():
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex64):
        values = torch.ones(4, 3).to(dtype)
        name = str(dtype).removeprefix("torch.")
        assert_refused(
            lambda v=values: rc.resample(v, TIMES, TARGETS), "Unsupported", "values", name
        )


def test_forward_mode_gradients_are_refused():
    """A dual number's tangent would be lost without a word."""
    import torch.autograd.forward_ad as forward

    with forward.dual_level():
        dual = forward.make_dual(torch.tensor(VALUES), torch.ones(VALUES.shape))
        assert_refused(lambda: rc.resample(dual, TIMES, TARGETS), "Unsupported", "values", "grad")
