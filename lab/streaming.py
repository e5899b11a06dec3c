"""Host data that streams through a GPU: speed, budgets, several workers, endurance.

Rows are chosen by name (`--rows resample,twice`); all of them take about 20 minutes with the default sizes. On the CPU
the rows of budgets run small, to see that the script works. The oracle of streams is the CPU, on some rows of the batch.
"""

from __future__ import annotations

import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

import robocache as rc
from common import Record, Target, number, options, print_table, setup
from timing import neighbours

GRID = {"origin": (-1.0, -1.0, -1.0), "voxel_size": 2 / 128, "shape": (128, 128, 128)}
SAMPLES, TARGETS, WIDTH = 2048, 1024, 64
POINTS = 1 << 19
GIB = 1 << 30


class Watch:
    """The most memory that was in use on the GPU, and of this process, over what there was before."""

    def __init__(self, device: str) -> None:
        self.device, self.before = device, self.now(device)
        self.most, self.trail = [0, 0], [self.before]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @staticmethod
    def now(device: str) -> tuple[int, int]:
        used = 0
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            used = total - free
        return used, rc.memory_report()["cpu"]["resident"] or 0

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            now = self.now(self.device)
            self.trail.append(now)
            self.most = [max(m, n - b) for m, n, b in zip(self.most, now, self.before, strict=True)]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def fill(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Random numbers, a block of which is repeated: to make 40 GB anew would take minutes."""
    flat = tensor.view(-1)
    block = torch.rand(min(flat.numel(), 1 << 24), generator=torch.Generator().manual_seed(seed))
    block = block * 2 - 1
    for first in range(0, flat.numel(), block.numel()):
        part = flat[first : first + block.numel()]
        part.copy_(block[: part.numel()])
    return tensor


def host_tensor(shape: tuple[int, ...], source: str, seed: int) -> torch.Tensor:
    """float32 in pageable or pinned memory, or in a file that is mapped."""
    if source == "mapped":
        import tempfile

        file = tempfile.TemporaryFile()  # noqa: SIM115 - the mapping keeps it
        return fill(torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape)), seed)
    return fill(torch.empty(shape, pin_memory=source == "pinned"), seed)


def ceilings(device: str) -> dict[str, float]:
    """Bytes per second: pinned up and down, and a copy of pageable memory on all cores."""
    size = 1 << 28
    a, b = torch.rand(size // 4), torch.empty(size // 4)
    found = {"memcpy": size / quickest(lambda: b.copy_(a))}
    if device == "cuda":
        pinned, there = (
            torch.empty(size // 4, pin_memory=True),
            torch.empty(size // 4, device=device),
        )

        def up() -> None:
            there.copy_(pinned, non_blocking=True)
            torch.cuda.synchronize()

        def down() -> None:
            pinned.copy_(there, non_blocking=True)
            torch.cuda.synchronize()

        found |= {"up": size / quickest(up), "down": size / quickest(down)}
    return found


def quickest(call: Callable[[], object], tries: int = 5) -> float:
    call()
    times = []
    for _ in range(tries):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def resample_of(
    gigabytes: float, source: str, seed: int
) -> tuple[Callable[..., Any], int, Callable[[Any], bool], int]:
    """A call, its larger direction in bytes, whether a result is right, and the rows of the batch."""
    rows = max(2, int(gigabytes * 1e9 / (SAMPLES * WIDTH * 4)))
    values = host_tensor((rows, SAMPLES, WIDTH), source, seed)
    times = torch.arange(SAMPLES) * 10_000_000
    targets = torch.linspace(0, float(times[-1]), TARGETS).to(torch.int64)
    out = host_tensor((rows, TARGETS, WIDTH), "pinned" if source == "pinned" else "pageable", 0)

    def call(first: int = 0, end: int | None = None, **way: Any) -> torch.Tensor:
        return rc.resample(values[first:end], times, targets, out=out[first:end], **way)

    def right(got: torch.Tensor) -> bool:
        some = [0, rows // 2, rows - 1]
        return all(torch.equal(got[row], rc.resample(values[row], times, targets)) for row in some)

    return call, values.nbytes, right, rows


def voxelize_of(
    gigabytes: float, source: str, seed: int
) -> tuple[Callable[..., Any], int, Callable[[Any], bool], int]:
    rows = max(2, int(gigabytes * 1e9 / (POINTS * 12)))
    points = host_tensor((rows, POINTS, 3), source, seed)
    out = torch.empty((rows, *GRID["shape"]), dtype=torch.uint8, pin_memory=source == "pinned")

    def call(first: int = 0, end: int | None = None, **way: Any) -> torch.Tensor:
        return rc.voxelize(points[first:end], **GRID, out=out[first:end], **way)

    def right(got: torch.Tensor) -> bool:
        some = [0, rows // 2, rows - 1]
        return all(torch.equal(got[row], rc.voxelize(points[row], **GRID)) for row in some)

    return call, max(points.nbytes, out.nbytes), right, rows


OPS = {"resample": resample_of, "voxelize": voxelize_of}


def streams(args: Any, top: dict[str, float], op: str) -> Iterator[dict[str, Any]]:
    """One op on a tensor larger than the budget, from memory of three kinds."""
    sources = ("pinned", "pageable", "mapped") if args.device == "cuda" else ("pageable",)
    for source in sources:
        call, size, right, rows = OPS[op](args.gigabytes, source, args.seed)
        way = {"device": "cuda"} if args.device == "cuda" else {}
        call(0, min(rows, 8), **way)  # kernels and pinned buffers are there
        with neighbours() as others, Watch(args.device) as watch:
            began = time.perf_counter()
            got = call(max_memory=args.budget, **way)
            seconds = time.perf_counter() - began
        if not right(got):
            sys.exit(f"lab: {op} {source}: wrong result")
        rate = size / seconds
        targets = [
            Target("memory over budget", max(0, watch.most[0] - budget_of(args)), 0, False, " B")
        ]
        if args.device == "cuda":
            pinned = source == "pinned"
            ceiling = min(top["up"], top["down"]) if pinned else top["memcpy"]
            targets.append(Target("of the ceiling", rate / ceiling, 0.9 if pinned else 0.8, True))
        yield {
            "row": f"{op} {source}",
            "bytes": size,
            "seconds": seconds,
            "rate": rate,
            "device_bytes": watch.most[0],
            "host_bytes": watch.most[1],
            "other_cores": others[0] if others else None,
            "targets": targets,
        }
        del call, right, got


def budget_of(args: Any) -> int:
    return int(float(args.budget.removesuffix("GiB")) * GIB)


def twice(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The same GPU listed twice, beside once."""
    call, size, right, _ = resample_of(min(args.gigabytes, 8), "pinned", args.seed)
    seconds = {}
    for devices in (["cuda:0"], ["cuda:0", "cuda:0"]):
        seconds[len(devices)] = quickest(
            lambda d=devices: call(device=d, max_memory=args.budget), 3
        )
    if not right(call(device=["cuda:0", "cuda:0"])):
        sys.exit("lab: twice: wrong result")
    share = seconds[1] / seconds[2]
    yield {
        "row": "the same GPU twice",
        "bytes": size,
        "seconds": seconds[2],
        "rate": size / seconds[2],
        "targets": [Target("of one", share, 0.95, True)],
    }


def threads(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """4 threads x 8 streams of torch: every result has the checksum of the first, and memory does not grow."""
    made = torch.Generator().manual_seed(args.seed)
    batches = []
    for _ in range(8):
        values = torch.randn(64, 500, 32, generator=made)
        times = torch.sort(torch.randint(0, 10**9, (64, 500), generator=made), 1).values
        targets = torch.sort(torch.randint(0, 10**9, (64, 250), generator=made), 1).values
        want = zlib.crc32(rc.resample(values, times, targets).numpy().tobytes())
        batches.append((values, times, targets, want))
    wrong, done, until = [], [0] * 4, time.monotonic() + args.endurance / 4

    def work(thread: int) -> None:
        queues = [torch.cuda.Stream() for _ in range(8)]
        while time.monotonic() < until:
            for queue, (values, times, targets, want) in zip(queues, batches, strict=True):
                if done[thread] % 2:
                    got = rc.resample(values, times, targets, device="cuda", chunk=9)
                else:
                    with torch.cuda.stream(queue):
                        got = rc.resample(*(x.cuda() for x in (values, times, targets))).cpu()
                if zlib.crc32(got.numpy().tobytes()) != want:
                    wrong.append(thread)
            done[thread] += 1

    work_of = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    with Watch(args.device) as watch:
        for thread in work_of:
            thread.start()
        for thread in work_of:
            thread.join()
    yield {
        "row": "4 threads x 8 streams",
        "rounds": sum(done),
        "targets": [
            Target("wrong checksums", len(wrong), 0, False),
            Target("growth on the GPU", growth(watch, 0), 64 << 20, False, " B"),
            Target("growth on the host", growth(watch, 1), 64 << 20, False, " B"),
        ],
    }


def growth(watch: Watch, which: int) -> int:
    """From the first third of a run to its last: medians, since memory goes up and down."""
    trail = [each[which] for each in watch.trail]
    third = max(1, len(trail) // 3)
    return int(np.median(trail[-third:]) - np.median(trail[third : 2 * third]))


def full(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """With 95 % of the GPU taken calls end well or as OutOfMemory, and then all is as before."""
    call, _, right, _ = resample_of(min(args.gigabytes, 2), "pageable", args.seed)
    free, total = torch.cuda.mem_get_info()
    taken = torch.empty(max(0, free - total // 20), dtype=torch.uint8, device="cuda")
    ends = []
    for chunk in (None, 64, 100_000):
        try:
            way = {} if chunk is None else {"chunk": chunk}
            ends.append("ok" if right(call(device="cuda", **way)) else "wrong")
        except rc.OutOfMemory as error:
            ends.append("out of memory" if "free" in str(error) else "no words")
    del taken
    torch.cuda.empty_cache()
    ends.append("ok" if right(call(device="cuda")) else "wrong")
    good = all(end in ("ok", "out of memory") for end in ends) and ends[-1] == "ok"
    yield {"row": "full GPU", "ends": ends, "targets": [Target("ends well", float(good), 1, True)]}


def largest(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The most points of one cloud that one part can take, by trying and by the plan."""
    torch.cuda.empty_cache()
    held = torch.cuda.mem_get_info()[0]
    hold = torch.empty(max(0, held - 2 * GIB), dtype=torch.uint8, device="cuda")
    free = torch.cuda.mem_get_info()[0]

    def plan(points: int) -> bool:
        sizes = {"batch": 1, "points": points, "shape": GRID["shape"]}
        plan = rc.plan("voxelize", **sizes, device="cuda", resident=True)
        return plan.bytes_in + plan.bytes_out + plan.bytes_temporary <= free

    def fits(points: int) -> bool:
        try:
            rc.voxelize(torch.zeros(1, points, 3), **GRID, device="cuda", chunk=1)
        except rc.OutOfMemory:
            return False
        return True

    found = {
        name: bisect(test, 1, free // 12 * 2) for name, test in (("plan", plan), ("tried", fits))
    }
    del hold
    torch.cuda.empty_cache()
    off = abs(found["plan"] / found["tried"] - 1)
    yield {
        "row": "largest that fits",
        **found,
        "targets": [Target("plan is off by", off, 0.05, False)],
    }


def bisect(test: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number that passes, to 0.5 %."""
    while high - low > low // 200:
        middle = (low + high) // 2
        low, high = (middle, high) if test(middle) else (low, middle)
    return low


def soak(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Calls of all kinds for minutes: memory stays as it is."""
    calls = [OPS[op](0.25, "pageable", args.seed) for op in OPS]
    until, rounds = time.monotonic() + args.endurance, 0
    way = {"device": "cuda"} if args.device == "cuda" else {}
    for call, *_ in calls:
        call(chunk=7, **way)
    with Watch(args.device) as watch:
        while time.monotonic() < until:
            for call, _, right, _ in calls:
                got = call(chunk=3 + rounds % 5, **way)
                if rounds % 16 == 0 and not right(got):
                    sys.exit("lab: soak: wrong result")
            rounds += 1
    yield {
        "row": "soak",
        "rounds": rounds,
        "targets": [
            Target("growth on the GPU", growth(watch, 0), 16 << 20, False, " B"),
            Target("growth on the host", growth(watch, 1), 64 << 20, False, " B"),
        ],
    }


def overhead(args: Any, top: dict[str, float]) -> Iterator[dict[str, Any]]:
    """What counting costs a small call: one with a time of its own for every call, beside one without."""
    call = torch.zeros(2, 1), torch.arange(2), torch.arange(2)
    seconds = {}
    for timing in (False, True):
        with counted(timing):
            seconds[timing] = quickest(lambda: [rc.resample(*call) for _ in range(20_000)]) / 20_000
    yield {
        "row": "a small call",
        "seconds": seconds[False],
        "timed_seconds": seconds[True],
        "targets": [Target("times on request", seconds[True] - seconds[False], 3e-7, False, " s")],
    }


@contextmanager
def counted(timing: bool) -> Iterator[None]:
    rc.metrics(timing=timing)
    yield
    rc.metrics(timing=False)


ROWS: dict[str, Callable[[Any, dict[str, float]], Iterator[dict[str, Any]]]] = {
    "resample": lambda args, top: streams(args, top, "resample"),
    "voxelize": lambda args, top: streams(args, top, "voxelize"),
    "twice": twice,
    "threads": threads,
    "full": full,
    "largest": largest,
    "soak": soak,
    "overhead": overhead,
}
ON_CPU = ("resample", "voxelize", "soak", "overhead")


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument(
        "--gigabytes", type=float, help="of the tensor that streams (40; 0.1 on the CPU)"
    )
    parser.add_argument("--budget", default="8GiB", help="such as 8GiB")
    parser.add_argument("--endurance", type=float, default=240, help="seconds of the soak")
    parser.add_argument("--rows", help=f"some of {','.join(ROWS)}")
    args = parser.parse_args()
    setup(args)
    known = tuple(ROWS) if args.device == "cuda" else ON_CPU
    wanted = args.rows.split(",") if args.rows else known
    if any(row not in known for row in wanted):
        sys.exit(f"lab: --rows takes some of {','.join(known)}")
    args.gigabytes = args.gigabytes or (40 if args.device == "cuda" else 0.1)
    record = Record("streaming", args)
    record.ceilings = ceilings(args.device)
    print("  ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in record.ceilings.items()))
    for name in wanted:
        for row in ROWS[name](args, record.ceilings):
            targets = row.pop("targets")
            print(f"  {row['row']}: " + "; ".join(map(str, targets)), flush=True)
            record.rows.append(row | {"targets": [target.json() for target in targets]})
            record.flush()
    columns = ("seconds", "rate", "device_bytes", "host_bytes", "rounds")
    print_table(
        ["row", *columns],
        [[row["row"], *(number(row.get(c)) for c in columns)] for row in record.rows],
    )
    record.finish()


if __name__ == "__main__":
    main()
