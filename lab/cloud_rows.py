"""Point clouds for benchmarks: the rows, their inputs, an oracle in NumPy and what torch's words make of them."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SIDE = 2.0  # Edge of the grid in metres.
KINDS = {torch.uint8: "u8", torch.int32: "i32", torch.float32: "f32", torch.bool: "bool"}
REDUCES = ("mean", "max")
DENSE = ("occupancy", "count", *REDUCES)
PLAIN = ("farthest", "transform", "crop", "unproject")  # No grid.
IMAGES = ("unproject", "depth")  # Of pixels.
POSE = (
    (0.36, 0.48, -0.8, 0.1),
    (-0.8, 0.6, 0.0, 0.2),
    (0.48, 0.64, 0.6, 0.3),
    (0.0, 0.0, 0.0, 1.0),
)
LOW, HIGH = (0.2, 0.2, 0.2), (1.7, 1.7, 1.7)
WIDTH, CAMERA, SCALE = 640, (600.0, 601.0, 319.5, 239.5), 1e-3


@dataclass(frozen=True)
class Row:
    """One size: what is computed of a batch of clouds, in a cube of `cells` along each edge."""

    what: str  # one of DENSE or PLAIN; sparse, hard; depth: occupancy of images
    batch: int
    points: int
    cells: int = 1
    cloud: str = "uniform"  # clustered, one voxel
    dtype: torch.dtype = torch.float32
    width: int = 0  # Features of a point; points of a hard voxel; points that are taken.
    compile: bool = True  # Whether torch.compile takes part: it costs seconds for each row.

    def __str__(self) -> str:
        size = f"{self.batch}x{self.points}"
        if self.what in PLAIN:
            return f"{self.what} {size}" + (f" -> {self.width}" if self.width else "")
        wide = f" F={self.width}" if self.what in (*REDUCES, "sparse") else ""
        cloud = "" if self.cloud == "uniform" else f", {self.cloud}"
        return f"{self.what} {size}, {self.cells}^3{wide} {KINDS[self.dtype]}{cloud}"

    @property
    def grid(self) -> dict[str, Any]:
        size = SIDE / self.cells
        return {"origin": (0.0, 0.0, 0.0), "voxel_size": size, "shape": (self.cells,) * 3}

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Of a result that `out=` takes; nothing where there is none."""
        if self.what in (*DENSE, "depth"):
            wide = (self.width,) if self.what in REDUCES else ()
            return (self.batch, *self.grid["shape"], *wide)
        if self.what in ("transform", "unproject"):
            return (self.batch, self.points, 3)
        return (self.batch, self.points) if self.what == "crop" else (0,)


OCCUPANCY = [(1, 500_000, 128), (8, 4096, 64), (32, 16384, 128), (16, 65536, 256), (1, 10**7, 128)]
ROWS = [
    *(
        Row("occupancy", *size, dtype=dtype, compile=dtype == torch.uint8)
        for size in OCCUPANCY
        for dtype in (torch.uint8, torch.float32)
    ),
    *(
        Row("occupancy", *OCCUPANCY[-1], cloud=cloud, dtype=torch.uint8, compile=False)
        for cloud in ("clustered", "one voxel")
    ),
    *(
        Row("count", *OCCUPANCY[i], cloud=cloud, dtype=torch.int32, compile=cloud == "uniform")
        for i in (0, 4)
        for cloud in ("uniform", "clustered", "one voxel")
    ),
    *(Row(what, 1, 10**6, 200, width=16) for what in ("mean", "max", "sparse")),
    Row("hard", 1, 250_000, 400, width=8),
    Row("farthest", 16, 16384, width=1024, compile=False),
    Row("transform", 1, 10**6),
    Row("crop", 1, 10**6, dtype=torch.bool),
    Row("unproject", 8, 480 * WIDTH),
    Row("depth", 8, 480 * WIDTH, 128, dtype=torch.uint8, compile=False),
]


