"""Options of the loader: what is refused and how, and what is meant by short forms."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import robocache as rc
from loader_data import ingest, write_dataset

pytest.importorskip("pyarrow")
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    root = tmp_path_factory.mktemp("options")
    write_dataset(root / "data", [(17, "put it"), (9, "take it")], pictures=(8, 8))
    return ingest(root / "data", root / "cache", images="raw")


WRONG = [
    (argument, value)
    for argument, values in {
        "batch_size": (0, -1, 2.5, "4", None, True, 2**31, 2**70),
        "delta_timestamps": (
            {"nonsense": [0.0]},
            {"action": [NAN]},
            {"action": [INFINITY]},
            {"action": [9e9]},
            {"action": ["a"]},
            {"action": [None]},
            {"action": 0.0},
            {"action": "0"},
            {3: [0.0]},
            [0],
            "action",
        ),
        "streams": (["nonsense"], "nonsense", 3, [3], {"action": 1}),
        "anchor": ("nonsense", 3),
        "rate": (0.0, -1.0, NAN, INFINITY, 1e7, "10"),
        "methods": ({"nonsense": "linear"}, {"action": "spline"}, {"action": None}, "linear"),
        "tolerance_s": (-1.0, NAN, INFINITY, 1e300, "1", None),
        "causal": ("no", 1, None),
        "time_offset": (
            {"nonsense": 0.1},
            {"action": NAN},
            {"action": 1e300},
            {"action": -9e9},
            {"action": "late"},
            0.1,
        ),
        "max_gap": ({"nonsense": 1.0}, {"action": -1.0}, {"action": NAN}, {"action": 1.0}, 1.0),
        "episodes": ([-1], [99], ["a"], [1.5], [], [True], 1, "0", np.array(1)),
        "tasks": (3, [3], {"put it": 1}),
        "filter": (3, "put it"),
        "split": (
            "train",
            ("test", 0.5),
            ("train", 1.0),
            ("train", 0),
            ("train", "x"),
            ("train",),
            ("train", NAN),
            0.9,
            {"train": 0.9},
        ),
        "weights": ({"nobody": 1.0}, 3),
        "normalize": (
            "mean_std",
            {"action": "median"},
            {"action": 3},
            {"nonsense": "mean_std"},
            {"task_index": "mean_std"},
        ),
        "image_transform": (3,),
        "image_dtype": ("float16", 3, None),
        "shuffle": ("no", 1, None),
        "seed": (-1, 1.5, 2**64, "0", None, True),
        "rank": (0, 1),
        "world_size": (2, 1),
        "drop_last": (1,),
        "threads": (0, -1, 1.5, "2", 10**9),
        "prefetch": (0, -1, 1.5, None, 10**9),
        "pin_memory": ("yes",),
    }.items()
    for value in values
]


@pytest.mark.parametrize(("argument", "value"), WRONG)
def test_wrong_options_are_refused_by_name(cache, argument, value):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.Loader(cache, **({"batch_size": 4} | {argument: value}))
    # A rank alone lacks the other.
    other = {"rank": "world_size", "world_size": "rank"}
    assert caught.value.argument in (argument, other.get(argument)), str(caught.value)
    assert str(caught.value).startswith("Loader: ")


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"anchor": "action", "rate": 10.0}, "rate"),
        ({"rate": 10.0, "streams": []}, "streams"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": -1, "world_size": 2}, "rank"),
        ({"rank": 0, "world_size": 0}, "world_size"),
        ({"rank": 0, "world_size": 2**40}, "world_size"),
        ({"tasks": "nothing"}, "tasks"),
        ({"tasks": []}, "tasks"),
        ({"tasks": "put it", "episodes": [1]}, "tasks"),
        ({"filter": lambda episode: False}, "episodes"),
    ],
)
def test_options_that_do_not_go_together_are_refused(cache, options, argument):
    with pytest.raises(rc.InvalidArgument) as caught:
        rc.Loader(cache, 4, **options)
    assert caught.value.argument == argument, str(caught.value)


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"normalize": {"action": "mean_sdt"}}, "mean_std"),
        ({"image_dtype": "flaot32"}, "float32"),
        ({"methods": {"action": "linr"}}, "linear"),
        ({"tasks": "put in"}, "put it"),
    ],
)
def test_a_misspelt_word_is_pointed_at(cache, options, meant):
    with pytest.raises(rc.InvalidArgument, match=f'; did you mean "{meant}"'):
        rc.Loader(cache, 4, **options)


def test_objects_say_what_they_are(cache):
    assert repr(cache.episodes) == f"<2 episodes of {cache.path}>"
    assert repr(cache.episode(1)["action"]).endswith(" of episode 1>")
    assert repr(cache.episode(1)["action"]).startswith("<vector action: float32 [")
    assert repr(cache.meta).startswith("<meta: 2 episodes, ")
    loader = rc.Loader(cache, 4)
    assert repr(loader.dataset()) == f"<iterable of {loader!r}>"


def test_a_rank_or_a_world_alone_is_refused(cache):
    for alone, missing in (({"world_size": 4}, "rank"), ({"rank": 1}, "world_size")):
        with pytest.raises(rc.InvalidArgument, match=missing):
            rc.Loader(cache, 4, **alone)


def test_something_else_than_a_cache_is_refused(cache):
    for wrong in (cache.path, None, cache._core):
        with pytest.raises(rc.InvalidArgument, match=r"what rc\.open gives"):
            rc.Loader(wrong, 4)


def test_one_text_means_itself(cache):
    loader = rc.Loader(cache, 4, tasks="put it", streams="action")
    assert loader.num_samples == 17
    batch = next(iter(loader))
    assert "action" in batch and "observation.state" not in batch


def test_numbers_of_numpy_and_torch_are_numbers(cache):
    loader = rc.Loader(
        cache,
        np.int64(4),
        streams=[],
        delta_timestamps={"action": np.array([0.0, 0.1]), "observation.state": torch.zeros(2)},
        episodes=np.array([1]),
        seed=np.uint64(2**63),
        rate=np.float32(10),
    )
    assert next(iter(loader))["action"].shape == (3, 2, 2)


def test_large_sizes_are_fine(cache):
    loader = rc.Loader(cache, 2**31 - 1, rank=0, world_size=2**31 - 1, streams=["action"])
    assert len(loader) == 1
    assert len(next(iter(loader))["index"]) == 1
    assert len(next(iter(rc.Loader(cache, 10**6, streams=["action"])))["index"]) == 26


def test_no_samples_and_no_offsets_are_empty(cache):
    windows = cache.windows(delta_timestamps={"action": [0.0, 0.1]})
    batch = windows.batch([])
    assert batch["action"].shape == (0, 2, 2) and batch["action_is_pad"].shape == (0, 2)
    assert batch["observation.images.cam"].shape == (0, 3, 8, 8)
    assert batch["index"].shape == (0,) and batch["task"] == []
    assert windows.__getitems__([]) == []
    none = cache.windows(delta_timestamps={"action": []}).batch([1])
    assert none["action"].shape == (1, 0, 2) and none["action_is_pad"].shape == (1, 0)


def test_samples_that_do_not_exist(cache):
    windows = cache.windows()
    assert int(windows[-1]["index"]) == 25
    for wrong in (26, -27):
        with pytest.raises(IndexError):
            windows[wrong]
    for wrong in ([26], [-1], [0.5], ["0"], [2**70], 3):
        with pytest.raises(rc.InvalidArgument):
            windows.batch(wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pinning_without_a_gpu_warns_and_goes_on(cache):
    with pytest.warns(RuntimeWarning, match="pin_memory: torch sees no GPU"):
        loader = rc.Loader(cache, 4, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(next(iter(loader))["index"]) == 4


def test_pictures_are_transformed(cache):
    loader = rc.Loader(cache, 4, image_transform=lambda pictures: pictures.float().mean((-1, -2)))
    batch = next(iter(loader))
    assert batch["observation.images.cam"].shape == (4, 3)
    assert batch["action"].shape == (4, 2)
