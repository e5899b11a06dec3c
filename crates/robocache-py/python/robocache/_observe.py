"""What calls do and take: counters, memory, and plans before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robocache import _core
from robocache._arguments import flag, invalid


def _shown(size: float | None) -> str:
    """Bytes for people."""
    if size is None:
        return "not known"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


class _Table(dict[str, dict[str, Any]]):
    """A dict of dicts that prints as a table."""

    _sizes: tuple[str, ...] = ()

    def __str__(self) -> str:
        keys: list[str] = []
        for row in self.values():
            keys += [key for key in row if key not in keys and key != "times"]
        lines = [["", *keys]]
        for name, row in self.items():
            cells = [
                (_shown(row[k]) if k in self._sizes else str(row[k])) if k in row else ""
                for k in keys
            ]
            lines.append([name, *cells])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = [
            line[0].ljust(widths[0])
            + "".join(
                f"  {cell.rjust(width)}" for cell, width in zip(line[1:], widths[1:], strict=True)
            )
            for line in lines
        ]
        return "\n".join(row.rstrip() for row in rows)


class Metrics(_Table):
    """Counters by op; `print` shows a table."""

    _sizes = ("bytes",)


class MemoryReport(_Table):
    """Bytes by device; `print` shows a table."""

    _sizes = ("allocated", "free", "kept", "reserved", "resident", "total")


def metrics(
    *, reset: bool = False, timing: bool | None = None, nvtx: bool | None = None
) -> Metrics:
    """What the calls of this process did, by op.

    Counting is always on and costs some tens of nanoseconds a call.

    Args:
        reset: count from 0 again after this.
        timing: True counts the times of calls on the host from here on, False no longer.
        nvtx: True shows calls as ranges in Nsight Systems from here on, by torch; False no longer.

    Returns:
        A dict with, for each op that was called: `calls`, `bytes` of their inputs and results, `chunks` that
        they ran in, `fallbacks` to the CPU (`device="auto"` without a GPU), `errors`; and `times`, where these
        are counted: entry `n` counts calls of less than `2**n` microseconds and of no less than half of that.
    """
    for name, given in (("timing", timing), ("nvtx", nvtx)):
        if given is not None:
            flag(name, given, "metrics")
    _core.watch_calls(timing, nvtx)
    return Metrics(_core.call_counts(flag("reset", reset, "metrics")))


def memory_report() -> MemoryReport:
    """The memory of the host and of every GPU that was used here.

    Returns:
        A dict by device. "cpu": `free`, what the machine can still give; `kept`, what RoboCache keeps for
        later results; `resident`, what this process has. "cuda:N": `total`, `free`, `lost`, and of torch, where
        it is in use there, `allocated` and `reserved`.
    """
    report = MemoryReport(_core.device_memory())
    report["cpu"]["resident"] = _resident()
    torch = sys.modules.get("torch")
    for name, row in report.items():
        if name != "cpu" and torch is not None and torch.cuda.is_initialized():
            row["allocated"] = torch.cuda.memory_allocated(name)
            row["reserved"] = torch.cuda.memory_reserved(name)
    return report


def _resident() -> int | None:
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


@dataclass(frozen=True)
class MemorySnapshot:
    """The memory of one call."""

    op: str
    device: str
    bytes_in: int
    bytes_out: int
    bytes_temporary: int
    chunks: int
    free: int | None
    """Bytes that were free on the GPU after the call was queued."""
    seconds: float
    """Since the profile began."""

    @property
    def bytes(self) -> int:
        """All that the call took."""
        return self.bytes_in + self.bytes_out + self.bytes_temporary


@dataclass
class memory_profile:
    """Records the memory of every call: `with rc.memory_profile() as p: ...`."""

    snapshots: list[MemorySnapshot] = field(default_factory=list)
    """One for each call, in order."""
    _recorder: Any = None

    def __enter__(self) -> memory_profile:
        if self._recorder is not None:
            raise invalid("memory_profile", "is open already", "memory_profile")
        self._recorder = _core.MemoryRecorder()
        return self

    def __exit__(self, *_: object) -> None:
        self.snapshots += [MemorySnapshot(*row) for row in self._recorder.records()]
        self._recorder.close()
        self._recorder = None

    @property
    def peaks(self) -> dict[str, dict[str, int]]:
        """By device and op: the bytes of the call that took most."""
        peaks: dict[str, dict[str, int]] = {}
        for each in self.snapshots:
            ops = peaks.setdefault(each.device, {})
            ops[each.op] = max(ops.get(each.op, 0), each.bytes)
        return peaks

    def __str__(self) -> str:
        rows = [
            f"{device}  {op}  {_shown(size)}"
            for device, ops in self.peaks.items()
            for op, size in ops.items()
        ]
        return "\n".join(rows) or "no calls"


@dataclass(frozen=True)
class Plan:
    """What a call will take; `print` shows all of it."""

    op: str
    device: str
    bytes_in: int
    bytes_out: int
    bytes_temporary: int
    chunks: int
    """Parts that it runs in."""
    in_flight: int
    """Bytes of the parts that are in memory at a time."""
    limit: int | None
    """What these may take: `max_memory`, else what is free."""
    seconds: float | None
    """At the speed at which this machine moves bytes, which is measured once."""
    fits: bool
    _text: str = field(repr=False)

    def __str__(self) -> str:
        return self._text


def plan(
    op: str,
    *,
    device: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    resident: bool = False,
    **sizes: Any,
) -> Plan:
    """What a call takes, before anything runs: bytes, parts, time, and whether it fits.

    The op itself says what it needs, as it does in a call.

    Args:
        op: the op's name, such as "resample".
        device: None for the CPU; a GPU, or several, that host data is streamed through.
        max_memory, chunk: as in the call.
        resident: the data lives on the GPU already.
        **sizes: what the op needs to know, such as `batch=256, source=500, targets=250, dim=128,
            dtype="bf16"`; an error lists the names of the op's sizes.

    Returns:
        `Plan`: `.bytes_in`, `.bytes_out`, `.bytes_temporary`, `.chunks`, `.seconds`, `.fits`, and more.
    """
    if not isinstance(op, str):
        raise invalid("op", f"expected a name, got {op!r}", "plan")
    if not isinstance(sizes, Mapping):
        raise invalid("sizes", "expected sizes by name", "plan")
    told = [(name, _text_of(value)) for name, value in sizes.items() if value is not None]
    resident = flag("resident", resident, "plan")
    found = _core.plan_call(op, told, device, max_memory, chunk, resident)
    where, (read, written, work), chunks, in_flight, limit, seconds, fits, text = found
    return Plan(op, where, read, written, work, chunks, in_flight, limit, seconds, fits, _text=text)


def _text_of(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(str(x) for x in value)
    name = getattr(value, "__name__", None)
    return str(name if isinstance(name, str) else value)
