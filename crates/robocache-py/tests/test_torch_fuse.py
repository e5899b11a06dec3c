"""`fuse` inside torch: streams that a compiled function makes, functorch, warming up."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import robocache as rc
from helpers import can_compile
from refusal import assert_refused
from robocache._torch_align import read_fuse

pytestmark = pytest.mark.usefixtures("fresh_compiler")


STORED = [torch.float8_e4m3fn, torch.float8_e5m2]


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
    later = targets + 2  # no target before the first sample, whose age is NaN
    values, stamps = [arm, force[0].clone().requires_grad_()], [arm_times, force_times[0]]

    def arguments(values, second, **options):
        streams = [
            rc.Stream(values[0], stamps[0], method=[("linear", 0, 2), ("next", 2, 5)]),
            rc.Stream(values[1], stamps[1], method=second, max_gap=0.5, name="b"),
        ]
        if not options[
            "return_age"
        ]:  # a missing modality has none: NaN, which opcheck takes for a difference
            streams.insert(1, rc.Stream(None, dim=3))
        return read_fuse(streams, later, **options)

    op = torch.ops.robocache.fuse.default
    for flag in (False, True):
        torch.library.opcheck(op, arguments(values, "cubic", return_valid=flag, return_age=flag))
    for dtype in STORED:
        stored = [arm.detach().to(dtype), force[0].detach().to(dtype)]
        # torch's look at the schema multiplies, which it cannot in these dtypes.
        utils = ("test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")
        given = arguments(stored, "linear", return_valid=True, return_age=True)
        torch.library.opcheck(op, given, test_utils=utils)


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


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_dtypes_are_those_of_the_engine(backend, device):
    """Also of what only stores numbers, and where torch has no common type."""
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")
    times = torch.arange(4.0, device=device)
    samples = torch.arange(8.0, device=device).view(4, 2)
    pairs = [
        (torch.uint8, torch.uint16, torch.uint16),
        (torch.uint16, torch.int16, torch.int32),
        (torch.uint32, torch.int8, torch.int64),
        (torch.float16, torch.bfloat16, torch.float32),
        (STORED[0], torch.float16, torch.float32),
        (STORED[1], STORED[1], torch.float32),
    ]

    def call(a, b):
        streams = [rc.Stream(a, times, method="previous"), rc.Stream(b, times, method="next")]
        return rc.fuse(streams, times - 0.5)

    for first, second, common in pairs:
        a, b = samples.to(first), samples.to(second)
        got = torch.compile(call, fullgraph=True, backend=backend)(a, b)
        assert got.dtype == common and torch.equal(got.double(), call(a, b).double())


def test_fake_tensors_have_the_dtype_of_the_engine():
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32]
    dtypes += [torch.int32, torch.uint64, torch.int64, torch.float16, torch.bfloat16]
    dtypes += [torch.float32, torch.float64, *STORED]
    times = torch.arange(4.0)

    def found(a, b, times):
        streams = [rc.Stream(x, times, method="previous", name="x") for x in (a, b)]
        try:
            return rc.fuse(streams, times).dtype
        except rc.InvalidArgument as error:
            return str(error)

    for first in dtypes:
        for second in dtypes:
            a, b = torch.zeros(4, 1).to(first), torch.zeros(4, 1).to(second)
            with FakeTensorMode() as mode:
                fake = found(*(mode.from_tensor(x) for x in (a, b, times)))
            assert fake == found(a, b, times), (first, second)


def test_gaps_that_no_literal_holds():
    arm, arm_times, *_, targets = signals("cpu")

    def valid(arm, gap):
        streams = [rc.Stream(arm, arm_times, max_gap=gap), rc.Stream(None, dim=1)]
        return rc.fuse(streams, targets, return_valid=True)[1]

    leaf = arm.clone().requires_grad_()
    for gap in (math.inf, None, 0.5, 1e-300, torch.tensor(0.5)):
        want = valid(arm, gap)
        assert torch.equal(valid(leaf, gap), want)
        if not isinstance(gap, torch.Tensor):
            compiled = torch.compile(valid, fullgraph=True, backend="aot_eager")
            assert torch.equal(compiled(arm, gap), want)
    nan = "expected seconds, 0 or more, got NaN"
    compiled = torch.compile(valid, backend="aot_eager")
    for call in (valid, compiled):
        for values in (arm, leaf):
            wrong = lambda: call(values, math.nan)  # noqa: B023, E731
            assert_refused(wrong, "InvalidArgument", "streams[0].max_gap", nan, op="fuse")


@pytest.mark.parametrize("dtype", STORED)
def test_a_gradient_in_what_only_stores_numbers_is_refused_at_the_call(dtype):
    arm, arm_times, force, force_times, targets = signals("cpu")
    force = force.to(dtype)
    leaf = force.clone().requires_grad_()

    def streams(force, times):
        return [rc.Stream(arm, arm_times), rc.Stream(force, times, name="force")]

    def loss(force):
        return rc.fuse(streams(force, force_times), targets).sum()

    def mapped(force):
        def each(force, times):
            return rc.fuse([rc.Stream(None, dim=1), rc.Stream(force, times, name="force")], times)

        return torch.func.vmap(each)(force, force_times).sum()

    calls = {
        "call": lambda: loss(leaf),
        "grad": lambda: torch.func.grad(loss)(force),
        "grad of vmap": lambda: torch.func.grad(mapped)(force),
        "compile": lambda: torch.compile(loss, backend="eager")(leaf),
        "warmup": lambda: rc.warmup("fuse", streams(leaf, force_times), targets),
    }
    for call in calls.values():
        where = 'streams["force"].values'
        assert_refused(call, "Unsupported", where, "holds no gradients", op="fuse")
    with torch.no_grad():
        assert torch.equal(loss(leaf), loss(force))


def hollow_stream() -> rc.Stream:
    return rc.Stream.__new__(rc.Stream)


@pytest.mark.parametrize(
    ("argument", "others"),
    [
        ("streams[1].max_gap", lambda x, t: [rc.Stream(x, t, max_gap="a")]),
        ('streams["b"].max_gap', lambda x, t: [rc.Stream(x, t, max_gap=-1, name="b")]),
        ("streams[1].method", lambda x, t: [rc.Stream(x, t, method=3)]),
        ("streams[1].method", lambda x, t: [rc.Stream(x, t, method=[])]),
        ("streams[1].method", lambda x, t: [rc.Stream(x, t, method=[("linear", 0)])]),
        ("streams[1].lengths", lambda x, t: [rc.Stream(x, t, lengths={})]),
        ("streams[1].scale", lambda x, t: [rc.Stream(x, t, scale="a")]),
        ("streams[1].times", lambda x, t: [rc.Stream(x, [0, [1]])]),
        ('streams["b"].values', lambda x, t: [rc.Stream("a", t, name="b")]),
        ("streams", lambda x, t: [3]),
        ("streams", lambda x, t: [None]),
        ("streams", lambda x, t: [hollow_stream()]),
    ],
)
def test_a_wrong_stream_is_refused_alike_with_a_gradient(argument, others):
    arm, arm_times, force, force_times, targets = signals("cpu")

    def call():
        return rc.fuse([rc.Stream(arm, arm_times), *others(force, force_times)], targets)

    plain = assert_refused(call, "InvalidArgument", argument, op="fuse")
    arm.requires_grad_()
    seen = assert_refused(call, "InvalidArgument", argument, op="fuse")
    assert str(seen) == str(plain)


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


def test_vmap_can_be_in_a_graph(device):
    """Also where a gradient goes back through the graph."""
    call = signals(device)
    values, times, targets = call[0], call[1], call[4]
    maps = (made_within, lambda *call: made_within(*call)[0].sum())
    for mapped in maps:
        torch.compiler.reset()
        got = torch.compile(torch.func.vmap(mapped), backend="aot_eager", fullgraph=True)(*call)
        torch.testing.assert_close(
            got, torch.func.vmap(mapped)(*call), rtol=0, atol=0, equal_nan=True
        )
    for call in (rc.resample, lambda v, t, at: rc.fuse([rc.Stream(v, t), rc.Stream(v * 2, t)], at)):
        torch.compiler.reset()
        compiled = torch.compile(torch.func.vmap(call), backend="aot_eager", fullgraph=True)
        gradients = []
        for made in (compiled, call):
            leaf = values.detach().clone().requires_grad_()
            (made(leaf, times, targets) ** 2).sum().backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)


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
    assert_refused(tangent, "Unsupported", "streams[0].values", "forward-mode", op="fuse")


def test_warming_up_loads_the_gradients_too():
    arm, arm_times, force, force_times, targets = signals("cpu")
    streams = [rc.Stream(arm.requires_grad_(), arm_times), rc.Stream(force, force_times)]
    rc.warmup("fuse", streams, targets)
    assert rc.fuse(streams, targets).requires_grad


def test_a_stream_is_read_only_and_can_be_copied():
    stream = rc.Stream(torch.ones(4, 2), torch.arange(4.0), max_gap=0.5, name="arm")
    with pytest.raises(AttributeError):
        stream.values = None
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    copies = [pickle.loads(pickle.dumps(stream, protocol)) for protocol in protocols]
    for again in (*copies, copy.copy(stream), copy.deepcopy(stream)):
        assert type(again) is rc.Stream
        assert (again.name, again.max_gap, again.method, again.dim) == ("arm", 0.5, "linear", None)
        assert torch.equal(again.values, stream.values) and repr(again) == repr(stream)
    assert copy.copy(stream).values is stream.values
    assert rc.Stream.__module__ == "robocache"


class Camera(rc.Stream):
    """A stream with arguments and attributes of its own."""

    def __init__(self, count: int) -> None:
        super().__init__(torch.ones(count, 1), torch.arange(float(count)), method="previous")
        self.count = count


def test_a_stream_of_a_subclass_can_be_copied():
    camera = Camera(3)
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    copies = [pickle.loads(pickle.dumps(camera, protocol)) for protocol in protocols]
    for again in (*copies, copy.copy(camera)):
        assert type(again) is Camera and again.count == 3 and again.method == "previous"
        assert torch.equal(again.times, camera.times)


def test_streams_of_a_subclass():
    class Named(rc.Stream):
        pass

    arm, arm_times, *_, targets = signals("cpu")

    class Several(list):
        pass

    stream = Named(arm.requires_grad_(), arm_times)
    for streams in ([stream], (stream,), Several([stream])):
        assert rc.fuse(streams, targets).requires_grad

    class OwnSlot(rc.Stream):
        __slots__ = ("_parts",)

    own, plain = OwnSlot(arm.detach(), arm_times), rc.Stream(arm.detach(), arm_times)
    assert torch.equal(rc.fuse([own], targets), rc.fuse([plain], targets))
    hollow = Named.__new__(Named)
    assert_refused(
        lambda: rc.fuse([hollow], targets), "InvalidArgument", "streams", "Stream", op="fuse"
    )

    class Short(rc.Stream):
        _parts = (arm, arm_times)

    short = Short.__new__(Short)
    assert_refused(
        lambda: rc.fuse([short], targets), "InvalidArgument", "streams", "Stream", op="fuse"
    )


@pytest.mark.parametrize("name", ["times", "scale"])
def test_what_has_no_gradient_is_refused_with_its_stream(name):
    given = {"values": torch.ones(4, 2), "times": torch.arange(4.0), "name": "imu"}
    if name == "scale":
        given |= {"values": torch.ones(4, 2, dtype=torch.int8), "scale": torch.ones(2)}
    given[name].requires_grad_()
    streams, argument = [rc.Stream(**given)], f'streams["imu"].{name}'
    call = lambda: rc.fuse(streams, torch.arange(3.0))  # noqa: E731
    assert_refused(call, "Unsupported", argument, "values only", op="fuse")


@pytest.mark.parametrize("op", ["fuse", "resample"])
@pytest.mark.parametrize("functorch", [False, True])
def test_the_gradient_of_a_gradient_is_refused_by_its_op(op, functorch):
    arm, arm_times, _, _, targets = signals("cpu")

    def loss(values):
        if op == "fuse":
            out = rc.fuse([rc.Stream(values, arm_times), rc.Stream(None, dim=2)], targets)
        else:
            out = rc.resample(values, arm_times, targets)
        return out.square().sum()

    def call():
        if functorch:
            return torch.func.grad(lambda x: torch.func.grad(loss)(x).square().sum())(arm)
        values = arm.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(values), values, create_graph=True)
        return gradient.square().sum().backward()

    assert_refused(call, "Unsupported", None, "double backward", op=op)


def test_the_functions_themselves_can_be_compiled():
    arm, arm_times, _, _, targets = signals("cpu")
    streams = [rc.Stream(arm, arm_times), rc.Stream(None, dim=2)]
    compiled = [torch.compile(f, backend="eager", fullgraph=True) for f in (rc.resample, rc.fuse)]
    want = rc.resample(arm, arm_times, targets)
    for budget in (None, 1 << 20, 1 << 21, "1GiB"):
        assert torch.equal(compiled[0](arm, arm_times, targets, max_memory=budget), want)
    assert torch.equal(compiled[1](streams, targets), rc.fuse(streams, targets))
    dynamic = torch.compile(rc.fuse, backend="eager", fullgraph=True, dynamic=True)
    for dim in (2, 5):
        streams = [rc.Stream(arm, arm_times), rc.Stream(None, dim=dim)]
        assert torch.equal(dynamic(streams, targets), rc.fuse(streams, targets))


def test_where_all_streams_are_missing_the_targets_are_the_data():
    targets = torch.rand(3, 5, dtype=torch.float64)
    missing = [rc.Stream(None, dim=2), rc.Stream(None, dim=1)]
    found = torch.func.vmap(lambda a: rc.fuse(missing, a))(targets)
    assert found.shape == (3, 5, 3) and not found.any()
    with torch._subclasses.FakeTensorMode() as mode:
        assert rc.fuse(missing, mode.from_tensor(targets)).shape == (3, 5, 3)


def test_what_only_the_engine_does_ends_a_graph():
    """Arrays of others, and `out`: computed as ever, beside a graph. One that must be whole is refused."""
    arm, times, _, _, targets = signals("cpu")
    arrays = [x.numpy() for x in (arm, times, targets)]
    want, out = rc.resample(arm, times, targets), torch.empty(3, 11, 5, dtype=torch.float64)
    calls = {
        "arrays": (lambda: rc.resample(*arrays), np.ndarray),
        "streams of arrays": (lambda: rc.fuse([rc.Stream(*arrays[:2])], arrays[2]), np.ndarray),
        "by an older name": (lambda: rc.resample_trajectories(*arrays), np.ndarray),
        "out": (lambda: rc.resample(arm, times, targets, out=out), torch.Tensor),
        "fused out": (lambda: rc.fuse([rc.Stream(arm, times)], targets, out=out), torch.Tensor),
    }
    for name, (call, kind) in calls.items():
        torch.compiler.reset()
        result = torch.compile(call, backend="eager")()
        assert isinstance(result, kind), name
        np.testing.assert_array_equal(np.asarray(result), want.numpy(), err_msg=name)
        torch.compiler.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"robocache: "):
            torch.compile(call, backend="eager", fullgraph=True)()
    torch.compiler.reset()
    direct = torch.compile(rc.resample, backend="eager")(*arrays)
    assert isinstance(direct, np.ndarray)


def test_without_values_the_targets_decide_where_results_are():
    with FakeTensorMode():
        targets = torch.empty(2, 3, dtype=torch.float64, device="cuda")
        found = rc.fuse([rc.Stream(dim=3, scale=0.5)], targets, return_valid=True)
        assert all(x.device == targets.device for x in found)


def test_ranges_that_no_schema_holds_are_refused():
    arm, arm_times, _, _, targets = signals("cpu")
    stream = rc.Stream(arm.requires_grad_(), arm_times, method=[("linear", 0, 2**63)])
    call = lambda: rc.fuse([stream], targets)  # noqa: E731
    assert_refused(call, "InvalidArgument", "streams[0].method", "whole numbers", op="fuse")
