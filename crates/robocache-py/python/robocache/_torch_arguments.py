"""What the functions that call registered ops share: their arguments, refusals and results."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from robocache import _core
from robocache._arguments import did_you_mean, invalid, is_switch, whole
from robocache._errors import InvalidArgument, RoboCacheError, Unsupported

_TORCH: Any = torch
"""For functions that torch does not type."""


def refuse(error: type[RoboCacheError], op: str, argument: str, message: str) -> NoReturn:
    """Raises; a graph that must be whole cannot be made, and torch.compile says so with these words."""
    text = f"{op}: {argument}: {message}"
    if torch.compiler.is_compiling():
        _TORCH._dynamo.graph_break(msg=text)
    _raise(error, text, op, argument)


def _raise(error: type[RoboCacheError], text: str, op: str, argument: str) -> NoReturn:
    raise error(text, op=op, argument=argument) from None


# torch.compile cannot trace how our errors are made.
_raise._torchdynamo_disable = True  # type: ignore[attr-defined]


def as_tensor(argument: str, given: Any, op: str) -> Any:
    """Stamps, targets and lengths as a tensor; lists and arrays keep the type NumPy gives them."""
    if given is None or isinstance(given, Tensor):
        return readable(argument, given, op)
    if torch.compiler.is_compiling():
        return _read(given)  # torch.compile says itself what it cannot trace
    try:
        return _read(given)
    except TypeError:
        _refuse_array(given, argument, op)
    except (ValueError, RuntimeError) as error:
        text = str(error)
    refuse(InvalidArgument, op, argument, text)


def readable(argument: str, given: Any, op: str) -> Any:
    """What torch would not lend the engine must not be taken for a trace, whose results hold nothing."""
    if given is None or torch.compiler.is_compiling():
        return given
    if given.is_meta and not _is_traced(given):
        refuse(Unsupported, op, argument, "a meta tensor holds no data")
    if given.is_nested:
        text = "nested tensors are not supported; pass a padded one, with lengths"
        refuse(Unsupported, op, argument, text)
    if given.layout is not torch.strided:
        text = f"tensors of layout {given.layout} are not supported; pass .to_dense()"
        refuse(Unsupported, op, argument, text)
    return given


def _is_traced(tensor: Tensor) -> bool:
    """Whether the call is traced for shapes only."""
    fake = _TORCH._subclasses.FakeTensor
    return isinstance(tensor, fake) or _TORCH._C._len_torch_dispatch_stack() > 0


def _refuse_array(given: Any, argument: str, op: str) -> NoReturn:
    """Why an object is none of our arrays, in the engine's words."""
    import numpy as np

    dtype = np.asarray(given).dtype
    if dtype.kind in "OUS" and not isinstance(given, np.ndarray):
        text = f"expected a tensor or numbers, got {type(given).__name__}"
        refuse(InvalidArgument, op, argument, text)
    text = f"dtype {dtype} is not supported"
    if dtype.kind in "mM" and argument.endswith(("times", "targets")):
        unit = str(dtype).partition("[")[0]
        text += f'; as nanoseconds: .astype("{unit}[ns]").astype("int64")'
    refuse(Unsupported, op, argument, text)


def _read(given: Any) -> Any:
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        return _TORCH.from_dlpack(given)
    import numpy as np

    try:
        array = np.asarray(given)
    except TypeError:
        if hasattr(
            given, "__dlpack__"
        ):  # such as CuPy's, which copies to the host only when told to
            return _TORCH.from_dlpack(given)
        raise
    if not torch.compiler.is_compiling() and not _is_torchs(array):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    return torch.as_tensor(array)


def _is_torchs(array: Any) -> bool:
    """Whether torch takes an array as it lies."""
    return array.dtype.isnative and all(stride >= 0 for stride in array.strides)


def as_factor(argument: str, scale: Any, op: str) -> Tensor | None:
    """A scale as a tensor; numbers stay on the host, beside data on any device."""
    if scale is None or isinstance(scale, Tensor):
        known: Tensor | None = readable(argument, scale, op)
        return known
    if isinstance(scale, (int, float)):
        return torch.tensor(float(scale), dtype=torch.float32)
    found: Tensor = as_tensor(argument, scale, op)
    return found


