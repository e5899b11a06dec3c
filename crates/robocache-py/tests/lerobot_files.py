"""Writes LeRobot datasets of every version and flavour with pyarrow, for tests and testdata.

What is written is fixed to the bit: sums are exact before they are rounded, so that a second run
gives the same parquet and JSON files. Videos and images come from the ffmpeg of imageio-ffmpeg.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lerobot_parts import Feature, encode_images, feature_stats, merged_stats, write_video

VERSIONS = ("v3.0", "v2.1", "v2.0", "gr00t")
DATASETS = "datasets.features.features"


@dataclass(frozen=True)
class Episode:
    """Values of each feature, `[S, *shape]`; lists of text; uint8 frames of images and videos."""

    values: dict[str, Any]
    tasks: tuple[str, ...]

    @property
    def length(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True)
class Layout:
    """How a dataset lies on the disk. The defaults are what LeRobot 0.4 writes."""

    version: str = "v3.0"
    fps: int | float = 30
    vectors: str = "fixed"  # fixed, list or large
    scalars: str = "plain"  # plain, or vector: lists of one
    huggingface: bool = True
    compression: str = "snappy"
    dictionary: bool = True
    page: str = "1.0"
    row_groups: str | int = "episode"  # episode, file, or a number of rows
    episodes_per_file: int = 2
    episodes_per_video: int = 3
    episodes_per_meta: int = 1000
    chunks_size: int = 1000
    tasks_column: str = "__index_level_0__"
    frame_index: bool = True
    stamp_dtype: str = "float32"
    first_stamp: float = 0.0
    stats: bool = True
    slim: bool = False  # metadata without statistics and dictionaries of its own columns
    omit: frozenset[str] = field(default_factory=frozenset)  # keys that info.json lacks

    @property
    def groot(self) -> bool:
        return self.version == "gr00t"

    @property
    def codebase(self) -> str:
        return "v2.0" if self.groot else self.version


GR00T = Layout(
    "gr00t",
    fps=20.0,
    vectors="list",
    huggingface=False,
    frame_index=False,
    stamp_dtype="float64",
    first_stamp=0.05,
)


# -- columns ----------------------------------------------------------------------------------


def arrow_column(feature: Feature, values: Any, layout: Layout) -> pa.Array:
    """One column as the writers of real datasets make it."""
    if feature.dtype == "string":
        return pa.array(list(values), pa.string())
    if feature.dtype == "image":
        images = encode_images(values, feature.codec)
        rows = [{"bytes": image, "path": f"frame-{i:06d}.png"} for i, image in enumerate(images)]
        return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    array = np.ascontiguousarray(values, feature.dtype)
    out = pa.array(array.reshape(-1))
    if feature.shape == (1,) and layout.scalars == "plain":
        return out
    kind = layout.vectors if len(feature.shape) == 1 else "list"
    for axis in range(len(feature.shape) - 1, -1, -1):
        width = feature.shape[axis]
        rows = len(out) // width
        if kind == "fixed":
            out = pa.FixedSizeListArray.from_arrays(out, width)
        elif kind == "list":
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
            out = pa.ListArray.from_arrays(offsets, out)
        else:
            offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * width)
            out = pa.LargeListArray.from_arrays(offsets, out)
    return out


def arrow_field(name: str, feature: Feature, column: pa.Array, layout: Layout) -> pa.Field:
    metadata = None
    if layout.huggingface and len(feature.shape) > 1 and feature.dtype != "image":
        # What the `datasets` package registers its nested lists as.
        extension = f"{DATASETS}.Array{len(feature.shape)}DExtensionType"
        content = json.dumps([list(feature.shape), feature.dtype])
        metadata = {"ARROW:extension:name": extension, "ARROW:extension:metadata": content}
    return pa.field(name, column.type, metadata=metadata)


def hf_feature(feature: Feature) -> dict[str, Any]:
    value = {"dtype": feature.dtype, "_type": "Value"}
    if feature.dtype == "image":
        return {"_type": "Image"}
    if len(feature.shape) > 1:
        shape = list(feature.shape)
        return {"shape": shape, "dtype": feature.dtype, "_type": f"Array{len(shape)}D"}
    if feature.shape == (1,):
        return value
    return {"feature": value, "length": feature.shape[0], "_type": "List"}


def bookkeeping(layout: Layout) -> dict[str, Feature]:
    names = ["timestamp", "frame_index", "episode_index", "index", "task_index"]
    found = {name: Feature("int64") for name in names}
    found["timestamp"] = Feature(layout.stamp_dtype)
    if not layout.frame_index:
        del found["frame_index"]
    return found


def stamps(length: int, layout: Layout) -> np.ndarray:
    """What the column `timestamp` holds: seconds, rounded to its type."""
    return (layout.first_stamp + np.arange(length) / layout.fps).astype(layout.stamp_dtype)


class Writer:
    """One dataset on its way to the disk."""

    def __init__(self, root: Path, features: dict[str, Feature], layout: Layout) -> None:
        self.root = root
        self.layout = layout
        self.features = {**features, **bookkeeping(layout)}
        self.columns = {n: f for n, f in self.features.items() if f.dtype != "video"}
        self.videos = {n: f for n, f in self.features.items() if f.dtype == "video"}

    def values(self, number: int, first: int, episode: Episode, tasks: list[str]) -> dict[str, Any]:
        length = episode.length
        own = {
            "timestamp": stamps(length, self.layout),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, number),
            "index": first + np.arange(length),
            "task_index": np.full(length, tasks.index(episode.tasks[0])),
        }
        return {name: own.get(name, episode.values.get(name)) for name in self.features}

    def table(self, values: dict[str, Any]) -> pa.Table:
        layout = self.layout
        arrays, fields = [], []
        for name, feature in self.columns.items():
            own = name in bookkeeping(layout)
            arrays.append(
                arrow_column(
                    feature, values[name], replace(layout, scalars="plain") if own else layout
                )
            )
            fields.append(arrow_field(name, feature, arrays[-1], layout))
        metadata = None
        if layout.huggingface:
            info = {"features": {name: hf_feature(f) for name, f in self.columns.items()}}
            metadata = {"huggingface": json.dumps({"info": info})}
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))

    def write_data(self, path: Path, tables: Sequence[pa.Table]) -> None:
        layout = self.layout
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {
            "compression": layout.compression,
            "use_dictionary": layout.dictionary,
            "data_page_version": layout.page,
        }
        with pq.ParquetWriter(path, tables[0].schema, **options) as writer:
            if layout.row_groups == "episode":
                for table in tables:
                    writer.write_table(table)
            else:
                rows = None if layout.row_groups == "file" else int(layout.row_groups)
                writer.write_table(pa.concat_tables(tables), rows)

    def info(self, episodes: Sequence[Episode], tasks: list[str]) -> dict[str, Any]:
        layout, new = self.layout, self.layout.version == "v3.0"
        count = len(episodes)
        chunk = "chunk-{chunk_index:03d}/file-{file_index:03d}"
        old_chunk, old_file = "chunk-{episode_chunk:03d}", "episode_{episode_index:06d}"
        info: dict[str, Any] = {
            "codebase_version": layout.codebase,
            "robot_type": "panda",
            "total_episodes": count,
            "total_frames": sum(episode.length for episode in episodes),
            "total_tasks": len(tasks),
        }
        if not new:
            info["total_videos"] = count * len(self.videos)
            info["total_chunks"] = -(-count // layout.chunks_size)
        info["chunks_size"] = layout.chunks_size
        if new:
            info |= {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200}
        info |= {"fps": layout.fps, "splits": {"train": f"0:{count}"}}
        data = f"data/{chunk}.parquet" if new else f"data/{old_chunk}/{old_file}.parquet"
        video = f"videos/{{video_key}}/{chunk}.mp4"
        if not new:
            video = f"videos/{old_chunk}/{{video_key}}/{old_file}.mp4"
        info |= {"data_path": data, "video_path": video if self.videos else None}
        info["features"] = {name: self.describe(f) for name, f in self.features.items()}
        return {key: value for key, value in info.items() if key not in layout.omit}

    def describe(self, feature: Feature) -> dict[str, Any]:
        out: dict[str, Any] = {"dtype": feature.dtype, "shape": list(feature.shape)}
        if "names" not in self.layout.omit:
            out["names"] = feature.names
        if feature.dtype == "video":
            height, width, channels = feature.shape
            details = {
                "video.height": height,
                "video.width": width,
                "video.codec": feature.codec.partition("_")[0],
                "video.pix_fmt": "yuv420p",
                "video.is_depth_map": feature.depth is not None,
                "video.fps": self.layout.fps,
                "video.channels": channels,
                "has_audio": False,
                **(feature.depth or {}),
            }
            key = "info" if self.layout.version == "v3.0" else "video_info"
            out |= {} if "video info" in self.layout.omit else {key: details}
        return out


def parts(episodes: Sequence[Any], per_file: int) -> Iterable[tuple[int, list[tuple[int, Any]]]]:
    """Numbers of files and the episodes in each."""
    numbered = list(enumerate(episodes))
    for start in range(0, len(numbered), per_file):
        yield start // per_file, numbered[start : start + per_file]


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write(
    root: Path, features: dict[str, Feature], episodes: Sequence[Episode], layout: Layout
) -> Path:
    """Writes a dataset and gives its folder."""
    writer = Writer(root, features, layout)
    tasks = list(dict.fromkeys(task for episode in episodes for task in episode.tasks))
    firsts = np.cumsum([0, *(episode.length for episode in episodes)]).tolist()
    values = [
        writer.values(i, first, episode, tasks)
        for i, (first, episode) in enumerate(zip(firsts, episodes, strict=False))
    ]
    stats = [
        {n: feature_stats(f, v[n]) for n, f in writer.features.items() if f.dtype != "string"}
        for v in (values if layout.stats else [])
    ]
    write_json(root / "meta" / "info.json", writer.info(episodes, tasks))
    if layout.version == "v3.0":
        write_v3(writer, values, episodes, tasks, stats, firsts)
    else:
        write_v2(writer, values, episodes, tasks, stats)
    if stats and layout.version != "v2.1":
        whole = {name: merged_stats([part[name] for part in stats]) for name in stats[0]}
        write_json(root / "meta" / "stats.json", whole)
    return root


def write_v3(writer, values, episodes, tasks, stats, firsts) -> None:
    root, layout = writer.root, writer.layout
    rows: list[dict[str, Any]] = [{} for _ in episodes]
    size = layout.chunks_size
    for number, part in parts(values, layout.episodes_per_file):
        chunk, file = divmod(number, size)
        path = root / f"data/chunk-{chunk:03d}/file-{file:03d}.parquet"
        writer.write_data(path, [writer.table(v) for _, v in part])
        for i, _ in part:
            length = firsts[i + 1] - firsts[i]
            rows[i] = {"episode_index": i, "tasks": list(episodes[i].tasks), "length": length}
            rows[i] |= {"data/chunk_index": chunk, "data/file_index": file}
            rows[i] |= {"dataset_from_index": firsts[i], "dataset_to_index": firsts[i + 1]}
    for key, feature in writer.videos.items():
        for number, part in parts(values, layout.episodes_per_video):
            chunk, file = divmod(number, size)
            path = root / f"videos/{key}/chunk-{chunk:03d}/file-{file:03d}.mp4"
            frames = np.concatenate([v[key] for _, v in part])
            write_video(path, frames, layout.fps, feature.codec)
            start = 0
            for i, v in part:
                stop = start + len(v[key])
                rows[i] |= {
                    f"videos/{key}/chunk_index": chunk,
                    f"videos/{key}/file_index": file,
                    f"videos/{key}/from_timestamp": start / layout.fps,
                    f"videos/{key}/to_timestamp": stop / layout.fps,
                }
                start = stop
    for row, episode_stats in zip(rows, stats, strict=False):
        for name, found in episode_stats.items():
            row |= {f"stats/{name}/{which}": got for which, got in found.items()}
    slim = {"use_dictionary": False, "write_statistics": False} if layout.slim else {}
    for number, part in parts(rows, layout.episodes_per_meta):
        chunk, file = divmod(number, size)
        path = root / f"meta/episodes/chunk-{chunk:03d}/file-{file:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        place = {"meta/episodes/chunk_index": chunk, "meta/episodes/file_index": file}
        pq.write_table(pa.Table.from_pylist([{**row, **place} for _, row in part]), path, **slim)
    write_tasks(root / "meta" / "tasks.parquet", tasks, layout.tasks_column)


def write_tasks(path: Path, tasks: list[str], column: str) -> None:
    """Tasks as pandas writes them: the text is the index, which may have no name."""
    unnamed = column.startswith("__")
    text = pa.array(tasks, pa.large_string() if unnamed else pa.string())
    pandas = {
        "index_columns": [column],
        "column_indexes": [],
        "columns": [
            {
                "name": None if unnamed and name == column else name,
                "field_name": name,
                "pandas_type": kind,
                "numpy_type": "int64" if kind == "int64" else "object",
                "metadata": None,
            }
            for name, kind in (("task_index", "int64"), (column, "unicode"))
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.3.3",
    }
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), column: text})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def write_v2(writer, values, episodes, tasks, stats) -> None:
    root, layout = writer.root, writer.layout
    for i, v in enumerate(values):
        chunk, name = f"chunk-{i // layout.chunks_size:03d}", f"episode_{i:06d}"
        writer.write_data(root / "data" / chunk / f"{name}.parquet", [writer.table(v)])
        for key, feature in writer.videos.items():
            path = root / "videos" / chunk / key / f"{name}.mp4"
            write_video(path, v[key], layout.fps, feature.codec)
    meta = root / "meta"
    write_jsonl(meta / "tasks.jsonl", ({"task_index": i, "task": t} for i, t in enumerate(tasks)))
    write_jsonl(
        meta / "episodes.jsonl",
        (
            {"episode_index": i, "tasks": list(e.tasks), "length": e.length}
            for i, e in enumerate(episodes)
        ),
    )
    if stats and layout.version == "v2.1":
        rows = ({"episode_index": i, "stats": found} for i, found in enumerate(stats))
        write_jsonl(meta / "episodes_stats.jsonl", rows)
    if layout.groot:
        slices = {"arm": {"start": 0, "end": 7}, "gripper": {"start": 7, "end": 8}}
        views = {key.rpartition(".")[2]: {"original_key": key} for key in writer.videos}
        write_json(
            meta / "modality.json", {"state": slices, "action": slices, "video": views} | NOTES
        )


NOTES = {"annotation": {"human.action.task_description": {}, "human.validity": {}}}


def hub_cache(root: Path, cache: Path, repo: str = "owner/name") -> Path:
    """The files of a dataset as the hub's cache keeps them: links to blobs; gives the snapshot."""
    folder = cache / f"datasets--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / hashlib.sha1(repo.encode()).hexdigest()
    (folder / "blobs").mkdir(parents=True)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            blob = folder / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
            blob.write_bytes(path.read_bytes())
            link = snapshot / path.relative_to(root)
            link.parent.mkdir(parents=True, exist_ok=True)
            up = "../" * (len(link.relative_to(folder).parts) - 1)
            link.symlink_to(f"{up}blobs/{blob.name}")
    return snapshot


