"""The row of the table for `rotation.convert`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import rotation_oracle as oracle
from cases_clouds import INVALID, UNSUPPORTED
from helpers import FLOATS, dtype_of, to_numpy
from table import Row, Sample, broken_call

_STEP = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-12}


@dataclass
class RotationCase:
    """Rows whose results are rotations by SciPy, and in the normal form."""

    x: np.ndarray
    source: str
    target: str

    def verify(self, op, place) -> None:
        got = to_numpy(op(place(self.x), self.source, self.target))
        own = oracle.AXES.get(self.source, 1)
        lead = self.x.shape[: self.x.ndim - own]
        assert got.dtype == self.x.dtype and got.shape[: len(lead)] == lead
        if 0 in lead:
            return
        wide = self.x.astype(np.float64).reshape(-1, *self.x.shape[len(lead) :])
        same = oracle.read(wide, self.source)
        rows = got.astype(np.float64).reshape(len(wide), *got.shape[len(lead) :])
        step = _STEP[got.dtype.name]
        assert oracle.apart(rows, same, self.target).max() <= 8 * step
        off = oracle.difference(rows, oracle.write(same, self.target), self.target)
        assert off.max() <= (60 if "euler" in self.target else 20) * step


def sample(source: str, target: str, lead: tuple = (20,)) -> Sample:
    def make(dtype: str) -> RotationCase:
        count = max(int(np.prod(lead)), 1)
        x = oracle.write(oracle.random(len(lead), 4 * count), source)
        if target.startswith("euler"):
            angles = oracle.write(oracle.read(x, source), target)
            x = x[oracle.room_of(angles, target) > 0.3]
        x = x[: int(np.prod(lead))].reshape(*lead, *x.shape[1:])
        return RotationCase(x.astype(dtype_of(dtype)), source, target)

    return Sample(f"{source} to {target}, {lead}", make, FLOATS)


SAMPLES = (
    sample("quat_xyzw", "rot6d"),
    sample("quat_wxyz", "euler_xyz"),
    sample("matrix", "axis_angle"),
    sample("matrix", "rot6d_rows", (2, 3)),
    sample("axis_angle", "matrix", ()),
    sample("rot6d", "quat_xyzw", (4, 5, 2)),
    sample("rot6d_rows", "euler_ZYZ"),
    sample("euler_xyz", "quat_wxyz", (3, 0)),
    sample("euler_XZY", "euler_yxy", (600,)),
)
broken = broken_call(
    {"x": np.ones((2, 3, 4), "f4"), "source": "quat_xyzw", "target": "matrix"},
    ("x", "source", "target"),
)
FAILURES = (
    broken("five numbers", INVALID, "x", r"\[\.\.\.,4\].*\[2, 5\]", x=np.ones((2, 5), "f4")),
    broken("a deep view of five", INVALID, "x", r"\[2, 1, 5\]", x=np.ones((2, 1, 5), "f4")),
    broken("no axis", INVALID, "x", r"\[\.\.\.,4\]", x=np.ones((), "f4")),
    broken("a flat matrix", INVALID, "x", r"3,3.*9", x=np.ones((2, 9), "f4"), source="matrix"),
    broken("integers", INVALID, "x", "float16.*int64", x=np.ones((2, 4), "i8")),
    broken("integers, deep", INVALID, "x", "float16.*uint8", x=np.ones((2, 1, 4), "u1")),
    broken("bools", INVALID, "x", "bool", x=np.ones((2, 4), bool)),
    broken("complex", UNSUPPORTED, "x", "complex", x=np.ones((2, 4), "c8")),
    broken("complex, deep", UNSUPPORTED, "x", "complex", x=np.ones((2, 1, 4), "c8")),
    broken("None", INVALID, "x", "", x=None),
    broken("text", INVALID, "x", "", x="up"),
    broken("unknown source", INVALID, "source", "did you mean.*quat_xyzw", source="quat_xywz"),
    broken("unknown target", INVALID, "target", "matrix.*euler_xyz.*rpy", target="rpy"),
    broken("source is no name", INVALID, "source", "int", source=4),
    broken("target is None", INVALID, "target", "NoneType", target=None),
    broken("unknown device", INVALID, "device", "tpu", device="tpu"),
    broken("a stream on the CPU", INVALID, "stream", "CPU", devices=("cpu",), stream=7),
)
ROW = Row(SAMPLES, FAILURES)
