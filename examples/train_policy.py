"""Trains a small policy on the CPU from a cache and watches the loss fall; continues after kill -9.

    python examples/train_policy.py [DATASET] [FOLDER]

The policy maps two states to the next 16 actions. Kill it at any moment and run it again with the
same FOLDER: it goes on at the next unseen sample. Without arguments: the sample of this
repository, in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import torch

import robocache as rc

SAMPLE = Path(__file__).resolve().parents[1] / "testdata" / "lerobot_v30"
EPOCHS, HORIZON = 12, 16


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else SAMPLE
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)

    rc.ingest(source, folder / "cache", images="skip")  # does nothing when it was done before
    cache = rc.open(folder / "cache")
    period = 1 / cache.meta.fps
    loader = rc.Loader(
        cache,
        batch_size=32,
        delta_timestamps={
            "observation.state": [-period, 0.0],
            "action": [i * period for i in range(HORIZON)],
        },
        streams=[],
        normalize={"observation.state": "mean_std", "action": "mean_std"},
    )

    torch.manual_seed(0)
    (states,) = cache.streams["observation.state"].shape
    (actions,) = cache.streams["action"].shape
    policy = torch.nn.Sequential(
        torch.nn.Linear(2 * states, 256), torch.nn.ReLU(), torch.nn.Linear(256, HORIZON * actions)
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)

    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        print(f"goes on in epoch {loader.epoch} at {saved['loader']['position']}")

    first = None
    while True:
        total, count = 0.0, 0
        for batch in loader:
            wanted = batch["action"].flatten(1)
            real = ~batch["action_is_pad"].repeat_interleave(actions, dim=1)
            error = (policy(batch["observation.state"].flatten(1)) - wanted)[real]
            loss = error.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        saved = {
            "policy": policy.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
        }
        torch.save(saved, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
        if count:
            first = first or total / count
            print(f"epoch {loader.epoch}: loss {total / count:.4f}")
        if loader.epoch + 1 >= EPOCHS:
            break
    if first and count:
        print(f"the loss fell from {first:.3f} to {total / count:.3f}")


if __name__ == "__main__":
    main()
