"""A cache as LeRobot's tools expect a dataset: statistics and metadata in its shape."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from robocache import _arguments as arguments
from robocache import _core

if TYPE_CHECKING:
    import numpy.typing as npt

    from robocache._windows import Windows

_PICTURES = ("image", "video", "depth")


def open(path: arguments.Path) -> Cache:
    """Opens a cache that `rc.ingest` made. Many processes can do so at once."""
    return Cache(_core.open_cache(arguments.path("path", path, "open")))


class Cache:
    """Decoded episodes on disk, opened to be read. Made by `rc.open`."""

    def __init__(self, core: _core.Cache) -> None:
        self._core = core

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._core.path

    @property
    def complete(self) -> bool:
        """Whether everything that was planned is there."""
        return self._core.complete

    @cached_property
    def streams(self) -> dict[str, _core.CacheStreamInfo]:
        """All streams by their names."""
        return self._core.streams

    @property
    def episodes(self) -> _core.CacheEpisodes:
        """All episodes, a sequence."""
        return self._core.episodes

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Where the episodes come from."""
        return self._core.sources

    @property
    def skipped(self) -> list[tuple[str, int, str]]:
        """Episodes that could not be taken: source, number, reason."""
        return self._core.skipped

    def episode(self, at: int) -> _core.CacheEpisode:
        """An episode by its place; negative ones count from the end."""
        return self._core.episode(at)

    def __len__(self) -> int:
        return len(self._core)

    @cached_property
    def stats(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Statistics in LeRobot's shape: `stats[key]["mean"]`, pictures as `[C,1,1]` in [0,1]."""
        return self._as_arrays(self._core.raw_stats())

    def _as_arrays(
        self, numbers: dict[str, dict[str, list[float]]]
    ) -> dict[str, dict[str, npt.NDArray[Any]]]:
        import numpy as np

        stats: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, summary in numbers.items():
            picture = self.streams[name].kind in _PICTURES
            stats[name] = {}
            for key, values in summary.items():
                array = np.asarray(values, dtype=np.int64 if key == "count" else np.float64)
                stats[name][key] = array[:, None, None] if picture and key != "count" else array
        return stats

    def windows(self, **options: Any) -> Any:
        """The samples as a map-style dataset; the options of `rc.Loader` about windows."""
        from robocache._windows import Windows

        return Windows(self, **options)

    @cached_property
    def meta(self) -> Meta:
        """What LeRobot keeps in a dataset's `meta`."""
        return Meta(self)

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens it anew: maps are shared through the page cache anyway.
        return open, (self.path,)


class Meta:
    """The attributes of LeRobot's metadata that policies and training scripts read."""

    def __init__(self, cache: Cache, windows: Windows | None = None) -> None:
        self._cache = cache
        self._source = cache if windows is None else windows

    def __repr__(self) -> str:
        cache = self._cache
        counts = f"{len(cache)} episodes, {len(self.features)} features"
        return f"<meta: {counts} ({cache.path})>"

    @property
    def fps(self) -> float:
        """Samples per second of the first source; whole where it is whole, 0 where it has no rate."""
        fps = (self._cache.sources[0]["fps"] if self._cache.sources else None) or 0.0
        return int(fps) if fps == int(fps) else fps

    @cached_property
    def features(self) -> dict[str, dict[str, Any]]:
        """Features as LeRobot describes them."""
        features: dict[str, dict[str, Any]] = {}
        for name, stream in self._cache.streams.items():
            picture = stream.kind in _PICTURES
            features[name] = {
                "dtype": stream.kind if picture else stream.dtype,
                "shape": tuple(stream.shape),
                "names": ["height", "width", "channels"] if picture else stream.names,
            }
        for name, dtype in (
            ("timestamp", "float32"),
            ("frame_index", "int64"),
            ("episode_index", "int64"),
            ("index", "int64"),
            ("task_index", "int64"),
        ):
            features.setdefault(name, {"dtype": dtype, "shape": (1,), "names": None})
        return features

    @property
    def stats(self) -> dict[str, dict[str, Any]]:
        """As `cache.stats`; of a loader, those of what it hands out."""
        return self._source.stats

    @property
    def names(self) -> dict[str, Any]:
        return {key: feature["names"] for key, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {key: feature["shape"] for key, feature in self.features.items()}

    @property
    def image_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] == "image"]

    @property
    def video_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def camera_keys(self) -> list[str]:
        return [key for key, f in self.features.items() if f["dtype"] in ("image", "video")]

    @property
    def tasks(self) -> list[str]:
        """Tasks of all sources, by their number: those of the first as it numbers them."""
        first, *others = [source["tasks"] for source in self._cache.sources] or [[]]
        # As the loader numbers them: what is new in later sources follows.
        return [
            *first,
            *dict.fromkeys(task for tasks in others for task in tasks if task not in first),
        ]

    @property
    def total_episodes(self) -> int:
        return len(self._cache)

    @cached_property
    def total_frames(self) -> int:
        return sum(episode.length for episode in self._cache.episodes)
