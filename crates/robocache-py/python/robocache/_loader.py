"""The loader: batches of windows for training, in an order that can be resumed exactly."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from robocache import _arguments as arguments
from robocache._arguments import invalid
from robocache._cache import Cache, Meta, open
from robocache._errors import Unsupported
from robocache._selection import chosen_episodes, chosen_weights
from robocache._windows import Scaling, Windows, ensure_cache

_STATE_VERSION = 1
_MOST_EPOCHS = 2**32 - 1


class _Place:
    """Where an iteration is: the next unseen sample of all ranks."""

    def __init__(self, epoch: int, position: int, *, is_loaded: bool = False) -> None:
        self.epoch, self.position, self.is_loaded = epoch, position, is_loaded


class Loader:
    """Batches of windows from a cache, as dicts of torch tensors.

    Args:
        cache: what `rc.open` gives.
        batch_size: samples of each batch (of each rank).
        delta_timestamps: offsets in seconds by stream, as LeRobot has them, but any real number
            works: values between samples are interpolated. These streams get an axis of time and
            a `<key>_is_pad`. Other streams are taken at the anchor.
        streams: which streams without offsets are wanted; None: all.
        anchor: make one sample for every stamp of this stream; rate: for a uniform grid of this
            many per second, over the time that the chosen streams have in common. Neither: the
            frames of a LeRobot dataset.
        methods: interpolation by stream, instead of the cache's: a name, or ranges of columns. As in
            `rc.resample`, slerp, angle and rot6d give their normal form at samples and past the
            ends, too.
        tolerance_s: a target this near to a stamp is that stamp.
        causal: streams that do not start with "action" use only what was there at the time: the
            newest sample, as it was recorded ("previous", whatever their method).
        time_offset: seconds by which a stream's stamps are late: what was measured at t is stamped
            t + late, and is what a target at t gets.
        max_gap: seconds by stream; between two samples that are further apart, `_is_pad` is True.
        episodes: places in the cache; tasks: texts; filter: a function of an episode. All must
            hold where several are given.
        split: ("train", 0.9) or ("validation", 0.9): by episode, a pure function of the seed.
        weights: by the source's tag, for mixing several; 0 or no weight leaves a source out.
        normalize: by stream "mean_std", "min_max" or "quantile", by the statistics of what is handed
            out: the cache's, or, of streams with slerp, angle or rot6d, those of their normal form,
            for which the stream is read once when the loader is made. `meta.stats` has them, too.
        image_dtype: "uint8", or "float32" in [0, 1]. Pictures are `[B,T,C,H,W]`.
        voxelize: by stream of point clouds, a dict of `rc.voxelize`'s `origin`, `voxel_size`, `shape`,
            `reduce`, `dtype` and `fill`: batches have grids `[B,T,X,Y,Z]` (`[B,T,X,Y,Z,F]` of what
            points have behind their coordinates) instead of points `[B,T,N,C]`. They are made when a
            batch is handed over, by all cores, not ahead.
        shuffle, seed: the order is a pure function of (seed, epoch).
        rank, world_size: both, or from torch.distributed where that is initialised.
        drop_last: leave out the last, short step: all ranks have as many batches, all of them full.
        uneven: what becomes of ranks that have no sample in the last step, where fewer samples are
            left than there are ranks. "repeat": they take the epoch's last sample again, so that
            all ranks have as many batches, as DistributedDataParallel needs; evaluation then counts
            it several times. "skip": they end a batch earlier and no sample comes twice; use
            `torch.distributed.algorithms.Join` (`with model.join():`).
        threads: threads that make batches. prefetch: batches that are ready or in the making ahead
            of the one in use, at most; threads that find none to begin share the pictures of others.
        pin_memory: tensors in pinned memory.

    A batch also has `index` (the sample's number among those of this loader, in the cache's order:
    LeRobot's `index` where all of one dataset is used), `episode_index` (in its source),
    `frame_index`, `timestamp` (seconds from the episode's start), `task_index` and `task`, and
    `source_index` where the cache has several sources. Tasks are numbered over all sources, as in
    `tasks`. A stream of such a name comes instead. Streams of a single number have no axis for it:
    `[B]`, `[B,T]`. Where an episode does not have a stream, its values are NaN (0 for integers and
    pictures) and padding.

    Iterating gives the rest of the epoch, then the next one: after a `break`, a new `for` continues
    behind the last batch that was handed out. `set_epoch(n)` starts epoch n from its beginning.
    Each iterator has a place of its own; the newest one's is the loader's, which `state_dict()`
    tells: a loader with the same seed and data goes on there, whatever its batch size, world size
    or threads.
    """

    def __init__(
        self,
        cache: Cache,
        batch_size: int,
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        streams: Sequence[str] | str | None = None,
        anchor: str | None = None,
        rate: float | None = None,
        methods: Mapping[str, Any] | None = None,
        tolerance_s: float = 1e-4,
        causal: bool = False,
        time_offset: Mapping[str, float] | None = None,
        max_gap: Mapping[str, float] | None = None,
        episodes: Sequence[int] | None = None,
        tasks: Sequence[str] | str | None = None,
        filter: Callable[[Any], bool] | None = None,
        split: tuple[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        actions: Any = None,
        normalize: Mapping[str, Scaling] | None = None,
        image_transform: Callable[[Any], Any] | None = None,
        image_dtype: Literal["uint8", "float32"] = "uint8",
        voxelize: Mapping[str, Mapping[str, Any]] | None = None,
        device: Any = None,
        resident: str = "auto",
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        uneven: Literal["repeat", "skip"] = "repeat",
        threads: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> None:
        ensure_cache(cache)
        self.batch_size = arguments.whole("batch_size", batch_size, 1)
        self.seed = arguments.whole("seed", seed, 0, 2**64 - 1)
        for name, value in (("device", device), ("actions", actions)):
            if value is not None:
                raise Unsupported(
                    f"Loader: {name}: not implemented yet", op="Loader", argument=name
                )
        if resident not in ("auto", "host"):
            raise Unsupported(
                f"Loader: resident: {resident!r} is not implemented yet",
                op="Loader",
                argument="resident",
            )
        self.cache = cache
        self.shuffle = arguments.flag("shuffle", shuffle)
        self.drop_last = arguments.flag("drop_last", drop_last)
        self.uneven = arguments.one_of("uneven", uneven, ("repeat", "skip"))
        self.threads = (
            len(os.sched_getaffinity(0))
            if threads is None
            else arguments.whole("threads", threads, 1, 4096)
        )
        self.prefetch = arguments.whole("prefetch", prefetch, 1, 4096)
        self.pin_memory = arguments.flag("pin_memory", pin_memory) and _can_pin()
        self.rank, self.world_size = arguments.rank(rank, world_size)
        self.weights = chosen_weights(cache, weights)
        self.windows = Windows(
            cache,
            delta_timestamps=delta_timestamps,
            streams=streams,
            anchor=anchor,
            rate=rate,
            methods=methods,
            tolerance_s=tolerance_s,
            causal=causal,
            time_offset=time_offset,
            max_gap=max_gap,
            episodes=chosen_episodes(cache, episodes, tasks, filter, split, self.seed),
            normalize=normalize,
            image_transform=image_transform,
            image_dtype=image_dtype,
            voxelize=voxelize,
        )
        self._order = self.windows._core.order(self.shuffle, self.seed, self.weights)
        self._place = _Place(0, 0)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the newest iterator is in."""
        return self._place.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration starts this epoch, from its beginning."""
        self._place = _Place(arguments.whole("epoch", epoch, 0, _MOST_EPOCHS), 0)

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, of all ranks."""
        return len(self.windows)

    @property
    def tasks(self) -> list[str]:
        """The tasks of all sources, by the numbers of `task_index`."""
        return self.windows.tasks

    def __len__(self) -> int:
        """Batches of an epoch from its start, of this rank: with uneven="skip" ranks may differ."""
        whole, left = divmod(self.num_samples, self.batch_size * self.world_size)
        return whole + self._has_batch(left)

    def _has_batch(self, left: int) -> bool:
        """Whether this rank has another batch where so many samples of an epoch are left."""
        if left >= self.batch_size * self.world_size:
            return True
        if left == 0 or self.drop_last:
            return False
        own = left * (self.rank + 1) // self.world_size - left * self.rank // self.world_size
        return own > 0 or self.uneven == "repeat"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rest of the epoch; a finished one is followed by the next."""
        place = self._place
        # A rank that has no batch at all goes through epochs one by one, as the others do.
        is_begun = place.position > 0 or self.drop_last
        left = self.num_samples - place.position
        # A state may be another rank's, which has a part in the last step where this one has none.
        others_go_on = place.is_loaded and left > 0 and not self.drop_last
        is_done = is_begun and not others_go_on and not self._has_batch(left)
        own = _Place(place.epoch + 1, 0) if is_done else _Place(place.epoch, place.position)
        self._place = own
        return self._run(own, self.batch_size * self.world_size)

    def _run(self, place: _Place, step: int) -> Iterator[dict[str, Any]]:
        batches = self._order.batches(
            place.epoch,
            place.position,
            self.batch_size,
            self.rank,
            self.world_size,
            self.drop_last,
            self.uneven == "skip",
            self.threads,
            self.prefetch,
        )
        for columns, tasks in batches:
            batch = self.windows.to_torch(columns, tasks)
            if self.pin_memory:
                batch = {
                    key: x.pin_memory() if hasattr(x, "pin_memory") else x
                    for key, x in batch.items()
                }
            # Before it is handed over: a state taken while it is used continues behind it.
            place.position = min(place.position + step, self.num_samples)
            yield batch
        if not self.drop_last:
            # Also where others had the last step to themselves.
            place.position = self.num_samples

    def dataset(self) -> Any:
        """The batches of an epoch as a `torch.utils.data.IterableDataset`.

        `DataLoader(loader.dataset(), batch_size=None)` gives them as they are; torchdata's stateful
        data loader saves and restores its place. Workers (`num_workers > 0`) are refused: the
        loader has threads, and processes would lose its place. For a map-style dataset that works
        with them see `cache.windows`.
        """
        from robocache._torch import IterableWindows

        return IterableWindows(self)

    @cached_property
    def meta(self) -> Meta:
        """The cache's metadata in LeRobot's shape, with the statistics of what is handed out."""
        return Meta(self.cache, self.windows)

    def _facts(self) -> dict[str, Any]:
        """What must be the same for a state to be continued."""
        return {
            "seed": self.seed,
            "shuffle": self.shuffle,
            "num_samples": self.num_samples,
            "weights": None if self.weights is None else list(self.weights),
            **self.windows.identity,
        }

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: the next unseen sample of all ranks."""
        place = self._place
        where = {"version": _STATE_VERSION, "epoch": place.epoch, "position": place.position}
        return where | self._facts()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was taken. Data that has changed since is refused."""
        if not isinstance(state, Mapping) or "version" not in state:
            raise invalid("state", f"not a state of a loader: {state!r}")
        version = arguments.whole("state", state["version"], 1, 2**63)
        if version > _STATE_VERSION:
            raise Unsupported(
                f"Loader: state: version {version} is newer than this RoboCache",
                op="Loader",
                argument="state",
            )
        facts = self._facts()
        missing = sorted({"epoch", "position", *facts} - set(state))
        if missing:
            raise invalid("state", f"not a state of a loader: it has no {', '.join(missing)}")
        for key, own in facts.items():
            if state[key] != own:
                raise invalid("state", f"{key} was {state[key]!r}, here it is {own!r}")
        epoch = arguments.whole("state", state["epoch"], 0, _MOST_EPOCHS)
        position = arguments.whole("state", state["position"], 0, self.num_samples)
        self._place = _Place(epoch, position, is_loaded=True)

    def __repr__(self) -> str:
        place = self._place
        ranks = f", rank {self.rank} of {self.world_size}" if self.world_size > 1 else ""
        return (
            f"<loader: {self.num_samples} samples in {len(self)} batches of {self.batch_size}, "
            f"epoch {place.epoch} at sample {place.position}{ranks} ({self.cache.path})>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the cache anew and goes on at the same place."""
        options = self.windows._options | {
            "weights": None
            if self.weights is None
            else {s["tag"]: w for s, w in zip(self.cache.sources, self.weights, strict=True)},
            "shuffle": self.shuffle,
            "seed": self.seed,
            "rank": self.rank,
            "world_size": self.world_size,
            "drop_last": self.drop_last,
            "uneven": self.uneven,
            "threads": self.threads,
            "prefetch": self.prefetch,
            "pin_memory": self.pin_memory,
        }
        return (_open_loader, (self.cache.path, self.batch_size, options, self.state_dict()))


def _open_loader(
    path: str, batch_size: int, options: dict[str, Any], state: dict[str, Any]
) -> Loader:
    """The loader of a cache as it was in the process that it comes from."""
    loader = Loader(open(path), batch_size, **options)
    loader.load_state_dict(state)
    return loader


def _can_pin() -> bool:
    """Whether there is something to pin memory for; a warning where not, as torch has it."""
    import torch

    if torch.cuda.is_available():
        return True
    text = "Loader: pin_memory: torch sees no GPU, so that tensors stay in ordinary memory"
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return False
