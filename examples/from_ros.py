"""From a ROS 2 recording to batches: check it, cut it into episodes, decode it once, train on windows.

    python examples/from_ros.py [RECORDING] [CACHE]

Without arguments: the sample of this repository, into a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "mcap" / "arm.mcap"


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else SAMPLE
    out = sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.mkdtemp()) / "cache"
    # Each message on /task starts an episode, whose task it is. Without such a topic:
    # {"episode_gap": 2.0}, or nothing, and the recording is one episode.
    recording: rc.Recording = {"episode_topic": "/task"}

    dataset = rc.dataset(source, recording=recording)
    print(f"{dataset.format}: {len(dataset)} episodes, tasks {dataset.tasks}")
    for stream in dataset.streams.values():
        print(f"  {stream.name}: {stream.kind} {stream.dtype} {stream.shape}, {stream.method}")
    for finding in dataset.check():
        print(f"  {finding.level} {finding.code}: {finding.where}: {finding.message}")

    # What training wants; the grid of rate= lies where all of these have samples.
    streams = ["/joint_states/position", "/ee_pose/pose", "/camera", "/points"]
    report = rc.ingest(source, out, streams=streams, recording=recording)
    print(f"{report.episodes} episodes, {report.bytes / 1e6:.1f} MB")

    # Streams keep their own rates; the loader interpolates where a batch wants them.
    loader = rc.Loader(
        rc.open(out),
        16,
        rate=20,
        delta_timestamps={
            "/joint_states/position": [-0.1, -0.05, 0.0],
            "/ee_pose/pose": [i / 20 for i in range(8)],
            "/points": [0.0],
        },
        voxelize={"/points": {"origin": (-1, -1, -1), "voxel_size": 0.25, "shape": (8, 8, 8)}},
    )
    batch = next(iter(loader))
    for name, column in batch.items():
        if name.startswith("/"):
            print(f"  {name}: {tuple(column.shape)}")
    print("from a recording to a batch")


if __name__ == "__main__":
    main()
