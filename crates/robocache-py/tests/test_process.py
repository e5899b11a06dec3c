"""The package as part of a process: import, threads, signals and its exceptions."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import robocache as rc
from refusal import BUILTIN, assert_works, snake_case

# -- import -----------------------------------------------------------------------------------

IMPORT = """
import os, sys, time
started = time.process_time()
import robocache
own = time.process_time() - started
heavy = sorted({"torch", "numpy", "jax", "logging"} & set(sys.modules))
threads = len(os.listdir("/proc/self/task"))
started = time.process_time()
import numpy
print(own, time.process_time() - started, threads, *heavy)
"""


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_import_initialises_nothing():
    runs = [run_python(IMPORT).stdout.split() for _ in range(5)]
    assert all(run[2] == "1" for run in runs), "import started threads"
    assert all(run[3:] == [] for run in runs), f"import pulled in {runs[0][3:]}"
    # NumPy's import takes about 0.1 s on an idle machine, and tells how slow this one is.
    own, numpys = (min(float(run[at]) for run in runs) for at in (0, 1))
    assert own < max(0.1, 1.5 * numpys), f"{own} s, NumPy's {numpys} s"


def test_numpy_calls_do_not_import_torch():
    code = (
        "import sys, numpy as np, robocache as rc\n"
        "rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2))\n"
        "print('torch' in sys.modules)"
    )
    assert run_python(code).stdout.strip() == "False"


def test_torch_imported_after_the_first_call_is_noticed():
    code = (
        "import numpy as np, robocache as rc\n"
        "rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2))\n"
        "import torch\n"
        "print(type(rc.resample(torch.ones(2, 1), torch.arange(2), torch.arange(2))).__name__)"
    )
    assert run_python(code).stdout.strip() == "Tensor"


def test_public_names():
    assert len(rc.__all__) == len(set(rc.__all__))
    for name in rc.__all__:
        assert hasattr(rc, name), name
    assert rc.__version__.count(".") == 2
    assert rc.resample.__doc__ and "targets" in rc.resample.__doc__


# -- devices and budgets ----------------------------------------------------------------------


def small(**keywords):
    return rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2), **keywords)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_devices_that_are_there(device):
    assert small(device=device).shape == (2, 1)


def test_a_torch_device_is_a_name_too():
    torch = pytest.importorskip("torch")
    assert small(device=torch.device("cpu")).shape == (2, 1)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there(device):
    code = (
        "import numpy as np, robocache as rc, sys\n"
        "try:\n"
        "    rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2), device=sys.argv[1])\n"
        "except rc.NoDevice as error:\n"
        "    print(error.kind, error.op, error.argument, sep=' ')\n"
    )
    done = run_python(code, device, CUDA_VISIBLE_DEVICES="")
    assert done.stdout.split() == ["no_device", "resample", "device"]


def test_auto_falls_back_to_the_cpu_with_one_warning():
    code = (
        "import logging, numpy as np, robocache as rc\n"
        "logging.basicConfig(format='%(name)s %(levelname)s %(message)s')\n"
        "for _ in range(3):\n"
        "    out = rc.resample(np.ones((2, 1)), np.arange(2), np.arange(2), device='auto')\n"
        "print(out.shape)"
    )
    done = run_python(code, CUDA_VISIBLE_DEVICES="")
    assert done.stdout.strip() == "(2, 1)"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("robocache WARNING ") and "auto" in lines[0]


@pytest.mark.parametrize("budget", [None, "auto", "2GiB", "512 MiB", 1 << 30, "1.5GB"])
def test_budgets_that_are_sizes(budget):
    assert small(max_memory=budget).shape == (2, 1)


def test_unknown_keywords_are_pythons_own_error():
    with pytest.raises(TypeError, match="metod"):
        small(metod="linear")
    with pytest.raises(TypeError):
        rc.resample(np.ones((2, 1)), np.arange(2))
    assert_works()


# -- threads and signals ----------------------------------------------------------------------

SOURCE = 1 << 20


def long_inputs(rows: int):
    """Random searches in a table larger than caches: slow per byte of result."""
    times = np.arange(SOURCE) * 1000
    targets = np.random.default_rng(1).integers(0, SOURCE * 1000, 1 << 18)
    values = np.zeros((SOURCE, 1), np.uint8)
    return (values, times, targets), {"method": "nearest", "lengths": np.full(rows, SOURCE)}


def rows_for(seconds: float) -> int:
    """How many rows keep this machine busy for about so long."""
    arguments, keywords = long_inputs(4)
    rc.resample(*arguments, **keywords)
    started = time.perf_counter()
    rc.resample(*arguments, **keywords)
    return max(4, round(4 * seconds / (time.perf_counter() - started)))


def test_other_python_threads_go_on_during_a_call():
    arguments, keywords = long_inputs(rows_for(0.6))
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        started, first = time.perf_counter(), ticks
        rc.resample(*arguments, **keywords)
        seconds, during = time.perf_counter() - started, ticks - first
    finally:
        done.set()
        ticker.join()
    assert seconds > 0.1, "too short to tell"
    # A call that held the interpreter would let the ticker run a few times at most.
    assert during >= 40 * seconds, f"{during} ticks in {seconds:.2f} s"


INTERRUPT = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np, robocache as rc
from test_process import long_inputs, rows_for
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` leaves it ignored
rows = rows_for(20.0)
arguments, keywords = long_inputs(rows)
print("ready", flush=True)
try:
    rc.resample(*arguments, **keywords)
    print("finished", flush=True)
except KeyboardInterrupt:
    print("interrupted", time.monotonic(), flush=True)
out = rc.resample(np.array([[0.0], [8.0]]), np.array([0, 2]), np.array([1]))
print("next", out.item(), flush=True)
"""


