"""Memory behind which nothing can be read or written, for kernels that run on the host."""

from __future__ import annotations

import ctypes
import mmap

import torch

from agreement import memory


class Memory:
    """A copy of all the memory that a view is part of, behind which no byte can be read or written.

    What lies around it is `fill`. `unit`: what its start and size are rounded to, as allocators do. Without
    `fill` none of it can be written.
    """

    READ = 1

    def __init__(self, view: torch.Tensor, unit: int, fill: int | None = None) -> None:
        data = memory(view)
        room = -(-data.numel() // unit) * unit
        pages = -(-max(room, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = torch.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), dtype=torch.uint8)
        self.bytes = whole[:pages].fill_(0xFF if fill is None else fill)
        own = self.bytes[pages - room :][: data.numel()].copy_(data).view(view.dtype)
        offset = own.storage_offset() + view.storage_offset()
        self.view = own.as_strided(view.shape, view.stride(), offset)
        self.protect(pages, mmap.PAGESIZE, 0)
        if fill is None:
            self.protect(0, pages, self.READ)

    def protect(self, start: int, size: int, access: int) -> None:
        place = ctypes.c_void_p(self.bytes.data_ptr() + start)
        if ctypes.CDLL(None, use_errno=True).mprotect(place, ctypes.c_size_t(size), access):
            raise OSError(ctypes.get_errno(), "mprotect")
