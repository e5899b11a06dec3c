"""The ops registered with torch; imported when one is needed, never by `import robocache`.

A call comes here when torch must see it: a gradient is wanted, torch.compile traces it, a mode or
functorch is at work, or a tensor is of a subclass. Each op is described once (`_Op`): its schema, what
computes it, the shapes of its results, its gradient, and how many axes its tensors have beside the
batch, from which the rule for `torch.func.vmap` follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from robocache import _core
from robocache._errors import InvalidArgument, Unsupported

_LIBRARY = torch.library.Library("robocache", "DEF")

Tensor = torch.Tensor


@dataclass(frozen=True)
class _Op:
    """One registered op. All arguments are positional, tensors are what has an entry in `inner`."""

    name: str
    schema: str
    """Arguments and results, as `torch.library.define` takes them."""
    kernel: Callable[..., Any]
    """Computes it on plain tensors of any device."""
    fake: Callable[..., Any]
    """Makes empty results of the right shape."""
    inner: dict[int, int]
    """By position of a tensor argument: its axes beside the batch."""
    backward: Callable[..., Any]
    """As for `torch.library.register_autograd`."""
    setup_context: Callable[..., None]
    shape: int | None = None
    """The position of an argument that is the shape of the only result."""
    shaped: int | None = None
    """The position of a tensor of that shape."""


_FUNCTIONS: dict[str, type[torch.autograd.Function]] = {}


def _register(op: _Op) -> None:
    name = f"robocache::{op.name}"
    _LIBRARY.define(f"{op.name}{op.schema}", tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(op.name, op.kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(name, op.fake, lib=_LIBRARY)
    torch.library.register_autograd(
        name, op.backward, setup_context=op.setup_context, lib=_LIBRARY
    )
    rule = _vmap_rule(op)
    torch.library.register_vmap(name, rule, lib=_LIBRARY)
    # functorch does not look into the gradient of a registered op, but into a Function.
    members = {
        "forward": lambda *arguments: _overload(op.name)(*arguments),
        "setup_context": op.setup_context,
        "backward": op.backward,
        "jvp": _no_forward_mode,
        "vmap": rule,
    }
    methods = {key: staticmethod(member) for key, member in members.items()}
    _FUNCTIONS[op.name] = type(f"{op.name}_function", (torch.autograd.Function,), methods)


def _overload(name: str) -> Any:
    return getattr(torch.ops.robocache, name).default


def _call(name: str, *arguments: Any) -> Any:
    """Calls an op as it can be seen best: by functorch, or by everybody else."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return _FUNCTIONS[name].apply(*arguments)
    return _overload(name)(*arguments)


def _no_forward_mode(*_: Any) -> Any:
    raise Unsupported(
        "resample: values: forward-mode gradients are not supported; use backward mode",
        op="resample",
        argument="values",
    )


# -- vmap -------------------------------------------------------------------------------------


