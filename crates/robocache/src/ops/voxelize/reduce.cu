// A dense grid of reduced features from points sorted by cell: every cell is written once, with its
// features or with what empty cells hold.
// Host twin: `sorted` in cpu.rs, reduce.rs.
// Grid: one block of 256 threads per tile of cells, in turns where there are too many.
// Preconditions: keys are sorted, `order` tells their points, `bounds` where the keys of a tile
//   start; Args as made by cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_KEY: u32 or u64; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "fold.cuh"

using namespace rc;

typedef RC_KEY Key;

// Mirrors `ReduceArgs` in cuda.rs.
struct Args {
    Features<RC_FEATURE> features;
    const Key* keys;
    const u32* order;
    const u32* bounds;
    void* out;
    i32* counts;  // or null
    u64 cells;    // of all rows
    u64 tiles;
    i64 width;
    u64 fill;
    u32 tile;  // cells
    u32 reduce, type, element_bytes;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256, 4) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u64* totals = (u64*)shared;            // [256]
    u32* starts = (u32*)(totals + 256);    // [tile]
    u32* ends = starts + args.tile;        // [tile]
    const Fold fold = {args.reduce};
    // A thread keeps its column and goes through cells; wide rows take several rounds.
    const u32 across = u32(min(args.width, i64(256))), step = 256 / max(across, 1u);
    const u32 own = threadIdx.x / max(across, 1u);

    for (u64 tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        const u64 first = tile * args.tile;
        const u32 cells = u32(min(u64(args.tile), args.cells - first));
        const u32 begin = args.bounds[tile], end = args.bounds[tile + 1];
        for (u32 c = threadIdx.x; c < cells; c += 256) starts[c] = ends[c] = 0;
        __syncthreads();
        for (u32 p = begin + threadIdx.x; p < end; p += 256) {
            const Key key = args.keys[p];
            const u32 cell = u32(u64(key) - first);
            if (p == begin || args.keys[p - 1] != key) starts[cell] = p;
            if (p + 1 == end || args.keys[p + 1] != key) ends[cell] = p + 1;
        }
        __syncthreads();
        bool crowded = false;
        for (u32 c = threadIdx.x; c < cells; c += 256) {
            crowded |= ends[c] - starts[c] >= LONG;
            if (args.counts) args.counts[first + c] = i32(ends[c] - starts[c]);
        }
        if (own < step) {
            for (i64 column = threadIdx.x - own * across; column < args.width; column += across)
                for (u32 c = own; c < cells; c += step) {
                    const u32 start = starts[c], count = ends[c] - start;
                    if (count >= LONG) continue;
                    const i64 at = i64(first + c) * args.width + column;
                    if (count == 0) store_bits(args.element_bytes, args.out, at, args.fill);
                    else store_as(Float(args.type), args.out, at,
                                  fold_short(fold, args.features, args.order, start, start + count, column));
                }
        }
        // Cells of many points are reduced by all threads together.
        if (__syncthreads_or(crowded)) {
            for (u32 c = 0; c < cells; c++) {
                const u32 start = starts[c], count = ends[c] - start;
                if (count < LONG) continue;
                for (i64 column = 0; column < args.width; column += LANE_COLUMNS) {
                    const double result =
                        fold_long(fold, args.features, args.order, start, start + count, column, args.width, totals);
                    const i64 place = column + threadIdx.x;
                    if (threadIdx.x < LANE_COLUMNS && place < args.width)
                        store_as(Float(args.type), args.out, i64(first + c) * args.width + place, result);
                }
            }
        }
        __syncthreads();  // starts and ends are free again
    }
}
