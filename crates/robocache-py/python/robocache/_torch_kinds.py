"""What arguments are, by their names: how each is read from users, how it travels in a schema, what the engine gets.

A schema holds tensors, numbers and names, so options are read once and travel packed. Functions that read are found here
by the source text that `_torch_library` writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from robocache._core import ROTATIONS
from robocache._depth import DepthImage, op_of
from robocache._errors import InvalidArgument
from robocache._stream import Stream
from robocache._torch_arguments import (
    as_data,
    as_device,
    as_dtype,
    as_factor,
    as_fill,
    as_flag,
    as_method,
    as_name,
    as_number,
    as_numbers,
    as_rotation,
    as_seconds,
    as_sizes,
    as_tensor,
    as_text,
    as_whole,
    exists_only_in,
    fill_of,
    known,
    method_of,
    refuse,
    refuse_gradients,
    refuse_options,
    refuse_stored,
    refuse_tangents,
)

Axes = int | None | Callable[[Any], Any]
"""How many axes a tensor has beside the batch, None where it never has one; for a list of tensors a list of them. A
function is asked with all arguments of the op."""


@dataclass(frozen=True)
class Part:
    """One argument of a schema."""

    name: str
    type: str
    axes: Axes = None

    def count(self, a: Any) -> Any:
        return self.axes(a) if callable(self.axes) else self.axes


@dataclass(frozen=True)
class Kind:
    """What an argument of users is."""

    parts: tuple[Part, ...]
    read: Callable[[str, Any, str], Any]
    """From an argument's name, what users give, and the op: the parts, a tuple where there are several."""
    write: Callable[..., Any] = lambda part: part
    """From the parts: what the engine takes."""
    looks_itself: bool = False
    """Whether `read` refuses gradients where there are none."""
    names_op: bool = False
    """Whether it tells which op errors name."""


def as_given(argument: str, given: Any, op: str) -> Any:
    """What this package itself gives."""
    return given


def one(name: str, type: str, read: Callable[[str, Any, str], Any], axes: Axes = None) -> Kind:
    """An argument that is one of the schema, too."""
    return Kind((Part(name, type, axes),), read)


# -- tensors ----------------------------------------------------------------------------------------


def data(name: str, axes: int) -> Kind:
    """What decides about the framework of the results."""
    return one(name, "Tensor", as_data, axes)


def tensor(name: str, axes: Axes) -> Kind:
    return one(name, "Tensor", as_tensor, axes)


def maybe(name: str, axes: Axes) -> Kind:
    """A tensor that may be absent."""
    return one(name, "Tensor?", as_tensor, axes)


def pose_axes(pose: Tensor | None) -> int:
    """Seven numbers, or a matrix."""
    return 0 if pose is None else 1 if pose.shape[-1] == 7 else 2


def camera_axes(intrinsics: Tensor | None) -> int:
    """`fx, fy, cx, cy`, or a matrix."""
    return 0 if intrinsics is None else 1 if intrinsics.shape[-1] == 4 else 2


def rotation_axes(representation: str) -> int:
    """One, but for matrices."""
    return len(ROTATIONS[representation])


INTRINSICS = Part("intrinsics", "Tensor?", lambda a: camera_axes(a.intrinsics))
EXTRINSICS = Part("extrinsics", "Tensor?", lambda a: pose_axes(a.extrinsics))


# -- points, or images whose pixels are points -------------------------------------------------------


def as_points(argument: str, given: Any, op: str) -> tuple[Any, ...]:
    if not isinstance(given, DepthImage):
        refuse_gradients(op, exists_only_in("features"), points=given)
        return as_data(argument, given, op), None, None, 0.0
    depth, intrinsics, extrinsics, scale = given.parts
    if intrinsics is None:
        text = "expected a tensor or numbers, got NoneType"
        refuse(InvalidArgument, op, "intrinsics", text)
    intrinsics = as_tensor("intrinsics", intrinsics, op)
    extrinsics = as_tensor("extrinsics", extrinsics, op)
    others = {"depth": depth, "intrinsics": intrinsics, "extrinsics": extrinsics}
    refuse_gradients(op, exists_only_in("features"), **others)
    scale = 1e-3 if scale is None else as_number("depth_scale", scale, op)
    return as_data("depth", depth, op), intrinsics, extrinsics, scale


def points_of(points: Tensor, intrinsics: Any, extrinsics: Any, scale: float) -> Any:
    """The opposite of `as_points`."""
    return points if intrinsics is None else DepthImage(points, intrinsics, extrinsics, scale)


