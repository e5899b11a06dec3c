"""Pictures of datasets: frames equal to PyAV's, images to their own pixels, and the sample files."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import robocache as rc
from dataset_reference import (
    TESTDATA,
    Reference,
    assert_equal,
    pa,
    pq,
    repository,
    shared_data,
)
from helpers import assert_same_bits
from lerobot_edit import CAMERA
from lerobot_faults import FAULTS
from lerobot_files import (
    GR00T,
    IMAGES,
    PICTURE,
    VECTORS,
    VIDEOS,
    Episode,
    Feature,
    Layout,
    hub_cache,
    sample,
    write,
)

STATE = {"observation.state": VECTORS["observation.state"]}
WRIST = "observation.images.wrist"


# -- videos -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lerobot_v30", "lerobot_v21"])
def test_the_samples_in_the_tree(name):
    root = TESTDATA / name
    assert_equal(rc.dataset(root), root, pictures=True)


def test_the_real_sample_of_version_3():
    root = shared_data("lerobot_v30")
    assert_equal(rc.dataset(root), root, pictures=True)


def test_the_real_sample_of_groot():
    """Stamps start at 0.05 s, the video at 0; one declared camera has no files."""
    root = shared_data("lerobot_v20")
    ds, reference = rc.dataset(root), Reference(root)
    for at in (0, 4):
        stream = ds.episode(at)["observation.images.ego_view"]
        assert_same_bits(stream.values, reference.frames(at, "observation.images.ego_view"))
        assert_same_bits(stream.times, reference.times(at))
    missing = "observation.images.egoview"
    assert ds.streams[missing].kind == "video"
    assert tuple(ds.streams[missing].shape) == (800, 1280, 3)
    with pytest.raises(rc.FileError, match=missing):
        _ = ds.episode(0)[missing].values
    assert ds.episode(0)["action"].values.shape == (416, 44)


VIDEO_LAYOUTS = {
    "v3.0": Layout(),
    "v3.0, a video per episode": Layout(episodes_per_video=1),
    "v3.0, one video": Layout(episodes_per_video=5),
    "v3.0, chunks": Layout(episodes_per_video=1, chunks_size=2),
    "v3.0, 29.97": Layout(fps=29.97),
    "v3.0, 10": Layout(fps=10),
    "v3.0, without details": Layout(omit=frozenset({"video info", "names"})),
    "v2.1": Layout("v2.1"),
    "v2.1, chunks": Layout("v2.1", chunks_size=2),
    "v2.0": Layout("v2.0"),
    "GR00T": GR00T,
}


@pytest.mark.parametrize("layout", VIDEO_LAYOUTS.values(), ids=VIDEO_LAYOUTS.keys())
def test_frames_of_every_layout(tmp_path, layout):
    root = sample(tmp_path, layout, {**STATE, **VIDEOS})
    assert_equal(rc.dataset(root), root, pictures=True)


@pytest.mark.parametrize("codec", ["h264", "h264_g2", "av1", "mpeg4", "hevc"])
def test_frames_of_every_codec(tmp_path, codec):
    features = {CAMERA: replace(VIDEOS[CAMERA], codec=codec), **STATE}
    root = sample(tmp_path, Layout(), features)
    assert_equal(rc.dataset(root), root, pictures=True)


def test_cameras_of_different_sizes(tmp_path):
    """Each camera has its own file, place and size."""
    features = {
        **STATE,
        CAMERA: VIDEOS[CAMERA],
        "observation.images.side": Feature("video", (32, 96, 3), PICTURE, "av1"),
        **IMAGES,
    }
    root = sample(tmp_path, Layout(episodes_per_video=2), features)
    assert_equal(rc.dataset(root), root, pictures=True)


def test_frames_in_any_order_and_by_several_threads():
    root = TESTDATA / "lerobot_v30"
    ds, reference = rc.dataset(root), Reference(root)
    want = [reference.frames(at, CAMERA) for at in range(5)]
    failures: list[int] = []

    def read(seed: int) -> None:
        for at in np.random.default_rng(seed).permutation(5).tolist():
            if not np.array_equal(ds.episode(at)[CAMERA].values, want[at]):
                failures.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_frames_through_the_links_of_a_hub_cache(tmp_path):
    root = sample(tmp_path / "plain", Layout(), {**STATE, **VIDEOS, **IMAGES})
    snapshot = hub_cache(root, tmp_path / "cache")
    assert_equal(rc.dataset(snapshot), root, pictures=True)


def test_a_folder_with_a_hostile_name(tmp_path):
    """Names that a command line, a format or a shell would take for something else."""
    root = sample(tmp_path / "-i %03d 'x' $(id) ünï\n;", Layout(), {**STATE, **VIDEOS})
    assert_equal(rc.dataset(root), root, pictures=True)


def test_pictures_that_come_a_little_late(tmp_path):
    """A camera with a free clock: the nearest picture is taken, never its neighbour."""
    root = sample(tmp_path, Layout("v2.1"), {**STATE, **VIDEOS})
    FAULTS["video_jitter"](root)
    assert_equal(rc.dataset(root), root, pictures=True)


def test_a_wrong_label_of_the_codec_does_no_harm(tmp_path):
    root = sample(tmp_path, Layout(), {**STATE, **VIDEOS})
    FAULTS["codec_label_wrong"](root)
    assert_equal(rc.dataset(root), root, pictures=True)


DEPTH = "observation.images.depth"
RANGE = {"video.depth_min": 0.01, "video.depth_max": 10.0, "video.shift": 3.5}


def write_depth(root: Path, notes: dict) -> np.ndarray:
    """One episode of a camera of distances; gives the codes that its video holds."""
    codes = np.random.default_rng(12).integers(0, 4096, (5, 48, 64, 1), np.uint16)
    feature = Feature("video", (48, 64, 1), PICTURE, "hevc_depth", notes)
    state = np.zeros((5, 8), np.float32)
    features = {**STATE, DEPTH: feature}
    write(root, features, [Episode({"observation.state": state, DEPTH: codes}, ("go",))], Layout())
    return codes


@pytest.mark.parametrize("logarithmic", [True, False])
def test_depth_is_given_in_millimetres(tmp_path, logarithmic):
    codes = write_depth(tmp_path, {**RANGE, "video.use_log": logarithmic})
    ds = rc.dataset(tmp_path)
    info = ds.streams[DEPTH]
    assert (info.kind, info.dtype, tuple(info.shape)) == ("depth", "uint16", (48, 64, 1))
    part = codes / 4095
    low, high = (np.log([3.51, 13.5])) if logarithmic else (0.01, 10.0)
    metres = low + part * (high - low)
    want = (np.exp(metres) - 3.5 if logarithmic else metres) * 1000
    got = ds.episode(0)[DEPTH].values
    assert got.dtype == np.uint16 and got.shape == (5, 48, 64, 1)
    assert np.abs(got - want).max() <= 0.501


def test_depth_that_does_not_say_what_it_means(tmp_path):
    write_depth(tmp_path, {})
    ds = rc.dataset(tmp_path)
    assert DEPTH not in ds.streams and DEPTH not in ds.episode(0)
    with pytest.raises(rc.Unsupported, match=r"left out: info\.json.*depth_min"):
        _ = ds.episode(0)[DEPTH]
    assert ("warning", DEPTH) in [(f.level, f.stream) for f in ds.check()]
    assert ds.episode(0)["observation.state"].values.shape == (5, 8)


NO_FFMPEG = """
import sys
import numpy, robocache as rc
sys.path = [p for p in sys.path if not p.endswith("-packages")]
episode = rc.dataset(sys.argv[1]).episode(0)
print(episode["action"].values.shape, episode["observation.images.wrist"].values.shape)
try:
    episode["observation.images.top"].values