def _vmap_rule(op: _Op) -> Callable[..., Any]:
    """vmap adds a batch axis in front: it becomes the op's own, or one with it."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        given = list(arguments)
        mapped = set()
        for place in op.inner:
            if in_dims[place] is not None:
                given[place] = given[place].movedim(in_dims[place], 0)
                mapped.add(place)
        batches = [
            given[place].shape[given[place].dim() - inner - 1]
            for place, inner in op.inner.items()
            if given[place] is not None and given[place].dim() - (place in mapped) > inner
        ]
        batch = max((b for b in batches if b != 1), default=1) if 0 not in batches else 0
        for place, inner in op.inner.items():
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
            results = [_split(x, size, batch, bool(batches)) for x in _call(op.name, *given)]
            return tuple(results), (0,) * len(results)
        # Where the batch shares its values, the gradients of its rows are added up.
        shape = given[op.shape]
        given[op.shape] = [size * batch, *shape[-2:]]
        result = _split(_call(op.name, *given), size, batch, True)
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


def _no_second_gradient(op: str) -> Callable[..., Any]:
    def backward(ctx: Any, *_: Any) -> Any:
        raise Unsupported(
            f"{op}: the gradient of a gradient (double backward) is not supported", op=op
        )

    return backward


def _tensor(argument: Any) -> Tensor | None:
    """Stamps, targets and lengths as a tensor; lists and arrays keep the type NumPy gives them."""
    if argument is None or isinstance(argument, Tensor):
        return argument
    if hasattr(argument, "__dlpack__") and not hasattr(argument, "__array__"):
        return torch.from_dlpack(argument)
    import numpy as np

    return torch.as_tensor(np.asarray(argument))


def _name_of_method(method: Any, op: str) -> str:
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


def _method_of(text: str) -> Any:
    """The opposite of `_name_of_method`."""
    if ":" not in text:
        return text
    ranges = [part.split(":") for part in text.split(",")]
    return [(name, int(start), int(end)) for name, start, end in ranges]


def _refuse(op: str, argument: str, message: str) -> None:
    raise Unsupported(f"{op}: {argument}: {message}", op=op, argument=argument)


def _only_in_values(op: str, **others: Tensor | None) -> None:
    """Gradients exist in the values only."""
    if not torch.is_grad_enabled():
        return
    for argument, tensor in others.items():
        if tensor is not None and tensor.requires_grad:
            _refuse(
                op,
                argument,
                "requires grad, but gradients exist in the values only; pass a detached tensor",
            )


def _refuse_tangents(op: str, values: Tensor) -> None:
    """Forward-mode gradients would be lost without a word."""
    if torch.compiler.is_compiling():
        return
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(values).tangent is not None:
        _no_forward_mode()


def _common_batch(op: str, *tensors: tuple[str, Tensor | None, int]) -> Any:
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


# -- resample ---------------------------------------------------------------------------------

_READS_VALUES = ("cubic", "slerp", "rot6d")
"""Methods that are not linear in the values."""


def resample(
    values: Any,
    times: Any,
    targets: Any,
    *,
    method: Any = "linear",
    extrapolate: Any = "clamp",
    lengths: Any = None,
    target_lengths: Any = None,
    max_gap: Any = None,
    return_valid: bool = False,
    out: Any = None,
    device: Any = None,
    stream: Any = None,
    max_memory: Any = None,
    check: bool = True,
) -> Any:
    """`robocache.resample` of torch tensors through the registered op."""
    op = "resample"
    for argument, given in (("out", out), ("stream", stream)):
        if given is not None:
            text = "cannot be used where torch must see the call (gradients, torch.compile, modes, "
            _refuse(op, argument, text + "functorch, tensor subclasses)")
    times, targets = _tensor(times), _tensor(targets)
    lengths, target_lengths = _tensor(lengths), _tensor(target_lengths)
    _only_in_values(
        op, times=times, targets=targets, lengths=lengths, target_lengths=target_lengths
    )
    _refuse_tangents(op, values)
    result, valid = _call(
        op,
        values,
        times,
        targets,
        lengths,
        target_lengths,
        _name_of_method(method, op),
        extrapolate,
        max_gap,
        return_valid,
        None if device is None else str(device),
        None if max_memory is None else str(max_memory),
        check,
    )
    return (result, valid) if return_valid else result


def _resample_kernel(
    values: Tensor,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    method: str,
    extrapolate: str,
    max_gap: float | None,
    return_valid: bool,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, Tensor]:
    result = _core.below_torch(
        _core.resample,
        values,
        times,
        targets,
        method=_method_of(method),
        extrapolate=extrapolate,
        lengths=lengths,
        target_lengths=target_lengths,
        max_gap=max_gap,
        return_valid=return_valid,
        device=device,
        max_memory=max_memory,
        check=check,
    )
    return result if return_valid else (result, values.new_empty((0,), dtype=torch.bool))


def _resample_fake(
    values: Tensor,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    method: str,
    extrapolate: str,
    max_gap: float | None,
    return_valid: bool,
    device: str | None,
    max_memory: str | None,
    check: bool,
) -> tuple[Tensor, Tensor]:
    batch = _common_batch(
        "resample",
        ("values", values, 2),
        ("times", times, 1),
        ("targets", targets, 1),
        ("lengths", lengths, 0),
        ("target_lengths", target_lengths, 0),
    )
    steps = (targets.shape[-1],) if batch is None else (batch, targets.shape[-1])
    valid = values.new_empty(steps if return_valid else (0,), dtype=torch.bool)
    return values.new_empty((*steps, values.shape[-1])), valid


def _resample_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    values, times, targets, lengths, target_lengths, method, extrapolate, *_, check = inputs
    # Linear methods do not need the values, so nothing keeps them alive.
    kept = values if any(name in method for name in _READS_VALUES) else None
    ctx.save_for_backward(kept, times, targets, lengths, target_lengths)
    ctx.shape = values.shape
    ctx.options = method, extrapolate, check
    ctx.mark_non_differentiable(output[1])


def _resample_gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    values, times, targets, lengths, target_lengths = ctx.saved_tensors
    result = None
    if ctx.needs_input_grad[0]:
        result = _call(
            "resample_backward",
            grad,
            values,
            times,
            targets,
            lengths,
            target_lengths,
            ctx.shape,
            *ctx.options,
        )
    return (result, *(None,) * 11)


def _backward_kernel(
    grad: Tensor,
    values: Tensor | None,
    times: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    target_lengths: Tensor | None,
    shape: list[int],
    method: str,
    extrapolate: str,
    check: bool,
) -> Tensor:
    result: Tensor = _core.below_torch(
        _core.resample_backward,
        grad,
        values,
        times,
        targets,
        shape=list(shape),
        method=_method_of(method),
        extrapolate=extrapolate,
        lengths=lengths,
        target_lengths=target_lengths,
        check=check,
    )
    return result


def _backward_fake(grad: Tensor, *arguments: Any) -> Tensor:
    return grad.new_empty(arguments[5])


def _load_resample_gradient(
    values: Tensor,
    times: Any,
    targets: Any,
    *,
    method: Any = "linear",
    extrapolate: Any = "clamp",
    lengths: Any = None,
    target_lengths: Any = None,
    check: bool = True,
    **others: Any,
) -> None:
    """Called by `warmup`: the engine loads kernels and computes nothing."""
    lengths, target_lengths = _tensor(lengths), _tensor(target_lengths)
    result, _ = _resample_fake(
        values, *map(_tensor, (times, targets)), lengths, target_lengths, "", "", None, False, None, None, check
    )
    options = {"extrapolate": extrapolate, "lengths": lengths, "target_lengths": target_lengths}
    _core.resample_backward(
        result, values, times, targets, shape=values.shape, method=method, check=check, **options
    )


GRADIENTS: dict[str, Callable[..., None]] = {"resample": _load_resample_gradient}
"""By op: what loads the kernels of its gradient."""

_OPS = (
    _Op(
        name="resample",
        schema="(Tensor values, Tensor times, Tensor targets, Tensor? lengths, "
        "Tensor? target_lengths, str method, str extrapolate, float? max_gap, bool return_valid, "
        "str? device, str? max_memory, bool check) -> (Tensor, Tensor)",
        kernel=_resample_kernel,
        fake=_resample_fake,
        inner={0: 2, 1: 1, 2: 1, 3: 0, 4: 0},
        backward=_resample_gradient,
        setup_context=_resample_setup,
    ),
    _Op(
        name="resample_backward",
        schema="(Tensor grad, Tensor? values, Tensor times, Tensor targets, Tensor? lengths, "
        "Tensor? target_lengths, SymInt[] shape, str method, str extrapolate, bool check) -> Tensor",
        kernel=_backward_kernel,
        fake=_backward_fake,
        inner={0: 2, 1: 2, 2: 1, 3: 1, 4: 0, 5: 0},
        backward=_no_second_gradient("resample"),
        setup_context=lambda ctx, inputs, output: None,
        shape=6,
        shaped=1,
    ),
)

for _op in _OPS:
    _register(_op)
