"""What a LeRobot dataset holds, by pyarrow and PyAV: the tests compare every reader with this.

Rows are found by the column `episode_index`, not by the offsets that the reader uses. Without these
packages the test modules that import this one are skipped.
"""

from __future__ import annotations

import io
import json
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache as rc
from helpers import assert_same_bits

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pc = pytest.importorskip("pyarrow.compute", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
av = pytest.importorskip("av", reason="PyAV is not installed")
pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")

PICTURES = ("image", "video")
BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index")


def repository() -> Path:
    """The checkout, or the bundle that carries the tests."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "testdata" / "golden").is_dir():
            return parent
    raise FileNotFoundError("testdata/golden above the tests")


TESTDATA = repository() / "testdata"


def shared_data(name: str) -> Path:
    """A folder of the sample data beside the repository; skips the test where it is absent."""
    folder = repository().parent / "shared" / "data" / name
    if not folder.is_dir():
        pytest.skip(f"no sample data: ../shared/data/{name}")
    return folder


@lru_cache(maxsize=16)
def decoded(path: Path, stamp: int) -> np.ndarray:
    """All frames of a video as RGB, in the order of their times."""
    with av.open(str(path)) as container:
        frames = sorted(container.decode(video=0), key=lambda frame: frame.pts)
        return np.stack([frame.to_ndarray(format="rgb24") for frame in frames])


def decode_image(content: bytes) -> np.ndarray:
    with av.open(io.BytesIO(content)) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


class Reference:
    """A dataset as other libraries read it. Episodes are counted by their place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.info = json.loads((root / "meta" / "info.json").read_text(encoding="utf-8"))
        self.version = self.info["codebase_version"]
        if self.version == "v3.0":
            files = sorted((root / "meta" / "episodes").rglob("*.parquet"))
            self.episodes = [row for file in files for row in pq.read_table(file).to_pylist()]
        else:
            text = (root / "meta" / "episodes.jsonl").read_text(encoding="utf-8")
            self.episodes = [json.loads(line) for line in text.splitlines()]

    def streams(self) -> list[str]:
        return [name for name in self.info["features"] if name not in BOOKKEEPING]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.info["features"][name]["shape"])

    def place(self, at: int, kind: str, key: str = "") -> Path:
        """The file of an episode's rows, or of its pictures of one camera."""
        row = self.episodes[at]
        index = row["episode_index"]
        chunks_size = self.info.get("chunks_size", 1000)
        prefix = f"videos/{key}" if kind == "video_path" else "data"
        return self.root / self.info[kind].format(
            video_key=key,
            chunk_index=row.get(f"{prefix}/chunk_index"),
            file_index=row.get(f"{prefix}/file_index"),
            episode_chunk=index // chunks_size,
            episode_index=index,
        )

    def rows(self, at: int) -> Any:
        """The table with an episode's rows."""
        table = pq.ParquetFile(self.place(at, "data_path")).read()
        return table.filter(pc.equal(table["episode_index"], self.episodes[at]["episode_index"]))

    def values(self, at: int, name: str) -> np.ndarray | list[str]:
        """Numbers `[S, *shape]`, text as a list, pictures as uint8."""
        feature = self.info["features"][name]
        if feature["dtype"] == "video":
            return self.frames(at, name)
        column = self.rows(at)[name].combine_chunks()
        if feature["dtype"] == "image":
            return np.stack([decode_image(row["bytes"]) for row in column.to_pylist()])
        if feature["dtype"] == "string":
            return column.to_pylist()
        count = len(column)
        while hasattr(column, "flatten") and pa.types.is_nested(column.type):
            column = column.flatten()
        return column.to_numpy(zero_copy_only=False).reshape(count, *self.shape(name))

    def times(self, at: int) -> np.ndarray:
        """Nanoseconds, exact: the frame's number over the rate, else the stamps of the file."""
        table = self.rows(at)
        if "frame_index" in table.column_names:
            fps = Fraction(self.info["fps"])
            stamps = [round(i * 10**9 / fps) for i in table["frame_index"].to_pylist()]
        else:
            stamps = [round(second * 1e9) for second in table["timestamp"].to_pylist()]
        return np.array(stamps, np.int64)

    def frames(self, at: int, key: str) -> np.ndarray:
        """The pictures of one episode: as many as it has samples, from its place in the file."""
        path = self.place(at, "video_path", key)
        row = self.episodes[at]
        start = row.get(f"videos/{key}/from_timestamp", 0.0)
        first = round(start * self.info["fps"])
        found = decoded(path, path.stat().st_mtime_ns)[first : first + row["length"]]
        assert len(found) == row["length"], "the reference has too few frames"
        return found


def assert_equal(ds: rc.Dataset, root: Path, *, pictures: bool = False) -> None:
    """Every stream of every episode, and all stamps, against pyarrow (and PyAV)."""
    reference = Reference(root)
    assert len(ds) == len(reference.episodes)
    assert list(ds.streams) == reference.streams()
    for at, row in enumerate(reference.episodes):
        episode = ds.episode(at)
        assert (episode.index, episode.length) == (row["episode_index"], row["length"])
        assert episode.tasks == row["tasks"]
        times = reference.times(at)
        for name, info in ds.streams.items():
            if info.kind in PICTURES and not pictures:
                continue
            stream, want = episode[name], reference.values(at, name)
            context = f"(episode {at}, {name})"
            assert_same_bits(stream.times, times, context)
            if info.kind == "text":
                assert stream.values == want, context
                continue
            assert_same_bits(stream.values, want, context)
            assert stream.values.dtype.name == info.dtype, context
            assert stream.values.shape == (row["length"], *info.shape), context
