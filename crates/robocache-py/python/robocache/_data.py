"""Datasets and caches: where they are found, how one becomes the other."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from robocache import _arguments as arguments
from robocache import _core
from robocache._arguments import Path, invalid, whole
from robocache._errors import FileError, InvalidArgument, Unsupported

# A dataset on a hub: owner and name.
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


class Recording(TypedDict, total=False):
    """How a recording is read: which clock stamps its messages, and where its episodes are."""

    clock: Literal["header", "log"]
    """"header": the stamps in the messages (default); "log": when they were recorded."""
    episode_gap: float
    """A new episode starts after so many seconds without a message."""
    episode_topic: str
    """Messages of this topic start episodes; false or an empty text ends one, a text is its task."""
    episode_ranges: Sequence[tuple[float, float]]
    """Episodes from one second of the recording to another."""


def dataset(path: Path, *, recording: Recording | None = None) -> _core.Dataset:
    """Opens a dataset: a folder or file, or the name of one on the Hugging Face hub.

    LeRobot v2.0, v2.1 and v3.0 and MCAP recordings (ROS 2, Foxglove) are read. Of a dataset only the
    metadata is read here, a recording is gone over once; episodes are read when asked for:

    >>> ds = rc.dataset("testdata/lerobot_v30")
    >>> ds.episode(0)["observation.state"].values

    Args:
        path: where it is.
        recording: how an MCAP recording is read, see `rc.Recording`: for instance
            `{"clock": "log", "episode_gap": 2.0}`. By default stamps are those of the headers, and
            a recording is one episode.

    A name such as "lerobot/pusht" that is no folder here is downloaded by the package
    `huggingface_hub`, where that is installed.
    """
    place = arguments.path("path", path, "dataset")
    if not _is_here(place) and _HUB_NAME.fullmatch(place):
        place = _download(place)
    return _core.open_dataset(place, _recording(recording, "dataset"))


def _recording(recording: Recording | None, op: str) -> dict[str, Any] | None:
    """The words of a recording as the engine takes them."""
    if recording is None:
        return None
    wanted: dict[str, Any] = dict(arguments.by_name("recording", recording, op))
    if unknown := wanted.keys() - Recording.__annotations__.keys():
        known = ", ".join(Recording.__annotations__)
        raise invalid("recording", f"expected {known}, got {sorted(unknown, key=repr)}", op=op)
    if len(wanted.keys() - {"clock"}) > 1:
        raise invalid(
            "recording", f"expected one way to find episodes, got {sorted(wanted)}", op=op
        )
    return wanted


def _is_here(place: str) -> bool:
    """Whether something has this path; what may not be looked at counts, and the engine says why."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _download(name: str) -> str:
    try:
        huggingface_hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise Unsupported(
            f"dataset: there is no folder {name!r} here; to get a dataset of that name from the "
            "hub, pip install huggingface_hub",
            op="dataset",
            argument="path",
        ) from error
    try:
        return str(huggingface_hub.snapshot_download(repo_id=name, repo_type="dataset"))
    except Exception as error:
        raise FileError(
            f"dataset: there is no folder {name!r} here, and the hub did not give it: {error}",
            op="dataset",
            argument="path",
            path=name,
        ) from error


