"""Failures of driver, NVRTC and GPU as Python sees them: classes, texts and exit codes.

They need no GPU: `crates/fake-cuda` takes the place of libcuda and libnvrtc. The table of failures
itself is tested in Rust (crates/robocache/tests/fake_driver); here is what the binding adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FAKE = os.environ.get("ROBOCACHE_FAKE_CUDA", "")
pytestmark = pytest.mark.skipif(
    not os.path.isfile(FAKE),
    reason="ROBOCACHE_FAKE_CUDA does not name the fake driver; `cargo xtask test` builds it",
)

PRELUDE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import robocache as rc
from fake_gpu import *
"""


def python(*arguments: str, **settings: str) -> subprocess.CompletedProcess:
    """A process of its own on the fake driver."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROBOCACHE_", "CUDA_"))}
    fake = {"ROBOCACHE_LIBCUDA": FAKE, "ROBOCACHE_NVRTC": FAKE, "ROBOCACHE_CUBIN_DIR": ""}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**kept, **fake, **settings},
    )


def child(code: str, **settings: str) -> list[str]:
    """What `code` prints; it must end well and quietly."""
    done = python("-c", PRELUDE + code, os.path.dirname(__file__), **settings)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_whole_way_works():
    code = """
out = call()
print(type(out).__module__, out.shape, driver_calls("cuLaunchKernel"))
given = Array(np.zeros((3, 1), np.float32))
print(call(out=given) is given, call(stream=0).shape, call(device="cuda:0").shape)
rc.warmup("resample", *(Array(a) for a in (np.ones((3, 1)), np.arange(3), np.arange(3))))
rc.synchronize()
print(driver_calls("cuLaunchKernel"), driver_calls("nvrtcCompileProgram"))
"""
    assert child(code) == ["cupy (3, 1) 1", "True (3, 1) (3, 1)", "4 3"]


def test_fuse_is_one_launch():
    """However many streams there are, and whatever is asked of them."""
    code = """
def stream(columns, samples, dtype, **options):
    return rc.Stream(Array(np.zeros((samples, columns), dtype)), Array(np.arange(float(samples))), **options)
targets = Array(np.arange(5.0))
kinds = "linear nearest previous next cubic slerp angle rot6d".split()
mixed = [stream(12, 3 + i, "f4", method=kinds[i % 8], max_gap=i + 1.0) for i in range(31)]
ranges = [("cubic", 0, 2), ("slerp", 2, 6), ("previous", 6, 12)]
calls = [
    [stream(4, 9, "f4")],
    [stream(4, 9, "f4"), stream(3, 8, "f8"), rc.Stream(None, dim=2), stream(1, 7, "f2", method="nearest")],
    [*mixed, rc.Stream(None, dim=6)],
    [stream(12, 20, "f4", method=ranges), stream(12, 30, "f4")],
]
for streams in calls:
    before = int(driver_calls("cuLaunchKernel"))
    out, valid, age = rc.fuse(streams, targets, return_valid=True, return_age=True)
    print(out.shape, valid.shape, int(driver_calls("cuLaunchKernel")) - before)
