"""Windows beside those of the LeRobot library itself; skipped where it is not installed."""

from __future__ import annotations

import pytest
import torch

import robocache as rc
from lerobot_library import SAMPLE, leave_out_videos, lerobot_dataset, with_decoder

pytestmark = pytest.mark.slow
FPS = 30
DELTAS = {"observation.state": [-1 / FPS, 0.0], "action": [i / FPS for i in range(16)]}
QUATERNIONS = {"observation.ee_pose": slice(3, 7)}


def test_every_sample_is_the_librarys(tmp_path, monkeypatch):
    theirs = lerobot_dataset(delta_timestamps=DELTAS)
    leave_out_videos(monkeypatch, theirs)
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
                got = sample[key].to(wanted.dtype)
                if (part := QUATERNIONS.get(key)) is not None:
                    # Ours have length 1, as slerp gives them; LeRobot's are as stored.
                    unit = wanted[part].double() / wanted[part].double().norm()
                    assert torch.allclose(got[part].double(), unit, rtol=0, atol=3e-7), number
                    got[part] = wanted[part]
                assert torch.equal(got, wanted), (number, key)
        assert set(DELTAS) < set(sample)


@pytest.mark.parametrize(("images", "least"), [("raw", 44.0), ("jpeg", 30.0)])
def test_pictures_are_the_librarys(tmp_path, images, least):
    """Raw pictures differ by the colour conversion of the two decoders, JPEG by its quality too."""
    deltas = {"observation.images.top": [-1 / FPS, 0.0]}
    theirs = with_decoder(delta_timestamps=deltas)
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
