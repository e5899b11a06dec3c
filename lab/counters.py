"""What bounds a kernel: Nsight Compute's counters for every kernel of a benchmark's row.

Runs itself under `ncu`, one call per row after two to warm up, and records for each of our kernels
its time, how busy every unit was, and what its warps waited for. Clocks are left as they are.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

import backward
import cloud_rows
import fuse
import resample
import voxelize
from common import Record, number, options, print_table, setup

BENCHMARKS = ("fuse", "backward", "voxelize")
MARK = "spin_kernel"  # Of torch.cuda._sleep: one before every row.
BUSY = {
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
PLAIN = {
    "ns": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
}
STALLS = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "lg_throttle",
    "mio_throttle",
    "math_pipe_throttle",
    "wait",
    "no_instruction",
    "membar",
    "not_selected",
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
METRICS = [*BUSY.values(), *PLAIN.values(), *(STALL.format(stall) for stall in STALLS)]


# --- the calls that are looked at -------------------------------------------------------------


def calls(rc: ModuleType, name: str, seed: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A benchmark's rows, made one by one: their inputs are large."""
    if name == "fuse":
        for row in fuse.ROWS:
            inputs = fuse.Inputs.random(row, np.random.default_rng(seed)).copy_to("cuda")
            yield row.name, partial(fuse.fuse_of(rc, row, into=True), inputs)
    elif name == "backward":
        # A first gradient registers the ops.
        rc.resample(torch.zeros(2, 1, requires_grad=True), [0, 1], [0])
        args = argparse.Namespace(seed=seed, stamps="float32", any_order=False, device="cuda")
        for index, size in enumerate(resample.ROWS):
            shape = (size.batch, size.samples, size.dim)
            yield str(size), partial(backward.own, backward.inputs(size, args, index), shape)
    else:
        for cloud in cloud_rows.ROWS:
            points = cloud_rows.Inputs.random(cloud, seed, "cuda")
            most = cloud.points if cloud.what in voxelize.WAITS else None
            yield str(cloud), partial(voxelize.own_call, rc, cloud, points, most)


def run_marked(rc: ModuleType, names: list[str], seed: int) -> None:
    """What `ncu` looks at: a mark, then one call, for every row."""
    cuda = torch.cuda.cudart()
    for name in names:
        for row, call in calls(rc, name, seed):
            call()
            call()
            torch.cuda.synchronize()
            cuda.cudaProfilerStart()
            torch.cuda._sleep(1)
            call()
            torch.cuda.synchronize()
            cuda.cudaProfilerStop()
            print(f"row\t{name}\t{row}", flush=True)


# --- what ncu says ----------------------------------------------------------------------------


def profile(names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs this script under `ncu`, and sorts its table by rows."""
    ncu = shutil.which("ncu")
    if ncu is None:
        sys.exit("lab: ncu (Nsight Compute) is not on the PATH")
    child = [sys.executable, __file__, "--marked", "--device", "cuda", "--seed", str(args.seed)]
    child += ["--only", ",".join(names)]
    front = [
        ncu,
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
        "--csv",
        "--page",
        "raw",
    ]
    done = subprocess.run(
        [*front, "--metrics", ",".join(METRICS), *child], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    known = [line.split("\t")[1:] for line in lines if line.startswith("row\t")]
    table = [line for line in lines if line.startswith('"')]
    if done.returncode != 0 or not known or not table:
        sys.exit(f"lab: ncu: {done.stderr[-2000:]}{done.stdout[-2000:]}")
    rows = [{"benchmark": name, "row": row, "kernels": []} for name, row in known]
    at = -1
    for entry in csv.DictReader(io.StringIO("\n".join(table))):
        if not entry["ID"]:
            continue  # The units.
        if MARK in entry["Kernel Name"]:
            at += 1
        elif at >= 0:
            rows[at]["kernels"].append(kernel(entry))
    return rows


def value(entry: dict[str, str], metric: str) -> float | None:
    text = entry.get(metric, "").replace(",", "")
    return float(text) if text not in ("", "n/a", "nan") else None


def kernel(entry: dict[str, str]) -> dict[str, Any]:
    stalls = {stall: value(entry, STALL.format(stall)) or 0.0 for stall in STALLS}
    waits = sorted(stalls, key=stalls.__getitem__, reverse=True)[:3]
    return {
        "kernel": entry["Kernel Name"].partition("(")[0],
        "blocks": entry.get("Grid Size"),
        "threads": entry.get("Block Size"),
        **{name: value(entry, metric) for name, metric in PLAIN.items()},
        "busy_percent": {name: value(entry, metric) for name, metric in BUSY.items()},
        "waits_per_instruction": {stall: stalls[stall] for stall in waits},
    }


def report(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        for one in row["kernels"]:
            busy = [number(one["busy_percent"][name]) for name in BUSY]
            waits = ", ".join(f"{n} {t:.1f}" for n, t in one["waits_per_instruction"].items())
            us = number(one["ns"] and one["ns"] / 1e3)
            lines.append([f"{row['benchmark']} {row['row']}", one["kernel"], us, *busy, waits])
    print_table(["row", "kernel", "us", *BUSY, "waits"], lines)


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="fuse, backward, voxelize")
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(device="cuda")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"lab: --only: no such benchmark: {', '.join(unknown)}")
    rc = setup(args)
    if args.marked:
        return run_marked(rc, names, args.seed)
    record = Record("counters", args)
    record.rows = profile(names, args)
    report(record.rows)
    record.finish()


if __name__ == "__main__":
    main()
