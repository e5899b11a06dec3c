"""From a LeRobot dataset to a cache: look at it, check it, decode it once, read windows of it.

    python examples/ingest_dataset.py [DATASET] [CACHE]

Without arguments: the sample of this repository, into a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "lerobot_v30"


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else SAMPLE
    out = sys.argv[2] if len(sys.argv) > 2 else Path(tempfile.mkdtemp()) / "cache"

    dataset = rc.dataset(source)
    print(f"{dataset.format}: {len(dataset)} episodes at {dataset.fps:g} Hz")
    for stream in dataset.streams.values():
        print(f"  {stream.name}: {stream.kind} {stream.dtype} {stream.shape}, {stream.method}")

    findings = dataset.check()
    for finding in findings:
        print(f"  {finding.level} {finding.code}: {finding.where}: {finding.message}")
    print(f"{len(findings)} findings")

    # Video needs the ffmpeg program: pip install imageio-ffmpeg. Without it: images="skip".
    report = rc.ingest(source, out, images="jpeg", image_size=96)
    print(f"{report.episodes} episodes, {report.bytes / 1e6:.1f} MB, {len(report.skipped)} skipped")

    cache = rc.open(out)
    episode = cache.episode(0)
    state = episode["observation.state"]
    # Between the recorded samples, by the same code that batches are made with.
    targets = state.times[:-1] + 7_000_000
    between = rc.resample(state.values, state.times, targets)
    print(f"episode {episode.index}: {between.shape} values 7 ms after each sample")
    print(f"mean of the state: {cache.stats['observation.state']['mean'].round(3)}")


if __name__ == "__main__":
    main()
