"""What windows hold between samples: every method, streams aligned together, equal stamps, pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest

import robocache as rc
from loader_data import FPS, ingest, late_layout, write_dataset


@pytest.mark.parametrize(
    "methods",
    ["slerp", "cubic", "angle", "next", [("cubic", 0, 2), ("nearest", 2, 3), ("angle", 3, 4)]],
    ids=str,
)
def test_every_method_between_frames_is_that_of_resample(tmp_path, methods):
    features = {"pose": ("float32", (4,))}
    write_dataset(tmp_path / "data", [(20, "a")], features=features)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    stream = cache.episode(0)["pose"]
    offsets = [-0.4 / FPS, 0.3 / FPS, 0.8 / FPS, 1.5 / FPS]
    windows = cache.windows(delta_timestamps={"pose": offsets}, methods={"pose": methods})
    for frame in (0, 1, 9, 18, 19):
        targets = stream.times[frame] + np.rint(np.array(offsets) * 1e9).astype(np.int64)
        want = rc.resample(stream.values, stream.times, targets, method=methods)
        np.testing.assert_array_equal(windows.batch([frame])["pose"][0], want, err_msg=str(frame))


ALIGNED = {
    "slerp": ("float32", 4),
    "linear": ("float32", 3),
    "angle": ("float32", 1),
    "cubic": ("float64", 2),
    "rot6d": ("float64", 6),
}


@pytest.mark.parametrize("normalize", [None, "mean_std"])
def test_streams_at_the_same_times_are_aligned_each_by_its_own_method(tmp_path, normalize):
    """In one call of the engine for each type, also where an episode lacks some of the streams."""
    features = {name: (dtype, (width,)) for name, (dtype, width) in ALIGNED.items()}
    features["flags"] = ("int16", (2,))
    write_dataset(tmp_path / "a", [(20, "a"), (9, "a")], features=features)
    write_dataset(tmp_path / "b", [(12, "a")], features={"linear": ("float32", (3,))}, seed=1)
    ingest(tmp_path / "a", tmp_path / "cache", tag="a")
    cache = ingest(tmp_path / "b", tmp_path / "cache", tag="b")
    methods = {name: name for name in ALIGNED} | {"flags": [("nearest", 0, 1), ("next", 1, 2)]}
    offsets = np.array([-0.4, 0.0, 0.3, 1.0, 1.7]) / FPS
    windows = cache.windows(
        delta_timestamps={name: offsets.tolist() for name in methods},
        methods=methods,
        normalize={"linear": normalize} if normalize else None,
    )
    frames = [0, 3, 19, 20, 24, 28, 29, 33]
    batch = windows.batch(frames)
    for place, frame in enumerate(frames):
        episode = cache.episode(int(batch["episode_index"][place]) if frame < 29 else 2)
        at = int(batch["frame_index"][place])
        for name, method in methods.items():
            got = batch[name][place].numpy().reshape(len(offsets), -1)
            if frame >= 29 and name != "linear":
                assert np.isnan(got).all() if name != "flags" else (got == 0).all()
                continue
            stream = episode[name]
            values = stream.values.reshape(len(stream.times), -1)
            targets = stream.times[at] + np.rint(offsets * 1e9).astype(np.int64)
            # What is as near as tolerance_s is that sample, with the sign of its quaternion.
            off = np.abs(stream.times - targets[:, None])
            targets = np.where(off.min(1) <= 1e5, stream.times[off.argmin(1)], targets)
            want = rc.resample(values, stream.times, targets, method=method)
            if normalize and name == "linear":
                stats = cache.stats[name]
                factor = 1 / np.asarray(stats["std"])
                want = ((want - np.asarray(stats["mean"])) * factor).astype(np.float32)
            np.testing.assert_array_equal(got, want, err_msg=f"{name} {frame}")


def test_more_streams_than_one_call_takes(tmp_path):
    names = [f"joint{at:02}" for at in range(40)]
    features = dict.fromkeys(names, ("float32", (2,)))
    write_dataset(tmp_path / "data", [(6, "a")], features=features)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    windows = cache.windows(delta_timestamps={name: [0.25 / FPS] for name in names})
    batch = windows.batch(range(5))
    for name in names:
        stream = cache.episode(0)[name]
        targets = stream.times[:5] + round(0.25e9 / FPS)
        want = rc.resample(stream.values, stream.times, targets)
        np.testing.assert_array_equal(batch[name][:, 0], want, err_msg=name)


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest", "previous", "next"])
def test_of_equal_stamps_the_last_counts(tmp_path, monkeypatch, method):
    """Stamps that files say, three times and twice the same, at both ends too."""
    seconds = 0.05 * np.array([1, 1, 1, 2, 3, 3, 4, 5, 5, 5, 6, 7, 7])
    monkeypatch.setattr("lerobot_files.stamps", lambda length, layout: seconds[:length])
    features = {"pose": ("float32", (2,))}
    write_dataset(tmp_path / "data", [(13, "a")], features=features, layout=late_layout())
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    stream = cache.episode(0)["pose"]
    np.testing.assert_allclose(stream.times * 1e-9, seconds)
    offsets = np.array([-9.0, -4.3, -2.6, -0.5, 0.0, 0.5, 1.2, 3.9, 8.0]) * 0.05
    windows = cache.windows(delta_timestamps={"pose": offsets.tolist()}, methods={"pose": method})
    batch = windows.batch(range(13))
    for frame in range(13):
        targets = stream.times[frame] + np.rint(offsets * 1e9).astype(np.int64)
        want = rc.resample(stream.values, stream.times, targets, method=method)
        np.testing.assert_array_equal(batch["pose"][frame], want, err_msg=str(frame))


def test_pictures_are_taken_as_a_whole(tmp_path):
    write_dataset(tmp_path / "data", [(6, "a")], pictures=(8, 8), text=True)
    halves = [("nearest", 0, 96), ("previous", 96, 192)]
    for name, methods in (("observation.images.cam", halves), ("lang", [("next", 0, 0)] * 2)):
        with pytest.raises(rc.InvalidArgument, match="for all"):
            rc.ingest(
                tmp_path / "data", tmp_path / "cache", methods={name: methods}, progress=False
            )
    cache = ingest(
        tmp_path / "data", tmp_path / "cache", methods={"observation.images.cam": "next"}
    )
    windows = cache.windows(delta_timestamps={"observation.images.cam": [0.0, 0.3 / FPS]})
    pictures = windows.batch(range(6))["observation.images.cam"]
    assert (pictures[:-1, 1] == pictures[1:, 0]).all()
    # Ingests took what they now refuse: such a cache gives pictures all the same.
    manifest = tmp_path / "cache" / "manifest.json"
    content = json.loads(manifest.read_text())
    camera = next(each for each in content["streams"] if each["name"] == "observation.images.cam")
    camera["method"] = [{"method": m, "start": a, "end": b} for m, a, b in halves]
    content.pop("crc32c")
    body = json.dumps(content, indent=2).removesuffix("\n}").encode()
    manifest.write_bytes(body + b',\n  "crc32c": "%08x"\n}' % crc32c(body))
    offsets = {"observation.images.cam": [0.0, 0.3 / FPS]}
    old = rc.open(tmp_path / "cache").windows(delta_timestamps=offsets)
    pictures = old.batch(range(6))["observation.images.cam"]
    assert pictures.any() and (pictures[:, 1] == pictures[:, 0]).all()


def crc32c(data: bytes) -> int:
    """The checksum of a cache's JSON files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
