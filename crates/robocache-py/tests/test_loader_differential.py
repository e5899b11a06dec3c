"""The loader against `rc.resample` on the raw streams: a thousand random windows, at a scale of 1."""

from __future__ import annotations

import random

import numpy as np
import pytest

import robocache as rc
from helpers import scaled
from loader_data import ingest, late_layout, write_dataset

CACHES, WINDOWS = 8, max(125, scaled(125))
FLOATS = {"pose": 4, "rotation": 6, "heading": 1, "action": 10, "action.wide": 12}
DTYPES = ("float16", "float32", "float64")
OF_FLOATS = ("linear", "nearest", "previous", "next", "cubic", "angle")
COPIES = ("nearest", "previous", "next")
SCALINGS = ("mean_std", "min_max", "quantile")
TOLERANCE = 1e-4


def clock(rng: np.random.Generator, length: int) -> np.ndarray:
    """Stamps in seconds: regular, jittered, with gaps, with equal ones."""
    steps = np.full(length, 0.04)
    if rng.random() < 0.7:
        steps *= rng.uniform(0.2, 1.8, length)
    if rng.random() < 0.5:
        steps[rng.integers(0, length, 2)] += 0.5
    if rng.random() < 0.5:
        steps[rng.integers(0, length, 3)] = 0
    return 0.05 + np.cumsum(steps)


@pytest.fixture(scope="module", params=range(CACHES), ids=str)
def made(request, tmp_path_factory):
    """A cache, and the seed that it is of."""
    seed = request.param
    rng = np.random.default_rng(seed)
    root = tmp_path_factory.mktemp("made")
    features = {name: (str(rng.choice(DTYPES)), (width,)) for name, width in FLOATS.items()}
    features["flags"] = ("int16", (2,))
    lengths = [1, 2, *rng.integers(3, 40, 3).tolist()]
    clocks = {length: clock(rng, length) for length in lengths}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lerobot_files.stamps", lambda length, layout: clocks[length])
        episodes = [(length, "a") for length in lengths]
        write_dataset(root / "data", episodes, features=features, layout=late_layout(), seed=seed)
    return ingest(root / "data", root / "cache"), seed


def methods_for(rng: random.Random, width: int):
    """One method for all columns, or ranges."""
    whole = [
        *OF_FLOATS,
        *(["slerp"] if width % 4 == 0 else []),
        *(["rot6d"] if width % 6 == 0 else []),
    ]
    if width == 1 or rng.random() < 0.6:
        return rng.choice(whole)
    ranges, start = [], 0
    while start < width:
        left = width - start
        sizes = [1, 2, *([4] if left >= 4 else []), *([6] if left >= 6 else [])]
        size = min(rng.choice(sizes), left)
        known = [*OF_FLOATS, *{4: ["slerp"] * 4, 6: ["rot6d"] * 4}.get(size, [])]
        ranges.append((rng.choice(known), start, start + size))
        start += size
    return ranges


def expected(stream, targets, method, max_gap):
    """Values and padding of one stream of an episode at these times."""
    times, values = stream.times, stream.values.reshape(len(stream.times), -1)
    off = np.abs(times[None].astype(object) - targets[:, None].astype(object)).astype(float)
    nearest = off.argmin(1)
    is_hit = off[np.arange(len(targets)), nearest] <= TOLERANCE * 1e9
    targets = np.where(is_hit, times[nearest], targets)
    want, valid = rc.resample(
        values, times, targets, method=method, max_gap=max_gap, return_valid=True
    )
    return want, ~valid


def normal_forms(cache, name, method):
    """All samples of a stream as the loader hands them out."""
    forms = []
    for episode in cache.episodes:
        values = episode[name].values.reshape(episode.length, -1)
        at = np.arange(len(values))
        forms.append(rc.resample(values, at, at, method=method))
    return np.concatenate(forms).astype(np.float64)


def is_formed(method) -> bool:
    names = {method} if isinstance(method, str) else {name for name, _, _ in method}
    return bool(names & {"slerp", "angle", "rot6d"})


