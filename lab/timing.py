"""Clocks and ceilings: medians with their spread, contenders in turns, device time apart from host.

CPU: `race` by the host's clock. GPU: `graph_time` (device time of a call, replayed from a graph),
`event_time` (calls back to back, host included) and `host_time` (what a call costs its caller).
Functions that take a list rotate through it: one entry per set of buffers makes the caches cold.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice, pairwise

import numpy as np
import torch

Call = Callable[[], object]

ROUNDS = 5  # Turns that every contender of a race gets, unless told.
SAMPLE_SECONDS = 200e-6  # The shortest sample: below it the clock's own cost shows.
PAUSE_SECONDS = 0.01  # Lets the other contender's spinning threads fall asleep.
LAUNCHES = 100  # Between two events: a launch from the host then costs no call.
BATCH_SECONDS = 2e-3  # Calls so slow that fewer launches last this long need no more of them.
SAMPLES = 20  # Of a GPU's time, unless they last too long.
COPY_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}  # One way: far larger than any cache.


@dataclass(frozen=True)
class Spread:
    """Seconds per call: the median of many samples, and how far they lie apart."""

    median: float
    p10: float
    p90: float
    samples: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        p10, p90 = np.percentile(seconds, [10, 90])
        return cls(statistics.median(seconds), float(p10), float(p90), len(seconds))

    def json(self) -> dict[str, float]:
        """For the record, in microseconds."""
        times = {"median_us": self.median, "p10_us": self.p10, "p90_us": self.p90}
        return {key: us * 1e6 for key, us in times.items()} | {"samples": self.samples}


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def neighbours() -> Iterator[list[float]]:
    """Fills in how many cores other processes (or other guests) kept busy meanwhile.

    Stays empty where the system does not tell. Numbers from a shared machine are not worth
    keeping: threads that wait for each other lose far more than their part.
    """

    def others() -> float:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4])

    seen: list[float] = []
    try:
        before = others()
    except (OSError, ValueError):
        yield seen
        return
    start = time.perf_counter()
    yield seen
    seen.append(max(0.0, (others() - before) / (time.perf_counter() - start)))


def sample(call: Call, repeats: int) -> float:
    """Seconds per call over `repeats` calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def race(
    contenders: Mapping[str, Call], seconds: float = 1.0, rounds: int = ROUNDS, least: int = 3
) -> dict[str, Spread]:
    """Times the contenders in turns, so that a slow moment of the machine hits all alike.

    Each turn starts with a sample that does not count: caches and threads are then the
    contender's own. A turn takes its part of `seconds`, and `least` samples; only what takes longer than
    `seconds` by itself gets fewer.
    """
    repeats, counts, alone = {}, {}, {}
    for name, call in contenders.items():
        call()
        once = sample(call, 1)
        if once < seconds:
            once = min(once, sample(call, 1), sample(call, 1))
        repeats[name] = max(1, math.ceil(SAMPLE_SECONDS / once))
        counts[name] = min(200, max(least, round(seconds / rounds / (once * repeats[name]))))
        alone[name] = once * repeats[name]
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with no_garbage_collection():
        for turn in range(rounds):
            for name, call in contenders.items():
                # A call that takes seconds shows what it costs in a few.
                if turn > 0 and len(times[name]) * alone[name] > 3 * seconds:
                    continue
                time.sleep(PAUSE_SECONDS)
                if alone[name] < seconds:
                    sample(call, repeats[name])
                count = counts[name] if alone[name] < seconds else 1
                times[name] += [sample(call, repeats[name]) for _ in range(count)]
    return {name: Spread.of(seen) for name, seen in times.items()}


# --- GPU --------------------------------------------------------------------------------------


def buffer_sets(bytes_per_set: int) -> int:
    """How many sets of buffers make every call find a cold L2."""
    properties = torch.cuda.get_device_properties(0)
    wanted = 1 + math.ceil(3 * properties.L2_cache_size / max(bytes_per_set, 1))
    affordable = int(torch.cuda.mem_get_info()[0] * 0.5) // max(bytes_per_set, 1)
    return max(1, min(wanted, affordable, 256))


