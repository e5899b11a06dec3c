"""Rotations from any representation to any other, against SciPy; gradients, and what torch does with the op."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import robocache as rc
import rotation_oracle as oracle
from agreement import LAYOUTS, scatter
from helpers import FLOATS, assert_same_bits, can_compile, dtype_of, on, to_numpy
from refusal import assert_refused
from robocache import _core
from rotation_oracle import ALL, OTHERS

convert = rc.rotation.convert
SOME = (*OTHERS, "euler_xyz", "euler_zyz", "euler_YXZ")
RANDOM, SPECIAL = oracle.random(0, 200), oracle.special()


def rows(name: str, seed: int = 1, count: int = 5, dtype=torch.float64) -> torch.Tensor:
    """Rotations that are no normal form: lengths and angles of any size."""
    rng = np.random.default_rng(seed)
    made = oracle.write(oracle.random(seed, count), name)
    if name in ("quat_xyzw", "quat_wxyz"):
        made = made * rng.uniform(-3, 3, (count, 1))
    if name.startswith("rot6d"):
        made = made * rng.uniform(0.5, 2, (count, 1)) + rng.normal(size=made.shape) * 0.1
    if name.startswith("euler"):
        made = rng.uniform(-6, 6, made.shape)
    return torch.from_numpy(made).to(dtype)


# -- numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ALL)
def test_every_pair_is_scipys(source):
    for rotations, tolerance in ((RANDOM, 2e-13), (SPECIAL, 5e-7)):
        x = oracle.write(rotations, source)
        same = oracle.read(x, source)
        for target in ALL:
            got, want = convert(x, source, target), oracle.write(same, target)
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            context = f"{source} to {target}"
            near = oracle.apart(got, same, target)
            if target.startswith("euler"):
                # Where angles lock, both take less than 1e-7 for nothing.
                room = oracle.room_of(want, target)
                assert near[room > 1e-6].max() <= 2e-14, context
                assert near.max() <= 3e-7, context
                good, slack = room > 1e-4, 1e-15 / np.maximum(room, 1e-4)
                off = oracle.difference(got, want, target)
                assert (off <= 2e-13 + 40 * slack)[good].all(), context
                assert (oracle.room_of(got, target) >= -1e-15).all(), context
                assert (np.abs(got) <= np.pi).all(), context
            else:
                assert near.max() <= tolerance, context
                if not source.startswith("euler"):
                    assert near.max() <= 2e-14, context
                assert oracle.difference(got, want, target).max() <= 1e-12, context


@pytest.mark.parametrize("name", [n for n in ALL if n.startswith("euler")])
def test_locked_angles_are_scipys(name):
    """The third is 0 there; the sum is the same."""
    symmetric = name[6].lower() == name[8].lower()
    for middle in (0.0, np.pi) if symmetric else (-np.pi / 2, np.pi / 2):
        angles = np.array([[0.3, middle, -0.7], [2.0, middle, 1.5], [0.0, middle, 0.0]])
        got = convert(convert(angles, name, "matrix"), "matrix", name)
        want = oracle.write(oracle.read(angles, name), name)
        assert (got[:, 2] == 0).all() and (want[:, 2] == 0).all()
        assert oracle.difference(got, want, name).max() <= 1e-7


def test_results_are_in_normal_form():
    for source in ALL:
        for count, rotations in enumerate((RANDOM, SPECIAL)):
            x = oracle.write(rotations, source)
            quat = convert(x, source, "quat_xyzw")
            assert (quat[:, 3] >= 0).all() and np.abs(
                np.linalg.norm(quat, axis=1) - 1
            ).max() < 1e-15
            np.testing.assert_array_equal(convert(x, source, "quat_wxyz"), np.roll(quat, 1, axis=1))
            vector = convert(x, source, "axis_angle")
            assert np.linalg.norm(vector, axis=1).max() <= np.pi * (1 + 1e-15), (source, count)
            six = convert(rows(source).numpy(), source, "rot6d")
            six = six.reshape(-1, 2, 3)
            if source != "matrix":
                np.testing.assert_allclose(
                    six @ six.swapaxes(1, 2), [np.eye(2)] * len(six), atol=1e-15
                )


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1e-7, 1e-4, 1e-2, 0.06, 0.0625, 0.07, 3.14159])
def test_angles_lose_no_digits(size):
    vector = np.array([[size, 0, 0], [0.6 * size, 0, -0.8 * size]])
    for dtype, tolerance in (("float64", 4e-15), ("float32", 1e-6)):
        given = vector.astype(dtype)
        if given[0, 0] == 0:
            continue
        for way in ("quat_xyzw", "axis_angle", *(["matrix"] if 1e-4 < size < 3 else [])):
            there = convert(given, "axis_angle", way)
            back = convert(there, way, "axis_angle")
            loose = 1 if way != "matrix" else 1 / size
            np.testing.assert_allclose(back, given, rtol=tolerance * loose, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(dtype, device):
    """Halves compute in float32: they are as near to float64 as one rounding allows."""
    step = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-13}[dtype]
    for source in ALL:
        x = oracle.write(RANDOM, source).astype(dtype_of(dtype))
        for target in SOME:
            got = to_numpy(convert(on(device)(x), source, target))
            want = convert(x.astype(np.float64), source, target)
            assert got.dtype == x.dtype
            off = oracle.difference(got.astype(np.float64), want, target)
            if target.startswith("euler"):
                off = off * np.minimum(1, oracle.room_of(want, target))
            # Near a half turn an axis may point the other way.
            most = 4 * step * (4 if target == "axis_angle" or "euler" in target + source else 1)
            assert (off <= most).mean() > 0.98, (source, target, off.max())


@pytest.mark.parametrize("dtype", FLOATS)
def test_views_equal_copies(dtype, device):
    rng = np.random.default_rng(3)
    for source in SOME:
        x = rows(source, count=700).to(getattr(torch, dtype))
        for target in SOME:
            want = convert(x, source, target)
            for layout in LAYOUTS:
                got = convert(scatter(x, layout, rng).to(device), source, target)
                assert_same_bits(got, want, f"{source} {target} {layout}")


def test_a_part_of_wider_rows(device):
    poses = torch.randn(3, 50, 7, device=device)
    got = convert(poses[..., 3:], "quat_xyzw", "rot6d")
    assert_same_bits(got, convert(poses[..., 3:].contiguous(), "quat_xyzw", "rot6d"))
    assert got.shape == (3, 50, 6)


# -- shapes and kinds of arguments ------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3), (2, 1, 3, 2), (0,), (0, 4), (3, 0, 2)])
def test_leading_axes(lead, device):
    for source, target in (("quat_xyzw", "matrix"), ("matrix", "rot6d"), ("rot6d", "euler_xyz")):
        count = int(np.prod(lead))
        x = rows(source, count=max(count, 1))[:count].to(device)
        shaped = x.reshape(*lead, *x.shape[1:])
        got = convert(shaped, source, target)
        want = convert(x, source, target)
        assert_same_bits(got, want.reshape(*lead, *want.shape[1:]))


def test_frameworks():
    want = convert(np.array([[0.0, 0.0, 3.0, 4.0]]), "quat_xyzw", "rot6d")
    assert isinstance(want, np.ndarray)
    for given in ([[0.0, 0.0, 3.0, 4.0]], ((0.0, 0.0, 3.0, 4.0),)):
        assert_same_bits(convert(given, "quat_xyzw", "rot6d"), want)
    nested = convert([[[0.0, 0.0, 3.0, 4.0]]], "quat_xyzw", "rot6d")
    assert_same_bits(nested, want[None])
    jnp = pytest.importorskip("jax.numpy")
    got = convert(jnp.array([[[0.0, 0.0, 3.0, 4.0]]]), "quat_xyzw", "rot6d")
    assert not isinstance(got, np.ndarray) and got.shape == (1, 1, 6)


def test_nan_stays_in_its_row(device):
    for source in SOME:
        x = rows(source, count=300)
        bad = x.clone().to(device)
        bad.view(300, -1)[7, -1] = torch.nan
        if source.startswith("quat"):
            bad[9] = 0
        for target in SOME:
            got, want = convert(bad, source, target).cpu(), convert(x, source, target)
            rest = [row for row in range(300) if row not in (7, 9)]
            assert_same_bits(got[rest], want[rest])
            if source != "matrix" or target not in ("matrix", "rot6d", "rot6d_rows"):
                assert got[7].isnan().all()
            if source.startswith("quat"):
                assert got[9].isnan().all()


def test_the_list_of_representations():
    assert set(rc.rotation.REPRESENTATIONS) == set(ALL)
    assert {
        name: len(shape) for name, shape in _core.ROTATIONS.items() if len(shape) > 1
    } == oracle.AXES


@pytest.mark.parametrize("seen", [False, True], ids=["engine", "torch"])
@pytest.mark.parametrize(
    ("argument", "source", "target", "told"),
    [
        ("source", "quat_xyz", "matrix", "quat_xyz.*did you mean.*quat_xyzw"),
        ("target", "matrix", "rot6", "did you mean.*rot6d"),
        ("target", "matrix", "euler_xxy", "quat_xyzw.*euler_xxy"),
        ("source", "euler_xYz", "matrix", "euler_xYz"),
        ("source", None, "matrix", "NoneType"),
        ("target", "matrix", 3, "int"),
        ("target", "matrix", "\ud800", "expected"),
    ],
    ids=ascii,
)
def test_names(argument, source, target, told, seen):
    x = torch.eye(3).requires_grad_(seen)
    call = lambda: convert(x, source, target)  # noqa: E731
    assert_refused(call, "InvalidArgument", argument, told, op="rotation.convert")


# -- gradients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ALL)
def test_gradcheck(source):
    """Of angles whose middle one is not near where the others lock."""
    for target in ALL:
        x = rows(source, seed=2, count=60)
        if target.startswith("euler"):
            found = convert(x, source, target).numpy()
            edges = np.abs(found[:, [0, 2]]).max(axis=1) < 3
            x = x[torch.from_numpy((oracle.room_of(found, target) > 0.3) & edges)]
        x = x[convert(x, source, "quat_xyzw")[:, 3] > 0.05][:2]
        assert len(x) == 2
        call = lambda x, target=target: convert(x, source, target)  # noqa: E731
        assert torch.autograd.gradcheck(call, x.requires_grad_(), raise_exception=True)


def jacobian(x: torch.Tensor, source: str, target: str) -> torch.Tensor:
    return torch.func.jacrev(lambda x: convert(x, source, target))(x)


def test_gradients_at_the_identity():
    zero = torch.zeros(3, dtype=torch.float64)
    generators = torch.tensor(
        [[0, 0, 0, 0, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 0, -1, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0, 0]]
    )
    want = generators.double().T.reshape(3, 3, 3)
    torch.testing.assert_close(jacobian(zero, "axis_angle", "matrix"), want)
    torch.testing.assert_close(jacobian(zero, "axis_angle", "euler_xyz"), torch.eye(3).double())
    for source in ALL:
        x = torch.from_numpy(oracle.write(oracle.Rotation.identity(), source))
        back = jacobian(x, source, "axis_angle")
        for target in ALL:
            assert jacobian(x, source, target).isfinite().all(), (source, target)
        if source not in ("axis_angle",) and not oracle.Rotation.identity().as_euler("xyz").any():
            there = jacobian(zero, "axis_angle", source)
            if not source.startswith("euler") or source[6].lower() != source[8].lower():
                product = torch.tensordot(back, there, dims=x.dim())
                torch.testing.assert_close(product, torch.eye(3).double(), msg=source)


@pytest.mark.parametrize("angle", [1e-9, 1e-3, 0.0312, 0.0313, np.pi - 1e-3, np.pi])
def test_gradients_of_small_and_large_angles(angle):
    """Of the rotation itself, by SciPy's matrices."""
    axis = np.array([0.36, -0.48, 0.8])
    x, step = torch.from_numpy(axis * angle), 1e-5
    got = jacobian(x, "axis_angle", "matrix").numpy()
    for i in range(3):
        moved = [
            oracle.read(axis * angle + s * np.eye(3)[i], "axis_angle").as_matrix()
            for s in (step, -step)
        ]
        np.testing.assert_allclose(got[..., i], (moved[0] - moved[1]) / (2 * step), atol=1e-9)
    matrix = torch.from_numpy(oracle.read(axis * angle, "axis_angle").as_matrix())
    back = jacobian(matrix, "matrix", "axis_angle")
    product = torch.tensordot(back, torch.from_numpy(got), dims=2).numpy()
    sign = np.sign(convert(matrix, "matrix", "axis_angle").numpy() @ axis)
    np.testing.assert_allclose(sign * product if angle == np.pi else product, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_of_narrow_dtypes(dtype, device):
    kind = getattr(torch, dtype)
    near = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4}[dtype]
    for source, target in (
        ("quat_xyzw", "rot6d"),
        ("rot6d", "axis_angle"),
        ("matrix", "quat_wxyz"),
    ):
        x = rows(source, count=20).to(kind).to(device).requires_grad_()
        out = convert(x, source, target)
        grad = torch.linspace(-1, 1, out.numel(), device=device).reshape(out.shape).to(kind)
        out.backward(grad)
        wide = x.detach().double().cpu().requires_grad_()
        convert(wide, source, target).backward(grad.double().cpu())
        assert x.grad.dtype == kind
        torch.testing.assert_close(x.grad.double().cpu(), wide.grad, rtol=near, atol=near)


