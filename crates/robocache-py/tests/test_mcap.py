"""MCAP recordings: values equal to those of the libraries that wrote and read them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache as rc
from dataset_reference import TESTDATA, shared_data
from mcap_write import COMPRESSIONS, T0, Sent, at, filled, header, numbers, write

decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")
reader = pytest.importorskip("mcap.reader", reason="mcap is not installed")

SAMPLE = "ros2_arm.mcap"
STEP = 10_000_000

# Streams of types by the fields that they come from.
KINDS = {
    "sensor_msgs/msg/JointState": ["position", "velocity", "effort"],
    "sensor_msgs/msg/Imu": [
        "orientation",
        "orientation_covariance",
        "angular_velocity",
        "angular_velocity_covariance",
        "linear_acceleration",
        "linear_acceleration_covariance",
    ],
    "geometry_msgs/msg/WrenchStamped": ["wrench"],
    "geometry_msgs/msg/PoseStamped": ["pose"],
    "geometry_msgs/msg/TwistStamped": ["twist"],
    "nav_msgs/msg/Odometry": ["pose/pose", "pose/covariance", "twist/twist", "twist/covariance"],
    "std_msgs/msg/Float64MultiArray": ["data"],
    "trajectory_msgs/msg/JointTrajectory": [
        "points/positions",
        "points/velocities",
        "points/accelerations",
        "points/effort",
        "points/time_from_start",
    ],
    "geometry_msgs/msg/Twist": [""],
    "geometry_msgs/msg/PoseArray": ["poses"],
    "std_msgs/msg/Bool": ["data"],
    "std_msgs/msg/UInt8MultiArray": ["data"],
    "std_msgs/msg/String": ["data"],
    "sensor_msgs/msg/Joy": ["axes", "buttons"],
    "sensor_msgs/msg/LaserScan": [
        "angle_min",
        "angle_max",
        "angle_increment",
        "time_increment",
        "scan_time",
        "range_min",
        "range_max",
        "ranges",
        "intensities",
    ],
    "sensor_msgs/msg/NavSatFix": [
        "status/status",
        "status/service",
        "latitude",
        "longitude",
        "altitude",
        "position_covariance",
        "position_covariance_type",
    ],
    "nav_msgs/msg/OccupancyGrid": [
        "info/map_load_time",
        "info/resolution",
        "info/width",
        "info/height",
        "info/origin",
        "data",
    ],
    "visualization_msgs/msg/Marker": ["pose", "scale", "color", "points", "colors", "lifetime"],
}


def stamps(messages: list[Sent]) -> list[int]:
    def of(sent: Sent) -> int:
        head = getattr(sent.message, "header", None)
        return sent.log if head is None else head.stamp.sec * 10**9 + head.stamp.nanosec

    return [of(sent) for sent in messages]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("little_endian", [True, False], ids=["little", "big"])
def test_every_type_equals_what_rosbags_wrote(tmp_path: Path, kind: str, little_endian: bool):
    rng = np.random.default_rng(7)
    sent = []
    for i in range(20):
        message = filled(kind, rng, T0 + i * STEP)
        for names in ("name", "joint_names"):
            if hasattr(message, names):
                order = rng.permutation(3)
                setattr_frozen(message, names, [f"joint{9 + k}" for k in order])
        sent.append(Sent("/t", kind, message, T0 + i * STEP + 5000, little_endian))
    compression = list(COMPRESSIONS)[len(kind) % 3]
    path = write(tmp_path / "a.mcap", sent, compression=compression, indexed=len(kind) % 2 == 0)
    episode = rc.dataset(path).episode(0)
    for field in KINDS[kind]:
        name = f"/t/{field}" if field else "/t"
        stream = episode[name]
        np.testing.assert_array_equal(stream.times, stamps(sent), err_msg=name)
        expected = [at(one.message, field.split("/") if field else []) for one in sent]
        if isinstance(expected[0], str):
            assert stream.values == expected
            continue
        rows = np.array(
            [in_order(one.message, numbers(row)) for one, row in zip(sent, expected, strict=False)]
        )
        found = stream.values.reshape(len(sent), -1)
        np.testing.assert_array_equal(found, rows.astype(found.dtype), err_msg=name)
        assert found.dtype == rows.dtype or rows.dtype == np.int64 or rows.dtype == np.float64


def setattr_frozen(message: Any, name: str, value: Any) -> None:
    object.__setattr__(message, name, value)


def in_order(message: Any, row: list[Any]) -> list[Any]:
    """Numbers of joints by the joints' numbers."""
    names = getattr(message, "name", None) or getattr(message, "joint_names", None)
    if not isinstance(names, list) or len(row) % len(names) or (len(row) == 3 and len(names) != 3):
        return row
    order = np.argsort([int(name.removeprefix("joint")) for name in names])
    if type(message).__name__.endswith("JointTrajectory") and len(row) == 3:
        return row
    return list(np.array(row).reshape(-1, len(names))[:, order].ravel())


