"""Datasets: where they are found."""

from __future__ import annotations

import os
import re

from robocache import _core
from robocache._errors import FileError, Unsupported

# A dataset on a hub: owner and name.
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def dataset(path: str | os.PathLike[str]) -> _core.Dataset:
    """Opens a dataset: a folder, or the name of one on the Hugging Face hub.

    LeRobot v2.0, v2.1 and v3.0 are read. Only the metadata is read here; episodes when asked for:

    >>> ds = rc.dataset("testdata/lerobot_v30")
    >>> ds.episode(0)["observation.state"].values

    A name such as "lerobot/pusht" that is no folder here is downloaded by the package
    `huggingface_hub`, where that is installed.
    """
    place = os.fspath(path)
    if not os.path.lexists(place) and _HUB_NAME.fullmatch(place):
        place = _download(place)
    return _core.open_dataset(place)


def _download(name: str) -> str:
    try:
        import huggingface_hub
    except ImportError as error:
        raise Unsupported(
            f"dataset: there is no folder {name!r} here; to get a dataset of that name from the "
            "hub, pip install huggingface_hub",
            op="dataset",
            argument="path",
        ) from error
    try:
        return huggingface_hub.snapshot_download(repo_id=name, repo_type="dataset")
    except Exception as error:
        raise FileError(
            f"dataset: there is no folder {name!r} here, and the hub did not give it: {error}",
            op="dataset",
            argument="path",
            path=name,
        ) from error