def test_ctrl_c_ends_a_long_call_soon_and_the_next_call_works():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPT, os.path.dirname(__file__)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.5)  # well inside a call of 20 seconds
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    lines = output.split("\n")
    assert lines[0].startswith("interrupted "), output + errors
    assert float(lines[0].split()[1]) - sent < 3.0
    assert lines[1] == "next 4.0"
    assert child.returncode == 0, errors


def test_many_threads_at_once():
    """Each thread has its own answer; large calls share the pool, small ones do not use it."""
    rng = np.random.default_rng(8)
    times = np.arange(300.0)
    jobs = []
    for index in range(8):
        steps = 4000 if index % 2 else 3
        values = rng.normal(size=(4, 300, 32)).astype(np.float32)
        targets = rng.uniform(0, 299, (4, steps))
        jobs.append((values, targets, rc.resample(values, times, targets)))
    wrong, start = [], threading.Barrier(len(jobs))

    def work(values, targets, want):
        start.wait()
        for _ in range(15):
            if not np.array_equal(rc.resample(values, times, targets), want):
                wrong.append("result")
            try:
                rc.resample(values, times[::-1].copy(), targets)
                wrong.append("no error")
            except rc.InvalidArgument as error:
                if error.argument != "times":
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a call hangs"
    assert not wrong


def test_results_do_not_depend_on_the_number_of_threads():
    code = (
        "import hashlib, numpy as np, robocache as rc\n"
        "rng = np.random.default_rng(5)\n"
        "values = rng.normal(size=(8, 500, 33)).astype(np.float32)\n"
        "out = [rc.resample(values, np.arange(500.0), rng.uniform(0, 499, (8, 3001)))]\n"
        "points = rng.uniform(-0.1, 1.1, (2, 70_000, 3)).astype(np.float32)\n"
        "grid = dict(origin=(0, 0, 0), voxel_size=1 / 64, shape=(64, 64, 64))\n"
        "out += [rc.voxelize(points, reduce=how, **grid) for how in ('occupancy', 'count')]\n"
        "out += [rc.voxelize(points, points, reduce=how, **grid) for how in ('mean', 'max')]\n"
        "found = rc.voxelize(points, sparse=True, max_points_per_voxel=3, **grid)\n"
        "out += [found.coords, found.counts, found.inverse, found.voxels]\n"
        "print(*(hashlib.sha256(x.tobytes()).hexdigest() for x in out))"
    )
    digests = {run_python(code, ROBOCACHE_NUM_THREADS=n).stdout for n in ("1", "2", "7")}
    assert len(digests) == 1


# -- exceptions -------------------------------------------------------------------------------

KINDS = [
    "InvalidArgument",
    "Unsupported",
    "OutOfMemory",
    "FileError",
    "CorruptData",
    "LimitExceeded",
    "NoDevice",
    "DeviceLost",
]


@pytest.mark.parametrize("name", KINDS)
def test_hierarchy(name):
    cls = getattr(rc, name)
    assert issubclass(cls, rc.RoboCacheError) and issubclass(cls, BUILTIN.get(name, Exception))
    assert cls.__module__.split(".")[0] == "robocache"
    error = cls("text", op="resample", argument="times", path="a/b")
    assert (error.kind, error.op, error.argument, error.path) == (
        snake_case(name),
        "resample",
        "times",
        "a/b",
    )
    assert str(error) == "text"
    for other in KINDS:
        assert other == name or not isinstance(error, getattr(rc, other))


def raised() -> rc.RoboCacheError:
    with pytest.raises(rc.InvalidArgument) as caught:
        small(max_gap=-1.0)
    return caught.value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ["raised", *KINDS])
def test_exceptions_travel_between_processes(name, protocol):
    """As a DataLoader's workers send them."""
    error = raised()
    if name != "raised":
        error = getattr(rc, name)("some text", op="resample", argument="out", path="x.arrow")
    for twin in (
        pickle.loads(pickle.dumps(error, protocol)),
        copy.copy(error),
        copy.deepcopy(error),
    ):
        assert type(twin) is type(error) and str(twin) == str(error)
        for attribute in ("kind", "op", "argument", "path", "args"):
            assert getattr(twin, attribute) == getattr(error, attribute)


def test_an_exception_can_be_raised_again_elsewhere():
    """multiprocessing rebuilds the exception in the parent and raises it there."""
    context = __import__("multiprocessing").get_context("spawn")
    with context.Pool(1) as pool:
        job = pool.apply_async(pickle.loads, (pickle.dumps(raised()),))
        assert job.get(60).argument == "max_gap"
        with pytest.raises(rc.InvalidArgument, match="max_gap"):
            pool.apply_async(small, (), {"max_gap": -1.0}).get(60)


def test_memory_need_not_be_kept():
    code = """
import numpy as np, robocache as rc
grid = {"origin": (0, 0, 0), "voxel_size": 1.0, "shape": (340, 320, 320)}
for at in range(3):
    result = rc.voxelize(np.full((1, 3), at + 0.5, "f4"), **grid)
    assert result.sum() == 1 and result[at, at, at] == 1
    print(result.base is None)
    empty = rc.voxelize(np.zeros((1, 3), "f4"), fill=-0.0, dtype="float32", **grid)
    assert np.signbit(empty).sum() == empty.size - 1 and empty[0, 0, 0] == 1
    result.flags.writeable = False
    result.flags.writeable = True
"""
    # With so few bytes to keep all memory is fresh, and 0 where nothing else was written.
    for kept, framework_owns in (("0", "True"), ("1", "False"), ("1000000000", "False")):
        assert run_python(code, ROBOCACHE_KEEP_BYTES=kept).stdout.split() == [framework_owns] * 3
