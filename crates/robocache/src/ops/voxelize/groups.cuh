// Groups of points as others may have written them: what is read is clamped before it indexes.
// Host twin: `Groups` in gather_cpu.rs.
#pragma once
#include "rc.cuh"

namespace rc {

// Mirrors `GroupsArgs` in sparse_cuda.rs.
struct Groups {
    const i64* cells;
    const i32* starts;
    const u32* order;
    const i64* count;
    u64 rows, total;  // rows of the result, points

    // Rows that have points.
    u64 occupied() const { return u64(min(max(__ldg(count), i64(0)), i64(min(rows, total)))); }
    u32 last() const { return u32(total - 1); }
};

// The points of a row: places in `order`.
struct Run {
    u32 start, count;
};

// No points for rows that have none.
inline Run run_of(const Groups& groups, u64 row, u64 occupied) {
    if (row >= occupied) return {0, 0};
    const u32 end = u32(min(u64(max(__ldg(groups.starts + row + 1), 0)), groups.total));
    const u32 start = min(u32(max(__ldg(groups.starts + row), 0)), end);
    return {start, end - start};
}

}  // namespace rc
