"""Data of the host that streams through GPUs, from Python: sources, results, several GPUs, errors, Ctrl-C.

`crates/fake-cuda` computes with the kernels' own sources; what is compared with the CPU at random is in
kernels_on_host.py, failures of the driver are in crates/robocache/tests/fake_driver/streaming.rs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import robocache as rc
from devices import NO_CUDA
from test_fake_driver import child, pytestmark  # noqa: F401 - skips where there is no fake driver
from test_kernels_on_host import can_run

COMPUTES = {"FAKE_CUDA_COMPUTE": "1", "FAKE_CUDA_VERSION": "13000", "FAKE_NVRTC_VERSION": "13.0"}
needs_compiler = pytest.mark.skipif(
    not can_run(), reason="kernels cannot be compiled for this host"
)

CALLS = """
import ctypes, tempfile, torch
rng = np.random.default_rng(0)
values = rng.normal(size=(9, 40, 6)).astype("f4")
times = np.sort(rng.integers(0, 10**9, (9, 40)), axis=1)
targets = rng.integers(0, 10**9, (9, 30))
want = rc.resample(values, times, targets, return_valid=True)
def same(got):
    return all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
"""


@needs_compiler
def test_every_source_gives_the_same_and_results_land_where_they_belong():
    """Pageable, mapped and pinned memory; NumPy and torch; results of the caller."""
    code = (
        CALLS
        + """
way = {"device": "cuda", "chunk": 2, "return_valid": True}
print(same(rc.resample(values, times, targets, **way)))
with tempfile.TemporaryDirectory() as folder:
    np.save(folder + "/values.npy", values)
    mapped = np.load(folder + "/values.npy", mmap_mode="r")
    got = rc.resample(mapped, times, targets, **way)
    print(same(got), type(got[0]).__name__, got[0].flags.writeable)
got = rc.resample(*(torch.from_numpy(x) for x in (values, times, targets)), **way)
print(same(got), got[0].device, got[1].dtype)
driver = ctypes.CDLL(os.environ["ROBOCACHE_LIBCUDA"])
context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
driver.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(values.nbytes), 0)
room = (ctypes.c_float * values.size).from_address(pointer.value)
pinned = np.frombuffer(room, "f4").reshape(values.shape)
pinned[:] = values
print(same(rc.resample(pinned, times, targets, **way)))
out = np.full((9, 30, 12), 5.0, "f4")
rc.resample(values, times, targets, device="cuda", chunk=2, out=out[:, :, ::2])
print(np.array_equal(out[:, :, ::2], want[0]), (out[:, :, 1::2] == 5).all())
"""
    )
    said = child(code, **COMPUTES)
    assert said[0] == said[3] == "True"
    assert said[1] == "True ndarray True" and said[2] == "True cpu torch.bool"
    assert said[4] == "True True"


@needs_compiler
def test_several_devices_give_the_results_of_one_in_order():
    code = (
        CALLS
        + """
for devices in (["cuda:0"], ["cuda:0", "cuda:1"], ("cuda:1", "cuda:2", "cuda:0"), ["cuda:1", "cuda:1"]):
    for chunk in (1, 4):
        print(same(rc.resample(values, times, targets, device=devices, chunk=chunk, return_valid=True)))
grid = {"origin": (-2, -2, -2), "voxel_size": 0.5, "shape": (8, 8, 8), "reduce": "mean", "return_counts": True}
points, features = rng.normal(size=(2, 5, 300, 3)).astype("f4")
dense = rc.voxelize(points, features, **grid)
got = rc.voxelize(points, features, **grid, device=["cuda:0", "cuda:1"], chunk=1)
print(all(np.array_equal(a, b) for a, b in zip(got, dense)))
grid = {key: grid[key] for key in ("origin", "voxel_size", "shape", "reduce")}
sparse = rc.voxelize(points, features, **grid, sparse=True)
got = rc.voxelize(points, features, **grid, sparse=True, device="cuda:1")
print(all(np.array_equal(getattr(got, k), getattr(sparse, k)) for k in ("coords", "features", "counts", "inverse")))
"""
    )
    assert child(code, FAKE_CUDA_DEVICES="3", **COMPUTES) == ["True"] * 10


@needs_compiler
def test_auto_takes_the_first_gpu_that_works():
    code = (
        CALLS
        + """
