#!/usr/bin/env python3
"""Makes testdata/golden/robots/*.json: poses and Jacobians of links.

    python testdata/golden/make_robots.py [DIRECTORY]

Each file has a robot (a URDF's text, or rows of Denavit and Hartenberg), positions, and for each row of them the matrix
`[4,4]` of every link and the Jacobian `[6,J]` of the last, all in float64. Products of matrices, one joint after the other;
a Jacobian's column is the axis, and the axis times the way to the link. Only the standard library computes here.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

Matrix = list[list[float]]


def product(a: Matrix, b: Matrix) -> Matrix:
    return [[math.fsum(a[i][k] * b[k][j] for k in range(4)) for j in range(4)] for i in range(4)]


def turn(axis: list[float], angle: float) -> Matrix:
    """By Rodrigues; the axis may have any length."""
    length = math.sqrt(math.fsum(x * x for x in axis))
    x, y, z = (part / length for part in axis)
    s, c = math.sin(angle), math.cos(angle)
    d = 1 - c
    return [
        [c + x * x * d, x * y * d - z * s, x * z * d + y * s, 0.0],
        [y * x * d + z * s, c + y * y * d, y * z * d - x * s, 0.0],
        [z * x * d - y * s, z * y * d + x * s, c + z * z * d, 0.0],
        [0.0, 0.0, 0.0, 1.0],
    ]


def shift(way: list[float]) -> Matrix:
    return [[*(float(i == j) for j in range(3)), way[i]] for i in range(3)] + [[0.0, 0.0, 0.0, 1.0]]


def origin(xyz: list[float], rpy: list[float]) -> Matrix:
    turned = product(
        turn([0, 0, 1], rpy[2]), product(turn([0, 1, 0], rpy[1]), turn([1, 0, 0], rpy[0]))
    )
    return product(shift(xyz), turned)


# name, type, parent, child, xyz, rpy, axis, (leader, factor, offset)
HAND = [
    ("lift", "prismatic", "base", "carriage", [0, 0, 0.5], [0, 0, 0], [0, 0, 1], None),
    ("turn", "continuous", "carriage", "arm", [0.1, 0, 0], [0.3, -0.2, 0.1], [0, 1, 0], None),
    ("plate", "fixed", "arm", "palm", [0, 0.2, 0.4], [0, 1.2, 0], [1, 0, 0], None),
    ("thumb", "revolute", "palm", "thumb_tip", [0.05, 0, 0], [0, 0, 0], [0.6, 0, 0.8], None),
    (
        "finger",
        "revolute",
        "palm",
        "finger_tip",
        [0, 0.05, 0.1],
        [0, 0, -0.4],
        [1, 0, 0],
        ("thumb", -0.5, 0.2),
    ),
]
HAND_Q = [[0.0, 0.0, 0.0], [0.3, -2.1, 0.7], [-0.2, 1.4, -0.9]]


def hand_urdf() -> str:
    numbers = lambda x: " ".join(map(str, x))  # noqa: E731
    links = dict.fromkeys(link for joint in HAND for link in (joint[2], joint[3]))
    lines = ['<robot name="hand">', *(f'<link name="{link}"/>' for link in links)]
    for name, kind, parent, child, xyz, rpy, axis, mimic in HAND:
        limit = '<limit lower="-3" upper="3"/>' if kind in ("prismatic", "revolute") else ""
        follows = ""
        if mimic:
            follows = f'<mimic joint="{mimic[0]}" multiplier="{mimic[1]}" offset="{mimic[2]}"/>'
        lines.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{numbers(xyz)}" rpy="{numbers(rpy)}"/><axis xyz="{numbers(axis)}"/>{limit}{follows}</joint>'
        )
    return "\n".join([*lines, "</robot>"])


def hand_case(q: list[float]) -> dict:
    positions = dict(zip(("lift", "turn", "thumb"), q, strict=True))
    poses = {"base": shift([0, 0, 0])}
    columns = {name: [[0.0] * 3, [0.0] * 3] for name in positions}
    moving = []
    for name, kind, parent, child, xyz, rpy, axis, mimic in HAND:
        leader, factor, offset = mimic or (name, 1.0, 0.0)
        position = factor * positions.get(leader, 0.0) + offset
        frame = product(poses[parent], origin(xyz, rpy))
        length = math.sqrt(sum(x * x for x in axis))
        moved = shift([0, 0, 0])
        if kind == "prismatic":
            moved = shift([x / length * position for x in axis])
        elif kind != "fixed":
            moved = turn(axis, position)
        poses[child] = product(frame, moved)
        way = [math.fsum(frame[i][k] * axis[k] / length for k in range(3)) for i in range(3)]
        point = [frame[i][3] for i in range(3)]
        moving.append((child, parent, kind, leader, factor, way, point))
    tip = [poses["finger_tip"][i][3] for i in range(3)]
    above, link = set(), "finger_tip"
    parents = {child: parent for child, parent, *_ in moving}
    while link in parents:
        above.add(link)
        link = parents[link]
    for child, _, kind, leader, factor, (x, y, z), point in moving:
        if child not in above or kind == "fixed":
            continue
        a, b, c = (tip[i] - point[i] for i in range(3))
        linear = [x, y, z] if kind == "prismatic" else [y * c - z * b, z * a - x * c, x * b - y * a]
        angular = [0.0] * 3 if kind == "prismatic" else [x, y, z]
        for part, made in zip(columns[leader], (linear, angular), strict=True):
            for i in range(3):
                part[i] += factor * made[i]
    jacobian = [
        [columns[name][part][i] for name in positions] for part in range(2) for i in range(3)
    ]
    return {"poses": poses, "jacobian": jacobian}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "robots")
    folder.mkdir(exist_ok=True)
    made = {
        "urdf": hand_urdf(),
        "q": HAND_Q,
        "link": "finger_tip",
        "rows": [hand_case(q) for q in HAND_Q],
    }
    (folder / "hand.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