@dataclass(frozen=True)
class Inputs:
    """One set of buffers; those that a row does not need are empty."""

    points: torch.Tensor  # Of IMAGES the depth.
    features: torch.Tensor
    out: torch.Tensor

    @classmethod
    def random(cls, row: Row, seed: int, device: str) -> Inputs:
        """Made where they are used."""
        generator = torch.Generator(device).manual_seed(seed)
        here: dict[str, Any] = {"device": device, "generator": generator}
        shape = (row.batch, row.points, 3)
        if row.what in IMAGES:
            image = (row.batch, row.points // WIDTH, WIDTH)
            depth = torch.randint(0, 5000, image, **here)
            points = torch.where(depth < 500, 0, depth).to(torch.uint16)
        elif row.cloud == "uniform":
            # A little less than the edge: what rounds to it would be outside, which torch does not drop.
            points = torch.rand(shape, **here) * (SIDE * (1 - 1e-6))
        elif row.cloud == "clustered":  # as a LiDAR sees: a thousand dense spots
            spots = torch.rand((1000, 3), **here) * (SIDE - 0.2) + 0.1
            points = torch.randn(shape, **here) * 0.01
            points += spots[torch.randint(0, 1000, shape[:2], **here)]
        else:
            points = torch.full(shape, SIDE / 3, device=device)
        wide = row.width if row.what in (*REDUCES, "sparse") else 0
        features = torch.randn((row.batch, row.points, wide), **here)
        out = torch.zeros(row.out_shape, dtype=row.dtype, device=device)
        return cls(points, features, out)

    def copy(self) -> Inputs:
        return Inputs(*(x.clone() for x in vars(self).values()))

    def bytes(self) -> int:
        return sum(x.nbytes for x in vars(self).values())


class Oracle:
    """The cells by NumPy, in the float32 of the contract; results in float64."""

    def __init__(self, row: Row, inputs: Inputs) -> None:
        self.row, self.inputs = row, inputs
        self.points = inputs.points.cpu().numpy()
        if row.what == "depth":
            self.points = seen(self.points)
        self.in_grid, self.occupied = 1.0, np.zeros(0, np.int64)
        if row.what in PLAIN:
            return
        total = row.batch * row.cells**3
        flat = np.repeat(np.arange(row.batch, dtype=np.int64), row.points)
        inside = np.ones(flat.shape, bool)
        for axis in range(3):
            place = self.points[..., axis].reshape(-1) / np.float32(row.grid["voxel_size"])
            np.floor(place, out=place)
            inside &= (place >= 0) & (place < row.cells)
            with np.errstate(invalid="ignore"):
                flat = flat * row.cells + place.astype(np.int64)
        self.in_grid = float(inside.mean())
        self.flat = np.where(inside, flat, total)
        if row.points > total:  # sorting would take longer than counting
            counts = np.bincount(self.flat, minlength=total + 1)[:-1]
            self.occupied = np.flatnonzero(counts)
            self.counts = counts[self.occupied]
        else:
            kept = self.flat[inside]
            self.occupied, self.counts = np.unique(kept, return_counts=True)

    def reduced(self, how: str) -> np.ndarray:
        """`[M, F]` in float64, in the order of the occupied cells."""
        order = np.argsort(self.flat, kind="stable")[: int(self.counts.sum())]
        features = self.inputs.features.cpu().numpy().reshape(-1, self.row.width)
        values = features[order].astype(np.float64)
        starts = np.cumsum(self.counts) - self.counts
        if how == "max":
            return np.maximum.reduceat(values, starts)
        return np.add.reduceat(values, starts) / self.counts[:, None]

    def moved(self) -> dict[str, int]:
        """Bytes that cannot be avoided."""
        row, inputs = self.row, self.inputs
        results = {
            "sparse": len(self.occupied) * (32 + 4 + 4 * row.width) + row.batch * row.points * 8,
            "hard": len(self.occupied) * (32 + 4 + 4 * 3 * row.width) + row.batch * row.points * 8,
            "farthest": row.batch * row.width * 8,
        }
        out = results.get(row.what, inputs.out.nbytes)
        return {"points": inputs.points.nbytes, "features": inputs.features.nbytes, "out": out}

    def check(self, name: str, result: Any) -> None:
        """Ends the run when a result is wrong."""
        row = self.row
        if row.what in ("sparse", "hard"):
            good = self._check_sparse(*(x.cpu().numpy() for x in result))
        elif row.what in (*DENSE, "depth"):
            good = self._check_dense(result)
        elif row.what == "farthest":
            good = self._check_farthest(result[0].cpu().numpy())
        else:
            want, got = self._plain(), result.cpu().numpy()
            good = bool(np.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True))
        if not good:
            sys.exit(f"lab: {name}: {row}: wrong result")

    def _check_dense(self, result: torch.Tensor) -> bool:
        """Where the result lives: the occupied cells hold what they must, all others nothing."""
        row = self.row
        rows = result.reshape(row.batch * row.cells**3, -1)
        found = rows[torch.from_numpy(self.occupied).to(rows.device)].cpu().numpy()
        if row.what in REDUCES:
            good = np.allclose(found, self.reduced(row.what), rtol=1e-5, atol=1e-6)
        else:
            good = (found[:, 0] == (self.counts if row.what == "count" else 1)).all()
        others = int(torch.count_nonzero(rows)) - np.count_nonzero(found)
        return bool(good) and others == 0

    def _check_sparse(self, coords: np.ndarray, counts: np.ndarray, values: np.ndarray) -> bool:
        row = self.row
        weight = np.array([row.cells**3, row.cells**2, row.cells, 1])
        if len(coords) != len(self.occupied):
            return False
        good = (coords @ weight == self.occupied).all() and (counts == self.counts).all()
        if row.what == "sparse":
            return bool(good) and np.allclose(values, self.reduced("mean"), rtol=1e-5, atol=1e-6)
        first = np.unique(self.flat, return_index=True)[1][: len(self.occupied)]
        return bool(good) and bool((values[:, 0] == self.points.reshape(-1, 3)[first]).all())

    def _check_farthest(self, index: np.ndarray) -> bool:
        """The first few steps of the first cloud; the rest must be different points."""
        points = self.points[0]
        nearest, at = np.full(len(points), np.inf, np.float32), 0
        for step in range(min(20, len(index))):
            if index[step] != at:
                return False
            d = points - points[at]
            squares = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
            nearest = np.minimum(nearest, squares)
            at = int(nearest.argmax())
        return len(np.unique(index)) == len(index)

    def _plain(self) -> np.ndarray:
        if self.row.what == "crop":
            low, high = np.float32(LOW), np.float32(HIGH)
            return ((self.points >= low) & (self.points < high)).all(axis=-1)
        pose = np.array(POSE)
        if self.row.what == "transform":
            return self.points @ pose[:3, :3].T + pose[:3, 3]
        fx, fy, cx, cy = CAMERA
        z = self.points.reshape(self.row.batch, -1).astype(np.float64) * SCALE
        v, u = np.divmod(np.arange(self.row.points), WIDTH)
        points = np.stack([(u - cx) / fx * z, (v - cy) / fy * z, z], axis=-1)
        points = points @ pose[:3, :3].T + pose[:3, 3]
        return np.where(z[..., None] > 0, points, np.nan)


