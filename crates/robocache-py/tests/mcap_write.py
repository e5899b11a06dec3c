"""MCAP recordings that other libraries write: messages by rosbags, files by the package mcap."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

writer = pytest.importorskip("mcap.writer", reason="mcap is not installed")
typesys = pytest.importorskip("rosbags.typesys", reason="rosbags is not installed")

# Nanoseconds since 1970: float32 seconds cannot hold them.
T0 = 1_760_000_000_000_000_000
STORE = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
COMPRESSIONS = {
    "none": writer.CompressionType.NONE,
    "lz4": writer.CompressionType.LZ4,
    "zstd": writer.CompressionType.ZSTD,
}
# Characters of texts, of one and more bytes.
LETTERS = np.array(list("abcxyzäß日"))


@dataclasses.dataclass
class Sent:
    """A message, and when it was stamped and recorded."""

    topic: str
    kind: str
    message: Any
    log: int
    little_endian: bool = True


def stamp(ns: int) -> Any:
    return STORE.types["builtin_interfaces/msg/Time"](int(ns // 10**9), int(ns % 10**9))


def header(ns: int, frame: str = "base") -> Any:
    return STORE.types["std_msgs/msg/Header"](stamp(ns), frame)


def filled(kind: str, rng: np.random.Generator, ns: int, length: int = 3) -> Any:
    """A message with random numbers in all of its fields; sequences have `length` elements."""
    fields = {name: value(node, rng, ns, length) for name, node in STORE.fielddefs[kind][1]}
    return STORE.types[kind](**fields)


def value(node: Any, rng: np.random.Generator, ns: int, length: int) -> Any:
    node_type, about = node
    match int(node_type):
        case 1:
            return scalar(about[0], rng)
        case 2 if about == "std_msgs/msg/Header":
            return header(ns)
        case 2 if about == "builtin_interfaces/msg/Time":
            return stamp(ns + int(rng.integers(1000)))
        case 2:
            return filled(about, rng, ns, length)
    element, count = about
    count = count if int(node_type) == 3 else length
    if int(element[0]) == 1 and element[1][0] != "string":
        return np.array([scalar(element[1][0], rng) for _ in range(count)], element[1][0])
    return [value(element, rng, ns, length) for _ in range(count)]


def scalar(name: str, rng: np.random.Generator) -> Any:
    if name == "string":
        return "".join(rng.choice(LETTERS, int(rng.integers(9))))
    if name == "bool":
        return bool(rng.integers(2))
    if name.startswith("float"):
        return np.dtype(name).type(rng.normal())
    info = np.iinfo(np.dtype("uint8" if name in ("octet", "byte", "char") else name))
    return int(rng.integers(info.min, info.max, endpoint=True, dtype=info.dtype))


def write(
    path: Path,
    messages: Iterable[Sent],
    *,
    compression: str = "zstd",
    indexed: bool = True,
    chunk_size: int = 4096,
) -> Path:
    """Writes a recording; without an index also without chunks and a summary."""
    with path.open("wb") as file:
        out = writer.Writer(
            file,
            chunk_size,
            COMPRESSIONS[compression],
            index_types=writer.IndexType.ALL if indexed else writer.IndexType.NONE,
            repeat_channels=indexed,
            repeat_schemas=indexed,
            use_chunking=indexed,
            use_statistics=indexed,
            use_summary_offsets=indexed,
            enable_data_crcs=True,
        )
        out.start("ros2", "test")
        channels: dict[str, int] = {}
        for number, sent in enumerate(messages):
            if sent.topic not in channels:
                text, _ = STORE.generate_msgdef(sent.kind, ros_version=2)
                schema = out.register_schema(sent.kind, "ros2msg", text.encode())
                channels[sent.topic] = out.register_channel(sent.topic, "cdr", schema)
            data = STORE.serialize_cdr(sent.message, sent.kind, little_endian=sent.little_endian)
            out.add_message(channels[sent.topic], sent.log, bytes(data), sent.log, sequence=number)
        out.finish()
    return path


def numbers(thing: Any) -> list[Any]:
    """The numbers of a value, in the order of its fields."""
    if dataclasses.is_dataclass(thing):
        parts = [getattr(thing, f.name) for f in dataclasses.fields(thing) if f.name[0] != "_"]
        return [number for part in parts for number in numbers(part)]
    if isinstance(thing, (list, tuple, np.ndarray)):
        return [number for part in thing for number in numbers(part)]
    return [thing]


def at(message: Any, path: list[str]) -> Any:
    """What is at a path; of a list what its elements have there."""
    for name in path:
        if isinstance(message, list):
            message = [getattr(part, name) for part in message]
        else:
            message = getattr(message, name)
    if type(message).__name__.endswith(("__Time", "__Duration")):
        return message.sec * 10**9 + message.nanosec
    if isinstance(message, list) and message and type(message[0]).__name__.endswith("__Duration"):
        return [part.sec * 10**9 + part.nanosec for part in message]
    return message
