"""What each way of alignment costs in error, on a recording, and why rotations need slerp.

A recorded stream is thinned out to a slower sensor with an unsteady clock, then aligned to the
times of all its samples: those that were left out tell how far off each method is. Two pictures are
written: the curves, and a quaternion across a change of sign.

python examples/alignment.py                               the sample in testdata
python examples/alignment.py DATASET --stream KEY -o DIR   a recording of your own
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "lerobot_v30"
COLOURS = {
    "recorded": "#999999",
    "linear": "#1f6feb",
    "cubic": "#2da44e",
    "nearest": "#bf8700",
    "previous": "#cf222e",
}
COLOURS |= {"slerp": "#1f6feb", "linear, not a rotation": "#cf222e"}


def svg(
    title: str, x: np.ndarray, lines: dict[str, np.ndarray], dots: tuple[np.ndarray, np.ndarray]
) -> str:
    """A picture of lines over `x`, with the samples as dots."""
    width, height, margin = 860, 320, 40
    finite = np.concatenate([y[np.isfinite(y)] for y in lines.values()])
    low, high = finite.min(), finite.max()
    span = max(high - low, 1e-9)

    def place(at: np.ndarray, y: np.ndarray) -> np.ndarray:
        across = margin + (at - x[0]) / (x[-1] - x[0]) * (width - 2 * margin)
        down = height - margin - (y - low) / span * (height - 2 * margin)
        return np.stack([across, down], axis=1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/><text x="{margin}" y="22">{title}</text>',
    ]
    for index, (name, y) in enumerate(lines.items()):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in place(x, y) if np.isfinite(b))
        colour = COLOURS[name]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        parts.append(
            f'<text x="{margin + 150 * index}" y="{height - 10}" fill="{colour}">{name}</text>'
        )
    for a, b in place(*dots):
        parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" fill="#000000"/>')
    return "\n".join([*parts, "</svg>\n"])


def thinned(count: int, every: int, rng: np.random.Generator) -> np.ndarray:
    """About every n-th sample, unsteadily, with both ends."""
    steps = np.cumsum(rng.integers(max(every - 2, 1), every + 3, count))
    return np.concatenate([[0], steps[steps < count - 1], [count - 1]])


def curves(values: np.ndarray, times: np.ndarray, folder: Path, rng: np.random.Generator) -> None:
    """Errors of the methods at the samples that were left out, and a picture of one column."""
    kept = thinned(len(times), 6, rng)
    left_out = np.setdiff1d(np.arange(len(times)), kept)
    moving = int(np.argmax(values.std(axis=0)))
    fine = np.linspace(0, 1, 600) * (times[-1] - times[0])
    fine = times[0] + fine.astype(np.int64)
    lines = {"recorded": np.interp(fine - times[0], times - times[0], values[:, moving])}
    print(f"{len(times)} samples, {len(kept)} kept; root mean square error at the others:")
    for method in ("linear", "cubic", "nearest", "previous"):
        aligned = rc.resample(values[kept], times[kept], times, method=method)
        error = np.sqrt(np.mean((aligned - values)[left_out] ** 2))
        print(f"  {method:<9} {error:.2e}")
        lines[method] = rc.resample(
            values[kept, moving : moving + 1], times[kept], fine, method=method
        )[:, 0]
    seconds = [(at - times[0]) / 1e9 for at in (fine, times[kept])]
    title = "one joint from every sixth sample: previous is all that a running robot has (causal)"
    picture = svg(title, seconds[0], lines, (seconds[1], values[kept, moving]))
    (folder / "alignment-methods.svg").write_text(picture)


def rotations(folder: Path) -> None:
    """A steady turn whose recorder changed the sign of its quaternion in between."""
    times = np.arange(6) * 100_000_000
    half = np.linspace(0.2, 1.1, 6)
    turn = np.stack([np.zeros(6), np.zeros(6), np.sin(half), np.cos(half)], axis=1)
    turn[3:] *= -1
    fine = np.linspace(0, times[-1], 501).astype(np.int64)
    lines, length = {}, {}
    for name, method in (("slerp", "slerp"), ("linear, not a rotation", "linear")):
        made = rc.resample(turn, times, fine, method=method)
        lines[name] = made[:, 3]
        length[name] = np.linalg.norm(made, axis=1).min()
    print(
        f"smallest length of a quaternion: slerp {length['slerp']:.3f}, linear {length['linear, not a rotation']:.3f}"
    )
    title = "w of a quaternion that changes its sign: the same rotation, recorded as q and -q"
    picture = svg(title, fine / 1e9, lines, (times / 1e9, turn[:, 3]))
    (folder / "alignment-slerp.svg").write_text(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", nargs="?", type=Path, default=SAMPLE)
    parser.add_argument("--stream", default="observation.state")
    parser.add_argument("--episode", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="a folder for the pictures")
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="alignment-"))
    folder.mkdir(parents=True, exist_ok=True)
    stream = rc.dataset(args.dataset).episode(args.episode)[args.stream]
    curves(
        np.asarray(stream.values, np.float64),
        np.asarray(stream.times),
        folder,
        np.random.default_rng(0),
    )
    rotations(folder)
    print(f"pictures written: {folder}")


if __name__ == "__main__":
    main()
