// Depth images to points. Host twin: mod.rs, whose order of operations this keeps.
// Grid: one block of 256 threads per (image, tile of 1024 pixels), in turns where there are too many.
// Preconditions: Args as made by mod.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_DEPTH: element type; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"

using namespace rc;

// Mirrors `Args` in mod.rs. Strides are in elements.
struct Args {
    const RC_DEPTH* depth;
    i64 depth_strides[3];
    SmallArgs camera, pose;
    float* out;
    i64 out_strides[3];
    u8* valid;  // or null
    i64 valid_strides[2];
    u64 rows;
    i64 height, width;
    u64 tiles;  // per image
    float scale;
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    __shared__ Lens lens;
    const bool moves = args.pose.given();
    const i64 pixels = args.height * args.width;
    const u64 units = args.rows * args.tiles;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const u64 row = unit / args.tiles, tile = unit % args.tiles;
        if (threadIdx.x == 0) read_lens(args.camera, row, lens.camera);
        if (threadIdx.x == 32 && moves) read_matrix(args.pose, row, lens.matrix);
        __syncthreads();
        for (int k = 0; k < 4; k++) {
            const i64 pixel = i64(tile) * 1024 + k * 256 + threadIdx.x;
            if (pixel >= pixels) break;
            const i64 v = pixel / args.width, u = pixel % args.width;
            const i64 from = i64(row) * args.depth_strides[0] + v * args.depth_strides[1] + u * args.depth_strides[2];
            float point[3];
            const bool good =
                unproject(lens, moves, args.scale, depth_of(args.depth[from]), float(u), slope_of(lens, v), point);
            float* out = args.out + i64(row) * args.out_strides[0] + pixel * args.out_strides[1];
            for (int axis = 0; axis < 3; axis++)
                out[axis * args.out_strides[2]] = point[axis];
            if (args.valid) args.valid[i64(row) * args.valid_strides[0] + pixel * args.valid_strides[1]] = good;
        }
        __syncthreads();  // the lens is free again
    }
}
