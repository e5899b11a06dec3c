// Points in another frame. Host twin: mod.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: Args as made by mod.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_POINT: element type; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"
#include "pose.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `Args` in mod.rs. Strides are in elements.
struct Args {
    CloudArgs cloud;
    SmallArgs pose;
    Point* out;
    i64 out_strides[3];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Compute* matrix = (Compute*)shared;
    const u64 units = args.cloud.rows * args.cloud.tiles;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const u64 row = unit / args.cloud.tiles, tile = unit % args.cloud.tiles;
        if (threadIdx.x == 0) {
            double numbers[12];
            read_pose(args.pose, row, numbers);
            for (int i = 0; i < 12; i++) matrix[i] = Compute(numbers[i]);
        }
        const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        Compute points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, args.cloud.count, points);
        __syncthreads();
        Point* out = args.out + i64(row) * args.out_strides[0];
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            if (first + p >= args.cloud.count) break;
            transform(matrix, points[p]);
            for (int axis = 0; axis < 3; axis++)
                narrow(points[p][axis], out[(first + p) * args.out_strides[1] + axis * args.out_strides[2]]);
        }
        __syncthreads();  // the matrix is free again
    }
}
