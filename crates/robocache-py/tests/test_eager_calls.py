"""What eager calls leave out to be quick, and what must hold all the same."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest
import torch

import robocache as rc
from refusal import assert_refused


def inputs(device: str):
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(3, 12, 4, generator=generator)
    times = torch.arange(12.0).repeat(3, 1)
    targets = torch.rand(3, 5, generator=generator) * 11
    return tuple(x.to(device) for x in (values, times, targets))


def fuse(values, times, targets):
    return rc.fuse([rc.Stream(values, times), rc.Stream(values, times, method="nearest")], targets)


# -- options have places in Python, which nobody uses --------------------------------------------


@pytest.mark.parametrize("name", ["resample", "fuse"])
def test_options_are_those_of_the_engine_in_its_order(name):
    """They are handed on by position."""
    own = inspect.signature(getattr(rc, name), follow_wrapped=False).parameters
    engine = inspect.signature(getattr(rc._core, name)).parameters
    assert [x for x in own if x != "_named"] == list(engine)
    options = [x for x in engine.values() if x.kind is x.KEYWORD_ONLY]
    assert len(options) > 9
    for option in options:
        assert own[option.name].default == option.default, option


def test_a_stream_takes_what_it_shows():
    shown = inspect.signature(rc.Stream).parameters
    own = inspect.signature(rc.Stream.__init__, follow_wrapped=False).parameters
    assert [x for x in own if x not in ("self", "_named")] == list(shown)
    assert all(own[x.name].default == x.default for x in shown.values())
    assert shown["method"].kind is inspect.Parameter.KEYWORD_ONLY


def test_options_without_their_names_are_refused():
    values, times, targets = inputs("cpu")
    streams = [rc.Stream(values, times)]
    for call in (
        lambda: rc.resample(values, times, targets, "nearest"),
        lambda: rc.resample(values, times, targets, None),
        lambda: rc.fuse(streams, targets, torch.float16),
        lambda: rc.Stream(values, times, "nearest"),
    ):
        with pytest.raises(TypeError, match="options must be named"):
            call()
    compiled = torch.compile(rc.resample, backend="eager")
    with pytest.raises(TypeError, match="options must be named"):
        compiled(values, times, targets, "nearest")


# -- functorch, whose wrapped tensors look like others ---------------------------------------------


@pytest.mark.parametrize("call", [rc.resample, fuse], ids=["resample", "fuse"])
@pytest.mark.parametrize("mapped", range(3))
def test_one_wrapped_argument_is_enough(call, mapped, device):
    """Whichever it is."""
    arguments = [x[0] for x in inputs(device)]
    rows = inputs(device)[mapped]
    in_dims = tuple(0 if index == mapped else None for index in range(3))
    arguments[mapped] = rows
    got = torch.vmap(call, in_dims=in_dims)(*arguments)
    for row, each in enumerate(got):
        arguments[mapped] = rows[row]
        assert torch.equal(each, call(*arguments)), row


@pytest.mark.parametrize("option", ["lengths", "target_lengths", "scale"])
def test_a_wrapped_option_is_enough(option, device):
    values, times, targets = (x[0] for x in inputs(device))
    rows = torch.tensor([3, 2, 5], device=device, dtype=torch.int32)
    if option == "scale":
        values, rows = (values * 9).to(torch.int8), rows.float()

    def call(x):
        return rc.resample(values, times, targets, **{option: x})

    if option == "scale":
        # A scale is of the whole call: there is no batch of them.
        assert_refused(lambda: torch.vmap(call)(rows), "Unsupported", None, "vmap over")
        return
    got = torch.vmap(call)(rows)
    want = torch.stack([call(x) for x in rows])
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_tensors_that_are_not_wrapped_pass_within_functorch(device):
    values, times, targets = inputs(device)
    want = fuse(values, times, targets)

    def within(x):
        return (fuse(values, times, targets) * x).sum()

    torch.testing.assert_close(
        torch.func.grad(within)(torch.tensor(2.0, device=device)), want.sum()
    )
    one = torch.tensor(1.0, device=device)
    torch.testing.assert_close(torch.func.jvp(within, (one,), (one,))[1], want.sum())


@pytest.mark.parametrize("sliced", ["values", "times", "targets", "stream", "out"])
def test_functional_tensors_are_not_taken_for_others(sliced, device):
    """They tell an address, which is where they begin in memory that they do not have. Large enough for memory that
    does not come from torch."""
    values = torch.randn(8, 300, 64, device=device)
    times = torch.arange(300.0, device=device).repeat(8, 1)
    targets = torch.rand(8, 3000, device=device) * 299
    data = {"values": values, "times": times, "targets": targets}

    def call(x):
        if sliced == "out":
            return rc.resample(values[1:], times[1:], targets[1:], out=x[1:])
        if sliced == "stream":
            return rc.fuse([rc.Stream(x[1:], times[1:])], targets[1:])
        taken = {name: (x if name == sliced else tensor)[1:] for name, tensor in data.items()}
        return rc.resample(**taken)

    wrapped = {**data, "stream": values, "out": torch.zeros(8, 3000, 64, device=device)}[sliced]
    # torch has no rule of its own for Functions there.
    refused = r"must see the call" if sliced == "out" else r"Functionalize rule"
    with pytest.raises((RuntimeError, rc.Unsupported), match=refused):
        torch.func.functionalize(call)(wrapped)


def test_errors_within_functorch_are_errors():
    values, times, targets = inputs("cpu")

    def wrong_dtype(x):
        return rc.resample(values.to(torch.complex64), times, targets) + x

    def unsorted(x):
        return rc.resample(values, times.flip(-1), targets) + x

    one = torch.ones(2)
    assert_refused(lambda: torch.vmap(wrong_dtype)(one), "Unsupported", "values", "complex")
    assert_refused(lambda: torch.vmap(unsorted)(one), "InvalidArgument", "times", "decreas")
    # Nothing of it stays for the next call.
    assert_refused(lambda: rc.resample(values, times.flip(-1), targets), "InvalidArgument", "times")
    assert rc.resample(values, times, targets).shape == (3, 5, 4)


def test_wrapped_tensors_beside_arrays_are_refused():
    """NumPy's values decide about the result, which functorch could not follow."""
    values, times, targets = inputs("cpu")
    assert_refused(
        lambda: torch.vmap(lambda x: rc.resample(values[0].numpy(), times[0], x))(targets),
        "Unsupported",
        "targets",
        "functorch",
    )


