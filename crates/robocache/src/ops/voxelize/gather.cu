// A row for each group of points: where its cell lies, how many points it has, their features made
// into one row, and the first points themselves.
// Host twin: `hard_voxels` and `reduce_rows` in sparse.rs.
// Grid: one block of 256 threads per tile of rows, in turns where there are too many.
// Preconditions: Args as made by sparse_cuda.rs; what the groups hold is clamped before it indexes.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "fold.cuh"

using namespace rc;

// Mirrors `GatherArgs` in sparse_cuda.rs. Strides are in elements.
struct Args {
    Features<RC_FEATURE> features;
    const void* points;
    i64 point_strides[3];
    const i64* cells;
    const i32* starts;
    const i32* order;
    const i64* count;
    i64* coords;
    i32* counts;
    void* out;     // or null
    void* voxels;  // or null
    i64 shape[3];
    u64 row_cells, rows, total;
    i64 width, max_points;
    u32 point_kind, kind, voxel_kind, reduce, tile, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

inline double load_as(u32 kind, const void* data, i64 at) {
    if (kind == F32) return ((const float*)data)[at];
    if (kind == F64) return ((const double*)data)[at];
    return kind == F16 ? widen(((const f16*)data)[at]) : widen(((const bf16*)data)[at]);
}

// One number of the points as they came: three coordinates, then the features; 0 past the last.
double hard_number(const Args& args, u32 start, u32 count, i64 slot, i64 column) {
    if (slot >= count) return 0.0;
    const u32 point = u32(min(u64(u32(args.order[start + slot])), args.total - 1));
    if (column >= 3) return args.features.at(point, column - 3);
    if (!args.points) return 0.0;  // Pixels, whose coordinates pixels.cu writes.
    const i64 row = point / args.features.per_row, index = point % args.features.per_row;
    return load_as(args.point_kind, args.points,
                   row * args.point_strides[0] + index * args.point_strides[1] + column * args.point_strides[2]);
}

extern "C" __global__ void __launch_bounds__(256, 4) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u64* totals = (u64*)shared;            // [256]
    u32* starts = (u32*)(totals + 256);    // [tile]
    u32* ends = starts + args.tile;        // [tile]
    const Fold fold = {args.reduce};
    const u64 occupied = u64(min(max(*args.count, i64(0)), i64(min(args.rows, args.total))));
    const u64 tiles = (args.rows + args.tile - 1) / args.tile;
    const u32* order = (const u32*)args.order;

    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 first = tile * args.tile;
        const u32 rows = u32(min(u64(args.tile), args.rows - first));
        bool crowded = false;
        for (u32 r = threadIdx.x; r < rows; r += 256) {
            const u64 row = first + r;
            u32 start = 0, end = 0;
            i64 place[4] = {-1, -1, -1, -1};
            if (row < occupied) {
                end = u32(min(u64(max(args.starts[row + 1], 0)), args.total));
                start = min(u32(max(args.starts[row], 0)), end);
                const u64 cell = u64(args.cells[row]);
                const u64 plane = u64(args.shape[1]) * u64(args.shape[2]);
                place[0] = i64(cell / args.row_cells);
                place[1] = i64(cell / plane % u64(args.shape[0]));
                place[2] = i64(cell / u64(args.shape[2]) % u64(args.shape[1]));
                place[3] = i64(cell % u64(args.shape[2]));
            }
            starts[r] = start;
            ends[r] = end;
            crowded |= end - start >= LONG;
            for (int axis = 0; axis < 4; axis++) args.coords[4 * row + axis] = place[axis];
            args.counts[row] = i32(end - start);
        }
        crowded = __syncthreads_or(crowded);
        if (args.out) {
            for (u64 i = threadIdx.x; i < rows * u64(args.width); i += 256) {
                const u32 r = u32(i / u64(args.width));
                const u32 start = starts[r], count = ends[r] - start;
                if (count >= LONG) continue;
                const i64 column = i64(i % u64(args.width));
                const double value =
                    count ? fold_short(fold, args.features, order, start, start + count, column) : 0.0;
                store_as(Float(args.kind), args.out, i64(first) * args.width + i64(i), value);
            }
            // Groups of many points are reduced by all threads together.
            for (u32 r = 0; crowded && r < rows; r++) {
                const u32 start = starts[r], count = ends[r] - start;
                if (count < LONG) continue;
                for (i64 column = 0; column < args.width; column += LANE_COLUMNS) {
                    const double result =
                        fold_long(fold, args.features, order, start, start + count, column, args.width, totals);
                    const i64 at = column + threadIdx.x;
                    if (threadIdx.x < LANE_COLUMNS && at < args.width)
                        store_as(Float(args.kind), args.out, i64(first + r) * args.width + at, result);
                }
            }
        }
        if (args.voxels) {
            const u64 wide = 3 + u64(args.width), numbers = u64(args.max_points) * wide;
            for (u64 i = threadIdx.x; i < rows * numbers; i += 256) {
                const u32 r = u32(i / numbers);
                const u64 rest = i % numbers;
                const double value =
                    hard_number(args, starts[r], ends[r] - starts[r], i64(rest / wide), i64(rest % wide));
                store_as(Float(args.voxel_kind), args.voxels, i64(first * numbers + i), value);
            }
        }
        __syncthreads();  // starts and ends are free again
    }
}
