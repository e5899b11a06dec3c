"""The way back from poses to joints, and from twists to joint velocities."""

from __future__ import annotations

import numpy as np
import pytest

import robocache as rc
from helpers import on, scaled, to_numpy
from robots import PANDA, PANDA_LIMITS, apart, between, panda, ur5

FLOATS = ("float32", "float64")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("make", [panda, ur5])
def test_reachable_poses_are_found(device, make, dtype):
    robot, count = make(), scaled(20_000)
    pose = robot.fk(between(robot.limits, count, 7))
    found = robot.ik(on(device)(pose.astype(dtype)))
    q, converged, position, rotation, iterations = map(to_numpy, found)
    assert converged.mean() >= 0.99 and converged.dtype == bool and iterations.dtype == np.int32
    low, high = robot.limits.astype(dtype).T
    assert ((q >= low) & (q <= high)).all()
    metres, radians = apart(robot.fk(q.astype("f8")), pose)
    slack = 1e-12 if dtype == "float64" else 3e-6
    assert (metres[converged] <= 1e-4 + slack).all() and (radians[converged] <= 1e-3 + slack).all()
    assert np.abs(metres - position).max() < slack * 10
    assert np.abs(radians - rotation).max() < 10 * slack + 1e-7
    again = robot.ik(on(device)(pose.astype(dtype)))
    assert all((to_numpy(a) == to_numpy(b)).all() for a, b in zip(found, again, strict=True))


def test_a_row_does_not_depend_on_its_batch():
    robot = panda()
    pose = robot.fk(between(robot.limits, 50, 8))
    whole = robot.ik(pose)
    for part in (slice(0, 1), slice(7, 30)):
        assert all((a[part] == b).all() for a, b in zip(whole, robot.ik(pose[part]), strict=True))
    alone = robot.ik(pose[3])
    assert all((a[3] == b).all() for a, b in zip(whole, alone, strict=True))


def test_what_cannot_be_reached_is_told(device):
    robot = panda()
    pose = robot.fk(between(robot.limits, 6, 9))
    pose[0, :3] = (4, 0, 0)
    pose[1, 2] = np.nan
    pose[2, 3:] = 0
    pose[3, 0] = np.inf
    found = [to_numpy(x) for x in robot.ik(on(device)(pose))]
    q, converged, position, rotation, _ = found
    assert converged.tolist() == [False] * 4 + [True] * 2
    assert 2.5 < position[0] < 3.3 and np.isfinite(rotation[0])
    assert np.isnan(position[1:4]).all() and np.isnan(rotation[1:4]).all()
    assert np.isfinite(q).all() and ((q >= robot.limits[:, 0]) & (q <= robot.limits[:, 1])).all()


def test_a_start_near_a_solution_finds_that():
    robot = panda()
    q = between(robot.limits * 0.9, 200, 10)
    near = q + np.random.default_rng(0).uniform(-0.05, 0.05, q.shape)
    near = np.clip(near, *robot.limits.T)
    found = robot.ik(robot.fk(q), near)
    # Another solution only where a limit is in the way.
    assert found.converged.all() and (np.abs(found.q - q).max(axis=1) < 0.2).mean() > 0.95
    assert found.iterations.mean() < robot.ik(robot.fk(q)).iterations.mean()
    nowhere = robot.ik(robot.fk(q), np.full_like(q, np.nan))
    assert np.isfinite(nowhere.q).all()


def test_limits_can_be_left_out():
    robot = rc.Robot.from_dh(PANDA, "modified", [(-0.1, 0.1)] * 7)
    pose = robot.fk(between(np.array(PANDA_LIMITS), 100, 11))
    assert robot.ik(pose).converged.mean() < 0.1
    assert robot.ik(pose, limits=False).converged.mean() > 0.8


def test_velocities_move_the_link(device):
    robot = panda()
    q = between(robot.limits * 0.7, 30, 12)
    twist = np.random.default_rng(1).normal(size=(30, 6))
    place = on(device)
    velocity = to_numpy(robot.joint_velocity(place(q), place(twist), 1e-3))
    jacobian = robot.jacobian(q)
    damped = jacobian @ jacobian.transpose(0, 2, 1) + 1e-6 * np.eye(6)
    want = (jacobian.transpose(0, 2, 1) @ np.linalg.solve(damped, twist[..., None]))[..., 0]
    assert np.abs(velocity - want).max() < 1e-8 * np.abs(want).max()
    shared = robot.joint_velocity(place(q.reshape(5, 6, 7)), place(twist[0]))
    assert tuple(shared.shape) == (5, 6, 7)