POINTS = Kind(
    (Part("points", "Tensor", 2), INTRINSICS, EXTRINSICS, Part("depth_scale", "float")),
    as_points,
    points_of,
    looks_itself=True,
    names_op=True,
)


# -- groups of points --------------------------------------------------------------------------------


def as_groups(argument: str, given: Any, op: str) -> tuple[Any, ...]:
    return given[0], given[1], given[2], given[5]


def groups_of(cells: Tensor, starts: Tensor, order: Tensor, count: Tensor) -> Any:
    """As the engine counts them; it does not look at the two that are not there."""
    return cells, starts, order, None, None, count


GROUPS = Kind(
    tuple(Part(name, "Tensor") for name in ("cells", "starts", "order", "count")),
    as_groups,
    groups_of,
)


# -- streams -----------------------------------------------------------------------------------------

_SAMPLES, _LENGTHS, _SCALE, _NAMED = 1, 2, 4, 8
"""What a stream has."""
_HEAD = 4
"""Numbers of a stream in front of others: what it has, its columns where it has no samples, the lengths of its method and
of its name."""


def label(index: int, names: Sequence[str | None]) -> str:
    """What errors call a stream, as the engine does: its place where another has the same name."""
    name = names[index]
    is_its_own = name is not None and list(names).count(name) == 1
    return f'streams["{name}"]' if is_its_own else f"streams[{index}]"


def as_streams(argument: str, given: Any, op: str) -> tuple[Any, ...]:
    """Values; all other tensors, stream by stream; what there is of each, as numbers; gaps, where infinity is none."""
    if not isinstance(given, (list, tuple)):
        refuse(
            InvalidArgument, op, argument, f"expected a list of Stream, got {type(given).__name__}"
        )
    for index, each in enumerate(given):
        if not isinstance(each, Stream):
            text = f"expected a Stream at index {index}, got {type(each).__name__}"
            refuse(InvalidArgument, op, argument, text)
        if not torch.compiler.is_compiling() and not hasattr(each, "_parts"):
            text = "expected a Stream that was made by its own class"
            refuse(InvalidArgument, op, argument, text)
    names = [each.name for each in given]
    values, others, layout, gaps = [], [], [], []
    for index, each in enumerate(given):
        called = label(index, names)
        times = as_tensor(f"{called}.times", each.times, op)
        lengths = as_tensor(f"{called}.lengths", each.lengths, op)
        scale = as_factor(f"{called}.scale", each.scale, op)
        named = {"times": times, "lengths": lengths, "scale": scale}
        where = {f"{called}.{key}": tensor for key, tensor in named.items()}
        refuse_gradients(op, exists_only_in("values"), **where)
        if each.values is not None:
            values.append(as_tensor(f"{called}.values", each.values, op))
            refuse_stored(op, f"{called}.values", values[-1])
            refuse_tangents(op, f"{called}.values", values[-1])
        others += [tensor for tensor in (times, lengths, scale) if tensor is not None]
        has = _SAMPLES if times is not None else 0
        has |= _LENGTHS if lengths is not None else 0
        has |= _SCALE if scale is not None else 0
        has |= _NAMED if each.name is not None else 0
        method = as_method(f"{called}.method", each.method, op)
        dim = -1 if each.dim is None else known(each.dim)
        # Letters as numbers: a schema holds no half of a surrogate pair.
        letters = [] if each.name is None else [ord(letter) for letter in each.name]
        layout += [has, dim, len(method), len(letters), *method, *letters]
        gap = as_seconds(f"{called}.max_gap", each.max_gap, op)
        gaps.append(math.inf if gap is None else gap)
    return values, others, layout, gaps


def streams_in(a: Any) -> list[Any]:
    """The streams of a call of the registered op."""
    values, others, streams = iter(a.values), iter(a.others), []
    numbers = iter(a.layout)
    for gap in a.max_gaps:
        has, dim, count, length = (next(numbers) for _ in range(_HEAD))
        method = [next(numbers) for _ in range(count)]
        name = "".join(chr(next(numbers)) for _ in range(length))
        streams.append(
            SimpleNamespace(
                values=next(values) if has & _SAMPLES else None,
                times=next(others) if has & _SAMPLES else None,
                lengths=next(others) if has & _LENGTHS else None,
                scale=next(others) if has & _SCALE else None,
                dim=None if dim < 0 else dim,
                method=method,
                max_gap=gap,
                name=name if has & _NAMED else None,
            )
        )
    return streams


