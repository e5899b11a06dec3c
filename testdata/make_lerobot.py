"""Writes the sample datasets lerobot_v30 and lerobot_v21 beside this file.

A seven-joint arm moves smoothly from its rest to a cube, closes the gripper and carries the cube
away, seen by a camera from above (video) and one at the wrist (images in the parquet files).
Run it with the packages of crates/robocache-py/tests/requirements.txt:

    python testdata/make_lerobot.py [FOLDER]

The parquet and JSON files come out the same to the byte on every run; the videos need not.
"""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "crates" / "robocache-py" / "tests"))

from lerobot_files import Episode, Layout, write  # noqa: E402
from lerobot_parts import Feature  # noqa: E402

ARM = [f"joint_{i}" for i in range(1, 8)]
POSE = ["x", "y", "z", "qx", "qy", "qz", "qw"]
PICTURE = ["height", "width", "channels"]
TASKS = ("Put the red cube into the tray", "Put the blue cube onto the shelf")
COLOURS = ((200, 40, 40), (40, 60, 200))

# Joint angles in radians and the opening of the gripper in metres: in front of a cube, at it,
# holding it (the arm sinks a little), above its goal. The steps are small: an episode lasts two seconds at most.
START = (0.0, 0.2, 0.03, -2.05, 0.05, 2.25, 0.8, 0.06)
REACHED = (0.0, 0.32, -0.02, -2.1, -0.03, 2.42, 0.75, 0.06)
GRASPED = (0.0, 0.328, -0.028, -2.106, -0.036, 2.427, 0.745, 0.03)
CARRIED = (0.0, 0.18, 0.04, -2.15, 0.06, 2.33, 0.82, 0.03)

# The Panda's links: a, d and alpha of the modified Denavit-Hartenberg rule, the flange last.
LINKS = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -math.pi / 2),
    (0.0, 0.316, math.pi / 2),
    (0.0825, 0.0, math.pi / 2),
    (-0.0825, 0.384, -math.pi / 2),
    (0.0, 0.0, math.pi / 2),
    (0.088, 0.0, math.pi / 2),
    (0.0, 0.107, 0.0),
)


def minimum_jerk(t: float) -> float:
    """From 0 to 1 with speed and acceleration 0 at both ends."""
    return t * t * t * (10.0 + t * (6.0 * t - 15.0))


def trajectory(length: int, yaw: float, carry: float) -> np.ndarray:
    """`[S, 8]`: the way to a cube at angle `yaw` and on to `carry`, rounded to 10 µrad.

    Rounding hides the last bit of sine and cosine, in which machines differ.
    """
    points = [list(point) for point in (START, REACHED, GRASPED, CARRIED)]
    points[1][0] = yaw
    points[2][0] = yaw + 0.004
    points[3][0] = carry
    for joint in range(1, 7):  # goals that differ in every joint
        points[3][joint] += 0.1 * carry
    rows = []
    for i in range(length):
        place = i / (length - 1) * (len(points) - 1)
        leg = min(int(place), len(points) - 2)
        part = minimum_jerk(place - leg)
        pair = zip(points[leg], points[leg + 1], strict=True)
        rows.append([round(a + (b - a) * part, 5) for a, b in pair])
    return np.array(rows)


def forward(joints: np.ndarray) -> np.ndarray:
    """The pose of the flange as a 4x4 matrix."""
    pose = np.eye(4)
    for (a, d, alpha), theta in zip(LINKS, [*joints, 0.0], strict=True):
        ct, st, ca, sa = math.cos(theta), math.sin(theta), math.cos(alpha), math.sin(alpha)
        link = [
            [ct, -st, 0.0, a],
            [st * ca, ct * ca, -sa, -d * sa],
            [st * sa, ct * sa, ca, d * ca],
            [0.0, 0.0, 0.0, 1.0],
        ]
        pose = pose @ np.array(link)
    return pose


def quaternion(m: np.ndarray) -> np.ndarray:
    """xyzw of a rotation matrix, from the largest component, which is never near 0."""
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    squares = [1 + 2 * m[i, i] - trace for i in range(3)] + [1 + trace]
    largest = int(np.argmax(squares))
    if largest == 3:
        parts = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], squares[3]]
    else:
        i, j, k = largest, (largest + 1) % 3, (largest + 2) % 3
        parts = [0.0, 0.0, 0.0, m[k, j] - m[j, k]]
        parts[i], parts[j], parts[k] = squares[i], m[i, j] + m[j, i], m[i, k] + m[k, i]
    return np.array(parts) / math.sqrt(math.fsum(p * p for p in parts))


