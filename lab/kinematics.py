"""Forward and inverse kinematics of a Panda, beside pytorch_kinematics where it is installed.

Rates are rows per second. The oracle is a product of matrices in float64; a solution of `ik` counts where its pose, computed
anew in float64, is within the tolerances.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common import Record, Target, number, options, print_table, rows_option, setup
from timing import event_time, graph_time, neighbours, race

HALF = np.pi / 2
PANDA = [  # modified Denavit-Hartenberg: a, alpha, d, theta
    (0, 0, 0.333, 0),
    (0, -HALF, 0, 0),
    (0, HALF, 0.316, 0),
    (0.0825, HALF, 0, 0),
    (-0.0825, -HALF, 0.384, 0),
    (0, HALF, 0, 0),
    (0.088, HALF, 0.107, 0),
]
LIMITS = [
    (-2.8973, 2.8973),
    (-1.7628, 1.7628),
    (-2.8973, 2.8973),
    (-3.0718, -0.0698),
    (-2.8973, 2.8973),
    (-0.0175, 3.7525),
    (-2.8973, 2.8973),
]
CONTENDERS = ["robocache", "pytorch_kinematics"]
NEAR, TURNED = 1e-4, 1e-3
# Rows per second that are asked for, by what is computed: on one core and on an H200.
WANTED = {"fk": (5e6, 20e9), "both": (None, 8e9), "ik": (None, 1e6)}


@dataclass(frozen=True)
class Row:
    what: str  # fk, both (poses and Jacobians), ik
    dtype: str
    rows: dict[str, int]

    def __str__(self) -> str:
        return f"{self.what} {self.dtype}"


SIZES = {"cpu": 1 << 18, "cuda": 1 << 20}
ROWS = [
    *(Row(what, dtype, SIZES) for what in ("fk", "both") for dtype in ("float32", "float64")),
    *(Row("ik", dtype, {"cpu": 4000, "cuda": 100_000}) for dtype in ("float32", "float64")),
]


def matrices(q: np.ndarray) -> np.ndarray:
    """Poses `[N,4,4]` of the last frame."""
    pose = np.broadcast_to(np.eye(4), (len(q), 4, 4))
    for (a, alpha, d, theta), angle in zip(PANDA, q.T, strict=True):
        s, c = np.sin(angle + theta), np.cos(angle + theta)
        sa, ca = np.sin(alpha), np.cos(alpha)
        zero, one = np.zeros_like(s), np.ones_like(s)
        rows = [
            [c, -s, zero, a * one],
            [s * ca, c * ca, -sa * one, -d * sa * one],
            [s * sa, c * sa, ca * one, d * ca * one],
            [zero, zero, zero, one],
        ]
        pose = pose @ np.array(rows).transpose(2, 0, 1)
    return pose


def errors(pose: torch.Tensor, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Metres and radians between poses `[N,7]` and matrices."""
    found = pose.double().cpu().numpy()
    x, y, z, w = found[:, 3:].T
    turned = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)
    # From the distance of two rotations, which is exact where they are close.
    far = np.linalg.norm(turned - want[:, :3, :3], axis=(1, 2)) / (2 * np.sqrt(2))
    return np.linalg.norm(found[:, :3] - want[:, :3, 3], axis=1), 2 * np.arcsin(np.minimum(far, 1))


def peer(dtype: torch.dtype, device: str) -> Any:
    """pytorch_kinematics' chain of the same arm, if it is installed."""
    try:
        import pytorch_kinematics
    except ImportError:
        return None
    links = ['<robot name="panda"><link name="link0"/>']
    for place, (a, alpha, d, _) in enumerate(PANDA):
        low, high = LIMITS[place]
        y, z = -d * np.sin(alpha), d * np.cos(alpha)
        links.append(
            f'<link name="link{place + 1}"/><joint name="joint{place + 1}" type="revolute">'
            f'<parent link="link{place}"/><child link="link{place + 1}"/><axis xyz="0 0 1"/>'
            f'<origin xyz="{a} {y} {z}" rpy="{alpha} 0 0"/>'
            f'<limit lower="{low}" upper="{high}" effort="1" velocity="1"/></joint>'
        )
    text = "".join([*links, "</robot>"])
    chain = pytorch_kinematics.build_serial_chain_from_urdf(text.encode(), "link7")
    return chain.to(dtype=dtype, device=device)


