"""Datasets as Python objects: mappings, sequences, texts, pickles, and what their errors carry."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import robocache as rc
from dataset_reference import TESTDATA
from helpers import assert_same_bits

TOP = "observation.images.top"


@pytest.fixture(scope="module")
def ds() -> rc.Dataset:
    return rc.dataset(TESTDATA / "lerobot_v30")


# -- mappings and sequences -------------------------------------------------------------------


def test_an_episode_is_a_mapping(ds):
    episode = ds.episode(1)
    assert list(episode.keys()) == list(episode) == list(ds.streams)
    assert [name for name, _ in episode.items()] == list(episode)
    assert [stream.info.name for stream in episode.values()] == list(episode)
    everything = dict(episode)
    assert_same_bits(everything["action"].values, episode["action"].values)
    assert episode.get("action").info.name == "action"
    assert episode.get("nothing") is None and episode.get("nothing", 7) == 7


def test_a_name_that_is_not_there_is_a_key_error_too(ds):
    with pytest.raises(KeyError) as caught:
        _ = ds.episode(0)["nothing"]
    error = caught.value
    assert isinstance(error, rc.InvalidArgument) and isinstance(error, ValueError)
    assert (error.kind, error.op, error.argument) == ("invalid_argument", "dataset", "stream")
    assert str(error).startswith('dataset: stream: there is no "nothing"; the streams are ')
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize(
    "part", [slice(1, 3), slice(None), slice(-2, None), slice(None, None, -2), slice(9, 99)]
)
def test_slices_of_episodes(ds, part):
    got = ds.episodes[part]
    assert isinstance(got, list)
    assert [e.index for e in got] == list(range(len(ds)))[part]


@pytest.mark.parametrize("at", [5, -6, 10**30, -(10**30)])
def test_an_episode_that_is_not_there(ds, at):
    with pytest.raises(IndexError):
        _ = ds.episodes[at]
    with pytest.raises(rc.InvalidArgument) as caught:
        ds.episode(at)
    assert caught.value.op == "dataset"
    with pytest.raises(rc.InvalidArgument, match="whole number, got 'x'"):
        ds.episode("x")


# -- texts and pickles ------------------------------------------------------------------------


def test_a_stream_says_what_it_is(ds):
    assert repr(ds.episode(1)["action"]) == "<vector action: float32 [8] of episode 1>"
    assert repr(ds.episode(0)[TOP]).startswith(f"<video {TOP}: uint8 [")


def test_a_pickle_opens_the_dataset_anew(ds, monkeypatch, tmp_path):
    monkeypatch.chdir(TESTDATA)
    near = pickle.dumps(rc.dataset("lerobot_v30"))
    monkeypatch.chdir(tmp_path)
    for pickled in (pickle.dumps(ds), near):
        again = pickle.loads(pickled)
        assert (again.format, len(again)) == (ds.format, len(ds))
        assert_same_bits(again.episode(2)["action"].values, ds.episode(2)["action"].values)


def test_a_path_of_bytes(tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.symlink(os.fsencode(TESTDATA / "lerobot_v30"), odd)
    ds = rc.dataset(odd)
    assert os.fsencode(ds.path) == odd and len(ds) == 5
    assert len(pickle.loads(pickle.dumps(ds))) == 5
    for nothing in (None, 7, ["a"]):
        with pytest.raises(rc.InvalidArgument, match="dataset: path: expected a path") as caught:
            rc.dataset(nothing)
        assert (caught.value.op, caught.value.argument) == ("dataset", "path")


# -- errors -----------------------------------------------------------------------------------


def test_errors_say_that_they_are_of_a_dataset(ds, tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(rc.RoboCacheError, match=r"^dataset: ") as caught:
            rc.dataset(place)
        assert caught.value.op == "dataset"
    text = ds.episode(0)["action"]
    with pytest.raises(rc.InvalidArgument, match=r"^dataset: .*use \.values") as caught:
        text.frames(0, 1)
    assert caught.value.op == "dataset"


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 2), (0, 10**9), (5, 2), (0, 10**30), (99_999, 99_999), (-(10**30), 1)]
)
def test_frames_that_are_not_there(ds, start, stop):
    stream = ds.episode(0)[TOP]
    with pytest.raises(rc.InvalidArgument) as caught:
        stream.frames(start, stop)
    assert caught.value.op == "dataset"
    assert stream.frames(0, 0).shape[0] == 0


def test_pictures_are_the_callers_own(ds):
    stream = ds.episode(0)[TOP]
    one = stream.frames(0, 1)
    one[:] = 0
    assert stream.frames(0, 1).any()
    assert np.asarray(stream.values).flags.writeable
