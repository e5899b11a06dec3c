"""One table of the public ops: sample inputs by dtypes by devices, and inputs that must fail.

An op that is added to `robocache.__all__` needs a row here; test_table.py fails until it has one.
"""

from __future__ import annotations

import numpy as np

import cases_fuse
import cases_points
import cases_rotation
import robocache as rc
from generate import EPOCH_NS, Case, random_values
from helpers import COPIED, FLOATS, dtype_of
from table import Failure, Row, Sample

# Public names that compute nothing and so have no row. Exceptions are left out by their class.
NON_OPS: frozenset[str] = frozenset(
    {
        "dataset",
        "ingest",
        "memory_profile",
        "memory_report",
        "metrics",
        "open",
        "plan",
        "synchronize",
        "warmup",
    }
)
# Ops that are functions of a public module.
WITHIN: tuple[tuple[str, str], ...] = (("rotation", "convert"),)
# Older names, which test_aliases.py compares with what they call.
ALIASES: frozenset[str] = frozenset(
    {"fuse_multimodal", "resample_trajectories", "resample_trajectories_chunked"}
)


def values(dtype: str, *shape: int) -> np.ndarray:
    return random_values(np.random.default_rng(sum(shape)), shape, dtype)


def resample_sample(name, times, targets, *, batch=(), dim=5, method="linear", how="clamp", **more):
    """A sample of `resample` whose values are random over the whole range of the dtype."""
    times, targets = np.asarray(times), np.asarray(targets)

    def make(dtype: str) -> Case:
        data = values(dtype, *batch, times.shape[-1], dim)
        return Case(data, times, targets, method, how, dict(more))

    dtypes = FLOATS if method == "linear" or how == "nan" else COPIED
    return Sample(name, make, dtypes)


NS = EPOCH_NS + np.array([0, 2_000_000, 4_100_000, 4_100_000, 9_000_000])
NS_TARGETS = EPOCH_NS + np.array(
    [-5, 0, 7, 10**6, 3 * 10**6, 4_100_000, 5_555_555, 9_000_000, 10**7]
)
SECONDS = np.array([0.0, 0.25, 1.0, 1.0, 4.0])
SECOND_TARGETS = np.array([-1.0, 0.0, 0.1, 0.125, 1.0, 2.5, 4.0, np.nan, np.inf, 9.0])


def _copying(method: str) -> tuple[Sample, ...]:
    return (
        resample_sample(f"{method}, epoch ns", NS, NS_TARGETS, method=method),
        resample_sample(f"{method}, f64 s", SECONDS, SECOND_TARGETS, batch=(3,), method=method),
        resample_sample(f"{method}, nan", NS, NS_TARGETS, method=method, how="nan"),
        resample_sample(
            f"{method}, ragged",
            np.stack([NS, NS + 1000]),
            np.stack([NS_TARGETS, NS_TARGETS]),
            batch=(2,),
            method=method,
            lengths=np.array([5, 0]),
            target_lengths=np.array([9, 3], np.int32),
        ),
    )


RESAMPLE_SAMPLES = (
    resample_sample("epoch ns", NS, NS_TARGETS),
    resample_sample("f64 s", SECONDS, SECOND_TARGETS),
    resample_sample("f32 s", SECONDS.astype("f4"), SECOND_TARGETS.astype("f4")),
    resample_sample("batch", np.stack([NS, NS - 7]), NS_TARGETS, batch=(2,), dim=1),
    resample_sample("shared stamps", NS, np.stack([NS_TARGETS] * 3), batch=(3,), dim=33),
    resample_sample("extrapolated", NS, NS_TARGETS, how="linear"),
    resample_sample("outside is nan", SECONDS, SECOND_TARGETS, how="nan"),
    resample_sample("inside only", NS, NS_TARGETS[1:-1], how="error"),
    resample_sample("max_gap", NS, NS_TARGETS, max_gap=0.0021),
    resample_sample("lengths", NS, NS_TARGETS, batch=(3,), lengths=np.array([5, 2, 0])),
    resample_sample("scalar length", NS, NS_TARGETS, lengths=np.array(3)),
    resample_sample("target_lengths", NS, NS_TARGETS, target_lengths=np.array([9, 0, 3])),
    resample_sample("one sample", NS[:1], NS_TARGETS, how="linear"),
    resample_sample("B=0", NS, NS_TARGETS, batch=(0,)),
    resample_sample("T=0", NS, NS_TARGETS[:0], batch=(2,)),
    resample_sample("D=0", NS, NS_TARGETS, batch=(2,), dim=0),
    *_copying("nearest"),
    *_copying("previous"),
    *_copying("next"),
)


