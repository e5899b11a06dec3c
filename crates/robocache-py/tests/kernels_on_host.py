"""Kernels without a GPU: the kernels' own sources, run on the host, against what the CPU computes.

The driver of `crates/fake-cuda` compiles kernels with the C++ compiler and runs their threads in turns. This is a
process of its own, started by test_kernels_on_host.py: `python kernels_on_host.py PART STAMPS DTYPE SEED FIRST END`
runs the cases of a part from FIRST on. A process that a signal ends has read or written where it must not
(segmentation fault), or at an odd address or out of an array (illegal instruction): the last case printed tells where.
"""

from __future__ import annotations

import faulthandler
import sys

import numpy as np
import pytest
import torch

import robocache as rc
from agreement import BITS, LAYOUTS, assert_same, memory, scatter
from agreement import random_call as random_resample
from fake_dlpack import BFLOAT, BOOL, CUDA, FLOAT, INT, UINT, Producer, pose_as_cupy
from gradient_cases import LINEAR, MIXED, OTHERS, Call
from gradient_cases import random_call as random_gradient
from robots import random_urdf
from walled import Memory

CODES = {torch.bfloat16: BFLOAT, torch.bool: BOOL, torch.uint8: UINT, torch.uint16: UINT}
COPIES = LINEAR[1:]
FUSED = (*LINEAR, *OTHERS)
SHORT = ((16, 120), (1, 40), (1, 40), (1, 20))  # batch, samples, targets, columns


class Array(Producer):
    """A tensor of the host that says it is on a GPU, as CuPy's arrays would."""

    def __init__(self, memory: Memory) -> None:
        tensor = memory.view
        code = CODES.get(tensor.dtype, FLOAT if tensor.is_floating_point() else INT)
        super().__init__(
            np.empty(0),
            data=tensor.data_ptr(),
            shape=tuple(tensor.shape),
            strides=tensor.stride(),
            dtype=(code, tensor.element_size() * 8, 1),
            device=(CUDA, 0),
        )
        self.memory, self.tensor = memory, tensor


SPOILED = 0xA5


ALLOCATED: list[Array] = []


def empty(shape: tuple, dtype: str) -> Array:
    """Memory as an allocator hands it out: with anything in it."""
    tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    memory(tensor).fill_(SPOILED)
    ALLOCATED.append(Array(Memory(tensor, 16, SPOILED)))
    return ALLOCATED[-1]


pose_as_cupy(Array, empty)


def spoil(view: torch.Tensor) -> None:
    """The bytes of all elements, wherever they lie, as they were before anything was written."""
    size = view.element_size()
    word = int.from_bytes(bytes([SPOILED] * size), "little", signed=size > 1)
    view.view(BITS[size]).fill_(word)


