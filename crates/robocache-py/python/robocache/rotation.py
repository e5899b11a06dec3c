"""Rotations from one representation to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robocache import _core, _ops

_SHAPES = _core.ROTATIONS
REPRESENTATIONS: tuple[str, ...] = tuple(_SHAPES)
"""The names that `convert` knows."""


def convert(
    x: Any,
    source: str,
    target: str,
    *,
    device: Any = None,
    stream: Any = None,
    max_memory: int | str | None = None,
    chunk: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> Any:
    """Rotations in another representation.

    Args:
        x: `[...,n]` (a matrix: `[...,3,3]`): float16, bfloat16, float32 or float64.
        source, target: what `x` holds, and what is wanted:
            "quat_xyzw", "quat_wxyz": n = 4. Of any length in, normalised; out of length 1 with w >= 0.
                Half turns have w = 0 and either sign. Length 0 gives NaN.
            "matrix": R, for which R v is the turned vector. Taken as it is: a matrix that is no
                rotation is not made one.
            "axis_angle": n = 3, the axis times the angle: out in [0, pi]. At pi either axis.
            "euler_xyz" and every other sequence, n = 3, radians: SciPy's `from_euler`. In lower
                case about fixed axes, the first angle about the first axis ("euler_xyz": URDF's rpy);
                in upper case ("euler_XYZ") about axes that turn along. Out the middle angle is in
                [-pi/2, pi/2], or in [0, pi] where first and last axis are the same, the others in
                [-pi, pi]. Where the middle angle is at an end of its range (gimbal lock, within 1e-7,
                or 1e-6 in float32) only a sum of the others is known: the third is 0, as in SciPy.
            "rot6d": n = 6, the first two columns of R, one after the other (Zhou et al.).
            "rot6d_rows": n = 6, the first two rows of R (PyTorch3D, diffusion policy). In, both are
                made orthonormal by Gram-Schmidt, the first keeping its direction.
        device: None or where the data lives. Data on the host can be streamed through a GPU, a list of
            GPUs, or "auto", the first that works (docs/multi-gpu.md).
        stream: a CUDA stream instead of the current one.
        max_memory, chunk, progress: as for `resample`.

    By way of the matrix to "matrix", "rot6d" and "rot6d_rows"; by way of the quaternion else. Small
    angles and angles near pi lose no digits. The same representation in and out gives its normal form;
    from a matrix to a matrix or its columns or rows numbers are copied. NaN makes its own row NaN.
    Computed in float32, float64 for float64; the same bits on CPU and GPU for angles up to 2**20 rad.

    torch: differentiable once, along the branch that a value takes; where a length or an angle at the
    origin has no derivative, it counts as 0. `torch.compile` and `torch.func.vmap` work.

    Returns:
        `[...,m]`, or `[...,3,3]` for "matrix", in the framework and dtype of `x`.
    """
    if isinstance(x, (list, tuple)):
        x = _array(x)
    own = _SHAPES.get(source, ()) if isinstance(source, str) else ()
    shape = tuple(getattr(x, "shape", ()))
    lead = shape[: len(shape) - len(own)]
    # The engine takes one axis of rows, and refuses what has other axes behind.
    if not own or len(lead) < 2 or shape[len(lead) :] != own:
        return _ops.rotation_convert(
            x,
            source,
            target,
            device=device,
            stream=stream,
            max_memory=max_memory,
            chunk=chunk,
            progress=progress,
        )
    rows = 1
    for size in lead:
        rows = rows * size
    made = _ops.rotation_convert(
        x.reshape(rows, *own),
        source,
        target,
        device=device,
        stream=stream,
        max_memory=max_memory,
        chunk=chunk,
        progress=progress,
    )
    return made.reshape(*lead, *made.shape[1:])


def _array(numbers: Any) -> Any:
    """A list as an array; what is none is left to the engine, which says why."""
    import numpy as np

    try:
        return np.asarray(numbers)
    except (TypeError, ValueError, RuntimeError):
        return numbers
