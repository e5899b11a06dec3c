"""The names that older code uses, as thin aliases; new code calls what they call.

Errors about tensors name the arguments of `resample` and `fuse`.
"""

from __future__ import annotations

from typing import Any, Literal

from robocache._arguments import device_of, mebibytes
from robocache._ops import fuse, resample
from robocache._stream import Stream

Backend = Literal["cpu", "cuda"] | None


def resample_trajectories(
    source_data: Any, source_times: Any, target_times: Any, backend: Backend = None
) -> Any:
    """`resample(source_data, source_times, target_times)`.

    Args:
        source_data: `[B,S,D]` or `[S,D]`.
        source_times: `[B,S]` or `[S]`.
        target_times: `[B,T]` or `[T]`.
        backend: None, or where the data lives: "cpu" or "cuda".
    """
    device = device_of(backend, "resample_trajectories")
    return resample(source_data, source_times, target_times, device=device)


def resample_trajectories_chunked(
    source_data: Any,
    source_times: Any,
    target_times: Any,
    max_memory_mb: float | None = 1024,
    backend: Backend = None,
) -> Any:
    """`resample` with `max_memory` in MiB, None for any."""
    op = "resample_trajectories_chunked"
    device, budget = device_of(backend, op), mebibytes("max_memory_mb", max_memory_mb, op)
    return resample(source_data, source_times, target_times, max_memory=budget, device=device)


def fuse_multimodal(
    s1: Any,
    t1: Any,
    s2: Any,
    t2: Any,
    s3: Any,
    t3: Any,
    targets: Any,
    backend: Backend = None,
) -> Any:
    """`fuse` of three streams: values and stamps of each, then the targets."""
    streams = [Stream(s1, t1), Stream(s2, t2), Stream(s3, t3)]
    return fuse(streams, targets, device=device_of(backend, "fuse_multimodal"))
