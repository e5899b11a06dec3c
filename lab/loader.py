"""Batches per second beside the LeRobot library's own loader, on the same dataset.

Datasets are made: numbers only, one small camera, two cameras of 480 x 640 that the cache keeps at
224 x 224. Windows are of frames, as LeRobot asks for them; once they are at 50 Hz, between the frames of 30,
which LeRobot refuses. Each loader runs in a process of its own, one after the other; LeRobot's with as many
workers as there are cores, as its training script does. Where LeRobot is not installed, only ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import ROOT, Record, Target, number, options, package_version, print_table, setup
from timing import neighbours

FPS, CHUNK, BATCH = 30, 16, 64
Deltas = dict[str, list[float]]
DELTAS: Deltas = {"observation.state": [-1 / FPS, 0.0], "action": [i / FPS for i in range(CHUNK)]}
BETWEEN: Deltas = {"observation.state": [-1 / 50, 0.0], "action": [i / 50 for i in range(CHUNK)]}
JOINTS = 14
# Name, episodes, frames of each, cameras (height, width), size in the cache, times LeRobot's speed if it can do it.
ROWS: list[tuple[str, int, int, list[tuple[int, int]], int | None, float | None]] = [
    ("numbers", 50, 400, [], None, 1000),
    ("numbers between frames", 50, 400, [], None, None),
    ("small camera", 10, 300, [(96, 96)], None, 50),
    ("two cameras", 6, 200, [(480, 640), (480, 640)], 224, 20),
]
WINDOWS, RSS, FIRST_BATCH = 500_000, 300e6, 0.5


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of rows, from 0")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        who, dataset, cache, deltas, seconds = args.child
        runner = ours if who == "ours" else theirs
        found = runner(Path(dataset), Path(cache), json.loads(deltas), float(seconds), args.threads)
        print(json.dumps(found))
        return
    rc = setup(args)
    record = Record("loader", args)
    has_lerobot = importlib.util.find_spec("lerobot") is not None
    record.versions["lerobot"] = package_version("lerobot") if has_lerobot else None
    table = []
    for place in args.rows if args.rows is not None else range(len(ROWS)):
        name, episodes, frames, cameras, size, times = ROWS[place]
        deltas = BETWEEN if times is None else DELTAS
        with tempfile.TemporaryDirectory() as folder:
            dataset, cache = Path(folder) / "dataset", Path(folder) / "cache"
            write(dataset, episodes, frames, cameras)
            rc.ingest(dataset, cache, image_size=size, progress=False)
            compare(dataset, cache, deltas)
            with neighbours() as others:
                row: dict[str, Any] = {"name": name, "episodes": episodes, "frames": frames}
                row["cameras"], row["kept_at"], row["batch"] = cameras, size, BATCH
                row["ours"] = child("ours", dataset, cache, deltas, args)
                can = has_lerobot and times is not None
                row["lerobot"] = child("theirs", dataset, cache, deltas, args) if can else None
            row["other_cores"] = others[0] if others else None
        mine, lerobot = row["ours"], row["lerobot"]
        targets = [
            Target("first batch", mine["first_batch_seconds"], FIRST_BATCH, False, " s"),
            Target("memory without the page cache", mine["peak_rss"], RSS, False, " B"),
        ]
        if not cameras and times is not None:
            targets.append(Target("windows per second", mine["windows_per_second"], WINDOWS, True))
        if lerobot and times is not None:
            row["ratio"] = mine["windows_per_second"] / lerobot["windows_per_second"]
            targets.append(Target("times LeRobot", row["ratio"], times, True))
        row["targets"] = [target.json() for target in targets]
        record.rows.append(row)
        table.append(
            [
                name,
                number(mine["windows_per_second"]),
                number(lerobot["windows_per_second"]) if lerobot else "-",
                number(row.get("ratio")),
                number(mine["first_batch_seconds"] * 1e3),
                number(mine["peak_rss"] / 1e6),
            ]
        )
        print(f"\n{name}")
        for target in targets:
            print(f"  {target}")
    print()
    print_table(["dataset", "windows/s", "LeRobot", "ratio", "first ms", "RSS MB"], table)
    record.finish()


def child(
    who: str, dataset: Path, cache: Path, deltas: Deltas, args: argparse.Namespace
) -> dict[str, Any]:
    words = [str(dataset), str(cache), json.dumps(deltas), str(args.seconds)]
    command = [sys.executable, __file__, "--threads", str(args.threads), "--child", who, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"lab: {who}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def count(batches: Iterator[Any], seconds: float) -> dict[str, float]:
    """Windows per second over whole passes; the first batch apart."""
    start = time.perf_counter()
    next(batches)
    first = time.perf_counter() - start
    seen, start = 0, time.perf_counter()
    for batch in batches:
        seen += len(batch["index"])
        if time.perf_counter() - start >= seconds:
            break
    return {
        "windows_per_second": seen / (time.perf_counter() - start),
        "first_batch_seconds": first,
    }


def for_ever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def ours(
    _dataset: Path, path: Path, deltas: Deltas, seconds: float, threads: int
) -> dict[str, float]:
    """Our loader, shuffled, with all that LeRobot's samples have."""
    memory = Memory()
    import torch

    import robocache as rc

    torch.set_num_threads(threads)
    start = time.perf_counter()
    cache = rc.open(path)
    loader = rc.Loader(
        cache, BATCH, delta_timestamps=deltas, threads=threads, image_dtype="float32"
    )
    opening = time.perf_counter() - start
    result = count(for_ever(loader), seconds)
    result["first_batch_seconds"] += opening
    return result | {"peak_rss": memory.peak()}


