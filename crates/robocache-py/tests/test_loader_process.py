"""The loader among threads, processes and signals: bad inputs 95 to 97, 100 and 101."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader

import robocache as rc
from loader_data import ingest, order, write_dataset

pytest.importorskip("pyarrow")
DELTAS = {"action": [0.0, 0.1]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    root = tmp_path_factory.mktemp("process")
    write_dataset(root / "data", [(40, "a"), (23, "b")], pictures=(64, 64))
    return ingest(root / "data", root / "cache")


def numbers(loaded) -> list[int]:
    return [number for batch in loaded for number in batch["index"].tolist()]


# -- 95: workers that die -------------------------------------------------------------------------


KILLED = """
import os, signal, sys, time, robocache as rc
from torch.utils.data import DataLoader
windows = rc.open(sys.argv[1]).windows(streams=["action"])
# Without tensors, whose memory would be gone with the worker. torch looks every 5 seconds.
plain = lambda samples: [int(sample["index"]) for sample in samples]
loaded = iter(DataLoader(windows, num_workers=2, collate_fn=plain))
next(loaded)
victim = loaded._workers[0].pid
begun = time.monotonic()
try:
    os.kill(victim, signal.SIGKILL)
    list(loaded)
except RuntimeError as error:
    print(time.monotonic() - begun < 8, str(victim) in str(error))
"""


def worker_killed(cache) -> None:
    # In a process of its own: torch raises wherever the signal finds it.
    command = [sys.executable, "-c", KILLED, cache.path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr


def damaged_shard(cache, tmp_path) -> None:
    write_dataset(tmp_path / "data", [(40, "a")])
    ingest(tmp_path / "data", tmp_path / "cache")
    (shard,) = (tmp_path / "cache").rglob("action.arrow")
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    begun = time.monotonic()
    with pytest.raises(rc.CorruptData, match="checksum"):
        list(rc.Loader(rc.open(tmp_path / "cache"), 4, threads=3))
    assert time.monotonic() - begun < 5


# -- 96: consumers that stop or are slow -------------------------------------------------------------


def leave_early(cache) -> None:
    for _ in range(20):
        for _batch in rc.Loader(cache, 1, threads=4, prefetch=2):
            break
    # A thread that has been waited for is listed until the system has tidied up behind it.
    until = time.monotonic() + 5
    while left := [t for t in os.listdir("/proc/self/task") if is_loader_thread(t)]:
        assert time.monotonic() < until, left
        time.sleep(0.01)


def is_loader_thread(task: str) -> bool:
    try:
        with open(f"/proc/self/task/{task}/comm") as name:
            return name.read().startswith("robocache-load")
    except OSError:
        return False


def slow_consumer(cache) -> None:
    # One batch of floats is 31 MB.
    loader = rc.Loader(cache, 640, rate=3000.0, image_dtype="float32", threads=4, prefetch=1)
    iterator = iter(loader)
    next(iterator)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        time.sleep(0.2)
        next(iterator)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 4 * 31 * 1024, f"{grown >> 10} MiB more than one batch and one ahead"


def end_in_flight(cache) -> None:
    script = (
        "import sys, robocache as rc\n"
        "it = iter(rc.Loader(rc.open(sys.argv[1]), 1, threads=4, prefetch=8))\n"
        "next(it)\n"
        "exec(sys.argv[2])"
    )
    for end, code in (("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)):
        done = subprocess.run(
            [sys.executable, "-c", script, cache.path, end], timeout=60, check=False, stderr=-3
        )
        assert done.returncode == code


# -- 97: Ctrl-C --------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, time, robocache as rc
# A run in the background of a shell is told to ignore it, and so are its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
cache = rc.open(sys.argv[1])
options = dict(rate=20000.0, streams=["observation.images.cam"])
loader = rc.Loader(cache, 40000, threads=int(sys.argv[2]), prefetch=2, **options)
windows = cache.windows(**options)
windows.batch([0])
print("ready", flush=True)
try:
    if sys.argv[3] == "loader":
        for batch in loader:
            pass
    else:
        windows.batch(range(40000))
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
else:
    print("it was too fast", flush=True)
"""


def interrupt(cache, what: str, threads: int, times: int = 1) -> None:
    command = [sys.executable, "-c", INTERRUPTED, cache.path, str(threads), what]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(0.4)
        sent = time.monotonic()
        for _ in range(times):
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    if times == 1:
        assert float(out) - sent < 0.5, out
    assert time.monotonic() - sent < 10


