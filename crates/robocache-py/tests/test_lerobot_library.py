"""Windows beside those of the LeRobot library itself (0.4.4); skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import robocache as rc

pytestmark = pytest.mark.slow
SAMPLE = Path(__file__).resolve().parents[3] / "testdata" / "lerobot_v30"
FPS = 30
DELTAS = {"observation.state": [-1 / FPS, 0.0], "action": [i / FPS for i in range(16)]}


def test_every_sample_is_the_librarys(tmp_path):
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    if not SAMPLE.exists():
        pytest.skip("no sample data here")
    theirs = module.LeRobotDataset("local/sample", root=SAMPLE, delta_timestamps=DELTAS)
    theirs._query_videos = lambda *_: {}  # its decoders are not always installed
    rc.ingest(SAMPLE, tmp_path / "cache", images="skip", progress=False)
    ours = rc.open(tmp_path / "cache").windows(delta_timestamps=DELTAS)
    assert len(ours) == len(theirs)
    for number in range(len(theirs)):
        expected, sample = theirs[number], ours[number]
        for key, value in expected.items():
            if key == "task":
                assert sample[key] == value
            elif key == "timestamp":
                assert abs(float(sample[key]) - float(value)) < 1e-6
            elif key in sample:
                wanted = torch.as_tensor(value)
                assert sample[key].shape == wanted.shape, (number, key)
                assert torch.equal(sample[key].to(wanted.dtype), wanted), (number, key)
        assert set(DELTAS) < set(sample)


@pytest.mark.parametrize(("images", "least"), [("raw", 44.0), ("jpeg", 30.0)])
def test_pictures_are_the_librarys(tmp_path, images, least):
    """Raw pictures differ by the colour conversion of the two decoders, JPEG by its quality too."""
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    if not SAMPLE.exists():
        pytest.skip("no sample data here")
    deltas = {"observation.images.top": [-1 / FPS, 0.0]}
    theirs = module.LeRobotDataset("local/sample", root=SAMPLE, delta_timestamps=deltas)
    try:
        theirs[0]
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"the library cannot decode video here: {error}")
    rc.ingest(SAMPLE, tmp_path / "cache", images=images, progress=False)
    ours = rc.open(tmp_path / "cache").windows(delta_timestamps=deltas, image_dtype="float32")
    for number in range(0, len(theirs), 7):
        expected, sample = theirs[number], ours[number]
        assert torch.equal(
            sample["observation.images.top_is_pad"], expected["observation.images.top_is_pad"]
        )
        for key in ("observation.images.top", "observation.images.wrist"):
            if key not in expected:
                continue
            assert sample[key].shape == expected[key].shape, (number, key)
            error = torch.mean((sample[key] - expected[key]) ** 2).clamp(min=1e-12)
            assert -10 * torch.log10(error) > least, (number, key)
