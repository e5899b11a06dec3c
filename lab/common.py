"""What every benchmark of the lab shares: options, facts about the machine, tables and records.

A benchmark is a script `lab/<name>.py`. It parses `options()`, calls `setup()`, checks the result
against its oracle, times the contenders with `timing.py` and hands a `Record` its rows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "lab" / "results"
SCHEMA = 1
QUIET = 0.1  # Of the cores: what other processes may use while a record is made.


# --- options and set-up -----------------------------------------------------------------------


def options(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=usable_cores(), metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, help="timing budget per contender")
    parser.add_argument("--seed", type=int, help="random inputs; a fresh one when absent")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record to FILE")
    parser.add_argument("--record", action="store_true", help="write the record to lab/results")
    return parser


def rows_option(parser: argparse.ArgumentParser, count: int) -> None:
    """`--rows 0,2`: which of a benchmark's `count` rows to run; all of them without it."""

    def row_list(text: str) -> list[int]:
        rows = [int(word) for word in text.split(",")]
        if not all(0 <= row < count for row in rows):
            raise ValueError(text)
        return rows

    parser.add_argument("--rows", type=row_list, default=[*range(count)], metavar="0,1,2")


def part_of(text: str) -> tuple[int, int]:
    """`I/N`, which of how many parts."""
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def setup(args: argparse.Namespace) -> ModuleType:
    """Gives torch and RoboCache the same threads, fixes the seed, and returns `robocache`."""
    if args.threads < 1:
        sys.exit("lab: --threads must be at least 1")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("lab: --device cuda: torch sees no CUDA device here")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(2**31)
    os.environ["ROBOCACHE_NUM_THREADS"] = str(args.threads)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    import robocache  # Only now: it reads its threads from the environment.

    return robocache


# --- facts about the machine ------------------------------------------------------------------


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name as the system tells it."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        info = ""
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    name = found.group(1) if found else platform.processor() or platform.machine()
    return re.sub(r"\((R|TM)\)", "", name).strip()


def last_level_cache() -> int | None:
    """Bytes of the largest cache of core 0: rows below it are timed from the cache."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) * units.get(text[-1], 1))
    return max(sizes, default=None)


def operating_system() -> str:
    """The system's name and version, never the host's name."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError, AttributeError):
        return f"{platform.system()} {platform.mac_ver()[0]}".strip()


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    facts: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "last_level_cache_bytes": last_level_cache(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": operating_system(),
        "architecture": platform.machine(),
        "gpu": None,
    }
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        facts["gpu"] = {
            "name": gpu.name,
            "driver": output_of(
                "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"
            ),
            "memory_gib": round(gpu.total_memory / 2**30, 1),
            "l2_bytes": gpu.L2_cache_size,
            "multiprocessors": gpu.multi_processor_count,
        }
    return facts


def versions() -> dict[str, str | None]:
    """Versions of everything that takes part."""
    return {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": torch.__version__,
        "triton": package_version("triton"),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "robocache": package_version("robocache"),
    }


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def output_of(*command: str) -> str | None:
    """The first line that a command prints, None when it does not work here."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip().partition("\n")[0]


def git() -> dict[str, Any]:
    """Commit and whether anything but recorded results differs from it.

    A copy on another machine names its commit in ROBOCACHE_COMMIT: a repository around it, if
    there is one, may be at another.
    """
    if named := os.environ.get("ROBOCACHE_COMMIT"):
        return {"commit": named, "dirty": None}
    commit = output_of("git", "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None}
    changes = output_of("git", "status", "--porcelain", "--", ".", ":!lab/results")
    return {"commit": commit, "dirty": changes != ""}


def command_line() -> str:
    """This run's command, without the paths of this machine."""
    words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    return " ".join(["python", f"lab/{Path(sys.argv[0]).name}", *words])


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# --- targets, tables, records -----------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """One promise of performance.md and what this run saw."""

    name: str
    value: float
    bound: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        word = "PASS" if self.met else "MISS"
        return (
            f"{word}  {self.name}: {self.value:.3g}{self.unit} ({sign} {self.bound:.3g}{self.unit})"
        )

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


def print_table(headers: list[str], rows: list[list[str]]) -> None:
    """A table with the first column to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    for line in [headers, ["-" * width for width in widths], *rows]:
        first, *others = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join([first, *others]))


def number(value: float | None, digits: int = 3) -> str:
    """`value` with that many digits, a dash for None."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:#.{digits}g}".rstrip(".")


def rounded(value: Any) -> Any:
    """Floats with four digits: more is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@dataclass
class Record:
    """Everything that one run says: how, where, what."""

    benchmark: str
    args: argparse.Namespace
    rows: list[dict[str, Any]] = field(default_factory=list)
    ceilings: dict[str, Any] = field(default_factory=dict)
    date: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).isoformat(
            "T", "seconds"
        )
    )

    def __post_init__(self) -> None:
        self.machine = machine()
        self.versions = versions()
        self.git = git()
        gpu = self.machine["gpu"]
        self.name = gpu["name"] if gpu and self.args.device == "cuda" else self.machine["cpu"]
        cores = self.machine["cores"]
        print(f"{self.benchmark} on {self.name}, {self.args.threads} of {cores} cores, ", end="")
        print(", ".join(f"{name} {version}" for name, version in self.versions.items() if version))

    def check_quiet(self) -> bool:
        """Says so when other processes took part: such numbers are not worth keeping."""
        others = max((row.get("other_cores") or 0.0 for row in self.rows), default=0.0)
        quiet = others <= QUIET * self.machine["cores"]
        if not quiet:
            print(f"lab: DO NOT TRUST: other processes kept {others:.1f} cores busy meanwhile")
        return quiet

    def flush(self) -> None:
        """Writes what there is so far to the file of `--json`: a run that is cut short leaves its rows."""
        if self.args.json:
            self._write(self.args.json, quiet=None)

    def finish(self) -> None:
        """Writes the record where the options say; results only from a quiet machine."""
        quiet = self.check_quiet()
        files = [self.args.json] if self.args.json else []
        if self.args.record and not quiet:
            print("lab: not recorded")
        elif self.args.record:
            cores = "" if self.args.device == "cuda" else f"-{self.machine['cores']}-cores"
            files.append(RESULTS / f"{self.benchmark}-{slug(self.name)}{cores}.json")
        for file in files:
            self._write(file, quiet)
            print(f"written: {file}")

    def _write(self, file: Path, quiet: bool | None) -> None:
        skipped = {"json", "record"}
        content = {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "date": self.date,
            "command": command_line(),
            "git": self.git,
            "quiet": quiet,
            "machine": self.machine,
            "versions": self.versions,
            "options": {k: v for k, v in vars(self.args).items() if k not in skipped},
            "ceilings": self.ceilings,
            "rows": self.rows,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rounded(content), indent=1) + "\n")
