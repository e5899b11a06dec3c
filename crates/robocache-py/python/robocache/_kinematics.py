"""Robots: where links are for given joints, how they move, and which joints bring a link somewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from robocache import _core, _ops
from robocache._arguments import invalid


class IkResult(NamedTuple):
    """What `Robot.ik` found for each pose."""

    q: Any
    """`[..., J]`: the joints' positions; the best that were found where a row has not converged."""
    converged: Any
    """`[...]` bool: whether both errors are within their tolerances."""
    position_error: Any
    """`[...]`: metres."""
    rotation_error: Any
    """`[...]`: radians."""
    iterations: Any
    """`[...]` int32: steps that were taken, over all seeds."""


class Robot:
    """A robot between its base and its tip: `Robot.from_urdf(...)` or `Robot.from_dh(...)`.

    Poses are xyz and a quaternion xyzw with w >= 0, in the frame of the base. Positions are radians, or metres where a
    joint slides, in the order of `joint_names`. float32 and float64, on CPU and CUDA, with any axes in front.
    A row with a NaN or infinite position gives NaN.

    Attributes:
        name: the robot's name.
        joint_names: actuated joints between base and tip; without a tip of the whole tree, depth first in the file's
            order. Joints that mimic others follow them and are not among these.
        limits: `[J,2]`, lowest and highest positions; infinite where a joint has none.
        link_names: links, the base first.
        tip: the link that is meant where none is named; None where there are several leaves.
    """

    def __init__(self, model: _core.Robot, made: tuple[Any, ...]) -> None:
        import numpy as np

        self._model, self._made, self._key = model, made, model.key
        self.name: str = model.name
        self.joint_names: list[str] = model.joint_names
        self.link_names: list[str] = model.link_names
        self.tip: str | None = model.tip
        self.limits = np.array(model.limits, dtype=np.float64).reshape(-1, 2)
        self.limits.flags.writeable = False

    @classmethod
    def from_urdf(
        cls, urdf: str | os.PathLike[str], base: str | None = None, tip: str | None = None
    ) -> Robot:
        """From a URDF file, or the text of one.

        Args:
            urdf: a path, or text that begins with `<`. Shapes, masses and transmissions are passed over.
            base: the link where the robot begins; else the root.
            tip: the link where it ends; else all leaves below the base.
        """
        if not isinstance(urdf, (str, os.PathLike)):
            raise invalid("urdf", f"expected a path or text, got {type(urdf).__name__}", "Robot")
        for argument, link in (("base", base), ("tip", tip)):
            _link(argument, link, none=True)
        is_text = isinstance(urdf, str) and urdf.lstrip("\ufeff \t\r\n").startswith("<")
        model = _core.Robot.from_urdf(urdf, is_text, base, tip)
        return cls(model, ("urdf", model.urdf, base, tip))

    @classmethod
    def from_dh(cls, rows: Any, convention: str = "standard", limits: Any = None) -> Robot:
        """From Denavit and Hartenberg's parameters.

        Args:
            rows: for each joint `(a, alpha, d, theta)`, or `(a, alpha, d, theta, "prismatic")`. The position is added to
                `theta`, or to `d` where the joint slides.
            convention: "standard", or "modified" (Craig), whose `a` and `alpha` are those of the link before.
            limits: `[J,2]`; without them there are none.
        """
        rows = _tuples("rows", rows)
        ends = [(-math.inf, math.inf)] * len(rows) if limits is None else _tuples("limits", limits)
        if len(ends) != len(rows):
            raise invalid("limits", f"expected {len(rows)} rows, got {len(ends)}", "Robot")
        made = []
        for place, (row, each) in enumerate(zip(rows, ends, strict=True)):
            kind = row[4] if len(row) == 5 else "revolute"
            if len(row) not in (4, 5) or kind not in ("revolute", "prismatic"):
                text = (
                    f'row {place}: expected (a, alpha, d, theta) and maybe "prismatic", got {row}'
                )
                raise invalid("rows", text, "Robot")
            numbers = [_number("rows", x) for x in row[:4]]
            if len(each) != 2:
                raise invalid(
                    "limits", f"row {place}: expected lowest and highest, got {each}", "Robot"
                )
            made.append((numbers, kind == "prismatic", [_number("limits", x) for x in each]))
        return cls(_core.Robot.from_dh(made, convention), ("dh", rows, convention, limits))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remade, self._made)

    def __repr__(self) -> str:
        tip = f', tip "{self.tip}"' if self.tip is not None else ""
        return f'Robot("{self.name}", {self.num_joints} joints, base "{self.link_names[0]}"{tip})'

    @property
    def num_joints(self) -> int:
        """How many positions the robot takes."""
        return len(self.joint_names)

    def fk(
        self,
        q: Any,
        links: str | Sequence[str] | None = None,
        *,
        out: Any = None,
        device: Any = None,
        stream: Any = None,
        max_memory: int | str | None = None,
        chunk: int | None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> Any:
        """Poses of links (forward kinematics). Differentiable in `q`.

        Args:
            q: `[..., J]` positions.
            links: a link or a list of links; else the tip.
            out, device, stream, max_memory, chunk, progress: as for `resample`.

        Returns:
            `[..., 7]`, or `[..., L, 7]` for a list of links.
        """
        places, single = self._places(links)
        q, front = _flat(q, 1)
        options = {"out": out, **_way(device, stream, max_memory, chunk, progress)}
        found = _ops.fk(q, self._key, places, single, **options)
        return _restored(found, front)

    def jacobian(
        self,
        q: Any,
        links: str | Sequence[str] | None = None,
        *,
        return_pose: bool = False,
        device: Any = None,
        stream: Any = None,
        max_memory: int | str | None = None,
        chunk: int | None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> Any:
        """Geometric Jacobians of links: how they move with each joint. Differentiable in `q`.

        Args:
            q: `[..., J]` positions.
            links: a link or a list of links; else the tip.
            return_pose: also return the poses, which takes hardly longer.
            device, stream, max_memory, chunk, progress: as for `resample`.

        Returns:
            `[..., 6, J]`, or `[..., L, 6, J]` for a list of links: three rows of linear velocity of the link's origin,
            three of angular velocity, in the frame of the base. With `return_pose` `(jacobian, pose)`.
        """
        places, single = self._places(links)
        q, front = _flat(q, 1)
        options = _way(device, stream, max_memory, chunk, progress)
        if not return_pose:
            return _restored(_ops.jacobian(q, self._key, places, single, **options), front)
        if _ops.engine(q) is _core:
            pose, found = _core.fk_jacobian(q, self._key, places, single, **options)
        else:
            pose = _ops.fk(q, self._key, places, single, **options)
            found = _ops.jacobian(q, self._key, places, single, **options)
        return _restored(found, front), _restored(pose, front)

    def joint_velocity(
        self,
        q: Any,
        twist: Any,
        damping: float = 0.01,
        links: str | None = None,
        *,
        out: Any = None,
        device: Any = None,
        stream: Any = None,
        max_memory: int | str | None = None,
        chunk: int | None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> Any:
        """Joint velocities that move a link as wished: `Jᵀ (J Jᵀ + damping² I)⁻¹ twist`. No gradients.

        Args:
            q: `[..., J]` positions.
            twist: `[..., 6]`, linear and angular velocity in the frame of the base.
            damping: 0.0001 to 10000. Near singular poses a larger one keeps joints slower, and the link less exact.
            links: the link; else the tip.
            out, device, stream, max_memory, chunk, progress: as for `resample`.

        Returns:
            `[..., J]`.
        """
        places, _ = self._places(links)
        (q, front), (twist, behind) = _flat(q, 1), _flat(twist, 1)
        options = {"out": out, **_way(device, stream, max_memory, chunk, progress)}
        found = _ops.joint_velocity(q, twist, self._key, places, damping, **options)
        return _restored(found, _common("joint_velocity", front, behind))

    def ik(
        self,
        pose: Any,
        q0: Any = None,
        *,
        links: str | None = None,
        position_tol: float = 1e-4,
        rotation_tol: float = 1e-3,
        max_iterations: int = 100,
        seeds: int = 16,
        limits: bool = True,
        device: Any = None,
        stream: Any = None,
        max_memory: int | str | None = None,
        chunk: int | None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> IkResult:
        """Joint positions that bring a link to poses (inverse kinematics). No gradients.

        Damped least squares from up to `seeds` places, until a pose is reached. The same result on every run, whatever
        else is in the batch.

        Args:
            pose: `[..., 7]`, xyz and a quaternion xyzw, which is normalised.
            q0: `[..., J]`, where to begin: near solutions are found first. Else in the middle of the limits.
            links: the link; else the tip.
            position_tol, rotation_tol: metres and radians within which a pose is reached.
            max_iterations: steps for each seed, at most.
            seeds: places to begin at, at most.
            limits: keep joints inside their limits.
            device, stream, max_memory, chunk, progress: as for `resample`.

        Returns:
            `IkResult`. A row that has not converged holds the best positions that were found; a pose that is NaN has
            not converged.
        """
        places, _ = self._places(links)
        (pose, front), (q0, behind) = _flat(pose, 1), _flat(q0, 1)
        rules = (position_tol, rotation_tol, max_iterations, seeds, limits)
        options = _way(device, stream, max_memory, chunk, progress)
        found = _ops.ik(pose, q0, self._key, places, *rules, **options)
        front = _common("ik", front, behind)
        return IkResult(*(_restored(each, front) for each in found))

    def _places(self, links: str | Sequence[str] | None) -> tuple[list[int], bool]:
        """Where links stand in `link_names`, and whether only one was named."""
        if links is None:
            wanted = None if self.tip is None else [self.tip]
        else:
            wanted = [links] if isinstance(links, str) else [_link("links", x) for x in links]
        if wanted is not None and all(name in self.link_names for name in wanted):
            places = [self.link_names.index(name) for name in wanted]
        else:
            places = self._model.places(wanted)  # the engine knows what to say
        return places, links is None or isinstance(links, str)


def _way(device: Any, stream: Any, max_memory: Any, chunk: Any, progress: Any) -> dict[str, Any]:
    """Where and in what parts a call runs."""
    given = {"max_memory": max_memory, "chunk": chunk, "progress": progress}
    return {"device": device, "stream": stream, **given}


def _link(argument: str, name: Any, none: bool = False) -> Any:
    if not (isinstance(name, str) or (none and name is None)):
        raise invalid(argument, f"expected a link's name, got {type(name).__name__}", "Robot")
    return name


def _tuples(argument: str, rows: Any) -> list[tuple[Any, ...]]:
    try:
        return [tuple(row) for row in rows]
    except TypeError:
        raise invalid(argument, "expected rows of numbers", "Robot") from None


def _number(argument: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        text = f"expected numbers, got {type(given).__name__}"
        raise invalid(argument, text, "Robot") from None


def _remade(kind: str, *made: Any) -> Robot:
    return Robot.from_urdf(*made) if kind == "urdf" else Robot.from_dh(*made)


def _flat(given: Any, inner: int) -> tuple[Any, tuple[int, ...] | None]:
    """A tensor with at most one axis in front of its last, and the axes that were there if there were more."""
    if given is None or not hasattr(given, "shape"):
        if not isinstance(given, (list, tuple)):
            return given, None
        import numpy as np

        given = np.asarray(given)
    shape = tuple(given.shape)
    front = shape[: len(shape) - inner]
    if len(front) < 2:
        return given, None
    return given.reshape(math.prod(front), *shape[len(front) :]), front


def _restored(found: Any, front: tuple[int, ...] | None) -> Any:
    return found if front is None else found.reshape(*front, *found.shape[1:])


def _common(op: str, front: Any, behind: Any) -> tuple[int, ...] | None:
    if front is not None and behind is not None and front != behind:
        raise invalid("q", f"axes in front differ: {front} and {behind}", op)
    common: tuple[int, ...] | None = behind if front is None else front
    return common
