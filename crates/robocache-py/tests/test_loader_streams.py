"""What batches are made of: types, shapes, text, clocks, missing streams, several sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import robocache as rc
from loader_data import FPS, NUMBERS, ingest, late_layout, write_dataset

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """One stream of every type."""
    root = tmp_path_factory.mktemp("typed")
    features = {name: (dtype, (3,)) for name, dtype in NUMBERS.items()}
    write_dataset(root / "data", [(6, "a")], features=features)
    streams = {name: name for name in NUMBERS} | {"task_index": "task_index"}
    return ingest(root / "data", root / "cache", streams=streams)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_type_reaches_torch_as_itself(typed, dtype):
    batch = typed.windows(streams=[dtype], methods={dtype: "previous"}).batch(range(6))
    assert batch[dtype].dtype is getattr(torch, dtype)
    np.testing.assert_array_equal(batch[dtype].numpy(), typed.episode(0)[dtype].values)
    offsets = {dtype: [-0.5 / FPS, 0.0]}
    windows = typed.windows(delta_timestamps=offsets, streams=[], methods={dtype: "previous"})
    got = windows.batch([3])[dtype]
    assert got.dtype is getattr(torch, dtype)
    np.testing.assert_array_equal(got[0].numpy(), typed.episode(0)[dtype].values[2:4])


def test_bfloat16_reaches_torch_as_bfloat16(tmp_path):
    write_dataset(tmp_path / "data", [(6, "a")])
    wide = ingest(tmp_path / "data", tmp_path / "wide", streams=["action"])
    cache = ingest(tmp_path / "data", tmp_path / "cache", streams={"action": {"dtype": "bfloat16"}})
    expected = torch.from_numpy(wide.episode(0)["action"].values).to(torch.bfloat16)
    batch = cache.windows(delta_timestamps={"action": [0.0, 0.5 / FPS]}).batch(range(5))
    assert batch["action"].dtype is torch.bfloat16
    assert torch.equal(batch["action"][:, 0], expected[:5])
    middle = (expected[:5].float() + expected[1:].float()) / 2
    torch.testing.assert_close(batch["action"][:, 1].float(), middle, rtol=0.01, atol=0.01)
    scaled = cache.windows(normalize={"action": "min_max"}).batch([0])
    assert scaled["action"].dtype is torch.float32


def test_single_numbers_have_no_axis(tmp_path):
    features = {"next.reward": ("float32", (1,)), "action": ("float32", (2,))}
    write_dataset(tmp_path / "data", [(6, "a")], features=features)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    plain = cache.windows().batch(range(6))
    assert plain["next.reward"].shape == (6,) and plain["task_index"].shape == (6,)
    values = cache.episode(0)["next.reward"].values
    np.testing.assert_array_equal(plain["next.reward"], values.ravel())
    deltas = {"next.reward": [0.0, 1 / FPS, 2 / FPS]}
    assert cache.windows(delta_timestamps=deltas).batch([0, 1])["next.reward"].shape == (2, 3)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    root = tmp_path_factory.mktemp("plain")
    write_dataset(root / "data", [(20, "a"), (9, "b")])
    return ingest(root / "data", root / "cache")


def test_stamps_that_are_late_are_looked_for_later(plain):
    values = plain.episode(0)["action"].values
    for frames in (1, -1, 3):
        windows = plain.windows(
            delta_timestamps={"action": [0.0], "observation.state": [0.0]},
            time_offset={"action": frames / FPS},
        )
        batch = windows.batch([10])
        np.testing.assert_array_equal(batch["action"][0, 0], values[10 + frames])
        state = plain.episode(0)["observation.state"].values
        np.testing.assert_array_equal(batch["observation.state"][0, 0], state[10])
    # The anchor's own stamps are late too: what was measured then is its own sample.
    own = plain.windows(streams=[], anchor="action", delta_timestamps={"action": [0.0]})
    late = plain.windows(
        streams=["observation.state"],
        anchor="action",
        delta_timestamps={"action": [0.0]},
        time_offset={"action": 1 / FPS},
    )
    assert torch.equal(late.batch([10])["action"], own.batch([10])["action"])
    np.testing.assert_array_equal(
        late.batch([10])["observation.state"][0], plain.episode(0)["observation.state"].values[9]
    )


def test_a_grid_is_where_late_streams_really_overlap(plain):
    options = {"streams": ["action", "observation.state"], "rate": float(FPS)}
    both = len(plain.windows(**options))
    late = plain.windows(**options, time_offset={"action": 2 / FPS})
    assert len(late) == both - 2 * 2, "two frames less in each of two episodes"


def test_the_timestamp_counts_from_the_episodes_start(tmp_path):
    write_dataset(tmp_path / "data", [(8, "a"), (5, "b")], layout=late_layout())
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    assert cache.episode(0)["action"].times[0] == 50_000_000
    for options in ({}, {"anchor": "action"}, {"rate": 20.0}):
        batch = cache.windows(streams=["action"], **options).batch(range(8))
        np.testing.assert_allclose(batch["timestamp"], np.arange(8) / 20, atol=1e-6)


def test_a_gap_that_is_too_long_is_padding(plain):
    offsets = [-0.5 / FPS, 0.0, 0.25 / FPS]
    for most, expected in ((0.5 / FPS, [True, False, True]), (2 / FPS, [False] * 3)):
        windows = plain.windows(
            streams=[], delta_timestamps={"action": offsets}, max_gap={"action": most}
        )
        assert windows.batch([4])["action_is_pad"][0].tolist() == expected
        usual = plain.windows(streams=[], delta_timestamps={"action": offsets})
        assert torch.equal(windows.batch([4])["action"], usual.batch([4])["action"])


def test_words(tmp_path):
    write_dataset(tmp_path / "data", [(6, "go")], text=True)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    assert cache.windows(streams=["lang"]).batch([0, 2])["lang"] == ["go 0", "go 2"]
    assert cache.windows(streams=["lang"])[3]["lang"] == "go 3"
    windows = cache.windows(streams=[], delta_timestamps={"lang": [0.0, 9.0]})
    batch = windows.batch([1])
    assert batch["lang"] == [["go 1", "go 5"]]
    assert batch["lang_is_pad"].tolist() == [[False, True]]
    between = {"lang": [0.75 / FPS]}
    for method, word in (("previous", "go 1"), ("nearest", "go 2")):
        windows = cache.windows(streams=[], delta_timestamps=between, methods={"lang": method})
        assert windows.batch([1])["lang"] == [[word]]


# -- methods ------------------------------------------------------------------------------------


def test_methods_by_ranges_of_columns(plain):
    ranges = [("linear", 0, 1), ("previous", 1, 2), ("nearest", 2, 3)]
    windows = plain.windows(
        streams=[],
        delta_timestamps={"observation.state": [0.75 / FPS]},
        methods={"observation.state": ranges},
    )
    got = windows.batch([4])["observation.state"][0, 0].numpy()
    before, after = plain.episode(0)["observation.state"].values[4:6]
    np.testing.assert_allclose(got[0], before[0] + 0.75 * (after[0] - before[0]), rtol=1e-4)
    assert got[1] == before[1] and got[2] == after[2]


@pytest.mark.parametrize(
    "ranges",
    [
        [("linear", 1, 3)],
        [("linear", 0, 2), ("previous", 1, 3)],
        [("linear", 2, 1), ("previous", 1, 3)],
        [("linear", 0, 1), ("linear", 2, 3)],
        [("linear", 0, 2)],
        [("linear", 0, 4)],
        [("linear", 0, 3), ("linear", 0, 3)],
        [("linear", 3, 3)],
        [],
        3,
        "spline",
        "slerp",  # three columns are no quaternion
    ],
)
def test_ranges_that_do_not_cover_the_columns_once_are_refused(plain, ranges):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.Loader(plain, 4, methods={"observation.state": ranges})
    assert caught.value.argument == "methods", str(caught.value)


def test_methods_that_a_stream_cannot_have_are_refused(tmp_path):
    features = {"count": ("int64", (1,)), "done": ("bool", (1,))}
    write_dataset(tmp_path / "data", [(6, "a")], features=features, pictures=(8, 8), text=True)
    cache = ingest(tmp_path / "data", tmp_path / "cache", images="raw")
    for stream in ("count", "done", "lang", "observation.images.cam"):
        for method in ("linear", "slerp", "cubic", "angle", "rot6d"):
            with pytest.raises(rc.InvalidArgument) as caught:
                rc.Loader(cache, 4, methods={stream: method})
            assert caught.value.argument == "methods", str(caught.value)
        for method in ("nearest", "previous", "next"):
            rc.Loader(cache, 4, methods={stream: method})
    with pytest.raises(rc.InvalidArgument):
        rc.Loader(
            cache,
            4,
            methods={"observation.images.cam": [("previous", 0, 192), ("nearest", 192, 192)]},
        )
    for stream in ("count", "done", "lang"):
        with pytest.raises(rc.InvalidArgument) as caught:
            rc.Loader(cache, 4, normalize={stream: "min_max"})
        assert caught.value.argument == "normalize", str(caught.value)


# -- several sources ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two sources: the second has neither pictures nor states, other tasks and another clock."""
    root = tmp_path_factory.mktemp("mixed")
    features = {
        "observation.state": ("float32", (3,)),
        "action": ("float32", (2,)),
        "count": ("int32", (2,)),
    }
    episodes = [(5, "pick"), (1, "place"), (7, "pick")]
    write_dataset(root / "a", episodes, features=features, pictures=(8, 8), text=True)
    write_dataset(root / "b", [(4, "open"), (6, "pick")], seed=1)
    ingest(root / "a", root / "cache", tag="a", images="raw")
    return ingest(root / "b", root / "cache", tag="b", streams=["action", "task_index"])


