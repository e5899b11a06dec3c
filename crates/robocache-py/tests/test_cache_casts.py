"""Numbers that a smaller type cannot hold are an error of their episode, never an infinity."""

from __future__ import annotations

import numpy as np
import pytest

import robocache as rc
from loader_data import FPS

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from lerobot_files import Episode, Layout, write
from lerobot_parts import Feature

# The stored type, the wanted one, a number that it cannot hold, and the largest that it rounds to.
CASTS = [
    ("float32", "float16", 70000.0, 65519.0),
    ("float64", "float16", -65520.0, -65504.0),
    ("float64", "float32", 1e300, 3.4028235e38),
    ("float64", "bfloat16", 3.4e38, 3.38e38),
    ("float64", "bfloat16", -1e300, 1e30),
]


def dataset(root, dtype, number, names=("x", "y")):
    """Three episodes; the second has the number in sample 4."""
    values = [np.ones((6, 2), dtype) * at for at in range(1, 4)]
    values[1][4, 1] = number
    episodes = [Episode({"action": value}, ("a",)) for value in values]
    feature = Feature(dtype, (2,), list(names) if names else None)
    return write(root, {"action": feature}, episodes, Layout(fps=FPS, stats=False))


@pytest.mark.parametrize(("stored", "wanted", "over", "most"), CASTS)
def test_what_overflows_is_left_out_and_named(stored, wanted, over, most, tmp_path):
    source = dataset(tmp_path / "data", stored, over)
    streams = {"action": {"dtype": wanted}}
    done = rc.ingest(source, tmp_path / "cache", streams=streams, progress=False)
    assert [episode for episode, _ in done.skipped] == [1] and done.frames == 12
    for part in ("action", wanted, "sample 4", "y"):
        assert part in done.skipped[0][1]
    cache = rc.open(tmp_path / "cache")
    assert [episode.index for episode in cache.episodes] == [0, 2]
    stats = cache.stats["action"]
    assert stats["max"].tolist() == [3, 3] and stats["count"] == 12
    with pytest.raises(rc.RoboCacheError, match="sample 4, y"):
        rc.ingest(source, tmp_path / "strict", streams=streams, strict=True, progress=False)


@pytest.mark.parametrize(("stored", "wanted", "over", "most"), CASTS)
def test_what_rounds_to_the_largest_is_taken_as_it_is_kept(stored, wanted, over, most, tmp_path):
    source = dataset(tmp_path / "data", stored, most, names=None)
    done = rc.ingest(
        source, tmp_path / "cache", streams={"action": {"dtype": wanted}}, progress=False
    )
    assert not done.skipped
    cache = rc.open(tmp_path / "cache")
    kept = np.asarray(cache.episodes[1]["action"].values, np.float64)
    assert np.isfinite(kept).all()
    low, high = cache.stats["action"]["min"], cache.stats["action"]["max"]
    assert (low[1], high[1]) == (min(1, kept[:, 1].min()), max(3, kept[:, 1].max()))


def test_components_without_names_are_counted(tmp_path):
    source = dataset(tmp_path / "data", "float64", 1e300, names=None)
    done = rc.ingest(
        source, tmp_path / "cache", streams={"action": {"dtype": "float32"}}, progress=False
    )
    assert "1e300" in done.skipped[0][1] and "component 1" in done.skipped[0][1]