before = int(driver_calls("cuLaunchKernel"))
rc.resample(Array(np.zeros((9, 12), "f4")), Array(np.arange(9.0)), targets, method=ranges)
print(int(driver_calls("cuLaunchKernel")) - before)
"""
    shapes = [(5, 4), (5, 10), (5, 378), (5, 24)]
    counts = [1, 4, 32, 2]
    launches = [f"{x} {(5, n)} 1" for x, n in zip(shapes, counts, strict=True)]
    assert child(code, FAKE_CUDA_VERSION="13000") == [*launches, "1"]


def test_import_and_the_cpu_start_no_driver():
    code = "assert_cpu_works(); rc.synchronize(timeout=0); print(driver_calls('cuInit'))"
    assert child(code) == ["0"]


REFUSALS = [
    ({"ROBOCACHE_LIBCUDA": "/nowhere/libcuda.so"}, "no_device", "searched /nowhere/libcuda.so"),
    ({"ROBOCACHE_NVRTC": "/nowhere/libnvrtc.so"}, "no_device", "/nowhere/libnvrtc.so"),
    ({"FAKE_CUDA_VERSION": "11080"}, "no_device", "12.0 or newer is needed (driver 525"),
    ({"FAKE_NVRTC_VERSION": "13.0"}, "no_device", "newer than the driver"),
    ({"FAKE_CUDA_DEVICES": "0"}, "no_device", "sees no device"),
    ({"CUDA_VISIBLE_DEVICES": ""}, "no_device", "is CUDA_VISIBLE_DEVICES empty?"),
    ({"FAKE_CUDA_COMPUTE_MODE": "2"}, "no_device", '"prohibited"'),
    ({"FAKE_CUDA_CAPABILITY": "7.5"}, "no_device", "compute capability 7.5"),
    ({"FAKE_CUDA_FAIL": "cuModuleLoadData:209"}, "no_device", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    ({"FAKE_CUDA_FAIL": "nvrtcCompileProgram:7"}, "no_device", "libnvrtc-builtins"),
    ({"FAKE_CUDA_FAIL": "cuLaunchKernel:700"}, "device_lost", "lost until the process ends"),
    ({"FAKE_CUDA_FAIL": "cuCtxSetCurrent:709:3"}, "device_lost", "CUDA_ERROR_CONTEXT_IS_DEST"),
    ({"FAKE_CUDA_MEMORY": "0"}, "out_of_memory", "CUDA_ERROR_OUT_OF_MEMORY"),
]


@pytest.mark.parametrize(("settings", "kind", "text"), REFUSALS)
def test_failures_have_their_class_and_reason(settings, kind, text):
    said = child("print(refused()); print(refused()); assert_cpu_works()", **settings)
    for line in said:
        assert line.startswith(f"{kind} resample None | resample: "), line
        assert text in line
    assert len(said) == 2


def test_out_of_memory_passes():
    """It is Python's own MemoryError, and the next call works."""
    code = """
try:
    call()
except MemoryError as error:
    print(type(error).__name__)
print(call().shape)
"""
    for failure in ("cuMemAlloc_v2:2:1", "cuMemHostAlloc:2:1", "nvrtcCompileProgram:1:1"):
        assert child(code, FAKE_CUDA_FAIL=failure) == ["OutOfMemory", "(3, 1)"]


def test_a_device_that_hangs_is_given_up_in_time():
    code = """
call()
os.environ["FAKE_CUDA_HANG"] = "0"
started = time.monotonic()
print(refused(lambda: rc.synchronize(timeout=0.3)))
print(0.29 < time.monotonic() - started < 5)
print(refused())
assert_cpu_works()
"""
    first, in_time, after = child(code)
    assert first.startswith("device_lost synchronize None | synchronize: cuda:0 is lost")
    assert in_time == "True"
    assert after.startswith("device_lost resample None | resample: cuda:0 is lost")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("use", ["call()", "refused(lambda: call(device=['cuda:0', 'cuda:1']))"])
def test_after_a_fork_the_child_is_told(use):
    """Also when the parent only asked which devices there are."""
    code = f"""
{use}
child = os.fork()
if child == 0:
    print(refused(), flush=True)
    assert_cpu_works()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(call().shape)
"""
    told, parent = child(code)
    assert told.startswith("no_device resample None | ")
    assert "forked" in told and '"spawn"' in told
    assert parent == "(3, 1)"


def test_a_capture_needs_warmup():
    code = """
def arrays():
    return [Array(a) for a in (np.ones((3, 1), np.float32), np.arange(3), np.arange(3))]
rc.warmup("resample", Array(np.ones((3, 1), np.uint8)), *arrays()[1:], method="next")
driver = ctypes.CDLL(os.environ["ROBOCACHE_LIBCUDA"])
context = ctypes.c_void_p()  # as a framework that captures has one
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
os.environ["FAKE_CUDA_CAPTURING"] = "1"
print(refused())
os.environ["FAKE_CUDA_CAPTURING"] = "0"
rc.warmup("resample", *arrays())
os.environ["FAKE_CUDA_CAPTURING"] = "1"
print(call().shape, driver_calls("cuLaunchKernel"))
"""
    told, shape = child(code)
    assert told.startswith("unsupported resample None | ") and "rc.warmup(" in told
    assert shape == "(3, 1) 1"


