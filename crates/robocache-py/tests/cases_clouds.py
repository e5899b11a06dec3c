"""The row of the table for `voxelize`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cloud_oracle
from generate import random_values
from helpers import FLOATS, assert_same_bits, dtype_of, finfo, to_numpy
from table import Row, Sample, broken_call

INVALID, UNSUPPORTED = "InvalidArgument", "Unsupported"
GRID = {"origin": (0.0, 0.0, 0.0), "voxel_size": 0.25, "shape": (8, 8, 8)}
ODD_GRID = {"origin": (-0.3, 0.1, 0.0), "voxel_size": (0.3, 0.2, 0.7), "shape": (7, 11, 3)}
# Largest error of a sum or mean, relative to the sum or mean of magnitudes.
SUM_TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def assert_grid(got, want, scale, dtype: np.dtype, exact: bool, context="") -> None:
    """A grid against the oracle: bit for bit, or within the tolerance of sums."""
    got = to_numpy(got)
    assert got.shape == want.shape, f"{got.shape}, expected {want.shape} {context}"
    assert got.dtype == dtype, f"{got.dtype}, expected {dtype} {context}"
    with np.errstate(all="ignore"):
        if exact:
            # Half floats are rounded by way of float32.
            by_way = want.astype(np.float32) if dtype.itemsize == 2 else want
            assert_same_bits(got, by_way.astype(dtype), context)
            return
        allowed = SUM_TOLERANCE.get(dtype.name, 1e-6) * scale
        if dtype.itemsize == 2:
            allowed = allowed + float(finfo(dtype).eps) * np.abs(want) + 1e-7
            want = np.where(np.abs(want) > float(finfo(dtype).max), np.copysign(np.inf, want), want)
        have = got.astype(np.float64)
        fine = (have == want) | (np.isnan(have) & np.isnan(want)) | (np.abs(have - want) <= allowed)
        if dtype.itemsize == 2:  # a sum at the edge of the range may round either way
            fine |= np.isinf(have) & (np.abs(want) > 0.99 * float(finfo(dtype).max))
    assert fine.all(), (
        f"{int((~fine).sum())} of {fine.size} are off, first "
        f"{have[~fine][0]}, expected {want[~fine][0]} {context}"
    )


@dataclass
class VoxelCase:
    """Inputs of `voxelize` with a batch; `batched=False` hands them over without."""

    points: np.ndarray
    features: np.ndarray | None
    options: dict[str, Any]
    batched: bool = True
    more: dict[str, Any] = field(default_factory=dict)  # not for the oracle

    def verify(self, op, place) -> None:
        known = {k: v for k, v in self.options.items() if k != "dtype"}
        want, counts, dropped, scale = cloud_oracle.voxelize(self.points, self.features, **known)
        arrays = [self.points, self.features]
        if not self.batched:
            arrays = [None if x is None else x[0] for x in arrays]
            want, counts, dropped, scale = want[0], counts[0], dropped[0], scale[0]
        options = {
            k: place(v) if isinstance(v, np.ndarray) else v
            for k, v in (self.options | self.more).items()
        }
        got = op(*map(place, arrays), **options, return_counts=True, return_dropped=True)
        reduce = self.options.get("reduce", "occupancy")
        default = {"occupancy": np.dtype("uint8"), "count": np.dtype("int32")}
        own = default.get(reduce, None if self.features is None else self.features.dtype)
        kind = dtype_of(self.options["dtype"]) if "dtype" in self.options else own
        assert_grid(got[0], want, scale, kind, reduce not in ("sum", "mean"))
        assert_same_bits(got[1], counts)
        assert_same_bits(got[2], np.asarray(dropped, np.int64))
        # Without counts the work is done another way.
        assert_same_bits(op(*map(place, arrays), **options), got[0])


def voxel_sample(
    name,
    reduce="occupancy",
    *,
    kind="uniform",
    batch=2,
    count=300,
    width=3,
    features=None,
    dtypes=FLOATS,
    grid=GRID,
    batched=True,
    **options,
):
    """The dtype of the table is that of the points, and of the features unless told."""

    def make(dtype: str) -> VoxelCase:
        rng = np.random.default_rng(batch * count + width)
        clouds = [cloud_oracle.clouds(rng, kind, count) for _ in range(batch)]
        points = np.stack(clouds) if clouds else np.zeros((0, count, 3))
        with np.errstate(over="ignore"):
            points = cloud_oracle.spoil(rng, points).astype(dtype_of(dtype))
        values = None
        if reduce in ("sum", "mean", "max", "min"):
            values = random_values(rng, (batch, count, width), features or dtype, 0.01)
        return VoxelCase(points, values, {"reduce": reduce, **grid, **options}, batched)

    return Sample(name, make, dtypes)


ONE = ("float32",)
VOXELIZE_SAMPLES = (
    *(
        voxel_sample(f"{reduce}, {kind}", reduce, kind=kind, dtypes=FLOATS if i == 0 else ONE)
        for i, kind in enumerate(cloud_oracle.KINDS)
        for reduce in ("occupancy", "count", "sum", "mean", "max", "min")
    ),
    *(
        voxel_sample(f"{reduce}, an odd grid", reduce, grid=ODD_GRID, fill=-3)
        for reduce in ("count", "mean", "min")
    ),
    *(
        voxel_sample(f"{reduce} of {features}", reduce, features=features, dtypes=ONE)
        for reduce in ("sum", "max")
        for features in FLOATS
    ),
    *(
        voxel_sample(f"occupancy as {dtype}", dtype=dtype, fill=0, dtypes=ONE)
        for dtype in ("bool", "int8", "uint8", "int32", "int64", *FLOATS)
    ),
    *(
        voxel_sample(f"count as {dtype}, {fill}", "count", dtype=dtype, fill=fill, dtypes=ONE)
        for dtype in ("int32", "int64", "float32", "float64")
        for fill in (0, 7)
    ),
    *(
        voxel_sample(f"mean as {dtype}", "mean", dtype=dtype, fill=0.5, dtypes=ONE)
        for dtype in FLOATS
    ),
    voxel_sample("fill is NaN", "max", fill=float("nan")),
    voxel_sample("no batch", "mean", batch=1, batched=False),
    voxel_sample("no batch, occupancy", batch=1, batched=False),
    voxel_sample("lengths", "sum", batch=4, lengths=np.array([300, 0, 17, 1])),
    voxel_sample("lengths of int32", "count", batch=2, lengths=np.array([5, 299], np.int32)),
    voxel_sample("scalar length", batch=2, lengths=np.array(100)),
    *(
        voxel_sample(f"{count} points", "mean", count=count, dtypes=ONE)
        for count in (0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097)
    ),
    *(
        voxel_sample(f"{width} features", "max", width=width, count=100, dtypes=ONE)
        for width in (0, 1, 2, 31, 64, 257, 512)
    ),
    voxel_sample("a crowded cell", "sum", kind="one voxel", count=3000, width=9),
    voxel_sample("B=0", "sum", batch=0),
    voxel_sample("one cell", "count", grid=GRID | {"shape": (1, 1, 1)}),
)

CLOUD = np.random.default_rng(0).uniform(0, 2, (2, 5, 3)).astype("f4")
_FEATURES = np.ones((2, 5, 4), "f4")
broken_voxels = broken_call({"points": CLOUD, **GRID}, ("points",))


def _with(**features):
    return {"features": _FEATURES, "reduce": "sum", **features}


VOXELIZE_FAILURES = (
    broken_voxels("points of rank 0", INVALID, "points", r"\[B,N,3\]", points=np.zeros((), "f4")),
    broken_voxels("points of rank 1", INVALID, "points", r"\[B,N,3\]", points=np.zeros(3, "f4")),
    broken_voxels(
        "points of rank 4", INVALID, "points", r"\[B,N,3\]", points=np.zeros((1, 1, 1, 3), "f4")
    ),
    broken_voxels("points in a plane", INVALID, "points", r"2", points=np.zeros((5, 2), "f4")),
    broken_voxels("points of int64", INVALID, "points", "int64", points=np.zeros((5, 3), "i8")),
    broken_voxels(
        "complex points", UNSUPPORTED, "points", "complex", points=np.zeros((5, 3), "c8")
    ),
    broken_voxels("points is None", INVALID, "points", "", points=None),
    broken_voxels("no features", INVALID, "features", "sum", reduce="sum"),
    broken_voxels("idle features", INVALID, "features", "occupancy", features=_FEATURES),
    broken_voxels(
        "features of rank 1", INVALID, "features", r"\[B,N,F\]", **_with(features=_FEATURES[0, 0])
    ),
    broken_voxels("N differs", INVALID, "features", "5", **_with(features=_FEATURES[:, :4])),
    broken_voxels(
        "B differs", INVALID, "points", "2.*3", **_with(features=np.ones((3, 5, 1), "f4"))
    ),
    broken_voxels(
        "features of u8", INVALID, "features", "uint8", **_with(features=np.ones((2, 5, 1), "u1"))
    ),
    broken_voxels("unknown reduce", INVALID, "reduce", "occupancy.*median", reduce="median"),
    broken_voxels("reduce is no name", INVALID, "reduce", "", reduce=3),
    broken_voxels("voxel size 0", INVALID, "voxel_size", "0", voxel_size=0.0),
    broken_voxels("voxel size < 0", INVALID, "voxel_size", "-1", voxel_size=(1, -1, 1)),
    broken_voxels("voxel size NaN", INVALID, "voxel_size", "(?i)nan", voxel_size=float("nan")),
    broken_voxels("voxel size inf", INVALID, "voxel_size", "inf", voxel_size=float("inf")),
    broken_voxels("voxel size 0 in f32", INVALID, "voxel_size", "", voxel_size=1e-60),
    broken_voxels("two voxel sizes", INVALID, "voxel_size", "2", voxel_size=(1, 1)),
    broken_voxels("voxel size is text", INVALID, "voxel_size", "", voxel_size="small"),
    broken_voxels("voxel size is None", INVALID, "voxel_size", "", voxel_size=None),
    broken_voxels("origin of one number", INVALID, "origin", "three", origin=0.0),
    broken_voxels("origin NaN", INVALID, "origin", "(?i)nan", origin=(0, float("nan"), 0)),
    broken_voxels("origin inf in f32", INVALID, "origin", "", origin=(0, 1e200, 0)),
    broken_voxels("origin of four", INVALID, "origin", "three", origin=(0, 0, 0, 0)),
    broken_voxels("shape of two", INVALID, "shape", "three", shape=(4, 4)),
    broken_voxels("shape of 0", INVALID, "shape", "0", shape=(4, 0, 4)),
    broken_voxels("shape < 0", INVALID, "shape", "-4", shape=(4, -4, 4)),
    broken_voxels("shape of floats", INVALID, "shape", "2.5", shape=(4, 2.5, 4)),
    broken_voxels("shape is a number", INVALID, "shape", "three", shape=4),
    broken_voxels("shape too large", INVALID, "shape", "16777216", shape=(1 << 25, 1, 1)),
    broken_voxels("shape past 2^63", INVALID, "shape", "", shape=(1 << 24, 1 << 24, 1 << 24)),
    broken_voxels("shape past 2^64", INVALID, "shape", "", shape=(1 << 70, 1, 1)),
    broken_voxels("unknown dtype", INVALID, "dtype", "float31", dtype="float31"),
    broken_voxels("counts as u8", INVALID, "dtype", "uint8", reduce="count", dtype="uint8"),
    broken_voxels("features as i32", INVALID, "dtype", "int32", **_with(dtype="int32")),
    broken_voxels("fill past u8", INVALID, "fill", "300", fill=300),
    broken_voxels("fill between integers", INVALID, "fill", "0.5", reduce="count", fill=0.5),
    broken_voxels("fill is text", INVALID, "fill", "", fill="none"),
    broken_voxels("lengths of f32", INVALID, "lengths", "float32", lengths=np.zeros(2, "f4")),
    broken_voxels(
        "lengths of rank 2", INVALID, "lengths", r"\[B\]", lengths=np.zeros((2, 1), "i8")
    ),
    broken_voxels("lengths > N", INVALID, "lengths", "row 1.*6.*0 to 5", lengths=np.array([5, 6])),
    broken_voxels("lengths < 0", INVALID, "lengths", "row 0.*-1", lengths=np.array([-1, 5], "i4")),
    broken_voxels(
        "bad lengths, features",
        INVALID,
        "lengths",
        "row 0.*9",
        **_with(lengths=np.array([9, 0])),
    ),
    broken_voxels("out of another shape", INVALID, "out", "8", out=np.zeros((2, 8, 8, 7), "u1")),
    broken_voxels(
        "out of another dtype", INVALID, "out", "uint8", out=np.zeros((2, 8, 8, 8), "f4")
    ),
    broken_voxels(
        "out with holes",
        INVALID,
        "out",
        "row-major",
        out=lambda place: place(np.zeros((2, 8, 8, 16), "u1"))[..., ::2],
    ),
    broken_voxels("sparse is no flag", INVALID, "sparse", "True or False", sparse=1),
    broken_voxels("dense with max_voxels", INVALID, "max_voxels", "sparse", max_voxels=3),
    broken_voxels(
        "dense hard voxels", INVALID, "max_points_per_voxel", "sparse", max_points_per_voxel=3
    ),
    broken_voxels("max_voxels < 0", INVALID, "max_voxels", "-1", sparse=True, max_voxels=-1),
    broken_voxels(
        "no points per voxel",
        INVALID,
        "max_points_per_voxel",
        "0",
        sparse=True,
        max_points_per_voxel=0,
    ),
    broken_voxels("sparse, no features", INVALID, "features", "mean", sparse=True, reduce="mean"),
    broken_voxels("sparse occupancy as f16", INVALID, "dtype", "", sparse=True, dtype="float16"),
    broken_voxels("sparse with out", INVALID, "out", "", sparse=True, out=np.zeros(3, "f4")),
    broken_voxels(
        "sparse of 2^63 cells", INVALID, "shape", "2.63", sparse=True, shape=(1 << 21,) * 3
    ),
    broken_voxels(
        "sparse, lengths > N", INVALID, "lengths", "row 1", sparse=True, lengths=np.array([0, 6])
    ),
    broken_voxels("unknown device", INVALID, "device", "tpu", device="tpu"),
    broken_voxels("max_memory of no size", INVALID, "max_memory", "lots", max_memory="lots"),
    broken_voxels(
        "points need a gradient",
        UNSUPPORTED,
        "points",
        "features only",
        points=lambda place: place(CLOUD).requires_grad_(),
    ),
    broken_voxels(
        "hard voxels of features that need a gradient",
        UNSUPPORTED,
        "features",
        "hard voxels",
        **_with(
            features=lambda place: place(_FEATURES).requires_grad_(),
            sparse=True,
            max_points_per_voxel=2,
        ),
    ),
)

ROW = Row(VOXELIZE_SAMPLES, VOXELIZE_FAILURES)
