"""Offsets and masks as well-known policies want them."""

from __future__ import annotations

from typing import Any

from robocache._errors import InvalidArgument


class Octo:
    """Octo's windows: `window_size` observations up to now, and for each of them the next
    `action_horizon` actions; masks say what is padding.

    `Loader(cache, 64, **preset.options(cache))`, then `preset(batch)` for every batch.
    """

    def __init__(self, window_size: int, action_horizon: int) -> None:
        for name, value in (("window_size", window_size), ("action_horizon", action_horizon)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                text = f"octo: {name}: expected a whole number of at least 1, got {value!r}"
                raise InvalidArgument(text, op="octo", argument=name)
        self.window_size, self.action_horizon = window_size, action_horizon

    def options(self, cache: Any) -> dict[str, Any]:
        """The loader's options: offsets for every stream, in the periods of the main clock."""
        period = 1.0 / cache.meta.fps
        past = [(i - self.window_size + 1) * period for i in range(self.window_size)]
        ahead = range(self.window_size + self.action_horizon - 1)
        actions = [(i - self.window_size + 1) * period for i in ahead]
        deltas = {}
        for key in cache.streams:
            if key.startswith("observation"):
                deltas[key] = past
            elif key.startswith("action"):
                deltas[key] = actions
        return {"delta_timestamps": deltas}

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Actions `[B,T,H,A]`, `timestep_pad_mask [B,T]` and `action_pad_mask [B,T,H,A]`: True is real.

        A step is real where every observation is.
        """
        out = dict(batch)
        size, horizon = self.window_size, self.action_horizon
        for key in list(batch):
            pads = batch.get(f"{key}_is_pad")
            if pads is None:
                continue
            if key.startswith("action"):
                windows = batch[key].unfold(1, horizon, 1)
                out[key] = windows.movedim(-1, 2)[:, :size]
                real = ~pads.unfold(1, horizon, 1)[:, :size]
                shape = out[key].shape
                out[f"{key}_pad_mask"] = real.reshape(*shape[:3], *[1] * (len(shape) - 3)).expand(
                    shape
                )
            elif key.startswith("observation"):
                real = out.get("timestep_pad_mask")
                out["timestep_pad_mask"] = ~pads if real is None else real & ~pads
        return out


def octo(window_size: int, action_horizon: int) -> Octo:
    """Octo's windows and masks."""
    return Octo(window_size, action_horizon)