FINDING = f"{1 << 32 | 1}:3:17:5:9"  # of resample, int64 stamps, a row that decreases
WORDS = "invalid_argument resample times | resample: times: row 3 decreases at index 17 (5 after 9)"


def test_findings_are_raised_by_a_later_call_or_synchronize_once():
    code = """
print(call().shape)
os.environ["FAKE_CUDA_FINDING"] = ""
print(refused(work))
rc.synchronize()
print(call().shape)
"""
    for work in ("call", "rc.synchronize"):
        first, told, after = child(code.replace("work", work), FAKE_CUDA_FINDING=FINDING)
        assert (first, after) == ("(3, 1)", "(3, 1)")
        assert told.startswith(WORDS) and "call 1 of 1 on cuda:0" in told
    blocking = {"ROBOCACHE_BLOCKING": "1", "FAKE_CUDA_FINDING": FINDING}
    assert child("print(refused())", **blocking)[0].startswith(WORDS)


def test_devices_do_not_mix():
    code = """
values, stamps = np.ones((3, 1), np.float32), np.arange(3)
print(refused(lambda: rc.resample(Array(values), Array(stamps, 1), Array(stamps))))
print(refused(lambda: rc.resample(Array(values), stamps, Array(stamps))))
print(refused(lambda: rc.resample(values, Array(stamps), stamps)))
print(refused(lambda: call(out=np.zeros((3, 1), np.float32))))
print(refused(lambda: call(device="cpu")))
print(refused(lambda: rc.resample(values, stamps, stamps, device="cuda:0")))
print(driver_calls("cuLaunchKernel"))
"""
    *told, streamed, launches = child(code, FAKE_CUDA_DEVICES="2")
    starts = [
        "invalid_argument resample times | resample: times: lives on cuda:1, values on cuda:0",
        "invalid_argument resample times | resample: times: lives on cpu, values on cuda:0",
        "invalid_argument resample times | resample: times: lives on cuda:0, values on cpu",
        "invalid_argument resample out | resample: out: lives on cpu, the data on cuda:0",
        "invalid_argument resample device | ",
    ]
    assert all(line.startswith(start) for line, start in zip(told, starts, strict=True)), told
    # Data of the host is streamed.
    assert (streamed, launches) == ("nothing", "1")


def test_host_data_cannot_go_to_devices_that_are_all_refused():
    code = """
values, stamps = np.ones((3, 1), np.float32), np.arange(3)
print(refused(lambda: rc.resample(values, stamps, stamps, device="cuda:0")))
"""
    said = child(code, FAKE_CUDA_DEVICES="2", FAKE_CUDA_COMPUTE_MODE="2")[0]
    assert said.startswith("no_device resample device | ") and "cuda:1: its compute mode" in said


DOCTOR = [
    # The fake computes nothing, which is wrong.
    ({}, 1, True, ""),
    ({"FAKE_CUDA_FAIL": "cuLaunchKernel:719"}, 1, True, ""),
    ({"ROBOCACHE_LIBCUDA": "/nowhere/libcuda.so"}, 0, False, "searched /nowhere/libcuda.so"),
    ({"ROBOCACHE_NVRTC": "/nowhere/libnvrtc.so"}, 0, False, "/nowhere/libnvrtc.so"),
    ({"FAKE_CUDA_DEVICES": "0"}, 0, False, "sees no device"),
    ({"FAKE_CUDA_COMPUTE_MODE": "2"}, 0, False, "prohibited"),
    ({"FAKE_CUDA_VERSION": "11080"}, 0, False, "driver 525 or newer"),
]


@pytest.mark.parametrize(("settings", "code", "usable", "why"), DOCTOR)
def test_doctor(settings, code, usable, why):
    done = python("-m", "robocache", "doctor", "--json", **settings)
    report = json.loads(done.stdout)
    cpu, cuda = report["devices"]
    assert (done.returncode, done.stderr, report["ok"]) == (code, "", code == 0)
    assert cpu["usable"] is True and cuda["usable"] is usable
    assert why in (cuda["why"] or "")
