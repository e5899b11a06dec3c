"""The last step of an epoch, which has fewer samples than there are ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

import robocache as rc
from loader_data import ingest, order, write_dataset

SIZE = 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    root = tmp_path_factory.mktemp("uneven")
    write_dataset(root / "data", [(9, "a"), (4, "b")])
    return ingest(root / "data", root / "cache")


def loaders(cache, world: int, **options) -> list[rc.Loader]:
    return [
        rc.Loader(cache, SIZE, streams=["action"], rank=rank, world_size=world, **options)
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 300])
def test_skip_hands_out_every_sample_once(cache, world):
    for epoch in range(2):
        ranks = loaders(cache, world, uneven="skip")
        for loader in ranks:
            loader.set_epoch(epoch)
        steps = [list(loader) for loader in ranks]
        assert [len(batches) for batches in steps] == [len(loader) for loader in ranks]
        seen = [
            number for batches in steps for batch in batches for number in batch["index"].tolist()
        ]
        assert sorted(seen) == list(range(13))
        assert all(len(batch["index"]) for batches in steps for batch in batches)
        # All of them have ended the epoch, also those that had no part in its last step.
        states = [loader.state_dict() for loader in ranks]
        assert all(state["position"] == 13 for state in states)
        assert sorted(number for loader in ranks for number in order(loader)) == list(range(13))
        assert {loader.epoch for loader in ranks} == {epoch + 1}


@pytest.mark.parametrize("world", [1, 2, 3, 5, 6, 14, 300])
def test_a_rank_that_takes_its_number_of_batches_goes_on_with_the_next_epoch(cache, world):
    """With `next`, without asking for one more batch than there is."""
    for uneven in ("skip", "repeat"):
        for loader in loaders(cache, world, shuffle=False, uneven=uneven):
            if not len(loader):
                assert list(loader) == []
                continue
            whole = order(loader)
            for epoch in range(1, 4):
                iterator = iter(loader)
                taken = [next(iterator)["index"].tolist() for _ in range(len(loader))]
                assert [number for batch in taken for number in batch] == whole
                assert loader.epoch == epoch
            # Zipped with as many steps, which never asks for more either.
            assert len(list(zip(range(len(loader)), loader, strict=False))) == len(loader)
            assert loader.epoch == 3 + (len(loader) > 0)


@pytest.mark.parametrize("world", [1, 2, 3, 5, 6, 14])
@pytest.mark.parametrize("uneven", ["skip", "repeat"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_all_ranks_go_on_in_the_same_epoch(cache, world, uneven, drop_last):
    """From the state that any of them has taken after any step."""
    options = {"uneven": uneven, "drop_last": drop_last, "seed": 3}
    whole = [steps(loader) for loader in loaders(cache, world, **options)]
    for taker in range(world):
        loader = loaders(cache, world, **options)[taker]
        for step, _ in enumerate(loader, 1):
            state = loader.state_dict()
            if step == max(map(len, whole)):
                continue  # the end, where the next epoch follows
            ranks = loaders(cache, world, **options)
            for rank, after in zip(ranks, whole, strict=True):
                rank.load_state_dict(state)
                assert steps(rank) == after[step:]
                assert rank.epoch == 0
            assert {next_epoch(rank) for rank in ranks} == {1}


def steps(loader: rc.Loader) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


def next_epoch(loader: rc.Loader) -> int:
    iter(loader)
    return loader.epoch


@pytest.mark.parametrize("world", [1, 4, 5, 6, 300])
def test_repeat_gives_all_ranks_as_many_batches(cache, world):
    ranks = loaders(cache, world)
    parts = [list(loader) for loader in ranks]
    assert (
        {len(part) for part in parts}
        == {len(loader) for loader in ranks}
        == {-(-13 // (SIZE * world))}
    )
    seen = [number for part in parts for batch in part for number in batch["index"].tolist()]
    left = 13 % (SIZE * world)
    assert set(seen) == set(range(13))
    assert len(seen) == 13 + (max(world - left, 0) if left else 0)


@pytest.mark.parametrize("world", [1, 4, 6])
def test_drop_last_leaves_whole_batches_only(cache, world):
    for uneven in ("repeat", "skip"):
        ranks = loaders(cache, world, drop_last=True, uneven=uneven)
        parts = [list(loader) for loader in ranks]
        assert (
            {len(part) for part in parts}
            == {len(loader) for loader in ranks}
            == {13 // (SIZE * world)}
        )
        assert all(len(batch["index"]) == SIZE for part in parts for batch in part)


TRAINING = """
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
import robocache as rc

WORLD, SIZE = 3, 2

def work(rank, cache, rendezvous, uneven):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    loader = rc.Loader(rc.open(cache), SIZE, streams=["action"], uneven=uneven)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    seen = []
    def train():
        for batch in loader:
            model(batch["action"]).sum().backward()
            seen.extend(batch["index"].tolist())
    if uneven == "skip":
        with model.join():
            train()
    else:
        train()
    dist.barrier()
    everyone = [None] * WORLD
    dist.all_gather_object(everyone, seen)
    if rank == 0:
        print(sorted(n for part in everyone for n in part), [len(part) for part in everyone])
    dist.destroy_process_group()

if __name__ == "__main__":
    for uneven in ("skip", "repeat"):
        mp.spawn(work, (sys.argv[1], sys.argv[2] + uneven, uneven), nprocs=WORLD)
"""


@pytest.mark.slow
def test_training_of_three_ranks_with_join_and_without(cache, tmp_path):
    """13 samples: two steps of 6, and one sample that a single rank gets."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    command = [sys.executable, str(script), cache.path, str(tmp_path / "rendezvous")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    skip, repeat = done.stdout.splitlines()
    assert skip == f"{list(range(13))} [4, 4, 5]"
    numbers, counts = repeat.split("] [")
    assert counts == "5, 5, 5]" and len(numbers.split(",")) == 15


def test_other_words_are_refused(cache):
    for wrong in ("pad", None, True):
        with pytest.raises(rc.InvalidArgument) as caught:
            rc.Loader(cache, SIZE, uneven=wrong)
        assert caught.value.argument == "uneven"
