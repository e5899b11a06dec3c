"""Two processes with DistributedDataParallel (gloo) against one: `python ddp_child.py`.

A model that learns the samples of a stream (`[S,D]`, shared by the batch) by their values at the times of
its rows. Prints "equal" when both ways give the same gradients.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

import robocache as rc

WORLD, ROWS = 2, 6


class Knots(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.values = torch.nn.Parameter(torch.randn(12, 3, dtype=torch.float64))
        self.scale = torch.nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, targets: torch.Tensor) -> torch.Tensor:
        times = torch.arange(12, dtype=torch.float64)
        return self.scale(rc.resample(self.values, times, targets))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.rand(ROWS, 20, generator=generator, dtype=torch.float64) * 11
    return targets, torch.randn(ROWS, 20, 3, generator=generator, dtype=torch.float64)


def gradients(model: torch.nn.Module, rows: slice) -> list[torch.Tensor]:
    targets, wanted = data()
    torch.nn.functional.mse_loss(model(targets[rows]), wanted[rows]).backward()
    return [parameter.grad for parameter in model.parameters()]


def train(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    half = ROWS // WORLD
    found = gradients(DistributedDataParallel(Knots()), slice(rank * half, (rank + 1) * half))
    if rank == 0:
        torch.save(found, Path(folder) / "gradients.pt")
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(train, (port, folder), WORLD)
        shared = torch.load(Path(folder) / "gradients.pt")
    for mine, theirs in zip(shared, gradients(Knots(), slice(None)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    print("equal")


if __name__ == "__main__":
    main()
