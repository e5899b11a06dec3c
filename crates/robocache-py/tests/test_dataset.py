"""Datasets: what is in them, and numbers equal to pyarrow's bit for bit."""

from __future__ import annotations

import itertools
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import robocache as rc
from dataset_reference import TESTDATA, Reference, assert_equal, shared_data
from helpers import assert_same_bits
from lerobot_edit import data_file, edit_table
from lerobot_files import (
    ANNOTATIONS,
    ARM,
    ARRAYS,
    GR00T,
    SCALARS,
    TEXT,
    VECTORS,
    VERSIONS,
    Episode,
    Feature,
    Layout,
    hub_cache,
    sample,
    write,
)

NUMBERS = {**VECTORS, **SCALARS, **ARRAYS}


# -- what is in a dataset ---------------------------------------------------------------------


def test_the_sample_of_version_3():
    ds = rc.dataset(TESTDATA / "lerobot_v30")
    assert ds.format == "lerobot v3.0" and ds.fps == 30 and len(ds) == 5
    assert Path(ds.path) == TESTDATA / "lerobot_v30"
    tasks = ["Put the red cube into the tray", "Put the blue cube onto the shelf"]
    assert ds.tasks == tasks
    assert [e.length for e in ds.episodes] == [40, 24, 60, 33, 20]
    assert [e.index for e in ds.episodes] == [0, 1, 2, 3, 4]
    assert [e.tasks for e in ds.episodes] == [[tasks[i]] for i in (0, 1, 0, 1, 0)]
    assert [e.duration for e in ds.episodes] == pytest.approx(
        [n / 30 for n in (40, 24, 60, 33, 20)]
    )
    found = {
        name: (s.name, s.kind, s.dtype, tuple(s.shape), s.rate) for name, s in ds.streams.items()
    }
    assert found == {
        name: (name, kind, dtype, shape, 30.0)
        for name, kind, dtype, shape in [
            ("observation.state", "vector", "float32", (8,)),
            ("observation.ee_pose", "vector", "float32", (7,)),
            ("action", "vector", "float32", (8,)),
            ("next.reward", "scalar", "float32", (1,)),
            ("next.done", "scalar", "bool", (1,)),
            ("observation.images.top", "video", "uint8", (48, 64, 3)),
            ("observation.images.wrist", "image", "uint8", (16, 24, 3)),
            ("task_index", "scalar", "int64", (1,)),
        ]
    }
    assert ds.streams["observation.state"].names == [*ARM, "gripper"]
    assert ds.streams["next.reward"].names is None


def test_each_stream_has_its_method():
    """Quaternions slerp, pictures nearest, grippers and what cannot be blended previous."""
    streams = rc.dataset(TESTDATA / "lerobot_v30").streams
    assert {name: s.method for name, s in streams.items()} == {
        "observation.state": [("linear", 0, 7), ("previous", 7, 8)],
        "observation.ee_pose": [("linear", 0, 3), ("slerp", 3, 7)],
        "action": [("linear", 0, 7), ("previous", 7, 8)],
        "next.reward": "linear",
        "next.done": "previous",
        "observation.images.top": "nearest",
        "observation.images.wrist": "nearest",
        "task_index": "previous",
    }


def test_names_of_components_may_be_grouped(tmp_path):
    ds = rc.dataset(sample(tmp_path))
    assert ds.streams["action"].names == [*ARM, "gripper"]
    assert ds.streams["observation.torque"].names is None


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_known(tmp_path, version):
    layout = GR00T if version == "gr00t" else Layout(version)
    ds = rc.dataset(sample(tmp_path, layout))
    assert ds.format == f"lerobot {'v2.0' if version == 'gr00t' else version}"
    assert ds.tasks == ["pick the cube", "pläce the cube", "valid"]
    assert ds.episode(1).tasks == ["pläce the cube", "valid"]
    assert rc.dataset(str(tmp_path)).format == ds.format


