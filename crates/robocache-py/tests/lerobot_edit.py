"""Finds and changes the files of a LeRobot dataset, of version 3 and version 2 alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Change = Callable[[np.ndarray], np.ndarray | None]

STATE, POSE, CAMERA = "observation.state", "observation.ee_pose", "observation.images.top"

# -- where things are -------------------------------------------------------------------------


def is_v3(root: Path) -> bool:
    return (root / "meta" / "episodes").is_dir()


def info_file(root: Path) -> Path:
    return root / "meta" / "info.json"


def episodes_file(root: Path) -> Path:
    found = sorted((root / "meta" / "episodes").rglob("*.parquet"))
    return found[0] if found else root / "meta" / "episodes.jsonl"


def tasks_file(root: Path) -> Path:
    return root / "meta" / ("tasks.parquet" if is_v3(root) else "tasks.jsonl")


def data_file(root: Path) -> Path:
    """The file with episode 1."""
    return sorted((root / "data").rglob("*.parquet"))[0 if is_v3(root) else 1]


def video_file(root: Path) -> Path:
    """The file with episode 1 of the camera."""
    folder = root / "videos"
    found = sorted(path for path in folder.rglob("*.mp4") if CAMERA in path.parts)
    return found[0 if is_v3(root) else 1]


def last_data_file(root: Path) -> Path:
    return sorted((root / "data").rglob("*.parquet"))[-1]


# -- changes ----------------------------------------------------------------------------------


def read_info(root: Path) -> dict[str, Any]:
    return json.loads(info_file(root).read_text())


def edit_info(root: Path, **changes: Any) -> None:
    info_file(root).write_text(json.dumps({**read_info(root), **changes}))


def edit_feature(root: Path, name: str, **changes: Any) -> None:
    features = read_info(root)["features"]
    features[name] |= changes
    edit_info(root, features=features)


def edit_episodes(root: Path, change: Callable[[list[dict]], list[dict] | None]) -> None:
    """Rows of the table of episodes, whatever its format; `change` may edit them in place."""
    path = episodes_file(root)
    if is_v3(root):
        table = pq.read_table(path)
        rows = table.to_pylist()
        rows = change(rows) or rows
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = change(rows) or rows
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def edit_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a parquet file anew, with the row groups that it has."""
    file = pq.ParquetFile(path)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    table = change(file.read())
    with pq.ParquetWriter(path, table.schema) as writer:
        start = 0
        for size in sizes:
            writer.write_table(table.slice(start, size))
            start += size


def edit_column(root: Path, name: str, change: Change, everywhere: bool = False) -> None:
    """The values of episode 1 in a column, `[S, ...]`; `change` may edit them in place.

    Everywhere: all rows of every file.
    """

    def apply(table: pa.Table) -> pa.Table:
        found = table["episode_index"].to_numpy()
        rows = np.flatnonzero((found == 1) | everywhere)
        column = table[name]
        values = column.to_pylist()
        part = np.array([values[row] for row in rows])
        got = change(part)
        for row, value in zip(rows, part if got is None else got, strict=True):
            values[row] = value.tolist()
        place = table.schema.get_field_index(name)
        return table.set_column(place, table.schema.field(name), pa.array(values, column.type))

    for path in sorted((root / "data").rglob("*.parquet")) if everywhere else [data_file(root)]:
        edit_table(path, apply)
