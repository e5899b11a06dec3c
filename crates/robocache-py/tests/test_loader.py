"""Batches from a cache: windows as LeRobot makes them, their order and selection."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from loader_data import FPS, SAMPLE, order

pytest.importorskip("pyarrow")
DELTAS = {
    "observation.state": [-1 / FPS, 0.0],
    "action": [i / FPS for i in range(16)],
    "observation.images.wrist": [-2 / FPS, 0.0],
}


@pytest.fixture(scope="module")
def dataset():
    if not SAMPLE.exists():
        pytest.skip("no sample data here")
    return rc.dataset(SAMPLE)


@pytest.fixture(scope="module")
def cache(dataset, tmp_path_factory):
    out = tmp_path_factory.mktemp("loader") / "cache"
    streams = [name for name, info in dataset.streams.items() if info.kind != "video"]
    rc.ingest(SAMPLE, out, streams=streams, images="raw", progress=False)
    return rc.open(out)


@pytest.fixture(scope="module")
def truth(dataset, cache):
    """All values by episode and stream."""
    return {
        dataset.episodes[at].index: {k: dataset.episode(at)[k].values for k in cache.streams}
        for at in range(len(dataset))
    }


def lerobot_window(values: np.ndarray, frame: int, offsets: list[float]):
    """LeRobot's rule: frames off the episode are its edge, and padding."""
    wanted = [frame + round(offset * FPS) for offset in offsets]
    pads = [not 0 <= at < len(values) for at in wanted]
    return values[[min(max(at, 0), len(values) - 1) for at in wanted]], pads


def test_windows_and_pads_are_lerobots(cache, truth):
    seen = []
    for batch in rc.Loader(cache, 7, delta_timestamps=DELTAS, seed=3):
        seen += batch["index"].tolist()
        for at in range(len(batch["index"])):
            episode = truth[int(batch["episode_index"][at])]
            frame = int(batch["frame_index"][at])
            assert abs(float(batch["timestamp"][at]) - frame / FPS) < 1e-6
            for key, offsets in DELTAS.items():
                expected, pads = lerobot_window(episode[key], frame, offsets)
                if expected.dtype == np.uint8:
                    expected = expected.transpose(0, 3, 1, 2)
                assert batch[f"{key}_is_pad"][at].tolist() == pads
                np.testing.assert_array_equal(batch[key][at].numpy(), expected)
            reward = episode["next.reward"][frame]
            np.testing.assert_array_equal(batch["next.reward"][at], reward.reshape(()))
    assert sorted(seen) == list(range(len(seen))) and len(seen) == sum(
        e.length for e in cache.episodes
    )


def test_between_frames_values_are_interpolated(cache, truth):
    offsets = [-0.041, 0.0123, 0.2]
    streams = {"observation.state": offsets}
    joints = slice(0, 7)  # the gripper holds
    for batch in rc.Loader(cache, 32, delta_timestamps=streams, streams=[], shuffle=False):
        for at in range(len(batch["index"])):
            values = truth[int(batch["episode_index"][at])]["observation.state"]
            times = np.arange(len(values)) / FPS
            targets = np.clip(int(batch["frame_index"][at]) / FPS + np.array(offsets), 0, times[-1])
            expected = np.stack([np.interp(targets, times, column) for column in values.T], 1)
            got = batch["observation.state"][at].numpy()
            np.testing.assert_allclose(got[:, joints], expected[:, joints], atol=2e-5)


def test_causal_windows_look_only_back(cache, truth):
    loader = rc.Loader(
        cache, 16, delta_timestamps={"observation.state": [-0.01]}, causal=True, streams=[]
    )
    for batch in loader:
        for at in range(len(batch["index"])):
            frame = int(batch["frame_index"][at])
            values = truth[int(batch["episode_index"][at])]["observation.state"]
            np.testing.assert_array_equal(
                batch["observation.state"][at, 0], values[max(frame - 1, 0)]
            )