def test_poses_of_frames(tmp_path: Path):
    rng = np.random.default_rng(1)
    kind = "tf2_msgs/msg/TFMessage"
    sent = []
    for i in range(10):
        message = filled(kind, rng, T0 + i * STEP, length=2)
        for k, transform in enumerate(message.transforms):
            setattr_frozen(transform, "child_frame_id", ["arm", "/tool"][(k + i) % 2])
            setattr_frozen(transform, "header", header(T0 + i * STEP + k))
        sent.append(Sent("/tf", kind, message, T0 + i * STEP))
    episode = rc.dataset(write(tmp_path / "a.mcap", sent)).episode(0)
    for child, name in (("arm", "/tf/arm"), ("/tool", "/tf/tool")):
        chosen = [
            transform
            for one in sent
            for transform in one.message.transforms
            if transform.child_frame_id == child
        ]
        times = [t.header.stamp.sec * 10**9 + t.header.stamp.nanosec for t in chosen]
        np.testing.assert_array_equal(episode[name].times, times)
        np.testing.assert_array_equal(episode[name].values, [numbers(t.transform) for t in chosen])
        assert episode[name].info.method == [("linear", 0, 3), ("slerp", 3, 7)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "plain"])
def test_every_compression_equals_mcap_ros2_support(
    tmp_path: Path, compression: str, indexed: bool
):
    rng = np.random.default_rng(3)
    kind = "nav_msgs/msg/Odometry"
    sent = [
        Sent("/odom", kind, filled(kind, rng, T0 + i * STEP), T0 + i * STEP) for i in range(200)
    ]
    path = write(tmp_path / "a.mcap", sent, compression=compression, indexed=indexed)
    with path.open("rb") as file:
        make = reader.make_reader(file, decoder_factories=[decoder.DecoderFactory()])
        messages = [one for _, _, _, one in make.iter_decoded_messages()]
    episode = rc.dataset(path).episode(0)
    pose = [
        [getattr(m.pose.pose.position, k) for k in "xyz"]
        + [getattr(m.pose.pose.orientation, k) for k in "xyzw"]
        for m in messages
    ]
    np.testing.assert_array_equal(episode["/odom/pose/pose"].values, pose)
    np.testing.assert_array_equal(
        episode["/odom/twist/covariance"].values, [list(m.twist.covariance) for m in messages]
    )


def sample() -> Path:
    return shared_data("mcap") / SAMPLE


def test_the_sample_equals_mcap_ros2_support():
    path = sample()
    with path.open("rb") as file:
        make = reader.make_reader(file, decoder_factories=[decoder.DecoderFactory()])
        decoded: dict[str, list[Any]] = {}
        for _, channel, _, message in make.iter_decoded_messages():
            decoded.setdefault(channel.topic, []).append(message)
    for messages in decoded.values():
        messages.sort(key=lambda m: (m.header.stamp.sec, m.header.stamp.nanosec))
    ds = rc.dataset(path)
    assert (ds.format, len(ds), ds.fps) == ("mcap ros2", 1, None)
    episode = ds.episode(0)
    joints = [f"panda_joint{i}" for i in range(1, 8)]
    assert ds.streams["/joint_states/position"].names == joints
    by_name = [[m.position[m.name.index(j)] for j in joints] for m in decoded["/joint_states"]]
    np.testing.assert_array_equal(episode["/joint_states/position"].values, by_name)
    clouds = [
        np.frombuffer(m.data, "<f4").reshape(m.height * m.width, 4) for m in decoded["/points"]
    ]
    np.testing.assert_array_equal(episode["/points"].values, clouds)
    forces = [
        [
            m.wrench.force.x,
            m.wrench.force.y,
            m.wrench.force.z,
            m.wrench.torque.x,
            m.wrench.torque.y,
            m.wrench.torque.z,
        ]
        for m in decoded["/wrench"]
    ]
    np.testing.assert_array_equal(episode["/wrench/wrench"].values, forces)
    pictures = episode["/camera/color/image_raw/compressed"]
    assert pictures.values.shape == (108, 48, 64, 3)
    assert ds.streams["/imu/orientation"].method == "slerp"
    codes = {finding.code for finding in ds.check()}
    assert {"quaternion_flip", "names_reordered", "stamps_gap"} <= codes


def test_the_sample_is_as_expected_json_says():
    path = sample()
    expected = json.loads((path.parents[1] / "expected.json").read_text())[f"mcap/{SAMPLE}"]
    ds = rc.dataset(path)
    for topic, facts in expected.items():
        name = next(name for name in ds.streams if name.startswith(topic))
        times = ds.episode(0)[name].times
        assert [len(times), times[0], times[-1]] == [
            facts["count"],
            facts["first_stamp_ns"],
            facts["last_stamp_ns"],
        ]


