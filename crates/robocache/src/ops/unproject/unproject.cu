// Depth images to points. Host twin: mod.rs, whose order of operations this keeps.
// Grid: one block of 256 threads per (image, tile of 1024 pixels), in turns where there are too many.
// Preconditions: Args as made by mod.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_PIXELS: 1; RC_POINT: float; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"
#include "depth.cuh"

using namespace rc;

// Mirrors `Rest` in mod.rs, behind the points. Strides are in elements.
struct Args {
    PointArgs points;
    PointsOut out;
    u8* valid;  // or null
    i64 valid_strides[2];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = __CUDA_ARCH__ > 1030 ? 4 : 0;

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char staged[];
    const i64 count = args.points.count;
    const u64 units = args.points.rows * args.points.tiles;
    u64 open = ~0ull;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Place place = place_of(args.points, unit);
        open_row(args.points, place.row, open);
        const i64 first = i64(place.tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        float points[PER_THREAD][3];
        const u32 good = load_points<float>(args.points, place.row, first, count, points);
        if (args.valid) {
            u8* valid = args.valid + i64(place.row) * args.valid_strides[0];
            store_flags(valid, args.valid_strides[1], first, count, good);
        }
        store_points(args.out, place.row, place.tile, count, points, (float*)staged);
        __syncthreads();  // what is staged is free again
    }
}
