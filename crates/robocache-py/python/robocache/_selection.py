"""Which episodes and sources a loader takes its samples from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robocache import _arguments as arguments
from robocache._arguments import invalid

if TYPE_CHECKING:
    from robocache._cache import Cache


def chosen_weights(cache: Cache, weights: Mapping[str, float] | None) -> list[float] | None:
    """The weights of all sources, in their order."""
    if weights is None:
        return None
    given = dict(arguments.numbers_by_name("weights", weights))
    tags = [source["tag"] for source in cache.sources]
    unknown = set(given) - set(tags)
    if unknown:
        first = sorted(unknown)[0]
        text = f"there is no {first!r}; the sources are {tags}"
        raise invalid("weights", f"{text}{arguments.did_you_mean(first, tags)}")
    return [given.get(tag, 0.0) for tag in tags]


def episode_places(cache: Cache, episodes: Any) -> list[int]:
    """Places of episodes, each once, in order."""
    chosen = arguments.items("episodes", episodes)
    return sorted({arguments.whole("episodes", at, 0, len(cache) - 1) for at in chosen})


def chosen_episodes(
    cache: Cache,
    episodes: Sequence[int] | None,
    tasks: Sequence[str] | str | None,
    filter: Callable[[Any], bool] | None,
    split: tuple[str, float] | None,
    seed: int,
) -> list[int] | None:
    """The places of episodes that pass all conditions; None where there are none."""
    if episodes is None and tasks is None and filter is None and split is None:
        return None
    chosen = list(range(len(cache))) if episodes is None else episode_places(cache, episodes)
    if tasks is not None:
        chosen = _episodes_of(cache, chosen, arguments.texts("tasks", tasks))
    if filter is not None:
        if not callable(filter):
            raise invalid("filter", f"expected a function of an episode, got {filter!r}")
        chosen = [at for at in chosen if filter(cache.episode(at))]
    if split is not None:
        name, part = arguments.part("split", split)
        # Every episode falls on one side by its own number: adding episodes moves none.
        chosen = [at for at in chosen if (_unit(seed, at) < part) == (name == "train")]
    if not chosen:
        raise invalid("episodes", "no episode is left")
    return chosen


def _episodes_of(cache: Cache, places: list[int], tasks: list[str]) -> list[int]:
    """The episodes with one of these tasks."""
    wanted = set(tasks)
    chosen = [at for at in places if wanted & set(cache.episode(at).tasks)]
    if places and not chosen:
        known = cache.meta.tasks
        unknown = [task for task in tasks if task not in known]
        meant = arguments.did_you_mean(unknown[0], known) if unknown else ""
        raise invalid("tasks", f"no episode is left with one of {tasks}{meant}")
    return chosen


def _unit(seed: int, number: int) -> float:
    """A number in [0, 1) that looks random and is always the same."""
    import hashlib

    digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