def theirs(
    path: Path, _cache: Path, deltas: Deltas, seconds: float, threads: int
) -> dict[str, float]:
    """LeRobot's dataset in torch's DataLoader, as its training script sets it up."""
    import torch
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    start = time.perf_counter()
    dataset = LeRobotDataset("lab/made", root=path, delta_timestamps=deltas)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=threads,
        drop_last=False,
        prefetch_factor=2,
        persistent_workers=True,
    )
    opening = time.perf_counter() - start
    result = count(for_ever(loader), max(seconds, 10.0))
    result["first_batch_seconds"] += opening
    return result


def compare(dataset: Path, cache: Path, deltas: Deltas) -> None:
    """Some windows of numbers by another way: rows of the files or lines between them, clamped at the episode's ends."""
    import numpy as np

    import robocache as rc

    source, windows = rc.dataset(dataset), rc.open(cache).windows(delta_timestamps=deltas)
    rng = np.random.default_rng(0)
    for place in rng.integers(len(windows), size=50).tolist():
        sample = windows[place]
        episode = source.episode(int(sample["episode_index"]))
        actions = episode["action"].values
        frames = int(sample["frame_index"]) + np.array(deltas["action"]) * FPS
        # Times of frames are theirs exactly, and nothing is blended there.
        on_frames = np.allclose(frames, np.rint(frames), rtol=0, atol=1e-6)
        frames, tolerance = (np.rint(frames), 0.0) if on_frames else (frames, 2e-6)
        known = np.arange(len(actions))
        expected = np.stack([np.interp(frames, known, column) for column in actions.T], axis=1)
        if not np.allclose(sample["action"].numpy(), expected, rtol=tolerance, atol=tolerance):
            sys.exit(f"lab: sample {place} is wrong")
        if not np.array_equal(sample["action_is_pad"].numpy(), frames > known[-1]):
            sys.exit(f"lab: the padding of sample {place} is wrong")


def write(root: Path, episodes: int, frames: int, cameras: list[tuple[int, int]]) -> None:
    """A dataset as LeRobot 0.4 writes it."""
    sys.path.insert(0, str(ROOT / "crates" / "robocache-py" / "tests"))
    from lerobot_files import Layout, sample
    from lerobot_parts import Feature

    names = [f"joint_{i}" for i in range(JOINTS)]
    features = {
        "observation.state": Feature("float32", (JOINTS,), names),
        "action": Feature("float32", (JOINTS,), names),
    }
    for place, (height, width) in enumerate(cameras):
        shape = (height, width, 3)
        features[f"observation.images.cam{place}"] = Feature("video", shape, None, "h264")
    layout = Layout(fps=FPS, episodes_per_file=episodes, episodes_per_video=episodes)
    sample(root, layout, features, [frames] * episodes)


class Memory:
    """The most memory of this process that is not the page cache's, looked at all the time."""

    def __init__(self) -> None:
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(0.01):
            self._most = max(self._most, self._now())

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0

    def peak(self) -> int:
        self._ended.set()
        self._thread.join()
        return max(self._most, self._now())


if __name__ == "__main__":
    main()