def broken(name, error, argument, message, *, devices=None, **changes):
    """A call that is good but for `changes`; a function of `place` builds what is not an array."""
    good = {
        "values": values("float32", 2, 3, 4),
        "times": np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]),
        "targets": np.array([[0.5, 1.5], [0.5, 1.5]]),
    }

    def make(place):
        merged = {**good, **changes}
        for key, value in merged.items():
            if isinstance(value, np.ndarray):
                merged[key] = place(value)
            elif callable(value):
                merged[key] = value(place)
        return tuple(merged.pop(key) for key in good), merged

    return Failure(name, make, error, argument, message, devices)


def zeros(dtype: str, *shape: int):
    return np.zeros(shape, dtype_of(dtype))


INVALID, UNSUPPORTED = "InvalidArgument", "Unsupported"
HOST = ("cpu",)
UNSORTED = np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
INFINITE = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, np.inf]])
NOT_A_TIME = np.array([[0.0, np.nan, 2.0], [0.0, 1.0, 2.0]])
OUTSIDE = np.array([[0.5, 1.5], [0.5, 2.5]])
F32_TIMES = {"times": np.array([0, 1, 2], "f4"), "targets": np.array([0.5], "f4")}
FLAGS = np.zeros((2, 3, 4), bool)

RESAMPLE_FAILURES = (
    broken("values of rank 0", INVALID, "values", r"\[B,S,D\]", values=zeros("float32")),
    broken("values of rank 1", INVALID, "values", r"\[B,S,D\]", values=zeros("float32", 3)),
    broken(
        "values of rank 4", INVALID, "values", r"\[B,S,D\]", values=zeros("float32", 1, 2, 3, 4)
    ),
    broken("times of rank 0", INVALID, "times", r"\[B,S\]", times=zeros("float64")),
    broken("times of rank 3", INVALID, "times", r"\[B,S\]", times=zeros("float64", 1, 2, 3)),
    broken("targets of rank 3", INVALID, "targets", r"\[B,T\]", targets=zeros("float64", 1, 2, 3)),
    broken("S=0", INVALID, "values", "no samples", values=zeros("float32", 0, 4)),
    broken("S differs", INVALID, "times", "3 samples", times=np.arange(4.0)),
    broken("B differs, times", INVALID, "times", "3.*2", times=zeros("float64", 3, 3)),
    broken("B differs, targets", INVALID, "targets", "3.*2", targets=zeros("float64", 3, 1)),
    broken("B differs, lengths", INVALID, "lengths", "3.*2", lengths=zeros("int64", 3)),
    broken("stamps of int32", INVALID, "times", "int32", times=zeros("int32", 3)),
    broken("stamps of f16", INVALID, "times", "float16", times=zeros("float16", 3)),
    broken("targets of another type", INVALID, "targets", "int64", targets=zeros("int64", 2)),
    broken("targets of f32", INVALID, "targets", "float32", targets=zeros("float32", 2)),
    broken("linear on u8", INVALID, "values", "uint8", values=zeros("uint8", 3, 4)),
    broken("linear on i64", INVALID, "values", "int64", values=zeros("int64", 3, 4)),
    broken("linear on bool", INVALID, "values", "bool", values=FLAGS),
    broken(
        "nan on integers",
        INVALID,
        "extrapolate",
        "int32",
        values=zeros("int32", 3, 4),
        method="previous",
        extrapolate="nan",
    ),
    broken("complex", UNSUPPORTED, "values", "complex", values=zeros("complex64", 3, 4)),
    broken("unknown method", INVALID, "method", "linear.*nearest.*'?quadratic", method="quadratic"),
    broken("unknown extrapolation", INVALID, "extrapolate", "clamp.*mirror", extrapolate="mirror"),
    broken(
        "slerp of five columns",
        INVALID,
        "values",
        "4 columns.*5",
        values=zeros("float32", 3, 5),
        method="slerp",
    ),
    broken("rot6d of four columns", INVALID, "values", "6 columns.*4", method="rot6d"),
    broken(
        "ranges that overlap",
        INVALID,
        "method",
        "overlaps",
        method=[("linear", 0, 3), ("next", 2, 4)],
    ),
    broken(
        "ranges that leave columns out",
        INVALID,
        "method",
        "no range covers column 3",
        method=[("linear", 0, 3)],
    ),
    broken(
        "ranges past the columns", INVALID, "method", "last of 4 columns", method=[("linear", 0, 5)]
    ),
    broken("a range of no method", INVALID, "method", "spline", method=[("spline", 0, 4)]),
    broken("a range without its end", INVALID, "method", "start, end", method=[("linear", 0)]),
    *(
        broken(
            f"{method} on integers",
            INVALID,
            "values",
            method,
            values=zeros("int32", 3, 12),
            method=method,
        )
        for method in ("cubic", "slerp", "angle", "rot6d")
    ),
    *(
        broken(
            f"{method} along a line",
            UNSUPPORTED,
            "extrapolate",
            method,
            values=zeros("float32", 3, 12),
            method=method,
            extrapolate="linear",
        )
        for method in ("slerp", "angle", "rot6d")
    ),
    broken("scale on floats", INVALID, "scale", "int8 or float8.*float32", scale=2.0),
    broken("out_dtype of integers", INVALID, "out_dtype", "float.*int32", out_dtype="int32"),
    broken("method is no name", INVALID, "method", "", method=3),
    *(
        broken(
            f"{method} along a line",
            UNSUPPORTED,
            "extrapolate",
            method,
            method=method,
            extrapolate="linear",
        )
        for method in ("nearest", "previous", "next")
    ),
    broken("max_gap < 0", INVALID, "max_gap", "-1", max_gap=-1.0),
    broken("max_gap is NaN", INVALID, "max_gap", "(?i)nan", max_gap=float("nan")),
    broken("lengths of f32", INVALID, "lengths", "float32", lengths=zeros("float32", 2)),
    broken("lengths of rank 2", INVALID, "lengths", r"\[B\]", lengths=zeros("int64", 2, 1)),
    broken("lengths > S", INVALID, "lengths", "row 1.*4", lengths=np.array([3, 4])),
    broken("lengths < 0", INVALID, "lengths", "row 0.*-1", lengths=np.array([-1, 3], "i4")),
    broken(
        "target_lengths > T", INVALID, "target_lengths", "row 0.*3", target_lengths=np.array([3, 0])
    ),
    broken(
        "target_lengths < 0",
        INVALID,
        "target_lengths",
        "row 1.*-9",
        target_lengths=np.array([0, -9]),
    ),
    broken("unsorted", INVALID, "times", r"row 1 .*index 2 \(1.* after 2", times=UNSORTED),
    broken("infinite stamp", INVALID, "times", "row 1.*index 2", times=INFINITE),
    broken("NaN stamp", INVALID, "times", "row 0.*index 1", times=NOT_A_TIME),
    broken(
        "coarse f32 stamps",
        INVALID,
        "times",
        "int64|float64",
        **{**F32_TIMES, "times": np.array([0, 1, 1.7e9], "f4")},
    ),
    broken(
        "target outside",
        INVALID,
        "targets",
        "row 1.*index 1.*2.5",
        targets=OUTSIDE,
        extrapolate="error",
    ),
    broken(
        "target at infinity",
        INVALID,
        "targets",
        "row 0.*index 1.*-inf",
        targets=np.array([[0.5, -np.inf], [0.5, 1.5]]),
        extrapolate="error",
    ),
    broken("out of another shape", INVALID, "out", r"2.*2.*4", out=zeros("float32", 2, 2, 5)),
    broken("out of another dtype", INVALID, "out", "float64", out=zeros("float64", 2, 2, 4)),
    broken("out is no tensor", INVALID, "out", "", out="a name"),
    broken("values is None", INVALID, "values", "", values=None),
    broken("values is text", INVALID, "values", "", values="text"),
    broken(
        "values of objects",
        UNSUPPORTED,
        "values",
        "object",
        devices=HOST,
        values=lambda _: np.array([[{}]] * 3),
    ),
    broken(
        "values of text",
        UNSUPPORTED,
        "values",
        "",
        devices=HOST,
        values=lambda _: np.array([["a"]] * 3),
    ),
    broken("times is None", INVALID, "times", "", times=None),
    broken("unknown device", INVALID, "device", "tpu", device="tpu"),
    broken("device is no name", INVALID, "device", "", device=3.5),
    broken("max_memory of no size", INVALID, "max_memory", "lots", max_memory="lots"),
    broken("max_memory of 0", INVALID, "max_memory", "0", max_memory=0),
    broken("max_memory < 0", INVALID, "max_memory", "-5", max_memory=-5),
    broken("max_memory is NaN", INVALID, "max_memory", "(?i)nan", max_memory=float("nan")),
    broken(
        "targets need a gradient",
        UNSUPPORTED,
        "targets",
        "values only",
        targets=lambda place: place(np.array([0.5, 1.5])).requires_grad_(),
    ),
    broken(
        "stamps need a gradient beside values that do",
        UNSUPPORTED,
        "times",
        "values only",
        values=lambda place: place(values("float32", 2, 3, 4)).requires_grad_(),
        times=lambda place: place(np.array([0.0, 1.0, 2.0])).requires_grad_(),
    ),
)

