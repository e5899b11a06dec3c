"""Breaks a LeRobot dataset that lerobot_files.py wrote, in one named way each.

`FAULTS[name](root)` changes the files below `root`. A fault of one episode hits episode 1, so that
episode 0 is as good as before, unless both share a file.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa

from lerobot_edit import (
    CAMERA,
    POSE,
    STATE,
    data_file,
    edit_column,
    edit_episodes,
    edit_feature,
    edit_info,
    edit_table,
    episodes_file,
    info_file,
    is_v3,
    last_data_file,
    read_info,
    tasks_file,
    video_file,
)
from lerobot_parts import write_video

Fault = Callable[[Path], object]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


# -- counts and ranges (58, 59) ---------------------------------------------------------------


@fault
def total_episodes_too_large(root: Path) -> None:
    edit_info(root, total_episodes=read_info(root)["total_episodes"] + 1)


@fault
def total_episodes_too_small(root: Path) -> None:
    edit_info(root, total_episodes=read_info(root)["total_episodes"] - 1)


@fault
def total_frames_wrong(root: Path) -> None:
    edit_info(root, total_frames=read_info(root)["total_frames"] + 10)


@fault
def episode_gap(root: Path) -> None:
    """The last episode gets the next number but one, everywhere."""

    def renumber(rows: list[dict]) -> None:
        rows[-1]["episode_index"] += 1

    path = last_data_file(root)

    def renumber_data(table: pa.Table) -> pa.Table:
        old = table["episode_index"].to_numpy()
        new = pa.array(np.where(old == old.max(), old + 1, old))
        return table.set_column(table.schema.get_field_index("episode_index"), "episode_index", new)

    edit_table(path, renumber_data)
    edit_episodes(root, renumber)
    if not is_v3(root):
        last = int(path.stem.rpartition("_")[2])
        for old in (path, *(root / "videos").rglob(f"{path.stem}.mp4")):
            old.rename(old.with_name(f"episode_{last + 1:06d}{old.suffix}"))


@fault
def duplicate_episode(root: Path) -> None:
    edit_episodes(root, lambda rows: rows[2].update(episode_index=1))


@fault
def length_too_long(root: Path) -> None:
    """One row more than the file has, in the last episode."""

    def longer(rows: list[dict]) -> None:
        rows[-1]["length"] += 1
        if "dataset_to_index" in rows[-1]:
            rows[-1]["dataset_to_index"] += 1

    edit_episodes(root, longer)


@fault
def length_too_short(root: Path) -> None:
    edit_episodes(root, lambda rows: rows[1].update(length=rows[1]["length"] - 1))


@fault
def rows_of_another_episode(root: Path) -> None:
    """Ranges that do not tile: episode 1 starts two rows early and ends early."""

    def shift(rows: list[dict]) -> None:
        for key in ("dataset_from_index", "dataset_to_index"):
            rows[1][key] -= 2

    edit_episodes(root, shift)


@fault
def range_ends_before_its_start(root: Path) -> None:
    edit_episodes(root, lambda rows: rows[1].update(dataset_to_index=0))


@fault
def negative_length(root: Path) -> None:
    edit_episodes(root, lambda rows: rows[1].update(length=-7))


@fault
def fps_absent(root: Path) -> None:
    info = read_info(root)
    del info["fps"]
    info_file(root).write_text(json.dumps(info))


for name, value in {
    "zero": 0,
    "negative": -30,
    "nan": float("nan"),
    "infinite": float("inf"),
    "text": "30",
    "null": None,
    "huge": 1e300,
}.items():
    FAULTS[f"fps_{name}"] = partial(edit_info, fps=value)


# -- values (seen by the checker) -------------------------------------------------------------


def value_fault(
    name: str, column: str, change: Callable[[np.ndarray], Any], everywhere: bool = False
) -> None:
    def in_place(values: np.ndarray) -> None:
        change(values)

    FAULTS[name] = partial(edit_column, name=column, change=in_place, everywhere=everywhere)


def put(place: Any, value: Any) -> Callable[[np.ndarray], None]:
    return lambda values: values.__setitem__(place, value)


def clip_top(values: np.ndarray) -> None:
    """Half of the samples stand at the same largest value."""
    np.minimum(values[:, 0], 0.0, out=values[:, 0])


value_fault("nan_values", STATE, put((3, 2), np.nan))
value_fault("infinite_values", STATE, put((3, 2), np.inf))
value_fault("constant_channel", STATE, put((slice(None), 4), 0.25), everywhere=True)
value_fault("saturated_channel", STATE, clip_top, everywhere=True)
value_fault("quaternion_off_the_sphere", POSE, lambda v: np.multiply(v, 1.5, v))
value_fault("quaternion_flips", POSE, lambda v: np.negative(v[3, 3:], v[3, 3:]))
value_fault("unsorted_stamps", "timestamp", lambda v: v.__setitem__([2, 3], v[[3, 2]]))
value_fault("duplicate_stamps", "timestamp", lambda v: v.__setitem__(3, v[2]))
value_fault("nan_stamps", "timestamp", put(3, np.nan))
value_fault("stamps_drift", "timestamp", lambda v: np.multiply(v, 1.2, v))
value_fault("stamp_gap", "timestamp", lambda v: np.add(v[3:], 1.0, v[3:]))
value_fault("frame_index_gap", "frame_index", lambda v: np.add(v[3:], 2, v[3:]))
value_fault("task_unknown", "task_index", put(slice(None), 99))


@fault
def stats_do_not_match(root: Path) -> None:
    """Statistics of other data: the mean of the state is far off, its range too narrow."""
    stats = root / "meta" / "stats.json"
    lines = root / "meta" / "episodes_stats.jsonl"
    if stats.exists():
        content = json.loads(stats.read_text())
        content[STATE]["mean"] = [9.0] * 8
        content[STATE]["max"] = [-0.5] * 8
        stats.write_text(json.dumps(content))
    else:
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        rows[1]["stats"][STATE] |= {"mean": [9.0] * 8, "max": [-0.5] * 8}
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))


# -- schema (48) ------------------------------------------------------------------------------


def edit_data(change: Callable[[pa.Table], pa.Table], at: int = -1) -> Fault:
    """A change of one data file, the last by default; the others stay as they are."""

    def apply(root: Path) -> None:
        edit_table(sorted((root / "data").rglob("*.parquet"))[at], change)

    return apply


def cast(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def apply(table: pa.Table) -> pa.Table:
        column = table[name].combine_chunks()
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array(column.to_pylist(), kind))

    return apply


def narrower(table: pa.Table) -> pa.Table:
    rows = [row[:-1] for row in table[STATE].to_pylist()]
    kind = pa.list_(pa.float32(), 7)
    return table.set_column(table.schema.get_field_index(STATE), STATE, pa.array(rows, kind))


def ragged(table: pa.Table) -> pa.Table:
    """The last row of the file is one number short."""
    rows = table[STATE].to_pylist()
    rows[-1] = rows[-1][:-1]
    kind = pa.list_(pa.float32())
    return table.set_column(table.schema.get_field_index(STATE), STATE, pa.array(rows, kind))


def with_null(table: pa.Table) -> pa.Table:
    rows = table[STATE].to_pylist()
    rows[-1] = None
    kind = table.schema.field(STATE).type
    return table.set_column(table.schema.get_field_index(STATE), STATE, pa.array(rows, kind))


def texts(table: pa.Table) -> pa.Table:
    rows = [str(value) for value in table["next.reward"].to_pylist()]
    place = table.schema.get_field_index("next.reward")
    return table.set_column(place, "next.reward", pa.array(rows))


def renamed(table: pa.Table) -> pa.Table:
    return table.rename_columns(["state" if n == STATE else n for n in table.column_names])


FAULTS |= {
    "column_missing": edit_data(lambda table: table.drop_columns([STATE])),
    "column_renamed": edit_data(renamed),
    "column_of_doubles": edit_data(cast(STATE, pa.list_(pa.float64(), 8))),
    "column_of_text": edit_data(lambda t: t.set_column(0, STATE, pa.array(["x"] * len(t)))),
    "column_narrower": edit_data(narrower),
    "column_ragged": edit_data(ragged),
    "column_with_null": edit_data(with_null),
    "scalar_of_text": edit_data(texts),
}


# -- videos (60) ------------------------------------------------------------------------------


def frames_of(path: Path) -> np.ndarray:
    """All frames of a video by PyAV, RGB."""
    with av.open(str(path)) as container:
        frames = container.decode(video=0)
        return np.stack([frame.to_ndarray(format="rgb24") for frame in frames])


def remake_video(root: Path, count: int | None = None, codec: str = "h264", *more: str) -> None:
    path = video_file(root)
    frames = frames_of(path)[:count]
    write_video(path, frames, read_info(root)["fps"], codec, *more)


def scribble(root: Path) -> None:
    """Noise over the middle of the coded pictures; the boxes around them stay whole."""
    path = video_file(root)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 4
    size = int.from_bytes(content[start - 8 : start - 4], "big") - 8
    noise = np.random.default_rng(60).integers(0, 256, size // 2, np.uint8).tobytes()
    content[start + size // 4 : start + size // 4 + len(noise)] = noise
    path.write_bytes(content)


# Pictures late by a third of a period now and then, as a camera with a free clock would be.
JITTER = "settb=1/90000,setpts=3000*(N+0.3*eq(mod(N\\,3)\\,1))"  # at 30 pictures a second

FAULTS |= {
    "video_missing": lambda root: video_file(root).unlink(),
    "videos_missing": lambda root: shutil.rmtree(root / "videos"),
    "video_short": partial(remake_video, count=4),
    "video_without_last_frame": partial(remake_video, count=-1),
    # The last picture is in the file, but its edit list ends before it.
    "video_hides_last_frame": lambda root: remake_video(
        root, None, "h264_g2", "-vf", JITTER, "-fps_mode", "passthrough"
    ),
    "video_scribbled": scribble,
    "video_of_another_codec": lambda root: remake_video(root, None, "mpeg4"),
    "video_of_another_size": lambda root: remake_video(root, None, "h264", "-s", "32x24"),
    "video_jitter": lambda root: remake_video(
        root, None, "h264_g2", "-vf", JITTER, "-fps_mode", "passthrough", "-use_editlist", "0"
    ),
}


@fault
def codec_label_wrong(root: Path) -> None:
    key = "info" if is_v3(root) else "video_info"
    details = read_info(root)["features"][CAMERA][key]
    edit_feature(root, CAMERA, **{key: {**details, "video.codec": "hevc"}})


@fault
def video_offset(root: Path) -> None:
    """Version 3: an episode that starts 0.4 s later in its video than its pictures do."""
    key = f"videos/{CAMERA}/from_timestamp"
    edit_episodes(root, lambda rows: rows[1].update({key: rows[1][key] + 0.4}))


@fault
def video_offset_is_nan(root: Path) -> None:
    edit_episodes(root, lambda rows: rows[1].update({f"videos/{CAMERA}/from_timestamp": np.nan}))


# -- files and paths (39, 41, 61 to 65) -------------------------------------------------------


def with_bytes(find: Callable[[Path], Path], content: bytes) -> Fault:
    return lambda root: find(root).write_bytes(content)


def cut(find: Callable[[Path], Path], keep: float) -> Fault:
    """The first part of a file, as a crash leaves it: parquet and mp4 lose their index."""

    def apply(root: Path) -> None:
        path = find(root)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])

    return apply


def replaced(find: Callable[[Path], Path], make: Callable[[Path], Any]) -> Fault:
    """Something else in a file's place."""

    def apply(root: Path) -> None:
        path = find(root)
        path.unlink()
        make(path)

    return apply