def poses(states: np.ndarray) -> np.ndarray:
    """`[S, 7]`: positions and quaternions whose sign does not jump, rounded to 1e-6."""
    rows: list[np.ndarray] = []
    for state in states:
        matrix = forward(state[:7])
        turn = quaternion(matrix)
        if rows and float(turn @ rows[-1][3:]) < 0:
            turn = -turn
        rows.append(np.round(np.concatenate([matrix[:3, 3], turn]), 6) + 0.0)
    return np.stack(rows)


def square(image: np.ndarray, row: int, column: int, size: int, colour: tuple) -> None:
    top, left = max(row - size, 0), max(column - size, 0)
    image[top : max(row + size, 0), left : max(column + size, 0)] = colour


def top_view(pose: np.ndarray, cube: np.ndarray, colour: tuple) -> np.ndarray:
    """48x64: 5 mm per pixel of the table, the cube and the gripper."""
    rows, columns = np.mgrid[0:48, 0:64]
    image = np.stack([90 + rows, 100 + columns, 110 + rows // 2], axis=-1).astype(np.uint8)
    square(image, 124 - round(cube[0] * 200), 32 + round(cube[1] * 200), 4, colour)
    square(image, 124 - round(pose[0] * 200), 32 + round(pose[1] * 200), 3, (30, 30, 30))
    return image


def wrist_view(pose: np.ndarray, cube: np.ndarray, colour: tuple) -> np.ndarray:
    """16x24: the cube grows as the flange comes down to it."""
    image = np.full((16, 24, 3), (120, 118, 110), np.uint8)
    image[:, ::6] = (90, 90, 96)
    offset = np.clip(np.round((cube[:2] - pose[:2]) * 100), -40, 40).astype(int)
    size = int(np.clip(round(0.7 / max(pose[2] - cube[2], 0.1)), 1, 7))
    square(image, 8 - offset[0], 12 + offset[1], size, colour)
    return image


def episode(length: int, yaw: float, carry: float, task: int, wrist: bool) -> Episode:
    states = trajectory(length, yaw, carry)
    pose = poses(states)
    grasp = next(i for i in range(length) if states[i, 7] <= 0.031)
    cube = pose[:, :3].copy()
    cube[:grasp] = cube[grasp]
    cube[:, 2] -= 0.1
    last = np.arange(length) == length - 1
    values = {
        "observation.state": states.astype(np.float32),
        "observation.ee_pose": pose.astype(np.float32),
        # The command of a step is where the arm is at the next.
        "action": np.concatenate([states[1:], states[-1:]]).astype(np.float32),
        "next.reward": last.astype(np.float32),
        "next.done": last,
        "observation.images.top": views(top_view, pose, cube, task),
    }
    if wrist:
        values["observation.images.wrist"] = views(wrist_view, pose, cube, task)
    return Episode(values, (TASKS[task],))


def views(draw, pose: np.ndarray, cube: np.ndarray, task: int) -> np.ndarray:
    return np.stack([draw(p, c, COLOURS[task]) for p, c in zip(pose, cube, strict=True)])


def features(codec: str, wrist: bool) -> dict[str, Feature]:
    found = {
        "observation.state": Feature("float32", (8,), [*ARM, "gripper"]),
        "observation.ee_pose": Feature("float32", (7,), POSE),
        "action": Feature("float32", (8,), [*ARM, "gripper"]),
        "next.reward": Feature("float32"),
        "next.done": Feature("bool"),
        "observation.images.top": Feature("video", (48, 64, 3), PICTURE, codec),
    }
    if wrist:
        found["observation.images.wrist"] = Feature("image", (16, 24, 3), PICTURE, "png")
    return found


# Length, angle of the cube, angle of the goal, task.
NEW = [(40, 0.1, -0.15, 0), (24, -0.08, 0.12, 1), (60, 0.15, -0.1, 0), (33, 0.05, 0.2, 1)]
NEW += [(20, -0.12, 0.05, 0)]
OLD = [(45, 0.12, -0.12, 0), (20, -0.1, 0.1, 1), (32, 0.1, -0.05, 0)]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    new = Layout(episodes_per_file=3, episodes_per_video=2, slim=True)
    old = Layout("v2.1", fps=20)
    for name, layout, codec, rows in (
        ("lerobot_v30", new, "av1", NEW),
        ("lerobot_v21", old, "h264", OLD),
    ):
        wrist = layout is new
        shutil.rmtree(folder / name, ignore_errors=True)
        made = [episode(*row, wrist=wrist) for row in rows]
        write(folder / name, features(codec, wrist), made, layout)


if __name__ == "__main__":
    main()
