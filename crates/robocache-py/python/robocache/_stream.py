"""`Stream`, a plain class of Python: torch.compile makes one within its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from robocache._arguments import invalid, only_named, whole


class Stream:
    """One signal with its own clock, for `fuse`.

    Args:
        values: `[B,S,D]` or `[S,D]`; None for a modality that was not recorded.
        times: stamps `[B,S]` or `[S]`, of the type of the targets.
        method: as in `resample`, a name or column ranges.
        max_gap: seconds; a target between samples further apart is not valid.
        lengths: `[B]`, how many samples of each row exist; its batch is the call's, also of a missing modality.
        scale: what values of int8 or float8 are multiplied with, a number or `[D]` float32.
        dim: the columns of a missing modality.
        name: what errors call the stream.
    """

    __module__ = "robocache"
    # One tuple, which the engine reads at once.
    __slots__ = ("_parts",)
    _parts: tuple[Any, Any, Any, float | None, Any, Any, int | None, str | None]

    def __init__(
        self,
        values: Any = None,
        times: Any = None,
        *,
        method: Any = "linear",
        max_gap: float | None = None,
        lengths: Any = None,
        scale: Any = None,
        dim: int | None = None,
        name: str | None = None,
    ) -> None: ...

    if not TYPE_CHECKING:
        _signature = __init__

        # Streams are made for every call, most of them with nothing to look at. As in `_ops.py`, options have places
        # because the defaults of keyword-only ones cost more than all else here.
        def __init__(
            self,
            values=None,
            times=None,
            _named=...,
            method="linear",
            max_gap=None,
            lengths=None,
            scale=None,
            dim=None,
            name=None,
        ):
            if _named is not ...:
                raise TypeError(only_named("Stream", 2))
            if values is None or times is None or dim is not None or name is not None:
                dim = _checked_dim(values, times, dim, name)
            self._parts = (values, times, method, max_gap, lengths, scale, dim, name)

        __init__.__wrapped__ = _signature
        del _signature

    @property
    def values(self) -> Any:
        return self._parts[0]

    @property
    def times(self) -> Any:
        return self._parts[1]

    @property
    def method(self) -> Any:
        return self._parts[2]

    @property
    def max_gap(self) -> float | None:
        return self._parts[3]

    @property
    def lengths(self) -> Any:
        return self._parts[4]

    @property
    def scale(self) -> Any:
        return self._parts[5]

    @property
    def dim(self) -> int | None:
        return self._parts[6]

    @property
    def name(self) -> str | None:
        return self._parts[7]

    def __reduce__(self) -> tuple[Any, ...]:
        # By keyword, so that what was written stays readable whatever the order of the parts.
        names = ("values", "times", "method", "max_gap", "lengths", "scale", "dim", "name")
        parts = dict(zip(names, self._parts, strict=True))
        return _again, (type(self), parts), getattr(self, "__dict__", None) or None

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}, "
        if self.values is None:
            return f"Stream({name}missing, dim={self.dim})"
        return f"Stream({name}values of shape {getattr(self.values, 'shape', '?')})"


def _checked_dim(values: Any, times: Any, dim: int | None, name: Any) -> int | None:
    """The columns that are told, where all that was given fits together."""
    if dim is not None:
        dim = whole("dim", dim, 0, op="Stream")
    if name is not None and not isinstance(name, str):
        raise invalid("name", f"expected text, got {type(name).__name__}", "Stream")
    if values is None:
        if times is not None:
            raise invalid("values", "expected samples for the times, got None", "Stream")
        if dim is None:
            text = "a stream without values needs dim=, its number of columns"
            raise invalid("dim", text, "Stream")
    elif times is None:
        raise invalid("times", "expected stamps for the values, got None", "Stream")
    return dim


def _again(cls: type[Stream], parts: dict[str, Any]) -> Stream:
    """A stream that was copied or pickled; a subclass may take other arguments."""
    stream = cls.__new__(cls)
    Stream.__init__(stream, **parts)
    return stream
