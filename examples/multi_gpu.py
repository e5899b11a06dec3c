"""One call through all GPUs of the machine, compared with the CPU.

python examples/multi_gpu.py
"""

import time

import numpy as np

import robocache as rc


def usable_gpus() -> list[str]:
    """The GPUs that can be computed on; none without torch or a GPU."""
    try:
        import torch
    except ImportError:
        return []
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def main() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(512, 300, 32)).astype(np.float32)
    times = np.sort(rng.integers(0, 10**9, (512, 300)), axis=1)
    targets = np.sort(rng.integers(0, 10**9, (512, 200)), axis=1)
    want = rc.resample(values, times, targets)

    gpus = usable_gpus()
    # The same GPU may be listed twice; without one the CPU does it.
    lists = [gpus, gpus * 2] if gpus else [None]
    for devices in lists:
        began = time.perf_counter()
        got = rc.resample(values, times, targets, device=devices)
        took = time.perf_counter() - began
        assert np.array_equal(got, want), "the same bits everywhere"
        print(f"{devices or 'cpu'}: {took * 1e3:.1f} ms, the same bits")


if __name__ == "__main__":
    main()
