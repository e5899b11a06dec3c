"""`resample` inside torch: opcheck, torch.compile, vmap, modes, subclasses, several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import robocache as rc
from gradient_cases import OTHERS, random_call
from helpers import can_compile, run_python, scaled
from refusal import assert_refused
from robocache._torch_align import read_resample
from robocache._torch_arguments import as_method

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("fresh_compiler")


def inputs(device: str, batch: int = 3, samples: int = 20, steps: int = 11, width: int = 4):
    generator = torch.Generator().manual_seed(samples)
    values = torch.randn(batch, samples, width, generator=generator)
    times = torch.cumsum(torch.rand(batch, samples, generator=generator) + 0.1, 1)
    targets = torch.rand(batch, steps, generator=generator) * times[:, -1:]
    return tuple(x.to(device) for x in (values, times, targets))


STORED = [torch.float8_e4m3fn, torch.float8_e5m2]


# -- the registration ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["linear", "nearest", *OTHERS])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(method, requires_grad, device):
    rc.resample(torch.zeros(2, 1, requires_grad=True), [0, 1], [0])  # registers the ops
    for seed in range(scaled(2)):
        call = random_call(seed, method, dtype=torch.float32, nan=False).on(device)
        call.values.requires_grad_(requires_grad)
        for flags in ({}, {"return_valid": True}):
            given = read_resample(call.values, call.times, call.targets, **call.options, **flags)
            torch.library.opcheck(torch.ops.robocache.resample.default, given)
        grad = torch.randn_like(call.run(call.values)).detach()
        kept = call.values.detach() if method in ("cubic", "slerp", "rot6d") else None
        lengths = call.options.get("lengths"), call.options.get("target_lengths")
        options = as_method("method", method, "resample"), call.options["extrapolate"], True
        shape = list(call.values.shape)
        backward = (grad, kept, call.times, call.targets, *lengths, shape, *options, "resample")
        torch.library.opcheck(torch.ops.robocache.resample_backward.default, backward)


@pytest.mark.parametrize("dtype", STORED)
def test_opcheck_of_what_only_stores_numbers(dtype, device):
    rc.resample(torch.zeros(2, 1, requires_grad=True), [0, 1], [0])  # registers the ops
    values, times, targets = inputs(device)
    for scale in (None, torch.tensor(0.5)):
        for out_dtype in (None, torch.float16):
            options = {"scale": scale, "max_gap": 0.5, "out_dtype": out_dtype}
            arguments = read_resample(
                values.to(dtype), times, targets, return_valid=True, **options
            )
            # torch's look at the schema multiplies, which it cannot in these dtypes.
            utils = ("test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic")
            op = torch.ops.robocache.resample.default
            torch.library.opcheck(op, arguments, test_utils=utils)


@pytest.mark.parametrize(
    "name", ["resample", "fuse", "transform_points", "unproject", "farthest_points"]
)
def test_signature_and_help_are_those_of_the_engine(name):
    import inspect
    import pickle

    public, engine = getattr(rc, name), getattr(rc._core, name)
    if name in ("resample", "fuse"):  # which do not ask the engine for it
        assert inspect.signature(public) == inspect.signature(engine)
    assert public.__doc__ == engine.__doc__ and "Args:" in public.__doc__
    assert (public.__module__, public.__qualname__, public.__name__) == ("robocache", name, name)
    assert pickle.loads(pickle.dumps(public)) is public


def test_a_call_that_fails_below_torch_leaves_the_next_to_be_seen():
    """Below torch the engine asks for no gradients; an error there must not leave it so."""
    values, times, targets = (x.double() for x in inputs("cpu"))
    values.requires_grad_()
    with pytest.raises(rc.InvalidArgument, match="decreas"):
        rc.resample(values, times.flip(-1), targets)
    assert rc.resample(values, times, targets).requires_grad
    # A panic leaves by another way than errors do.
    panic = next(x for x in BaseException.__subclasses__() if x.__name__ == "PanicException")

    def fail() -> None:
        raise panic("on purpose")

    with pytest.raises(panic, match="on purpose"):
        rc._core.below_torch(fail)
    assert rc.resample(values, times, targets).requires_grad


# -- torch.compile ------------------------------------------------------------------------------


def blend(values, times, targets):
    out, valid = rc.resample(values * 2, times, targets, max_gap=1.0, return_valid=True)
    return torch.where(valid.unsqueeze(-1), out + 1, 0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_compiled_without_a_graph_break(backend, requires_grad, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")
    values, times, targets = inputs(device)
    values.requires_grad_(requires_grad)
    compiled = torch.compile(blend, fullgraph=True, backend=backend)
    got, want = compiled(values, times, targets), blend(values, times, targets)
    assert torch.equal(got, want)
    if requires_grad:
        (mine,) = torch.autograd.grad(got.square().sum(), values)
        (theirs,) = torch.autograd.grad(want.square().sum(), values)
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", STORED)
def test_compiled_with_what_only_stores_numbers(backend, dtype, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")

    def call(values, times, targets):
        return rc.resample(values, times, targets) + 1

    values, times, targets = inputs(device)
    values = values.to(dtype)
    got = torch.compile(call, fullgraph=True, backend=backend)(values, times, targets)
    assert got.dtype == torch.float32 and torch.equal(got, call(values, times, targets))


def test_compiled_once_for_all_sizes():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(blend, fullgraph=True, dynamic=True, backend=backend)
    for batch, samples, steps in ((3, 20, 11), (5, 9, 30), (2, 40, 7)):
        call = inputs("cpu", batch, samples, steps)
        assert torch.equal(compiled(*call), blend(*call))
    assert len(graphs) == 1
    called = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert "robocache.resample" in " ".join(called), called


def test_compiled_with_lists_and_column_ranges():
    def call(values):
        ranges = [("linear", 0, 1), ("slerp", 1, 5), ("previous", 5, 6)]
        return rc.resample(values, [0.0, 1.0, 2.0], np.array([0.5, 1.5]), method=ranges)

    values = torch.arange(18.0, dtype=torch.float64).view(3, 6)
    assert torch.equal(torch.compile(call, fullgraph=True, backend="eager")(values), call(values))


ORDER = """
import sys
import robocache as rc
assert "torch" not in sys.modules and "numpy" not in sys.modules
import torch
def call(values, times):
    return rc.resample(values, times, times + 0.5)