# -- 100: forks --------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, robocache as rc
cache = rc.open(sys.argv[1])
windows = cache.windows()
loader = rc.Loader(cache, 1, threads=2, prefetch=32)
iterator, bad = iter(loader), 0
for number in range(150):
    if next(iterator, None) is None:
        iterator = iter(loader)
        next(iterator)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            next(iterator)
            os._exit(3)
        except rc.Unsupported:
            pass
        del iterator
        windows.batch([number % 60])
        loader.windows.batch([number % 60])
        os._exit(0 if len(next(iter(loader))["index"]) == 1 else 4)
    bad += os.waitpid(child, 0)[1] != 0
print(bad)
"""


def fork_while_busy(cache) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, cache.path],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert done.stdout.strip() == "0", "children that hung or failed"


# -- 101: DataLoader with workers ----------------------------------------------------------------------


def iterable_refuses(cache) -> None:
    dataset = rc.Loader(cache, 16, streams=["action"]).dataset()
    whole = DataLoader(dataset, batch_size=None)
    assert sorted(numbers(whole)) == list(range(63))
    loaded = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    with pytest.raises(rc.InvalidArgument, match=r"threads of its own.*cache\.windows"):
        next(iter(loaded))


def map_style_shares(cache) -> None:
    windows = cache.windows(streams=["action"], delta_timestamps=DELTAS)
    loaded = DataLoader(windows, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    orders = []
    for _ in range(2):
        next(iter(loaded))  # an early break
        orders.append(numbers(loaded))
        assert sorted(orders[-1]) == list(range(63))
    assert orders[0] != orders[1]


def map_style_spawns(cache) -> None:
    windows = cache.windows(
        delta_timestamps=DELTAS, normalize={"action": "mean_std"}, methods={"action": "nearest"}
    )
    loaded = DataLoader(windows, batch_size=16, num_workers=2, multiprocessing_context="spawn")
    here = DataLoader(windows, batch_size=16)
    for batch, expected in zip(loaded, here, strict=True):
        for key, value in expected.items():
            same = (
                torch.equal(batch[key], value) if hasattr(value, "shape") else batch[key] == value
            )
            assert same, key


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(worker_killed, id="95 a worker process is killed"),
        pytest.param(damaged_shard, id="95 a thread fails"),
        pytest.param(leave_early, id="96 the consumer breaks"),
        pytest.param(slow_consumer, id="96 the consumer is slow"),
        pytest.param(end_in_flight, id="96 the interpreter ends with batches in flight"),
        pytest.param(lambda cache: interrupt(cache, "loader", 2), id="97 Ctrl-C in a batch"),
        pytest.param(lambda cache: interrupt(cache, "loader", 8), id="97 Ctrl-C, shared pictures"),
        pytest.param(lambda cache: interrupt(cache, "windows", 1), id="97 Ctrl-C, map-style"),
        pytest.param(lambda cache: interrupt(cache, "loader", 2, 2), id="97 Ctrl-C twice"),
        pytest.param(fork_while_busy, id="100 a fork while threads work"),
        pytest.param(iterable_refuses, id="101 workers are refused"),
        pytest.param(map_style_shares, id="101 map-style workers share"),
        pytest.param(map_style_spawns, id="101 map-style workers are spawned"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_bad_inputs(cache, case, tmp_path):
    case(*((cache, tmp_path) if case is damaged_shard else (cache,)))


def test_a_loader_travels_to_another_process(cache):
    loader = rc.Loader(
        cache,
        10,
        streams=["action"],
        filter=lambda episode: episode.length == 40,
        weights={cache.sources[0]["tag"]: 2.0},
        seed=3,
        drop_last=True,
    )
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    assert other.state_dict() == loader.state_dict()
    assert order(other) == order(loader) and len(order(loader)) == 40
    windows = pickle.loads(pickle.dumps(cache.windows(delta_timestamps=DELTAS)))
    assert torch.equal(windows[3]["action"], cache.windows(delta_timestamps=DELTAS)[3]["action"])


def test_a_cache_that_has_changed_on_the_way_is_refused(cache, tmp_path):
    write_dataset(tmp_path / "data", [(6, "a")])
    write_dataset(tmp_path / "more", [(6, "a")], seed=1)
    sent = pickle.dumps(ingest(tmp_path / "data", tmp_path / "cache").windows())
    ingest(tmp_path / "more", tmp_path / "cache", tag="b")
    with pytest.raises(rc.InvalidArgument, match="has changed since"):
        pickle.loads(sent)


def test_pictures_are_shared_among_threads(cache):
    """The same bits, whoever decodes them."""
    options = {"delta_timestamps": {"observation.images.cam": [-0.1, 0.0, 0.05]}}
    alone = rc.Loader(cache, 17, threads=1, prefetch=1, **options)
    shared = rc.Loader(cache, 17, threads=5, prefetch=1, **options)
    for one, two in zip(alone, shared, strict=True):
        key = "observation.images.cam"
        assert torch.equal(one[key], two[key])
        assert torch.equal(one[f"{key}_is_pad"], two[f"{key}_is_pad"])
