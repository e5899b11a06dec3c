// The coordinates of hard voxels whose points are pixels: made anew, since no cloud holds them.
// Host twin: `write_points` in gather_cpu.rs.
// Grid: one block of 256 threads per tile of 64 rows, in turns where there are too many.
// Preconditions: Args as made by hard_cuda.rs; hard.cu has written all other numbers. What the groups
//   hold is clamped before it indexes.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_PIXELS: 1; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"
#include "scalar.cuh"
#include "groups.cuh"

using namespace rc;

// Mirrors `PixelVoxelArgs` in hard_cuda.rs, behind the points.
struct Args {
    PointArgs points;
    Groups groups;
    void* voxels;
    u64 row_cells;
    i64 width, max_points;
    u32 voxel_kind, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 TILE = 64;

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    __shared__ u32 starts[TILE], counts[TILE], images[TILE];
    const u64 occupied = args.groups.occupied();
    const u64 tiles = (occupied + TILE - 1) / TILE, most = u64(args.max_points), wide = 3 + u64(args.width);
    u64 open = ~0ull;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 first = tile * TILE;
        const u32 rows = u32(min(u64(TILE), occupied - first));
        if (threadIdx.x < rows) {
            const u64 row = first + threadIdx.x;
            const Run run = run_of(args.groups, row, occupied);
            starts[threadIdx.x] = run.start;
            counts[threadIdx.x] = run.count;
            images[threadIdx.x] = u32(min(u64(args.groups.cells[row]) / args.row_cells, args.points.rows - 1));
        }
        __syncthreads();
        // Cells are sorted by image, so those of one follow each other.
        for (u32 from = 0, to; from < rows; from = to) {
            for (to = from + 1; to < rows && images[to] == images[from];) to++;
            const u64 image = images[from];
            open_row(args.points, image, open);
            for (u64 i = threadIdx.x; i < (to - from) * most; i += 256) {
                const u32 r = from + u32(i / most);
                const u64 slot = i % most;
                if (slot >= counts[r]) continue;
                const u32 point = min(args.groups.order[starts[r] + slot], args.groups.last());
                float numbers[3];
                load_point(args.points, image, i64(point % u32(args.points.count)), numbers);
                const i64 at = i64(((first + r) * most + slot) * wide);
                #pragma unroll
                for (int axis = 0; axis < 3; axis++)
                    store_as(Float(args.voxel_kind), args.voxels, at + axis, numbers[axis]);
            }
        }
        __syncthreads();  // the tile's numbers are free again
    }
}
