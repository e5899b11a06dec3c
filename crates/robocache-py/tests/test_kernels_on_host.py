"""Kernels, run on the host by `crates/fake-cuda`: what a machine without a GPU could not see else.

A failure names its case: `python kernels_on_host.py PART STAMPS DTYPE CASES SEED` with the variables below repeats it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

import pytest

from helpers import scaled

FAKE = os.environ.get("ROBOCACHE_FAKE_CUDA", "")
COMPILER = os.environ.get("CXX", "c++")
pytestmark = [
    pytest.mark.skipif(
        not os.path.isfile(FAKE),
        reason="ROBOCACHE_FAKE_CUDA does not name the fake driver; `cargo xtask test` builds it",
    ),
    pytest.mark.skipif(
        platform.machine() != "x86_64" or shutil.which(COMPILER) is None,
        reason=f"needs an x86-64 and a C++ compiler, {COMPILER}",
    ),
]

# Part, stamps, values, capability and order. From 9.0 on the copy engine brings values near. Threads take turns in
# the order of their numbers (0), or in one that is made of the number. Clusters of blocks are not known to the host,
# so point clouds, which use them from 9.0 on, run as before that.
RUNS = [
    ("resample", "int64", "float32", "9.0", 0),
    ("resample", "float64", "bfloat16", "8.0", 1),
    ("resample", "float32", "float64", "9.0", 2),
    ("fuse", "int64", "bfloat16", "9.0", 3),
    ("fuse", "float64", "float32", "8.0", 0),
    ("fuse", "float32", "float16", "9.0", 4),
    ("gradient", "int64", "float32", "9.0", 5),
    ("gradient", "float64", "float16", "8.0", 6),
    ("gradient", "float32", "float64", "9.0", 0),
    ("points", "int64", "float32", "8.0", 7),
]


def run(part: str, stamps: str, dtype: str, capability: str, order: int, cases: int):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROBOCACHE_", "CUDA_"))}
    fake = {
        "ROBOCACHE_LIBCUDA": FAKE,
        "ROBOCACHE_NVRTC": FAKE,
        "ROBOCACHE_CUBIN_DIR": "",
        "FAKE_CUDA_COMPUTE": "1",
        "FAKE_CUDA_VERSION": "13000",
        "FAKE_NVRTC_VERSION": "13.0",
        "FAKE_CUDA_CAPABILITY": capability,
        "FAKE_CUDA_MULTIPROCESSORS": "2",  # small batches are cut as large ones are on a real one
        "FAKE_CUDA_ORDER": str(order),
    }
    script = os.path.join(os.path.dirname(__file__), "kernels_on_host.py")
    return subprocess.run(
        [sys.executable, script, part, stamps, dtype, str(cases), str(order + 1)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**kept, **fake},
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("part", "stamps", "dtype", "capability", "order"), RUNS)
def test_kernels_compute_what_the_cpu_does(part, stamps, dtype, capability, order):
    cases = scaled(40)
    done = run(part, stamps, dtype, capability, order, cases)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-3000:]
    assert f"{cases} cases passed" in done.stdout
