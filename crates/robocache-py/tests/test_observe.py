"""Counters, memory profiles, plans and the log."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import robocache as rc

CALL = (
    np.ones((4, 3, 2), np.float32),
    np.tile(np.arange(3), (4, 1)),
    np.tile(np.arange(5), (4, 1)),
)
BYTES = sum(x.nbytes for x in CALL) + 4 * 5 * 2 * 4


def counted(op="resample"):
    keys = ("calls", "bytes", "chunks", "fallbacks", "errors")
    row = rc.metrics().get(op, {})
    return np.array([row.get(key, 0) for key in keys])


def test_calls_bytes_chunks_fallbacks_and_errors_are_counted():
    before = counted()
    rc.resample(*CALL)
    assert list(counted() - before) == [1, BYTES, 1, 0, 0]
    rc.resample(*CALL, chunk=3)
    assert list(counted() - before) == [2, 2 * BYTES, 3, 0, 0]
    with pytest.raises(rc.InvalidArgument):
        rc.resample(CALL[0], CALL[1][:, ::-1], CALL[2])
    with pytest.raises(rc.InvalidArgument):
        rc.resample(CALL[0][0, 0], *CALL[1:])
    # What is refused before it runs is no call.
    calls, *_, errors = counted() - before
    assert (calls, errors) == (3, 2)


def test_ops_are_counted_under_their_own_names():
    points = np.zeros((5, 3), np.float32)
    grid = {"origin": (0, 0, 0), "voxel_size": 1, "shape": (2, 2, 2)}
    before = {op: counted(op)[0] for op in ("voxelize", "voxelize_depth", "crop_box")}
    rc.voxelize(points, **grid)
    rc.voxelize_depth(np.ones((2, 2), np.uint16), np.eye(3, dtype=np.float32), **grid)
    rc.crop_box(points, (0, 0, 0), (1, 1, 1))
    assert all(counted(op)[0] == count + 1 for op, count in before.items())


def test_threads_are_all_counted():
    before = counted()
    threads = [
        threading.Thread(target=lambda: [rc.resample(*CALL) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted()[0] - before[0] == 800


def test_times_are_counted_on_request():
    rc.metrics(reset=True)
    rc.resample(*CALL)
    assert "times" not in rc.metrics()["resample"]
    rc.metrics(timing=True)
    try:
        for _ in range(5):
            rc.resample(*CALL)
    finally:
        rc.metrics(timing=False)
    rc.resample(*CALL)
    assert sum(rc.metrics()["resample"]["times"]) == 5
    rc.metrics(reset=True)
    assert rc.metrics() == {}


def test_counters_print_as_a_table():
    rc.resample(*CALL)
    lines = str(rc.metrics()).splitlines()
    assert lines[0].split() == ["calls", "bytes", "chunks", "fallbacks", "errors"]
    assert any(line.startswith("resample ") for line in lines[1:])


@pytest.mark.parametrize("name", ["timing", "nvtx", "reset"])
def test_switches_are_switches(name):
    with pytest.raises(rc.InvalidArgument) as error:
        rc.metrics(**{name: "yes"})
    assert error.value.argument == name


def test_ranges_need_a_torch_that_has_them():
    if torch.version.cuda is not None:
        rc.metrics(nvtx=True)
        rc.resample(*CALL)
        rc.metrics(nvtx=False)
        return
    with pytest.raises(rc.Unsupported, match="NVTX"):
        rc.metrics(nvtx=True)


def test_a_profile_has_a_snapshot_of_each_call():
    with rc.memory_profile() as profile:
        rc.resample(*CALL)
        rc.resample(*CALL, chunk=2)
        rc.voxelize(np.zeros((5, 3)), origin=(0, 0, 0), voxel_size=1, shape=(2, 2, 2))
    rc.resample(*CALL)
    first, second, third = profile.snapshots
    assert (first.op, first.device, first.chunks, second.chunks) == ("resample", "cpu", 1, 2)
    assert first.bytes == first.bytes_in + first.bytes_out + first.bytes_temporary == BYTES
    assert third.op == "voxelize" and 0 <= first.seconds <= third.seconds
    assert profile.peaks["cpu"]["resample"] == BYTES
    assert "resample" in str(profile)
    with profile:
        rc.resample(*CALL)
    assert len(profile.snapshots) == 4


def test_the_report_tells_about_the_host():
    report = rc.memory_report()
    assert (
        report["cpu"]["free"] > 0 and report["cpu"]["resident"] > 0 and report["cpu"]["kept"] >= 0
    )
    assert "cpu" in str(report)


def test_a_plan_is_what_the_call_takes():
    sizes = {"batch": 4, "source": 3, "targets": 5, "dim": 2}
    plan = rc.plan("resample", **sizes)
    with rc.memory_profile() as profile:
        rc.resample(*CALL)
    taken = profile.snapshots[0]
    assert (plan.bytes_in, plan.bytes_out, plan.bytes_temporary) == (
        taken.bytes_in,
        taken.bytes_out,
        taken.bytes_temporary,
    )
    assert plan.fits and plan.chunks == 1 and plan.op == "resample" and plan.device == "cpu"
    before = rc.metrics()["resample"]["chunks"]
    rc.resample(*CALL, max_memory=BYTES // 2)
    assert rc.plan("resample", **sizes, max_memory=BYTES // 2).chunks == 2
    assert rc.metrics()["resample"]["chunks"] - before == 2
    assert not rc.plan("resample", **sizes, max_memory=10).fits
    for unit in ("KiB", "B", "fits       yes"):
        assert unit in str(rc.plan("resample", **{**sizes, "dim": 5000}))


def test_plans_of_large_calls_take_no_memory():
    plan = rc.plan(
        "voxelize",
        batch=4096,
        points=10**6,
        shape=(512, 512, 512),
        max_memory="8GiB",
        dtype=np.float32,
    )
    assert plan.bytes_out == 4096 * 512**3 and plan.chunks > 60 and plan.fits
    assert plan.in_flight <= 8 << 30


@pytest.mark.parametrize(
    ("op", "sizes", "argument"),
    [
        ("resampl", {}, "op"),
        (3, {}, "op"),
        ("resample", {"source": 3, "targets": 2}, "dim"),
        ("resample", {"source": 3, "targets": 2, "dim": -1}, "dim"),
        ("resample", {"source": 3, "targets": 2, "dim": 1, "width": 2}, "width"),
        ("voxelize", {"points": 3, "shape": (1, 2)}, "shape"),
        ("resample", {"source": 3, "targets": 2, "dim": 1, "max_memory": "lots"}, "max_memory"),
        ("resample", {"source": 3, "targets": 2, "dim": 1, "device": "tpu"}, "device"),
    ],
)
def test_plans_that_cannot_be_made(op, sizes, argument):
    with pytest.raises(rc.InvalidArgument) as error:
        rc.plan(op, **sizes)
    assert (error.value.op, error.value.argument) == ("plan", argument)


def test_the_command_plans_as_well():
    command = [sys.executable, "-m", "robocache", "plan", "resample"]
    sizes = ["batch=4", "source=3", "targets=5", "dim=2", "--max-memory", str(BYTES // 2), "--json"]
    done = subprocess.run(
        [*command, *sizes], capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert told["chunks"] == 2 and told["fits"] and told["bytes_in"] + told["bytes_out"] == BYTES
    done = subprocess.run(
        [*command, "batch"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2 and "resample takes batch=1 source" in done.stderr


def test_the_log_of_the_engine_is_pythons(caplog):
    """`device="auto"` warns once in a process, which another test has seen to; levels are Python's own."""
    assert logging.getLogger("robocache").level == logging.NOTSET
    with caplog.at_level(logging.DEBUG, logger="robocache"):
        rc.resample(*CALL, max_memory=BYTES // 2)
    assert any("resample" in line and "2 parts" in line for line in caplog.messages)
