"""How ops are registered with torch.

An op is described once (`Op`). Its schema, kernel, fake, gradient and rule for `torch.func.vmap` follow from that, and
so does the function that calls it (`public`): from the signature of the engine's own function, and from what arguments
of such names are (`KINDS` in `_torch_kinds`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from robocache import _torch_kinds
from robocache._core import below_torch
from robocache._errors import Unsupported
from robocache._source import written
from robocache._torch_arguments import NOWHERE, common_batch, no_forward_mode
from robocache._torch_kinds import KINDS, Kind, Part

if not hasattr(torch.library, "register_vmap"):
    raise Unsupported(
        f"gradients, torch.compile and torch.func need torch 2.5 or newer, this is {torch.__version__}"
    )

_TORCH: Any = torch
"""For functions that torch does not type."""

_LIBRARY = _TORCH.library.Library("robocache", "DEF")

UNSEEN = ("out", "stream", "progress")
"""Arguments that only the engine itself takes."""

Tensor = torch.Tensor
Arguments = SimpleNamespace
"""The arguments of a registered op, by name."""
Output = tuple[Any, tuple[Any, ...], torch.dtype]
"""Whether a result is wanted, its shape, its dtype."""


@dataclass(frozen=True)
class Gradient:
    """The gradient of the first result."""

    within: str
    """The argument in which there is one."""
    save: Callable[[Any, Arguments], None]
    """Keeps in a context what `backward` needs."""
    backward: Callable[[Any, Tensor], Mapping[str, Any]]
    """From a context and the result's gradient: those of arguments, by name."""