print(same(rc.resample(values, times, targets, device="auto", return_valid=True)))
print(driver_calls("cuLaunchKernel") > 0, rc.metrics()["resample"]["fallbacks"])
report = rc.memory_report()
print(sorted(report), report["cuda:0"]["free"] < report["cuda:0"]["total"], report["cuda:0"]["lost"])
plan = rc.plan("resample", batch=9, source=40, targets=30, dim=6, device="cuda", max_memory="8KiB")
print(plan.device, plan.chunks > 1, plan.fits, plan.seconds > 0, plan.in_flight <= 8192)
resident = rc.plan("resample", batch=9, source=40, targets=30, dim=6, device="cuda", resident=True)
print(resident.device, resident.chunks, resident.bytes_in == plan.bytes_in)
"""
    )
    first, launched, report, plan, resident = child(code, **COMPUTES)
    assert (first, launched) == ("True", "True 0")
    assert report == "['cpu', 'cuda:0'] True False"
    assert plan == "cuda:0 True True True True" and resident == "cuda:0 1 True"


def test_bad_data_is_raised_by_the_guilty_call_with_its_row():
    finding = f"{1 << 32 | 1}:1:17:5:9"
    code = """
call = np.ones((6, 30, 1), np.float32), np.tile(np.arange(30), (6, 1)), np.tile(np.arange(3), (6, 1))
print(refused(lambda: rc.resample(*call, device="cuda", chunk=2)))
os.environ["FAKE_CUDA_FINDING"] = ""
print(rc.resample(*call, device="cuda", chunk=2).shape)
"""
    told, after = child(code, FAKE_CUDA_FINDING=finding)
    assert told.startswith("invalid_argument resample times | resample: times: row ")
    assert "decreases at index 17" in told and after == "(6, 3, 1)"


@needs_compiler
def test_calls_at_once_raise_what_is_theirs():
    code = (
        CALLS
        + """
import concurrent.futures
bad = times.copy()
bad[4, 7] = bad[4, 8] + 1
def call(stamps):
    try:
        return same(rc.resample(values, stamps, targets, return_valid=True, device="cuda", chunk=2))
    except rc.InvalidArgument as error:
        return "row 4 decreases at index 8" in str(error) and "raised"
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    ends = [(pool.submit(call, bad), pool.submit(call, times)) for _ in range(20)]
print(*{(a.result(), b.result()) for a, b in ends})
"""
    )
    assert child(code, **COMPUTES) == ["('raised', True)"]


def test_devices_that_cannot_be_streamed_through():
    code = """
call = np.ones((6, 30, 1), np.float32), np.tile(np.arange(30), (6, 1)), np.tile(np.arange(3), (6, 1))
for device in ("cuda:2", ["cuda:0", "cuda:2"], [], ["cuda:0", None], ["cpu", "cuda:0"], "tpu", ["cuda:0", ["cuda:1"]]):
    print(refused(lambda: rc.resample(*call, device=device)))
on_gpu = [Array(x) for x in call]
print(refused(lambda: rc.resample(*on_gpu, device=["cuda:0", "cuda:1"])))
print(refused(lambda: rc.resample(*call, device="cuda", stream=7)))
print(refused(lambda: rc.resample(*call, device="cuda", max_memory=64)))
print(refused(lambda: rc.resample(call[0], on_gpu[1], call[2], device="cuda")))
assert_cpu_works()
"""
    said = child(code, FAKE_CUDA_DEVICES="2")
    assert all(line.startswith("invalid_argument resample ") for line in said), said
    assert "cuda:2 does not exist; there are 2 GPUs" in said[0]
    assert "cannot be one of several" in said[4] and "lives on cuda:0" in said[7]
    assert "max_memory: expected" in said[9]


def test_progress_tells_about_parts():
    code = """
call = np.ones((6, 30, 1), np.float32), np.tile(np.arange(30), (6, 1)), np.tile(np.arange(3), (6, 1))
told = []
with rc.memory_profile() as profile:
    rc.resample(*call, device="cuda", chunk=1, progress=lambda *done: told.append(done))
print(told[-1], sorted(told) == told)
(snapshot,) = profile.snapshots
print(snapshot.device, snapshot.chunks, snapshot.bytes_in, snapshot.bytes_out)
try:
    rc.resample(*call, device="cuda", chunk=1, progress=lambda *done: 1 / 0)
except ZeroDivisionError:
    print("stopped")
