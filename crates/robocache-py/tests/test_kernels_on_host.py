"""Kernels, run on the host by `crates/fake-cuda`: what a machine without a GPU could not see else.

A failure says how to repeat it.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys

import pytest

from helpers import scaled

FAKE = os.environ.get("ROBOCACHE_FAKE_CUDA", "")
COMPILER = os.environ.get("CXX", "c++")


def can_run() -> bool:
    if (
        platform.machine() != "x86_64"
        or not os.path.exists("/proc/cpuinfo")
        or not shutil.which(COMPILER)
    ):
        return False
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    told = subprocess.run(
        [COMPILER, "-dumpfullversion"], capture_output=True, text=True, check=False
    )
    version = told.stdout.split(".")[0]
    return {"fma", "f16c"} <= set(flags) and version.isdigit() and int(version) >= 12


pytestmark = [
    pytest.mark.skipif(
        not os.path.isfile(FAKE),
        reason="ROBOCACHE_FAKE_CUDA does not name the fake driver; `cargo xtask test` builds it",
    ),
    pytest.mark.skipif(
        not can_run(),
        reason=f"needs x86-64 with FMA and F16C, and {COMPILER} to be GCC 12 or later",
    ),
]

# Part, stamps, values, capability and order. Threads take turns in an order that is made of the number; 0, the order of
# their numbers, would hide a barrier that is missing.
RUNS = [
    ("resample", "int64", "float32", "9.0", 1),
    ("resample", "float64", "bfloat16", "8.0", 2),
    ("resample", "float32", "float64", "9.0", 3),
    ("fuse", "int64", "bfloat16", "9.0", 4),
    ("fuse", "float64", "float32", "8.0", 5),
    ("fuse", "float32", "float16", "9.0", 6),
    ("gradient", "int64", "float32", "9.0", 7),
    ("gradient", "float64", "float16", "8.0", 8),
    ("gradient", "float32", "float64", "9.0", 9),
    ("points", "int64", "float32", "9.0", 10),
    ("sparse", "int64", "float16", "8.0", 11),
    ("robots", "int64", "float32", "9.0", 12),
    ("robots", "int64", "float64", "8.0", 13),
    ("rotation", "int64", "float32", "9.0", 14),
    ("rotation", "int64", "float64", "8.0", 15),
    ("rotation", "int64", "float16", "9.0", 16),
    ("rotation", "int64", "bfloat16", "8.0", 17),
    ("parts", "int64", "float32", "9.0", 18),
    ("parts", "float64", "float16", "8.0", 19),
    ("streamed", "int64", "float32", "8.0", 20),
    ("streamed", "float32", "bfloat16", "9.0", 21),
]


EACH = 40
"""Cases of one child, which takes well under its 500 s for them."""
CASES = min(scaled(EACH), 3 * EACH)  # at night three children: ten would take hours


@pytest.mark.timeout(600 * -(-CASES // EACH))
@pytest.mark.parametrize(("part", "stamps", "dtype", "capability", "order"), RUNS)
def test_kernels_compute_what_the_cpu_does(part, stamps, dtype, capability, order):
    fake = {
        "ROBOCACHE_LIBCUDA": FAKE,
        "ROBOCACHE_NVRTC": FAKE,
        "ROBOCACHE_CUBIN_DIR": "",
        "FAKE_CUDA_COMPUTE": "1",
        "FAKE_CUDA_VERSION": "13000",
        "FAKE_NVRTC_VERSION": "13.0",
        "FAKE_CUDA_CAPABILITY": capability,
        "FAKE_CUDA_DEVICES": "2",
        "FAKE_CUDA_MULTIPROCESSORS": "2",  # small batches are cut as large ones are on a real one
        "FAKE_CUDA_ORDER": str(order),
    }
    script = os.path.join(os.path.dirname(__file__), "kernels_on_host.py")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROBOCACHE_", "CUDA_"))}
    for first in range(0, CASES, EACH):
        end = min(first + EACH, CASES)
        command = [sys.executable, script, part, stamps, dtype, str(order), str(first), str(end)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=500, check=False, env={**kept, **fake}
        )
        again = shlex.join([*(f"{name}={value}" for name, value in fake.items()), *command])
        told = f"{again}\n{done.stdout[-100:]}{done.stderr[-3000:]}"
        assert done.returncode == 0 and f"{end - first} cases passed" in done.stdout, told