def seen(depth: np.ndarray) -> np.ndarray:
    """The points of images to the bit: in float32, in the order of the contract; NaN for no depth."""
    fx, fy, cx, cy = np.float32(CAMERA)
    pose = np.float32(POSE)
    z = depth.reshape(len(depth), -1).astype(np.float32) * np.float32(SCALE)
    v, u = (x.astype(np.float32) for x in np.divmod(np.arange(z.shape[1]), WIDTH))
    x, y = (u - cx) / fx * z, (v - cy) / fy * z
    points = np.stack([((a * x + b * y) + c * z) + d for a, b, c, d in pose[:3]], axis=-1)
    return np.where(z[..., None] > 0, points, np.float32(np.nan))


# --- peers ------------------------------------------------------------------------------------


def cells_of(row: Row, points: torch.Tensor) -> torch.Tensor:
    """`[B*N]` cells numbered through the batch; one past the last for points outside."""
    # By a tensor: torch multiplies by the inverse of a number on a GPU, which misses cells at borders.
    size = torch.full((), row.grid["voxel_size"], dtype=points.dtype, device=points.device)
    cells = torch.floor(points / size).long()
    inside = ((cells >= 0) & (cells < row.cells)).all(-1)
    flat = (cells[..., 0] * row.cells + cells[..., 1]) * row.cells + cells[..., 2]
    flat = flat + torch.arange(row.batch, device=points.device)[:, None] * row.cells**3
    return torch.where(inside, flat, row.batch * row.cells**3).view(-1)


