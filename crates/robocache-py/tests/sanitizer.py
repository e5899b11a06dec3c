"""Launches for compute-sanitizer, small and of every kind; sanitize.sh runs it under each tool.

Without arguments: our ops and gradients on CUDA against the CPU, exit code 0 when they agree. With
`--plant memcheck|racecheck|initcheck`: a kernel with that fault, which the tool must find. Plain
Python: no pytest, and nothing on the GPU but copies and our kernels.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys

import numpy as np


def plant(tool: str) -> None:
    """One deliberately wrong kernel, in memory that no pool hides."""
    import cupy

    cupy.cuda.set_allocator(None)
    name, code = {
        "memcheck": ("past_the_end", "out[64 + threadIdx.x] = 1;"),
        "racecheck": (
            "no_barrier",
            "__shared__ int all[64]; all[threadIdx.x] = threadIdx.x; out[threadIdx.x] = all[63 - threadIdx.x];",
        ),
        "initcheck": ("never_written", "out[threadIdx.x] = in[threadIdx.x] + 1;"),
    }[tool]
    source = f'extern "C" __global__ void {name}(const int* in, int* out) {{ {code} }}'
    kernel = cupy.RawKernel(source, name)
    kernel((1,), (64,), (cupy.empty(64, cupy.int32), cupy.empty(64, cupy.int32)))
    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(f"the planted kernel failed: {error}")  # memcheck may stop it
    print(f"planted for {tool}: {name}")


def launches() -> int:
    """Every cell, stamp, method and layout, rows in shared memory and not; what bad data does."""
    import torch

    import robocache as rc
    from agreement import LAYOUTS, compare, random_call
    from faults import FAULTS, good_call, placed

    count = 0

    def run(dtype, stamps, method, extrapolate, sizes, layout) -> None:
        nonlocal count
        rng = np.random.default_rng(count)
        call = random_call(rng, dtype, stamps, method, extrapolate, sizes)
        out = layout if count % 3 == 0 else None
        names = ("values", "times", "targets", "lengths", "target_lengths")
        context = (dtype, stamps, method, extrapolate, sizes, layout)
        compare(call, dict.fromkeys(names, layout), "cuda", rng, out, context)
        count += 1

    floats = ("float16", "bfloat16", "float32", "float64")
    stamps = itertools.cycle(("int64", "float64", "float32"))
    for dtype, layout in itertools.product((*floats, "uint8", "int16", "int32", "int64"), LAYOUTS):
        method = "linear" if dtype in floats else ("nearest", "previous", "next")[count % 3]
        for dim in (1, 6, 16):
            run(dtype, next(stamps), method, "clamp", (3, 20, 11, dim), layout)
    for method, extrapolate in (
        ("linear", "linear"),
        ("linear", "nan"),
        ("linear", "error"),
        ("nearest", "nan"),
        ("previous", "error"),
        ("next", "clamp"),
    ):
        run("float32", next(stamps), method, extrapolate, (2, 33, 70, 5), "plain")
    for sizes in ((1, 20_000, 40, 3), (2, 300, 600, 7), (2, 4, 5, 20_000)):
        run("float32", "int64", "linear", "clamp", sizes, "plain")

    def reported(call: dict) -> str:
        rc.resample(**placed(call, "cuda"), return_valid=True)
        try:
            rc.synchronize()
        except rc.InvalidArgument as error:
            return str(error)
        return "nothing"

    for fault in FAULTS:
        text = reported(fault.call())
        assert re.search(fault.message, text), f"{fault.name}: {text}"
        rc.resample(**placed(fault.call(), "cuda"), check=False)
        count += 2
    count += gradients() + streams()
    source = 40_000  # too many stamps for shared memory
    call = {**good_call(), "values": torch.ones(4, source, 1)}
    call |= {"times": torch.arange(float(source)).repeat(4, 1), "lengths": torch.full((4,), source)}
    call["times"][2, 29_000] = float("nan")
    text = reported(call)
    assert "row 2 holds NaN at index 29000" in text, text
    rc.synchronize()
    return count + clouds() + robots() + rotations()


def robots() -> int:
    """Poses, Jacobians, gradients, velocities and the way back, for trees with joints of all types."""
    import torch

    import robocache as rc
    from agreement import assert_same
    from robots import random_urdf

    count = 0
    for seed, joints, dtype in (
        (0, 1, torch.float32),
        (5, 8, torch.float64),
        (2, 12, torch.float32),
    ):
        robot = rc.Robot.from_urdf(random_urdf(seed, joints))
        links, tip = robot.link_names, robot.link_names[-1]
        for rows in (1, 33, 257):
            q, twist = (torch.randn(rows, n, dtype=dtype) for n in (robot.num_joints, 6))
            calls = [
                lambda q, t, r=robot, ls=links: r.jacobian(q, ls, return_pose=True),
                lambda q, t, r=robot, ls=links: (r.fk(q, ls), r.jacobian(q, ls[-1])),
                lambda q, t, r=robot, x=tip: (r.joint_velocity(q, t, links=x),),
                lambda q, t, r=robot, x=tip: r.ik(r.fk(q, x), links=x, seeds=3)[:3],
            ]
            for call in calls:
                for want, got in zip(call(q, twist), call(q.cuda(), twist.cuda()), strict=True):
                    assert_same(got.cpu(), want, (seed, rows))
                count += 1

            def gradient(q, r=robot, ls=links):
                q = q.clone().requires_grad_()
                sum(x.sum() for x in r.jacobian(q, ls, return_pose=True)).backward()
                return q.grad.cpu()

            assert_same(gradient(q.cuda()), gradient(q), (seed, rows))
            count += 1
    rc.synchronize()
    return count


def streams() -> int:
    """`fuse` by kernels of every kind: few rows and many, lines alone, copies, ranges, short rows."""
    import torch

    import robocache as rc
    from agreement import assert_same

    count = 0
    dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    stamps = (torch.float32, torch.float64, torch.int64)
    rich = [("linear", 0, 2), ("slerp", 2, 6), ("cubic", 6, 8)]
    for (dtype, kind), rows in itertools.product(itertools.product(dtypes, stamps), (3, 140)):
        for widths, steps in (
            ((24, 8, 4), 50),
            ((8, 8), 1),
            ((8, 3), 50),
            ((3, 1, 2), 7),
            ((16, 40), 33),
        ):
            scale = 10**9 if kind == torch.int64 else 1
            times = [(torch.rand(rows, 40).double().cumsum(1) * scale).to(kind) for _ in widths]
            values = [torch.randn(rows, 40, width).to(dtype) for width in widths]
            values[0].view(-1)[::97] = torch.nan
            targets = (torch.rand(rows, steps).double() * 25 * scale).to(kind)
            lengths = torch.arange(rows) % 41
            more = [{}, {"lengths": lengths}, {"method": "previous"}]
            if widths[0] == 8:
                more.append({"method": rich})
            for own in more:

                def call(device, values=values, times=times, targets=targets, own=own):
                    own = {k: x.to(device) if k == "lengths" else x for k, x in own.items()}
                    pairs = zip(values, times, strict=True)
                    made = [rc.Stream(v.to(device), t.to(device)) for v, t in pairs]
                    made[0] = rc.Stream(values[0].to(device), times[0].to(device), **own)
                    return rc.fuse(made, targets.to(device), return_valid="lengths" in own)

                pair = call("cpu"), call("cuda")
                theirs, mine = (x if isinstance(x, tuple) else (x,) for x in pair)
                for want, got in zip(theirs, mine, strict=True):
                    assert_same(got.cpu(), want, (dtype, kind, rows, widths, steps, own))
                count += 1
    rc.synchronize()
    return count


def clouds() -> int:
    """Every op on point clouds: odd sizes, dropped points, crowded cells, bad lengths."""
    import torch

    import robocache as rc
    from agreement import assert_same
    from robocache._points import voxelize_backward

    count = 0
    grid = {"origin": (0.0, 0.0, 0.0), "voxel_size": 0.25, "shape": (7, 8, 9)}

    def parts(result) -> tuple:
        if isinstance(result, torch.Tensor):
            return (result,)
        return result if isinstance(result, tuple) else tuple(vars(result).values())

    def both(call, *tensors) -> None:
        nonlocal count
        pair = parts(call(*tensors)), parts(call(*(x.cuda() for x in tensors)))
        for theirs, mine in zip(*pair, strict=True):
            if theirs is not None:
                assert_same(mine.cpu(), theirs, count)
        count += 1

    for number, dtype in itertools.product(
        (0, 1, 33, 1025, 5000), (torch.float32, torch.float16, torch.float64)
    ):
        points = (torch.rand(2, number, 3) * 2.4 - 0.2).to(dtype)
        points[1] = 0.6  # one cell
        features = torch.randn(2, number, 5).to(dtype)
        lengths = torch.tensor([number, number // 2])
        for reduce in ("occupancy", "count"):
            both(
                lambda p, n, r=reduce: rc.voxelize(
                    p, lengths=n, reduce=r, return_dropped=True, **grid
                ),
                points,
                lengths,
            )
        for reduce in ("mean", "max"):
            both(lambda p, f, r=reduce: rc.voxelize(p, f, reduce=r, **grid), points, features)
            both(
                lambda p, f, r=reduce: rc.voxelize(
                    p, f, reduce=r, sparse=True, max_points_per_voxel=3, **grid
                ),
                points,
                features,
            )
            grad = torch.rand(2, 7, 8, 9, 5)
            both(
                lambda p, f, g, r=reduce: voxelize_backward(p, f, g, reduce=r, **grid),
                points,
                features,
                grad,
            )
        both(lambda p: rc.crop_box(p, (0, 0, 0), (1, 2, 1)), points)
        both(lambda p: rc.crop_box(p, (0, 0, 0), (1, 2, 1), compact=True), points)
        both(lambda p: rc.transform_points(p, [1, 2, 3, 0, 0, 0.6, 0.8]), points)
        both(lambda p: rc.unproject(p, [9.0, 9.0, 1.0, 2.0]), points)
        both(lambda p: rc.farthest_points(p, min(p.shape[1], 9)), points)
    both(lambda p: rc.farthest_points(p, 4), torch.rand(1, 40_000, 3))
    # Cells with a part of a word at the end; more points than a tile of groups has.
    rows = {"origin": (0.0, 0.0, 0.0), "voxel_size": 0.1}
    many = torch.rand(40, 700, 3) * 2.1
    both(lambda p: rc.voxelize(p, return_dropped=True, shape=(100, 99, 100), **rows), many)
    wide = torch.randn(40, 700, 8)
    both(
        lambda p, f: rc.voxelize(p, f, reduce="mean", sparse=True, shape=(16, 17, 20), **rows),
        many,
        wide,
    )
    depth = torch.randint(0, 2000, (3, 33, 47)).to(torch.uint16)
    lens = {"intrinsics": [40.0, 41.0, 20.0, 16.0], "depth_scale": 0.001} | grid
    both(lambda d: rc.voxelize_depth(d, **lens), depth)
    both(lambda d: rc.voxelize_depth(d, sparse=True, max_points_per_voxel=3, **lens), depth)
    features = torch.randn(3, 33 * 47, 4)
    both(lambda d, f: rc.voxelize_depth(d, features=f, reduce="mean", **lens), depth, features)
    bad = torch.tensor([5, 99]).cuda()
    rc.voxelize(torch.rand(2, 20, 3).cuda(), lengths=bad, **grid)
    try:
        rc.synchronize()
        raise AssertionError("a bad length was not reported")
    except rc.InvalidArgument:
        return count + 2


def rotations() -> int:
    """Conversions and their gradients: dense rows, rows apart, tiles that are not full."""
    import torch

    import robocache as rc
    from agreement import assert_same

    count = 0
    names = ("quat_xyzw", "matrix", "axis_angle", "rot6d", "euler_xyz", "euler_ZYZ")
    dtypes = itertools.cycle((torch.float32, torch.float16, torch.float64, torch.bfloat16))
    for source, target in itertools.product(names, names):
        dtype, found = next(dtypes), []
        for number in (1, 255, 1000):
            quats = torch.randn(number, 9, dtype=torch.float64)[:, 5:]
            x = rc.rotation.convert(quats, "quat_xyzw", source).to(dtype)
            grad = torch.rand_like(rc.rotation.convert(x, source, target))
            for device in ("cpu", "cuda"):
                leaf = x.to(device).requires_grad_()
                wide = torch.cat([leaf, leaf], dim=-1)[..., : x.shape[-1]]
                for given in (leaf, wide):
                    out = rc.rotation.convert(given, source, target)
                    (back,) = torch.autograd.grad(out, leaf, grad.to(device), retain_graph=True)
                    found += [out.detach().cpu(), back.cpu()]
        for at in range(0, len(found), 8):
            for theirs, mine in zip(found[at : at + 4], found[at + 4 : at + 8], strict=True):
                assert_same(mine, theirs, (source, target, dtype))
            count += 4
    return count


def gradients() -> int:
    """Kernels of the gradient of every kind: methods, dtypes, shared values, order, sizes."""
    import torch

    import robocache as rc
    from gradient_cases import LINEAR, MIXED, OTHERS, Call, random_call

    def gradient(call: Call) -> torch.Tensor:
        values = call.values.clone().requires_grad_()
        torch.nan_to_num(call.run(values)).sum().backward()
        return values.grad.cpu()

    count = 0
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.float16)
    for seed, method in enumerate([*LINEAR, *OTHERS, MIXED] * 4):
        call = random_call(seed, method, dtype=dtypes[seed % 4])
        got, want = gradient(call.on("cuda")), gradient(call)
        same = torch.equal(got, want)
        assert same or method not in LINEAR, f"gradient of {method}, seed {seed}"
        assert torch.allclose(got.double(), want.double(), 2e-2, 2e-2, equal_nan=True), (
            method,
            seed,
        )
        count += 1
    shapes = (2, 9000, 40, 3), (2, 30, 3000, 3), (2, 40_000, 10, 3), (300, 1100, 1750, 3)
    for batch, samples, steps, width in shapes:
        times = torch.arange(float(samples)).repeat(batch, 1)
        targets = torch.rand(batch, steps) * samples
        for order in (targets, targets.sort(1).values):
            call = Call(torch.randn(batch, samples, width), times, order, {"method": "linear"})
            assert torch.equal(gradient(call.on("cuda")), gradient(call)), (samples, steps)
            count += 1
    rc.synchronize()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plant", choices=["memcheck", "racecheck", "initcheck"])
    given = parser.parse_args()
    if given.plant:
        plant(given.plant)
    else:
        print(f"{launches()} calls agree with the CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
