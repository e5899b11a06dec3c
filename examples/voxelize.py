"""Voxelizes point clouds and writes a picture: the grid from above, and slices through it.

python examples/voxelize.py                        a depth camera over a table, on the CPU
python examples/voxelize.py --device cuda          the same on a GPU
python examples/voxelize.py cloud.npy -o grid.png  points [N,3] (and features) of your own
"""

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

import robocache as rc

GRID = {"origin": (-0.6, -0.6, -0.02), "voxel_size": 0.01, "shape": (120, 120, 48)}
CAMERA = (280.0, 280.0, 160.0, 120.0)  # fx, fy, cx, cy of 320 x 240 pixels
# One metre over the table, looking down: x stays, y and z turn round.
POSE = ((1, 0, 0, 0), (0, -1, 0, 0), (0, 0, -1, 1.0), (0, 0, 0, 1))


def camera_images(count: int, rng: np.random.Generator) -> torch.Tensor:
    """What a depth camera sees of a ball, a box and a table: uint16 millimetres, with noise and holes."""
    v, u = np.mgrid[0:240, 0:320]
    x, y = (u - CAMERA[2]) / CAMERA[0], (v - CAMERA[3]) / CAMERA[1]
    images = []
    for step in range(count):
        depth = np.full(x.shape, 1.0)
        box = (np.abs(x - 0.25) < 0.12) & (np.abs(y + 0.1) < 0.15)
        depth[box] = 0.8
        # The ray (x, y, 1) z meets the ball where a z^2 - 2 b z + c = 0.
        centre, radius = np.array([-0.2 + 0.05 * step, 0.1, 0.85]), 0.15
        a, b = x * x + y * y + 1, x * centre[0] + y * centre[1] + centre[2]
        inside = b * b - a * (centre @ centre - radius**2)
        hit = inside > 0
        depth[hit] = np.minimum(depth, (b - np.sqrt(np.maximum(inside, 0))) / a)[hit]
        depth += rng.normal(0, 0.002, depth.shape)
        depth[rng.random(depth.shape) < 0.03] = 0.0  # no echo
        images.append(np.rint(depth * 1000).astype(np.uint16))
    return torch.from_numpy(np.stack(images))


def png(pixels: np.ndarray) -> bytes:
    """A PNG of `[H,W,3]` bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = pixels.shape[:2]
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def colours(values: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 as blue to yellow; grey where there is nothing."""
    ramp = np.stack([values, 0.2 + 0.7 * values, 0.7 - 0.5 * values], axis=-1)
    return (np.where(empty[..., None], 0.12, ramp) * 255).astype(np.uint8)


def picture(counts: np.ndarray) -> np.ndarray:
    """The highest point of each column seen from above, and three slices across."""
    occupied = counts > 0
    depth = occupied.shape[2]
    top = np.where(occupied.any(axis=2), depth - 1 - occupied[..., ::-1].argmax(axis=2), 0)
    parts = [colours(top / max(depth - 1, 1), ~occupied.any(axis=2))]
    for part in (0.3, 0.5, 0.7):
        slab = np.log1p(counts[int(part * len(counts))].T[::-1])  # z upwards
        parts.append(colours(slab / max(slab.max(), 1e-9), slab == 0))
    width = max(part.shape[1] for part in parts)
    padded = [np.pad(p, ((2, 2), (2, width - p.shape[1] + 2), (0, 0))) for p in parts]
    return np.concatenate(padded).repeat(3, axis=0).repeat(3, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cloud", nargs="?", type=Path, help="a .npy file of points [N,3+]")
    parser.add_argument("-o", "--out", type=Path, help="where the picture goes")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    grid = dict(GRID)
    if args.cloud:
        points = torch.from_numpy(np.load(args.cloud)[None, :, :3].astype(np.float32)).to(
            args.device
        )
        low, high = (
            f(points[0][points[0].isfinite().all(dim=1)], dim=0).values
            for f in (torch.min, torch.max)
        )
        size = float((high - low).max()) / 120 or 1.0
        shape = [
            max(1, int((b - a) / size) + 1)
            for a, b in zip(low.tolist(), high.tolist(), strict=True)
        ]
        grid = {"origin": low.tolist(), "voxel_size": size, "shape": shape}
    else:
        depth = camera_images(4, np.random.default_rng(0)).to(args.device)
        points = rc.unproject(depth, CAMERA, POSE)

    counts, dropped = rc.voxelize(points, reduce="count", return_dropped=True, **grid)
    heights = rc.voxelize(points, points[..., 2:], reduce="mean", **grid)[..., 0]
    sparse = rc.voxelize(points, sparse=True, **grid)
    kept = rc.crop_box(points, grid["origin"], (10.0, 10.0, 10.0)).sum()
    far = rc.farthest_points(points, 64)
    print(
        f"{tuple(points.shape)} points on {points.device}, {int(dropped.sum())} dropped, {int(kept)} over the origin"
    )
    print(
        f"{len(sparse.coords)} of {counts.numel()} cells are occupied, mean height {heights[counts > 0].mean():.3f} m"
    )
    assert len(sparse.coords) == int((counts > 0).sum()) and int(sparse.counts.sum()) == int(
        counts.sum()
    )
    assert far.unique(dim=1).shape == far.shape

    drawn = png(picture(counts[0].cpu().numpy()))
    if args.out:
        args.out.write_bytes(drawn)
        print(f"written: {args.out}")
    else:
        print(f"a picture of {len(drawn)} bytes; -o FILE keeps it")


if __name__ == "__main__":
    main()