_STORED = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Dtypes that only store numbers: what is computed from them is float32."""


def stored_as(dtype: torch.dtype, scale: Any) -> torch.dtype:
    """The dtype of a result where nothing says another, as the engine has it."""
    return torch.float32 if scale is not None or dtype in _STORED else dtype


_DTYPES: tuple[str, ...] = _core.DTYPES
_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_SHORT |= {"u8": "uint8", "i32": "int32", "i64": "int64"}
_SHORT |= {"half": "float16", "float": "float32", "double": "float64"}


def as_dtype(argument: str, given: Any, op: str) -> torch.dtype | None:
    """A dtype of torch or NumPy, or the name of one."""
    if given is None or isinstance(given, torch.dtype):
        return given
    if given is float:  # Python's own, which is no dtype, has 64 bits, unlike torch's
        return torch.float64
    name = encodable(getattr(given, "__name__", str(given))).removeprefix("torch.")
    full = _SHORT.get(name, name)
    found = getattr(torch, full, None)
    # torch knows some by other names, such as `long`, which the engine does not.
    if not isinstance(found, torch.dtype) or str(found) != f"torch.{full}":
        text = f'expected a dtype such as float32, got "{name}"'
        if not torch.compiler.is_compiling():
            text += did_you_mean(name, _DTYPES)
        refuse(InvalidArgument, op, argument, text)
    return found


def as_flag(argument: str, given: Any, op: str) -> bool | None:
    """A switch; None stands for its default."""
    if given is None:
        return None
    if not _is_switch(given):
        text = f"expected True or False, got {type(given).__name__}"
        refuse(InvalidArgument, op, argument, text)
    return bool(given)


def _is_switch(given: Any) -> bool:
    """Python's or NumPy's, in a form that torch.compile traces."""
    return type(given).__name__ in ("bool", "bool_")


def _holds_switch(given: Any) -> bool:
    """Also where it is in an array or a tensor: no number."""
    return _is_switch(given) or str(getattr(given, "dtype", "")) in ("bool", "torch.bool")


def as_data(argument: str, given: Any, op: str) -> Tensor:
    """What decides about the framework of the results."""
    if not isinstance(given, Tensor):
        text = "expected a torch.Tensor where torch must see the call (gradients, torch.compile, "
        text = f"{text}modes, functorch), got {type(given).__name__}"
        refuse(InvalidArgument, op, argument, text)
    tensor: Tensor = readable(argument, given, op)
    return tensor


def as_number(argument: str, given: Any, op: str) -> float:
    """One number, also one of NumPy or in a tensor."""
    found = None if _holds_switch(given) else _float(given)
    if found is None:
        refuse(InvalidArgument, op, argument, f"expected a number, got {type(given).__name__}")
    return found


def as_fill(argument: str, given: Any, op: str) -> list[float]:
    """What empty cells hold: nothing said, a number, or the halves of an integer, which a float would round."""
    if given is None:
        return []
    whole = _index(given)
    if whole is not None and -(2**64) < whole < 2**64:
        high, low = divmod(known(whole), 2**32)
        return [float(high), float(low)]
    return [as_number(argument, given, op)]


def fill_of(numbers: list[float]) -> float:
    """The opposite of `as_fill`."""
    if len(numbers) == 2:
        return int(numbers[0]) * 2**32 + int(numbers[1])
    return numbers[0] if numbers else 0


def known(number: int) -> int:
    """A whole number that torch.compile would keep open, as one that it knows."""
    return int(f"{int(number)}")


def _index(given: Any) -> int | None:
    """What says itself that it is an integer."""
    if isinstance(given, int):
        return None if isinstance(given, bool) else given
    if _holds_switch(given) or isinstance(given, float) or not hasattr(given, "__index__"):
        return None
    try:
        return operator.index(given)
    except TypeError:  # a tensor of floats, or of several numbers
        return None


def as_seconds(argument: str, given: Any, op: str) -> float | None:
    """Seconds, or nothing; the engine looks at their bounds."""
    if given is None:
        return None
    found = None if is_switch(given) else _float(given)
    if found is None:
        text = f"expected a number of seconds, got {type(given).__name__}"
        refuse(InvalidArgument, op, argument, text)
    return found


def _float(given: Any) -> float | None:
    """What says itself that it is a number: texts do not. None if it is none, or not one."""
    if isinstance(given, (int, float)) or hasattr(given, "__float__"):
        try:
            return float(given)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            return None
    return None


def as_numbers(argument: str, given: Any, op: str) -> list[float]:
    """Three numbers, or one, as tensors, arrays and lists hold them; the engine counts them."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return [float(given)]
    try:
        if isinstance(given, (bool, str)):
            raise TypeError
        items = given.tolist() if hasattr(given, "tolist") else given
        return [float(x) for x in (items if hasattr(items, "__iter__") else [items])]
    except (TypeError, ValueError):
        refuse(InvalidArgument, op, argument, f"expected numbers, got {given!r}")