def streams_of(values: Any, others: Any, layout: Any, gaps: Any) -> list[Stream]:
    """The opposite of `as_streams`."""
    a = SimpleNamespace(values=values, others=others, layout=layout, max_gaps=gaps)
    streams = []
    for each in streams_in(a):
        parts = {**vars(each), "method": method_of(each.method)}
        streams.append(Stream(parts.pop("values"), parts.pop("times"), **parts))
    return streams


def _axes_of_others(a: Any) -> list[int | None]:
    """A scale never has a batch."""
    axes: list[int | None] = []
    for each in streams_in(a):
        known = ((each.times, 1), (each.lengths, 0), (each.scale, None))
        axes += [own for tensor, own in known if tensor is not None]
    return axes


STREAMS = Kind(
    (
        Part("values", "Tensor[]", lambda a: [2] * len(a.values)),
        Part("others", "Tensor[]", _axes_of_others),
        Part("layout", "int[]"),
        Part("max_gaps", "float[]"),
    ),
    as_streams,
    streams_of,
    looks_itself=True,
)


# -- all by name -------------------------------------------------------------------------------------


def as_three(argument: str, given: Any, op: str) -> list[float]:
    """Three numbers, or one for all three."""
    numbers = as_numbers(argument, given, op)
    return numbers * 3 if len(numbers) == 1 else numbers


def as_most(argument: str, given: Any, op: str) -> int | None:
    """How many points of a cell are wanted, if any."""
    return None if given is None else as_whole("max_points_per_voxel", given, op)


def as_part(argument: str, given: Any, op: str) -> int | None:
    """How many rows a part of a call has, if that is said."""
    return None if given is None else as_whole(argument, given, op)


METHOD = Kind((Part("method", "int[]"),), as_method, method_of)
FILL = Kind((Part("fill", "float[]"),), as_fill, fill_of)
_FLAGS = ("check", "compact", "return_age", "return_counts", "return_dropped", "return_valid")
_NAMES = ("extrapolate", "reduce")
_DTYPES = ("dtype", "out_dtype")

KINDS: dict[str, Kind] = {
    "chunk": one("chunk", "SymInt?", as_part),
    "depth": data("depth", 2),
    "depth_scale": one("depth_scale", "float", as_number),
    "device": one("device", "str?", as_device),
    "extrinsics": Kind((EXTRINSICS,), as_tensor),
    "features": maybe("features", 2),
    "fill": FILL,
    "groups": GROUPS,
    "high": one("high", "float[]", as_numbers),
    "intrinsics": Kind((INTRINSICS,), as_tensor),
    "k": one("k", "SymInt", as_whole),
    "lengths": maybe("lengths", 0),
    "low": one("low", "float[]", as_numbers),
    "max_gap": one("max_gap", "float?", as_seconds),
    "max_memory": one("max_memory", "str?", as_text),
    "max_points": one("max_points", "SymInt?", as_most),
    "max_voxels": one("max_voxels", "SymInt?", as_given),
    "method": METHOD,
    "origin": one("origin", "float[]", as_numbers),
    "points": data("points", 2),
    "pose": tensor("pose", lambda a: pose_axes(a.pose)),
    "rows": one("rows", "SymInt", as_given),
    "scale": one("scale", "Tensor?", as_factor),
    "shape": one("shape", "SymInt[]", as_sizes),
    "source": one("source", "str", as_rotation),
    "start": one("start", "SymInt", as_whole),
    "streams": STREAMS,
    "target": one("target", "str", as_rotation),
    "target_lengths": maybe("target_lengths", 0),
    "targets": tensor("targets", 1),
    "times": tensor("times", 1),
    "values": data("values", 2),
    "voxel_size": one("voxel_size", "float[]", as_three),
    "x": one("x", "Tensor", as_data, lambda a: rotation_axes(a.source)),
    **{name: one(name, "bool?", as_flag) for name in _FLAGS},
    **{name: one(name, "str?", as_name) for name in _NAMES},
    **{name: one(name, "ScalarType?", as_dtype) for name in _DTYPES},
}


def part(name: str) -> Part:
    """The one part of an argument that is one of the schema, too."""
    (found,) = KINDS[name].parts
    return found


# Beside what is public, names of the text that `_torch_library` writes.
__all__ = ["GROUPS", "KINDS", "POINTS", "Kind", "Part", "op_of", "part", "refuse_options"]
