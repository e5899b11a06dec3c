"""Calls whose gradient is known: what `resample` makes of unit values is the matrix of its weights.

Needs torch and NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

import robocache as rc

LINEAR = ("linear", "nearest", "previous", "next")
OTHERS = ("cubic", "slerp", "angle", "rot6d")
MIXED = [("linear", 0, 2), ("slerp", 2, 6), ("previous", 6, 7), ("rot6d", 7, 13), ("cubic", 13, 16)]
STAMPS = {"int64": torch.int64, "float64": torch.float64, "float32": torch.float32}


@dataclass
class Call:
    """Arguments on the CPU."""

    values: torch.Tensor
    times: torch.Tensor
    targets: torch.Tensor
    options: dict = field(default_factory=dict)

    def on(self, device: str) -> Call:
        moved = {
            k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in self.options.items()
        }
        return Call(self.values.to(device), self.times.to(device), self.targets.to(device), moved)

    def run(self, values: torch.Tensor) -> torch.Tensor:
        return rc.resample(values, self.times, self.targets, **self.options)

    def weights(self) -> torch.Tensor:
        """`[B,T,S]` in float64, for methods that are linear in the values; 0 where there is no value."""
        samples = self.values.shape[-2]
        unit = torch.eye(samples, dtype=torch.float64)
        return torch.nan_to_num(rc.resample(unit, self.times, self.targets, **self.options))

    def expected(self, grad: torch.Tensor) -> torch.Tensor:
        """The gradient in the values by torch's own matrix product, in float64."""
        weights = self.weights()
        values = self.values.detach().double().requires_grad_()
        rows = torch.matmul(
            weights, values if values.dim() == 3 or weights.dim() == 2 else values[None]
        )
        (result,) = torch.autograd.grad(rows, values, grad.double().reshape(rows.shape))
        return result


def gradient(call: Call, grad: torch.Tensor) -> torch.Tensor:
    values = call.values.detach().clone().requires_grad_()
    out = call.run(values)
    out.backward(grad)
    return values.grad


def random_call(
    seed: int,
    method: str | list = "linear",
    *,
    dtype: torch.dtype = torch.float64,
    nan: bool = True,
    stamps: str | None = None,
) -> Call:
    """Duplicates, ragged rows, targets in and out of order, outside, NaN; shared or own values.

    Without `nan` every target has a value.
    """
    rng = np.random.default_rng(seed)
    batch, samples, steps = (
        int(rng.integers(low, high)) for low, high in ((1, 5), (1, 30), (1, 40))
    )
    width = int(rng.choice([1, 3, 4, 7, 16, 33]))
    drawn = str(rng.choice(list(STAMPS)))  # in any case, so that all that follows is the same
    stamps = stamps or drawn
    times = np.cumsum(rng.choice([0, 1, 2, 5], (batch, samples)), axis=1)
    targets = rng.integers(-3, times.max() + 4, (batch, steps)) + rng.choice(
        [0, 0.25, 0.5], (batch, steps)
    )
    if rng.random() < 0.7:
        targets = np.sort(targets, axis=1)
    if stamps == "int64":
        times, targets = times * 4, (targets * 4).astype(np.int64)
    elif nan and rng.random() < 0.3:
        targets[rng.random(targets.shape) < 0.1] = np.nan
    if isinstance(method, list):
        width = method[-1][2]
    else:
        width = {"slerp": 8, "rot6d": 12}.get(method, width)
    line = ["linear"] if method in ("linear", "cubic") else []
    extrapolate = str(rng.choice(["clamp", *(["nan"] if nan else []), *line]))
    options: dict = {"method": method, "extrapolate": extrapolate}
    if rng.random() < 0.5:
        options["lengths"] = torch.from_numpy(rng.integers(0 if nan else 1, samples + 1, batch))
    if nan and rng.random() < 0.5:
        options["target_lengths"] = torch.from_numpy(rng.integers(0, steps + 1, batch))
    kind = STAMPS[stamps]
    values = torch.from_numpy(rng.normal(size=(batch, samples, width))).to(dtype)
    if rng.random() < 0.3:
        values = values[0] if rng.random() < 0.5 else values[:1]
    return Call(
        values, torch.from_numpy(times).to(kind), torch.from_numpy(targets).to(kind), options
    )
