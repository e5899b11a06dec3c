"""The ops registered with torch; imported when one is needed, never by `import robocache`.

A call comes here when torch must see it: a gradient is wanted, torch.compile traces it, a mode or
functorch is at work, or a tensor is of a subclass.
"""

from __future__ import annotations

from collections.abc import Callable

from robocache._torch_fuse import FUSE, fuse
from robocache._torch_library import register
from robocache._torch_resample import RESAMPLE, RESAMPLE_BACKWARD, load_gradient, resample

GRADIENTS: dict[str, Callable[..., None]] = {"resample": load_gradient}
"""By op: what loads the kernels of its gradient, for `warmup`."""

for _op in (RESAMPLE, RESAMPLE_BACKWARD, FUSE):
    register(_op)

__all__ = ["GRADIENTS", "fuse", "resample"]