def test_tasks_of_all_sources_have_one_numbering(mixed):
    true = [mixed.episode(at).tasks[0] for at in range(5) for _ in range(mixed.episode(at).length)]
    for streams in (["action"], ["action", "task_index"]):
        windows = mixed.windows(streams=streams)
        batch = windows.batch(range(len(windows)))
        assert batch["task"] == true
        assert windows.tasks == ["pick", "place", "open"]
        assert [windows.tasks[n] for n in batch["task_index"].tolist()] == true
        assert batch["source_index"].tolist() == [0] * 13 + [1] * 10
    steps = mixed.windows(streams=[], delta_timestamps={"task_index": [-1 / FPS, 0.0]})
    batch = steps.batch([14])
    assert (batch["task_index"].tolist(), batch["task"]) == ([[2, 2]], ["open"])
    assert rc.Loader(mixed, 4).tasks == ["pick", "place", "open"]


def test_one_source_needs_no_index(plain):
    assert "source_index" not in plain.windows().batch([0])


def test_tasks_change_within_an_episode(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_dataset(tmp_path / "data", [(4, ("one", "two")), (6, "two")])
    file = next((tmp_path / "data" / "data").rglob("*.parquet"))
    table = pq.read_table(file)
    at = table.schema.get_field_index("task_index")
    changed = pa.array([0, 0, 1, 1] + [1] * 6, pa.int64())
    pq.write_table(table.set_column(at, table.schema.field(at), changed), file)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    assert cache.episode(0).tasks == ["one", "two"]
    for streams in (["action"], ["task_index"]):
        batch = cache.windows(streams=streams).batch(range(6))
        assert batch["task"] == ["one"] * 2 + ["two"] * 4
        assert batch["task_index"].tolist() == [0, 0, 1, 1, 1, 1]


def test_an_episode_without_a_stream_gives_nan_and_padding(mixed):
    deltas = {
        key: [-1 / FPS, 0.0]
        for key in ("observation.state", "count", "observation.images.cam", "lang", "action")
    }
    batch = mixed.windows(delta_timestamps=deltas).batch([14, 2])
    assert batch["observation.state"][0].isnan().all()
    assert not batch["observation.state"][1].isnan().any()
    assert (batch["count"][0] == 0).all() and (batch["observation.images.cam"][0] == 0).all()
    assert batch["observation.images.cam"][1].any() and batch["lang"][0] == ["", ""]
    for key in deltas:
        missing = key != "action"
        assert batch[f"{key}_is_pad"][0].tolist() == [missing, missing], key
        assert batch[f"{key}_is_pad"][1].tolist() == [False, False], key
    floats = mixed.windows(image_dtype="float32").batch([14])
    assert (floats["observation.images.cam"] == 0).all()
    total = sum(episode.length for episode in mixed.episodes)
    assert sum(len(batch["index"]) for batch in rc.Loader(mixed, 4)) == total


def test_a_grid_over_the_chosen_streams_only(mixed):
    """Pictures and states that are not wanted, or not there, do not narrow it."""
    spans = [(episode.length - 1) / FPS for episode in mixed.episodes]
    expected = sum(int(np.floor(span * 60 + 1e-6)) + 1 for span in spans)
    assert len(mixed.windows(streams=["action"], rate=60.0)) == expected
    # Episodes that have none of the streams have no samples.
    first = sum(int(np.floor(span * 60 + 1e-6)) + 1 for span in spans[:3])
    assert len(mixed.windows(streams=["count"], rate=60.0)) == first
    assert len(mixed.windows(streams=["action"], anchor="count")) == 13


def test_pictures_that_are_not_wanted_are_not_read(tmp_path):
    write_dataset(tmp_path / "data", [(6, "a")], pictures=(16, 16))
    cache = ingest(tmp_path / "data", tmp_path / "cache", images="raw")
    (shard,) = (tmp_path / "cache").rglob("observation.images.cam.arrow")
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    cache = rc.open(tmp_path / "cache")
    for options in ({}, {"rate": 10.0}, {"anchor": "action"}):
        loader = rc.Loader(cache, 4, streams=["action"], **options)
        assert sum(len(batch["index"]) for batch in loader) == loader.num_samples
    with pytest.raises(rc.CorruptData):
        list(rc.Loader(cache, 4))


# -- weights --------------------------------------------------------------------------------------


def shares(loader) -> dict[int, int]:
    sources = torch.cat([batch["source_index"] for batch in loader])
    return {source: int((sources == source).sum()) for source in range(2)}


def test_weights_with_filters_and_sources_without_samples(mixed):
    options = {"streams": ["action"], "weights": {"a": 1.0, "b": 3.0}}
    loader = rc.Loader(mixed, 23, **options)
    drawn = [shares(loader) for _ in range(40)]
    assert sum(epoch[1] for epoch in drawn) / (40 * 23) == pytest.approx(0.75, abs=0.02)
    # Only the second source is left.
    assert shares(rc.Loader(mixed, 4, episodes=[3, 4], **options)) == {0: 0, 1: 10}
    only = rc.Loader(mixed, 4, streams=["action"], episodes=[0, 4], weights={"b": 1.0})
    assert shares(only) == {0: 0, 1: 11}
    # The second source has no samples of this anchor.
    assert shares(rc.Loader(mixed, 4, anchor="count", **options)) == {0: 13, 1: 0}


@pytest.mark.parametrize(
    ("weights", "more"),
    [
        ({}, {}),
        ({"a": -1.0}, {}),
        ({"a": float("nan")}, {}),
        ({"a": "x"}, {}),
        ({"nobody": 1.0}, {}),
        ([1.0, 1.0], {}),
        ({"a": 1.0}, {"episodes": [3, 4]}),
        ({"b": 1.0}, {"anchor": "count"}),
        ({"a": 1.0, "b": 1e-9}, {}),
    ],
)
def test_weights_that_draw_nothing_are_refused_at_once(mixed, weights, more):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.Loader(mixed, 4, streams=["action"], weights=weights, **more)
    assert caught.value.argument == "weights", str(caught.value)


def test_a_small_weight_is_still_drawn(mixed):
    loader = rc.Loader(mixed, 23, streams=["action"], weights={"a": 1.0, "b": 2e-4})
    drawn = sum(shares(loader)[1] for _ in range(3000))
    assert 3 <= drawn <= 30, "about 14 of 69,000"


@pytest.mark.parametrize("scale", [1e308, 1e-308])
def test_only_the_proportions_of_weights_count(mixed, scale):
    options = {"streams": ["action"], "seed": 5}
    want = rc.Loader(mixed, 23, weights={"a": 1.0, "b": 1.0}, **options)
    got = rc.Loader(mixed, 23, weights={"a": scale, "b": scale}, **options)
    assert [shares(got) for _ in range(20)] == [shares(want) for _ in range(20)]


# -- presets --------------------------------------------------------------------------------------


def test_octos_steps_are_real_where_all_observations_are(mixed):
    preset = rc.presets.octo(2, 3)
    windows = mixed.windows(**preset.options(mixed))
    out = preset(windows.batch([2, 14]))
    assert out["timestep_pad_mask"].tolist() == [[True, True], [False, False]]
    for wrong in ((0, 1), (1, 0), (1.5, 1), ("2", 1)):
        with pytest.raises(rc.InvalidArgument):
            rc.presets.octo(*wrong)
