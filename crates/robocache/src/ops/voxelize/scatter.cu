// Points to cells: a key for each point to sort by. Occupied cells and counts are in mark.cu.
// Host twin: `Finder` in find.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: dropped is 0 before. Nothing is assumed of the points and lengths themselves.
// Determinism: the same bits on every run: all additions are of integers. Tolerance against the CPU:
//   none, the same bits.
//
// RC_POINT: element type; RC_MODE: 0 keys of 32 bits, 1 keys of 64; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"
#include "grid.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `ScatterArgs` in cuda.rs.
struct Args {
    CloudArgs cloud;
    GridArgs grid;
    void* cells;   // keys
    u64* dropped;  // [rows], or null
    u64 nowhere;   // the key of padding and of what was dropped
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 units = args.cloud.rows * args.cloud.tiles;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const u64 row = unit / args.cloud.tiles, tile = unit % args.cloud.tiles;
        const i64 length = row_length(args.cloud, row, tile == 0 && threadIdx.x == 0);
        const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        Compute points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, length, points);
        i64 cells[PER_THREAD];
        u32 lost = 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            cells[p] = find_cell(args.grid, points[p]);
            if (cells[p] >= 0) cells[p] += i64(row * args.grid.cells);
            else lost += first + p < length;
        }
        if (args.dropped) {
            lost = __reduce_add_sync(~0u, lost);
            if (lost && (threadIdx.x & 31) == 0) atomicAdd((unsigned long long*)args.dropped + row, (unsigned long long)lost);
        }
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            if (first + p >= args.cloud.count) break;
            const u64 key = cells[p] >= 0 ? u64(cells[p]) : args.nowhere;
            const u64 at = row * u64(args.cloud.count) + u64(first + p);
            if (RC_MODE == 0) ((u32*)args.cells)[at] = u32(key);
            else ((u64*)args.cells)[at] = key;
        }
    }
}
