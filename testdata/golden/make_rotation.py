#!/usr/bin/env python3
"""Makes testdata/golden/rotation/*.json: rotation.convert between all representations.

    python testdata/golden/make_rotation.py [DIRECTORY]

The format is in common.py. Unlike the others these files need NumPy and SciPy, whose float64 results are
what is expected, within a tolerance that both keep to. Rotations are chosen such that they have one
normal form: no half turns, and no angles that lock but in `locked`, where SciPy's choice is the contract.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from common import array, short, write

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates/robocache-py/tests"))

import rotation_oracle as oracle

# Plain numbers, so that no generator of random ones matters.
QUATERNIONS = [
    [0.0, 0.0, 0.0, 1.0],
    [0.5, 0.5, 0.5, 0.5],
    [0.1, -0.2, 0.3, 0.9],
    [-0.6, 0.3, 0.2, -0.4],
    [1e-6, -2e-6, 5e-7, 1.0],
]
ONE_STEP = {"float64": 4e-15, "float32": 4e-7, "float16": 2e-3}


def case(name: str, x: np.ndarray, source: str, target: str, dtype: str) -> dict:
    x = x.astype(dtype).astype(np.float64)
    want = oracle.write(oracle.read(x, source), target).astype(dtype)
    bound = ONE_STEP[dtype]
    if target.startswith("euler"):
        bound = bound / np.clip(oracle.room_of(want.astype(np.float64), target), 1e-7, 1).min()
    if dtype == "float64":
        bound = max(bound, 1e-7 if name.startswith("locked") else 0)
    return {
        "name": f"{name}_{source}_to_{target}_{dtype}",
        "op": "rotation.convert",
        "arguments": {"x": array(x.tolist(), dtype), "source": source, "target": target},
        "expect": {"out": array(want.astype(np.float64).tolist(), dtype)},
        "tolerance": {"out": [short(bound)] * want.size},
    }


def rows_of(name: str, target: str) -> np.ndarray:
    """What has one normal form in both representations; an angle of pi would have two."""
    quats = oracle.Rotation.from_quat(QUATERNIONS)
    good = np.ones(len(QUATERNIONS), bool)
    for each in (name, target):
        if each.startswith("euler"):
            angles = oracle.write(quats, each)
            good &= (oracle.room_of(angles, each) > 1e-2) & (np.abs(angles).max(axis=1) < 3.1)
    return oracle.write(quats[good], name)


def all_cases() -> list:
    """From and to every representation, and every pair of those that are no Euler angles."""
    pairs = [("quat_xyzw", name) for name in oracle.ALL]
    pairs += [(name, "rot6d") for name in oracle.ALL]
    pairs += [(a, b) for a in oracle.OTHERS for b in oracle.OTHERS]
    return [case("all", rows_of(a, b), a, b, "float64") for a, b in dict.fromkeys(pairs)]


def narrow_cases() -> list:
    return [
        case("narrow", rows_of(a, b)[1:4], a, b, dtype)
        for dtype in ("float32", "float16")
        for a in oracle.OTHERS
        for b in oracle.OTHERS
        if not (a.startswith("rot6d") and dtype == "float16")
    ]


def locked_cases() -> list:
    """The third angle is 0."""
    made = []
    for name in oracle.EULER:
        symmetric = name[6].lower() == name[8].lower()
        middle = (0.0, np.pi) if symmetric else (np.pi / 2, -np.pi / 2)
        x = np.array([[0.25, each, -0.5] for each in middle])
        made.append(case("locked", x, name, name, "float64"))
    return made


FILES = {"all": all_cases, "narrow": narrow_cases, "locked": locked_cases}


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about gimbal lock
        write("rotation", FILES)