class Cases:
    """Random calls, of one type of stamps and one of values, so that a few kernels serve many of them."""

    def __init__(self, stamps: str, dtype: str, seed: int, index: int) -> None:
        self.rng = np.random.default_rng([seed, index])
        self.stamps, self.dtype = stamps, getattr(torch, dtype)
        self.name = dtype
        self.way: dict = {}

    def parts(self) -> None:
        """Calls in parts, of rows or of what is in one row."""
        self.way = {"chunk": int(self.rng.choice([1, 2, 3, 37, 200]))}
        getattr(self, str(self.rng.choice(["resample", "fuse", "points", "rotation"])))()

    def streamed(self) -> None:
        """Data of the host through one GPU, through two, and twice through one, in parts of any size."""
        devices = ["cuda", "cuda:1", ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]]
        self.way = {"device": devices[int(self.rng.integers(4))]}
        if self.rng.random() < 0.8:
            self.way["chunk"] = int(self.rng.choice([1, 2, 3, 37, 200]))
        getattr(self, str(self.rng.choice(["resample", "fuse", "points", "rotation"])))()

    def there(self, value):
        """On the "GPU", to be read only: at the wall itself, or as far away as an alignment needs."""
        if not isinstance(value, torch.Tensor) or "device" in self.way:
            return value
        unit = int(self.rng.choice([value.element_size(), 16, 16, 256]))
        return Array(Memory(value, unit))

    def laid_out(self, call: dict) -> dict:
        """Half of the calls have all of their tensors as they come, others lie in memory anyhow."""
        plain = self.rng.random() < 0.5
        return {
            name: scatter(value, "plain" if plain else str(self.rng.choice(LAYOUTS)), self.rng)
            if isinstance(value, torch.Tensor)
            else value
            for name, value in call.items()
        }

    def compare(self, want: tuple, run, context: object, layouts=LAYOUTS) -> None:
        """What `run` writes into memory of the same shapes is `want`, and nothing beside it is written."""
        layout = str(self.rng.choice(layouts))
        if "device" in self.way:
            outs = [scatter(torch.zeros_like(x), layout, self.rng) for x in want]
            run(outs[0] if len(outs) == 1 else tuple(outs))
            for out, expected in zip(outs, want, strict=True):
                assert_same(out, expected, context)
            return
        templates = [scatter(torch.zeros_like(x), layout, self.rng) for x in want]
        for template in templates:
            memory(template).fill_(SPOILED)
        outs = [Array(Memory(template, 16, SPOILED)) for template in templates]
        run(outs[0] if len(outs) == 1 else tuple(outs))
        rc.synchronize()
        for out, expected in zip(outs, want, strict=True):
            assert_same(out.tensor, expected, context)
            spoil(out.tensor)  # all that may have changed
            assert bool((out.memory.bytes == SPOILED).all()), f"wrote beside the view: {context}"

    def resample(self) -> None:
        rng, dtype = self.rng, self.name
        if rng.random() < 0.3:
            dtype = str(rng.choice(["uint8", "int64"]))
        floats = dtype == self.name
        method = str(rng.choice(LINEAR if floats else COPIES))
        ends = ["clamp", *(["nan"] if floats else []), *(["linear"] if method == "linear" else [])]
        sizes = tuple(int(rng.integers(1, most)) for most in (5, 400, 500, 70))
        if rng.random() < 0.1:  # more stamps than shared memory holds
            sizes = (1, 40_000, 30, 3)
        elif rng.random() < 0.4:  # several rows in a block
            sizes = tuple(int(rng.integers(*span)) for span in SHORT)
        how = str(rng.choice(ends))
        call = self.laid_out(random_resample(rng, dtype, self.stamps, method, how, sizes))
        if rng.random() < 0.1:
            call["values"] = call["values"][..., :1].expand(call["values"].shape)
        if call["check"] and sizes[1] > 2 and rng.random() < 0.2 and "device" not in self.way:
            return self.refused(call)
        want = rc.resample(**call, return_valid=True)
        placed = {name: self.there(value) for name, value in call.items()}
        context = (dtype, method, how, sizes)
        self.compare(
            want, lambda out: rc.resample(**placed, **self.way, return_valid=True, out=out), context
        )
        self.compare(want[:1], lambda out: rc.resample(**placed, **self.way, out=out), context)

    def refused(self, call: dict) -> None:
        """A kernel finds the stamps that the CPU refuses, and says the same about them."""
        del call["lengths"]
        row, index = (int(self.rng.integers(size)) for size in call["times"].shape)
        before = call["times"][row, index - 1 if index else 1]
        call["times"][row, index] = before - 1 if index else before + 1
        with pytest.raises(rc.InvalidArgument) as on_cpu:
            rc.resample(**call)
        good = torch.arange(len(call["times"])) != row
        want = rc.resample(**(call | {"check": False}))
        spoiled = torch.empty_like(want)
        memory(spoiled).fill_(SPOILED)
        out = Array(Memory(spoiled, 16, SPOILED))
        rc.resample(
            **{name: self.there(value) for name, value in call.items()}, **self.way, out=out
        )
        with pytest.raises(rc.InvalidArgument) as on_gpu:
            rc.synchronize()
        said = str(on_cpu.value).removeprefix("resample: ")
        assert said in str(on_gpu.value), (said, str(on_gpu.value))
        assert_same(out.tensor[good], want[good])
        if out.tensor.is_floating_point():
            assert out.tensor[row].isnan().all()

    def stream(self, batch: int, most: int, kind: str) -> dict:
        rng = self.rng
        samples = int(rng.integers(1, most))
        method, dtype = str(rng.choice(FUSED)), self.dtype
        width = {"slerp": 4, "rot6d": 6}.get(method, 1) * int(rng.integers(1, 9))
        if kind == "narrow":
            width = int(rng.choice([6, 8, 10, 12, 14]))
            method = [("slerp", 0, 4), ("angle", 4, 5), (str(rng.choice(LINEAR)), 5, width)]
        elif kind == "lines":
            width, method = 8 * int(rng.integers(1, 9)), "linear"
        elif method in COPIES and rng.random() < 0.2:
            dtype = torch.uint8
        elif rng.random() < 0.1:
            dtype = torch.float32
        times = np.cumsum(rng.choice([0, 1, 2, 5], (batch, samples)), axis=1) * 4
        values = torch.from_numpy(rng.normal(size=(batch, samples, width)) * 3)
        lengths = torch.from_numpy(rng.integers(0, samples + 1, batch))
        parts = {
            "values": values.to(dtype),
            "times": torch.from_numpy(times).to(getattr(torch, self.stamps)),
            "method": method,
            "max_gap": float(rng.choice([1e-9, 5.0])) if rng.random() < 0.3 else None,
            "lengths": lengths if rng.random() < 0.3 else None,
        }
        return self.laid_out(parts) if kind == "any" else parts

    def fuse(self) -> None:
        """Streams of any kind, or such as the kernels for lines and for narrow rows are made for."""
        rng = self.rng
        kind = str(rng.choice(["any", "any", "lines", "narrow"]))
        batch, steps = int(rng.integers(1, 6)), int(rng.integers(1, 300))
        if rng.random() < 0.4:  # several rows in a block
            batch, steps = (int(rng.integers(*SHORT[axis])) for axis in (0, 2))
        count = {"narrow": 1, "lines": int(rng.integers(2, 5))}.get(
            kind, int(rng.choice([1, 2, 3, 8]))
        )
        most = int(rng.choice([40, 900])) if kind == "any" else 60
        streams = [self.stream(batch, most, kind) for _ in range(count)]
        targets = rng.integers(-9, 10 * most, (batch, steps))
        if rng.random() < 0.7:
            targets = np.sort(targets, axis=1)
        targets = torch.from_numpy(targets).to(getattr(torch, self.stamps))
        floats = all(stream["values"].is_floating_point() for stream in streams)
        asked = {
            "return_valid": kind == "any" and bool(rng.random() < 0.4),
            "return_age": kind == "any" and bool(rng.random() < 0.2),
            "extrapolate": str(rng.choice(["clamp", "nan"])) if floats else "clamp",
        }
        made = rc.fuse([rc.Stream(**stream) for stream in streams], targets, **asked)
        placed = [
            rc.Stream(**{name: self.there(value) for name, value in stream.items()})
            for stream in streams
        ]
        targets = self.there(targets)
        context = asked, [(s["method"], s["values"].dtype, s["values"].shape) for s in streams]
        self.compare(
            made if isinstance(made, tuple) else (made,),
            lambda out: rc.fuse(placed, targets, **asked, **self.way, out=out),
            context,
            # Rows that a thread makes as a whole need results whose rows begin at its vectors.
            ("plain", "batch apart") if kind == "narrow" else LAYOUTS,
        )

    def points(self) -> None:
        rng = self.rng
        batch, count = int(rng.integers(1, 4)), int(rng.choice([1, 40, 700, 3000]))
        places = rng.normal(size=(batch, count, 3)) * 2
        places[rng.random((batch, count)) < 0.05] = np.nan
        call = {"points": torch.from_numpy(places).to(self.dtype)}
        if rng.random() < 0.5:
            call["lengths"] = torch.from_numpy(rng.integers(0, count + 1, batch))
        op = str(
            rng.choice(["voxelize", "voxelize", "crop_box", "transform_points", "farthest_points"])
        )
        if op == "voxelize":
            reduce = str(rng.choice(["occupancy", "count", "sum", "mean", "max", "min"]))
            shape = [int(side) for side in rng.integers(1, int(rng.choice([4, 30])), 3)]
            call |= {
                "origin": (-2.0, -2.1, -1.9),
                "voxel_size": 0.31,
                "shape": shape,
                "reduce": reduce,
            }
            if reduce not in ("occupancy", "count"):
                width = int(rng.choice([1, 3, 4, 16]))
                features = rng.normal(size=(batch, count, width))
                call["features"] = torch.from_numpy(features).to(self.dtype)
                call["return_counts"] = bool(rng.random() < 0.5)
        elif op == "crop_box":
            call |= {
                "low": (-1.0, -1.5, -2.0),
                "high": (1.0, 2.0, 1.5),
                "compact": bool(rng.random() < 0.5),
            }
        elif op == "transform_points":
            call.pop("lengths", None)
            call["pose"] = torch.from_numpy(rng.normal(size=(batch, 4, 4))).to(self.dtype)
            call["pose"][:, 3] = torch.tensor([0, 0, 0, 1])
        else:
            call["points"] = call["points"].nan_to_num()
            call["k"] = int(rng.integers(1, min(count, 20) + 1))
            if "lengths" in call:
                call["lengths"] = call["lengths"].clamp(min=call["k"])
        call = self.laid_out(call)
        made = getattr(rc._core, op)(**call)
        placed = {name: self.there(value) for name, value in call.items()}
        context = op, {name: getattr(value, "shape", value) for name, value in call.items()}
        self.compare(
            made if isinstance(made, tuple) else (made,),
            lambda out: getattr(rc._core, op)(**placed, **self.way, out=out),
            context,
            layouts=("plain",),  # all that these ops write to
        )

    def sparse(self) -> None:
        """Sparse grids and hard voxels, the gradient of their features, and points of depth images."""
        rng = self.rng
        batch, count = int(rng.integers(1, 4)), int(rng.choice([40, 700, 3000]))
        width, rows = int(rng.choice([1, 3, 4, 16])), int(rng.integers(1, 500))
        sizes = {
            "points": (batch, count, 3),
            "features": (batch, count, width),
            "grad": (rows, width),
        }
        made = {name: torch.from_numpy(rng.normal(size=size) * 2) for name, size in sizes.items()}
        call = self.laid_out({name: tensor.to(self.dtype) for name, tensor in made.items()})
        call["grad"] = call["grad"].contiguous()
        size = float(rng.choice([0.31, 2.0]))
        grid = {"origin": (-2.0, -2.1, -1.9), "voxel_size": size, "shape": (13, 12, 14)}
        reduce = str(rng.choice(["sum", "mean", "max", "min"]))
        most = None if rng.random() < 0.5 else int(rng.integers(1, 6))
        depth = torch.from_numpy(rng.integers(0, 3000, (batch, 17, 13)).astype(np.uint16))
        lens = torch.tensor([[20.0, 0, 8], [0, 21, 6], [0, 0, 1]]).expand(batch, 3, 3).contiguous()

        def results(put) -> list:
            points, features, grad = (put(call[name]) for name in ("points", "features", "grad"))
            groups = rc._core.group_points(points, **grid, max_voxels=rows)
            found = rc._core.gather_voxels(
                points, features, groups, rows, **grid, reduce=reduce, max_points=most
            )
            back = rc._core.voxelize_backward(
                points, features, grad, groups, reduce=reduce, sparse=True
            )
            seen = rc._core.unproject(put(depth), put(lens))
            return [*groups[3:], *found, back, seen]  # the first of `groups` are the engine's own

        want, got = results(lambda tensor: tensor), results(self.there)
        rc.synchronize()
        for place, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            assert_same(mine.tensor, theirs, (place, sizes, size, reduce, most))

    def robots(self) -> None:
        """Poses, Jacobians, gradients, velocities and the way back, of trees with joints of all types."""
        rng = self.rng
        # Few robots: each is compiled for.
        robot = rc.Robot.from_urdf(random_urdf(*[(0, 1), (5, 8), (2, 12)][int(rng.integers(3))]))
        rows, joints = int(rng.choice([1, 31, 32, 70, 300])), robot.num_joints
        places = [int(x) for x in rng.integers(0, len(robot.link_names), int(rng.integers(1, 4)))]
        sizes = {
            "q": (rows, joints),
            "twist": (rows, 6),
            "pose": (rows, 7),
            "grad_pose": (rows, len(places), 7),
            "grad_jacobian": (rows, len(places), 6, joints),
        }
        made = {name: torch.from_numpy(rng.normal(size=size)) for name, size in sizes.items()}
        made["q"][rng.random(rows) < 0.1] *= 1e4
        made["pose"][rng.random(rows) < 0.1] *= torch.nan
        reached = robot.fk(made["q"], robot.link_names[places[0]])
        made["pose"][::2] = reached[::2]
        call = self.laid_out({name: tensor.to(self.dtype) for name, tensor in made.items()})

        def results(put) -> list:
            q, twist, pose, grad_pose, grad_jacobian = (put(call[name]) for name in sizes)
            of, one = (robot._key, places), (robot._key, places[:1])
            back = rc._core.fk_backward
            rules = (1e-4, 1e-3, 12, 3, bool(rows % 2))
            return [
                rc._core.fk(q, *of, False),
                rc._core.fk(q, *one, True),
                rc._core.jacobian(q, *of, False),
                *rc._core.fk_jacobian(q, *of, False),
                back(q, grad_pose, None, *of),
                back(q, None, grad_jacobian, *of),
                back(q, grad_pose, grad_jacobian, *of),
                rc._core.joint_velocity(q, twist, *one, 0.01),
                *rc._core.ik(pose, None, *one, *rules),
                *rc._core.ik(pose, q, *one, *rules),
            ]

        want, got = results(lambda tensor: tensor), results(self.there)
        rc.synchronize()
        for place, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            if place in (12, 17):  # the arc sine of a rotation's error is the platform's
                torch.testing.assert_close(mine.tensor, theirs, equal_nan=True)
            else:
                assert_same(mine.tensor, theirs, (place, robot.name, rows, places))

    def rotation(self) -> None:
        """Conversions and their gradients, with rows that lie side by side and others."""
        rng = self.rng
        names = list(rc.rotation.REPRESENTATIONS)
        names += names[:6] * 3  # those that are not Euler angles
        source, target = (str(rng.choice(names)) for _ in range(2))
        count = int(rng.choice([1, 3, 255, 256, 257, 1100]))
        quats = torch.from_numpy(rng.normal(size=(count, 4)))
        quats[rng.random(count) < 0.2] = torch.eye(4, dtype=quats.dtype)[int(rng.integers(4))]
        x = rc.rotation.convert(quats, "quat_xyzw", source)
        if rng.random() < 0.7:  # no normal forms
            x = x * torch.from_numpy(rng.normal(size=(count, *[1] * (x.dim() - 1))))
        x = x.to(self.dtype)
        bad = torch.from_numpy(rng.random(x.shape) < 0.01)
        x[bad] = float(rng.choice([0.0, np.nan, np.inf, 1e-30, 1e30]))
        if rng.random() < 0.1:
            x = x[0]
        call = self.laid_out({"x": x})
        want = rc._core.rotation_convert(**call, source=source, target=target)
        placed = self.there(call["x"])
        context = source, target, tuple(x.shape), call["x"].stride()
        self.compare(
            (want,),
            lambda out: rc._core.rotation_convert(placed, source, target, **self.way, out=out),
            context,
        )
        if self.dtype == torch.bfloat16 or self.way:
            return  # CuPy, whose arrays the gradient would be, has none
        grad = torch.from_numpy(rng.normal(size=tuple(want.shape))).to(self.dtype)
        grad = self.laid_out({"grad": grad})["grad"]
        want = rc._core.rotation_backward(call["x"], grad, source, target)
        got = rc._core.rotation_backward(placed, self.there(grad), source, target)
        rc.synchronize()
        assert_same(got.tensor, want, context)

    def gradient(self) -> None:
        rng = self.rng
        methods = [*LINEAR, *LINEAR, *OTHERS, MIXED]
        method = methods[int(rng.integers(len(methods)))]
        if rng.random() < 0.4:
            call = self.long_gradient(method)
        else:
            seed = int(rng.integers(1 << 30))
            call = random_gradient(seed, method, dtype=self.dtype, stamps=self.stamps)
        shape = list(call.values.shape)
        tensors = {"values": call.values, "times": call.times, "targets": call.targets}
        made = rc.resample(**tensors, **call.options)
        grad = torch.from_numpy(rng.normal(size=tuple(made.shape))).to(self.dtype)
        # What weighs nothing must not matter, not even as NaN.
        if method in LINEAR and rng.random() < 0.3:
            grad[torch.from_numpy(rng.random(tuple(made.shape)) < 0.1)] = torch.nan
        given = self.laid_out({"grad": grad, **tensors})
        want = rc._core.resample_backward(**given, shape=shape, **call.options)
        placed = {name: self.there(value) for name, value in (given | call.options).items()}
        got = rc._core.resample_backward(**placed, shape=shape).tensor
        rc.synchronize()
        context = (method, shape, tuple(call.targets.shape), call.options)
        if method in LINEAR:
            return assert_same(got, want, context)
        # Sums of up to hundreds of targets, in another order, of quotients that may be large.
        near = {"float64": 1e-10, "float32": 5e-4, "float16": 2e-2, "bfloat16": 2e-1}[self.name]
        torch.testing.assert_close(
            got, want, rtol=near, atol=near, equal_nan=True, msg=lambda text: f"{context}: {text}"
        )

    def long_gradient(self, method) -> Call:
        """Several tiles of samples, and sometimes more targets than samples."""
        rng = self.rng
        batch, samples, steps = (int(rng.integers(1, most)) for most in (4, 1500, 2000))
        width = int(rng.integers(1, 20))
        width = 16 if method is MIXED else 12 if method in ("slerp", "rot6d") else width
        # Equal stamps, which some kernels leave to others, in half of the calls; gaps and crowds.
        times = np.cumsum(rng.integers(int(rng.integers(0, 2)), 9, (batch, samples)), axis=1)
        first, last = (
            sorted(rng.integers(-9, 5 * samples, 2)) if rng.random() < 0.3 else (-9, 5 * samples)
        )
        targets = rng.integers(first, last + 1, (batch, steps))
        if rng.random() < 0.7:
            targets = np.sort(targets, axis=1)
        options = {"method": method}
        if method == "linear" or rng.random() < 0.5:
            options["extrapolate"] = ("clamp", "nan", "linear")[
                int(rng.integers(3 if method == "linear" else 2))
            ]
        if rng.random() < 0.5:
            options["lengths"] = torch.from_numpy(rng.integers(1, samples + 1, batch))
        values = torch.from_numpy(rng.normal(size=(batch, samples, width))).to(self.dtype)
        kind = getattr(torch, self.stamps)
        stamps = (torch.from_numpy(x).to(kind) for x in (times, targets))
        return Call(values if rng.random() < 0.7 else values[0], *stamps, options)


def main() -> None:
    part, stamps, dtype, seed, first, end = sys.argv[1:]
    faulthandler.enable()
    for index in range(int(first), int(end)):
        print(f"case {index}", flush=True)
        faulthandler.dump_traceback_later(120, exit=True)
        getattr(Cases(stamps, dtype, int(seed), index), part)()
    print(f"{int(end) - int(first)} cases passed")


if __name__ == "__main__":
    main()
