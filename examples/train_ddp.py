"""Two processes share the epochs of a cache (gloo on the CPU): every sample is seen once.

python examples/train_ddp.py
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "lerobot_v30"
WORLD = 2


def work(rank: int, cache_path: str, rendezvous: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    cache = rc.open(cache_path)
    # Rank and world size come from torch.distributed.
    loader = rc.Loader(cache, batch_size=8, streams=["observation.state", "action"], drop_last=True)
    torch.manual_seed(0)
    (states,) = cache.streams["observation.state"].shape
    (actions,) = cache.streams["action"].shape
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(states, actions))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        seen = []
        for batch in loader:
            loss = (model(batch["observation.state"]) - batch["action"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["index"].tolist()
        everyone: list[list[int]] = [[] for _ in range(WORLD)]
        dist.all_gather_object(everyone, seen)
        numbers = [number for part in everyone for number in part]
        assert len(numbers) == len(set(numbers)), "a sample was seen twice"
        if rank == 0:
            print(f"epoch {loader.epoch}: loss {loss.item():.4f}, {len(numbers)} samples once each")
    dist.barrier()  # nobody hangs up while another still talks
    dist.destroy_process_group()


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    rc.ingest(SAMPLE, folder / "cache", images="skip")
    mp.spawn(work, (str(folder / "cache"), str(folder / "rendezvous")), nprocs=WORLD)


if __name__ == "__main__":
    main()
