"""What the functions that call registered ops share: their arguments, refusals and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from robocache._arguments import invalid, whole
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


def as_tensor(argument: Any) -> Any:
    """Stamps, targets and lengths as a tensor; lists and arrays keep the type NumPy gives them."""
    if argument is None or isinstance(argument, Tensor):
        return argument
    if hasattr(argument, "__dlpack__") and not hasattr(argument, "__array__"):
        return _TORCH.from_dlpack(argument)
    import numpy as np

    return torch.as_tensor(np.asarray(argument))


def as_factor(scale: Any) -> Tensor | None:
    """A scale as a tensor; numbers stay on the host, beside data on any device."""
    if scale is None or isinstance(scale, Tensor):
        return scale
    if isinstance(scale, (int, float)):
        return torch.tensor(float(scale), dtype=torch.float32)
    found: Tensor = as_tensor(scale)
    return found


_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_SHORT |= {"u8": "uint8", "i32": "int32", "i64": "int64"}


def as_dtype(given: Any, op: str, argument: str = "out_dtype") -> torch.dtype | None:
    """A dtype of torch or NumPy, or the name of one."""
    if given is None or isinstance(given, torch.dtype):
        return given
    name = getattr(given, "__name__", str(given))
    found = getattr(torch, _SHORT.get(name, name), None)
    if not isinstance(found, torch.dtype):
        refuse(InvalidArgument, op, argument, f"expected a dtype such as float32, got {given!r}")
    return found


def as_data(argument: str, given: Any, op: str) -> Tensor:
    """What decides about the framework of the results."""
    if not isinstance(given, Tensor):
        text = "expected a torch.Tensor where torch must see the call (gradients, torch.compile, "
        text = f"{text}modes, functorch), got {type(given).__name__}"
        refuse(InvalidArgument, op, argument, text)
    return given


def as_numbers(argument: str, given: Any, op: str) -> list[float]:
    """Three numbers, or one; the engine counts them."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return [float(given)]
    try:
        if isinstance(given, (bool, str)):
            raise TypeError
        return [float(x) for x in (given.tolist() if hasattr(given, "tolist") else given)]
    except (TypeError, ValueError):
        refuse(InvalidArgument, op, argument, f"expected numbers, got {given!r}")


def as_whole(argument: str, given: Any, op: str) -> int:
    """A whole number, also one that torch.compile does not know yet; the engine looks at its bounds."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    return whole(argument, given, -(2**63), 2**63 - 1, op)


def as_sizes(argument: str, given: Any, op: str) -> list[int]:
    """Three whole numbers; the engine counts them."""
    try:
        return [as_whole(argument, x, op) for x in given]
    except TypeError:
        refuse(InvalidArgument, op, argument, f"expected three whole numbers, got {given!r}")


def as_name(argument: str, given: Any, op: str) -> str:
    """The name of a choice, which the engine knows."""
    if not isinstance(given, str):
        refuse(InvalidArgument, op, argument, f"expected a name, got {type(given).__name__}")
    return given


def as_text(given: Any) -> str | None:
    """What the engine reads as a text: devices and budgets."""
    return None if given is None else str(given)


def name_of_method(method: Any, op: str) -> str:
    """The method as a text, as a schema can hold it: `linear` or `linear:0:7,slerp:7:11`."""
    if isinstance(method, str):
        return method
    try:
        return ",".join(f"{name}:{int(start)}:{int(end)}" for name, start, end in method)
    except (TypeError, ValueError):
        text = f"expected a name or a list of (name, start, end), got {method!r}"
        refuse(InvalidArgument, op, "method", text)


def method_of(text: str) -> Any:
    """The opposite of `name_of_method`."""
    if ":" not in text:
        return text
    ranges = [part.split(":") for part in text.split(",")]
    return [(name, int(start), int(end)) for name, start, end in ranges]


# -- what is refused ----------------------------------------------------------------------------

IN_VALUES = "gradients exist in the values only"
IN_FEATURES = "gradients exist in the features only"
NOWHERE = "this op has no gradients"


def no_second_gradient(op: str) -> Callable[..., Any]:
    def backward(ctx: Any, *_: Any) -> Any:
        raise Unsupported(
            f"{op}: the gradient of a gradient (double backward) is not supported", op=op
        )

    return backward


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


def refuse_tangents(op: str, argument: str, tensor: Any) -> None:
    """Forward-mode gradients would be lost without a word."""
    if torch.compiler.is_compiling() or not isinstance(tensor, Tensor):
        return
    forward: Any = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        no_forward_mode(op, argument)


# -- results ------------------------------------------------------------------------------------


def spread(
    found: Any, wanted: Sequence[bool], dtypes: Sequence[torch.dtype], like: Tensor
) -> tuple[Tensor, ...]:
    """What the engine returns, with empty tensors for what nobody wants: a schema has them all."""
    left = iter(found if isinstance(found, tuple) else (found,))
    return tuple(
        next(left) if is_wanted else like.new_empty((0,), dtype=dtype)
        for is_wanted, dtype in zip(wanted, dtypes, strict=True)
    )


def chosen(results: Sequence[Tensor], wanted: Sequence[bool]) -> Any:
    """The opposite of `spread`."""
    found = tuple(result for result, is_wanted in zip(results, wanted, strict=True) if is_wanted)
    return found if len(found) > 1 else found[0]


def common_batch(op: str, *tensors: tuple[str, Tensor | None, int]) -> Any:
    """The batch that (name, tensor, axes beside the batch) agree on; None without any."""
    batch = None
    for name, tensor, inner in tensors:
        if tensor is None or tensor.dim() == inner:
            continue
        size = tensor.shape[0]
        if batch is None or batch == 1:
            batch = size
        elif size not in (1, batch):
            raise invalid(name, f"batch of {size}, expected {batch}", op)
    return batch


def with_batch(batch: Any, *shape: Any) -> tuple[Any, ...]:
    """A shape of the batch that `common_batch` found."""
    return shape if batch is None else (batch, *shape)