def assert_statistics(got, cache, name, method):
    if not is_formed(method):
        for key, value in cache.stats[name].items():
            np.testing.assert_array_equal(got[key], value, err_msg=f"{name} {key}")
        return
    forms = normal_forms(cache, name, method)
    np.testing.assert_array_equal(got["min"], forms.min(0), err_msg=name)
    np.testing.assert_array_equal(got["max"], forms.max(0), err_msg=name)
    np.testing.assert_allclose(got["mean"], forms.mean(0), rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(got["std"], forms.std(0), rtol=1e-9, atol=1e-12, err_msg=name)
    assert got["count"] == len(forms)


def scaled_by(stats, scaling, values):
    if scaling == "mean_std":
        shift, spread = stats["mean"], stats["std"]
    else:
        low, high = ("min", "max") if scaling == "min_max" else ("q01", "q99")
        shift, spread = (stats[low] + stats[high]) / 2, (stats[high] - stats[low]) / 2
    factor = np.where(spread > 1e-12, 1 / np.where(spread > 1e-12, spread, 1), 1)
    out = (values.astype(np.float64) - shift) * factor
    return out if values.dtype == np.float64 else out.astype(np.float32)


@pytest.mark.parametrize("number", range(WINDOWS))
def test_windows_are_those_of_resample(made, number):
    cache, seed = made
    rng = random.Random(f"{seed} {number}")
    methods = {name: methods_for(rng, width) for name, width in FLOATS.items()}
    methods["flags"] = rng.choice(COPIES)
    causal = rng.random() < 0.3
    same = rng.random() < 0.5
    draw = lambda: [  # noqa: E731
        rng.choice([0.0, rng.uniform(-0.3, 0.3), rng.uniform(-3, 3), rng.uniform(-5e-5, 5e-5)])
        for _ in range(rng.randint(1, 6))
    ]
    shared = draw()
    offsets = {name: shared if same else draw() for name in methods}
    late = {name: rng.uniform(-0.1, 0.1) for name in methods if rng.random() < 0.3}
    gaps = {name: rng.uniform(0.01, 0.3) for name in methods if rng.random() < 0.3}
    scalings = {name: rng.choice(SCALINGS) for name in FLOATS if rng.random() < 0.3}
    windows = cache.windows(
        delta_timestamps=offsets,
        methods=methods,
        causal=causal,
        time_offset=late,
        max_gap=gaps,
        normalize=scalings,
        tolerance_s=TOLERANCE,
    )
    place = rng.randrange(len(windows))
    if rng.random() < 0.3:
        place = rng.choice([0, 1, 2, len(windows) - 1])
    batch = windows.batch([place])
    episode = cache.episode(int(batch["episode_index"][0]))
    anchor = int(episode["pose"].times[int(batch["frame_index"][0])])
    whole = lambda seconds: np.rint(np.asarray(seconds) * 1e9).astype(np.int64)  # noqa: E731
    for name, method in methods.items():
        used = "previous" if causal and not name.startswith("action") else method
        targets = anchor + whole(offsets[name]) + whole(late.get(name, 0.0))
        want, pad = expected(episode[name], targets, used, gaps.get(name))
        text = f"cache {seed}, window {number}: {name}, {used}"
        if name in scalings:
            stats = windows.stats[name]
            assert_statistics(stats, cache, name, used)
            want = scaled_by(stats, scalings[name], want)
        got = batch[name][0].numpy().reshape(want.shape)
        np.testing.assert_array_equal(got, want, err_msg=text)
        np.testing.assert_array_equal(batch[f"{name}_is_pad"][0].numpy(), pad, err_msg=text)


def test_a_window_does_not_jump_where_it_hits_a_sample(tmp_path, monkeypatch):
    """A heading of more than a turn, as it was found: raw at samples, wrapped between them."""
    monkeypatch.setattr(
        "loader_data.numbers",
        lambda rng, dtype, shape: (
            (6.0 + 0.2 * np.arange(np.prod(shape))).reshape(shape).astype(dtype)
        ),
    )
    monkeypatch.setattr("lerobot_files.stamps", lambda length, layout: 0.1 * np.arange(length))
    features = {"heading": ("float64", (1,))}
    write_dataset(tmp_path / "data", [(40, "a")], features=features, layout=late_layout())
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    options = {
        "delta_timestamps": {"heading": [-5.0, 0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 9.0]},
        "methods": {"heading": "angle"},
    }
    got = cache.windows(**options).batch([3])["heading"][0].numpy()
    turn = 2 * np.pi
    want = [6.0, 6.6, 6.64, 6.68, 6.72, 6.76, 6.8, 6.0 + 0.2 * 39]
    want = [(x + np.pi) % turn - np.pi for x in want]
    np.testing.assert_allclose(got, want, atol=1e-12)
    loader = rc.Loader(cache, 40, normalize={"heading": "min_max"}, shuffle=False, **options)
    heading = next(iter(loader))["heading"]
    # Statistics are those of the samples: between two of them a turn may reach a little further.
    assert heading.min() >= -1.1 and heading.max() <= 1.1
    assert loader.meta.stats["heading"]["max"] < np.pi < cache.meta.stats["heading"]["max"]


def test_quaternions_have_unit_length_wherever_they_are_asked_for(tmp_path):
    features = {"pose": ("float32", (4,))}
    write_dataset(tmp_path / "data", [(9, "a"), (1, "a")], features=features)
    cache = ingest(tmp_path / "data", tmp_path / "cache", methods={"pose": "slerp"})
    offsets = [-1.0, 0.0, 0.01, 1 / 30, 0.05, 1.0]
    batch = cache.windows(delta_timestamps={"pose": offsets}).batch(range(10))
    np.testing.assert_allclose(batch["pose"].norm(dim=-1), 1, atol=1e-6)
    at_samples = cache.windows(streams=["pose"]).batch(range(10))["pose"]
    np.testing.assert_allclose(at_samples.norm(dim=-1), 1, atol=1e-6)
