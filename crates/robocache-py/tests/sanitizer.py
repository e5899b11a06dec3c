"""Launches for compute-sanitizer, small and of every kind; sanitize.sh runs it under each tool.

Without arguments: `resample` and its gradient on CUDA against the CPU, exit code 0 when they agree. With
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
    count += gradients()
    source = 40_000  # too many stamps for shared memory
    call = {**good_call(), "values": torch.ones(4, source, 1)}
    call |= {"times": torch.arange(float(source)).repeat(4, 1), "lengths": torch.full((4,), source)}
    call["times"][2, 29_000] = float("nan")
    text = reported(call)
    assert "row 2 holds NaN at index 29000" in text, text
    rc.synchronize()
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
    for samples, steps in ((9000, 40), (30, 3000), (40_000, 10)):
        times = torch.arange(float(samples)).repeat(2, 1)
        targets = torch.rand(2, steps) * samples
        call = Call(torch.randn(2, samples, 3), times, targets, {"method": "linear"})
        assert torch.equal(gradient(call.on("cuda")), gradient(call)), (samples, steps)
        count += 1
    rc.synchronize()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plant", choices=["memcheck", "racecheck", "initcheck"])
    planted = parser.parse_args().plant
    if planted:
        plant(planted)
    else:
        print(f"{launches()} calls agree with the CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
