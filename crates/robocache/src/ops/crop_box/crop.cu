// Points within a box: a mask, or a flag for each point to be summed up, and then the points moved to
// the front of their rows. Host twin: mod.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: Args as made by cuda.rs; for the move, `flags` holds the sums of all flags before.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_POINT: element type; RC_STAGE: 0 mask, 1 flags, 2 move; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `Args` in cuda.rs. Strides are in elements.
struct Args {
    CloudArgs cloud;
    double low[3], high[3];
    u32* flags;
    u8* mask;
    i64 mask_strides[2];
    Point* out;
    i64 out_strides[3];
    i64* index;
    i64 index_strides[2];
    i64* kept;
    i64 kept_stride;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256, 4) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 units = args.cloud.rows * args.cloud.tiles;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Place place = place_of(args.cloud, unit);
        const u64 row = place.row, tile = place.tile;
        const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
#if RC_STAGE == 2
        const u64 start = row * u64(args.cloud.count);
        const u32 base = args.flags[start];
        const i64 kept = args.flags[start + u64(args.cloud.count)] - base;
        if (tile == 0 && threadIdx.x == 0) args.kept[i64(row) * args.kept_stride] = kept;
        const Point* points = (const Point*)args.cloud.points + i64(row) * args.cloud.strides[0];
        Point* out = args.out + i64(row) * args.out_strides[0];
        i64* index = args.index + i64(row) * args.index_strides[0];
        for (i64 at = first; at < min(first + PER_THREAD, args.cloud.count); at++) {
            const u32 before = args.flags[start + u64(at)];
            const i64 slot = before - base;
            if (args.flags[start + u64(at) + 1] != before) {
                for (int axis = 0; axis < 3; axis++)
                    out[slot * args.out_strides[1] + axis * args.out_strides[2]] =
                        points[at * args.cloud.strides[1] + axis * args.cloud.strides[2]];
                index[slot * args.index_strides[1]] = at;
            }
            // What is left behind the kept: every slot has one writer.
            if (at >= kept) {
                for (int axis = 0; axis < 3; axis++)
                    narrow(double(__int_as_float(0x7fc00000)), out[at * args.out_strides[1] + axis * args.out_strides[2]]);
                index[at * args.index_strides[1]] = -1;
            }
        }
#else
        const i64 length = row_length(args.cloud, row, tile == 0 && threadIdx.x == 0);
        Compute points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, length, points);
        u32 inside = 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            // Padding is NaN, which lies in no box.
            bool own = true;
            #pragma unroll
            for (int axis = 0; axis < 3; axis++)
                own &= points[p][axis] >= Compute(args.low[axis]) && points[p][axis] < Compute(args.high[axis]);
            inside |= u32(own) << p;
        }
        if (RC_STAGE == 0) {
            store_flags(args.mask + i64(row) * args.mask_strides[0], args.mask_strides[1], first, args.cloud.count, inside);
            continue;
        }
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++)
            if (first + p < args.cloud.count) args.flags[row * u64(args.cloud.count) + u64(first + p)] = inside >> p & 1;
        // One more behind the last, so that the sums tell where the last row ends.
        if (row == 0 && tile == 0 && threadIdx.x == 0)
            args.flags[args.cloud.rows * u64(args.cloud.count)] = 0;
#endif
    }
}
