"""Reading datasets and making caches: `robocache bench readers` and `bench ingest`, recorded.

The commands measure and hold the targets; this keeps what they say, on a quiet machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import Record, Target, options, setup
from timing import neighbours


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument("--dataset", type=Path, help="a dataset whose video is ingested, too")
    args = parser.parse_args()
    dataset: Path | None = args.dataset
    args.dataset = dataset and dataset.name  # The record has no paths of this machine.
    setup(args)
    record = Record("files", args)
    for bench in (
        ["readers"],
        ["ingest"],
        *([["ingest", str(dataset)]] if dataset else []),
    ):
        with neighbours() as others:
            said = run(bench)
        row: dict[str, Any] = {
            "name": " ".join([bench[0], *(Path(word).name for word in bench[1:])]),
            "dataset": said["dataset"].replace(str(dataset), args.dataset or ""),
            "numbers": {entry["name"]: entry["value"] for entry in said["rows"]},
            "units": {entry["name"]: entry["unit"] for entry in said["rows"]},
            "notes": said["notes"],
            "other_cores": others[0] if others else None,
        }
        targets = [target(entry) for entry in said["rows"] if entry["target"]]
        row["targets"] = [met.json() for met in targets]
        print(f"\n{row['name']}")
        for name, value in row["numbers"].items():
            print(f"  {name}: {value:.4g} {row['units'][name]}")
        for met in targets:
            print(f"  {met}")
        record.rows.append(row)
    record.finish()


def run(bench: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "robocache", "bench", *bench, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"lab: {done.stderr.strip()}")
    return json.loads(done.stdout)


def target(entry: dict[str, Any]) -> Target:
    ((kind, bound),) = entry["target"].items()
    return Target(entry["name"], entry["value"], bound, kind == "at_least", f" {entry['unit']}")


if __name__ == "__main__":
    main()
