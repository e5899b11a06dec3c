"""Robots: poses, Jacobians, gradients and the way back to joints, against independent computations."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch

import robocache as rc
from helpers import can_compile, on, to_numpy
from robots import (
    SHARED,
    TREES,
    Reference,
    as_matrix,
    between,
    dh_pose,
    panda,
    random_urdf,
    reach_of,
)
from test_golden import GOLDEN

TREE = random_urdf(5, 8)
FLOATS = ("float32", "float64")


@pytest.fixture(params=["panda.urdf", "ur5_robot.urdf"])
def sample(request) -> str:
    path = SHARED / request.param
    if not path.is_file():
        pytest.skip(f"no {request.param}: the folder of sample data is absent")
    return path.read_text()


# -- poses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "joints"), TREES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_links_of_trees_are_where_matrices_say(device, seed, joints, dtype):
    text = random_urdf(seed, joints)
    robot, reference = rc.Robot.from_urdf(text), Reference(text)
    rng = np.random.default_rng(seed)
    q = rng.uniform(-3, 3, (7, robot.num_joints)).astype(dtype)
    poses = to_numpy(robot.fk(on(device)(q), robot.link_names)).astype("f8")
    assert poses.shape == (7, len(robot.link_names), 7)
    bound = {"float64": 1e-12, "float32": 1e-6}[dtype] * (1 + reach_of(text))
    for row in range(7):
        known = reference.poses(dict(zip(robot.joint_names, q[row].astype("f8"), strict=True)))
        want = np.array([known[link] for link in robot.link_names])
        assert np.abs(as_matrix(poses[row]) - want).max() <= bound
    assert (poses[..., 6] >= 0).all()


@pytest.mark.parametrize("convention", ["standard", "modified"])
def test_dh_parameters_are_the_textbooks(convention):
    rng = np.random.default_rng(0)
    rows = [tuple(rng.uniform(-1, 1, 4)) for _ in range(5)]
    robot = rc.Robot.from_dh(rows, convention)
    q = rng.uniform(-3, 3, 5)
    assert robot.tip == "link5" and robot.num_joints == 5 and np.isinf(robot.limits).all()
    assert np.abs(as_matrix(robot.fk(q)) - dh_pose(rows, q, convention)).max() < 1e-13
    sliding = rc.Robot.from_dh([(*rows[0], "prismatic")], convention)
    moved = [(rows[0][0], rows[0][1], rows[0][2] + 0.3, rows[0][3])]
    want = dh_pose(moved, [0], convention)
    assert np.abs(as_matrix(sliding.fk(np.array([0.3]))) - want).max() < 1e-13


def pinocchio_poses(text: str, q: np.ndarray, names: list[str], links: list[str]):
    """Poses and Jacobians by Pinocchio, whose joints are all independent."""
    pin = pytest.importorskip("pinocchio")
    model = pin.buildModelFromXML(text)
    data, reference = model.createData(), Reference(text)
    by_name = {joint.get("name"): joint for joint in reference.joints}
    poses, jacobians = [], []
    for row in q:
        known = dict(zip(names, row, strict=True))
        config, factors = pin.neutral(model), np.zeros((model.nv, len(names)))
        for place in range(1, model.njoints):
            name, joint = model.names[place], model.joints[place]
            position = reference.position(by_name[name], known)
            for column, other in enumerate(names):
                step = {**known, other: known[other] + 1.0}
                factors[joint.idx_v, column] = reference.position(by_name[name], step) - position
            turns = joint.nq == 2
            config[joint.idx_q : joint.idx_q + joint.nq] = (
                [math.cos(position), math.sin(position)] if turns else [position]
            )
        pin.computeJointJacobians(model, data, config)
        pin.updateFramePlacements(model, data)
        frames = [model.getFrameId(link) for link in links]
        poses.append([data.oMf[frame].homogeneous for frame in frames])
        around = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        columns = [pin.getFrameJacobian(model, data, f, around) for f in frames]
        jacobians.append([each.reshape(6, model.nv) @ factors for each in columns])
    return np.array(poses), np.array(jacobians)


def assert_as_pinocchio(text: str, seed: int) -> None:
    robot = rc.Robot.from_urdf(text)
    q = np.random.default_rng(seed).uniform(-2, 2, (5, robot.num_joints))
    links = robot.link_names
    want, want_jacobian = pinocchio_poses(text, q, robot.joint_names, links)
    bound = 1e-12 * (1 + reach_of(text))
    jacobian, pose = robot.jacobian(q, links, return_pose=True)
    assert np.abs(as_matrix(pose) - want).max() <= bound
    assert np.abs(jacobian - want_jacobian).max() <= bound


@pytest.mark.parametrize(("seed", "joints"), TREES)
def test_trees_are_as_pinocchio_has_them(seed, joints):
    assert_as_pinocchio(random_urdf(seed, joints), seed)


def test_sample_arms_are_as_pinocchio_has_them(sample):
    assert_as_pinocchio(sample, 0)


def test_base_and_tip_choose_a_part(sample):
    whole = rc.Robot.from_urdf(sample)
    tip = next(link for link in reversed(whole.link_names) if "finger" not in link)
    arm = rc.Robot.from_urdf(sample, tip=tip)
    assert arm.tip == tip and set(arm.joint_names) <= set(whole.joint_names)
    assert arm.limits.shape == (arm.num_joints, 2) and (arm.limits[:, 0] < arm.limits[:, 1]).all()
    q = between(whole.limits, 4, 0)
    columns = [whole.joint_names.index(name) for name in arm.joint_names]
    assert np.abs(arm.fk(q[:, columns]) - whole.fk(q, tip)).max() < 1e-14


def test_the_golden_hand(device):
    golden = json.loads((GOLDEN / "robots" / "hand.json").read_text())
    robot, q = rc.Robot.from_urdf(golden["urdf"]), np.array(golden["q"])
    assert robot.joint_names == ["lift", "turn", "thumb"]
    poses = as_matrix(to_numpy(robot.fk(on(device)(q), robot.link_names)))
    jacobians = to_numpy(robot.jacobian(on(device)(q), golden["link"]))
    for row, want in enumerate(golden["rows"]):
        links = np.array([want["poses"][link] for link in robot.link_names])
        assert np.abs(poses[row] - links).max() < 1e-14
        assert np.abs(jacobians[row] - np.array(want["jacobian"])).max() < 1e-14


# -- Jacobians and gradients -------------------------------------------------------------------


def test_unused_joints_have_columns_of_zero():
    robot = rc.Robot.from_urdf(TREE)
    first = robot.link_names[1]
    jacobian = robot.jacobian(np.zeros(robot.num_joints), first)
    assert jacobian.shape == (6, robot.num_joints)
    assert (jacobian[:, 1:] == 0).all()


def test_gradients_are_the_derivatives(device):
    robot = rc.Robot.from_urdf(random_urdf(11, 6))
    q = torch.randn(3, robot.num_joints, dtype=torch.float64, device=device, requires_grad=True)
    links = robot.link_names[2:]
    assert torch.autograd.gradcheck(lambda x: robot.fk(x, links), q)
    assert torch.autograd.gradcheck(lambda x: robot.jacobian(x, links), q)
    assert torch.autograd.gradcheck(lambda x: robot.jacobian(x, links[0]), q)
    one = q.detach()[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: robot.fk(x, links[0]), one)
    both = robot.jacobian(q, links, return_pose=True)
    (grad,) = torch.autograd.grad(sum(x.sum() for x in both), q)
    apart_ = [torch.autograd.grad(f(q, links).sum(), q)[0] for f in (robot.fk, robot.jacobian)]
    assert torch.allclose(grad, sum(apart_))


def test_a_jacobian_times_a_vector_has_a_gradient(device):
    robot = panda()
    q = torch.tensor(between(robot.limits, 4, 1), device=device, requires_grad=True)
    velocity = torch.randn(4, 7, dtype=torch.float64, device=device)
    assert torch.autograd.gradcheck(lambda x: (robot.jacobian(x) @ velocity[..., None])[..., 0], q)


def test_second_gradients_are_refused():
    q = torch.zeros(2, 7, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(panda().fk(q).sum(), q, create_graph=True)
    with pytest.raises(rc.Unsupported, match="fk: the gradient of a gradient"):
        grad.sum().backward()
    with pytest.raises(rc.Unsupported, match=r"ik: .*no gradient"):
        panda().ik(panda().fk(q))


# -- tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_any_axes_in_front_and_any_strides(device, dtype):
    robot = panda()
    q = between(robot.limits, 24, 2).astype(dtype)
    place = on(device)
    want = to_numpy(robot.fk(place(q)))
    jacobian = to_numpy(robot.jacobian(place(q)))
    for shape in [(2, 12), (2, 3, 4), (24, 1), (1, 24)]:
        got = robot.fk(place(q.reshape(*shape, 7)))
        assert tuple(got.shape) == (*shape, 7)
        assert (to_numpy(got).reshape(24, 7) == want).all()
        got = robot.jacobian(place(q.reshape(*shape, 7)))
        assert (to_numpy(got).reshape(24, 6, 7) == jacobian).all()
    assert (to_numpy(robot.fk(place(q[5]))) == want[5]).all()
    tensor = torch.tensor(q, device=device)
    views = [
        tensor.t().contiguous().t(),
        torch.cat([tensor, tensor], 1)[:, 7:],
        tensor.repeat_interleave(2, 0)[::2],
    ]
    for view in views:
        assert (to_numpy(robot.fk(view)) == want).all()
        assert (to_numpy(robot.jacobian(view)) == jacobian).all()
    strided = torch.full((7, 24), 9.0, dtype=tensor.dtype, device=device).t()
    assert robot.fk(tensor, out=strided) is strided
    assert (to_numpy(strided) == want).all()
    expanded = tensor[:1].expand(5, 7)
    assert (to_numpy(robot.fk(expanded)) == want[:1]).all()


def test_no_rows_give_no_results(device):
    robot = panda()
    empty = torch.zeros(0, 7, device=device)
    assert robot.fk(empty).shape == (0, 7)
    assert robot.jacobian(empty, ["link3", "link7"]).shape == (0, 2, 6, 7)
    assert robot.fk(torch.zeros(3, 0, 7, device=device)).shape == (3, 0, 7)
    assert [x.shape[0] for x in robot.ik(empty)] == [0] * 5


def test_what_is_not_finite_stays_in_its_row(device):
    robot = panda()
    q = between(robot.limits, 40, 3)
    want = robot.fk(q)
    for bad in (np.nan, np.inf, -np.inf):
        spoiled = q.copy()
        spoiled[13, 6] = bad
        got, jacobian = (to_numpy(f(on(device)(spoiled))) for f in (robot.fk, robot.jacobian))
        others = np.arange(40) != 13
        assert np.isnan(got[13]).all() and np.isnan(jacobian[13]).all()
        assert (got[others] == want[others]).all()


def test_far_angles_are_the_same_turned_back():
    robot = panda()
    q = between(robot.limits, 9, 4)
    for turns in (1, 1000, 10**7):
        far = robot.fk(q + 2 * np.pi * turns)
        assert np.abs(far - robot.fk(q)).max() < 1e-14 * turns + 1e-13


@pytest.mark.parametrize("call", ["fk", "jacobian", "velocity", "ik"])
def test_registered_ops_pass_opcheck(call):
    robot = rc.Robot.from_urdf(TREE)
    q = torch.randn(3, robot.num_joints, dtype=torch.float64)
    key, places = robot._key, [3]
    ops = torch.ops.robocache
    import robocache._torch_ops  # noqa: F401

    way = (None, None, None)  # device, max_memory, chunk

    calls = {
        "fk": (ops.fk.default, (q.requires_grad_(), key, places, False, *way)),
        "jacobian": (ops.jacobian.default, (q.requires_grad_(), key, places, True, *way)),
        "velocity": (
            ops.joint_velocity.default,
            (q.detach(), torch.randn(3, 6, dtype=torch.float64), key, places, 0.01, *way),
        ),
        "ik": (
            ops.ik.default,
            (robot.fk(q.detach(), "l3"), None, key, places, 1e-4, 1e-3, 20, 2, True, *way),
        ),
    }
    torch.library.opcheck(*calls[call])


def test_whole_graphs(device, fresh_compiler):
    if not can_compile(device):
        pytest.skip("torch.compile does not work here")
    robot = panda()
    q = torch.tensor(between(robot.limits, 6, 5), device=device)

    def loss(x):
        jacobian, pose = robot.jacobian(x, return_pose=True)
        return pose, (jacobian**2).sum() + robot.fk(x, ["link3", "link5"]).sum()

    compiled = torch.compile(loss, fullgraph=True)
    eager = q.clone().requires_grad_()
    traced = q.clone().requires_grad_()
    assert torch.equal(compiled(traced)[0], loss(eager)[0])
    loss(eager)[1].backward()
    compiled(traced)[1].backward()
    assert torch.allclose(traced.grad, eager.grad)
    solve = torch.compile(lambda pose: robot.ik(pose), fullgraph=True)
    pose = robot.fk(q)
    assert all(torch.equal(a, b) for a, b in zip(solve(pose), robot.ik(pose), strict=True))


def test_vmap_and_grad(device):
    robot = panda()
    q = torch.tensor(between(robot.limits, 6, 6), device=device)
    assert torch.equal(torch.func.vmap(robot.fk)(q), robot.fk(q))
    stacked = q.reshape(2, 3, 7)
    assert torch.equal(torch.func.vmap(robot.jacobian, 1, 1)(stacked), robot.jacobian(stacked))
    derived = torch.func.vmap(torch.func.jacrev(lambda x: robot.fk(x)[:3]))(q)
    assert torch.allclose(derived, robot.jacobian(q)[:, :3])
    one = torch.func.grad(lambda x: robot.fk(x).sum())(q[0])
    leaf = q[0].clone().requires_grad_()
    robot.fk(leaf).sum().backward()
    assert torch.allclose(one, leaf.grad)


# -- robots ------------------------------------------------------------------------------------


def test_robots_can_be_copied_and_told():
    for robot in (panda(), rc.Robot.from_urdf(TREE, tip="l3")):
        again = pickle.loads(pickle.dumps(robot))
        q = np.zeros(robot.num_joints)
        assert (again.fk(q) == robot.fk(q)).all() and repr(again) == repr(robot)
        assert copy.deepcopy(robot).joint_names == robot.joint_names
    assert repr(panda()) == 'Robot("dh", 7 joints, base "link0", tip "link7")'
    with pytest.raises(ValueError, match="read-only"):
        panda().limits[0] = 1


BAD_URDFS = [
    ("<robot", "no XML"),
    ("<sdf/>", "expected a <robot>, got a <sdf>"),
    ('<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><robot>&a;</robot>', "DTD"),
    ('<robot><link name="a"/><link name="b"/></robot>', "2 links have no parent"),
    (TREE.replace('parent link="l0"', 'parent link="gone"', 1), '"gone" is no link'),
    (TREE.replace('child link="l3"', 'child link="l0"', 1), "form a loop"),
    (TREE.replace('rpy="', 'rpy="x ', 1), "expected three numbers"),
]


@pytest.mark.parametrize(("text", "message"), BAD_URDFS, ids=[each[1] for each in BAD_URDFS])
def test_bad_urdfs_are_refused(tmp_path, text, message):
    with pytest.raises(rc.CorruptData, match=message) as told:
        rc.Robot.from_urdf(text)
    assert told.value.op == "Robot"
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.raises(rc.CorruptData, match=message) as told:
        rc.Robot.from_urdf(path)
    assert told.value.path == str(path)


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(rc.FileError, match="cannot open"):
        rc.Robot.from_urdf(tmp_path / "none.urdf")
    with pytest.raises(rc.FileError, match="got a folder"):
        rc.Robot.from_urdf(tmp_path)
    (tmp_path / "latin.urdf").write_bytes(b"<robot name='\xff'/>")
    with pytest.raises(rc.CorruptData, match="not UTF-8 from byte 13"):
        rc.Robot.from_urdf(tmp_path / "latin.urdf")
    (tmp_path / "large.urdf").write_bytes(b" " * (17 << 20))
    with pytest.raises(rc.LimitExceeded):
        rc.Robot.from_urdf(tmp_path / "large.urdf")


INVALID = [
    (lambda r, q: r.fk(q[:, :3]), "fk: q: expected [B,7] or [7] (joint1, joint2"),
    (lambda r, q: r.fk(q.astype("i4")), "fk: q: expected float32 or float64, got int32"),
    (lambda r, q: r.fk(q.astype("f2")), "fk: q: expected float32 or float64, got float16"),
    (lambda r, q: r.fk(q, "link9"), 'Robot: links: there is no "link9"; the links are link0'),
    (lambda r, q: r.fk(q, []), "links: expected at least one link"),
    (lambda r, q: r.fk(q, out=np.zeros((2, 6))), "fk: pose: expected shape [2, 7]"),
    (lambda r, q: r.fk("q"), "fk: q: "),
    (lambda r, q: r.fk(None), "fk: q: "),
    (lambda r, q: r.jacobian(q[0, :2]), "jacobian: q: expected [B,7]"),
    (lambda r, q: r.joint_velocity(q, np.zeros((3, 6))), "joint_velocity: twist: batch of 3"),
    (lambda r, q: r.joint_velocity(q, np.zeros(5)), "joint_velocity: twist: expected [B,6] or [6]"),
    (lambda r, q: r.joint_velocity(q, np.zeros(6, "f4")), "twist: expected float64 as q has"),
    (lambda r, q: r.joint_velocity(q, np.zeros(6), 0), "damping: expected 0.0001 to 10000, got 0"),
    (lambda r, q: r.ik(q[:, :6]), "ik: pose: expected [B,7] or [7]"),
    (lambda r, q: r.ik(q, np.zeros(6)), "ik: q0: expected [B,7] or [7] (joint1"),
    (lambda r, q: r.ik(q, position_tol=0), "ik: position_tol: expected a number above 0"),
    (lambda r, q: r.ik(q, rotation_tol=np.nan), "ik: rotation_tol: expected a number above 0"),
    (lambda r, q: r.ik(q, seeds=0), "ik: seeds: expected a whole number from 1"),
    (lambda r, q: r.ik(q, max_iterations=1.5), "ik: max_iterations: expected a whole number"),
    (lambda r, q: r.ik(q, limits="no"), "ik: limits: expected True or False"),
    (lambda r, q: r.ik(q, links=["link1", "link2"]), "ik: links: expected one link, got 2"),
    (lambda r, q: r.fk(q, device="cuda:0"), "fk: device"),
]


@pytest.mark.parametrize(("call", "message"), INVALID, ids=[each[1] for each in INVALID])
def test_bad_arguments_are_refused(call, message):
    robot, q = panda(), np.zeros((2, 7))
    with pytest.raises((rc.InvalidArgument, rc.NoDevice, rc.Unsupported)) as told:
        call(robot, q)
    assert message in str(told.value)
    assert robot.fk(q).shape == (2, 7)  # the next good call works


def test_bad_robots_are_refused():
    for call, message in [
        (lambda: rc.Robot.from_dh([]), "rows: expected at least one row"),
        (lambda: rc.Robot.from_dh([(1, 2, 3)]), "rows: row 0: expected"),
        (lambda: rc.Robot.from_dh([(0, 0, 0, np.nan)]), "rows: row 0 is not finite"),
        (
            lambda: rc.Robot.from_dh([(0, 0, 0, 0)], "classic"),
            "convention: expected one of standard",
        ),
        (lambda: rc.Robot.from_dh([(0, 0, 0, 0)], limits=[]), "limits: expected 1 rows, got 0"),
        (lambda: rc.Robot.from_dh([(0, 0, 0, 0)], limits=[(1, -1)]), "limits from 1 to -1"),
        (lambda: rc.Robot.from_dh(3), "rows: expected rows of numbers"),
        (lambda: rc.Robot.from_dh([(0, 0, 0, "x")]), "rows: expected numbers, got str"),
        (lambda: rc.Robot.from_dh([(0, 0, 0, 0)], limits=[(1,)]), "limits: row 0: expected lowest"),
        (lambda: rc.Robot.from_urdf(None), "urdf: expected a path or text, got NoneType"),
        (lambda: rc.Robot.from_urdf(TREE, tip=3), "tip: expected a link's name, got int"),
        (lambda: panda().fk(np.zeros(7), [3]), "links: expected a link's name, got int"),
        (lambda: rc.Robot.from_urdf(TREE, base="x"), 'base: there is no "x"'),
        (lambda: rc.Robot.from_urdf(TREE, base="l3", tip="l0"), "does not hang on the base"),
    ]:
        with pytest.raises(rc.InvalidArgument) as told:
            call()
        assert message in str(told.value) and told.value.op == "Robot"
    several = next(
        text for s in range(50) if rc.Robot.from_urdf(text := random_urdf(s, 8)).tip is None
    )
    robot = rc.Robot.from_urdf(several)
    with pytest.raises(rc.InvalidArgument, match=r"has \d leaves \(.*\): name links, or a tip"):
        robot.fk(np.zeros(robot.num_joints))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuda_gives_the_bits_of_the_cpu(dtype):
    for text, seed in [(random_urdf(s, j), s) for s, j in TREES[:6]]:
        robot = rc.Robot.from_urdf(text)
        q = torch.randn(1000, robot.num_joints, dtype=dtype) * 2
        links = robot.link_names
        assert torch.equal(robot.fk(q.cuda(), links).cpu(), robot.fk(q, links)), seed
        assert torch.equal(robot.jacobian(q.cuda(), links).cpu(), robot.jacobian(q, links)), seed
    robot = panda()
    pose = robot.fk(torch.tensor(between(robot.limits, 5000, 3), dtype=dtype))
    here, there = robot.ik(pose), robot.ik(pose.cuda())
    assert torch.equal(there.q.cpu(), here.q) and torch.equal(there.converged.cpu(), here.converged)
    assert torch.equal(there.iterations.cpu(), here.iterations)


@pytest.mark.gpu
def test_calls_can_be_captured():
    robot = panda()
    q = torch.tensor(between(robot.limits, 64, 4), device="cuda")
    rc.warmup("fk", robot, q)
    rc.warmup("jacobian", robot, q, return_pose=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pose = robot.fk(q)
        jacobian, _ = robot.jacobian(q, return_pose=True)
    q.add_(0.1)
    graph.replay()
    assert torch.equal(pose, robot.fk(q)) and torch.equal(jacobian, robot.jacobian(q))
