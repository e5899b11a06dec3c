"""Tensors of every framework and dtype from one neutral form, and comparisons of bits.

The neutral form is a NumPy array; bfloat16 is ml_dtypes' type. Tests build inputs and expected
results in it and convert at the edge, so that one test body serves every framework and device.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import torch

import oracle

try:
    import ml_dtypes
except ImportError:  # it comes with jax; without it NumPy has no bfloat16
    ml_dtypes = None

FLOATS = ("float16", "bfloat16", "float32", "float64")
if ml_dtypes is None:
    FLOATS = ("float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "bool")
RARE_INTEGERS = ("uint16", "uint32", "uint64")
COPIED = FLOATS + INTEGERS + RARE_INTEGERS
STAMPS = ("int64", "float64", "float32")

# Largest error of a blended f64/f32 result, relative to the larger of the two samples.
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-6, "bfloat16": 2e-6}


def scaled(count: int) -> int:
    """A number of random cases, more or fewer by ROBOCACHE_TEST_SCALE, never none."""
    return max(1, round(count * float(os.environ.get("ROBOCACHE_TEST_SCALE", "1"))))


def run_python(*command: str, timeout: float, **options) -> subprocess.CompletedProcess:
    """A run of this Python. Once more where torch aborts it at its end: the threads of a gloo group that DDP
    used outlive `destroy_process_group`, and now and then meet an interpreter that is gone."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )
        if "terminate called without an active exception" not in done.stderr:
            break
    return done


def can_compile(device: str) -> bool:
    """Whether torch.compile with its own backend works here."""
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(3, device=device))
    except Exception:  # Whatever is missing: a C++ compiler, Triton.
        return False
    return True


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def to_torch(array: np.ndarray, device: str = "cpu") -> torch.Tensor:
    """A torch tensor with the same bits, in memory of its own."""
    array = np.array(array, order="C", copy=True)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def to_numpy(tensor) -> np.ndarray:
    """The neutral form of a tensor of any framework."""
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().cpu()
        if tensor.dtype is torch.bfloat16:
            return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()
    return np.asarray(tensor)


def on(device: str, framework: str = "torch"):
    """A function that puts a neutral array (or None) where the engine shall find it."""

    def place(array):
        if array is None:
            return None
        if framework == "numpy":
            assert device == "cpu"
            return np.array(array, order="C", copy=True)
        return to_torch(np.asarray(array), device)

    return place


def bits(array) -> np.ndarray:
    """The bit patterns of an array, with every NaN made the same."""
    array = np.ascontiguousarray(to_numpy(array))
    unsigned = array.view(f"u{array.dtype.itemsize}").copy()
    if oracle.is_float(array.dtype):
        unsigned[np.isnan(array.astype(np.float64))] = np.iinfo(unsigned.dtype).max
    return unsigned


def assert_same_bits(got, want, context="") -> None:
    """Same shape, dtype and bits; -0 differs from +0, NaNs are all alike."""
    got, want = to_numpy(got), to_numpy(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape} {context}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype} {context}"
    differ = bits(got) != bits(want)
    if differ.any():
        where = tuple(int(i) for i in np.argwhere(differ)[0])
        raise AssertionError(
            f"{int(differ.sum())} of {differ.size} elements differ, first at {where}: "
            f"{got[where]!r}, expected {want[where]!r} {context}"
        )


def finfo(dtype: np.dtype):
    """What `np.finfo` tells, of bfloat16 too."""
    return np.finfo(dtype) if ml_dtypes is None else ml_dtypes.finfo(dtype)


def half_ulp(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Half the distance of neighbouring 16-bit floats at x: one rounding may move that far."""
    info = finfo(dtype)
    smallest = float(info.smallest_normal)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), smallest)))
    return np.exp2(exponent - info.nmant) / 2.0


def assert_matches(got, got_valid, expected: oracle.Expected, values, context="", tolerance=None):
    """`got` is what the contract says: samples bit for bit, blends within the tolerance."""
    got = to_numpy(got)
    values = np.asarray(values)
    want, valid, sample, scale = expected.out, expected.valid, expected.sample, expected.scale
    if expected.unbatched:
        want, valid, sample, scale = want[0], valid[0], sample[0], scale[0]
    assert got.dtype == values.dtype, f"dtype {got.dtype}, expected {values.dtype} {context}"
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape} {context}"
    if got_valid is not None:
        assert_same_bits(got_valid, valid, f"(valid) {context}")

    exact = sample != oracle.BLENDED
    assert_same_bits(got[exact], want[exact].astype(values.dtype), f"(exact samples) {context}")
    if exact.all():
        return
    have, want, scale = got[~exact].astype(np.float64), want[~exact], scale[~exact]
    name = got.dtype.name
    allowed = (TOLERANCE[name] if tolerance is None else tolerance) * scale
    finite = np.isfinite(want)
    if name in ("float16", "bfloat16"):
        largest = np.maximum(np.abs(want), np.where(np.isfinite(have), np.abs(have), 0))
        allowed = allowed + half_ulp(np.where(finite, largest, 0), got.dtype)
        # A result that the 16-bit type cannot hold becomes infinite.
        overflow = finite & (np.abs(want) > float(finfo(got.dtype).max))
        want = np.where(overflow & np.isinf(have), have, want)
        finite = np.isfinite(want)
    with np.errstate(invalid="ignore"):
        wrong = np.where(finite, ~(np.abs(have - want) <= allowed), bits(have) != bits(want))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} blended elements are off, first: "
            f"{have[where]!r}, expected {want[where]!r}, allowed {allowed[where]!r} {context}"
        )
