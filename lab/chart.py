"""Draws docs/speed.svg, the chart of the README, from the records in results/."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
CHART = Path(__file__).parents[1] / "docs" / "speed.svg"
CPU, GPU = "intel-xeon-processor-2-50ghz-2-cores", "nvidia-h200"
WIDTH, LEFT, RIGHT, TOP, STEP = 800, 395, 740, 34, 26
MOST = 10_000


def loader(row: int) -> Callable[[dict[str, Any]], float]:
    return lambda record: record["rows"][row]["ratio"]


def mean(record: dict[str, Any]) -> float:
    return record["ceilings"]["summary"]["geometric_mean"]


def kinematics(record: dict[str, Any]) -> float:
    rates = record["rows"][0]["rows_per_s"]
    return rates["robocache"] / rates["pytorch_kinematics"]


# What, beside whom, from which record. Sweeps: random shapes, the geometric mean.
BARS: list[tuple[str, str, str, Callable[[dict[str, Any]], float]]] = [
    ("loader, joints and actions", "LeRobot", f"loader-{CPU}", loader(0)),
    ("loader, two cameras", "LeRobot", f"loader-{CPU}", loader(3)),
    ("forward kinematics, H200", "pytorch_kinematics", f"kinematics-{GPU}", kinematics),
    ("voxelize, CPU", "torch", f"sweep-voxelize-{CPU}", mean),
    ("fuse, CPU", "torch", f"sweep-fuse-{CPU}", mean),
    ("resample, CPU", "torch", f"sweep-resample-{CPU}", mean),
    ("fuse, H200", "torch.compile", f"sweep-fuse-{GPU}", mean),
    ("resample, H200", "torch.compile", f"sweep-resample-{GPU}", mean),
    ("voxelize, H200", "torch.compile", f"sweep-voxelize-{GPU}", mean),
]


def place(ratio: float) -> float:
    return LEFT + (RIGHT - LEFT) * math.log10(max(ratio, 1)) / math.log10(MOST)


def number(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def chart() -> str:
    height = TOP + STEP * len(BARS) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for power in range(int(math.log10(MOST)) + 1):
        x = place(10**power)
        lines.append(f'<path d="M{x:.1f} {TOP - 6}V{height - 8}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="20" text-anchor="middle">{10**power:,} x</text>')
    for line, (what, peer, name, ratio_of) in enumerate(BARS):
        ratio = ratio_of(json.loads((RESULTS / f"{name}.json").read_text()))
        top, end = TOP + STEP * line, place(ratio)
        lines.append(
            f'<text x="{LEFT - 10}" y="{top + 14}" text-anchor="end">{what}, beside {peer}</text>'
        )
        lines.append(
            f'<rect x="{LEFT}" y="{top}" width="{max(end - LEFT, 1):.1f}" height="18" fill="#276"/>'
        )
        lines.append(f'<text x="{end + 6:.1f}" y="{top + 14}">{number(ratio)}</text>')
    return "\n".join([*lines, "</svg>\n"])


if __name__ == "__main__":
    CHART.write_text(chart())
    print(f"written: {CHART.name}")