def with_text(change: Callable[[str], str | bytes]) -> Fault:
    """Another text in info.json."""

    def apply(root: Path) -> None:
        text = change(info_file(root).read_text())
        info_file(root).write_bytes(text.encode() if isinstance(text, str) else text)

    return apply


def sparse(size: int) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        os.truncate(info_file(root), size)

    return apply


KINDS: dict[str, Callable[[Path], Path]] = {
    "info": info_file,
    "episodes": episodes_file,
    "tasks": tasks_file,
    "data": data_file,
    "video": video_file,
}
MAGIC = {".parquet": b"PAR1", ".mp4": b"\0\0\0\x18ftypisom", ".json": b"{", ".jsonl": b"{"}

for kind, find in KINDS.items():
    FAULTS[f"{kind}_empty"] = with_bytes(find, b"")
    FAULTS[f"{kind}_of_one_byte"] = with_bytes(find, b"P")
    FAULTS[f"{kind}_of_magic_only"] = lambda root, find=find: find(root).write_bytes(
        MAGIC[find(root).suffix]
    )
    FAULTS[f"{kind}_cut"] = cut(find, 0.6)
    FAULTS[f"{kind}_missing"] = lambda root, find=find: find(root).unlink()
    FAULTS[f"{kind}_is_folder"] = replaced(find, Path.mkdir)
    FAULTS[f"{kind}_is_fifo"] = replaced(find, os.mkfifo)
    FAULTS[f"{kind}_is_device"] = replaced(find, lambda path: path.symlink_to("/dev/zero"))
    FAULTS[f"{kind}_is_loop"] = replaced(find, lambda path: path.symlink_to(path.name))
    FAULTS[f"{kind}_links_nowhere"] = replaced(find, lambda path: path.symlink_to("nowhere"))
    FAULTS[f"{kind}_denied"] = lambda root, find=find: find(root).chmod(0)

