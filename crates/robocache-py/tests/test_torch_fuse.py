"""`fuse` inside torch: streams that a compiled function makes, functorch, warming up."""

from __future__ import annotations

import pickle

import pytest
import torch

import robocache as rc
from helpers import can_compile
from refusal import assert_refused

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def signals(device: str, batch: int = 3):
    """Values and stamps of two signals of other rates and widths, and targets."""
    generator = torch.Generator().manual_seed(batch)
    arm = torch.randn(batch, 20, 5, generator=generator, dtype=torch.float64)
    force = torch.randn(batch, 9, 2, generator=generator, dtype=torch.float64)
    stamps = [
        torch.cumsum(torch.rand(batch, n, generator=generator, dtype=torch.float64) + 0.1, -1)
        for n in (20, 9)
    ]
    targets = torch.rand(batch, 11, generator=generator, dtype=torch.float64) * 4
    return tuple(x.to(device) for x in (arm, stamps[0], force, stamps[1], targets))


def made_within(arm, arm_times, force, force_times, targets):
    """Streams are made where torch.compile sees it: ranges, a name, a gap, a missing modality."""
    streams = [
        rc.Stream(arm * 2, arm_times, method=[("linear", 0, 1), ("slerp", 1, 5)], name="arm"),
        rc.Stream(None, dim=3),
        rc.Stream(force, force_times, method="cubic", max_gap=0.5),
    ]
    out, valid, age = rc.fuse(streams, targets, return_valid=True, return_age=True)
    return torch.where(valid[..., 2:], out + 1, 0), age


def test_opcheck(device):
    arm, arm_times, force, force_times, targets = signals(device)
    rc.fuse([rc.Stream(arm.requires_grad_(), arm_times)], targets)  # registers the ops
    spec = repr(
        (
            ("linear", "cubic"),
            (None, 0.5),
            (None, None),
            (None, "b"),
            ((True, False, False),) * 2,
            False,
        )
    )
    later = targets + 2  # no target before the first sample, whose age is NaN
    tensors = [arm, force[0].clone().requires_grad_()], [later, arm_times, force_times[0]]
    for flags in ((False, False), (True, True)):
        arguments = (*tensors, spec, "clamp", None, *flags, None, None, True)
        torch.library.opcheck(torch.ops.robocache.fuse.default, arguments)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_streams_that_a_compiled_function_makes(backend, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")
    arm, *others = signals(device)
    arm.requires_grad_()
    got, got_age = torch.compile(made_within, fullgraph=True, backend=backend)(arm, *others)
    want, age = made_within(arm, *others)
    assert torch.equal(got, want) and torch.equal(got_age.nan_to_num(), age.nan_to_num())
    (mine,) = torch.autograd.grad(got.square().sum(), arm)
    (theirs,) = torch.autograd.grad(want.square().sum(), arm)
    assert torch.equal(mine, theirs)


def test_compiled_once_for_all_sizes():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(made_within, fullgraph=True, dynamic=True, backend=backend)
    for batch in (3, 5, 2):
        call = signals("cpu", batch)
        for mine, theirs in zip(compiled(*call), made_within(*call), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    assert len(graphs) == 1


def test_streams_from_outside_go_into_a_compiled_function():
    arm, arm_times, *_, targets = signals("cpu")
    stream = rc.Stream(arm, arm_times)
    compiled = torch.compile(lambda s, t: rc.fuse([s], t) * 2, fullgraph=True, backend="eager")
    assert torch.equal(compiled(stream, targets), rc.fuse([stream], targets) * 2)


def test_vmap_is_a_batch(device):
    call = signals(device)
    want = made_within(*call)
    for mine, theirs in zip(torch.func.vmap(made_within)(*call), want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    # What is not mapped over is shared, whether it has a batch of its own or not.
    arm, arm_times, force, force_times, targets = call

    def shared(force):
        return rc.fuse(
            [rc.Stream(arm, arm_times), rc.Stream(force, force_times[0]), rc.Stream(None, dim=1)],
            targets[0],
        )

    got = torch.func.vmap(shared)(force)
    for row in range(3):
        assert torch.equal(got[row], shared(force[row]))


def test_gradients_by_functorch(device):
    call = signals(device)

    def loss(*call):
        return made_within(*call)[0].square().sum()

    own = torch.func.grad(loss)(*call)
    leaf = call[0].clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf, *call[1:]), leaf)
    assert torch.equal(own, want)
    each = torch.func.vmap(torch.func.grad(loss))(*call)
    for row in range(3):
        assert torch.equal(each[row], torch.func.grad(loss)(*(x[row] for x in call)))


def test_what_functorch_cannot_do_is_refused():
    values = torch.ones(3, 4, 2, dtype=torch.int8)
    times, scales = torch.arange(4.0), torch.rand(3, 2)

    def scaled(scale):
        return rc.fuse([rc.Stream(values, times, scale=scale)], times)

    assert_refused(lambda: torch.func.vmap(scaled)(scales), "Unsupported", None, "scale", op="fuse")

    def alone(scale):
        return rc.resample(values, times, times, scale=scale)

    assert_refused(lambda: torch.func.vmap(alone)(scales), "Unsupported", None, "scale")

    def blended(x):
        return rc.fuse([rc.Stream(x, times)], times)

    x = values.double()
    tangent = lambda: torch.func.jvp(blended, (x,), (x,))  # noqa: E731
    assert_refused(tangent, "Unsupported", "values", "forward-mode", op="fuse")


def test_warming_up_loads_the_gradients_too():
    arm, arm_times, force, force_times, targets = signals("cpu")
    streams = [rc.Stream(arm.requires_grad_(), arm_times), rc.Stream(force, force_times)]
    rc.warmup("fuse", streams, targets)
    assert rc.fuse(streams, targets).requires_grad


def test_a_stream_is_read_only_and_can_be_copied():
    stream = rc.Stream(torch.ones(4, 2), torch.arange(4.0), max_gap=0.5, name="arm")
    with pytest.raises(AttributeError):
        stream.values = None
    again = pickle.loads(pickle.dumps(stream))
    assert (again.name, again.max_gap, again.method, again.dim) == ("arm", 0.5, "linear", None)
    assert torch.equal(again.values, stream.values) and repr(again) == repr(stream)


def test_streams_of_a_subclass():
    class Named(rc.Stream):
        pass

    arm, arm_times, *_, targets = signals("cpu")

    class Several(list):
        pass

    stream = Named(arm.requires_grad_(), arm_times)
    for streams in ([stream], (stream,), Several([stream])):
        assert rc.fuse(streams, targets).requires_grad
    hollow = Named.__new__(Named)
    assert_refused(
        lambda: rc.fuse([hollow], targets), "InvalidArgument", "streams", "Stream", op="fuse"
    )