# -- what an allocation was asked for is kept for the next one: on GPUs, and in test_older_torch.py --


def test_outputs_follow_shape_and_dtype(device):
    """Calls that differ in one of them only, in turns."""
    values, times, targets = inputs(device)
    wanted = [
        (values, targets),
        (values, targets[:, :4]),
        (values.half(), targets),
        (values.double(), targets),
        (values[:1], targets[:1]),
        (values[..., :3], targets),
    ]
    for _ in range(3):
        for data, at in wanted:
            out, valid = rc.resample(data, times[: len(at)], at, return_valid=True)
            assert out.shape == (len(at), at.shape[1], data.shape[2]) and out.dtype == data.dtype
            assert valid.shape == at.shape and valid.dtype == torch.bool
            assert out.is_contiguous() and out.device == values.device
            want = rc.resample(data.cpu(), times[: len(at)].cpu(), at.cpu())
            assert torch.equal(out.cpu(), want)


def test_threads_keep_their_own(device):
    """Each in turns with others, and gone before the interpreter is."""
    values, times, targets = inputs(device)
    wrong: list[object] = []

    def work(columns: int) -> None:
        want = rc.resample(values[..., :columns].contiguous().cpu(), times.cpu(), targets.cpu())
        for _ in range(50):
            out = rc.resample(values[..., :columns].contiguous(), times, targets)
            if out.shape[-1] != columns or not torch.equal(out.cpu(), want):
                wrong.append((columns, out))

    threads = [threading.Thread(target=work, args=(1 + index % 4,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_output_of_the_caller_is_held_against_the_inputs():
    values, times, targets = inputs("cpu")
    memory = torch.zeros(400)
    data = memory[: values.numel()].view(values.shape)
    out = memory[40 : 40 + 60].view(3, 5, 4)
    assert_refused(
        lambda: rc.resample(data, times, targets, out=out),
        "InvalidArgument",
        "out",
        "shares memory",
    )
    array = np.zeros((12, 4), np.float32)
    assert_refused(
        lambda: rc.resample(array, np.arange(12.0), np.arange(12.0), out=array),
        "InvalidArgument",
        "out",
        "shares memory",
    )
