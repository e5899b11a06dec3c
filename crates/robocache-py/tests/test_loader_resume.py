"""Where a loader is: iterators, states, and continuing with other sizes, ranks and threads."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

import robocache as rc
from helpers import scaled
from loader_data import ingest, order, write_dataset

pytest.importorskip("pyarrow")
CHUNK = 100


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("resume")
    write_dataset(root / "data", [(17, "a"), (9, "b"), (27, "a"), (4, "c")])
    write_dataset(root / "more", [(8, "d")], seed=1)
    return root


@pytest.fixture(scope="module")
def cache(root):
    return ingest(root / "data", root / "cache")


def steps_of(loaders: list[rc.Loader], count: int | None) -> list[list[list[int]]]:
    """The samples of each step, by rank."""
    iterators = [iter(loader) for loader in loaders]
    out = []
    while count is None or len(out) < count:
        batches = [next(iterator, None) for iterator in iterators]
        assert len({batch is None for batch in batches}) == 1, "ranks have as many batches"
        if batches[0] is None:
            break
        out.append([batch["index"].tolist() for batch in batches])
    return out


def resume_once(cache: rc.Cache, rng: random.Random) -> None:
    """An epoch in several runs, each of another shape: every sample once, in the epoch's order."""
    seed, epoch = rng.choice([0, 7, 2**64 - 1]), rng.choice([0, 1, 5, 2**32 - 1])
    shuffle = rng.random() < 0.8
    make = lambda **options: rc.Loader(  # noqa: E731
        cache, streams=["action"], seed=seed, shuffle=shuffle, **options
    )
    whole = make(batch_size=1000, threads=1)
    whole.set_epoch(epoch)
    expected = order(whole)
    assert sorted(expected) == list(range(len(expected)))
    start = make(batch_size=1)
    start.set_epoch(epoch)
    state, seen = start.state_dict(), []
    runs = rng.randint(1, 4)
    for run in range(runs):
        world, size = rng.randint(1, 4), rng.randint(1, 20)
        loaders = [
            make(
                batch_size=size,
                rank=rank,
                world_size=world,
                threads=rng.randint(1, 3),
                prefetch=rng.randint(1, 4),
            )
            for rank in range(world)
        ]
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))
        left = len(expected) - len(seen)
        # Never the whole rest before the last run: an epoch that is done is followed by the next.
        count = None if run == runs - 1 else rng.randint(0, max((left - 1) // (world * size), 0))
        for step in steps_of(loaders, count):
            numbers = [number for part in step for number in part]
            if len(expected) - len(seen) < world:
                # Ranks without a sample take the last one again, so that none waits for others.
                numbers = sorted(set(numbers), key=expected.index)
            seen += numbers
        states = [loader.state_dict() for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
        assert (state["epoch"], state["position"]) == (epoch, len(seen))
    assert seen == expected


@pytest.mark.parametrize("chunk", range(10))
def test_resuming_loses_and_repeats_nothing(cache, chunk):
    """A thousand cases, at a scale of 1."""
    for number in range(scaled(CHUNK)):
        rng = random.Random(f"{chunk} {number}")
        try:
            resume_once(cache, rng)
        except AssertionError as error:
            raise AssertionError(f"case {chunk} {number}: {error}") from error


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_finished_epoch_is_followed_by_the_next(cache, drop_last):
    loader = rc.Loader(cache, 10, streams=["action"], drop_last=drop_last)
    first, state = order(loader), loader.state_dict()
    assert len(first) == (50 if drop_last else 57)
    again = rc.Loader(cache, 10, streams=["action"], drop_last=drop_last)
    again.load_state_dict(state)
    assert order(again) == order(loader) != first
    assert loader.epoch == 1


def test_weighted_epochs_resume_too(root, tmp_path):
    ingest(root / "data", tmp_path / "two", tag="a")
    cache = ingest(root / "more", tmp_path / "two", tag="b")
    make = lambda size: rc.Loader(  # noqa: E731
        cache, size, streams=["action"], weights={"a": 1.0, "b": 2.0}
    )
    one = make(13)
    expected = order(one) + order(one)
    two, seen = make(4), []
    for batch in two:
        seen += batch["index"].tolist()
        if len(seen) >= 20:
            break
    three = make(7)
    three.load_state_dict(two.state_dict())
    assert seen + order(three) + order(three) == expected
    assert 60 < len(expected) - sum(number < 57 for number in expected) < 110
    other = rc.Loader(cache, 4, streams=["action"], weights={"a": 1.0, "b": 3.0})
    with pytest.raises(rc.InvalidArgument, match="weights was"):
        other.load_state_dict(two.state_dict())


# -- iterators --------------------------------------------------------------------------------------


def test_each_iterator_has_its_own_place(cache):
    loader = rc.Loader(cache, 10, streams=["action"])
    one, two = iter(loader), iter(loader)
    pairs = list(zip(one, two, strict=True))
    assert [a["index"].tolist() for a, _ in pairs] == [b["index"].tolist() for _, b in pairs]
    assert len(pairs) == 6


def test_the_newest_iterator_owns_the_state(cache):
    loader = rc.Loader(cache, 10, streams=["action"])
    old = iter(loader)
    next(old)
    new = iter(loader)  # goes on behind the batch that was handed out
    assert loader.state_dict()["position"] == 10
    next(old)
    next(old)
    assert loader.state_dict()["position"] == 10
    second = next(new)["index"].tolist()
    assert loader.state_dict()["position"] == 20
    expected = order(rc.Loader(cache, 10, streams=["action"]))
    assert second == expected[10:20]


def test_a_new_for_continues_and_set_epoch_starts_anew(cache):
    loader = rc.Loader(cache, 10, streams=["action"])
    expected = order(rc.Loader(cache, 10, streams=["action"]))
    first = next(iter(loader))["index"].tolist()
    assert first + order(loader) == expected
    loader.set_epoch(0)
    next(iter(loader))
    loader.set_epoch(0)
    assert order(loader) == expected
    for wrong in (-1, 1.5, "2", 2**64):
        with pytest.raises(rc.InvalidArgument):
            loader.set_epoch(wrong)


def test_a_batch_that_failed_comes_again(cache):
    calls = []

    def fail_once(picture: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no")
        return picture

    loader = rc.Loader(cache, 10, streams=["action"], shuffle=False)
    loader.windows._images = ["action"]
    loader.windows.image_transform = fail_once
    seen = []
    with pytest.raises(RuntimeError, match="no"):
        seen.extend(number for batch in loader for number in batch["index"].tolist())
    assert seen == list(range(10))
    assert seen + order(loader) == list(range(57))


# -- states -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 0}, "expected 1 to"),
        ({"version": "1"}, "whole number"),
        ({"version": 1.0}, "whole number"),
        ({"version": True}, "whole number"),
        ({"version": None}, "whole number"),
        ({"seed": 1}, "seed was 1"),
        ({"shuffle": False}, "shuffle was"),
        ({"num_samples": 3}, "num_samples was 3"),
        ({"weights": [1.0]}, "weights was"),
        ({"sources": "x"}, "sources was"),
        ({"episodes": "x"}, "episodes was"),
        ({"anchor": "x"}, "anchor was"),
        ({"epoch": -1}, "expected 0 to"),
        ({"epoch": 2**64}, "expected 0 to"),
        ({"epoch": 1.5}, "whole number"),
        ({"epoch": True}, "whole number"),
        ({"position": -1}, "expected 0 to"),
        ({"position": 10**9}, "expected 0 to"),
        ({"position": "3"}, "whole number"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_98(cache, change, says):
    loader = rc.Loader(cache, 4)
    iterator = iter(loader)
    next(iterator)
    good = loader.state_dict()
    with pytest.raises(rc.InvalidArgument, match=says) as caught:
        loader.load_state_dict(good | change)
    assert caught.value.argument == "state"
    assert loader.state_dict() == good, "nothing has changed"
    loader.load_state_dict(good)


def test_a_broken_state_is_refused_98(cache):
    loader = rc.Loader(cache, 4)
    good = loader.state_dict()
    for broken in ({}, {"version": 1}, None, 3, [], "state"):
        with pytest.raises(rc.InvalidArgument, match="not a state"):
            loader.load_state_dict(broken)
    for key in good:
        with pytest.raises(rc.InvalidArgument):
            loader.load_state_dict({k: v for k, v in good.items() if k != key})
    with pytest.raises(rc.Unsupported, match="newer"):
        loader.load_state_dict(good | {"version": 99})


def test_a_state_of_other_data_is_refused_by_name_98(root, cache, tmp_path):
    make = lambda cache, **options: rc.Loader(cache, 4, streams=["action"], **options)  # noqa: E731
    state = make(cache).state_dict()
    write_dataset(tmp_path / "data", [(17, "a"), (9, "b"), (27, "a"), (4, "c")], seed=9)
    other = ingest(tmp_path / "data", tmp_path / "cache")
    ingest(root / "data", tmp_path / "grown")
    grown = ingest(root / "more", tmp_path / "grown", tag="b")
    for loader, name in (
        (make(other), "sources"),
        (make(grown, episodes=range(4)), "sources"),
        (make(cache, anchor="action"), "anchor"),
        (make(cache, rate=30.0), "anchor"),
        (make(grown), "num_samples"),
        (make(cache, episodes=[0, 1, 2]), "num_samples"),
    ):
        with pytest.raises(rc.InvalidArgument, match=f"{name} was"):
            loader.load_state_dict(state)
    some = make(cache, episodes=[1, 3]).state_dict()
    with pytest.raises(rc.InvalidArgument, match="episodes was"):
        # As many samples, of other episodes.
        make(cache, filter=lambda e: e.length in (9, 4), episodes=[1, 3]).load_state_dict(
            some | {"episodes": make(cache, episodes=[0]).state_dict()["episodes"]}
        )
    make(cache, episodes=[3, 1]).load_state_dict(some)


# -- torchdata's protocol ---------------------------------------------------------------------------


@runtime_checkable
class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class FakeStatefulDataLoader:
    """What torchdata's data loader does without workers: the dataset's state is restored before an
    iterator is made of it, and taken after every batch."""

    def __init__(self, dataset: Any) -> None:
        assert isinstance(dataset, Stateful)
        self.dataset, self.next_state = dataset, None

    def load_state_dict(self, state: bytes) -> None:
        self.next_state = pickle.loads(state)

    def state_dict(self) -> bytes:
        return pickle.dumps({"dataset": self.dataset.state_dict(), "yielded": self.yielded})

    def __iter__(self):
        self.yielded = 0
        if self.next_state is not None:
            self.dataset.load_state_dict(self.next_state["dataset"])
            self.yielded, self.next_state = self.next_state["yielded"], None
        for batch in self.dataset:
            self.yielded += 1
            yield batch


def test_torchdatas_protocol(cache):
    make = lambda: FakeStatefulDataLoader(  # noqa: E731
        rc.Loader(cache, 10, streams=["action"]).dataset()
    )
    numbers = lambda loaded: [batch["index"].tolist() for batch in loaded]  # noqa: E731
    whole = make()
    expected = numbers(whole) + numbers(whole)
    for stop in (1, 3, 6):
        one, seen = make(), []
        for batch in one:
            seen.append(batch["index"].tolist())
            if len(seen) == stop:
                state = one.state_dict()
                break
        two = make()
        two.load_state_dict(state)
        while len(seen) < len(expected):
            seen += numbers(two)
        assert seen == expected, stop


def test_torchdata_itself_where_it_is_installed(cache):
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    make = lambda: stateful(  # noqa: E731
        rc.Loader(cache, 10, streams=["action"]).dataset(), batch_size=None
    )
    expected = [batch["index"].tolist() for batch in make()]
    one = make()
    first = next(iter(one))["index"].tolist()
    two = make()
    two.load_state_dict(one.state_dict())
    assert [first] + [batch["index"].tolist() for batch in two] == expected


# -- splits -----------------------------------------------------------------------------------------


def test_train_and_validation_share_no_episode(tmp_path):
    write_dataset(tmp_path / "data", [(2, "a")] * 60)
    cache = ingest(tmp_path / "data", tmp_path / "cache")
    sides = {}
    for seed in (0, 1):
        parts = {
            name: {
                int(episode)
                for batch in rc.Loader(
                    cache,
                    16,
                    streams=["action"],
                    split=(name, 0.8),
                    seed=seed,
                    shuffle=name == "train",
                )
                for episode in batch["episode_index"]
            }
            for name in ("train", "validation")
        }
        assert parts["train"] | parts["validation"] == set(range(60))
        assert not parts["train"] & parts["validation"]
        assert 0.65 < len(parts["train"]) / 60 < 0.95
        sides[seed] = parts["train"]
    assert sides[0] != sides[1]
    # Fewer episodes move none to the other side.
    some = rc.Loader(cache, 4, streams=["action"], episodes=range(30), split=("train", 0.8))
    assert {int(e) for b in some for e in b["episode_index"]} == {e for e in sides[0] if e < 30}
    np.testing.assert_array_equal(len(some.windows), 2 * sum(e < 30 for e in sides[0]))
