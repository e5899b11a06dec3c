"""Writes mcap/arm.mcap, an arm that does two tasks, and the corpus of the fuzz target `mcap`: small
files without checksums, so that a fuzzer's changes are not refused before they are read.

Run: python testdata/make_mcap.py, with the packages of crates/robocache-py/tests/requirements.txt.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "crates/robocache-py/tests"))

from mcap.writer import CompressionType, IndexType, Writer  # noqa: E402

from mcap_write import COMPRESSIONS, STORE, T0, Sent, filled, header  # noqa: E402
from mcap_write import write as record  # noqa: E402

OUT = ROOT / "fuzz/corpus/mcap"
SAMPLE = ROOT / "testdata/mcap/arm.mcap"
STEP = 10_000_000
KINDS = [
    "sensor_msgs/msg/JointState",
    "nav_msgs/msg/Odometry",
    "tf2_msgs/msg/TFMessage",
    "trajectory_msgs/msg/JointTrajectory",
    "std_msgs/msg/String",
]


def png(height: int, width: int) -> bytes:
    """A gray picture of 8 bits."""

    def part(name: bytes, data: bytes) -> bytes:
        sum_ = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + sum_

    size = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(height * (width + 1)))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", rows) + part(b"IEND", b"")


def pictures() -> dict[str, object]:
    """Messages whose bytes must fit their sizes."""
    types = STORE.types
    field = types["sensor_msgs/msg/PointField"]
    fields = [field(name, 4 * k, 7, 1) for k, name in enumerate(["x", "y", "z", "rgb"])]
    points = np.arange(12, dtype="<f4").view(np.uint8)
    raw = np.arange(12, dtype=np.uint8)
    cloud, image = types["sensor_msgs/msg/PointCloud2"], types["sensor_msgs/msg/Image"]
    packed = types["sensor_msgs/msg/CompressedImage"]
    encoded = np.frombuffer(png(2, 3), np.uint8)
    return {
        "sensor_msgs/msg/PointCloud2": cloud(header(T0), 1, 3, fields, False, 16, 48, points, True),
        "sensor_msgs/msg/Image": image(header(T0), 2, 2, "bgr8", 0, 6, raw),
        "sensor_msgs/msg/CompressedImage": packed(header(T0), "png", encoded),
    }


def write(name: str, messages: list[tuple[str, object]], compression: str, plain: bool) -> None:
    with (OUT / name).open("wb") as file:
        out = Writer(
            file,
            512,
            CompressionType.NONE if plain else COMPRESSIONS[compression],
            index_types=IndexType.NONE if plain else IndexType.ALL,
            use_chunking=not plain,
            use_statistics=not plain,
            enable_crcs=False,
        )
        out.start("ros2", "corpus")
        channels: dict[str, int] = {}
        for number, (kind, message) in enumerate(messages):
            if kind not in channels:
                text, _ = STORE.generate_msgdef(kind, ros_version=2)
                schema = out.register_schema(kind, "ros2msg", text.encode())
                topic = "/" + kind.rpartition("/")[2].lower()
                channels[kind] = out.register_channel(topic, "cdr", schema)
            data = STORE.serialize_cdr(message, kind, little_endian=number % 3 > 0)
            out.add_message(channels[kind], T0 + number * STEP, bytes(data), T0)
        out.finish()


def write_json(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "timestamp": {"type": "object", "properties": {"sec": {}, "nsec": {}}},
            "q": {"type": "object", "properties": {k: {"type": "number"} for k in "wxyz"}},
            "joints": {"type": "array", "items": {"type": "number"}},
            "word": {"type": "string"},
        },
    }
    message = {"timestamp": {"sec": 1, "nsec": 2}, "q": dict.fromkeys("wxyz", 0.5)}
    message |= {"joints": [1.0, 2.5], "word": "x"}
    with (OUT / name).open("wb") as file:
        out = Writer(file, compression=CompressionType.NONE, enable_crcs=False)
        out.start("", "corpus")
        number = out.register_schema("arm", "jsonschema", json.dumps(schema).encode())
        channel = out.register_channel("/arm", "json", number)
        for _ in range(2):
            out.add_message(channel, T0, json.dumps(message).encode(), T0)
        out.finish()


def write_foxglove(name: str) -> None:
    from foxglove_schemas_protobuf.PackedElementField_pb2 import PackedElementField
    from foxglove_schemas_protobuf.PointCloud_pb2 import PointCloud
    from foxglove_schemas_protobuf.PoseInFrame_pb2 import PoseInFrame

    pose = PoseInFrame(frame_id="base")
    pose.timestamp.FromNanoseconds(T0)
    pose.pose.orientation.w = 1.0
    cloud = PointCloud(frame_id="base", point_stride=12, data=bytes(24))
    cloud.fields.extend(
        PackedElementField(name=axis, offset=4 * k, type=7) for k, axis in enumerate("xyz")
    )
    with (OUT / name).open("wb") as file:
        out = Writer(file, compression=CompressionType.NONE, enable_crcs=False)
        out.start("", "corpus")
        for topic, kind, message in (
            ("/pose", "foxglove.PoseInFrame", pose),
            ("/cloud", "foxglove.PointCloud", cloud),
        ):
            schema = out.register_schema(kind, "protobuf", b"")
            channel = out.register_channel(topic, "protobuf", schema)
            out.add_message(channel, T0, message.SerializeToString(), T0)
        out.finish()


def arm() -> list[Sent]:
    """Two tasks of 2 s with 5 s between them, each sensor at its own rate."""
    types = STORE.types
    rng = np.random.default_rng(11)
    sent = []

    def add(topic: str, kind: str, time: int, *fields: object) -> None:
        message = types[kind](*fields)
        sent.append(Sent(topic, kind, message, time + int(rng.integers(1_000_000, 3_000_000))))

    names = [f"joint{k}" for k in range(1, 8)]
    none = np.empty(0)
    point_field = types["sensor_msgs/msg/PointField"]
    fields = [point_field(name, 4 * k, 7, 1) for k, name in enumerate("xyz")]
    picture = np.frombuffer(png(16, 16), np.uint8)
    for episode, task in enumerate(["pick up the cube", "put it into the box"]):
        start = T0 + episode * 7_000_000_000
        words = types["std_msgs/msg/String"](task)
        sent.append(Sent("/task", "std_msgs/msg/String", words, start))
        for i in range(100):
            time = start + i * 20_000_000 + int(rng.integers(2_000_000))
            angles = np.sin((time - T0) * 1e-9 + np.arange(7.0))
            order = rng.permutation(7) if i % 10 == 9 else np.arange(7)
            joints = [names[k] for k in order]
            kind = "sensor_msgs/msg/JointState"
            add("/joint_states", kind, time, header(time), joints, angles[order], none, none)
        for i in range(50):
            time = start + i * 40_000_000
            turn = (time - T0) * 1e-10
            quaternion = types["geometry_msgs/msg/Quaternion"](0.0, 0.0, np.sin(turn), np.cos(turn))
            pose = types["geometry_msgs/msg/Pose"](
                types["geometry_msgs/msg/Point"](0.3 + 0.01 * i, 0.0, 0.4), quaternion
            )
            add("/ee_pose", "geometry_msgs/msg/PoseStamped", time, header(time), pose)
        for i in range(20):
            time = start + i * 100_000_000
            kind = "sensor_msgs/msg/CompressedImage"
            add("/camera", kind, time, header(time, "camera"), "png", picture)
        for i in range(10):
            time = start + i * 200_000_000
            points = rng.uniform(-1, 1, (40 - i, 3)).astype("<f4")
            data = points.view(np.uint8).ravel()
            add(
                "/points",
                "sensor_msgs/msg/PointCloud2",
                time,
                *(header(time, "lidar"), 1, len(points), fields, False, 12, len(data), data, True),
            )
    return sorted(sent, key=lambda one: one.log)


def main() -> None:
    SAMPLE.parent.mkdir(exist_ok=True)
    record(SAMPLE, arm(), compression="zstd", chunk_size=32 << 10)
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    messages = []
    for kind in KINDS:
        for at in range(2):
            message = filled(kind, rng, T0 + at * STEP, length=2)
            for names in ("name", "joint_names"):
                if hasattr(message, names):
                    object.__setattr__(message, names, ["b", "a"])
            for transform, child in zip(getattr(message, "transforms", []), "ab", strict=False):
                object.__setattr__(transform, "child_frame_id", child)
            messages.append((kind, message))
    for compression in COMPRESSIONS:
        write(f"messages-{compression}", messages, compression, plain=False)
    write("messages-plain", messages, "none", plain=True)
    write("pictures", list(pictures().items()), "none", plain=False)
    write_json("json")
    write_foxglove("foxglove")


if __name__ == "__main__":
    main()
