"""A quick look at resample on the GPU: seconds instead of the minutes that torch.compile takes.

Times calls replayed from a CUDA graph (hot: one set of buffers), against the bandwidth of an
elementwise kernel in the same run, beside torch eager in the usual words. Stamps are sorted random
float32, as in performance comparisons of search-bound kernels; correctness is the tests' business.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import torch

from common import Record, number, options, print_table, setup
from resample import ROWS, Row, by_gather
from timing import graph_time

COPY_ELEMENTS = 1 << 28


def bandwidth(seconds: float) -> float:
    source = torch.randn(COPY_ELEMENTS, device="cuda")
    target = torch.empty_like(source)
    spread = graph_time([lambda: torch.add(source, 1, out=target)], seconds)
    return 2 * source.nbytes / spread.median


def measure(rc: ModuleType, row: Row, copy: float, seconds: float) -> dict[str, Any]:
    values = torch.randn(row.batch, row.samples, row.dim, device="cuda").to(row.dtype)
    times = torch.rand(row.batch, row.samples, device="cuda").sort()[0]
    targets = torch.rand(row.batch, row.targets, device="cuda").sort()[0]
    out = values.new_empty(row.batch, row.targets, row.dim)
    high = torch.searchsorted(times, targets).clamp(1, row.samples - 1)
    touched = torch.zeros_like(times, dtype=torch.bool)
    touched.scatter_(1, high, True).scatter_(1, high - 1, True)
    moved = int(touched.sum()) * row.dim * values.itemsize
    moved += out.nbytes + times.nbytes + targets.nbytes
    call = partial(rc.resample, values, times, targets, out=out)
    own = graph_time([call], seconds).median
    unchecked = graph_time([partial(call, check=False)], seconds).median
    eager = graph_time([partial(by_gather, values, times, targets)], seconds).median
    rc.synchronize()
    return {
        "row": str(row),
        "bytes": moved,
        "floor_us": moved / copy * 1e6,
        "robocache_us": own * 1e6,
        "robocache_unchecked_us": unchecked * 1e6,
        "eager_us": eager * 1e6,
        "copy_fraction": moved / copy / own,
    }


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.set_defaults(device="cuda")
    args = parser.parse_args()
    rc = setup(args)
    record = Record("resample_graph", args)
    copy = bandwidth(args.seconds)
    record.ceilings = {"copy": "torch.add in a graph", "copy_gb_s": copy / 1e9}
    record.rows = [measure(rc, row, copy, args.seconds) for row in ROWS]
    columns = ["floor_us", "robocache_us", "robocache_unchecked_us", "eager_us", "copy_fraction"]
    lines = [[row["row"], *(number(row[name]) for name in columns)] for row in record.rows]
    print_table(["B,S,T,D", *columns], lines)
    record.finish()


if __name__ == "__main__":
    main()