except rc.RoboCacheError as error:
    print(type(error).__name__, error)
print(episode["action"].values.shape)
"""


def test_without_ffmpeg_all_but_videos_work(tmp_path):
    environment = {**os.environ, "ROBOCACHE_FFMPEG": "", "PATH": str(tmp_path)}
    command = [sys.executable, "-c", NO_FFMPEG, str(TESTDATA / "lerobot_v30")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shapes, error, after = done.stdout.splitlines()
    assert shapes == "(40, 8) (40, 16, 24, 3)" and after == "(40, 8)"
    assert error.startswith("Unsupported"), error
    assert "pip install imageio-ffmpeg" in error and "ROBOCACHE_FFMPEG" in error, error


# -- images in parquet ------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v3.0", "v2.1", "v2.0"])
@pytest.mark.parametrize("row_groups", ["episode", "file"])
def test_png_images(tmp_path, version, row_groups):
    root = sample(tmp_path, Layout(version, row_groups=row_groups), {**STATE, **IMAGES})
    assert_equal(rc.dataset(root), root, pictures=True)


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 7, 3), (17, 3, 3), (64, 33, 3)])
def test_png_images_of_odd_sizes(tmp_path, shape):
    root = sample(tmp_path, Layout(), {WRIST: Feature("image", shape, PICTURE, "png")}, (3, 2))
    assert_equal(rc.dataset(root), root, pictures=True)


def test_jpeg_images(tmp_path):
    """Decoders of JPEG may round differently, by a few steps of 255."""
    root = sample(tmp_path, Layout(), {WRIST: Feature("image", (32, 48, 3), PICTURE, "jpeg")})
    ds, reference = rc.dataset(root), Reference(root)
    for at in range(len(ds)):
        got = ds.episode(at)[WRIST].values.astype(int)
        want = reference.values(at, WRIST).astype(int)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 4 and np.abs(got - want).mean() < 0.7


def test_shapes_with_channels_first(tmp_path):
    """Older datasets declare (3, H, W); pictures come out as [H, W, C] in any case."""
    names = ["channels", "height", "width"]
    root = sample(tmp_path, Layout(), {**STATE, **VIDEOS, **IMAGES}, (4, 3))
    info = json.loads((root / "meta" / "info.json").read_text())
    for key, size in ((CAMERA, [3, 48, 64]), (WRIST, [3, 16, 24])):
        info["features"][key] |= {"shape": size, "names": names}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    ds = rc.dataset(root)
    assert tuple(ds.streams[CAMERA].shape) == (48, 64, 3)
    assert ds.episode(1)[CAMERA].values.shape == (3, 48, 64, 3)
    assert ds.episode(1)[WRIST].values.shape == (3, 16, 24, 3)


# -- the files in the tree --------------------------------------------------------------------


def files_below(root: Path) -> dict[str, Path]:
    return {str(p.relative_to(root)): p for p in sorted(root.rglob("*")) if p.is_file()}


def test_the_script_makes_exactly_these_files(tmp_path):
    """Nobody edited a sample by hand, and nobody edited the script without running it."""
    script = TESTDATA / "make_lerobot.py"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(script), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, env=environment)
    # The packages are pinned; other processors may compress other bytes to the same content.
    same_machine = platform.machine() == "x86_64" and sys.platform == "linux"
    size = 0
    for name in ("lerobot_v30", "lerobot_v21"):
        made, kept = files_below(tmp_path / name), files_below(TESTDATA / name)
        assert made.keys() == kept.keys()
        for file, path in kept.items():
            size += path.stat().st_size
            if path.suffix == ".parquet" and not same_machine:
                assert pq.read_table(made[file]).equals(pq.read_table(path)), file
            elif path.suffix != ".mp4":
                assert made[file].read_bytes() == path.read_bytes(), file
    assert size < 300 << 10


def test_the_samples_look_like_lerobots_own():
    """The same keys, columns and types as a dataset that LeRobot itself wrote."""
    real, ours = shared_data("lerobot_v30"), repository() / "testdata" / "lerobot_v30"
    info, our_info = (json.loads((r / "meta" / "info.json").read_text()) for r in (real, ours))
    assert list(our_info) == list(info)
    assert our_info["features"][CAMERA].keys() == info["features"][CAMERA].keys()
    assert our_info["features"][CAMERA]["info"].keys() == info["features"][CAMERA]["info"].keys()
    for file in ("meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"):
        schema, our_schema = (pq.read_schema(r / file) for r in (real, ours))
        for field in schema:
            assert our_schema.field(field.name).type == field.type, field.name
    schema, our_schema = (
        pq.read_schema(r / "data/chunk-000/file-000.parquet") for r in (real, ours)
    )
    assert our_schema.field("action").type == pa.list_(pa.float32(), 8)
    for name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
        assert our_schema.field(name).type == schema.field(name).type
    assert b"huggingface" in our_schema.metadata
    stats = [json.loads((r / "meta" / "stats.json").read_text()) for r in (real, ours)]
    assert stats[0]["action"].keys() == stats[1]["action"].keys()
    assert np.shape(stats[1][CAMERA]["mean"]) == np.shape(stats[0][CAMERA]["mean"]) == (3, 1, 1)