def as_whole(argument: str, given: Any, op: str) -> int:
    """A whole number, also one that torch.compile does not know yet; the engine looks at its bounds."""
    is_known = isinstance(given, int) and not isinstance(given, bool)
    if is_known and (torch.compiler.is_compiling() or -(2**63) <= given < 2**63):
        found: int = given
        return found
    return whole(argument, given, -(2**63), 2**63 - 1, op)


def as_sizes(argument: str, given: Any, op: str) -> list[int]:
    """Three whole numbers; the engine counts them."""
    try:
        return [as_whole(argument, x, op) for x in given]
    except TypeError:
        refuse(InvalidArgument, op, argument, f"expected three whole numbers, got {given!r}")


def as_name(argument: str, given: Any, op: str) -> str | None:
    """The name of a choice, which the engine knows; None stands for the default."""
    if given is None:
        return None
    if not isinstance(given, str):
        refuse(InvalidArgument, op, argument, f"expected a name, got {type(given).__name__}")
    return encodable(given)


def encodable(text: str) -> str:
    """As a schema can hold it: half a surrogate pair, which no name has, becomes a question mark."""
    if torch.compiler.is_compiling():
        return text
    return text.encode(errors="replace").decode()


def as_text(argument: str, given: Any, op: str) -> str | None:
    """What the engine reads as a text: devices and budgets."""
    if isinstance(given, int) and not isinstance(given, bool):
        return f"{int(given)}"  # also one that torch.compile would keep open
    return None if given is None else encodable(str(given))


def as_device(argument: str, given: Any, op: str) -> str | None:
    """A device, or several in a list, as a text."""
    if not isinstance(given, (list, tuple)):
        return as_text(argument, given, op)
    if not given:
        text = "expected a device or a list of some, got an empty list"
        refuse(InvalidArgument, op, "device", text)
    for each in given:
        if each is None or isinstance(each, (list, tuple)):
            text = f"expected devices in a list, got {type(each).__name__}"
            refuse(InvalidArgument, op, "device", text)
    return ",".join([as_text(argument, each, op) or "" for each in given])


def as_rotation(argument: str, given: Any, op: str) -> str:
    """The name of a representation of rotations."""
    name = as_name(argument, given, op)
    if name is None:
        refuse(InvalidArgument, op, argument, "expected a name, got NoneType")
    if name not in _core.ROTATIONS:
        text = f'expected one of {", ".join(_core.ROTATIONS)}, got "{name}"'
        if not torch.compiler.is_compiling():
            text += did_you_mean(name, _core.ROTATIONS)
        refuse(InvalidArgument, op, argument, text)
    return name


METHODS: tuple[str, ...] = _core.METHODS
_METHOD_NUMBERS = {name: number for number, name in enumerate(METHODS)}


def as_method(argument: str, given: Any, op: str) -> list[int]:
    """A method as numbers: its own, or three for each range of columns: the method's, its start and end."""
    if given is None:
        return [_METHOD_NUMBERS["linear"]]
    if not isinstance(given, (list, tuple)):
        return [_number_of_method(argument, given, op)]
    packed = []
    for item in given:
        if not _is_range(item):
            text = (
                "expected (name, start, end) for a range of columns, with whole numbers from 0 on"
            )
            refuse(InvalidArgument, op, argument, f"{text}, got {item!r}")
        name, start, end = item
        packed += [_number_of_method(argument, name, op), known(start), known(end)]
    return packed