"""
    # Three parts are on the GPU at a time.
    taken = f"cuda:0 6 {3 * 30 * 12 + 3 * 3 * 8} {3 * 3 * 4}"
    assert child(code) == ["(6, 6) True", taken, "stopped"]


def test_ctrl_c_ends_a_long_stream_in_half_a_second():
    code = """
import numpy as np, sys
import robocache as rc
call = np.ones((200, 2000, 64), np.float32), np.arange(2000), np.tile(np.arange(1000), (200, 1))
rc.resample(*(x[:1] if x.ndim > 1 else x for x in call), device="cuda")
print("go", flush=True)
try:
    while True:
        rc.resample(*call, device="cuda", chunk=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
rc.resample(*(x[:1] if x.ndim > 1 else x for x in call), device="cuda")
"""
    fake = os.environ["ROBOCACHE_FAKE_CUDA"]
    env = {
        **os.environ,
        "ROBOCACHE_LIBCUDA": fake,
        "ROBOCACHE_NVRTC": fake,
        "ROBOCACHE_CUBIN_DIR": "",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        assert process.stdout.readline() == "go\n"
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - began < 0.5
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()


def test_out_of_memory_is_pythons_own_and_passes():
    code = """
call = np.ones((6, 300, 1), np.float32), np.tile(np.arange(300), (6, 1)), np.tile(np.arange(3), (6, 1))
rc.resample(*call, device="cuda")
driver = ctypes.CDLL(os.environ["ROBOCACHE_LIBCUDA"])
os.environ["FAKE_CUDA_MEMORY"] = "4000"
print(refused(lambda: rc.resample(*call, device="cuda")))
os.environ["FAKE_CUDA_MEMORY"] = "30000"
print(rc.resample(*call, device="cuda", chunk=6).shape)
"""
    told, after = child("import ctypes\n" + code)
    assert told.startswith(("out_of_memory resample", "invalid_argument resample max_memory")), told
    assert after == "(6, 3, 1)"


@needs_compiler
def test_parts_are_smaller_where_there_is_less_memory_to_work_in():
    """Data that lives on a GPU: only the memory to work in can be less."""
    code = """
points, features = rng.normal(size=(2, 8, 400, 3)).astype("f4")
grid = {"origin": (-2, -2, -2), "voxel_size": 0.5, "shape": (8, 8, 8), "reduce": "mean"}
want = rc.voxelize(points, features, **grid)
asked, most = [], [1 << 40]

def empty(shape, dtype):
    if dtype == "uint8":
        asked.append(shape[0])
        if shape[0] > most[0]:
            raise MemoryError("no room")
    return Array(np.zeros(shape, dtype))

pose_as_cupy(Array, empty)

def call():
    out = np.zeros(want.shape, "f4")
    rc.voxelize(Array(points), Array(features), **grid, out=Array(out))
    rc.synchronize()
    return np.array_equal(out, want)

print(call(), len(asked))
most[0] = asked[0] // 3
before = rc.metrics()["voxelize"]["chunks"]
print(call(), len(asked), rc.metrics()["voxelize"]["chunks"] - before)
most[0] = 1
print(refused(call), len(asked) > 5)
most[0] = 1 << 40
print(call())
"""
    whole, parts, none, after = child(CALLS + code, **COMPUTES)
    assert (whole, parts, after) == ("True 1", "True 4 4", "True")
    assert none.startswith("out_of_memory voxelize workspace | voxelize: workspace: no room")
    assert none.endswith("True")


@pytest.mark.gpu
@pytest.mark.skipif(NO_CUDA is not None, reason=str(NO_CUDA))
@pytest.mark.parametrize("source", ["pageable", "pinned"])
@pytest.mark.parametrize("device", ["cuda", ["cuda:0", "cuda:0"]])
def test_streams_on_a_gpu_have_the_bits_of_the_cpu(source, device):
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(64, 500, 128)).astype(np.float32))
    times = torch.from_numpy(np.sort(rng.integers(0, 10**9, (64, 500)), axis=1))
    targets = torch.from_numpy(np.sort(rng.integers(0, 10**9, (64, 250)), axis=1))
    if source == "pinned":
        values = values.pin_memory()
    want = rc.resample(values, times, targets)
    for options in ({}, {"chunk": 3}, {"max_memory": "2MiB"}):
        got = rc.resample(values, times, targets, device=device, **options)
        assert got.device.type == "cpu" and torch.equal(got, want), options
