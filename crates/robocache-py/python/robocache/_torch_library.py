"""How ops are registered with torch, and what they share.

Each op is described once (`Op`): its schema, what computes it, the shapes of its results, its gradient,
and how many axes its tensors have beside the batch, from which the rule for `torch.func.vmap` follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from robocache._core import below_torch
from robocache._errors import Unsupported
from robocache._torch_arguments import no_forward_mode

if not hasattr(torch.library, "register_vmap"):
    raise Unsupported(
        f"gradients, torch.compile and torch.func need torch 2.5 or newer, this is {torch.__version__}"
    )

_TORCH: Any = torch
"""For functions that torch does not type."""

_LIBRARY = _TORCH.library.Library("robocache", "DEF")

Tensor = torch.Tensor


Axes = int | list[int | None] | Callable[..., Any]
"""How many axes a tensor argument has beside the batch; for a list of tensors a list of them, None
where there is never a batch. A function is asked with all arguments, what is mapped over in front."""


@dataclass(frozen=True)
class Op:
    """One registered op. All arguments are positional."""

    name: str
    schema: str
    """Arguments and results, as `torch.library.define` takes them."""
    kernel: Callable[..., Any]
    """Computes it on plain tensors of any device."""
    fake: Callable[..., Any]
    """Makes empty results of the right shape."""
    inner: dict[int, Axes] | None
    """By position of an argument that may have a batch. None: vmap is refused."""
    backward: Callable[..., Any] | None = None
    """As for `torch.library.register_autograd`. None: there is no gradient."""
    setup_context: Callable[..., None] = lambda ctx, inputs, output: None
    of: str = ""
    """The op that it is a part of, which errors name."""
    within: str = ""
    """The argument in which there is a gradient."""
    shape: int | None = None
    """Of a gradient: the position of an argument that is the shape of the result."""
    full: tuple[int, ...] = ()
    """Positions of tensors that must have the batch if there is one."""


_FUNCTIONS: dict[str, type[torch.autograd.Function]] = {}


def register(op: Op) -> None:
    name = f"robocache::{op.name}"
    _LIBRARY.define(f"{op.name}{op.schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(op.name, partial(below_torch, op.kernel), "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=_LIBRARY)
    torch.library.register_vmap(name, _vmap_rule(op, call_registered), lib=_LIBRARY)
    if op.backward is not None:
        setup = op.setup_context
        torch.library.register_autograd(name, op.backward, setup_context=setup, lib=_LIBRARY)
        _FUNCTIONS[op.name] = _function(op, op.backward, _vmap_rule(op, call))


def _function(
    op: Op, gradient: Callable[..., Any], rule: Callable[..., Any]
) -> type[torch.autograd.Function]:
    """functorch does not look into the gradient of a registered op, but into a Function.

    And a Function does not look into lists, so it takes what is in them, and last how long they are.
    """

    def forward(*flat: Any) -> Any:
        return overload(op.name)(*_nested(flat))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        op.setup_context(ctx, _nested(inputs), output)

    def backward(ctx: Any, *grads: Any) -> Any:
        *found, _ = _flat(gradient(ctx, *grads))
        return (*found, None)

    def vmap(info: Any, in_dims: tuple[Any, ...], *flat: Any) -> Any:
        return rule(info, _nested((*in_dims[:-1], flat[-1])), *_nested(flat))

    members = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": lambda *_: no_forward_mode(op.of or op.name, op.within),
        "vmap": vmap,
    }
    methods = {key: staticmethod(member) for key, member in members.items()}
    return type(f"{op.name}_function", (torch.autograd.Function,), methods)


def _flat(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with the tensors of lists one by one, and last the lengths of those lists."""
    flat: list[Any] = []
    lengths: list[int | None] = []
    for argument in arguments:
        is_list = isinstance(argument, list) and all(
            item is None or isinstance(item, Tensor) for item in argument
        )
        flat += argument if is_list else [argument]
        lengths.append(len(argument) if is_list else None)
    return (*flat, tuple(lengths))


def _nested(flat: Sequence[Any]) -> tuple[Any, ...]:
    """The opposite of `_flat`."""
    left = iter(flat[:-1])
    return tuple(
        next(left) if length is None else [next(left) for _ in range(length)] for length in flat[-1]
    )


def overload(name: str) -> Any:
    return getattr(torch.ops.robocache, name).default


def call_registered(name: str, *arguments: Any) -> Any:
    return overload(name)(*arguments)


def call(name: str, *arguments: Any) -> Any:
    """Calls an op as it can be seen best: by functorch, or by everybody else."""
    if (
        name in _FUNCTIONS
        and not torch.compiler.is_compiling()
        and torch._C._are_functorch_transforms_active()
    ):
        return _FUNCTIONS[name].apply(*_flat(arguments))  # type: ignore[no-untyped-call]
    return call_registered(name, *arguments)


