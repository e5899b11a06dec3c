"""Rotations by SciPy, in float64, and the ones that conversions are tried on."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.spatial.transform import Rotation

SEQUENCES = ("xyz", "xzy", "yxz", "yzx", "zxy", "zyx", "xyx", "xzx", "yxy", "yzy", "zxz", "zyz")
EULER = tuple(f"euler_{s}" for s in (*SEQUENCES, *(s.upper() for s in SEQUENCES)))
OTHERS = ("quat_xyzw", "quat_wxyz", "matrix", "axis_angle", "rot6d", "rot6d_rows")
ALL = (*OTHERS, *EULER)
AXES = {"matrix": 2}


def orthonormal(first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    first = first / np.linalg.norm(first, axis=-1, keepdims=True)
    second = second - (first * second).sum(axis=-1, keepdims=True) * first
    second = second / np.linalg.norm(second, axis=-1, keepdims=True)
    return [first, second, np.cross(first, second)]


def read(numbers: np.ndarray, name: str) -> Rotation:
    """Rows of any representation."""
    x = np.asarray(numbers, np.float64)
    if name == "quat_xyzw":
        return Rotation.from_quat(x)
    if name == "quat_wxyz":
        return Rotation.from_quat(np.roll(x, -1, axis=-1))
    if name == "matrix":
        return Rotation.from_matrix(x)
    if name == "axis_angle":
        return Rotation.from_rotvec(x)
    if name.startswith("rot6d"):
        parts = orthonormal(x[..., :3], x[..., 3:])
        return Rotation.from_matrix(np.stack(parts, axis=-1 if name == "rot6d" else -2))
    return Rotation.from_euler(name[6:], x)


def write(rotation: Rotation, name: str) -> np.ndarray:
    """The normal form."""
    if name.startswith("quat"):
        quat = rotation.as_quat(canonical=False)
        quat = quat * np.where(quat[..., 3:] < 0, -1, 1)
        return quat if name == "quat_xyzw" else np.roll(quat, 1, axis=-1)
    if name == "axis_angle":
        return rotation.as_rotvec()
    if name.startswith("euler"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about gimbal lock
            return rotation.as_euler(name[6:])
    matrix = rotation.as_matrix()
    if name == "matrix":
        return matrix
    matrix = matrix.swapaxes(-1, -2) if name == "rot6d" else matrix
    return matrix[..., :2, :].reshape(*matrix.shape[:-2], 6)


def room_of(angles: np.ndarray, name: str) -> np.ndarray:
    """How far the middle angle is from where the others lock."""
    middle = np.abs(angles[..., 1])
    if name[6].lower() == name[8].lower():
        return np.minimum(middle, np.pi - middle)
    return np.pi / 2 - middle


def apart(numbers: np.ndarray, want: Rotation, name: str) -> np.ndarray:
    """How far rows are from rotations: the largest difference of their matrices."""
    return np.abs(read(numbers, name).as_matrix() - want.as_matrix()).max(axis=(-1, -2))


def difference(got: np.ndarray, want: np.ndarray, name: str) -> np.ndarray:
    """The largest of each row, where there are two ways to write it the smaller one."""
    rows = len(want)
    plain = np.abs(got - want).reshape(rows, -1).max(axis=1)
    if name.startswith("euler"):
        turns = np.abs(got - want) / (2 * np.pi)
        return 2 * np.pi * np.abs(turns - np.round(turns)).max(axis=1)
    half = np.zeros(rows, bool)
    if name.startswith("quat"):
        half = np.abs(want[:, 3 if name == "quat_xyzw" else 0]) < 1e-4
    if name == "axis_angle":
        half = np.linalg.norm(want, axis=1) > np.pi - 1e-3
    return np.where(
        half, np.minimum(plain, np.abs(got + want).reshape(rows, -1).max(axis=1)), plain
    )


def random(seed: int, count: int) -> Rotation:
    quat = np.random.default_rng(seed).normal(size=(count, 4))
    return Rotation.from_quat(quat)


def special() -> Rotation:
    """Identity, tiny angles, half turns and what is near them, locked angles of every sequence."""
    rng = np.random.default_rng(5)
    axes = [*np.eye(3), *-np.eye(3), *rng.normal(size=(6, 3))]
    axes = [axis / np.linalg.norm(axis) for axis in axes]
    near = [np.pi - gap for gap in (0, 1e-9, 1e-6, 1e-3)]
    angles = [
        0,
        1e-12,
        1e-9,
        1e-6,
        1e-5,
        1e-4,
        1e-3,
        0.06,
        0.07,
        1.0,
        np.pi / 2,
        2 * np.pi / 3,
        *near,
    ]
    vectors = [axis * angle for axis in axes for angle in angles]
    all_of = [Rotation.from_rotvec(vectors)]
    for sequence in (*SEQUENCES, *(s.upper() for s in SEQUENCES)):
        symmetric = sequence[0] == sequence[2]
        for middle in (0, np.pi) if symmetric else (-np.pi / 2, np.pi / 2):
            for off in (0, 1e-12, -1e-9, 1e-5):
                rows = [(0.3, middle + off, -0.7), (0.0, middle + off, 0.0), (3.0, middle, 2.9)]
                all_of.append(Rotation.from_euler(sequence, rows))
    return Rotation.concatenate(all_of)
