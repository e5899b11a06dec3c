"""Small caches for the tests of the loader: several sources, types, tasks and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache as rc

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from lerobot_files import GR00T, Episode, Layout, write
from lerobot_parts import Feature

SAMPLE = Path(__file__).resolve().parents[3] / "testdata" / "lerobot_v30"
FPS = 30
NUMBERS = {
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "bool",
}


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that tell one sample from the next."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return rng.normal(size=shape).astype(dtype)


def write_dataset(
    root: Path,
    episodes: Sequence[tuple[int, str | tuple[str, ...]]],
    *,
    features: dict[str, tuple[str, tuple[int, ...]]] | None = None,
    pictures: tuple[int, int] | None = None,
    text: bool = False,
    layout: Layout | None = None,
    seed: int = 0,
) -> Path:
    """A LeRobot dataset of episodes of (length, task or tasks)."""
    rng = np.random.default_rng(seed)
    chosen = features or {"observation.state": ("float32", (3,)), "action": ("float32", (2,))}
    declared: dict[str, Feature] = {name: Feature(d, s) for name, (d, s) in chosen.items()}
    if pictures is not None:
        names = ["height", "width", "channels"]
        declared["observation.images.cam"] = Feature("image", (*pictures, 3), names, "png")
    if text:
        declared["lang"] = Feature("string")
    made = []
    for length, task in episodes:
        values: dict[str, Any] = {
            name: numbers(rng, dtype, (length, *shape)) for name, (dtype, shape) in chosen.items()
        }
        if pictures is not None:
            shape = (length, *pictures, 3)
            values["observation.images.cam"] = rng.integers(0, 255, shape).astype(np.uint8)
        if text:
            values["lang"] = [f"{task} {at}" for at in range(length)]
        made.append(Episode(values, (task,) if isinstance(task, str) else task))
    return write(root, declared, made, layout or Layout(fps=FPS, stats=False))


def late_layout() -> Layout:
    """Stamps that start at 50 ms and are kept as they are."""
    return GR00T


def ingest(source: Path, out: Path, **options: Any) -> rc.Cache:
    """Ingests, adding to what is there, and opens."""
    rc.ingest(source, out, progress=False, **options)
    return rc.open(out)


def order(loader: rc.Loader) -> list[int]:
    """The numbers of the samples of the rest of an epoch."""
    return [number for batch in loader for number in batch["index"].tolist()]
