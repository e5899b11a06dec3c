"""Windows of a cache: one sample of training each, a map-style dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from robocache import _arguments as arguments
from robocache import _core
from robocache._arguments import invalid
from robocache._cache import Cache, open
from robocache._clouds import Grids
from robocache._selection import episode_places

Scaling = Literal["mean_std", "min_max", "quantile"]


class Windows:
    """The samples of a cache, a map-style dataset: `windows[i]`, `len(windows)`.

    `DataLoader(windows, batch_size=64, num_workers=4)` works, also with samplers: every sample is
    made by itself in the worker that asks for it. Made by `cache.windows(...)`, with the options of
    `rc.Loader` about windows.
    """

    def __init__(
        self,
        cache: Cache,
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
        normalize: Mapping[str, Scaling] | None = None,
        image_transform: Callable[[Any], Any] | None = None,
        image_dtype: Literal["uint8", "float32"] = "uint8",
        voxelize: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        ensure_cache(cache)
        if image_transform is not None and not callable(image_transform):
            raise invalid("image_transform", f"expected a function, got {image_transform!r}")
        offsets = arguments.offsets_by_name("delta_timestamps", delta_timestamps)
        others = None if streams is None else arguments.texts("streams", streams)
        scaling = arguments.by_name("normalize", normalize)
        late = arguments.numbers_by_name("time_offset", time_offset)
        gaps = arguments.numbers_by_name("max_gap", max_gap)
        chosen = arguments.by_name("methods", methods)
        places = None if episodes is None else episode_places(cache, episodes)
        self.cache = cache
        self.image_transform = image_transform
        self._grids = Grids(cache, voxelize, {name for name, _ in scaling})
        self._core = _core.Windows(
            cache._core,
            offsets,
            others,
            None if anchor is None else arguments.text("anchor", anchor),
            None if rate is None else arguments.number("rate", rate),
            chosen,
            arguments.number("tolerance_s", tolerance_s),
            arguments.flag("causal", causal),
            late,
            gaps,
            [(name, arguments.text("normalize", how)) for name, how in scaling],
            arguments.text("image_dtype", image_dtype),
            places,
        )
        # As they were given, for another process.
        self._options: dict[str, Any] = {
            "delta_timestamps": dict(offsets),
            "streams": others,
            "anchor": anchor,
            "rate": rate,
            "methods": dict(chosen),
            "tolerance_s": tolerance_s,
            "causal": causal,
            "time_offset": dict(late),
            "max_gap": dict(gaps),
            "episodes": places,
            "normalize": dict(scaling),
            "image_transform": image_transform,
            "image_dtype": image_dtype,
            "voxelize": self._grids.options,
        }
        infos = cache.streams.items()
        self._images = [key for key, info in infos if info.kind in ("image", "video")]
        # NumPy does not have the type: the engine hands over its bits.
        self._bfloat16 = {
            key for key, info in infos if info.dtype == "bfloat16" and key not in dict(scaling)
        }

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of all sources, by the numbers of `task_index`."""
        return self._core.tasks

    @cached_property
    def stats(self) -> dict[str, dict[str, Any]]:
        """Statistics of what is handed out, in LeRobot's shape: `cache.stats`, but for streams that
        come in a normal form, which are read for it once."""
        return self.cache.stats | self.cache._as_arrays(self._core.own_stats())

    @cached_property
    def identity(self) -> dict[str, str]:
        """What tells these samples from others: digests of the sources and of the episodes with
        their samples, and the anchor."""
        return self._core.identity()

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """One sample, without an axis of batch."""
        place = arguments.whole("index", number, -sys.maxsize, sys.maxsize)
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return {key: value[0] for key, value in self.batch([place]).items()}

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Several samples at once, as torch's DataLoader asks for them."""
        batch = self.batch(numbers)
        return [{key: x[at] for key, x in batch.items()} for at in range(len(numbers))]

    def batch(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The batch of some samples, made here and now."""
        last = len(self) - 1
        chosen = [arguments.whole("index", x, 0, last) for x in arguments.items("index", numbers)]
        return self.to_torch(*self._core.batch(chosen))

    def to_torch(self, columns: dict[str, Any], tasks: Sequence[int]) -> dict[str, Any]:
        """Arrays as tensors, pictures transformed, clouds as grids, tasks as words."""
        import numpy as np
        import torch

        out: dict[str, Any] = {}
        for key, value in columns.items():
            if not isinstance(value, np.ndarray):
                out[key] = value
            elif key in self._bfloat16:
                out[key] = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
            else:
                out[key] = torch.from_numpy(value)
        if self.image_transform is not None:
            for key in self._images:
                if key in out:
                    out[key] = self.image_transform(out[key])
        self._grids.replace_in(out)
        words = self.tasks
        out.setdefault("task", [words[n] if 0 <= n < len(words) else "" for n in tasks])
        return out

    def __repr__(self) -> str:
        return f"<windows: {len(self)} samples ({self.cache.path})>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the cache anew."""
        return (_open_windows, (self.cache.path, self._options, self.identity))


def _open_windows(path: str, options: dict[str, Any], identity: dict[str, str]) -> Windows:
    """The windows of a cache as they were in the process that they come from."""
    windows = Windows(open(path), **options)
    for key, known in identity.items():
        if windows.identity[key] != known:
            raise invalid("cache", f"{path!r} has changed since: other {key}")
    return windows


def ensure_cache(cache: Any) -> None:
    if not isinstance(cache, Cache):
        raise invalid("cache", f"expected what rc.open gives, got {type(cache).__name__}")
