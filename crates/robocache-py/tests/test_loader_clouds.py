"""Point clouds in the loader: as they are, and as grids."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import robocache as rc
from lerobot_files import Episode, Layout, write
from lerobot_parts import Feature
from loader_data import FPS, ingest
from refusal import assert_refused

pytest.importorskip("pyarrow")

CLOUD = "observation.point_cloud"
BARE = "observation.lidar"
GRID = {"origin": (-1.0, -1.0, -1.0), "voxel_size": 0.5, "shape": (4, 4, 4)}
POINTS = 40


def clouds(length: int, seed: int) -> np.ndarray:
    """Points with a colour, fewer in every frame, filled up with NaN."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1.2, 1.2, (length, POINTS, 6)).astype(np.float32)
    for frame in range(length):
        points[frame, POINTS - frame :] = np.nan
    return points


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    root = tmp_path_factory.mktemp("clouds")
    return ingest(dataset(root / "data", [clouds(7, 7), clouds(9, 9)]), root / "cache")


def dataset(root, episodes):
    features = {
        CLOUD: Feature("float32", (POINTS, 6)),
        BARE: Feature("float32", (POINTS, 3)),
        "observation.keypoints": Feature("float32", (4, 3)),
        "action": Feature("float32", (2,)),
    }
    made = [
        Episode(
            {
                CLOUD: points,
                BARE: points[..., :3].copy(),
                "observation.keypoints": np.zeros((len(points), 4, 3), np.float32),
                "action": np.ones((len(points), 2), np.float32),
            },
            ("a",),
        )
        for points in episodes
    ]
    return write(root, features, made, Layout(fps=FPS, stats=False))


def grid_of(points: np.ndarray, **options) -> torch.Tensor:
    return rc.voxelize(torch.from_numpy(points[..., :3].copy()), **GRID, **options)


def test_a_cloud_is_known_by_its_name_and_shape(cache):
    info = cache.streams[CLOUD]
    assert info.kind == "point_cloud" and tuple(info.shape) == (POINTS, 6)
    assert cache.streams["observation.keypoints"].kind == "vector"
    assert len(cache.episodes) == 2 and not cache.skipped, "NaN behind the last point is no fault"


def test_points_that_are_infinite_are_a_fault_and_none_at_all_a_warning(tmp_path):
    bad, none = clouds(5, 1), np.full((5, POINTS, 6), np.nan, np.float32)
    bad[2, 3, 1] = np.inf
    write_bad = dataset(tmp_path / "bad", [clouds(5, 2), bad])
    findings = rc.dataset(write_bad).check()
    found = [(f.level, f.code, f.stream, f.episode) for f in findings if f.code == "not_finite"]
    assert ("error", "not_finite", CLOUD, 1) in found
    cache = ingest(write_bad, tmp_path / "cache")
    assert len(cache.episodes) == 1 and len(cache.skipped) == 1
    findings = rc.dataset(dataset(tmp_path / "none", [none])).check()
    assert any(f.level == "warning" and "all of them are NaN" in f.message for f in findings)


def test_statistics_are_those_of_the_coordinates(cache):
    points = np.concatenate([clouds(7, 7), clouds(9, 9)]).reshape(-1, 6)
    stats = cache.stats[CLOUD]
    np.testing.assert_allclose(stats["mean"], np.nanmean(points, 0), rtol=1e-5)
    np.testing.assert_array_equal(stats["max"], np.nanmax(points, 0))
    batch = cache.windows(streams=[CLOUD], normalize={CLOUD: "min_max"}).batch(range(16))
    found = batch[CLOUD][~batch[CLOUD].isnan()]
    assert found.min() == -1 and found.max() == 1


def test_points_come_as_the_nearest_cloud(cache):
    offsets = {CLOUD: [-0.6 / FPS, 0.0]}
    batch = cache.windows(delta_timestamps=offsets, streams=[]).batch([3])
    np.testing.assert_array_equal(batch[CLOUD][0].numpy(), clouds(7, 7)[2:4])


def test_grids_instead_of_points(cache):
    plain = cache.windows(streams=[CLOUD], voxelize={CLOUD: GRID}).batch([2, 5])
    assert plain[CLOUD].shape == (2, 4, 4, 4) and plain[CLOUD].dtype is torch.uint8
    assert torch.equal(plain[CLOUD], grid_of(clouds(7, 7)[[2, 5]]))
    offsets = {CLOUD: [-1 / FPS, 0.0, 1 / FPS]}
    loader = rc.Loader(
        cache, 3, delta_timestamps=offsets, shuffle=False, voxelize={CLOUD: GRID}, threads=2
    )
    batch = next(iter(loader))
    assert batch[CLOUD].shape == (3, 3, 4, 4, 4) and batch[f"{CLOUD}_is_pad"].shape == (3, 3)
    assert torch.equal(batch[CLOUD][1], grid_of(clouds(7, 7)[0:3]))


def test_features_are_what_follows_the_coordinates(cache):
    grid = {**GRID, "reduce": "mean", "dtype": "float32", "fill": -1.0}
    got = cache.windows(streams=[CLOUD], voxelize={CLOUD: grid}).batch([4])[CLOUD]
    points = torch.from_numpy(clouds(7, 7)[4])
    expected = rc.voxelize(points[:, :3], points[:, 3:], **grid)
    assert got.shape == (1, 4, 4, 4, 3) and torch.equal(got[0], expected)


def test_grids_travel_to_other_processes(cache):
    windows = cache.windows(streams=[CLOUD], voxelize={CLOUD: GRID})
    again = pickle.loads(pickle.dumps(windows))
    assert torch.equal(again[6][CLOUD], windows[6][CLOUD])
    loader = pickle.loads(pickle.dumps(rc.Loader(cache, 2, voxelize={CLOUD: GRID})))
    assert next(iter(loader))[CLOUD].shape == (2, 4, 4, 4)


def test_grids_and_normalization_of_one_stream_are_refused(cache):
    def call():
        cache.windows(voxelize={CLOUD: GRID}, normalize={CLOUD: "min_max"})

    assert_refused(call, "InvalidArgument", "voxelize", "normalize would move", op="Loader")


def test_options_are_kept_as_they_were(cache):
    origin = [-1.0, -1.0, -1.0]
    windows = cache.windows(streams=[CLOUD], voxelize={CLOUD: {**GRID, "origin": origin}})
    before = windows[3][CLOUD]
    origin[0] = 50.0
    assert torch.equal(windows[3][CLOUD], before)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"action": GRID}, "expected a stream of point clouds; this is a vector"),
        ({"nothing": GRID}, "there is none of that name"),
        ({CLOUD: {**GRID, "sparse": True}}, "got 'sparse'"),
        ({CLOUD: {"origin": (0, 0, 0)}}, "voxel_size"),
        ({CLOUD: {**GRID, "voxel_size": -1}}, "voxel_size"),
        ({CLOUD: {**GRID, "reduce": "median"}}, "reduce"),
        ({CLOUD: {**GRID, "shape": (2**25, 1, 1)}}, "shape"),
        ({BARE: {**GRID, "reduce": "mean"}}, "no features behind their coordinates"),
        ({CLOUD: 0.5}, "expected a dict by name"),
        ("all", "expected a dict by name"),
    ],
)
def test_wrong_grids_are_refused(cache, chosen, words):
    def call():
        cache.windows(voxelize=chosen)

    assert_refused(call, "InvalidArgument", "voxelize", words, op="Loader")
