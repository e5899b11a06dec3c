"""The ops on robots, registered with torch. Poses and Jacobians have gradients in the joints' positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from robocache import _core
from robocache._torch_arguments import as_flag, as_number, as_whole, with_batch
from robocache._torch_kinds import Kind, Part, as_given, data, maybe, one, tensor
from robocache._torch_library import (
    Arguments,
    Gradient,
    Op,
    Output,
    call,
    described,
    load_gradient,
    no_second_gradient,
)

# A robot travels as its key: the same in every process, so that graphs may be kept on disk.
_ROBOT = one("robot", "str", as_given)
_PLACES = one("places", "int[]", as_given)
_SHARED: dict[str, Kind] = {
    "q": data("q", 1),
    "robot": _ROBOT,
    "places": _PLACES,
    "single": one("single", "bool", as_given),
}


def _links(a: Arguments) -> Sequence[int]:
    return () if a.single else (len(a.places),)


def _save(ctx: Any, a: Arguments) -> None:
    ctx.save_for_backward(a.q)
    ctx.robot, ctx.places, ctx.single = a.robot, a.places, a.single


def _backward(ctx: Any, grad: Tensor, axes: int) -> dict[str, Any]:
    (q,) = ctx.saved_tensors
    grad = grad.unsqueeze(-axes - 1) if ctx.single else grad
    pose, jacobian = (grad, None) if axes == 1 else (None, grad)
    return {"q": call("fk_backward", q, pose, jacobian, ctx.robot, ctx.places)}


def _fk_outputs(a: Arguments) -> Sequence[Output]:
    return [(True, with_batch(FK.batch(a), *_links(a), 7), a.q.dtype)]


FK, read_fk = described(
    _core.fk,
    _SHARED,
    outputs=_fk_outputs,
    gradient=Gradient("q", _save, lambda ctx, grad: _backward(ctx, grad, 1)),
)


def _jacobian_outputs(a: Arguments) -> Sequence[Output]:
    rows = with_batch(JACOBIAN.batch(a), *_links(a), 6, a.q.shape[-1])
    return [(True, rows, a.q.dtype)]


JACOBIAN, read_jacobian = described(
    _core.jacobian,
    _SHARED,
    outputs=_jacobian_outputs,
    gradient=Gradient("q", _save, lambda ctx, grad: _backward(ctx, grad, 2)),
)


def _backward_outputs(a: Arguments) -> Sequence[Output]:
    return [(True, with_batch(FK_BACKWARD.batch(a), a.q.shape[-1]), a.q.dtype)]


FK_BACKWARD = Op(
    "fk_backward",
    (
        Part("q", "Tensor", 1),
        Part("pose", "Tensor?", 2),
        Part("jacobian", "Tensor?", 3),
        *_ROBOT.parts,
        *_PLACES.parts,
    ),
    outputs=_backward_outputs,
    compute=lambda a: _core.fk_backward(a.q, a.pose, a.jacobian, a.robot, a.places),
    gradient=no_second_gradient("q", lambda a: "fk" if a.jacobian is None else "jacobian"),
    of="fk",
)


def _velocity_outputs(a: Arguments) -> Sequence[Output]:
    return [(True, with_batch(JOINT_VELOCITY.batch(a), a.q.shape[-1]), a.q.dtype)]


JOINT_VELOCITY, read_joint_velocity = described(
    _core.joint_velocity,
    {**_SHARED, "twist": tensor("twist", 1), "damping": one("damping", "float", as_number)},
    outputs=_velocity_outputs,
)


def loader_of(op: Op, read: Callable[..., tuple[Any, ...]]) -> Callable[..., None]:
    """For `warmup`: loads the gradient of a robot's call, whose arguments are those of its method."""
    load = load_gradient(op, read)

    def of_robot(robot: Any, q: Any, links: Any = None, **_: Any) -> None:
        places, single = robot._places(links)
        load(q, robot._key, places, single)

    return of_robot


def _ik_outputs(a: Arguments) -> Sequence[Output]:
    joints = _core.robot_joints(a.robot)
    rows = with_batch(IK.batch(a))
    return [
        (True, (*rows, joints), a.pose.dtype),
        (True, rows, torch.bool),
        (True, rows, a.pose.dtype),
        (True, rows, a.pose.dtype),
        (True, rows, torch.int32),
    ]


IK, read_ik = described(
    _core.ik,
    {
        **_SHARED,
        "pose": data("pose", 1),
        "q0": maybe("q0", 1),
        "position_tol": one("position_tol", "float", as_number),
        "rotation_tol": one("rotation_tol", "float", as_number),
        "max_iterations": one("max_iterations", "SymInt", as_whole),
        "seeds": one("seeds", "SymInt", as_whole),
        "limits": one("limits", "bool?", as_flag),
    },
    outputs=_ik_outputs,
    results=5,
)