def _number_of_method(argument: str, name: Any, op: str) -> int:
    if not isinstance(name, str):
        refuse(InvalidArgument, op, argument, f"expected a name, got {type(name).__name__}")
    if name not in _METHOD_NUMBERS:
        text = f'expected one of {", ".join(METHODS)}, got "{encodable(name)}"'
        if not torch.compiler.is_compiling():
            text += did_you_mean(name, METHODS)
        refuse(InvalidArgument, op, argument, text)
    return _METHOD_NUMBERS[name]


def _is_range(item: Any) -> bool:
    if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[0], str):
        return False
    return all(
        (isinstance(x, int) or hasattr(x, "__index__")) and 0 <= int(x) < 2**63 for x in item[1:]
    )


def method_of(packed: Sequence[int]) -> Any:
    """The opposite of `as_method`."""
    if len(packed) == 1:
        return METHODS[packed[0]]
    return [
        (METHODS[packed[at]], packed[at + 1], packed[at + 2]) for at in range(0, len(packed), 3)
    ]


def reads_values(method: Sequence[int]) -> bool:
    """Whether the gradient depends on the values. Otherwise nothing needs to keep them alive."""
    named = method if len(method) == 1 else method[::3]
    return any(METHODS[number] in ("cubic", "slerp", "rot6d") for number in named)


# -- what is refused ----------------------------------------------------------------------------

NOWHERE = "this op has no gradients"


def exists_only_in(argument: str) -> str:
    return f"gradients exist in the {argument} only"


def no_forward_mode(op: str, argument: str) -> NoReturn:
    text = "forward-mode gradients are not supported; use backward mode or pass a detached tensor"
    refuse(Unsupported, op, argument, text)


def refuse_options(op: str, **options: Any) -> None:
    for argument, given in options.items():
        if given is not None:
            text = "cannot be used where torch must see the call (gradients, torch.compile, modes, "
            refuse(Unsupported, op, argument, text + "functorch, tensor subclasses)")


def refuse_gradients(op: str, why: str, **others: Any) -> None:
    """What has no gradient must not lose one without a word."""
    for argument, tensor in others.items():
        if not isinstance(tensor, Tensor):
            continue
        if tensor.requires_grad and torch.is_grad_enabled():
            text = f"requires grad, but {why}; pass a detached tensor"
            refuse(Unsupported, op, argument, text)
        refuse_tangents(op, argument, tensor)


def refuse_stored(op: str, argument: str, values: Any, wanted: bool | None = None) -> None:
    """What only stores numbers holds no gradient. Whether one is wanted, the values say otherwise."""
    if not isinstance(values, Tensor) or values.dtype not in _STORED:
        return
    if wanted is None:
        wanted = values.requires_grad and torch.is_grad_enabled()
    if wanted:
        text = f"requires grad, but {values.dtype} holds no gradients; pass a detached tensor"
        refuse(Unsupported, op, argument, text)


def refuse_tangents(op: str, argument: str, tensor: Any) -> None:
    """Forward-mode gradients would be lost without a word."""
    if torch.compiler.is_compiling() or not isinstance(tensor, Tensor):
        return
    forward: Any = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        no_forward_mode(op, argument)


# -- shapes ------------------------------------------------------------------------------------


def common_batch(op: str, *tensors: tuple[str, Tensor | None, int]) -> Any:
    """The batch that (name, tensor, axes beside the batch) agree on; None without any."""
    batch, whose = None, ""
    for name, tensor, inner in tensors:
        if tensor is None or tensor.dim() == inner:
            continue
        size = tensor.shape[0]
        if batch is None or batch == 1:
            batch, whose = size, name
        elif size not in (1, batch):
            raise invalid(name, f"batch of {size}, but {whose} has a batch of {batch}", op)
    return batch


def with_batch(batch: Any, *shape: Any) -> tuple[Any, ...]:
    """A shape of the batch that `common_batch` found."""
    return shape if batch is None else (batch, *shape)
