"""Datasets with something odd in them, of which everything else can still be used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import robocache as rc

pytest.importorskip("av", reason="PyAV is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import av
import pyarrow as pa

from lerobot_edit import data_file, edit_episodes, edit_info, edit_table, info_file, read_info
from lerobot_files import VECTORS, Feature, Layout, sample

LANGUAGE, DEPTH = "language_persistent", "observation.depth"


def add_column(root: Path, name: str, feature: dict, make) -> None:
    """Adds a column to every file; `make(rows)` gives it."""
    for path in sorted((root / "data").rglob("*.parquet")):
        edit_table(path, lambda table: table.append_column(name, make(len(table))))
    edit_info(root, features={**read_info(root)["features"], name: feature})


def levels(ds: rc.Dataset, stream: str) -> list[tuple[str, str]]:
    return [(f.level, f.code) for f in ds.check() if f.stream == stream]


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_a_column_of_language_keeps_nobody_from_the_rest(tmp_path, version):
    root = sample(tmp_path / "in", Layout(version), VECTORS)
    said = [{"role": "user", "content": "pick", "style": None}]
    feature = {"dtype": "language", "shape": [1], "names": None}
    add_column(root, LANGUAGE, feature, lambda rows: pa.array([said] * rows))
    ds = rc.dataset(root)
    assert LANGUAGE not in ds.streams and "action" in ds.streams
    with pytest.raises(rc.Unsupported, match=r"left out.*language"):
        _ = ds.episode(0)[LANGUAGE]
    assert levels(ds, LANGUAGE) == [("warning", "stream_left_out")]
    report = rc.ingest(root, tmp_path / "out", progress=False)
    assert (report.episodes, report.skipped) == (len(ds), [])
    got = rc.open(tmp_path / "out").episode(1)["action"].values
    assert (got == ds.episode(1)["action"].values).all()


def test_text_that_is_stored_as_lists_is_left_out(tmp_path):
    root = sample(tmp_path / "in", Layout(), VECTORS)
    feature = {"dtype": "string", "shape": [1], "names": None}
    add_column(root, "words", feature, lambda rows: pa.array([["a", "b"]] * rows))
    ds = rc.dataset(root)
    assert "words" not in ds.streams
    assert levels(ds, "words") == [("warning", "stream_left_out")]
    assert rc.ingest(root, tmp_path / "out", progress=False).skipped == []


def png(values: np.ndarray) -> bytes:
    """A grey picture of 8 or 16 bits."""
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = values.shape
    codec.pix_fmt = "gray" if values.dtype == np.uint8 else "gray16be"
    codec.time_base = 1
    frame = av.VideoFrame.from_ndarray(values, format=codec.pix_fmt)
    return b"".join(bytes(packet) for packet in codec.encode(frame) + codec.encode(None))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_depth_pictures_keep_their_values(tmp_path, dtype):
    root = sample(tmp_path / "in", Layout("v2.1"), VECTORS, (5, 3))
    rng = np.random.default_rng(3)
    pictures = []

    def column(rows: int) -> pa.Array:
        new = rng.integers(0, np.iinfo(dtype).max, (rows, 6, 8), dtype, endpoint=True)
        pictures.append(new)
        return pa.array([{"bytes": png(one), "path": None} for one in new])

    feature = {"dtype": "image", "shape": [6, 8, 1], "names": ["height", "width", "channels"]}
    add_column(root, DEPTH, {**feature, "info": {"is_depth_map": True}}, column)
    ds = rc.dataset(root)
    for at, want in enumerate(pictures):
        got = ds.episode(at)[DEPTH].values
        assert got.dtype == np.uint16 and (got[..., 0] == want).all()
    assert (ds.episode(0)[DEPTH].frames(2, 4) == ds.episode(0)[DEPTH].values[2:4]).all()
    assert levels(ds, DEPTH) == []
    rc.ingest(root, tmp_path / "out", progress=False)
    cached = rc.open(tmp_path / "out").episode(1)[DEPTH].values
    assert (cached.reshape(3, 6, 8) == pictures[1]).all()
    # The same pictures, not declared as depth.
    edit_info(root, features={**read_info(root)["features"], DEPTH: feature})
    stream = rc.dataset(root).episode(0)[DEPTH]
    if dtype == np.uint8:
        assert (stream.values[..., 0] == pictures[0]).all()
    else:
        with pytest.raises(rc.CorruptData, match="16 bits per value, expected uint8"):
            _ = stream.values
        assert ("error", "dtype_differs") in levels(rc.dataset(root), DEPTH)


def test_the_shape_of_nested_lists_is_that_of_the_file(tmp_path):
    root = sample(tmp_path, Layout("v2.1"), {"grid": Feature("float32", (3, 2)), **VECTORS})
    assert rc.dataset(root).episode(1)["grid"].values.shape[1:] == (3, 2)
    info = read_info(root)
    info["features"]["grid"]["shape"] = [2, 3]
    info_file(root).write_text(json.dumps(info))
    ds = rc.dataset(root)
    with pytest.raises(rc.CorruptData, match=r"shape \[2, 3\], got a list of 3 in place of 2"):
        _ = ds.episode(1)["grid"].values
    assert ("error", "shape_differs") in levels(ds, "grid")

    def ragged(table: pa.Table) -> pa.Table:
        rows = pa.array([[[1.0, 2.0, 3.0, 4.0, 5.0], [6.0]]] * len(table), table["grid"].type)
        return table.set_column(table.schema.get_field_index("grid"), "grid", rows)

    edit_table(data_file(root), ragged)
    with pytest.raises(rc.CorruptData, match="a list of 5 in place of 3"):
        _ = rc.dataset(root).episode(1)["grid"].values


def test_names_say_how_to_interpolate(tmp_path):
    letters = ["x", "y", "z", "w"]
    features = {
        "observation.ee_quat": Feature("float32", (4,), letters),
        "observation.orientation": Feature("float32", (4,), {"axes": letters}),
        "observation.gripper": Feature("float32", (1,), ["width"]),
        "observation.point": Feature("float32", (4,), letters),
    }
    found = rc.dataset(sample(tmp_path, Layout(), features)).streams
    methods = [found[name].method for name in features]
    assert methods == ["slerp", "slerp", "previous", "linear"]


def test_the_parts_of_gr00t_say_it_too(tmp_path):
    root = sample(tmp_path, Layout(), {"observation.state": Feature("float32", (6,))})
    parts = {
        "arm": {"start": 0, "end": 1},
        "ee_quat": {"start": 1, "end": 5},
        "left_gripper": {"start": 5, "end": 6},
    }
    (root / "meta" / "modality.json").write_text(json.dumps({"state": parts}))
    method = rc.dataset(root).streams["observation.state"].method
    assert method == [("linear", 0, 1), ("slerp", 1, 5), ("previous", 5, 6)]


@pytest.mark.parametrize(
    ("version", "nothing"), [("v3.0", None), ("v3.0", [None]), ("v2.1", [None])]
)
def test_a_task_that_is_null_is_none(tmp_path, version, nothing):
    root = sample(tmp_path, Layout(version), VECTORS)
    edit_episodes(root, lambda rows: rows[1].update(tasks=nothing))
    ds = rc.dataset(root)
    assert ds.episodes[1].tasks == [] and ds.episodes[0].tasks == ["pick the cube"]
    found = [(f.level, f.episode) for f in ds.check() if f.code == "text_missing"]
    assert found == [("warning", 1)]