values, times = torch.randn(2, 4, 3), torch.arange(4.0)
got = torch.compile(call, fullgraph=True, backend="eager")(values, times)
assert torch.equal(got, call(values, times))
print("fine")
"""


def test_the_first_call_may_be_a_compiled_one_and_torch_may_come_last():
    done = subprocess.run(
        [sys.executable, "-c", ORDER], capture_output=True, text=True, timeout=170, check=False
    )
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


def test_a_plain_call_registers_nothing():
    """The ops and what registers them are loaded when torch needs them."""
    code = (
        "import sys, torch, robocache as rc\n"
        "rc.resample(torch.zeros(2, 1), torch.arange(2), torch.arange(2))\n"
        "print('robocache._torch_ops' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_export():
    class Model(torch.nn.Module):
        def forward(self, values, times, targets):
            return rc.resample(values, times, targets) + 1

    call = inputs("cpu")
    exported = torch.export.export(Model(), call)
    assert torch.equal(exported.module()(*call), Model()(*call))


# -- functorch ----------------------------------------------------------------------------------


def test_vmap_is_a_batch(device):
    values, times, targets = inputs(device)
    want = rc.resample(values, times, targets)
    assert torch.equal(torch.func.vmap(rc.resample)(values, times, targets), want)
    # Over one argument; over another axis; what is not mapped over is shared.
    alone = torch.func.vmap(rc.resample, in_dims=(0, None, None))(values, times[0], targets[0])
    assert torch.equal(alone, rc.resample(values, times[0], targets[0]))
    last = torch.func.vmap(rc.resample, in_dims=(2, None, 1))(
        values.permute(1, 2, 0), times[0], targets.T
    )
    assert torch.equal(last, rc.resample(values, times[0], targets))
    times_only = torch.func.vmap(rc.resample, in_dims=(None, 0, None))(values[0], times, targets[0])
    assert torch.equal(times_only, rc.resample(values[0], times, targets[0]))


def test_vmap_over_calls_that_have_a_batch(device):
    values, times, targets = inputs(device, batch=6)
    lengths = torch.tensor([20, 3, 0, 20, 7, 1], device=device)
    want, valid = rc.resample(values, times, targets, lengths=lengths, return_valid=True)

    def call(values, times, lengths):
        return rc.resample(values, times, targets[:2], lengths=lengths, return_valid=True)

    shaped = values.view(3, 2, 20, 4), times.view(3, 2, 20), lengths.view(3, 2)
    got = torch.func.vmap(call)(*shaped)
    for row in range(3):
        one = call(*(x[row] for x in shaped))
        torch.testing.assert_close(got[0][row], one[0], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got[1][row], one[1])
    assert want.shape[1:] == got[0].shape[2:] and valid.shape == (6, 11)
    # Shared values inside, nested maps.
    inside = torch.func.vmap(lambda v: rc.resample(v, times, targets))(
        values[:2, 0:1].expand(2, 20, 4)
    )
    assert inside.shape == (2, 6, 11, 4)
    nested = torch.func.vmap(torch.func.vmap(rc.resample))(
        values.view(3, 2, 20, 4), times.view(3, 2, 20), targets.view(3, 2, 11)
    )
    assert torch.equal(nested.reshape(6, 11, 4), rc.resample(values, times, targets))


def test_gradients_of_every_example_at_once(device):
    values, times, targets = (x.double() for x in inputs(device))

    def loss(values, times, targets):
        return rc.resample(values, times, targets).square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(values, times, targets)
    for row in range(3):
        own = torch.func.grad(loss)(values[row], times[row], targets[row])
        assert torch.equal(each[row], own)
    shared = torch.func.vmap(torch.func.grad(loss), in_dims=(None, None, 0))(
        values[0], times[0], targets
    )
    assert torch.equal(shared[1], torch.func.grad(loss)(values[0], times[0], targets[1]))
    # A call with a batch that shares its values, mapped.
    rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, None))(
        values[0], times, targets
    )
    for row in range(3):
        own = torch.func.grad(loss)(values[0], times[row], targets)
        torch.testing.assert_close(rows[row], own, rtol=1e-14, atol=1e-14)


def test_forward_mode_is_refused():
    values, times, _ = inputs("cpu")

    def call(values):
        return rc.resample(values, times, times)

    def tangent():
        return torch.func.jvp(call, (values,), (values,))

    assert_refused(tangent, "Unsupported", "values", "forward-mode")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values.requires_grad_(), values.detach())
        assert_refused(lambda: call(dual), "Unsupported", "values", "forward-mode")


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", STORED)
def test_a_gradient_in_what_only_stores_numbers_is_refused_at_the_call(dtype):
    values, times, targets = inputs("cpu")
    values = values.to(dtype)
    leaf = values.clone().requires_grad_()

    def loss(values):
        return rc.resample(values, times, targets).sum()

    def mapped(values):
        return torch.func.vmap(rc.resample)(values, times, targets).sum()

    calls = {
        "call": lambda: loss(leaf),
        "grad": lambda: torch.func.grad(loss)(values),
        "grad of vmap": lambda: torch.func.grad(mapped)(values),
        "compile": lambda: torch.compile(loss, backend="eager")(leaf),
        "warmup": lambda: rc.warmup("resample", leaf, times, targets),
    }
    for call in calls.values():
        assert_refused(call, "Unsupported", "values", "holds no gradients")
    with torch.no_grad():
        assert torch.equal(loss(leaf), loss(values))


WRONG = [
    {"max_gap": "a"},
    {"max_gap": [1]},
    {"max_gap": float("nan")},
    {"max_gap": -1},
    {"max_gap": 10**400},
    {"max_gap": torch.ones(2)},
    {"method": 3},
    {"method": []},
    {"method": [("linear", 0)]},
    {"method": [("linear", 0, 1), ("nearest", 1.0, 4)]},
    {"method": [("linear", -1, 4)]},
    {"method": [(3, 0, 4)]},
    {"method": "other"},
    {"extrapolate": 3},
    {"extrapolate": "other"},
    {"scale": "a"},
    {"scale": object()},
    {"lengths": {}},
    {"lengths": [1, [2]]},
    {"times": "a"},
    {"targets": object()},
]


def _name(wrong: dict) -> str:
    """The same in every process: an object tells where it lies."""
    return str(wrong).split(" object at ")[0]


@pytest.mark.parametrize("wrong", WRONG, ids=_name)
def test_a_wrong_argument_is_refused_alike_with_a_gradient(wrong):
    values, times, targets = inputs("cpu")
    given = {"times": times, "targets": targets, **wrong}
    (argument,) = wrong
    plain = assert_refused(lambda: rc.resample(values, **given), "InvalidArgument", argument)
    values.requires_grad_()
    seen = assert_refused(lambda: rc.resample(values, **given), "InvalidArgument", argument)
    assert str(seen) == str(plain)


@pytest.mark.parametrize("method", ["", "linear:0:4", [("a,b", 0, 4)], [("a:0:1", 0, 4)]])
def test_a_name_is_not_mistaken_for_ranges(method):
    values, times, targets = inputs("cpu")
    for leaf in (values, values.clone().requires_grad_()):
        call = lambda: rc.resample(leaf, times, targets, method=method)  # noqa: B023, E731
        assert_refused(call, "InvalidArgument", "method", "linear")


@pytest.mark.parametrize(
    "option",
    [
        {"method": None},
        {"extrapolate": None},
        {"max_gap": float("inf")},
        {"max_gap": torch.tensor(0.5)},
        {"max_gap": np.float32(0.5)},
        {"method": [("linear", np.int64(0), 4)]},
    ],
    ids=str,
)
def test_what_works_without_a_gradient_works_with_one(option):
    values, times, targets = inputs("cpu")
    want, valid = rc.resample(values, times, targets, return_valid=True, **option)
    values.requires_grad_()
    got, got_valid = rc.resample(values, times, targets, return_valid=True, **option)
    assert got.requires_grad and torch.equal(got, want) and torch.equal(got_valid, valid)


# -- modes and subclasses -----------------------------------------------------------------------


def test_a_dispatch_mode_sees_the_call():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            seen.append(str(function))
            return function(*arguments, **(options or {}))

    call = inputs("cpu")
    with Watch():
        got = rc.resample(*call)
    assert any("robocache.resample" in name for name in seen), seen
    assert torch.equal(got, rc.resample(*call))


def test_fake_tensors_have_the_right_shape():
    with FakeTensorMode() as mode:
        values, times, targets = (mode.from_tensor(x) for x in inputs("cpu"))
        out, valid = rc.resample(values, times[0], targets, return_valid=True)
        assert out.shape == (3, 11, 4) and valid.shape == (3, 11) and valid.dtype == torch.bool
        assert rc.resample(values[0], times[0], targets[0]).shape == (11, 4)
        assert_refused(
            lambda: rc.resample(values, times[:2], targets),
            "InvalidArgument",
            "times",
            "batch of 2",
        )


def test_traced_by_make_fx():
    call = inputs("cpu")
    traced = make_fx(lambda *x: rc.resample(*x) + 1)(*call)
    assert "robocache" in traced.code
    other = tuple(x * 0.5 for x in call)
    assert torch.equal(traced(*other), rc.resample(*other) + 1)


def test_a_subclass_stays_one():
    class Named(torch.Tensor):
        pass

    values, times, targets = inputs("cpu")
    out = rc.resample(values.as_subclass(Named), times, targets)
    assert type(out) is Named and torch.equal(
        out.as_subclass(torch.Tensor), rc.resample(values, times, targets)
    )


def test_checkpointing_computes_the_call_again():
    from torch.utils.checkpoint import checkpoint

    values, times, targets = inputs("cpu")
    values.requires_grad_()
    plain = rc.resample(values, times, targets).square().sum()
    (want,) = torch.autograd.grad(plain, values)
    again = checkpoint(rc.resample, values, times, targets, use_reentrant=False).square().sum()
    (got,) = torch.autograd.grad(again, values)
    assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_autocast_leaves_dtypes_alone(device):
    values, times, targets = inputs(device)
    values.requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        out = rc.resample(values, times, targets)
    assert out.dtype == torch.float32


# -- several processes --------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_train_as_one():
    done = run_python(str(HERE / "ddp_child.py"), timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal"
