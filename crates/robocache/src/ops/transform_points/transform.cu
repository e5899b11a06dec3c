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

// Mirrors `Args` in mod.rs.
struct Args {
    CloudArgs cloud;
    SmallArgs pose;
    PointsOut out;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = __CUDA_ARCH__ > 1030 ? 3 : 0;

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char staged[];
    __shared__ Compute matrix[12];
    const u64 units = args.cloud.rows * args.cloud.tiles;
    u64 open = ~0ull;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Place place = place_of(args.cloud, unit);
        Compute points[PER_THREAD][3];
        const i64 first = i64(place.tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        load_points<Point>(args.cloud, place.row, first, args.cloud.count, points);
        __syncthreads();  // the matrix and what is staged are free again
        if (place.row != open && threadIdx.x == 0) {
            double numbers[12];
            read_pose(args.pose, place.row, numbers);
            #pragma unroll
            for (int i = 0; i < 12; i++) matrix[i] = Compute(numbers[i]);
        }
        open = place.row;
        __syncthreads();
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) transform(matrix, points[p]);
        store_points(args.out, place.row, place.tile, args.cloud.count, points, (Point*)staged);
    }
}