def test_episodes_are_a_sequence():
    ds = rc.dataset(TESTDATA / "lerobot_v30")
    assert len(ds.episodes) == len(ds) == len(list(ds.episodes)) == 5
    assert ds.episodes[-1].index == ds.episode(-1).index == 4
    assert ds.episode(-5).index == 0
    with pytest.raises(IndexError):
        ds.episodes[5]


@pytest.mark.parametrize("at", [5, -6, 10**9, -(10**9)])
def test_an_episode_that_is_not_there(at):
    ds = rc.dataset(TESTDATA / "lerobot_v30")
    with pytest.raises(rc.InvalidArgument, match=r"-5 to 4.*lerobot_v30"):
        ds.episode(at)
    assert ds.episode(4).length == 20


def test_a_stream_that_is_not_there_is_told_from_those_that_are():
    episode = rc.dataset(TESTDATA / "lerobot_v30").episode(0)
    for name in ("observation.stat", "timestamp", "frame_index", "episode_index", "index", ""):
        with pytest.raises(rc.InvalidArgument) as caught:
            episode[name]
        assert all(stream in str(caught.value) for stream in episode.streams)
    assert episode["action"].values.shape == (40, 8)


def test_the_names_of_the_streams_of_an_episode():
    ds = rc.dataset(TESTDATA / "lerobot_v30")
    assert list(ds.episode(0).streams) == list(ds.streams)


# -- numbers and stamps -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lerobot_v30", "lerobot_v21"])
def test_the_samples_in_the_tree(name):
    assert_equal(rc.dataset(TESTDATA / name), TESTDATA / name)


@pytest.mark.parametrize("name", ["lerobot_v30", "lerobot_v20"])
def test_real_datasets(name):
    root = shared_data(name)
    assert_equal(rc.dataset(root), root)


LAYOUTS = {
    "lists": Layout(vectors="list"),
    "large lists": Layout(vectors="large"),
    "no metadata of datasets": Layout(huggingface=False),
    "lists, no metadata, one group": Layout(vectors="list", huggingface=False, row_groups="file"),
    "scalars as lists of one": Layout(scalars="vector"),
    "uncompressed": Layout(compression="none"),
    "zstd": Layout(compression="zstd"),
    "no dictionary": Layout(dictionary=False),
    "zstd, no dictionary": Layout(compression="zstd", dictionary=False),
    "page v2": Layout(page="2.0"),
    "page v2, no dictionary, uncompressed": Layout(
        page="2.0", dictionary=False, compression="none"
    ),
    "page v2, lists, zstd": Layout(page="2.0", vectors="list", compression="zstd"),
    "one group per file": Layout(row_groups="file", episodes_per_file=5),
    "groups across episodes": Layout(row_groups=7, episodes_per_file=5),
    "groups of one row": Layout(row_groups=1, episodes_per_file=5),
    "an episode per file": Layout(episodes_per_file=1),
    "a chunk per file": Layout(episodes_per_file=1, chunks_size=1),
    "tables of two episodes": Layout(episodes_per_meta=2),
    "tables in chunks": Layout(episodes_per_meta=1, chunks_size=2),
    "named tasks": Layout(tasks_column="task"),
    "float fps": Layout(fps=29.97),
    "f64 stamps": Layout(stamp_dtype="float64"),
    "stamps from 0.05 s": Layout(first_stamp=0.05),
    "no frame_index": Layout(frame_index=False),
    "no frame_index, f64, from 0.05 s": Layout(
        frame_index=False, stamp_dtype="float64", first_stamp=0.05
    ),
    "no statistics": Layout(stats=False),
    "few keys": Layout(
        omit=frozenset({"robot_type", "total_tasks", "splits", "chunks_size", "names"})
    ),
    "fewer keys": Layout(
        omit=frozenset({"total_frames", "total_episodes", "data_files_size_in_mb"}), stats=False
    ),
    "v2.1": Layout("v2.1"),
    "v2.1, lists": Layout("v2.1", vectors="list", huggingface=False),
    "v2.1, chunks": Layout("v2.1", chunks_size=2),
    "v2.1, many groups": Layout("v2.1", row_groups=3),
    "v2.0": Layout("v2.0"),
    "v2.0, no statistics": Layout("v2.0", stats=False),
    "GR00T": GR00T,
    "GR00T, snappy off": replace(GR00T, compression="none"),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout(tmp_path, layout):
    features = {**NUMBERS, **TEXT, **(ANNOTATIONS if layout.groot else {})}
    assert_equal(rc.dataset(sample(tmp_path, layout, features)), tmp_path)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 9, 31, 33, 100])
