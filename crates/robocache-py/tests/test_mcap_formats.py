"""Pictures, JSON and protobuf in MCAP recordings, and caches that are exported to MCAP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache as rc
from dataset_reference import TESTDATA, shared_data
from helpers import run_python
from mcap_write import STORE, T0, Sent, header, write

decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")
reader = pytest.importorskip("mcap.reader", reason="mcap is not installed")


def test_pictures_of_all_encodings(tmp_path: Path):
    rng = np.random.default_rng(5)
    image = STORE.types["sensor_msgs/msg/Image"]
    height, width = 4, 6
    sent, expected = [], {}
    for encoding, channels, dtype in [
        ("rgb8", 3, "u1"),
        ("bgr8", 3, "u1"),
        ("rgba8", 4, "u1"),
        ("mono8", 1, "u1"),
        ("16UC1", 1, "u2"),
        ("32FC1", 1, "f4"),
    ]:
        size = (height, width, channels)
        pixels = rng.uniform(0, 250, size).astype(dtype)
        raw = pixels.tobytes()
        step = len(raw) // height
        # Rows may have bytes behind them.
        data = b"".join(raw[k * step : (k + 1) * step] + b"pad!" for k in range(height))
        message = image(
            header(T0), height, width, encoding, 0, step + 4, np.frombuffer(data, np.uint8)
        )
        topic = f"/image/{encoding}"
        sent.append(Sent(topic, "sensor_msgs/msg/Image", message, T0))
        match encoding:
            case "bgr8":
                pixels = pixels[..., ::-1]
            case "rgba8":
                pixels = pixels[..., :3]
            case "32FC1":
                pixels = np.clip(np.round(pixels * np.float32(1e3)), 0, 65535).astype("u2")
        expected[topic] = pixels
    episode = rc.dataset(write(tmp_path / "a.mcap", sent)).episode(0)
    for topic, pixels in expected.items():
        np.testing.assert_array_equal(episode[topic].values, pixels[None], err_msg=topic)


def test_json_messages(tmp_path: Path):
    from mcap.writer import Writer

    schema = {
        "type": "object",
        "properties": {
            "timestamp": {
                "type": "object",
                "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}},
            },
            "gripper": {"type": "number"},
            "joints": {"type": "array", "items": {"type": "number"}},
            "turn": {
                "type": "object",
                "properties": {k: {"type": "number"} for k in "wxyz"},
            },
            "word": {"type": "string"},
            "on": {"type": "boolean"},
        },
    }
    rng = np.random.default_rng(2)
    rows = [
        {
            "timestamp": {"sec": T0 // 10**9 + i, "nsec": i},
            "gripper": float(rng.normal()),
            "joints": rng.normal(size=4).tolist(),
            "turn": dict(zip("wxyz", rng.normal(size=4).tolist(), strict=False)),
            "word": f"step {i} \u00e4\n",
            "on": i % 2 == 0,
        }
        for i in range(5)
    ]
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        out = Writer(file)
        out.start("", "test")
        number = out.register_schema("arm", "jsonschema", json.dumps(schema).encode())
        channel = out.register_channel("/arm", "json", number)
        for row in rows:
            out.add_message(channel, T0, json.dumps(row).encode(), T0)
        out.finish()
    ds = rc.dataset(path)
    episode = ds.episode(0)
    np.testing.assert_array_equal(
        episode["/arm/gripper"].times, [T0 + i * (10**9 + 1) for i in range(5)]
    )
    np.testing.assert_array_equal(
        episode["/arm/gripper"].values, [[row["gripper"]] for row in rows]
    )
    np.testing.assert_array_equal(episode["/arm/joints"].values, [row["joints"] for row in rows])
    turns = [[row["turn"][k] for k in "xyzw"] for row in rows]
    np.testing.assert_array_equal(episode["/arm/turn"].values, turns)
    assert ds.streams["/arm/turn"].method == "slerp"
    assert ds.streams["/arm/gripper"].method == "linear"
    assert episode["/arm/word"].values == [row["word"] for row in rows]
    np.testing.assert_array_equal(episode["/arm/on"].values, [[row["on"]] for row in rows])


def test_foxglove_messages(tmp_path: Path):
    pose_pb = pytest.importorskip("foxglove_schemas_protobuf.PoseInFrame_pb2")
    from foxglove_schemas_protobuf.PackedElementField_pb2 import PackedElementField
    from foxglove_schemas_protobuf.PointCloud_pb2 import PointCloud
    from mcap.writer import Writer

    rng = np.random.default_rng(4)
    poses = rng.normal(size=(6, 7))
    clouds = rng.normal(size=(6, 5, 4)).astype("<f4")
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        out = Writer(file)
        out.start("", "test")
        pose_schema = out.register_schema("foxglove.PoseInFrame", "protobuf", b"")
        cloud_schema = out.register_schema("foxglove.PointCloud", "protobuf", b"")
        pose_channel = out.register_channel("/pose", "protobuf", pose_schema)
        cloud_channel = out.register_channel("/cloud", "protobuf", cloud_schema)
        for i in range(6):
            pose = pose_pb.PoseInFrame(frame_id="base")
            pose.timestamp.FromNanoseconds(T0 + i)
            for part, names, values in (
                (pose.pose.position, "xyz", poses[i, :3]),
                (pose.pose.orientation, "xyzw", poses[i, 3:]),
            ):
                for name, number in zip(names, values, strict=False):
                    setattr(part, name, number)
            out.add_message(pose_channel, T0, pose.SerializeToString(), T0)
            points = clouds[i, : i or 1]
            cloud = PointCloud(frame_id="base", point_stride=16, data=points.tobytes())
            cloud.timestamp.FromNanoseconds(T0 + i)
            for k, name in enumerate(["x", "y", "z", "intensity"]):
                cloud.fields.append(PackedElementField(name=name, offset=4 * k, type=7))
            out.add_message(cloud_channel, T0, cloud.SerializeToString(), T0)
        out.finish()
    episode = rc.dataset(path).episode(0)
    np.testing.assert_array_equal(episode["/pose/pose"].values, poses)
    np.testing.assert_array_equal(episode["/pose/pose"].times, T0 + np.arange(6))
    expected = np.full((6, 5, 4), np.nan, np.float32)
    for i in range(6):
        expected[i, : i or 1] = clouds[i, : i or 1]
    np.testing.assert_array_equal(episode["/cloud"].values, expected)


def test_an_exported_cache_reads_back_equal(tmp_path: Path):
    out, exported = tmp_path / "cache", tmp_path / "exported"
    rc.ingest(shared_data("mcap") / "ros2_arm.mcap", out, images="raw", progress=False)
    done = run_python(
        "-m", "robocache", "export", str(out), str(exported), "--to", "mcap", timeout=60
    )
    assert done.returncode == 0, done.stderr
    path = exported / "episode_000000.mcap"
    cached, again = rc.open(out).episode(0), rc.dataset(exported).episode(0)
    with path.open("rb") as file:
        make = reader.make_reader(file, decoder_factories=[decoder.DecoderFactory()])
        decoded: dict[str, list[Any]] = {}
        for _, channel, record, message in make.iter_decoded_messages():
            stamp = message.header.stamp
            assert stamp.sec * 10**9 + stamp.nanosec == record.log_time
            decoded.setdefault(channel.topic, []).append(message)
    for name in ("/joint_states/position", "/wrench/wrench", "/imu/orientation"):
        values = cached[name].values
        np.testing.assert_array_equal([list(m.data) for m in decoded[name]], values)
        np.testing.assert_array_equal(again[f"{name}/data"].values, values)
        np.testing.assert_array_equal(again[f"{name}/data"].times, cached[name].times)
    for name in ("/points", "/camera/color/image_raw/compressed"):
        np.testing.assert_array_equal(again[name].values, cached[name].values)
        np.testing.assert_array_equal(again[name].times, cached[name].times)
    assert not [finding for finding in rc.dataset(exported).check() if finding.level == "error"]
    again_into = run_python(
        "-m", "robocache", "export", str(out), str(exported), "--to", "mcap", timeout=60
    )
    assert again_into.returncode == 2 and "new or empty folder" in again_into.stderr


def test_lerobot_becomes_mcap(tmp_path: Path):
    out, exported = tmp_path / "cache", tmp_path / "exported"
    rc.ingest(TESTDATA / "lerobot_v30", out, images="skip", progress=False)
    done = run_python(
        "-m", "robocache", "export", str(out), str(exported), "--to", "mcap", timeout=60
    )
    assert done.returncode == 0, done.stderr
    cache, again = rc.open(out), rc.dataset(exported, recording={"clock": "log"})
    assert len(again) == len(cache) == 5
    for place in range(5):
        cached = cache.episode(place)["observation.state"]
        read = again.episode(place)["/observation/state/data"]
        np.testing.assert_array_equal(read.values, cached.values)
        np.testing.assert_array_equal(read.times, cached.times)


def test_cameras_are_kept_per_episode(tmp_path: Path):
    types = STORE.types
    info = types["sensor_msgs/msg/CameraInfo"]
    region = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    k = np.array([50.0, 0, 3, 0, 51, 2, 0, 0, 1])
    lens = info(
        *(header(T0, "lens"), 4, 6, "plumb_bob", np.array([0.1, -0.2])),
        *(k, np.eye(3).ravel(), np.zeros(12), 0, 0, region),
    )
    transform = types["geometry_msgs/msg/Transform"](
        types["geometry_msgs/msg/Vector3"](0.1, 0.2, 1.0),
        types["geometry_msgs/msg/Quaternion"](0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)),
    )
    link = types["geometry_msgs/msg/TransformStamped"](header(T0, "base"), "lens", transform)
    image = types["sensor_msgs/msg/Image"]
    pixels = np.arange(24, dtype=np.uint8)
    sent = [
        Sent("/front/camera_info", "sensor_msgs/msg/CameraInfo", lens, T0),
        Sent("/tf_static", "tf2_msgs/msg/TFMessage", types["tf2_msgs/msg/TFMessage"]([link]), T0),
    ]
    for i in range(6):
        time = T0 + i * 10**9 + (i > 2) * 10**10
        picture = image(header(time, "lens"), 4, 6, "mono8", 0, 6, pixels)
        sent.append(Sent("/front/image_raw", "sensor_msgs/msg/Image", picture, time))
    path = write(tmp_path / "a.mcap", sent)
    out = tmp_path / "cache"
    recording: rc.Recording = {"episode_gap": 5.0}
    rc.ingest(path, out, streams=["/front/image_raw"], recording=recording, progress=False)
    for episodes in (rc.dataset(path, recording=recording), rc.open(out)):
        for place in range(2):
            camera = episodes.episode(place).camera("/front/image_raw")
            np.testing.assert_array_equal(camera.intrinsics, k.reshape(3, 3))
            assert camera.size == (4, 6) and camera.distortion == [0.1, -0.2]
            assert (camera.frame, camera.base) == ("lens", "base")
            # The camera's x is the base's y.
            expected = [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 1], [0, 0, 0, 1]]
            np.testing.assert_allclose(camera.extrinsics, expected, atol=1e-12)
        with pytest.raises(KeyError, match="calibrated cameras"):
            episodes.episode(0).camera("/front/image")