TABLE: dict[str, Row] = {
    "resample": Row(RESAMPLE_SAMPLES, RESAMPLE_FAILURES),
    "fuse": cases_fuse.ROW,
    **cases_points.ROWS,
    "rotation.convert": cases_rotation.ROW,
}


def public_ops() -> set[str]:
    """Every public name that computes on tensors: no classes, no modules, nothing about files."""
    others = {name for name in rc.__all__ if not callable(getattr(rc, name))}
    others |= {name for name in rc.__all__ if isinstance(getattr(rc, name), type)}
    within = {f"{module}.{name}" for module, name in WITHIN}
    return (set(rc.__all__) - others - NON_OPS - ALIASES) | within


def sample_rows(devices: list[str]) -> list[tuple[str, Sample, str, str]]:
    """(op, sample, dtype, device) for every combination that must work."""
    return [
        (op, sample, dtype, device)
        for op, row in TABLE.items()
        for sample in row.samples
        for dtype in sample.dtypes
        for device in devices
    ]


def failure_rows(devices: list[str]) -> list[tuple[str, Failure, str]]:
    """(op, failure, device) for every combination that must be refused."""
    return [
        (op, failure, device)
        for op, row in TABLE.items()
        for failure in row.failures
        for device in devices
        if failure.devices is None or device in failure.devices
    ]


def summary(devices: list[str]) -> list[str]:
    """What the end of every test run prints."""
    samples, failures = sample_rows(devices), failure_rows(devices)
    lines = [
        f"{op}: {sum(row[0] == op for row in samples)} good, "
        f"{sum(row[0] == op for row in failures)} refused"
        for op in TABLE
    ]
    total = len(samples) + len(failures)
    return [*lines, f"{total} combinations on {len(devices)} device(s)"]