def calls_of(row: Row, device: str, seed: int) -> tuple[dict[str, Callable[[], Any]], int, float]:
    """The contenders, how many rows a call has, and the share of `ik` that was solved."""
    import robocache as rc

    dtype, count = getattr(torch, row.dtype), row.rows[device]
    robot = rc.Robot.from_dh(PANDA, "modified", LIMITS)
    low, high = np.array(LIMITS).T
    exact = np.random.default_rng(seed).uniform(low, high, (count, 7)).astype(row.dtype)
    q = torch.from_numpy(exact).to(device)
    want = matrices(exact.astype("f8"))
    chain = peer(dtype, device) if row.what != "ik" else None
    if row.what == "ik":
        pose = robot.fk(q)
        found = robot.ik(pose)
        near, turned = errors(robot.fk(found.q.double()), want)
        good = (near <= 1.05 * NEAR) & (turned <= 1.05 * TURNED)
        converged = found.converged.cpu().numpy()
        if (converged & ~good).any():
            sys.exit(f"lab: {row}: a solution that is none")
        return {"robocache": lambda: robot.ik(pose)}, count, float(converged.mean())
    near, turned = errors(robot.fk(q), want)
    bound = 1e-12 if row.dtype == "float64" else 4e-6
    if max(near.max(), turned.max()) > bound:
        sys.exit(f"lab: {row}: wrong result, {near.max()} m and {turned.max()} rad")
    calls: dict[str, Callable[[], Any]] = {"robocache": lambda: robot.fk(q)}
    if row.what == "both":
        calls = {"robocache": lambda: robot.jacobian(q, return_pose=True)}
    if chain is not None:
        both = row.what == "both"
        calls["pytorch_kinematics"] = lambda: (
            chain.jacobian(q) if both else chain.forward_kinematics(q)
        )
    return calls, count, 1.0


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    rows_option(parser, len(ROWS))
    parser.set_defaults(seconds=0.4)
    args = parser.parse_args()
    setup(args)
    record = Record("kinematics", args)
    for index in args.rows:
        row = ROWS[index]
        calls, count, solved = calls_of(row, args.device, args.seed + index)
        with neighbours() as others:
            if args.device == "cpu":
                times = race(calls, args.seconds, least=1)
            else:
                own = {"robocache": graph_time([calls.pop("robocache")], args.seconds)}
                times = own | {k: event_time([call], args.seconds) for k, call in calls.items()}
        rate = count / times["robocache"].median
        targets = []
        wanted = WANTED[row.what][args.device == "cuda"]
        if wanted is not None and row.dtype == "float32":
            share = args.threads if args.device == "cpu" else 1
            targets.append(Target("rows per second", rate / share, wanted, True, "/s"))
        if row.what == "ik":
            targets.append(Target("solved", solved, 0.99, True))
        told = "; ".join(map(str, targets))
        figures = {
            "row": str(row),
            "count": count,
            "rows_per_s": {name: count / spread.median for name, spread in times.items()},
            "solved": solved,
            "other_cores": others[0] if others else None,
            "times": {"call": {name: spread.json() for name, spread in times.items()}},
            "targets": [target.json() for target in targets],
        }
        print(f"  {index:2} {row} x {count}: {rate:.3g} rows/s  {told}", flush=True)
        record.rows.append(figures)
        record.flush()
    lines = [
        [row["row"], *(number(row["rows_per_s"].get(name)) for name in CONTENDERS)]
        for row in record.rows
    ]
    print("\nrows per second")
    print_table(["row", *CONTENDERS], lines)
    record.finish()


if __name__ == "__main__":
    main()
