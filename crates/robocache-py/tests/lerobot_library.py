"""The installed LeRobot library: 0.4.4, 0.6.1 and what lies between; tests skip where it is not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

SAMPLE = Path(__file__).resolve().parents[3] / "testdata" / "lerobot_v30"


def lerobot_name(name: str, *modules: str) -> Any:
    """What LeRobot calls `name`, from the first of these modules of it that has it."""
    pytest.importorskip("lerobot")
    for module in modules:
        try:
            return getattr(importlib.import_module(f"lerobot.{module}"), name)
        except AttributeError:
            continue
        except ImportError as error:
            # Datasets are an extra of 0.6: what they need may not be installed.
            if not (error.name or "").startswith("lerobot."):
                pytest.skip(f"LeRobot lacks a package: {error}")
    pytest.fail(f"LeRobot has moved {name}: it is in none of {', '.join(modules)}")


def lerobot_dataset(**options: Any) -> Any:
    """The library's own dataset of our samples."""
    dataset = lerobot_name("LeRobotDataset", "datasets.lerobot_dataset")
    if not SAMPLE.exists():
        pytest.skip("no sample data here")
    return dataset("local/sample", root=SAMPLE, **options)


def leave_out_videos(monkeypatch: pytest.MonkeyPatch, dataset: Any) -> None:
    """Its samples come without pictures: its decoders are not always installed."""
    reader = getattr(dataset, "reader", dataset)  # 0.6 reads by an object of its own
    monkeypatch.setattr(reader, "_query_videos", lambda *_: {})


def with_decoder(**options: Any) -> Any:
    """A dataset whose videos can be decoded here."""
    # 0.4 does not turn to PyAV itself where torchcodec is installed but does not load.
    errors = []
    for backend in (None, "pyav"):
        dataset = lerobot_dataset(video_backend=backend, **options)
        try:
            dataset[0]
        except (ImportError, OSError, RuntimeError) as error:
            errors.append(f"{backend or 'default'}: {str(error).partition(chr(10))[0]}")
        else:
            return dataset
    pytest.skip(f"the library cannot decode video here: {'; '.join(errors)}")