def peer(row: Row, points: torch.Tensor, features: torch.Tensor) -> Any:
    """The usual words of torch."""
    shape, total = (row.batch, *row.grid["shape"]), row.batch * row.cells**3
    if row.what == "farthest":
        return farthest_peer(points, row.width)
    if row.what in PLAIN:
        return plain_peer(row, points)
    flat = cells_of(row, points)
    if row.what == "occupancy":
        return points.new_zeros(total + 1, dtype=row.dtype).scatter_(0, flat, 1)[:-1].view(shape)
    ones = torch.ones_like(flat, dtype=torch.int32)
    if row.what == "count":
        return ones.new_zeros(total + 1).scatter_add_(0, flat, ones)[:-1].view(shape)
    if row.what in ("sparse", "hard"):
        return sparse_peer(row, flat, points.view(-1, 3), features)
    values = features.view(-1, row.width)
    index = flat[:, None].expand(-1, row.width)
    if row.what == "max":
        grid = values.new_zeros(total + 1, row.width)
        grid = grid.scatter_reduce_(0, index, values, "amax", include_self=False)
    else:
        grid = values.new_zeros(total + 1, row.width).index_add_(0, flat, values)
        counts = ones.new_zeros(total + 1).scatter_add_(0, flat, ones)
        grid = grid / counts.clamp(min=1)[:, None]
    return grid[:-1].view(*shape, row.width)


def sparse_peer(row: Row, flat: torch.Tensor, points: torch.Tensor, features: torch.Tensor) -> Any:
    """torch.unique, then sums, or the first points of each cell by a stable sort."""
    if row.what == "hard":
        flat, order = torch.sort(flat, stable=True)
        points = points[order]
    keys, inverse, counts = torch.unique(flat, return_inverse=True, return_counts=True)
    side = row.cells
    parts = [keys // side**3, keys // side**2 % side, keys // side % side, keys % side]
    coords = torch.stack(parts, dim=1)
    if row.what == "sparse":
        values = features.view(-1, row.width)
        sums = values.new_zeros(len(keys), row.width).index_add_(0, inverse, values)
        return coords, counts, sums / counts[:, None]
    starts = counts.cumsum(0) - counts
    slot = torch.arange(len(flat), device=flat.device) - starts[inverse]
    kept = slot < row.width
    voxels = points.new_zeros(len(keys), row.width, 3)
    voxels[inverse[kept], slot[kept]] = points[kept]
    return coords, counts, voxels


def farthest_peer(points: torch.Tensor, k: int) -> torch.Tensor:
    """One step after the other, all clouds at once."""
    batch = torch.arange(len(points), device=points.device)
    nearest = torch.full(points.shape[:2], torch.inf, device=points.device)
    taken = [torch.zeros(len(points), dtype=torch.long, device=points.device)]
    for _ in range(k - 1):
        d = points - points[batch, taken[-1]][:, None]
        nearest = torch.minimum(nearest, (d[..., 0] ** 2 + d[..., 1] ** 2) + d[..., 2] ** 2)
        taken.append(nearest.argmax(dim=1))
    return torch.stack(taken, dim=1)


@functools.cache
def made_on(device: torch.device, numbers: Any) -> torch.Tensor:
    """Made once: while a graph is captured nothing is copied from the host."""
    return torch.tensor(numbers, device=device)


def plain_peer(row: Row, points: torch.Tensor) -> torch.Tensor:
    pose = made_on(points.device, POSE)
    if row.what == "transform":
        return points @ pose[:3, :3].T + pose[:3, 3]
    if row.what == "crop":
        low, high = (made_on(points.device, x) for x in (LOW, HIGH))
        return ((points >= low) & (points < high)).all(-1)
    fx, fy, cx, cy = CAMERA
    z = points.float() * SCALE
    v, u = (torch.arange(n, dtype=z.dtype, device=z.device) for n in z.shape[1:])
    cloud = torch.stack([(u - cx) / fx * z, (v[:, None] - cy) / fy * z, z], dim=-1)
    cloud = cloud @ pose[:3, :3].T + pose[:3, 3]
    return cloud.masked_fill_((z <= 0)[..., None], torch.nan).flatten(1, 2)
