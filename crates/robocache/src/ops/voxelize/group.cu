// Groups of points that are sorted by cell: first a flag where a cell begins, then, from the sums of
// the flags, the cells, where their points start, and the row of every point.
// Host twin: `group_on_host` in sparse.rs.
// Grid: blocks of 256 threads; a thread for each point and one more, in turns where there are too many.
// Preconditions: keys are sorted, `order` tells their points; `sums` has room for one more.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_KEY: u32 or u64; RC_STAGE: 0 flags, 1 rows; RC_ARGS_SIZE.
#include "rc.cuh"

using namespace rc;

typedef RC_KEY Key;

// Mirrors `GroupArgs` in sparse_cuda.rs.
struct Args {
    const Key* keys;
    const u32* order;
    u32* sums;
    i64* cells;
    i32* starts;
    i32* order_out;
    i64* inverse;
    i64* count_out;
    u64 nowhere, most, count;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    for (u64 p = u64(blockIdx.x) * 256 + threadIdx.x; p <= args.count; p += u64(gridDim.x) * 256) {
        const bool real = p < args.count;
        const u64 key = real ? u64(args.keys[p]) : args.nowhere;
        const bool inside = key < args.nowhere;
        const bool begins = inside && (p == 0 || u64(args.keys[p - 1]) != key);
#if RC_STAGE == 0
        args.sums[p] = begins;
#else
        const u64 row = args.sums[p] - !begins;  // of this point, where it has one
        if (begins) {
            args.cells[row] = i64(key);
            args.starts[row] = i32(p);
        }
        // The first that is nowhere, padding or the end, tells where the last cell ends.
        if (!inside && (p == 0 || u64(args.keys[p - 1]) < args.nowhere)) {
            args.starts[args.sums[p]] = i32(p);
            *args.count_out = args.sums[p];
        }
        if (real) {
            const u32 point = args.order[p];
            args.order_out[p] = i32(point);
            args.inverse[point] = inside && row < args.most ? i64(row) : -1;
        }
#endif
    }
}