def ingest(
    path: Path,
    out: Path,
    *,
    streams: Iterable[str] | Mapping[str, str | Mapping[str, str]] | None = None,
    methods: Mapping[str, str | list[tuple[str, int, int]]] | None = None,
    images: Literal["jpeg", "raw", "skip"] = "jpeg",
    image_size: int | Sequence[int] | None = None,
    quality: int = 95,
    strict: bool = False,
    workers: int | None = None,
    tag: str | None = None,
    recording: Recording | None = None,
    progress: bool = True,
) -> Ingested:
    """Makes a cache of a dataset: everything is decoded once.

    Args:
        path: a dataset, as `rc.dataset` takes it.
        out: the cache's folder. A cache that is there gets the episodes of a further source; an
            ingest that was cut off goes on, and does no work twice.
        streams: names to take, or a mapping from names to new names or to
            `{"name": ..., "dtype": "float32" | "float16" | "bfloat16"}`. None takes all.
        methods: interpolation by stream, a name as in `resample` or a list of
            `(method, start, end)` that covers the columns once.
        images: "jpeg" (`quality`), "raw" pixels, or "skip". Depth stays raw.
        image_size: pictures are made this high and wide, once.
        strict: stop at the first episode in which `check` finds an error or that cannot be
            read; else it is skipped and listed.
        workers: threads; all cores by default.
        tag: what this source is called among several; the folder's name by default.
        recording: how an MCAP recording is read, as in `rc.dataset`.
        progress: draw a bar when standard error is a terminal.
    """
    op = "ingest"
    source, target = arguments.path("path", path, op), arguments.path("out", out, op)
    chosen, by_stream = _choices(streams), arguments.by_name("methods", methods, op)
    pictures = arguments.one_of("images", images, ("jpeg", "raw", "skip"), op)
    size = _size(image_size)
    quality = whole("quality", quality, 1, 100, op)
    strict = arguments.flag("strict", strict, op)
    if workers is not None:
        workers = whole("workers", workers, 1, 4096, op)
    if tag is not None:
        tag = arguments.text("tag", tag, op)
    progress = arguments.flag("progress", progress, op)
    # The hub is asked last, when nothing else is wrong.
    if not _is_here(source) and _HUB_NAME.fullmatch(source):
        source = _download(source)
    bar = _Bar() if progress and sys.stderr is not None and sys.stderr.isatty() else None
    try:
        report = _core.ingest_dataset(
            source,
            target,
            chosen,
            by_stream,
            pictures,
            size,
            quality,
            strict,
            workers,
            tag,
            _recording(recording, op),
            bar,
        )
    finally:
        if bar is not None:
            bar.end()
    return Ingested(**report)


@dataclass(frozen=True)
class Ingested:
    """What an ingest did."""

    episodes: int
    """Episodes in the cache now."""
    frames: int
    """Frames of the episodes that were taken now."""
    bytes: int
    """Bytes of the cache."""
    units_before: int
    units_done: int
    skipped: list[tuple[int, str]]
    """Episodes that could not be taken, with the reason."""
    missing: list[tuple[str, str]]
    """Streams that a source declares but that cannot be read: its tag, and the name."""


def _choices(
    streams: Iterable[str] | Mapping[str, str | Mapping[str, str]] | None,
) -> list[tuple[str, str | None, str | None]] | None:
    if streams is None:
        return None
    if isinstance(streams, str):
        raise InvalidArgument(
            "ingest: streams: expected a list of names or a mapping, got one name",
            op="ingest",
            argument="streams",
        )
    if not isinstance(streams, Mapping):
        names = arguments.items("streams", streams, "ingest")
        return [(arguments.text("streams", name, "ingest"), None, None) for name in names]
    chosen: list[tuple[str, str | None, str | None]] = []
    for name, wish in arguments.by_name("streams", streams, "ingest"):
        if isinstance(wish, str):
            chosen.append((name, arguments.text("streams", wish, "ingest"), None))
            continue
        if not isinstance(wish, Mapping):
            raise InvalidArgument(
                f"ingest: streams: {name!r}: expected a new name or a mapping, got {wish!r}",
                op="ingest",
                argument="streams",
            )
        unknown = set(wish) - {"name", "dtype"}
        if unknown:
            raise InvalidArgument(
                f"ingest: streams: {name!r}: expected 'name' and 'dtype', got {sorted(unknown, key=repr)}",
                op="ingest",
                argument="streams",
            )
        new, dtype = (
            None if said is None else arguments.text("streams", said, "ingest")
            for said in (wish.get("name"), wish.get("dtype"))
        )
        chosen.append((name, new, dtype))
    return chosen


def _size(value: int | Sequence[int] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = (
        tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * 2
    )
    if len(sides) != 2:
        message = f"expected one number, or height and width, got {value!r}"
        raise invalid("image_size", message, op="ingest")
    height, width = (whole("image_size", side, 1, 16384, op="ingest") for side in sides)
    return height, width


class _Bar:
    """Frames done, with rate and what is left, on one line of standard error."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.drawn = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if total == 0 or now - self.drawn < 0.1:
            return
        self.drawn = now
        rate = done / max(now - self.start, 1e-6)
        left = (total - done) / rate if rate > 0 else float("inf")
        width = 24
        filled = "#" * (width * done // total)
        text = (
            f"\r[{filled:<{width}}] {done:,} of {total:,} frames, {rate:,.0f}/s, {left:.0f} s left "
        )
        sys.stderr.write(text)
        sys.stderr.flush()

    def end(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
