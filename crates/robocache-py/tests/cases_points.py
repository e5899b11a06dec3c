"""The rows of the table for ops on points, and for those that are made of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cases_clouds
import cloud_oracle
import robocache as rc
from cases_clouds import CLOUD, GRID, INVALID, UNSUPPORTED
from helpers import FLOATS, assert_same_bits, dtype_of, to_numpy
from table import Row, Sample, broken_call


@dataclass
class PlainCase:
    """Arrays, options and what must come back bit for bit (or within `tolerance`)."""

    arrays: tuple[np.ndarray, ...]
    options: dict[str, Any]
    want: np.ndarray
    tolerance: float = 0.0

    def verify(self, op, place) -> None:
        options = {k: place(v) if isinstance(v, np.ndarray) else v for k, v in self.options.items()}
        got = to_numpy(op(*map(place, self.arrays), **options))
        if not self.tolerance:
            assert_same_bits(got, self.want)
            return
        assert (got.shape, got.dtype) == (self.want.shape, self.want.dtype)
        with np.errstate(all="ignore"):
            have, want = got.astype(np.float64), self.want.astype(np.float64)
            fine = (have == want) | (np.abs(have - want) <= self.tolerance * (1 + np.abs(want)))
            fine |= np.isnan(have) & np.isnan(want)
        assert fine.all(), f"{have[~fine][:3]}, expected {want[~fine][:3]}"


def _cloud(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    with np.errstate(over="ignore"):
        return cloud_oracle.spoil(rng, rng.uniform(-1, 3, (*shape, 3)), 0.01).astype(
            dtype_of(dtype)
        )


_TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


def transform_sample(name, pose_shape, *, batch=(2,), count=50, host=False):
    def make(dtype: str) -> PlainCase:
        points = _cloud(dtype, *batch, count)
        rng = np.random.default_rng(count)
        pose = rng.normal(size=pose_shape).astype("f8" if dtype == "float64" else "f4")
        with np.errstate(all="ignore"):
            exact = cloud_oracle.transform(points.astype(np.float64), pose.astype(np.float64))
            # A pose on the host is a list, whatever the device of the points.
            given = {"pose": pose.tolist()} if host else {"pose": pose}
            return PlainCase((points,), given, exact.astype(points.dtype), _TOLERANCE[dtype])

    return Sample(name, make, FLOATS)


TRANSFORM_SAMPLES = (
    transform_sample("a matrix", (4, 4)),
    transform_sample("a flat matrix", (3, 4)),
    transform_sample("a matrix for each", (2, 4, 4)),
    transform_sample("xyz and a quaternion", (7,)),
    transform_sample("seven for each", (2, 7)),
    transform_sample("a batch of one", (1, 7)),
    transform_sample("no batch", (4, 4), batch=()),
    transform_sample("a list", (4, 4), host=True),
    transform_sample("N=0", (4, 4), count=0),
    transform_sample("many", (2, 7), count=3001),
)
broken_transform = broken_call({"points": CLOUD, "pose": np.eye(4, dtype="f4")}, ("points", "pose"))
TRANSFORM_FAILURES = (
    broken_transform(
        "points needs a gradient",
        UNSUPPORTED,
        "points",
        "no gradients",
        points=lambda place: place(np.zeros((4, 3), "f4")).requires_grad_(),
    ),
    broken_transform("points in a plane", INVALID, "points", "2", points=np.zeros((4, 2), "f4")),
    broken_transform("points of i64", INVALID, "points", "int64", points=np.zeros((4, 3), "i8")),
    broken_transform("a pose of 3x3", INVALID, "pose", r"\[4,4\]", pose=np.eye(3, dtype="f4")),
    broken_transform("a pose of 6", INVALID, "pose", r"\[7\]", pose=np.zeros(6, "f4")),
    broken_transform("B differs", INVALID, "points", "2.*3", pose=np.zeros((3, 7), "f4")),
    broken_transform("pose is None", INVALID, "pose", "", pose=None),
    broken_transform("pose is text", INVALID, "pose", "", pose="home"),
    broken_transform("out of another dtype", INVALID, "out", "float32", out=np.zeros((2, 5, 3))),
    broken_transform("unknown device", INVALID, "device", "tpu", device="tpu"),
)


def crop_sample(name, *, batch=(2,), count=70, **options):
    def make(dtype: str) -> PlainCase:
        points = _cloud(dtype, *batch, count)
        low, high = (0.0, -0.3, -np.inf), (2.0, 1.1, 2.5)
        kind = cloud_oracle.compute_type(points.dtype)
        wide = points.astype(kind)
        with np.errstate(all="ignore"):
            want = ((wide >= np.asarray(low, kind)) & (wide < np.asarray(high, kind))).all(axis=-1)
        if "lengths" in options:
            want &= cloud_oracle.real_points(points, options["lengths"])
        return PlainCase((points,), {"low": low, "high": high, **options}, want)

    return Sample(name, make, FLOATS)


CROP_SAMPLES = (
    crop_sample("a box"),
    crop_sample("no batch", batch=()),
    crop_sample("lengths", lengths=np.array([70, 3])),
    crop_sample("many", count=3001),
    crop_sample("N=0", count=0),
    crop_sample("B=0", batch=(0,)),
)
broken_crop = broken_call(
    {"points": CLOUD, "low": (0, 0, 0), "high": (1, 1, 1)}, ("points", "low", "high")
)
CROP_FAILURES = (
    broken_crop(
        "points needs a gradient",
        UNSUPPORTED,
        "points",
        "no gradients",
        points=lambda place: place(np.zeros((4, 3), "f4")).requires_grad_(),
    ),
    broken_crop("points of rank 1", INVALID, "points", r"\[B,N,3\]", points=np.zeros(3, "f4")),
    broken_crop("low of two", INVALID, "low", "three", low=(0, 0)),
    broken_crop("low is a number", INVALID, "low", "three", low=0.0),
    broken_crop("high is NaN", INVALID, "high", "(?i)nan", high=(1, float("nan"), 1)),
    broken_crop("lengths > N", INVALID, "lengths", "row 1 is 6", lengths=np.array([5, 6])),
    broken_crop(
        "lengths > N, compact",
        INVALID,
        "lengths",
        "row 1 is 6",
        lengths=np.array([5, 6]),
        compact=True,
    ),
    broken_crop("compact is no flag", INVALID, "compact", "True or False", compact=2),
    broken_crop("compact and out", INVALID, "out", "", compact=True, out=np.zeros((2, 5), bool)),
    broken_crop("out of another dtype", INVALID, "out", "bool", out=np.zeros((2, 5), "u1")),
)


def unproject_sample(name, camera_shape, pose_shape=None, *, batch=(2,), size=(11, 13), **options):
    def make(dtype: str) -> PlainCase:
        rng = np.random.default_rng(sum(size))
        if dtype == "uint16":
            depth = rng.integers(0, 5000, (*batch, *size)).astype("u2")
            depth[depth < 900] = 0
        else:
            depth = rng.uniform(-0.5, 4, (*batch, *size))
            depth[rng.random(depth.shape) < 0.05] = np.nan
            depth[rng.random(depth.shape) < 0.05] = np.inf
            depth = depth.astype(dtype_of(dtype))
        camera = np.array([9.5, 8.75, 6.25, 5.5])
        if camera_shape[-1] == 3:
            camera = np.array([[9.5, 0, 6.25], [0, 8.75, 5.5], [0, 0, 1]])
        arrays = {"intrinsics": np.broadcast_to(camera, camera_shape).astype("f4")}
        if pose_shape is not None:
            arrays["extrinsics"] = rng.normal(size=pose_shape).astype("f4")
        scale = options.get("depth_scale", 1e-3)
        want = cloud_oracle.unproject(depth, **arrays, depth_scale=scale)
        return PlainCase((depth,), arrays | options, want.astype("f4"), 1e-4)

    return Sample(name, make, ("uint16", *FLOATS))


UNPROJECT_SAMPLES = (
    unproject_sample("a matrix", (3, 3)),
    unproject_sample("four numbers", (4,), depth_scale=1.0),
    unproject_sample("a camera for each", (2, 3, 3), (2, 4, 4)),
    unproject_sample("poses of seven", (2, 4), (2, 7)),
    unproject_sample("one pose", (4,), (3, 4)),
    unproject_sample("no batch", (3, 3), (7,), batch=()),
    unproject_sample("no pixels", (4,), size=(0, 5)),
    unproject_sample("many pixels", (4,), (7,), size=(70, 61)),
)
broken_unproject = broken_call(
    {"depth": np.ones((2, 4, 5), "f4"), "intrinsics": np.ones(4, "f4")}, ("depth", "intrinsics")
)


def image_failures(broken, why):
    """Of every op that takes depth images; `why` a gradient is refused."""
    return (
        broken(
            "depth needs a gradient",
            UNSUPPORTED,
            "depth",
            why,
            depth=lambda place: place(np.ones((4, 5), "f4")).requires_grad_(),
        ),
        broken("depth of rank 1", INVALID, "depth", r"\[B,H,W\]", depth=np.ones(4, "f4")),
        broken("depth of i32", INVALID, "depth", "int32", depth=np.ones((4, 5), "i4")),
        broken("five numbers", INVALID, "intrinsics", "fx", intrinsics=np.ones(5, "f4")),
        broken("no camera", INVALID, "intrinsics", "", intrinsics=None),
        broken("B differs", INVALID, "intrinsics", "3.*2", intrinsics=np.ones((3, 4), "f4")),
        broken("a pose of 3x3", INVALID, "extrinsics", "", extrinsics=np.eye(3, dtype="f4")),
        broken("scale 0", INVALID, "depth_scale", "0", depth_scale=0.0),
        broken("scale NaN", INVALID, "depth_scale", "(?i)nan", depth_scale=float("nan")),
        broken("scale is text", INVALID, "depth_scale", "", depth_scale="mm"),
    )


UNPROJECT_FAILURES = image_failures(broken_unproject, "no gradients")


def farthest_sample(name, k, *, batch=(2,), count=60, start=0, lengths=None):
    def make(dtype: str) -> PlainCase:
        points = _cloud(dtype, *batch, count)
        options = {"k": k, "start": start} | ({} if lengths is None else {"lengths": lengths})
        rows = points.reshape(-1, count, 3)
        sizes = [count] * len(rows) if lengths is None else np.broadcast_to(lengths, len(rows))
        want = [
            cloud_oracle.farthest_points(row[:size], k, start)
            for row, size in zip(rows, sizes, strict=True)
        ]
        return PlainCase((points,), options, np.array(want, np.int64).reshape(*batch, k))

    return Sample(name, make, FLOATS)


FARTHEST_SAMPLES = (
    farthest_sample("some", 10),
    farthest_sample("all", 60),
    farthest_sample("none", 0),
    farthest_sample("one", 1, start=59),
    farthest_sample("no batch", 7, batch=(), start=3),
    farthest_sample("lengths", 5, lengths=np.array([60, 5])),
    farthest_sample("many", 20, count=2500),
    farthest_sample("B=0", 3, batch=(0,)),
)
broken_farthest = broken_call({"points": CLOUD, "k": 2}, ("points",))
FARTHEST_FAILURES = (
    broken_farthest(
        "points needs a gradient",
        UNSUPPORTED,
        "points",
        "no gradients",
        points=lambda place: place(np.zeros((4, 3), "f4")).requires_grad_(),
    ),
    broken_farthest("points of rank 1", INVALID, "points", r"\[B,N,3\]", points=np.zeros(3, "f4")),
    broken_farthest("k > N", INVALID, "k", "6 of 5", k=6),
    broken_farthest("k < 0", INVALID, "k", "-1", k=-1),
    broken_farthest("k is a float", INVALID, "k", "2.5", k=2.5),
    broken_farthest("k is True", INVALID, "k", "True", k=True),
    broken_farthest("start past the end", INVALID, "start", "0 to 4", start=5),
    broken_farthest(
        "lengths < k", INVALID, "lengths", "row 1 is 1, expected 2", lengths=np.array([5, 1])
    ),
    broken_farthest("lengths > N", INVALID, "lengths", "row 0 is 9", lengths=np.array([9, 5])),
    broken_farthest("out of another dtype", INVALID, "out", "int64", out=np.zeros((2, 2), "i4")),
)


@dataclass
class SameAs:
    """A call that must give the bits of another call of ours, which has rows of its own."""

    arrays: dict[str, np.ndarray]
    call: Any  # (op, arrays where they belong) to results
    other: Any  # arrays to results

    def verify(self, op, place) -> None:
        placed = {name: place(array) for name, array in self.arrays.items()}
        assert_same_bits(self.call(op, placed), self.other(placed))


def depth_sample(name, **options):
    def make(dtype: str) -> SameAs:
        rng = np.random.default_rng(4)
        depth = rng.integers(0, 3000, (2, 9, 7)).astype(dtype_of(dtype))
        pose = np.array([0.5, 0.5, -0.5, 0, 0, 0.1, 1], "f4")
        arrays = {"depth": depth, "features": rng.normal(size=(2, 63, 2)).astype("f4")}

        def call(op, x):
            more = {"features": x["features"]} if "reduce" in options else {}
            return op(x["depth"], [5.0, 5.0, 3.0, 4.0], pose, **GRID, **options, **more)

        def other(x):
            points = rc.unproject(x["depth"], [5.0, 5.0, 3.0, 4.0], pose)
            more = [x["features"]] if "reduce" in options else []
            return rc.voxelize(points, *more, **GRID, **options)

        return SameAs(arrays, call, other)

    return Sample(name, make, ("uint16", "float32"))


broken_depth = broken_call(
    {"depth": np.ones((2, 4, 5), "f4"), "intrinsics": [5.0, 5.0, 3.0, 4.0], **GRID},
    ("depth", "intrinsics"),
)
DEPTH_ROW = Row(
    (depth_sample("occupancy"), depth_sample("mean", reduce="mean")),
    (
        broken_depth("lengths", INVALID, "lengths", "padding", lengths=np.array([1, 2])),
        *image_failures(broken_depth, "features only"),
    ),
)

_OLD = {"grid_min": (0, 0, 0), "voxel_size": 0.25, "grid_size": (8, 8, 8)}


def old_sample(mode: str):
    def make(dtype: str) -> SameAs:
        points = _cloud(dtype, 2, 90)
        arrays = {"points": points, "features": np.ones((2, 90, 2), "f4")}
        reduces = mode in ("mean", "max")
        return SameAs(
            arrays,
            lambda op, x: op(x["points"], x["features"], **_OLD, mode=mode),
            lambda x: rc.voxelize(
                x["points"],
                x["features"] if reduces else None,
                reduce=mode,
                dtype=None if reduces else "int32",
                **GRID,
            ),
        )

    return Sample(mode, make, FLOATS)


broken_old = broken_call({"points": CLOUD}, ("points",))
OLD_ROW = Row(
    tuple(old_sample(mode) for mode in ("occupancy", "count", "mean", "max")),
    (broken_old("a backend elsewhere", INVALID, "backend", "tpu", backend="tpu"),),
)

ROWS = {
    "voxelize_depth": DEPTH_ROW,
    "voxelize_pointcloud": OLD_ROW,
    "voxelize": cases_clouds.ROW,
    "transform_points": Row(TRANSFORM_SAMPLES, TRANSFORM_FAILURES),
    "crop_box": Row(CROP_SAMPLES, CROP_FAILURES),
    "unproject": Row(UNPROJECT_SAMPLES, UNPROJECT_FAILURES),
    "farthest_points": Row(FARTHEST_SAMPLES, FARTHEST_FAILURES),
}
