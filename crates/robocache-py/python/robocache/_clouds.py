"""Point clouds of batches as grids: the loader's `voxelize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from robocache import _arguments as arguments
from robocache._arguments import invalid
from robocache._errors import RoboCacheError
from robocache._points import voxelize

if TYPE_CHECKING:
    from robocache._cache import Cache

OPTIONS = ("origin", "voxel_size", "shape", "reduce", "dtype", "fill")
"""What may be said of a grid; the rest follows from the stream."""
COORDINATES = 3


class Grids:
    """Which clouds become grids, and how. Coordinates come first in a point, features follow."""

    def __init__(
        self,
        cache: Cache,
        voxelize: Mapping[str, Mapping[str, Any]] | None,
        normalized: set[str],
    ) -> None:
        self.options: dict[str, dict[str, Any]] = {}
        for key, grid in arguments.by_name("voxelize", voxelize):
            info = cache.streams.get(key)
            if info is None or info.kind != "point_cloud":
                near = arguments.did_you_mean(key, cache.streams)
                kind = (
                    f"there is none of that name{near}"
                    if info is None
                    else f"this is a {info.kind}"
                )
                raise invalid("voxelize", f"{key!r}: expected a stream of point clouds; {kind}")
            if key in normalized:
                text = "normalize would move its points; voxelize takes them as they are"
                raise invalid("voxelize", f"{key!r}: {text}")
            chosen = {name: _own(value) for name, value in arguments.by_name("voxelize", grid)}
            unknown = sorted(set(chosen) - set(OPTIONS))
            if unknown:
                expected = ", ".join(OPTIONS)
                raise invalid("voxelize", f"{key!r}: expected {expected}; got {unknown[0]!r}")
            self.options[key] = chosen
            self._try(key, info)

    def _try(self, key: str, info: Any) -> None:
        """What is wrong is told now, not by the first batch."""
        import torch

        if self._reduces(key) and info.shape[-1] == COORDINATES:
            raise invalid("voxelize", f"{key!r}: points have no features behind their coordinates")
        clouds = torch.empty(0, 0, info.shape[-1], dtype=getattr(torch, info.dtype))
        try:
            self._grid(key, clouds)
        except (TypeError, RoboCacheError) as error:  # of Python: an option that must be there
            raise invalid("voxelize", f"{key!r}: {error}") from None

    def _reduces(self, key: str) -> bool:
        return self.options[key].get("reduce", "occupancy") not in ("occupancy", "count")

    def _grid(self, key: str, clouds: Any) -> Any:
        """Of `[rows, points, channels]`."""
        features = clouds[..., COORDINATES:] if self._reduces(key) else None
        return voxelize(clouds[..., :COORDINATES], features, **self.options[key])

    def replace_in(self, batch: dict[str, Any]) -> None:
        """Puts grids where the clouds were: `[..., points, channels]` to `[..., X, Y, Z(, features)]`."""
        for key in self.options.keys() & batch.keys():
            clouds = batch[key]
            grid = self._grid(key, clouds.flatten(0, -3))
            batch[key] = grid.unflatten(0, clouds.shape[:-2])


def _own(value: Any) -> Any:
    """A list or an array as a tuple that nobody else changes."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return value
    numbers = value.tolist() if hasattr(value, "tolist") else value
    return tuple(numbers) if hasattr(numbers, "__iter__") else numbers