# -- vmap -------------------------------------------------------------------------------------


def _no_vmap(op: str) -> Callable[..., Any]:
    def rule(*_: Any) -> Any:
        raise Unsupported(
            f"{op}: torch.func.vmap is not supported; pass tensors with a batch", op=op
        )

    return rule


@dataclass
class _Place:
    """Where a tensor stands among the arguments: in them, or in a list that is one of them."""

    holder: list[Any]
    index: int
    inner: int | None
    """Its axes beside the batch."""
    mapped: bool
    """Whether vmap has put an axis in front."""
    full: bool = False
    """Whether it must have the batch."""

    @property
    def tensor(self) -> Tensor:
        found: Tensor = self.holder[self.index]
        return found

    @property
    def own(self) -> torch.Size:
        """The shape without any batch."""
        return self.tensor.shape[self.tensor.dim() - (self.inner or 0) :]

    @property
    def has_batch(self) -> bool:
        """Whether the call as it was written has one here."""
        return self.inner is not None and self.tensor.dim() - self.mapped > self.inner


def _moved(tensor: Any, axis: int | None) -> Any:
    return tensor if axis is None else tensor.movedim(axis, 0)


def _places(op: Op, given: list[Any], in_dims: Sequence[Any]) -> list[_Place]:
    """Every tensor of a call, with the axes that are mapped over moved to the front."""
    for index, dims in enumerate(in_dims):
        if isinstance(given[index], (list, tuple)):
            dims = dims or [None] * len(given[index])
            given[index] = [_moved(x, axis) for x, axis in zip(given[index], dims, strict=True)]
        else:
            given[index] = _moved(given[index], dims)
    places = []
    for index, dims in enumerate(in_dims):
        inner = (op.inner or {}).get(index)
        axes: int | list[int | None] | None = inner(*given) if callable(inner) else inner
        if isinstance(given[index], list) and isinstance(axes, list):
            for each, own in enumerate(axes):
                mapped = dims is not None and dims[each] is not None
                places.append(_Place(given[index], each, own, mapped))
        elif isinstance(given[index], Tensor) and not isinstance(axes, list):
            places.append(_Place(given, index, axes, dims is not None, index in op.full))
    return places


def _vmap_rule(op: Op, invoke: Callable[..., Any]) -> Callable[..., Any]:
    """vmap adds a batch axis in front: it becomes the op's own, or one with it, and `invoke` calls the op again.

    Where torch.compile comes to a rule that must not be by a Function, which it cannot open."""
    if op.inner is None:
        return _no_vmap(op.of or op.name)

    def rule(info: Any, in_dims: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        given = list(arguments)
        places = _places(op, given, in_dims)
        batches = [x.tensor.shape[x.mapped] for x in places if x.has_batch]
        batch = max((b for b in batches if b != 1), default=1) if 0 not in batches else 0
        for place in places:
            if place.inner is None and place.mapped:
                text = "torch.func.vmap over something that has no batch, such as a scale"
                name = op.of or op.name
                raise Unsupported(f"{name}: {text}, is not supported", op=name)
            if not (place.mapped or place.has_batch or place.full):
                continue  # shared by all
            tensor, own = place.tensor, place.own
            tensor = tensor if place.mapped else tensor.unsqueeze(0)
            tensor = tensor if place.has_batch else tensor.unsqueeze(1)
            if batches or place.full:
                tensor = tensor.expand(size, batch, *own)
            place.holder[place.index] = tensor.reshape(-1, *own)
        if op.shape is None:
            found = invoke(op.name, *given)
            if isinstance(found, Tensor):
                return _split(found, size, batch, bool(batches)), 0
            results = [_split(x, size, batch, bool(batches)) for x in found]
            return tuple(results), (0,) * len(results)
        # Where the batch shares its values, the gradients of its rows are added up.
        shape = given[op.shape]
        given[op.shape] = [size * batch, *shape[-2:]]
        result = _split(invoke(op.name, *given), size, batch, True)
        if len(shape) == 2 or shape[0] != batch:
            result = result.sum(1, keepdim=True)
        return result.reshape(size, *shape), 0

    return rule


def _split(result: Tensor, size: int, batch: int, has_batch: bool) -> Tensor:
    """The axes of vmap and of the op apart again; a result that is not there has neither."""
    if result.dim() == 1 and result.shape[0] != size * batch:
        return result.new_empty(size, 0)
    return result.view(size, batch, *result.shape[1:]) if has_batch else result