def test_a_recording_becomes_batches(tmp_path: Path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    out = tmp_path / "cache"
    report = rc.ingest(sample(), out, progress=False)
    assert (report.episodes, report.skipped) == (1, [])
    cache = rc.open(out)
    source = rc.dataset(sample()).episode(0)
    for name in ("/joint_states/position", "/imu/orientation", "/points"):
        np.testing.assert_array_equal(cache.episode(0)[name].values, source[name].values)
        np.testing.assert_array_equal(cache.episode(0)[name].times, source[name].times)
    grid = {"origin": (-1, -1, -1), "voxel_size": 0.25, "shape": (8, 8, 8)}
    loader = rc.Loader(
        cache,
        8,
        delta_timestamps={
            "/joint_states/position": [-0.02, 0.0],
            "/camera/color/image_raw/compressed": [0.0],
            "/points": [0.0],
        },
        rate=20,
        shuffle=False,
        voxelize={"/points": grid},
    )
    batch = next(iter(loader))
    assert batch["/joint_states/position"].shape == (8, 2, 7)
    assert batch["/camera/color/image_raw/compressed"].shape == (8, 1, 3, 48, 64)
    assert batch["/points"].shape == (8, 1, 8, 8, 8) and int(batch["/points"].sum()) > 0
    times = batch["timestamp"].double()
    assert torch.allclose(times[1:] - times[:-1], torch.full((7,), 0.05, dtype=torch.float64))
    with pytest.raises(rc.InvalidArgument, match="/joint_states/position"):
        rc.Loader(cache, 8, delta_timestamps={"/joint_states/position": [0.0]})


def drive(count: int, gap_after: int) -> list[Sent]:
    kind = "geometry_msgs/msg/TwistStamped"
    rng = np.random.default_rng(0)
    times = [T0 + i * STEP + (i >= gap_after) * 3 * 10**9 for i in range(count)]
    return [Sent("/twist", kind, filled(kind, rng, t), t + 2000) for t in times]


def test_episodes_and_clocks(tmp_path: Path):
    path = write(tmp_path / "a.mcap", drive(30, 12))
    for recording, lengths in [
        (None, [30]),
        ({"episode_gap": 1.0}, [12, 18]),
        ({"episode_ranges": [(0, 0.05), (3.1, 9.0)]}, [5, 18]),
        ({"episode_topic": "/twist"}, [1] * 30),
    ]:
        ds = rc.dataset(path, recording=recording)
        assert [episode.length for episode in ds.episodes] == lengths, recording
        again = pickle.loads(pickle.dumps(ds))
        assert [episode.length for episode in again.episodes] == lengths
    by_log = rc.dataset(path, recording={"clock": "log"}).episode(0)["/twist/twist"].times
    by_header = rc.dataset(path).episode(0)["/twist/twist"].times
    np.testing.assert_array_equal(by_log - by_header, np.full(30, 2000))
    out = tmp_path / "cache"
    rc.ingest(path, out, recording={"episode_gap": 1.0}, progress=False)
    assert [episode.length for episode in rc.open(out).episodes] == [12, 18]


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        ({"clock": "sun"}, "expected header or log"),
        ({"gap": 1.0}, "episode_gap"),
        ({"episode_gap": -1.0}, "above 0"),
        ({"episode_gap": "long"}, "seconds"),
        ({"episode_gap": 1.0, "episode_topic": "/x"}, "one way"),
        ({"episode_topic": "/twst"}, "/twist"),
        ({"episode_ranges": [(2.0, 1.0)]}, "start to end"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, recording: Any, words: str):
    path = write(tmp_path / "a.mcap", drive(3, 9))
    with pytest.raises(rc.InvalidArgument, match=words):
        rc.dataset(path, recording=recording)
    with pytest.raises(rc.InvalidArgument, match="of their own"):
        rc.dataset(TESTDATA / "lerobot_v30", recording={"clock": "log"})


def test_bags_and_folders(tmp_path: Path):
    first, second = drive(10, 99), drive(20, 10)[10:]
    bag = tmp_path / "bag"
    bag.mkdir()
    write(bag / "bag_0.mcap", first)
    write(bag / "bag_1.mcap", second, compression="lz4")
    assert [e.length for e in rc.dataset(bag).episodes] == [10, 10]
    (bag / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  storage_identifier: mcap\n  relative_file_paths:\n"
        "    - bag_0.mcap\n    - bag_1.mcap\n"
    )
    ds = rc.dataset(bag)
    assert [e.length for e in ds.episodes] == [20]
    expected = [numbers(one.message.twist) for one in first + second]
    np.testing.assert_array_equal(ds.episode(0)["/twist/twist"].values, expected)


def test_the_sample_in_the_repository():
    path = TESTDATA / "mcap/arm.mcap"
    ds = rc.dataset(path, recording={"episode_topic": "/task"})
    assert ds.tasks == ["pick up the cube", "put it into the box"]
    assert [episode.length for episode in ds.episodes] == [100, 100]
    for place in range(2):
        joints = ds.episode(place)["/joint_states/position"]
        truth = np.sin((joints.times - T0)[:, None] * 1e-9 + np.arange(7.0))
        np.testing.assert_array_equal(joints.values, truth)