@dataclass(frozen=True)
class Op:
    """One registered op."""

    name: str
    parts: tuple[Part, ...]
    """Its arguments, all positional."""
    outputs: Callable[[Arguments], Sequence[Output]]
    compute: Callable[[Arguments], Any]
    """Computes the wanted results of plain tensors on any device."""
    results: int = 1
    flags: tuple[str | None, ...] = ()
    """For each result the argument that says whether it is wanted; None where it always is."""
    optional: Callable[[Arguments], Sequence[tuple[Any, torch.dtype]]] | None = None
    """For each result whether it is wanted, and its dtype where it is not: what is quicker told than the shapes."""
    like: Callable[[Arguments], Tensor] | None = None
    """The tensor on whose device results are, where it is not the first argument."""
    why: str = ""
    """Why a gradient is refused, where there is none at all but another op has one."""
    gradient: Gradient | None = None
    vmap: bool = True
    of: str = ""
    """The op that it is a part of, which errors name."""
    called: Callable[[Arguments], str] | None = None
    """What errors call it, where that depends on its arguments."""
    shape: str = ""
    """Of a gradient: the argument that is the shape of the result."""
    full: tuple[str, ...] = ()
    """Tensors that must have the batch if there is one."""

    def named(self, a: Arguments | None = None) -> str:
        """What errors call it."""
        return self.called(a) if self.called and a is not None else self.of or self.name

    @property
    def schema(self) -> str:
        arguments = ", ".join(f"{part.type} {part.name}" for part in self.parts)
        results = ", ".join(["Tensor"] * self.results)
        return f"({arguments}) -> {results if self.results == 1 else f'({results})'}"

    def index(self, name: str) -> int:
        """The position of an argument."""
        return next(at for at, part in enumerate(self.parts) if part.name == name)

    def arguments(self, given: Sequence[Any]) -> Arguments:
        names = (part.name for part in self.parts)
        return Arguments(**dict(zip(names, given, strict=False)))

    def batch(self, a: Arguments, *others: tuple[str, Tensor | None, int]) -> Any:
        """The batch that all tensors agree on."""
        tensors = [
            (part.name, tensor, part.count(a))
            for part in self.parts
            if isinstance(tensor := getattr(a, part.name), Tensor) and part.axes is not None
        ]
        return common_batch(self.named(a), *tensors, *others)

    def tensor(self, a: Arguments) -> Tensor:
        """The tensor on whose device results are."""
        found: Tensor = self.like(a) if self.like else getattr(a, self.parts[0].name)
        return found

    def kernel(self, *given: Any) -> Any:
        a = self.arguments(given)
        found = self.compute(a)
        if self.results == 1:
            return found
        found = found if isinstance(found, tuple) else (found,)
        if len(found) < self.results:
            # A schema has all results: those that nobody wants are empty. Other dtypes than one of these they may have
            # in `fake`, which must be told: so the outputs are asked.
            left, like = iter(found), self.tensor(a)
            found = tuple(
                next(left) if wanted else like.new_empty((0,), dtype=dtype)
                for wanted, dtype in self.wanted(a)
            )
        return found

    def wanted(self, a: Arguments) -> Sequence[tuple[Any, torch.dtype]]:
        """Whether each result is wanted, and its dtype."""
        if self.optional is not None:
            return self.optional(a)
        return [(wanted, dtype) for wanted, _, dtype in self.outputs(a)]

    def fake(self, *given: Any) -> Any:
        """Empty results of the right shapes."""
        a = self.arguments(given)
        like = self.tensor(a)
        found = tuple(
            like.new_empty(shape if wanted else (0,), dtype=dtype)
            for wanted, shape, dtype in self.outputs(a)
        )
        return found if self.results > 1 else found[0]

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if self.gradient is not None:
            self.gradient.save(ctx, self.arguments(inputs))
            if self.results > 1:
                ctx.mark_non_differentiable(*output[1:])

    def backward(self, ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        found = self.gradient.backward(ctx, grad) if self.gradient is not None else {}
        return tuple(found.get(part.name) for part in self.parts)


def no_second_gradient(within: str, named: Callable[[Arguments], str]) -> Gradient:
    """Of a gradient, which has none; `named` tells whose it is."""

    def save(ctx: Any, a: Arguments) -> None:
        ctx.named = named(a)

    def backward(ctx: Any, grad: Tensor) -> Any:
        text = f"{ctx.named}: the gradient of a gradient (double backward) is not supported"
        raise Unsupported(text, op=ctx.named)

    return Gradient(within, save, backward)


def described(
    function: Callable[..., Any], others: Mapping[str, Kind] | None = None, **facts: Any
) -> tuple[Op, Callable[..., tuple[Any, ...]]]:
    """The op that is one of the engine's functions, and what reads its arguments as users give them.

    `others` are the kinds of arguments that are something else here than in other ops.
    """
    name = function.__name__
    known, kinds = inspect.signature(function).parameters, {**KINDS, **(others or {})}
    chosen = {key: kinds[key] for key in known if key not in UNSEEN}

    def compute(a: Arguments) -> Any:
        options = {
            key: kind.write(*(getattr(a, part.name) for part in kind.parts))
            for key, kind in chosen.items()
        }
        return function(**options)

    parts = tuple(part for kind in chosen.values() for part in kind.parts)
    op = Op(name, parts, **{"compute": compute, **facts})
    return op, _reader(op, known, chosen)


def _reader(
    op: Op, known: Mapping[str, inspect.Parameter], kinds: Mapping[str, Kind]
) -> Callable[..., tuple[Any, ...]]:
    """Written as source text, as `dataclass` does it: torch.compile traces straight lines, with few guards."""
    named, within = op.of or op.name, op.gradient.within if op.gradient else ""
    source = next((key for key, kind in kinds.items() if kind.names_op), None)
    lines = [f"op = op_of({source})" if source else f"op = {named!r}"]
    unseen = [key for key in UNSEEN if key in known]
    if unseen:
        lines.append(f"refuse_options(op, {', '.join(f'{key}={key}' for key in unseen)})")

    def read(key: str) -> str:
        targets = ", ".join(f"{part.name}_" for part in kinds[key].parts)
        return f"{targets} = {kinds[key].read.__name__}({key!r}, {key}, op)"

    # What there is no gradient in is refused before data that torch does not have.
    lead = next(iter(kinds))
    lines += [read(key) for key in kinds if key != lead]
    plain = {
        part.name: part.name if key == lead else f"{part.name}_"
        for key, kind in kinds.items()
        for part in kind.parts
        if part.type.startswith("Tensor") and part.name != within and not kind.looks_itself
    }
    why = f"exists_only_in({within!r})" if within else repr(op.why or NOWHERE)
    lines.append(f"refuse_gradients(op, {why}, {', '.join(f'{k}={x}' for k, x in plain.items())})")
    lines.append(read(lead))
    if within and within in kinds:  # streams look at theirs
        lines.append(f"refuse_stored(op, {within!r}, {within}_)")
        lines.append(f"refuse_tangents(op, {within!r}, {within}_)")
    lines.append(f"return ({', '.join(f'{part.name}_' for part in op.parts)},)")
    signature = []
    for key, parameter in known.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in signature:
            signature.append("*")
        has_default = parameter.default is not parameter.empty
        signature.append(f"{key}={parameter.default!r}" if has_default else key)
    text = "\n    ".join([f"def read_{op.name}({', '.join(signature)}):", *lines])
    # In the module that has what the lines call, as torch.compile looks names up by module.
    reader: Callable[..., tuple[Any, ...]] = written(f"read_{op.name}", text, vars(_torch_kinds))
    return reader


def public(op: Op, read: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """The function that calls a registered op as users call the engine's."""
    flags = tuple(None if flag is None else op.index(flag) for flag in op.flags)
    name = op.name

    def function(*arguments: Any, **options: Any) -> Any:
        given = read(*arguments, **options)
        results = call(name, *given)
        if not flags:
            return results
        found = [x for x, at in zip(results, flags, strict=True) if at is None or given[at]]
        return tuple(found) if len(found) > 1 else found[0]

    return function


def load_gradient(op: Op, read: Callable[..., tuple[Any, ...]]) -> Callable[..., None]:
    """For `warmup`: has the engine load the kernels of a gradient. Nothing is computed."""

    def load(*arguments: Any, **options: Any) -> None:
        options = {key: x for key, x in options.items() if key not in UNSEEN}
        given = read(*arguments, **options)
        if op.gradient is None:
            return
        a = op.arguments(given)
        values = getattr(a, op.gradient.within)
        each = values if isinstance(values, list) else [values]
        if not any(isinstance(x, Tensor) and x.requires_grad for x in each):
            return
        ctx = SimpleNamespace(needs_input_grad=[True] * len(given))
        ctx.save_for_backward = lambda *tensors: setattr(ctx, "saved_tensors", tensors)
        op.gradient.save(ctx, a)
        with torch.no_grad():
            results = op.fake(*given)
            op.gradient.backward(ctx, results[0] if op.results > 1 else results)

    return load


_FUNCTIONS: dict[str, type[torch.autograd.Function]] = {}


def register(op: Op) -> None:
    name = f"robocache::{op.name}"
    _LIBRARY.define(f"{op.name}{op.schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(op.name, partial(below_torch, op.kernel), "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=_LIBRARY)
    torch.library.register_vmap(name, _vmap_rule(op, call_registered), lib=_LIBRARY)
    if op.gradient is not None:
        torch.library.register_autograd(
            name, op.backward, setup_context=op.setup_context, lib=_LIBRARY
        )
        _FUNCTIONS[op.name] = _function(op, op.gradient.within, _vmap_rule(op, call))


def _function(op: Op, within: str, rule: Callable[..., Any]) -> type[torch.autograd.Function]:
    """functorch does not look into the gradient of a registered op, but into a Function.

    And a Function does not look into lists, so it takes what is in them, and last how long they are.
    """

    def forward(*flat: Any) -> Any:
        return overload(op.name)(*_nested(flat))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        op.setup_context(ctx, _nested(inputs), output)

    def backward(ctx: Any, *grads: Any) -> Any:
        *found, _ = _flat(op.backward(ctx, *grads))
        return (*found, None)

    def vmap(info: Any, in_dims: tuple[Any, ...], *flat: Any) -> Any:
        return rule(info, _nested((*in_dims[:-1], flat[-1])), *_nested(flat))

    members = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": lambda *_: no_forward_mode(op.named(), within),
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


def _no_vmap(op: Op) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Sequence[Any], *given: Any) -> Any:
        name = op.named(op.arguments(given))
        text = f"{name}: torch.func.vmap is not supported; pass tensors with a batch"
        raise Unsupported(text, op=name)

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
    a = op.arguments(given)
    places = []
    for index, (part, dims) in enumerate(zip(op.parts, in_dims, strict=True)):
        if part.type == "Tensor[]":
            for each, own in enumerate(part.count(a)):
                mapped = dims is not None and dims[each] is not None
                places.append(_Place(given[index], each, own, mapped))
        elif isinstance(given[index], Tensor):
            full = part.name in op.full
            places.append(_Place(given, index, part.count(a), dims is not None, full))
    return places


def _vmap_rule(op: Op, invoke: Callable[..., Any]) -> Callable[..., Any]:
    """vmap adds a batch axis in front: it becomes the op's own, or one with it, and `invoke` calls the op again.

    Where torch.compile comes to a rule that must not be by a Function, which it cannot open."""
    if not op.vmap:
        return _no_vmap(op)

    def rule(info: Any, in_dims: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        given = list(arguments)
        places = _places(op, given, in_dims)
        batches = [x.tensor.shape[x.mapped] for x in places if x.has_batch]
        batch = max((b for b in batches if b != 1), default=1) if 0 not in batches else 0
        for place in places:
            if place.inner is None and place.mapped:
                name = op.named(op.arguments(given))
                text = "torch.func.vmap over something that has no batch, such as a scale"
                raise Unsupported(f"{name}: {text}, is not supported", op=name)
            if not (place.mapped or place.has_batch or place.full):
                continue  # shared by all
            tensor, own = place.tensor, place.own
            tensor = tensor if place.mapped else tensor.unsqueeze(0)
            tensor = tensor if place.has_batch else tensor.unsqueeze(1)
            if batches or place.full:
                tensor = tensor.expand(size, batch, *own)
            place.holder[place.index] = tensor.reshape(-1, *own)
        if not op.shape:
            found = invoke(op.name, *given)
            if isinstance(found, Tensor):
                return _split(found, size, batch, bool(batches)), 0
            results = [_split(x, size, batch, bool(batches)) for x in found]
            return tuple(results), (0,) * len(results)
        # Where the batch shares its values, the gradients of its rows are added up.
        at = op.index(op.shape)
        shape = given[at]
        given[at] = [size * batch, *shape[-2:]]
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