# -- a dataset for tests ----------------------------------------------------------------------

ARM = [f"joint_{i}" for i in range(1, 8)]
PICTURE = ["height", "width", "channels"]
LENGTHS = (12, 7, 20, 5, 9)

SCALARS = {
    "next.reward": Feature("float32"),
    "next.done": Feature("bool"),
    "observation.mode": Feature("int64"),
}
VECTORS = {
    "observation.state": Feature("float32", (8,), [*ARM, "gripper"]),
    "action": Feature("float32", (8,), {"motors": [*ARM, "gripper"]}),
    "observation.ee_pose": Feature("float32", (7,), ["x", "y", "z", "qx", "qy", "qz", "qw"]),
    "observation.torque": Feature("float64", (3,)),
}
ARRAYS = {
    "observation.jacobian": Feature("float32", (2, 3)),
    "observation.cube": Feature("float64", (2, 3, 2)),
}
TEXT = {"observation.note": Feature("string")}
IMAGES = {"observation.images.wrist": Feature("image", (16, 24, 3), PICTURE, "png")}
VIDEOS = {"observation.images.top": Feature("video", (48, 64, 3), PICTURE, "h264")}
ANNOTATIONS = {
    "annotation.human.action.task_description": Feature("int64"),
    "annotation.human.validity": Feature("int64"),
}