def test_a_gradient_through_other_axes_and_steps(device):
    x = torch.randn(2, 5, 7, dtype=torch.float64, device=device, requires_grad=True)
    quat = x[..., 3:].transpose(0, 1)
    convert(quat, "quat_xyzw", "rot6d").square().mul(
        torch.arange(6.0, device=device)
    ).sum().backward()
    other = x.detach()[..., 3:].reshape(10, 4).requires_grad_()
    convert(other, "quat_xyzw", "rot6d").square().mul(
        torch.arange(6.0, device=device)
    ).sum().backward()
    torch.testing.assert_close(x.grad[..., 3:].reshape(10, 4), other.grad)
    assert not x.grad[..., :3].any()


def test_there_is_no_second_gradient():
    x = rows("rot6d").requires_grad_()
    (first,) = torch.autograd.grad(convert(x, "rot6d", "matrix").sum(), x, create_graph=True)
    refused = lambda: first.sum().backward()  # noqa: E731
    assert_refused(refused, "Unsupported", None, "double backward", op="rotation.convert")


# -- torch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(grad, device):
    convert(rows("matrix").requires_grad_(), "matrix", "rot6d")  # registers
    ops = torch.ops.robocache
    for source, target in (
        ("quat_xyzw", "matrix"),
        ("matrix", "axis_angle"),
        ("rot6d", "euler_zyx"),
    ):
        for x in (rows(source).to(device), rows(source)[0].to(device)):
            given = x.requires_grad_(grad), source, target, None, None, None
            torch.library.opcheck(ops.rotation_convert.default, given)
            back = x.detach(), convert(x.detach(), source, target), source, target
            torch.library.opcheck(ops.rotation_backward.default, back)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_whole_with_its_gradient(backend, device):
    if backend == "inductor" and not can_compile(device):
        pytest.skip("inductor finds no compiler here")

    def call(x):
        return convert(convert(x * 2, "quat_xyzw", "matrix"), "matrix", "rot6d") + 1

    compiled = torch.compile(call, fullgraph=True, backend=backend)
    for shape in ((4,), (5, 4), (2, 3, 4)):
        x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        grads = []
        for way in (call, compiled):
            out = way(x)
            grads.append((out.detach(), *torch.autograd.grad(out.square().sum(), x)))
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_once_for_all_sizes():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(
        lambda x: convert(x, "quat_xyzw", "euler_xyz"),
        fullgraph=True,
        dynamic=True,
        backend=backend,
    )
    for lead in ((6, 40), (5, 90), (2, 31)):
        x = torch.randn(*lead, 4)
        assert_same_bits(compiled(x), convert(x, "quat_xyzw", "euler_xyz"))
    assert len(graphs) == 1


