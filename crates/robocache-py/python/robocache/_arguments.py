"""Arguments as the engine wants them; what does not fit is an `InvalidArgument`."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robocache import _core
from robocache._errors import InvalidArgument

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""Where files are."""
MOST = 2**31 - 1
"""Whole numbers up to here are accepted where nothing else bounds them."""


def invalid(argument: str, message: str, op: str = "Loader") -> InvalidArgument:
    """The error for an argument."""
    return InvalidArgument(f"{op}: {argument}: {message}", op=op, argument=argument)


def only_named(function: str, count: int) -> str:
    """The text of the `TypeError` about an option that was given by its place."""
    return f"{function}() takes {count} positional arguments; options must be named"


def whole(argument: str, value: Any, least: int = 0, most: int = MOST, op: str = "Loader") -> int:
    """A whole number within bounds."""
    try:
        if _holds_switch(value):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise invalid(argument, f"expected a whole number, got {value!r}", op) from None
    if not least <= number <= most:
        raise invalid(argument, f"expected {least} to {most}, got {number}", op)
    return number


def number(argument: str, value: Any) -> float:
    """A real number."""
    try:
        if _holds_switch(value) or isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise invalid(argument, f"expected a number, got {value!r}") from None


def is_switch(value: Any) -> bool:
    """Whether a value is True or False, of Python or of NumPy, which need not be imported."""
    if isinstance(value, bool):
        return True
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def _holds_switch(value: Any) -> bool:
    """Also where it is in an array or a tensor: no number."""
    return is_switch(value) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def flag(argument: str, value: Any, op: str = "Loader") -> bool:
    """True or False; anything else is a mistake."""
    if not is_switch(value):
        raise invalid(argument, f"expected True or False, got {value!r}", op)
    return bool(value)


def text(argument: str, value: Any, op: str = "Loader") -> str:
    """A text. Python's may hold half a surrogate pair, with which it is none."""
    if not isinstance(value, str):
        raise invalid(argument, f"expected a text, got {value!r}", op)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(argument, f"expected Unicode text, got {value!r}", op) from None
    return value


def path(argument: str, value: Any, op: str) -> str:
    """A path as `os.fsdecode` makes it, which keeps bytes that are no text."""
    try:
        place = os.fsdecode(value)
        os.fsencode(place)
    except TypeError:
        raise invalid(argument, f"expected a path, got {type(value).__name__}", op) from None
    except UnicodeError:
        raise invalid(argument, f"expected a path of this system, got {value!r}", op) from None
    return place


def one_of(argument: str, value: Any, known: Sequence[str], op: str = "Loader") -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in known:
        *others, last = (f'"{name}"' for name in known)
        expected = f"{', '.join(others)} or {last}"
        raise invalid(
            argument, f"expected {expected}, got {value!r}{did_you_mean(value, known)}", op
        )
    return value


def did_you_mean(given: Any, known: Iterable[str]) -> str:
    """`; did you mean "jpeg"?` for a name that resembles a known one, else nothing."""
    return _core.did_you_mean(given, list(known)) if isinstance(given, str) else ""


def texts(argument: str, value: Any) -> list[str]:
    """Several texts; one alone means itself."""
    several = [value] if isinstance(value, str) else items(argument, value)
    return [text(argument, x) for x in several]


def items(argument: str, value: Any, op: str = "Loader") -> list[Any]:
    """The items of a list, a tuple, an array or any other iterable that is no text and no mapping."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise invalid(argument, f"expected a list, got {value!r}", op)
    try:
        return list(value)
    except TypeError:  # an array of no dimension
        raise invalid(argument, f"expected a list, got {value!r}", op) from None


def by_name(argument: str, value: Any, op: str = "Loader") -> list[tuple[str, Any]]:
    """The items of a dict by stream or source; none for None."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise invalid(argument, f"expected a dict by name, got {value!r}", op)
    return [(text(argument, name, op), item) for name, item in value.items()]


def numbers_by_name(argument: str, value: Any) -> list[tuple[str, float]]:
    """A dict of numbers."""
    return [(name, number(argument, item)) for name, item in by_name(argument, value)]


def offsets_by_name(argument: str, value: Any) -> list[tuple[str, list[float]]]:
    """A dict of lists of numbers."""
    return [
        (name, [number(argument, offset) for offset in items(argument, offsets)])
        for name, offsets in by_name(argument, value)
    ]


def part(argument: str, value: Any) -> tuple[str, float]:
    """`("train", 0.9)` or `("validation", 0.9)`."""
    expected = "expected ('train' or 'validation', a part between 0 and 1)"
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise invalid(argument, f"{expected}, got {value!r}")
    name, share = value[0], number(argument, value[1])
    if name not in ("train", "validation") or not 0 < share < 1:
        raise invalid(argument, f"{expected}, got {value!r}")
    return name, share


def device_of(backend: Any, op: str) -> Any:
    """`device=` for the `backend=` of older names."""
    text = "cpu" if backend is None else str(backend)
    if text not in ("cpu", "cuda", "auto") and not text.startswith("cuda:"):
        raise invalid("backend", f'expected None, "cpu" or "cuda", got {backend!r}', op)
    return backend


def mebibytes(argument: str, value: Any, op: str) -> Any:
    """A budget in MiB; None for any."""
    if value is None:
        return None
    try:
        size = 0.0 if _holds_switch(value) or isinstance(value, bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        size = 0.0
    if not 0 < size < 2**40:
        raise invalid(argument, f"expected a number of MiB, more than 0, got {value!r}", op)
    return max(1, int(size * 2**20))


def _device_in_graph(backend: Any, op: str) -> Any:
    return backend


def _mebibytes_in_graph(argument: str, value: Any, op: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    size = int(value * 2**20)
    return 1 if value > 0 and size == 0 else size


# torch.compile cannot trace how errors are made: there the engine refuses what is wrong.
device_of._torchdynamo_inline = _device_in_graph  # type: ignore[attr-defined]
mebibytes._torchdynamo_inline = _mebibytes_in_graph  # type: ignore[attr-defined]


def rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Which of how many processes this one is: as told, else as torch.distributed knows."""
    if rank is None and world_size is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if rank is None or world_size is None:
        missing, given = ("rank", "world_size") if rank is None else ("world_size", "rank")
        raise invalid(
            missing, f"expected too where {given} is given: neither follows from the other"
        )
    world_size = whole("world_size", world_size, 1)
    return whole("rank", rank, 0, world_size - 1), world_size
