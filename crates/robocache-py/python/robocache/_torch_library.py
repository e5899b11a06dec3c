"""How ops are registered with torch, and what they share.

Each op is described once (`Op`): its schema, what computes it, the shapes of its results, its gradient,
and how many axes its tensors have beside the batch, from which the rule for `torch.func.vmap` follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from robocache._errors import InvalidArgument, Unsupported

if not hasattr(torch.library, "register_vmap"):
    raise Unsupported(
        f"gradients, torch.compile and torch.func need torch 2.5 or newer, this is {torch.__version__}"
    )

_TORCH: Any = torch
"""For functions that torch does not type."""

_LIBRARY = _TORCH.library.Library("robocache", "DEF")

Tensor = torch.Tensor


@dataclass(frozen=True)
class Op:
    """One registered op. All arguments are positional, tensors are what has an entry in `inner`."""

    name: str
    schema: str
    """Arguments and results, as `torch.library.define` takes them."""
    kernel: Callable[..., Any]
    """Computes it on plain tensors of any device."""
    fake: Callable[..., Any]
    """Makes empty results of the right shape."""
    inner: dict[int, int] | None
    """By position of a tensor argument: its axes beside the batch. None: vmap is refused."""
    backward: Callable[..., Any]
    """As for `torch.library.register_autograd`."""
    setup_context: Callable[..., None]
    shape: int | None = None
    """The position of an argument that is the shape of the only result."""
    shaped: int | None = None
    """The position of a tensor of that shape."""


_FUNCTIONS: dict[str, type[torch.autograd.Function]] = {}


def register(op: Op) -> None:
    name = f"robocache::{op.name}"
    _LIBRARY.define(f"{op.name}{op.schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(op.name, op.kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=_LIBRARY)
    torch.library.register_autograd(name, op.backward, setup_context=op.setup_context, lib=_LIBRARY)
    rule = _no_vmap(op.name) if op.inner is None else _vmap_rule(op, op.inner)
    torch.library.register_vmap(name, rule, lib=_LIBRARY)
    # functorch does not look into the gradient of a registered op, but into a Function.
    members = {
        "forward": lambda *arguments: overload(op.name)(*arguments),
        "setup_context": op.setup_context,
        "backward": op.backward,
        "jvp": no_forward_mode,
        "vmap": rule,
    }
    methods = {key: staticmethod(member) for key, member in members.items()}
    _FUNCTIONS[op.name] = type(f"{op.name}_function", (torch.autograd.Function,), methods)


def overload(name: str) -> Any:
    return getattr(torch.ops.robocache, name).default


def call(name: str, *arguments: Any) -> Any:
    """Calls an op as it can be seen best: by functorch, or by everybody else."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return _FUNCTIONS[name].apply(*arguments)  # type: ignore[no-untyped-call]
    return overload(name)(*arguments)


def no_forward_mode(*_: Any) -> Any:
    raise Unsupported(
        "resample: values: forward-mode gradients are not supported; use backward mode",
        op="resample",
        argument="values",
    )


# -- vmap -------------------------------------------------------------------------------------


def _no_vmap(op: str) -> Callable[..., Any]:
    def rule(*_: Any) -> Any:
        raise Unsupported(
            f"{op}: torch.func.vmap is not supported; pass tensors with a batch", op=op
        )

    return rule


