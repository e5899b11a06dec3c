"""What subclasses torch; imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset, get_worker_info

from robocache._arguments import invalid

if TYPE_CHECKING:
    from robocache._loader import Loader


class IterableWindows(IterableDataset[dict[str, Any]]):
    """The batches of a loader, for a DataLoader without workers.

    Each worker would have a copy of the loader that knows nothing of what the others have handed
    out: after an early `break` samples would be lost or come again, every epoch would have the same
    order, and no state could be saved. So they are refused.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __repr__(self) -> str:
        return f"<iterable of {self.loader!r}>"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        if worker is not None:
            raise invalid(
                "num_workers",
                f"expected 0, got {worker.num_workers}: the loader makes batches in threads of its "
                "own, and copies of it in worker processes would lose or repeat samples; use "
                "cache.windows(...) for a map-style dataset that works with workers",
            )
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """As the loader's, for torchdata's stateful data loader."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As the loader's."""
        self.loader.load_state_dict(state)
