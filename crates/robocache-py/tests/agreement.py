"""One call on the CPU and on another device, compared bit for bit, with views of every kind.

Needs NumPy and torch only, so that scripts outside of pytest can use it too.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

import robocache as rc
from generate import random_stamps, random_targets

# How a tensor lies in memory: "offset" breaks the alignment of vector accesses, "rows apart" keeps
# the columns side by side, "any" permutes the axes and steps over elements as well.
LAYOUTS = ("plain", "offset", "rows apart", "batch apart", "any")
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def seeded(*parts: object) -> np.random.Generator:
    """Numbers that are the same in every run, and others for other words."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, parts)).encode()))


def scatter(x: torch.Tensor, layout: str, rng: np.random.Generator, fill: int = 0xFF):
    """A view with the elements of `x`, in memory whose other bytes are all `fill`.

    0xFF is NaN in every float type: what is read beside the view shows in the result.
    """
    order, step, offset, most_padding = list(range(x.dim())), 1, 0, 0
    if layout == "offset":
        offset = int(rng.integers(1, 4))
    elif layout == "rows apart":
        offset, most_padding = int(rng.integers(0, 2)), 4
    elif layout == "batch apart":
        most_padding = 3
    elif layout == "any":
        order = [int(axis) for axis in rng.permutation(x.dim())]
        step, offset, most_padding = int(rng.integers(1, 3)), int(rng.integers(0, 4)), 3
    strides, stride = [0] * x.dim(), step
    for axis in reversed(order):
        strides[axis] = stride
        stride *= max(x.shape[axis], 1)
        if layout != "batch apart" or axis == 1:
            stride += int(rng.integers(0, most_padding + 1))
    reach = sum(max(size - 1, 0) * stride for size, stride in zip(x.shape, strides, strict=True))
    raw = torch.full(((offset + reach + 1) * x.element_size(),), fill, dtype=torch.uint8)
    view = raw.view(x.dtype).as_strided(x.shape, strides, offset)
    view.copy_(x)
    return view


def memory(view: torch.Tensor) -> torch.Tensor:
    """All of the memory that `view` is part of, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=view.device).set_(view.untyped_storage())


def moved(view: torch.Tensor, device: str) -> torch.Tensor:
    """The same view of a copy of the same memory on `device`."""
    whole = memory(view).to(device, copy=True).view(view.dtype)
    return whole.as_strided(view.shape, view.stride(), view.storage_offset())


def assert_same(got: torch.Tensor, want: torch.Tensor, context: object = "") -> None:
    """Same shape, dtype and bits; NaNs are all alike."""
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}: {context}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}: {context}"
    bits = BITS[got.element_size()]
    differ = got.view(bits) != want.view(bits)
    if got.is_floating_point():
        differ &= ~(got.isnan() & want.isnan())
    if bool(differ.any()):
        where = tuple(int(i) for i in differ.nonzero()[0])
        raise AssertionError(
            f"{int(differ.sum())} of {differ.numel()} elements differ, first at {where}: "
            f"{got[where].item()!r}, expected {want[where].item()!r}: {context}"
        )


def compare(call: dict, layouts: dict, device: str, rng, out_layout=None, context="") -> None:
    """`rc.resample(**call)` with the tensors of `call` laid out as told, here and on `device`.

    With `out_layout` the results go into views of larger pieces, which must stay as they were.
    """
    views = {
        name: scatter(value, layouts.get(name, "plain"), rng)
        for name, value in call.items()
        if isinstance(value, torch.Tensor)
    }
    there = {name: moved(view, device) for name, view in views.items()}
    context = (
        context,
        {name: (v.shape, v.stride(), v.storage_offset()) for name, v in views.items()},
    )
    want = rc.resample(**{**call, **views}, return_valid=True)
    if out_layout is None:
        got = rc.resample(**{**call, **there}, return_valid=True)
        for mine, theirs in zip(got, want, strict=True):
            assert_same(mine.cpu(), theirs, context)
        plain = rc.resample(**{**call, **there})  # the kernel has other work without `valid`
        assert_same(plain.cpu(), want[0], context)
        return
    templates = [scatter(torch.zeros_like(tensor), out_layout, rng, 0xA5) for tensor in want]
    context = (*context, [(t.shape, t.stride(), t.storage_offset()) for t in templates])
    outs = tuple(moved(template, device) for template in templates)
    rc.resample(**{**call, **there}, return_valid=True, out=outs)
    for template, out, theirs in zip(templates, outs, want, strict=True):
        back = moved(out, "cpu")
        assert_same(back, theirs, context)
        template.copy_(back)  # all that may have changed
        assert torch.equal(memory(back), memory(template)), f"wrote beside the view: {context}"


def random_bits(rng: np.random.Generator, shape, dtype: str) -> torch.Tensor:
    """Every bit pattern there is: infinities, NaN, denormals, all of the integers."""
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.from_numpy(rng.integers(0, 2, shape).astype(bool))
    count = int(np.prod(shape)) * kind.itemsize
    return torch.from_numpy(rng.integers(0, 256, count, dtype=np.uint8)).view(kind).reshape(shape)


def random_call(rng, dtype: str, stamps: str, method: str, extrapolate: str, sizes: tuple) -> dict:
    """A ragged batch of `sizes` (B, S, T, D) in which every row has its own stamps and targets."""
    batch, source, steps, dim = sizes
    times = np.stack([random_stamps(rng, source, stamps) for _ in range(batch)])
    lengths = rng.integers(max(1, source // 2), source + 1, batch)
    rows = [times[b, : lengths[b]] for b in range(batch)]
    targets = [random_targets(rng, row, steps, method, extrapolate) for row in rows]
    values = random_bits(rng, (batch, source, dim), dtype)
    if values.is_floating_point() and rng.random() < 0.5:
        values = torch.from_numpy(rng.normal(size=(batch, source, dim))).to(values.dtype)
    call = {
        "values": values,
        "times": torch.from_numpy(times),
        "targets": torch.from_numpy(np.stack(targets)),
        "method": method,
        "extrapolate": extrapolate,
        "check": bool(rng.random() < 0.7),
        "lengths": torch.from_numpy(lengths.astype(rng.choice(["int32", "int64"]))),
    }
    if rng.random() < 0.5:
        kept = rng.integers(0, steps + 1, batch).astype(rng.choice(["int32", "int64"]))
        call["target_lengths"] = torch.from_numpy(kept)
    if rng.random() < 0.5:
        call["max_gap"] = float(rng.choice([0.0, 1.00017e-3, 3.3331e-3, 0.7]))
    return call
