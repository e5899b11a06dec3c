"""Caches from Python: what goes in comes out, statistics, metadata, errors."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import robocache as rc
from loader_data import ingest, write_dataset

pyarrow = pytest.importorskip("pyarrow")
TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
SAMPLES = [TESTDATA / "lerobot_v30", TESTDATA / "lerobot_v21"]


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name)
def source(request):
    if not request.param.exists():
        pytest.skip("no sample data here")
    return request.param


def test_what_is_read_back_is_what_the_reader_gives(source, tmp_path):
    report = rc.ingest(source, tmp_path / "cache", images="raw", progress=False)
    cache, dataset = rc.open(tmp_path / "cache"), rc.dataset(source)
    assert report.episodes == len(cache) == len(dataset) and not report.skipped
    assert cache.complete
    for at in range(len(dataset)):
        ours, theirs = cache.episode(at), dataset.episode(at)
        assert (ours.index, ours.length, ours.tasks) == (theirs.index, theirs.length, theirs.tasks)
        for name in cache.streams:
            np.testing.assert_array_equal(ours[name].times, theirs[name].times)
            values, expected = ours[name].values, theirs[name].values
            assert values.dtype == expected.dtype
            np.testing.assert_array_equal(values, expected)


def test_pictures_survive_jpeg_and_are_made_smaller(source, tmp_path):
    rc.ingest(source, tmp_path / "full", quality=95, progress=False)
    rc.ingest(source, tmp_path / "small", image_size=(24, 32), progress=False)
    full, small = rc.open(tmp_path / "full"), rc.open(tmp_path / "small")
    dataset = rc.dataset(source)
    keys = full.meta.camera_keys
    assert keys
    for key in keys:
        assert full.streams[key].encoding == "jpeg"
        pixels, truth = full.episode(0)[key].values, dataset.episode(0)[key].values
        assert pixels.shape == truth.shape
        error = np.mean((pixels.astype(float) - truth.astype(float)) ** 2)
        assert 10 * np.log10(255**2 / error) > 30
        assert small.episode(0)[key].values.shape[1:] == (24, 32, 3)


def test_an_episode_is_a_mapping_as_that_of_its_dataset(tmp_path):
    source = write_dataset(tmp_path / "data", [(20, "a"), (7, "b")])
    ours = ingest(source, tmp_path / "cache").episode(1)
    theirs = rc.dataset(source).episode(1)
    for episode in (ours, theirs):
        names = list(episode)
        assert {"observation.state", "action"} <= set(names) and len(episode) == len(names)
        assert names == list(episode.keys()) == list(episode.streams) == list(dict(episode))
        assert [len(x.times) for x in episode.values()] == [7] * len(names)
        assert "action" in episode and "nothing" not in episode
        assert episode.get("nothing") is None and episode.get("nothing", 3) == 3
        with pytest.raises(KeyError) as caught:
            episode["nothing"]
        assert isinstance(caught.value, rc.InvalidArgument) and "action" in str(caught.value)
    for name, stream in ours.items():
        np.testing.assert_array_equal(stream.values, theirs.get(name).values)


def test_statistics_are_numpys(source, tmp_path):
    rc.ingest(source, tmp_path / "cache", images="skip", progress=False)
    cache, dataset = rc.open(tmp_path / "cache"), rc.dataset(source)
    for name, stats in cache.stats.items():
        all_values = [dataset.episode(at)[name].values for at in range(len(dataset))]
        values = np.concatenate(all_values).astype(np.float64)
        assert stats["count"].tolist() == [len(values)]
        for key, expected in (
            ("min", values.min(0)),
            ("max", values.max(0)),
            ("mean", values.mean(0)),
            ("std", values.std(0)),
        ):
            np.testing.assert_allclose(stats[key], expected, rtol=1e-6, atol=1e-9, err_msg=name)
        for key, part in (("q01", 0.01), ("q50", 0.5), ("q99", 0.99)):
            expected = np.quantile(values, part, axis=0)
            np.testing.assert_allclose(stats[key], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_streams_are_chosen_renamed_and_cast(source, tmp_path):
    rc.ingest(
        source,
        tmp_path / "cache",
        streams={"observation.state": {"name": "state", "dtype": "float16"}, "action": "action"},
        methods={"state": "nearest"},
        progress=False,
    )
    cache, dataset = rc.open(tmp_path / "cache"), rc.dataset(source)
    assert list(cache.streams) == ["state", "action"]
    assert cache.streams["state"].method == "nearest"
    values = cache.episode(0)["state"].values
    expected = dataset.episode(0)["observation.state"].values
    assert values.dtype == np.float16
    np.testing.assert_array_equal(values, expected.astype(np.float16))


def test_pyarrow_opens_the_shards(source, tmp_path):
    import pyarrow.ipc

    rc.ingest(source, tmp_path / "cache", images="skip", progress=False)
    dataset = rc.dataset(source)
    file = tmp_path / "cache" / "shards" / "unit-000000" / "observation.state.arrow"
    with pyarrow.memory_map(str(file)) as mapped:
        table = pyarrow.ipc.open_file(mapped).read_all()
    assert table.column_names == ["time", "value"]
    values = np.array(table["value"].to_pylist(), np.float32)
    parts = [dataset.episode(at)["observation.state"].values for at in range(len(dataset))]
    np.testing.assert_array_equal(values, np.concatenate(parts))


def test_two_sources_share_a_cache(tmp_path):
    if not all(path.exists() for path in SAMPLES):
        pytest.skip("no sample data here")
    out = tmp_path / "cache"
    rc.ingest(SAMPLES[0], out, images="skip", tag="arm", progress=False)
    # The second has streams of other shapes: they get names of their own.
    names = {name: f"b.{name}" for name in rc.dataset(SAMPLES[1]).streams}
    rc.ingest(SAMPLES[1], out, streams=names, images="skip", tag="other", progress=False)
    cache = rc.open(out)
    assert [source["tag"] for source in cache.sources] == ["arm", "other"]
    assert len(cache) == len(rc.dataset(SAMPLES[0])) + len(rc.dataset(SAMPLES[1]))
    assert cache.episode(-1).source == 1


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"images": "gif"}, "images"),
        ({"streams": ["nonsense"]}, "streams"),
        ({"streams": "action"}, "streams"),
        ({"streams": {"action": {"dtype": "int3"}}}, "streams"),
        ({"streams": {"action": {"dtype": "int32"}}}, "streams"),
        ({"methods": {"action": "spline"}}, "methods"),
        ({"methods": {"action": [("linear", 0, 1)]}}, "methods"),
        ({"quality": 0}, "quality"),
        ({"image_size": 0}, "image_size"),
    ],
)
def test_wrong_options_are_refused_and_leave_nothing(source, tmp_path, change, argument):
    options = {"images": "skip", "progress": False} | change
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.ingest(source, tmp_path / "cache", **options)
    assert caught.value.argument == argument, str(caught.value)
    rc.ingest(source, tmp_path / "cache", images="skip", progress=False)
    assert rc.open(tmp_path / "cache").complete


def test_no_cache_and_a_newer_cache_are_clear_errors(source, tmp_path):
    with pytest.raises(rc.FileError, match="no cache"):
        rc.open(tmp_path)
    rc.ingest(source, tmp_path / "cache", images="skip", progress=False)
    manifest = tmp_path / "cache" / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"version": 2}))
    with pytest.raises(rc.Unsupported, match="version 2"):
        rc.open(tmp_path / "cache")


def test_a_foreign_folder_is_not_written_into(source, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(rc.FileError, match="other files"):
        rc.ingest(source, tmp_path, progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_flipped_byte_is_never_served(source, tmp_path):
    rc.ingest(source, tmp_path / "cache", images="skip", progress=False)
    shard = tmp_path / "cache" / "shards" / "unit-000000" / "action.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 4
    shard.write_bytes(content)
    cache = rc.open(tmp_path / "cache")
    with pytest.raises(rc.CorruptData, match="checksum"):
        _ = cache.episode(0)["action"].values
    cache.episode(0)["observation.state"].values.sum()  # others are


def test_an_interrupted_ingest_goes_on(source, tmp_path):
    """SIGKILL at any moment: what is there opens, and running again completes it."""
    script = "import sys, robocache as rc; rc.ingest(*sys.argv[1:3], images='skip', progress=False)"
    for attempt in range(8):
        child = subprocess.Popen([sys.executable, "-c", script, str(source), str(tmp_path / "c")])
        try:
            child.wait(0.05 + attempt * 0.05)
        except subprocess.TimeoutExpired:
            child.kill()
        child.wait()
    rc.ingest(source, tmp_path / "c", images="skip", progress=False)
    cache, dataset = rc.open(tmp_path / "c"), rc.dataset(source)
    assert cache.complete and len(cache) == len(dataset)
    for at in range(len(cache)):
        expected = dataset.episode(at)["action"].values
        np.testing.assert_array_equal(cache.episode(at)["action"].values, expected)


def _ingest_in_a_child(source: Path, out: Path) -> None:
    rc.open(out.with_name("cut"))
    rc.ingest(source, out, progress=False)


def test_a_forked_child_puts_caches_together(tmp_path):
    """Threads of the parent do not exist in the child: nothing may wait for them."""
    source = write_dataset(tmp_path / "data", [(6, "a"), (7, "b")], pictures=(16, 16))
    cut = ingest(source, tmp_path / "cut")
    assert cut.complete
    (tmp_path / "cut" / "manifest.json").unlink()
    child = multiprocessing.get_context("fork").Process(
        target=_ingest_in_a_child, args=(source, tmp_path / "forked")
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(rc.open(tmp_path / "forked").episodes) == 2