def test_pictures_as_floats_and_scaled_numbers(cache, truth):
    loader = rc.Loader(
        cache,
        8,
        delta_timestamps={"observation.images.wrist": [0.0]},
        image_dtype="float32",
        normalize={"action": "mean_std", "observation.state": "min_max"},
    )
    batches = list(loader)
    actions = torch.cat([batch["action"] for batch in batches])
    np.testing.assert_allclose(actions.mean(0), 0, atol=1e-3)
    moving = cache.stats["action"]["std"] > 1e-6
    np.testing.assert_allclose(actions.std(0, unbiased=False)[moving], 1, atol=1e-3)
    states = torch.cat([batch["observation.state"] for batch in batches])
    assert states.min() >= -1.0001 and states.max() <= 1.0001
    batch = batches[0]
    picture = batch["observation.images.wrist"][0, 0]
    source = truth[int(batch["episode_index"][0])]["observation.images.wrist"]
    expected = source[int(batch["frame_index"][0])].transpose(2, 0, 1) / 255
    np.testing.assert_allclose(picture, expected, atol=1e-6)


def test_the_order_is_a_pure_function_of_seed_and_epoch(cache):
    make = lambda **options: rc.Loader(cache, 16, streams=["action"], **options)  # noqa: E731
    first = make(seed=5)
    one, two = order(first), order(first)
    assert one != two and sorted(one) == sorted(two)
    again = make(seed=5, threads=1, prefetch=7)
    assert (order(again), order(again)) == (one, two)
    assert order(make(seed=6)) != one
    assert order(make(shuffle=False)) == sorted(one)


def test_map_style_samples_are_those_of_batches(cache):
    windows = cache.windows(delta_timestamps=DELTAS)
    batch = windows.batch([5, 0, len(windows) - 1])
    for at, number in enumerate((5, 0, -1)):
        sample = windows[number]
        for key, value in sample.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, batch[key][at]), key
    with pytest.raises(IndexError):
        windows[len(windows)]


def test_ranks_share_an_epoch(cache):
    parts = [
        order(rc.Loader(cache, 5, streams=["action"], rank=rank, world_size=3, drop_last=True))
        for rank in range(3)
    ]
    assert len({len(part) for part in parts}) == 1
    everything = [number for part in parts for number in part]
    assert len(set(everything)) == len(everything)


def test_selections_narrow_the_samples(cache):
    lengths = [episode.length for episode in cache.episodes]
    assert rc.Loader(cache, 4, episodes=[1, 3]).num_samples == lengths[1] + lengths[3]
    task = cache.episode(0).tasks[0]
    of_task = sum(e.length for e in cache.episodes if task in e.tasks)
    assert rc.Loader(cache, 4, tasks=[task]).num_samples == of_task
    longest = max(lengths)
    assert rc.Loader(cache, 4, filter=lambda e: e.length == longest).num_samples >= longest


def test_a_grid_of_any_rate(cache):
    loader = rc.Loader(cache, 8, rate=50.0, delta_timestamps={"action": [0.0]}, streams=[])
    spans = [(episode.length - 1) / FPS for episode in cache.episodes]
    assert loader.num_samples == sum(int(np.floor(span * 50 + 1e-6)) + 1 for span in spans)
    for batch in loader:
        np.testing.assert_allclose(batch["timestamp"], batch["frame_index"] / 50, atol=1e-6)
        assert not batch["action_is_pad"].any()


def test_octos_masks(cache):
    preset = rc.presets.octo(window_size=2, action_horizon=4)
    for batch in rc.Loader(cache, 8, shuffle=False, **preset.options(cache)):
        out = preset(batch)
        assert out["action"].shape[1:] == (2, 4, 8)
        assert out["action_pad_mask"].shape == out["action"].shape
        first = batch["frame_index"] == 0
        assert bool((~out["timestep_pad_mask"][first, 0]).all())
        # The second observation's first action is the one now.
        plain = rc.Loader(cache, 8, streams=["action"], shuffle=False)
        torch.testing.assert_close(out["action"][:, 1, 0], next(iter(plain))["action"])
        break