@pytest.mark.parametrize("vectors", ["fixed", "list"])
def test_vectors_of_any_width(tmp_path, width, vectors):
    features = {"action": Feature("float32", (width,)), "f64": Feature("float64", (width,))}
    assert_equal(rc.dataset(sample(tmp_path, Layout(vectors=vectors), features)), tmp_path)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64"],
)
def test_every_dtype(tmp_path, dtype, dictionary):
    features = {"scalar": Feature(dtype), "vector": Feature(dtype, (3,))}
    layout = Layout(dictionary=dictionary)
    assert_equal(rc.dataset(sample(tmp_path, layout, features)), tmp_path)


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_that_are_easily_lost(tmp_path, version, dtype):
    """NaN, infinities, -0, the smallest and the largest number arrive as they are."""
    info = np.finfo(dtype)
    rare = [np.nan, np.inf, -np.inf, -0.0, 0.0, info.max, info.min, info.tiny]
    rare += [float(info.smallest_subnormal), -float(info.smallest_subnormal)]
    values = np.array(rare, dtype).reshape(5, 2)
    features = {"action": Feature(dtype, (2,)), "scalar": Feature(dtype)}
    episode = Episode({"action": values, "scalar": values[:, 1:]}, ("go",))
    write(tmp_path, features, [episode], Layout(version, stats=False))
    got = rc.dataset(tmp_path).episode(0)
    assert_same_bits(got["action"].values, values)
    assert_same_bits(got["scalar"].values, values[:, 1:])


def test_whole_numbers_stay_exact(tmp_path):
    values = np.array([2**63 - 1, -(2**63), 2**53 + 1, 0, -1]).reshape(5, 1)
    episode = Episode({"count": values}, ("go",))
    write(tmp_path, {"count": Feature("int64")}, [episode], Layout(stats=False))
    assert_same_bits(rc.dataset(tmp_path).episode(0)["count"].values, values)


@pytest.mark.parametrize("length", [1, 2, 1023, 1024, 1025, 40_000])
def test_episodes_of_any_length(tmp_path, length):
    """More rows than a page, a dictionary or a batch holds; the middle of three in one file."""
    features = {"action": Feature("float32", (7,)), "done": Feature("bool"), **TEXT}
    layout = Layout(episodes_per_file=3, row_groups="file", stats=False)
    assert_equal(rc.dataset(sample(tmp_path, layout, features, (3, length, 2))), tmp_path)


@pytest.mark.parametrize("fps", [1, 7, 30, 50, 60, 1000, 29.97, 59.94, 0.5, 12.5])
def test_stamps_are_exact_at_any_rate(tmp_path, fps):
    layout = Layout(fps=fps, stats=False)
    root = sample(tmp_path, layout, {"action": Feature("float32")}, (3, 400))
    stream = rc.dataset(root).episode(1)["action"]
    assert_same_bits(stream.times, Reference(root).times(1))
    assert rc.dataset(root).fps == fps


def test_stamps_do_not_drift_over_hours(tmp_path):
    """At frame 10**7 a stamp of f32 seconds is off by many periods."""
    count, first = 4, 10_000_000
    root = sample(tmp_path, Layout(stats=False), {"action": Feature("float32")}, (count,))

    def late(table):
        place = table.schema.get_field_index("frame_index")
        return table.set_column(place, "frame_index", [np.arange(first, first + count)])

    edit_table(data_file(root), late)
    got = rc.dataset(root).episode(0)["action"].times.tolist()
    assert got == [round((first + i) * 10**9 / 30) for i in range(count)]