def graph_time(calls: Sequence[Call], seconds: float = 1.0) -> Spread:
    """Device time of a call: the calls, in turns, captured in one graph that is replayed."""
    launches = launches_of(calls, warm_up(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in islice(cycle(calls), launches):
            call()
    return between_events(graph.replay, launches, seconds)


def event_time(calls: Sequence[Call], seconds: float = 1.0) -> Spread:
    """Time of a call among many back to back: the device's or the host's, whichever is longer."""
    launches = launches_of(calls, warm_up(calls))

    def batch() -> None:
        for call in islice(cycle(calls), launches):
            call()

    return between_events(batch, launches, seconds)


def host_time(call: Call, seconds: float = 1.0) -> Spread:
    """What a call costs its caller."""
    return Spread.of(host_race({"": call}, seconds)[""])


def host_race(
    contenders: Mapping[str, Call], seconds: float = 1.0, burst: int = 50
) -> dict[str, list[float]]:
    """What calls cost their caller: short bursts that never fill the launch queue.

    In turns, since machines have quick and slow moments of some seconds: samples at the same place are of
    the same moment, so their differences mean something where those of medians may not.
    """
    bursts, rounds = {}, 2000
    for name, call in contenders.items():
        once = warm_up([call])
        bursts[name] = max(1, min(burst, round(BATCH_SECONDS / once)))
        rounds = min(rounds, max(SAMPLES, round(seconds / (once * bursts[name]))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with no_garbage_collection():
        for _ in range(rounds):
            for name, call in contenders.items():
                # The first calls of a turn find the caches as another contender left them.
                sample(call, bursts[name])
                torch.cuda.synchronize()
                times[name].append(sample(call, bursts[name]))
    torch.cuda.synchronize()
    return times


def launches_of(calls: Sequence[Call], once: float) -> int:
    """How many calls to put between two events: all of them, each as often."""
    wanted = min(LAUNCHES, math.ceil(BATCH_SECONDS / once))
    return len(calls) * max(1, math.ceil(wanted / len(calls)))


def warm_up(calls: Sequence[Call]) -> float:
    """Runs every call, then tells how long one takes."""
    for call in [*calls, *calls]:
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for call in calls:
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / len(calls)


def between_events(batch: Call, launches: int, seconds: float) -> Spread:
    """Seconds per launch of `batch`, which launches that many times, by the device's clock."""
    times: list[float] = []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with no_garbage_collection():
        batch()
        spent = 0.0
        while len(times) < 3 or spent < seconds or (len(times) < SAMPLES and spent < 4 * seconds):
            if len(times) >= 500:
                break
            start.record()
            batch()
            end.record()
            end.synchronize()
            spent += start.elapsed_time(end) * 1e-3
            times.append(start.elapsed_time(end) * 1e-3 / launches)
    return Spread.of(times)


# --- ceilings ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """The fastest plain copy of a large buffer: the ceiling of what only moves bytes."""

    name: str
    call: Call
    bytes_moved: int  # Read and written.

    def bandwidth(self, spread: Spread) -> float:
        """Bytes per second, read and written."""
        return self.bytes_moved / spread.median


def cpu_copy(threads: int) -> Copy:
    """The faster of torch's copy and NumPy's in as many threads."""
    size = COPY_BYTES["cpu"]
    source = torch.randint(0, 255, (size,), dtype=torch.uint8)
    target = torch.zeros_like(source)
    edges = np.linspace(0, size, threads + 1).astype(int) // 4096 * 4096
    edges[-1] = size
    parts = [(target.numpy()[low:high], source.numpy()[low:high]) for low, high in pairwise(edges)]
    pool = ThreadPoolExecutor(threads)
    copies: dict[str, Call] = {
        "torch copy_": lambda: target.copy_(source),
        "numpy.copyto in threads": lambda: list(pool.map(lambda part: np.copyto(*part), parts)),
    }
    seen = race(copies, 0.3)
    name = min(seen, key=lambda copy: seen[copy].median)
    return Copy(name, copies[name], 2 * size)


def gpu_copy() -> Copy:
    """The faster of the driver's device-to-device copy and a kernel that reads and writes."""
    source = torch.zeros(COPY_BYTES["cuda"] // 4, device="cuda")
    target = torch.zeros_like(source)
    copies: dict[str, Call] = {
        "torch copy_": lambda: target.copy_(source),
        "torch add": lambda: torch.add(source, 1.0, out=target),
    }
    seen = {name: graph_time([call], 0.1).median for name, call in copies.items()}
    name = min(seen, key=seen.__getitem__)
    return Copy(name, copies[name], 2 * source.nbytes)
