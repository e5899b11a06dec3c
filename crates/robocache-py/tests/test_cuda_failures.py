"""Lost devices, hanging kernels, forks and first calls, each in a process of its own; memory; times.

The children of cuda_children.py start together, so that their imports cost the time of one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import robocache as rc
from gpu import assert_gpu_works

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).with_name("cuda_children.py")


def run_child(scenario: str, **environment: str) -> subprocess.CompletedProcess:
    # The tests' own process keeps JAX off the GPU.
    inherited = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), scenario],
        capture_output=True,
        text=True,
        timeout=90,
        env={**inherited, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environment},
    )


# What a scenario needs, and the exit code it ends with.
ENVIRONMENT = {"blocking": {"ROBOCACHE_BLOCKING": "1"}}
EXIT_CODE = {"hanging_kernel": -9}
TOGETHER = (
    "illegal_address",
    "device_assert",
    "seen_by_synchronize",
    "device_reset",
    "hanging_kernel",
    "fork",
    "first_capture",
    "first_threads",
    "blocking",
    "jax_arrays",
    "quick_allocation",
)


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    """All of them at once."""
    cold = {"ROBOCACHE_CUBIN_DIR": str(tmp_path_factory.mktemp("cubins"))}
    needs = {**ENVIRONMENT, "first_threads": cold}
    with ThreadPoolExecutor(len(TOGETHER)) as pool:
        yield {name: pool.submit(run_child, name, **needs.get(name, {})) for name in TOGETHER}


@pytest.mark.parametrize("scenario", TOGETHER)
def test_in_a_process_of_its_own(scenario, children):
    done = children[scenario].result()
    if done.stdout.startswith("skip: "):
        pytest.skip(done.stdout.removeprefix("skip: ").splitlines()[0])
    told = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("ok\n"), told
    assert done.returncode == EXIT_CODE.get(scenario, 0), told
    assert "panicked" not in done.stderr, told


def test_87_no_device_is_visible():
    code = (
        "import numpy as np, robocache as rc\n"
        "try:\n"
        "    rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2), device='cuda:0')\n"
        "except rc.NoDevice as error:\n"
        "    print(error)\n"
        "print(rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2)).tolist())\n"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2, done.stdout + done.stderr
    assert lines[0].startswith("resample: device: ") and "CUDA_VISIBLE_DEVICES" in lines[0]
    assert lines[1] == "[[1.0], [1.0]]"


# -- memory -----------------------------------------------------------------------------------


def too_large():
    """16 TiB of results from a few bytes."""
    values = torch.zeros(1, device="cuda").expand(2**16, 2, 2**10)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64, device="cuda")
    return values, times, torch.zeros(1, dtype=torch.float64, device="cuda").expand(2**16)


def test_88_torchs_out_of_memory_stays_torchs():
    arguments = too_large()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        with pytest.raises(torch.OutOfMemoryError):
            rc.resample(*arguments)
        assert torch.cuda.memory_allocated() == before, "something is still held"
        assert_gpu_works()


def test_88_the_memory_that_is_left_is_used():
    """Almost all memory is taken by torch; small results still fit, large ones do not, then do."""
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    taken = torch.empty(free - 2**30, dtype=torch.uint8, device="cuda")
    values = torch.zeros(2, 1, device="cuda").expand(2, 2**12)
    times = torch.tensor([0.0, 1.0], device="cuda")
    targets = torch.zeros(1, device="cuda").expand(2**19)  # 8 GiB of results
    try:
        assert_gpu_works()
        with pytest.raises(torch.OutOfMemoryError):
            rc.resample(values, times, targets)
        assert_gpu_works()
    finally:
        del taken
        torch.cuda.empty_cache()
    assert rc.resample(values, times, targets).shape == (2**19, 2**12)
    torch.cuda.empty_cache()


# -- times ------------------------------------------------------------------------------------


def seconds_of_first_call(folder: Path) -> float:
    done = run_child("first_call", ROBOCACHE_CUBIN_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[1])


def test_the_first_call_cold_and_with_cubins_on_disk(tmp_path):
    """Soft bounds of the machine: a cold call compiles, later processes only load."""
    folder = tmp_path / "cubins"
    cold = seconds_of_first_call(folder)
    kept = [file.name for file in folder.iterdir()]
    assert len(kept) == 1 and kept[0].endswith(".cubin"), kept
    assert folder.stat().st_mode & 0o077 == 0, "the folder is the user's alone"
    warm = min(seconds_of_first_call(folder) for _ in range(2))
    print(f"first call: {cold:.3f} s cold, {warm:.3f} s with cubins on disk")
    assert cold < 3.0, f"{cold} s cold"
    assert warm < 0.3, f"{warm} s with cubins on disk"
    assert [file.name for file in folder.iterdir()] == kept


def test_94_a_damaged_cubin_is_compiled_anew(tmp_path):
    folder = tmp_path / "cubins"
    seconds_of_first_call(folder)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    seconds_of_first_call(folder)
    assert file.read_bytes() == whole