def test_results_are_the_callers_own(tmp_path):
    """Writing to a result changes nothing that is read later."""
    ds = rc.dataset(sample(tmp_path))
    want = ds.episode(0)["action"].values.copy()
    stream = ds.episode(0)["action"]
    # Numbers are kept and shared between looks, so that nobody may write to them.
    with pytest.raises(ValueError, match="read-only"):
        stream.values[:] = 0
    own = stream.values.copy()
    own[:] = 0
    stream.times[:] = 0
    assert_same_bits(stream.values, want)
    assert stream.times[1] == round(1e9 / 30)
    assert rc.resample(stream.values, stream.times, stream.times[1:]).shape == (len(want) - 1, 8)


def test_results_outlive_the_dataset(tmp_path):
    values = rc.dataset(sample(tmp_path)).episode(2)["action"].values
    want = Reference(tmp_path).values(2, "action")
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    assert_same_bits(values, want)


# -- order, threads, places -------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_episodes_in_any_order(tmp_path, version):
    root = sample(tmp_path, Layout(version), lengths=(3, 5, 2, 4))
    reference = Reference(root)
    want = [reference.values(at, "action") for at in range(4)]
    for order in itertools.permutations(range(4)):
        ds = rc.dataset(root)
        for at in order:
            assert_same_bits(ds.episode(at)["action"].values, want[at], f"{order}")


def test_several_threads_at_once(tmp_path):
    root = sample(tmp_path, Layout(row_groups="file"), {**NUMBERS, **TEXT})
    reference, ds = Reference(root), rc.dataset(root)
    names = ["action", "observation.jacobian", "next.done", "observation.note"]
    want = {(at, n): reference.values(at, n) for at in range(len(ds)) for n in names}
    failures: list[str] = []
    start = threading.Barrier(8)

    def read(seed: int) -> None:
        order = list(want)
        np.random.default_rng(seed).shuffle(order)
        start.wait()
        for at, name in order * 3:
            got = ds.episode(int(at))[str(name)].values
            if not np.array_equal(got, want[int(at), str(name)]):
                failures.append(f"{at} {name}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_the_links_of_a_hub_cache(tmp_path, version):
    root = sample(tmp_path / "plain", Layout(version))
    snapshot = hub_cache(root, tmp_path / "cache")
    assert all(p.is_symlink() for p in snapshot.rglob("*") if not p.is_dir())
    assert_equal(rc.dataset(snapshot), root)


def test_a_link_to_the_folder_and_a_relative_path(tmp_path, monkeypatch):
    root = sample(tmp_path / "plain")
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    assert_equal(rc.dataset("link"), root)
    assert_equal(rc.dataset(Path("plain")), root)


def fake_hub(monkeypatch, download) -> None:
    module = types.ModuleType("huggingface_hub")
    module.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_a_name_on_the_hub_is_downloaded(tmp_path, monkeypatch):
    root = sample(tmp_path / "plain")
    snapshot = hub_cache(root, tmp_path / "cache", "owner/name.v1")
    calls = []

    def download(*args, **keywords):
        calls.append((args, keywords))
        return str(snapshot)

    fake_hub(monkeypatch, download)
    monkeypatch.chdir(tmp_path)
    assert_equal(rc.dataset("owner/name.v1"), root)
    assert calls == [((), {"repo_id": "owner/name.v1", "repo_type": "dataset"})]
    # A folder of that name comes first.
    sample(tmp_path / "owner" / "name.v1", lengths=(2,))
    assert len(rc.dataset("owner/name.v1")) == 1 and len(calls) == 1


def test_a_name_that_the_hub_does_not_know(tmp_path, monkeypatch):
    def download(**keywords):
        raise RuntimeError("404: no such repository")

    fake_hub(monkeypatch, download)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rc.FileError, match=r"owner/name.*404"):
        rc.dataset("owner/name")


def test_without_the_hubs_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rc.Unsupported, match="pip install huggingface_hub"):
        rc.dataset("owner/name")