def _vmap_rule(op: Op, inner_axes: dict[int, int]) -> Callable[..., Any]:
    """vmap adds a batch axis in front: it becomes the op's own, or one with it."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        given = list(arguments)
        mapped = set()
        for place in inner_axes:
            if in_dims[place] is not None:
                given[place] = given[place].movedim(in_dims[place], 0)
                mapped.add(place)
        batches = [
            given[place].shape[given[place].dim() - inner - 1]
            for place, inner in inner_axes.items()
            if given[place] is not None and given[place].dim() - (place in mapped) > inner
        ]
        batch = max((b for b in batches if b != 1), default=1) if 0 not in batches else 0
        for place, inner in inner_axes.items():
            tensor = given[place]
            if tensor is None:
                continue
            if place not in mapped:
                if not batches and place != op.shaped:
                    continue  # shared by all
                tensor = tensor.unsqueeze(0)
            own = tensor.shape[tensor.dim() - inner :]
            if tensor.dim() == inner + 1:
                tensor = tensor.unsqueeze(1)
            if batches or place == op.shaped:
                tensor = tensor.expand(size, batch, *own)
            given[place] = tensor.reshape(-1, *own)
        if op.shape is None:
            results = [_split(x, size, batch, bool(batches)) for x in call(op.name, *given)]
            return tuple(results), (0,) * len(results)
        # Where the batch shares its values, the gradients of its rows are added up.
        shape = given[op.shape]
        given[op.shape] = [size * batch, *shape[-2:]]
        result = _split(call(op.name, *given), size, batch, True)
        if len(shape) == 2 or shape[0] != batch:
            result = result.sum(1, keepdim=True)
        return result.reshape(size, *shape), 0

    return rule


def _split(result: Tensor, size: int, batch: int, has_batch: bool) -> Tensor:
    """The axes of vmap and of the op apart again; a result that is not there has neither."""
    if result.dim() == 1:
        return result.new_empty(size, 0)
    return result.view(size, batch, *result.shape[1:]) if has_batch else result


# -- what ops share ---------------------------------------------------------------------------


def no_second_gradient(op: str) -> Callable[..., Any]:
    def backward(ctx: Any, *_: Any) -> Any:
        raise Unsupported(
            f"{op}: the gradient of a gradient (double backward) is not supported", op=op
        )

    return backward


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


def as_dtype(given: Any, op: str) -> torch.dtype | None:
    """A dtype of torch or NumPy, or the name of one."""
    if given is None or isinstance(given, torch.dtype):
        return given
    found = getattr(torch, getattr(given, "__name__", str(given)), None)
    if not isinstance(found, torch.dtype):
        raise InvalidArgument(
            f"{op}: out_dtype: expected a dtype, got {given!r}", op=op, argument="out_dtype"
        )
    return found


def name_of_method(method: Any, op: str) -> str:
    """The method as a text, as a schema can hold it: `linear` or `linear:0:7,slerp:7:11`."""
    if isinstance(method, str):
        return method
    try:
        return ",".join(f"{name}:{int(start)}:{int(end)}" for name, start, end in method)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{op}: method: expected a name or a list of (name, start, end), got {method!r}",
            op=op,
            argument="method",
        ) from None


def method_of(text: str) -> Any:
    """The opposite of `name_of_method`."""
    if ":" not in text:
        return text
    ranges = [part.split(":") for part in text.split(",")]
    return [(name, int(start), int(end)) for name, start, end in ranges]


def refuse(op: str, argument: str, message: str) -> None:
    raise Unsupported(f"{op}: {argument}: {message}", op=op, argument=argument)


def refuse_options(op: str, **options: Any) -> None:
    for argument, given in options.items():
        if given is not None:
            text = "cannot be used where torch must see the call (gradients, torch.compile, modes, "
            refuse(op, argument, text + "functorch, tensor subclasses)")


def only_in_values(op: str, **others: Tensor | None) -> None:
    """Gradients exist in the values only."""
    if not torch.is_grad_enabled():
        return
    for argument, tensor in others.items():
        if tensor is not None and tensor.requires_grad:
            refuse(
                op,
                argument,
                "requires grad, but gradients exist in the values only; pass a detached tensor",
            )


def refuse_tangents(op: str, values: Tensor) -> None:
    """Forward-mode gradients would be lost without a word."""
    if torch.compiler.is_compiling():
        return
    forward: Any = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(values).tangent is not None:
        no_forward_mode()


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
            raise InvalidArgument(
                f"{op}: {name}: batch of {size}, expected {batch}", op=op, argument=name
            )
    return batch
