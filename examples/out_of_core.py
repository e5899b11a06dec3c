"""Resamples a file that is larger than the memory that the call may take.

python examples/out_of_core.py            64 MB on the CPU
python examples/out_of_core.py cuda 40    40 GB through a GPU
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import robocache as rc

SAMPLES, TARGETS, WIDTH = 2000, 1000, 32


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else None
    gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 0.064
    rows = max(1, int(gigabytes * 1e9 / (SAMPLES * WIDTH * 4)))
    times = np.arange(SAMPLES) * 10_000_000
    targets = np.linspace(0, times[-1], TARGETS).astype(np.int64)

    with tempfile.TemporaryDirectory() as folder:
        # As a recorder leaves them on the disk; nobody holds all of it in memory.
        shape = (rows, SAMPLES, WIDTH)
        values = np.memmap(Path(folder) / "in.f32", np.float32, "w+", shape=shape)
        for row in range(rows):
            values[row] = np.sin(times[:, None] * 1e-9 * (row + 1) + np.arange(WIDTH))
        result = np.memmap(Path(folder) / "out.f32", np.float32, "w+", shape=(rows, TARGETS, WIDTH))

        sizes = {"batch": rows, "source": SAMPLES, "targets": TARGETS, "dim": WIDTH}
        print(rc.plan("resample", **sizes, device=device, max_memory="16MiB"))
        rc.resample(
            values,
            times,
            targets,
            out=result,
            device=device,
            max_memory="16MiB",
            progress=sys.stderr.isatty(),
        )

        row = rows // 2
        alone = rc.resample(np.array(values[row]), times, targets)
        assert np.array_equal(result[row], alone), "parts have the bits of the whole"
        print(f"{rows} rows resampled, {result.nbytes / 1e6:.0f} MB written")


if __name__ == "__main__":
    main()
