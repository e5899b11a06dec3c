"""A robot from a URDF or from parameters: poses, Jacobians, and where inverse kinematics finds solutions.

    python examples/robot_arm.py [robot.urdf] [tip]

Writes a picture: a cut through the workspace, coloured by the share of poses that were solved.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import robocache as rc

PANDA = [  # Franka's own parameters (modified Denavit-Hartenberg)
    (0, 0, 0.333, 0),
    (0, -np.pi / 2, 0, 0),
    (0, np.pi / 2, 0.316, 0),
    (0.0825, np.pi / 2, 0, 0),
    (-0.0825, -np.pi / 2, 0.384, 0),
    (0, np.pi / 2, 0, 0),
    (0.088, np.pi / 2, 0.107, 0),
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

if len(sys.argv) > 1:
    robot = rc.Robot.from_urdf(sys.argv[1], tip=sys.argv[2] if len(sys.argv) > 2 else None)
else:
    robot = rc.Robot.from_dh(PANDA, "modified", LIMITS)
print(robot)

# Forward: random positions, the poses of the tip, and how it moves with the joints.
rng = np.random.default_rng(0)
low, high = np.clip(robot.limits, -np.pi, np.pi).T
q = rng.uniform(low, high, (2000, robot.num_joints))
jacobian, pose = robot.jacobian(q, return_pose=True)
print("poses", pose.shape, "Jacobians", jacobian.shape)

# Back: every one of these poses can be reached.
found = robot.ik(pose)
again = robot.fk(found.q[found.converged])
far = np.linalg.norm(again[:, :3] - pose[found.converged, :3], axis=1).max()
print(f"{found.converged.mean():.1%} solved, at most {far * 1e3:.2f} mm from where they should be")

# The gripper straight down, over a cut through the workspace: where is that possible?
reach = 1.2 * np.abs(pose[:, :3]).max()
x, z = np.meshgrid(np.linspace(0, reach, 48), np.linspace(-reach / 2, reach, 72), indexing="ij")
down = np.zeros((*x.shape, 7))
down[..., 0], down[..., 2], down[..., 3] = x, z, 1.0
solved = robot.ik(down, seeds=8)

cell = 8
rects = [
    f'<rect x="{i * cell}" y="{(71 - j) * cell}" width="{cell}" height="{cell}" '
    f'fill="{"#16a34a" if solved.converged[i, j] else "#e2e8f0"}"/>'
    for i in range(48)
    for j in range(72)
]
size = f'width="{48 * cell}" height="{72 * cell}"'
picture = Path(tempfile.gettempdir()) / "workspace.svg"
picture.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(rects)}</svg>\n')
print(f"{picture}: the gripper can point down in {solved.converged.mean():.1%} of the cut")
