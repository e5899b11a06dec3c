"""Bad data in good shapes, for the rule that a GPU reports it later (api.md §3).

One call with room for every fault, so that a fault is nothing but other numbers in the same
tensors: a captured graph can meet it at a replay. Needs torch only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

ROWS, SOURCE, STEPS, DIM = 4, 40, 10, 3
BAD_ROW = 2
GOOD_ROWS = [0, 1, 3]


def good_call(dtype: torch.dtype = torch.float32) -> dict:
    """Keywords of `rc.resample` on the CPU, without a fault; blends where the dtype can."""
    generator = torch.Generator().manual_seed(3)
    row = torch.arange(float(ROWS))[:, None]
    return {
        "values": torch.randint(-99, 99, (ROWS, SOURCE, DIM), generator=generator).to(dtype),
        "times": torch.arange(float(SOURCE)) / 2 + row,
        "targets": torch.linspace(0.3, 19.1, STEPS) + row,
        "lengths": torch.full((ROWS,), SOURCE),
        "target_lengths": torch.full((ROWS,), STEPS, dtype=torch.int32),
        "method": "linear" if dtype.is_floating_point else "previous",
        "extrapolate": "error",
    }


@dataclass(frozen=True)
class Fault:
    """What `break_it` makes of a good call, and how the error must speak of it."""

    name: str
    argument: str
    message: str
    break_it: Callable[[dict], None]

    def call(self, dtype: torch.dtype = torch.float32) -> dict:
        call = good_call(dtype)
        self.break_it(call)
        return call


def _set(name: str, place: object, value: float) -> Callable[[dict], None]:
    def break_it(call: dict) -> None:
        call[name][place] = value

    return break_it


def _far_from_zero(call: dict) -> None:
    """float32 cannot tell one second from the next there."""
    for name in ("times", "targets"):
        call[name][BAD_ROW] += 2.0**25


FAULTS = (
    Fault(
        "unsorted",
        "times",
        r"row 2 decreases at index 17 \(9.75 after 10\)",
        _set("times", (BAD_ROW, 17), 9.75),
    ),
    Fault(
        "NaN stamp",
        "times",
        "row 2 holds NaN at index 5",
        _set("times", (BAD_ROW, 5), float("nan")),
    ),
    Fault(
        "infinite stamp",
        "times",
        "row 2 holds inf at index 39",
        _set("times", (BAD_ROW, 39), float("inf")),
    ),
    Fault("coarse stamps", "times", "row 2 holds .* as float32 seconds", _far_from_zero),
    Fault(
        "target outside",
        "targets",
        "row 2 index 3 is 1000, outside the stamps 2 to 21.5",
        _set("targets", (BAD_ROW, slice(3, None, 2)), 1000.0),
    ),
    Fault("length < 0", "lengths", "row 2 is -1, expected 0 to 40", _set("lengths", BAD_ROW, -1)),
    Fault("length > S", "lengths", "row 2 is 41, expected 0 to 40", _set("lengths", BAD_ROW, 41)),
    Fault(
        "target length < 0",
        "target_lengths",
        "row 2 is -3, expected 0 to 10",
        _set("target_lengths", BAD_ROW, -3),
    ),
    Fault(
        "target length > T",
        "target_lengths",
        "row 2 is 11, expected 0 to 10",
        _set("target_lengths", BAD_ROW, 11),
    ),
)


def placed(call: dict, device: str) -> dict:
    """The call with its tensors copied to `device`."""
    return {
        name: value.to(device, copy=True) if isinstance(value, torch.Tensor) else value
        for name, value in call.items()
    }


def rows_of(call: dict, rows: list[int]) -> dict:
    """The call for some of its rows."""
    return {
        name: value[rows] if isinstance(value, torch.Tensor) else value
        for name, value in call.items()
    }
