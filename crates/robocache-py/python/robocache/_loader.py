"""The loader: batches of windows for training, in an order that can be resumed exactly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from robocache import _core
from robocache._cache import Cache
from robocache._errors import InvalidArgument, Unsupported

_STATE_VERSION = 1
_Scaling = Literal["mean_std", "min_max", "quantile"]


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
            many per second. Neither: the frames of a LeRobot dataset.
        methods: interpolation by stream, instead of the cache's.
        tolerance_s: a target this near to a stamp is that stamp.
        causal: streams that do not start with "action" use only what was there at the time.
        time_offset: seconds by which a stream's stamps are late.
        episodes: places in the cache; tasks: texts; filter: a function of an episode. All must
            hold where several are given.
        split: ("train", 0.9) or ("validation", 0.9): by episode, a pure function of the seed.
        weights: by the source's tag, for mixing several.
        normalize: by stream "mean_std", "min_max" or "quantile", by the cache's statistics.
        image_dtype: "uint8", or "float32" in [0, 1]. Pictures are `[B,T,C,H,W]`.
        shuffle, seed: the order is a pure function of (seed, epoch).
        rank, world_size: from torch.distributed where that is initialised.
        drop_last: leave out the last, short batch.
        threads, prefetch: threads that make batches, and how many may wait.
        pin_memory: tensors in pinned memory.

    Iterating gives an epoch; the next iteration the next epoch. `state_dict()` tells where it is:
    a loader with the same seed and data goes on there, whatever its batch size, world size or
    threads.
    """

    def __init__(
        self,
        cache: Cache,
        batch_size: int,
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        streams: Sequence[str] | None = None,
        anchor: str | None = None,
        rate: float | None = None,
        methods: Mapping[str, Any] | None = None,
        tolerance_s: float = 1e-4,
        causal: bool = False,
        time_offset: Mapping[str, float] | None = None,
        episodes: Sequence[int] | None = None,
        tasks: Sequence[str] | None = None,
        filter: Callable[[Any], bool] | None = None,
        split: tuple[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
        actions: Any = None,
        normalize: Mapping[str, _Scaling] | None = None,
        image_transform: Callable[[Any], Any] | None = None,
        image_dtype: Literal["uint8", "float32"] = "uint8",
        device: Any = None,
        resident: str = "auto",
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        threads: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> None:
        if batch_size < 1:
            raise _invalid("batch_size", f"expected at least 1, got {batch_size}")
        if not 0 <= seed < 2**64:
            raise _invalid("seed", f"expected 0 to 2**64 - 1, got {seed}")
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
        self.batch_size = batch_size
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.threads = threads or len(os.sched_getaffinity(0))
        self.prefetch = prefetch
        self.pin_memory = pin_memory
        self.rank, self.world_size = _place(rank, world_size)
        self.weights = _weights(cache, weights)
        self.epoch = 0
        self._position = 0
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
            episodes=_episodes(cache, episodes, tasks, filter, split, seed),
            normalize=normalize,
            image_transform=image_transform,
            image_dtype=image_dtype,
        )

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, of all ranks."""
        return len(self.windows)

    def __len__(self) -> int:
        """Batches of an epoch, of each rank, from its start."""
        step = self.batch_size * self.world_size
        return self.num_samples // step if self.drop_last else -(-self.num_samples // step)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rest of the epoch; a finished one is followed by the next."""
        step = self.batch_size * self.world_size
        if self._position >= self.num_samples or (
            self.drop_last and self._position + step > self.num_samples
        ):
            self.epoch, self._position = self.epoch + 1, 0
        batches = self.windows._core.batches(
            self.epoch,
            self._position,
            self.batch_size,
            self.rank,
            self.world_size,
            self.drop_last,
            self.shuffle,
            self.seed,
            self.weights,
            self.threads,
            self.prefetch,
        )
        for batch in batches:
            # Before it is handed over: a state taken while it is used continues behind it.
            self._position = min(self._position + step, self.num_samples)
            yield self._finish(batch)

    def _finish(self, batch: dict[str, Any]) -> dict[str, Any]:
        out = self.windows.to_torch(batch)
        if self.pin_memory:
            out = {key: x.pin_memory() if hasattr(x, "pin_memory") else x for key, x in out.items()}
        return out

    def dataset(self) -> Any:
        """The batches of an epoch as a `torch.utils.data.IterableDataset`.

        `DataLoader(loader.dataset(), batch_size=None)` gives them as they are. With
        `num_workers > 0` each worker takes every n-th batch of this rank; the threads of the
        loader make that unnecessary.
        """
        from robocache._torch import IterableWindows

        return IterableWindows(self)

    @property
    def meta(self) -> Any:
        """The cache's metadata in LeRobot's shape."""
        return self.cache.meta

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: the next unseen sample of all ranks."""
        return {
            "version": _STATE_VERSION,
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self._position,
            "num_samples": self.num_samples,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state` was taken. Data that has changed since is refused."""
        try:
            version, epoch, position = state["version"], state["epoch"], state["position"]
            facts = {key: state[key] for key in ("seed", "num_samples", "shuffle")}
        except (KeyError, TypeError) as error:
            raise _invalid("state", f"not a state of a loader: {error!r}") from error
        if version > _STATE_VERSION:
            raise Unsupported(
                f"Loader: state: version {version} is newer than this RoboCache", op="Loader"
            )
        own = {"seed": self.seed, "num_samples": self.num_samples, "shuffle": self.shuffle}
        for key, value in facts.items():
            if value != own[key]:
                raise _invalid("state", f"{key} was {value}, here it is {own[key]}")
        if not (isinstance(epoch, int) and epoch >= 0 and isinstance(position, int)):
            raise _invalid("state", "epoch and position must be whole numbers")
        if not 0 <= position <= self.num_samples:
            raise _invalid("state", f"position {position} is outside 0 to {self.num_samples}")
        self.epoch, self._position = epoch, position


class Windows:
    """The samples of a cache, a map-style dataset: `windows[i]`, `len(windows)`.

    `DataLoader(windows, batch_size=64, num_workers=4)` works, also with samplers: every sample is
    made by itself in the worker that asks for it. Made by `cache.windows(...)`.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        streams: Sequence[str] | None = None,
        anchor: str | None = None,
        rate: float | None = None,
        methods: Mapping[str, Any] | None = None,
        tolerance_s: float = 1e-4,
        causal: bool = False,
        time_offset: Mapping[str, float] | None = None,
        episodes: Sequence[int] | None = None,
        normalize: Mapping[str, _Scaling] | None = None,
        image_transform: Callable[[Any], Any] | None = None,
        image_dtype: Literal["uint8", "float32"] = "uint8",
    ) -> None:
        self.cache = cache
        self.image_transform = image_transform
        self._images = [k for k, info in cache.streams.items() if info.kind in ("image", "video")]
        self._core = _core.Windows(
            cache._core,
            [(key, list(offsets)) for key, offsets in (delta_timestamps or {}).items()],
            None if streams is None else list(streams),
            anchor,
            rate,
            list((methods or {}).items()),
            tolerance_s,
            causal,
            list((time_offset or {}).items()),
            list((normalize or {}).items()),
            image_dtype,
            None if episodes is None else list(episodes),
        )

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """One sample, without an axis of batch."""
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return {key: value[0] for key, value in self.batch([number]).items()}

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Several samples at once, as torch's DataLoader asks for them."""
        batch = self.batch(numbers)
        return [{key: x[at] for key, x in batch.items()} for at in range(len(numbers))]

    def batch(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The batch of some samples, made here and now."""
        return self.to_torch(self._core.batch([int(number) for number in numbers]))

    def to_torch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Arrays as tensors, pictures transformed, tasks as words."""
        import numpy as np
        import torch

        out = {
            key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for key, value in batch.items()
        }
        if self.image_transform is not None:
            for key in self._images:
                if key in out:
                    out[key] = self.image_transform(out[key])
        if "task_index" in out:
            tasks = self.cache.meta.tasks
            numbers = out["task_index"].reshape(len(out["task_index"]), -1)[:, 0].tolist()
            out["task"] = [tasks[n] if 0 <= n < len(tasks) else "" for n in numbers]
        return out


def _invalid(argument: str, message: str) -> InvalidArgument:
    return InvalidArgument(f"Loader: {argument}: {message}", op="Loader", argument=argument)


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None and world_size is None:
        import sys

        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    rank, world_size = rank or 0, 1 if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise _invalid("rank", f"expected 0 to {world_size - 1}, got {rank}")
    return rank, world_size


def _weights(cache: Cache, weights: Mapping[str, float] | None) -> list[float] | None:
    if weights is None:
        return None
    tags = [source["tag"] for source in cache.sources]
    unknown = set(weights) - set(tags)
    if unknown:
        raise _invalid("weights", f"there is no {sorted(unknown)}; the sources are {tags}")
    return [float(weights.get(tag, 0.0)) for tag in tags]


def _episodes(
    cache: Cache,
    episodes: Sequence[int] | None,
    tasks: Sequence[str] | None,
    filter: Callable[[Any], bool] | None,
    split: tuple[str, float] | None,
    seed: int,
) -> list[int] | None:
    if episodes is None and tasks is None and filter is None and split is None:
        return None
    chosen = list(range(len(cache))) if episodes is None else list(episodes)
    if tasks is not None:
        wanted = set(tasks)
        chosen = [at for at in chosen if wanted & set(cache.episode(at).tasks)]
    if filter is not None:
        chosen = [at for at in chosen if filter(cache.episode(at))]
    if split is not None:
        name, part = split
        if name not in ("train", "validation") or not 0 < part < 1:
            raise _invalid("split", f"expected ('train' or 'validation', part), got {split!r}")
        # Every episode falls on one side by its own number: adding episodes moves none.
        chosen = [at for at in chosen if (_unit(seed, at) < part) == (name == "train")]
    if not chosen:
        raise _invalid("episodes", "no episode is left")
    return chosen


def _unit(seed: int, number: int) -> float:
    """A number in [0, 1) that looks random and is always the same."""
    import hashlib

    digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
