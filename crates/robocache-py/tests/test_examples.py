"""What users paste: the README's example and the scripts in examples/."""

import re
from pathlib import Path

import numpy as np
import pytest

from helpers import run_python

ROOT = Path(__file__).parents[3]


# What each example says when it worked.
SAYS = {
    "align_streams.py": "largest error",
    "alignment.py": "pictures written",
    "failure_recovery.py": "the job goes on",
    "from_lerobot.py": "features",
    "from_ros.py": "from a recording to a batch",
    "ingest_dataset.py": "0 findings",
    "multi_gpu.py": "the same bits",
    "out_of_core.py": "rows resampled",
    "robot_arm.py": "the gripper can point down in",
    "train_ddp.py": "samples once each",
    "train_policy.py": "the loss fell",
    "voxelize.py": "cells are occupied",
}


def run(*command: str) -> str:
    done = run_python(*command, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="outside of the repository")
def test_the_readme_prints_what_it_says(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for code in blocks:
        promised = re.findall(r"# (\(.*)\.\.\.$", code, re.MULTILINE)
        assert len(promised) == 1
        printed = run("-c", code.replace('"my-cache"', repr(str(tmp_path / "cache"))))
        assert printed.splitlines()[-1].startswith(promised[0])


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="outside of the repository")
@pytest.mark.parametrize(
    "page", ["alignment.md", "kinematics.md", "memory.md", "multi-gpu.md", "failures.md"]
)
def test_pages_run(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert blocks
    for code in blocks:
        run("-c", code)


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="outside of the repository")
@pytest.mark.parametrize("name", SAYS)
def test_examples_run(name):
    assert SAYS[name] in run(str(ROOT / "examples" / name))


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="outside of the repository")
def test_the_picture_of_a_cloud_is_one(tmp_path):
    cloud, out = tmp_path / "cloud.npy", tmp_path / "grid.png"
    np.save(cloud, np.random.default_rng(0).normal(size=(500, 4)))
    assert "written" in run(str(ROOT / "examples" / "voxelize.py"), str(cloud), "-o", str(out))
    data = out.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and data[-8:-4] == b"IEND"


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="outside of the repository")
def test_every_example_is_run():
    assert {script.name for script in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="outside of the repository")
def test_the_chart_shows_what_was_recorded():
    command = "import sys; sys.path.insert(0, 'lab'); import chart; print(chart.chart() == chart.CHART.read_text())"
    assert run("-c", command).strip() == "True", "python lab/chart.py draws it anew"
