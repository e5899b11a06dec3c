"""From LeRobot's DataLoader to RoboCache in five lines.

    python examples/from_lerobot.py [DATASET]

Before:

    dataset = LeRobotDataset(repo_id, delta_timestamps=deltas)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
    stats, features, fps = dataset.meta.stats, dataset.meta.features, dataset.meta.fps

After: the lines between the rulers. Keys, shapes, `_is_pad` and `task` of the batches are LeRobot's, so
the policy, its processors and the training loop stay as they are. Where LeRobot is installed, this
script compares some samples with its own.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import torch

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "lerobot_v30"


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE
    deltas = {"observation.state": [-1 / 30, 0.0], "action": [i / 30 for i in range(16)]}
    folder = tempfile.mkdtemp()

    # ---------------------------------------------------------------------------------------
    rc.ingest(source, f"{folder}/cache", progress=False)  # once; later runs only open it
    cache = rc.open(f"{folder}/cache")
    loader = rc.Loader(cache, 64, delta_timestamps=deltas, image_dtype="float32")
    stats, features, fps = cache.meta.stats, cache.meta.features, cache.meta.fps
    batch = next(iter(loader))
    # ---------------------------------------------------------------------------------------

    print(
        f"{len(loader)} batches at {fps} Hz; {len(features)} features, {len(stats)} with statistics"
    )
    for key, value in batch.items():
        print(f"  {key}: {tuple(value.shape) if isinstance(value, torch.Tensor) else value[:1]}")
    if importlib.util.find_spec("lerobot") is None:
        print("LeRobot is not installed: nothing to compare with")
        return
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    theirs = LeRobotDataset("local/sample", root=source, delta_timestamps=deltas)
    ours = cache.windows(delta_timestamps=deltas)
    for place in range(0, len(ours), 50):
        for key in ("action", "action_is_pad", "observation.state"):
            assert torch.equal(ours[place][key], theirs[place][key]), (place, key)
    print("equal to LeRobot's own samples")


if __name__ == "__main__":
    main()
