"""What users paste: the README's example and the scripts in examples/."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="outside of the repository")
def test_the_readme_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    promised = re.findall(r"# (\(.*)\.\.\.$", code, re.MULTILINE)
    assert len(promised) == 1
    assert run("-c", code).startswith(promised[0])


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="outside of the repository")
def test_examples_run():
    scripts = sorted((ROOT / "examples").glob("*.py"))
    assert scripts
    for script in scripts:
        assert "largest error" in run(str(script))