def moving_picture(length: int, shape: tuple[int, ...], phase: int) -> np.ndarray:
    """Frames that all differ: a bright bar that moves over a gradient."""
    height, width, _ = shape
    rows, columns = np.mgrid[0:height, 0:width]
    frames = np.empty((length, *shape), np.uint8)
    for i in range(length):
        bar = (columns + 3 * i + 7 * phase) % width < width // 4
        frames[i, ..., 0] = np.where(bar, 230, 40 + rows)
        frames[i, ..., 1] = 60 + columns + (5 * i + 11 * phase) % 80
        frames[i, ..., 2] = 200 - rows - (3 * i) % 60
    return frames


def smooth(feature: Feature, length: int, rng: np.random.Generator) -> Any:
    """Values as a robot could record them; pose columns hold unit quaternions."""
    if feature.dtype == "string":
        return [f"step {i} µm" if i % 3 else "" for i in range(length)]
    if feature.dtype in ("image", "video"):
        return moving_picture(length, feature.shape, int(rng.integers(8)))
    shape = (length, *feature.shape)
    if feature.dtype == "bool":
        return np.broadcast_to((np.arange(length) == length - 1).reshape(-1, 1), shape)
    if feature.dtype.startswith(("int", "uint")):
        return rng.integers(0, 100, shape).astype(feature.dtype)
    phase = rng.uniform(0, 6, feature.shape)
    steps = np.arange(length).reshape(-1, *[1] * len(feature.shape))
    values = np.sin(phase + 0.1 * steps)
    if feature.names and "qw" in feature.names:
        values[:, 3:] = values[0, 3:] + 0.02 * steps
        values[:, 3:] /= np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
    return values.astype(feature.dtype)


def sample(
    root: Path,
    layout: Layout | None = None,
    features: dict[str, Feature] | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> Path:
    """A small good dataset: without features the plain ones, which need no ffmpeg."""
    layout = layout or Layout()
    features = features or {**VECTORS, **SCALARS}
    rng = np.random.default_rng(7)
    episodes = []
    for i, length in enumerate(lengths):
        values = {name: smooth(feature, length, rng) for name, feature in features.items()}
        tasks = ("pick the cube",) if i % 2 == 0 else ("pläce the cube", "valid")
        episodes.append(Episode(values, tasks))
    return write(root, features, episodes, layout)
