"""Robots to test with, and where their links are by a product of matrices in float64."""

from __future__ import annotations

import itertools
import pathlib
import xml.etree.ElementTree as ET

import numpy as np
from scipy.spatial.transform import Rotation

import robocache as rc

SHARED = pathlib.Path(__file__).resolve().parents[3].parent / "shared" / "data" / "urdf"

PANDA = [  # modified parameters, as Franka publishes them
    (0, 0, 0.333, 0),
    (0, -np.pi / 2, 0, 0),
    (0, np.pi / 2, 0.316, 0),
    (0.0825, np.pi / 2, 0, 0),
    (-0.0825, -np.pi / 2, 0.384, 0),
    (0, np.pi / 2, 0, 0),
    (0.088, np.pi / 2, 0.107, 0),
]
PANDA_LIMITS = [
    (-2.8973, 2.8973),
    (-1.7628, 1.7628),
    (-2.8973, 2.8973),
    (-3.0718, -0.0698),
    (-2.8973, 2.8973),
    (-0.0175, 3.7525),
    (-2.8973, 2.8973),
]
UR5 = [  # standard parameters: an arm whose last three axes do not meet
    (0, np.pi / 2, 0.089159, 0),
    (-0.425, 0, 0, 0),
    (-0.39225, 0, 0, 0),
    (0, np.pi / 2, 0.10915, 0),
    (0, -np.pi / 2, 0.09465, 0),
    (0, 0, 0.0823, 0),
]
UR5_LIMITS = [(-2 * np.pi, 2 * np.pi)] * 6


def panda() -> rc.Robot:
    return rc.Robot.from_dh(PANDA, "modified", PANDA_LIMITS)


def ur5() -> rc.Robot:
    return rc.Robot.from_dh(UR5, "standard", UR5_LIMITS)


def random_urdf(seed: int, joints: int, mimics: bool = True) -> str:
    """A tree with joints of all types."""
    rng = np.random.default_rng(seed)
    numbers = lambda low, high: " ".join(repr(float(x)) for x in rng.uniform(low, high, 3))  # noqa: E731
    lines = [f'<robot name="tree{seed}">', *(f'<link name="l{i}"/>' for i in range(joints + 1))]
    movable: list[str] = []
    for place in range(joints):
        parent = place if rng.random() < 0.7 else int(rng.integers(0, place + 1))
        kind = str(rng.choice(["revolute", "revolute", "continuous", "prismatic", "fixed"]))
        axis = str(rng.choice(["1 0 0", "0 1 0", "0 0 1", "0 0 -1", numbers(-1, 1)]))
        limit = '<limit lower="-2.5" upper="2" effort="1" velocity="1"/>'
        mimic = ""
        if mimics and kind != "fixed" and movable and rng.random() < 0.2:
            leader, factor = str(rng.choice(movable)), float(rng.uniform(-2, 2))
            mimic = f'<mimic joint="{leader}" multiplier="{factor!r}" offset="0.2"/>'
        elif kind != "fixed":
            movable.append(f"j{place}")
        lines.append(
            f'<joint name="j{place}" type="{kind}"><parent link="l{parent}"/><child link="l{place + 1}"/>'
            f'<origin xyz="{numbers(-0.3, 0.3)}" rpy="{numbers(-3, 3)}"/><axis xyz="{axis}"/>'
            f"{limit if kind in ('revolute', 'prismatic') else ''}{mimic}</joint>"
        )
    return "\n".join([*lines, "</robot>"])


def _numbers(element, name: str, default: str) -> np.ndarray:
    text = default if element is None else element.get(name, default)
    return np.array([float(x) for x in text.split()])


class Reference:
    """A URDF, read with Python's own parser; poses `[4,4]` by link."""

    def __init__(self, text: str) -> None:
        self.joints = ET.fromstring(text.encode()).findall("joint")
        children = {joint.find("child").get("link") for joint in self.joints}
        parents = [joint.find("parent").get("link") for joint in self.joints]
        self.root = next(link for link in parents if link not in children)

    def position(self, joint, q: dict[str, float]) -> float:
        mimic = joint.find("mimic")
        if mimic is None:
            return q.get(joint.get("name"), 0.0)
        leader = next(j for j in self.joints if j.get("name") == mimic.get("joint"))
        factor, offset = float(mimic.get("multiplier", 1)), float(mimic.get("offset", 0))
        return factor * self.position(leader, q) + offset

    def poses(self, q: dict[str, float]) -> dict[str, np.ndarray]:
        found = {self.root: np.eye(4)}
        open_links = [self.root]
        while open_links:
            link = open_links.pop()
            for joint in self.joints:
                if joint.find("parent").get("link") != link:
                    continue
                origin, axis = joint.find("origin"), _numbers(joint.find("axis"), "xyz", "1 0 0")
                fixed, moved = np.eye(4), np.eye(4)
                rpy = _numbers(origin, "rpy", "0 0 0")
                fixed[:3, :3] = Rotation.from_euler("xyz", rpy).as_matrix()
                fixed[:3, 3] = _numbers(origin, "xyz", "0 0 0")
                if joint.get("type") in ("revolute", "continuous"):
                    turn = axis / np.linalg.norm(axis) * self.position(joint, q)
                    moved[:3, :3] = Rotation.from_rotvec(turn).as_matrix()
                elif joint.get("type") == "prismatic":
                    moved[:3, 3] = axis / np.linalg.norm(axis) * self.position(joint, q)
                child = joint.find("child").get("link")
                found[child] = found[link] @ fixed @ moved
                open_links.append(child)
        return found


def dh_pose(rows, q, convention: str) -> np.ndarray:
    """The last frame's pose by the textbook's matrices."""

    def about(axis: str, angle: float, step: float) -> np.ndarray:
        pose = np.eye(4)
        pose[:3, :3] = Rotation.from_euler(axis, angle).as_matrix()
        pose["xyz".index(axis), 3] = step
        return pose

    pose = np.eye(4)
    for (a, alpha, d, theta, *_), x in zip(rows, q, strict=True):
        z, along = about("z", theta + x, d), about("x", alpha, a)
        pose = pose @ (z @ along if convention == "standard" else along @ z)
    return pose


def as_matrix(pose: np.ndarray) -> np.ndarray:
    """Poses `[..., 7]` as `[..., 4, 4]`."""
    out = np.zeros((*pose.shape[:-1], 4, 4))
    flat = pose.reshape(-1, 7)
    out.reshape(-1, 4, 4)[:, :3, :3] = Rotation.from_quat(flat[:, 3:]).as_matrix()
    out[..., :3, 3] = pose[..., :3]
    out[..., 3, 3] = 1
    return out


def apart(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Metres and radians between poses `[N,7]`."""
    turn = Rotation.from_quat(a[:, 3:]) * Rotation.from_quat(b[:, 3:]).inv()
    return np.linalg.norm(a[:, :3] - b[:, :3], axis=1), turn.magnitude()


def reach_of(text: str) -> float:
    """The length of all that is fixed, and of what slides."""
    origins = [_numbers(joint.find("origin"), "xyz", "0 0 0") for joint in Reference(text).joints]
    return float(sum(np.linalg.norm(x) for x in origins)) + 2.5 * text.count("prismatic")


def between(limits: np.ndarray, count: int, seed: int) -> np.ndarray:
    low, high = np.clip(limits, -np.pi, np.pi).T
    return np.random.default_rng(seed).uniform(low, high, (count, len(limits)))


TREES = [(seed, joints) for seed, joints in zip(itertools.count(), (1, 2, 3, 5, 8, 13, 21, 30, 40))]
