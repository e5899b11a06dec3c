"""Aligns joints, force and a gripper, each on its own clock, to one clock for training.

python examples/align_streams.py          on the CPU
python examples/align_streams.py cuda     on a GPU, with torch
"""

import sys

import torch

import robocache as rc

START = 1_760_000_000_000_000_000  # Nanoseconds since 1970: exact in int64, useless in float32.
SECOND = 1_000_000_000


def record(
    rate: float, seconds: float, columns: int, episodes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a sensor writes: jittered stamps and smooth values."""
    samples = int(rate * seconds)
    jitter = torch.randint(-200_000, 200_000, (episodes, samples))
    times = START + torch.arange(samples) * int(SECOND / rate) + jitter
    phase = torch.arange(columns, dtype=torch.float64)
    values = torch.sin((times - START)[..., None] / SECOND + phase)
    return values.float(), times


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    torch.manual_seed(0)
    joints, joint_times = (x.to(device) for x in record(100, 10, 7, episodes=32))
    force, force_times = (x.to(device) for x in record(500, 10, 6, episodes=32))
    gripper, gripper_times = (x.to(device) for x in record(30, 10, 1, episodes=32))

    # One clock for all: 50 Hz, from where every stream has begun to where all still run.
    targets = START + SECOND // 10 + torch.arange(480, device=device) * (SECOND // 50)

    aligned, valid = zip(
        rc.resample(joints, joint_times, targets, max_gap=0.1, return_valid=True),
        rc.resample(force, force_times, targets, max_gap=0.1, return_valid=True),
        # A gripper command holds until the next one.
        rc.resample(gripper, gripper_times, targets, method="previous", return_valid=True),
        strict=True,
    )
    batch = torch.cat(aligned, dim=-1)
    usable = torch.stack(valid, dim=-1).all(dim=-1)
    print(f"batch {list(batch.shape)} on {batch.device}, usable: {usable.float().mean():.1%}")

    truth = torch.sin((targets - START)[:, None].double() / SECOND + torch.arange(7, device=device))
    error = (batch[..., :7] - truth).abs().max().item()
    print(f"largest error of the joints: {error:.1e} rad")
    assert error < 1e-4


if __name__ == "__main__":
    main()
