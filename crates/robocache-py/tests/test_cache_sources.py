"""What goes into a cache: bad episodes, other options than planned, several sources."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import robocache as rc

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.ipc

import lerobot_edit as edit
from lerobot_files import Layout, sample
from lerobot_parts import Feature

ARM = {
    "observation.state": Feature("float32", (3,), ["a", "b", "c"]),
    "action": Feature("float32", (3,), ["a", "b", "c"]),
}
CAMERA = {"observation.images.cam": Feature("image", (8, 8, 3), None, "png")}
LENGTHS = (12, 10, 8, 6)


def make(root: Path, features=None, lengths=LENGTHS, version="v2.1") -> Path:
    return sample(root, Layout(version), features or ARM, lengths)


def ingest(source: Path, out: Path, **options) -> rc.Ingested:
    return rc.ingest(source, out, progress=False, **options)


def spoil(values: np.ndarray) -> None:
    values[2, 1] = np.nan


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_an_episode_that_check_calls_an_error_is_left_out(tmp_path, version):
    source = make(tmp_path / "source", version=version)
    edit.edit_column(source, "action", spoil)
    report = ingest(source, tmp_path / "cache")
    assert [episode for episode, _ in report.skipped] == [1]
    assert "not_finite: action" in report.skipped[0][1]
    cache = rc.open(tmp_path / "cache")
    assert [cache.episode(at).index for at in range(len(cache))] == [0, 2, 3]
    assert cache.stats["action"]["count"] == [sum(LENGTHS) - LENGTHS[1]]
    assert [(episode, "not_finite" in why) for _, episode, why in cache.skipped] == [(1, True)]
    # The unit that reads the numbers finds it: planning does not read them.
    assert json.loads((tmp_path / "cache" / "plan.json").read_text())["errors"] == []
    # The same again is no new work and says the same.
    again = ingest(source, tmp_path / "cache")
    assert (again.units_done, again.skipped) == (0, report.skipped)
    with pytest.raises(rc.CorruptData, match="not_finite"):
        ingest(source, tmp_path / "strict", strict=True)
    # Where the bad stream is not wanted, the episode is good.
    assert not ingest(source, tmp_path / "state", streams=["observation.state"]).skipped
    assert len(rc.open(tmp_path / "state")) == 4


def test_pictures_of_an_episode_with_bad_numbers_are_not_kept(tmp_path):
    source = make(tmp_path / "source", features=ARM | CAMERA)
    edit.edit_column(source, "action", spoil)
    assert [episode for episode, _ in ingest(source, tmp_path / "cache").skipped] == [1]
    kept = pa.ipc.open_file(
        tmp_path / "cache" / "shards" / "unit-000000" / "observation.images.cam.arrow"
    )
    assert kept.read_all().num_rows == sum(LENGTHS) - LENGTHS[1]


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"images": "raw"}, "streams"),
        ({"images": "skip"}, "streams"),
        ({"image_size": 4}, "streams"),
        ({"quality": 50}, "quality"),
        ({"tag": "other"}, "tag"),
        ({"streams": ["action"]}, "streams"),
        ({"streams": {"action": "a", "observation.state": "s"}}, "streams"),
        ({"streams": {"action": {"dtype": "float16"}}}, "streams"),
        ({"methods": {"action": "nearest"}}, "methods"),
    ],
)
def test_a_planned_source_is_not_ingested_otherwise(tmp_path, change, argument):
    source, out = make(tmp_path / "source", ARM | CAMERA), tmp_path / "cache"
    ingest(source, out)
    with pytest.raises(rc.InvalidArgument, match="planned") as caught:
        ingest(source, out, **change)
    assert caught.value.argument == argument, str(caught.value)
    assert ingest(source, out).units_done == 0
    # A new cache takes it.
    ingest(source, tmp_path / "new", **change)


def test_sources_whose_columns_mean_other_things_are_not_mixed(tmp_path):
    ingest(make(tmp_path / "one"), tmp_path / "cache")
    other = {name: Feature("float32", (3,), ["c", "b", "a"]) for name in ARM}
    two = make(tmp_path / "two", other)
    with pytest.raises(rc.InvalidArgument, match=r'components \["a", "b", "c"\].*rename'):
        ingest(two, tmp_path / "cache")
    renamed = {name: f"two.{name}" for name in ARM}
    ingest(two, tmp_path / "cache", streams=renamed)
    cache = rc.open(tmp_path / "cache")
    assert cache.streams["two.action"].names == ["c", "b", "a"]
    with pytest.raises(rc.InvalidArgument, match="interpolation"):
        ingest(make(tmp_path / "three"), tmp_path / "cache", methods={"action": "previous"})


def test_pictures_of_each_source_get_the_size_that_was_asked_for(tmp_path):
    out = tmp_path / "cache"
    ingest(make(tmp_path / "one", ARM | CAMERA), out)
    large = {"observation.images.cam": Feature("image", (16, 24, 3), None, "png")}
    two = make(tmp_path / "two", ARM | large)
    with pytest.raises(rc.InvalidArgument, match=r"\[8, 8, 3\].*\[16, 24, 3\].*rename"):
        ingest(two, out)
    ingest(two, out, image_size=8, quality=80)
    cache = rc.open(out)
    assert cache.episode(-1)["observation.images.cam"].values.shape == (6, 8, 8, 3)
    with pytest.raises(rc.InvalidArgument, match="kept as JPEG"):
        ingest(make(tmp_path / "three", ARM | CAMERA), out, images="raw")


def test_a_source_need_not_have_all_streams(tmp_path):
    out = tmp_path / "cache"
    ingest(make(tmp_path / "one", ARM | CAMERA), out)
    ingest(make(tmp_path / "two"), out)
    cache = rc.open(out)
    camera = cache.episode(-1)["observation.images.cam"]
    assert camera.times.shape == (0,) and camera.values.shape == (0, 8, 8, 3)
    assert cache.episode(-1)["action"].values.shape == (6, 3)


def test_a_camera_is_found_wherever_its_first_file_is(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    video = {name: Feature("video", (16, 16, 3), None, "h264") for name in ("cam", "gone")}
    source = make(tmp_path / "source", ARM | video)
    files = sorted((source / "videos").rglob("*.mp4"))
    for file in files:
        if "gone" in str(file) or not file.name.endswith("3.mp4"):
            file.unlink()
    report = ingest(source, tmp_path / "cache")
    assert report.missing == [("source", "gone")]
    cache = rc.open(tmp_path / "cache")
    assert "cam" in cache.streams and "gone" not in cache.streams
    assert [cache.episode(at).index for at in range(len(cache))] == [3]


def test_pictures_of_episodes_that_were_left_out_are_in_no_statistics(tmp_path):
    import lerobot_parts

    source = make(tmp_path / "source", ARM | CAMERA)
    picture = lerobot_parts.encode_images(np.zeros((1, 8, 8, 3), np.uint8), "png")[0]

    def break_the_last(table):
        import pyarrow as pa

        rows = table["observation.images.cam"].to_pylist()
        rows[-1] = {"bytes": picture[: len(picture) // 2], "path": None}
        place = table.schema.get_field_index("observation.images.cam")
        column = pa.array(rows, table.schema.field(place).type)
        return table.set_column(place, table.schema.field(place), column)

    edit.edit_table(edit.data_file(source), break_the_last)
    report = ingest(source, tmp_path / "cache")
    assert len(report.skipped) == 1
    cache = rc.open(tmp_path / "cache")
    frames = sum(episode.length for episode in cache.episodes)
    assert cache.stats["observation.images.cam"]["count"] == [frames]
    assert cache.stats["action"]["count"] == [frames]


def test_a_damaged_description_of_a_unit_is_done_again(tmp_path):
    source, out = make(tmp_path / "source"), tmp_path / "cache"
    ingest(source, out)
    description = out / "shards" / "unit-000000" / "unit.json"
    description.write_bytes(description.read_bytes().replace(b"length", b"lenght", 1))
    report = ingest(source, out)
    assert (report.units_done, report.episodes) == (1, 4)
    expected = rc.dataset(source).episode(2)["action"].values
    np.testing.assert_array_equal(rc.open(out).episode(2)["action"].values, expected)


def test_bfloat16_comes_out_as_float32(tmp_path):
    source = make(tmp_path / "source")
    ingest(source, tmp_path / "cache", streams={"action": {"dtype": "bfloat16"}})
    values = rc.open(tmp_path / "cache").episode(0)["action"].values
    truth = rc.dataset(source).episode(0)["action"].values
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, truth, rtol=2**-8)


def test_a_cache_goes_to_other_processes(tmp_path):
    ingest(make(tmp_path / "source"), tmp_path / "cache")
    cache = pickle.loads(pickle.dumps(rc.open(tmp_path / "cache")))
    assert len(cache) == 4 and cache.complete


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"image_size": -1}, "image_size"),
        ({"image_size": 2.5}, "image_size"),
        ({"image_size": True}, "image_size"),
        ({"image_size": [8, 8, 8]}, "image_size"),
        ({"image_size": "8"}, "image_size"),
        ({"quality": 300}, "quality"),
        ({"quality": "high"}, "quality"),
        ({"workers": -1}, "workers"),
        ({"workers": 0}, "workers"),
        ({"streams": {"action": None}}, "streams"),
        ({"streams": {"action": ""}}, "streams"),
        ({"streams": {"action": "timestamp"}}, "streams"),
        ({"streams": {"action": "x_is_pad"}}, "streams"),
        ({"streams": {"action": "x", "observation.state": "x"}}, "streams"),
        ({"methods": {"typo": "linear"}}, "methods"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, change, argument):
    source = make(tmp_path / "source")
    with pytest.raises(rc.InvalidArgument) as caught:
        ingest(source, tmp_path / "cache", **change)
    assert (caught.value.op, caught.value.argument) == ("ingest", argument), str(caught.value)
    assert not ingest(source, tmp_path / "cache", image_size=[8, 8]).skipped


def test_tasks_of_all_sources_have_one_numbering(tmp_path):
    out = tmp_path / "cache"
    ingest(make(tmp_path / "one"), out)
    ingest(make(tmp_path / "two"), out, streams=["action"], tag="again")
    cache = rc.open(out)
    assert cache.meta.tasks == cache.windows(delta_timestamps={"action": [0.0]}).tasks
    assert len(cache.meta.tasks) == len(set(cache.meta.tasks)) == 3