@pytest.mark.usefixtures("fresh_compiler")
def test_names_in_a_compiled_function():
    compiled = torch.compile(
        lambda x: convert(x, "quat", "matrix"), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match="quat"):
        compiled(torch.randn(3, 4))


def test_vmap_is_a_batch(device):
    for source, target in (
        ("quat_xyzw", "matrix"),
        ("matrix", "rot6d"),
        ("axis_angle", "euler_xyz"),
    ):
        x = rows(source, count=12).to(device)
        want = convert(x, source, target)
        call = lambda x, s=source, t=target: convert(x, s, t)  # noqa: E731
        assert_same_bits(torch.func.vmap(call)(x), want)
        shaped = x.reshape(3, 4, *x.shape[1:])
        assert_same_bits(torch.func.vmap(call)(shaped).reshape(want.shape), want)
        nested = torch.func.vmap(torch.func.vmap(call))(shaped)
        assert_same_bits(nested.reshape(want.shape), want)
        deep = torch.func.vmap(call, in_dims=1)(x.reshape(2, 3, 2, *x.shape[1:]))
        swapped = want.reshape(2, 3, 2, *want.shape[1:]).transpose(0, 1)
        assert_same_bits(deep, swapped)


def test_functorch_gradients(device):
    for source, target in (("quat_xyzw", "rot6d"), ("matrix", "axis_angle"), ("rot6d", "matrix")):
        x = rows(source, count=4).to(device)
        loss = lambda x, s=source, t=target: convert(x, s, t).square().sum() + x.sum()  # noqa: E731
        leaf = x.clone().requires_grad_()
        (want,) = torch.autograd.grad(loss(leaf), leaf)
        assert_same_bits(torch.func.grad(loss)(x), want)
        assert_same_bits(torch.func.vmap(torch.func.grad(loss))(x), want)
        each = torch.func.vmap(torch.func.jacrev(lambda x, s=source, t=target: convert(x, s, t)))(x)
        for row in range(4):
            call = lambda x, s=source, t=target: convert(x, s, t)  # noqa: E731
            by_rows = torch.autograd.functional.jacobian(call, x[row])
            torch.testing.assert_close(each[row], by_rows)


def test_a_plain_call_registers_nothing():
    code = (
        "import sys, torch, robocache as rc\n"
        "rc.rotation.convert(torch.eye(3), 'matrix', 'rot6d')\n"
        "print('robocache._torch_ops' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_warmup_knows_it(device):
    x = torch.randn(2, 3, 4, device=device)
    assert rc.warmup("rotation.convert", x, "quat_xyzw", "rot6d") is None
    assert rc.warmup("rotation.convert", x.requires_grad_(), "quat_xyzw", "rot6d") is None
    refused = lambda: rc.warmup("rotation", x, "quat_xyzw", "rot6d")  # noqa: E731
    assert_refused(refused, "InvalidArgument", "op", "rotation.convert", op="warmup")
