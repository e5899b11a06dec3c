"""What goes wrong, and how a job goes on: bad data, too little memory, no GPU.

python examples/failure_recovery.py
"""

import logging

import numpy as np

import robocache as rc


def main() -> None:
    logging.basicConfig(format="log: %(message)s")
    values = np.ones((8, 100, 4), np.float32)
    times = np.tile(np.arange(100), (8, 1))
    targets = np.tile(np.arange(0, 99, 3), (8, 1))

    # Bad data names its row and index; here the row is left out and the rest goes on.
    times[3, 50] = 0
    try:
        rc.resample(values, times, targets)
    except rc.InvalidArgument as error:
        print(f"bad data: {error}")
    good = (np.diff(times, axis=1) >= 0).all(axis=1)
    out = rc.resample(values[good], times[good], targets[good])
    print(f"{len(out)} of {len(values)} rows resampled")

    # A budget that is too small says how much is needed.
    try:
        rc.resample(values[good], times[good], targets[good], max_memory=64)
    except rc.InvalidArgument as error:
        print(f"too little: {error}")
    plan = rc.plan("resample", batch=7, source=100, targets=33, dim=4, max_memory="8KiB")
    print(f"8 KiB are enough in {plan.chunks} parts")

    # Without a GPU the CPU computes, says so once, and the calls are counted.
    rc.resample(values[good], times[good], targets[good], device="auto")
    counts = rc.metrics()["resample"]
    print(f"{counts['calls']} calls, {counts['errors']} errors, {counts['fallbacks']} fallbacks")

    # A GPU that hangs is given up after a while; everything else goes on.
    try:
        rc.synchronize(timeout=5)
    except rc.DeviceLost as error:
        print(f"lost: {error}")
    print("the job goes on")


if __name__ == "__main__":
    main()
