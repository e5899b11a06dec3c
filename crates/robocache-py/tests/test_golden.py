"""The golden files in testdata/golden/resample, which the Rust tests read as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oracle
import robocache as rc
from generate import Case
from helpers import assert_same_bits, on, to_numpy


def golden_root() -> Path:
    """testdata/golden of the checkout, or of the bundle that carries the tests."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "testdata" / "golden").is_dir():
            return parent / "testdata" / "golden"
    raise FileNotFoundError("testdata/golden above the tests")


GOLDEN = golden_root()
CASES = [
    (path.stem, case)
    for path in sorted((GOLDEN / "resample").glob("*.json"))
    for case in json.loads(path.read_text())["cases"]
]


def decode(tensor: dict) -> np.ndarray:
    """{"dtype", "shape", "bits" or "numbers"} as an array."""
    dtype = np.dtype(tensor["dtype"])
    if "numbers" in tensor:
        return np.array(tensor["numbers"], dtype).reshape(tensor["shape"])
    words = tensor["bits"].split() if isinstance(tensor["bits"], str) else tensor["bits"]
    patterns = [int(word, 16) for word in words]
    return np.array(patterns, f"u{dtype.itemsize}").view(dtype).reshape(tensor["shape"])


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as integers that step by one from each float to the next."""
    signed = array.view(f"i{array.dtype.itemsize}").astype(object)
    lowest = -(2 ** (array.dtype.itemsize * 8 - 1))
    return np.where(signed < 0, lowest - signed, signed)


def assert_within_ulp(got: np.ndarray, want: np.ndarray, ulp: int) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    distance = np.abs(ordered(got)[~nan] - ordered(want)[~nan])
    assert distance.size == 0 or distance.max() <= ulp, f"off by {distance.max()} ulp"


def test_there_are_goldens_of_every_method_and_extrapolation():
    assert {case["method"] for _, case in CASES} == set(oracle.METHODS)
    assert {case["extrapolate"] for _, case in CASES} == set(oracle.EXTRAPOLATIONS)
    assert {case["values"]["dtype"] for _, case in CASES} == {"float32", "float64", "uint8"}
    assert {case["times"]["dtype"] for _, case in CASES} == {"int64", "float64", "float32"}


def call(case: dict) -> Case:
    """The inputs of a golden as a case that the engine and the oracle can run."""
    options = {"max_gap": case["max_gap"]}
    for name in ("lengths", "target_lengths"):
        if case[name] is not None:
            options[name] = np.array(case[name], np.int64)
    arrays = [decode(case[name]) for name in ("values", "times", "targets")]
    return Case(*arrays, case["method"], case["extrapolate"], options)


def assert_golden(out: np.ndarray, valid: np.ndarray, case: dict) -> None:
    want = decode(case["expect"])
    assert valid.shape == want.shape[:-1]
    np.testing.assert_array_equal(valid.reshape(-1), np.array(case["valid"], bool))
    if case["ulp"] == 0:
        assert_same_bits(out, want)
    else:
        assert out.shape == want.shape and out.dtype == want.dtype
        assert_within_ulp(out, want, case["ulp"])


each_golden = pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{file}-{case['name']}") for file, case in CASES]
)


@each_golden
def test_golden(case, device):
    out, valid = call(case).run(rc.resample, on(device), return_valid=True)
    assert_golden(to_numpy(out), to_numpy(valid), case)


@each_golden
def test_the_oracle_agrees(case):
    """Two references written apart from each other: a slip in one of them shows here."""
    expected = call(case).expected()
    out, valid = expected.out.astype(case["values"]["dtype"]), expected.valid
    if expected.unbatched:
        out, valid = out[0], valid[0]
    assert_golden(out, valid, case)


@pytest.mark.parametrize("op", ["resample", "fuse", "voxelize", "points", "gradients"])
def test_the_script_makes_exactly_these_files(op, tmp_path):
    """Nobody edited a golden by hand, and nobody edited the script without running it."""
    script = GOLDEN / f"make_{op}.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=60)
    made = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    kept = {path.name: path.read_text() for path in (GOLDEN / op).glob("*.json")}
    assert made == kept
