"""What subclasses torch; imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from robocache._loader import Loader


class IterableWindows(IterableDataset[dict[str, Any]]):
    """The batches of a loader. Workers of a DataLoader share them out, none comes twice."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for number, batch in enumerate(self.loader):
            if worker is None or number % worker.num_workers == worker.id:
                yield batch

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """As the loader's, for torchdata's stateful data loader without workers."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As the loader's."""
        self.loader.load_state_dict(state)