FAULTS |= {
    "info_with_bom": with_text(lambda text: b"\xef\xbb\xbf" + text.encode()),
    "info_in_latin_1": with_text(lambda text: text.replace("panda", "pända").encode("latin-1")),
    "info_with_nan": with_text(lambda text: '{"extra": NaN,' + text[1:]),
    "info_with_a_key_twice": with_text(lambda text: '{"fps": 60,' + text[1:]),
    "info_too_deep": with_text(
        lambda text: '{"extra": ' + "[" * 10**5 + "]" * 10**5 + "," + text[1:]
    ),
    "info_is_a_list": with_text(lambda text: f"[{text}]"),
    "info_too_large": sparse(1 << 30),
}

OUTSIDE = {
    "up": "../../etc/passwd",
    "absolute": "/etc/passwd",
    "nul": "data/a\0b.parquet",
    "drive": "C:\\data\\a.parquet",
    "empty": "",
    "long": "data/" + "x" * 4096,
    "open_brace": "data/{chunk_index",
    "unknown_field": "data/{nobody:03d}.parquet",
    "wide_field": "data/{chunk_index:0999999999d}.parquet",
}
for name, path in OUTSIDE.items():
    FAULTS[f"data_path_{name}"] = partial(edit_info, data_path=path)
    FAULTS[f"video_path_{name}"] = partial(edit_info, video_path=path)


@fault
def video_key_goes_up(root: Path) -> None:
    """A camera whose name leads out of the dataset, to a file that exists."""
    key = "../../outside"
    info = read_info(root)
    shutil.copytree(root / "videos" / CAMERA, root.parent / "outside", dirs_exist_ok=True)
    info["features"][key] = info["features"].pop(CAMERA)
    info_file(root).write_text(json.dumps(info))
    edit_table(
        episodes_file(root),
        lambda table: table.rename_columns([n.replace(CAMERA, key) for n in table.column_names]),
    )


@fault
def image_path_goes_up(root: Path) -> None:
    """Images without bytes, at a path outside of the dataset."""
    name = "observation.images.wrist"

    def apply(table: pa.Table) -> pa.Table:
        rows = [{"bytes": None, "path": "../outside.png"} for _ in range(len(table))]
        place = table.schema.get_field_index(name)
        return table.set_column(place, name, pa.array(rows, table.schema.field(name).type))

    edit_table(data_file(root), apply)
