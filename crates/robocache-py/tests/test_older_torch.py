"""torch before 2.11 describes and makes tensors through Python only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from helpers import run_python

HERE = Path(__file__).parent


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch is such a one itself"
)
@pytest.mark.timeout(300)
def test_all_works_without_the_table_of_c_functions():
    files = ("test_eager_calls.py", "test_torch_tensors.py")
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = run_python(
        *("-m", "pytest", "-q", "-p", "older_torch", "-p", "no:cacheprovider"),
        *(str(HERE / name) for name in files),
        timeout=280,
        env={**os.environ, "PYTHONPATH": path},
        cwd=HERE,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
