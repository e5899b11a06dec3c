// Points of a thread and of a warp that share a cell. Cell: the cells of a row, and ~0 for none.
#pragma once
#include "cloud.cuh"

namespace rc {

// Whether a point is the first of its cell, as far as its thread knows.
template <class Cell> bool is_new(const Cell* cells, int p) {
    return cells[p] != Cell(~Cell(0)) && (p == 0 || cells[p] != cells[p - 1]);
}

// Whether points that follow each other in a warp share a cell: only then it pays to look for all
// that do, which takes longer than a few additions more.
template <class Cell> bool crowded(const Cell* cells) {
    const Cell none = Cell(~Cell(0)), next = __shfl_down_sync(~0u, cells[0], 1);
    bool same = cells[PER_THREAD - 1] == next && next != none;
    #pragma unroll
    for (int p = 1; p < PER_THREAD; p++) same |= cells[p] == cells[p - 1] && cells[p] != none;
    return __any_sync(~0u, same);
}

// Keeps `fresh` for one thread of all that hold the same cell.
template <class Cell> void keep_one(bool& fresh, Cell cell) {
    if (!__any_sync(~0u, fresh)) return;
    const u32 peers = __match_any_sync(~0u, fresh ? cell : Cell(~Cell(0)));
    fresh = fresh && (peers & ((1u << (threadIdx.x & 31)) - 1)) == 0;
}

}  // namespace rc
