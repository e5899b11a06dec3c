// The first points of each group as they came, [rows, most, 3 + width]: three coordinates, then the
// features; zeros where there are no more points.
// Host twin: `hard_voxels` in gather_cpu.rs.
// Grid: one block of 256 threads per 512 vectors of the result, in turns where there are too many. Vectors
//   go through the result as it lies in memory, over the borders of points and rows.
// Preconditions: Args as made by hard_cuda.rs; what the groups hold is clamped before it indexes. Without
//   points the coordinates are 0: pixels.cu then writes those of points that are pixels.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_POINT, RC_FEATURE, RC_VOXEL: element types of points, features and the result; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "divide.cuh"
#include "groups.cuh"
#include "rows.cuh"

using namespace rc;

typedef RC_VOXEL Voxel;

// Mirrors `HardArgs` in hard_cuda.rs.
struct Args {
    Features<RC_POINT> points;  // of three columns; its data may be null
    Features<RC_FEATURE> features;
    Groups groups;
    Voxel* voxels;
    Divisor row, point;  // numbers of each in the result
    u64 numbers, chunks; // of the whole result
    u32 narrow;          // whether all numbers can be counted in 32 bits
    u32 whole;           // whether the result is aligned to vectors
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const int V = 16 / int(sizeof(Voxel));
// Vectors of a thread, a block's width apart.
const int VECTORS = 2;
// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = V > 4 && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ > 1030) ? 3 : 0;

// The numbers from `at` on.
template <class Index> void write_vector(const Args& args, Index at, u64 occupied) {
    const Index wide = Index(args.point.number), numbers = Index(args.numbers);
    Index rest = at, row = divide(args.row, rest), column = rest, slot = divide(args.point, column);
    Index behind = Index(args.row.number) - rest;  // numbers up to the end of the row
    const u32 last = args.groups.last();
    Run run = run_of(args.groups, row, occupied);
    // All points are asked for before the first of them is needed.
    u32 points[V];
    Index columns[V];
    u32 there = 0;
    #pragma unroll
    for (int c = 0; c < V; c++) {
        columns[c] = column;
        if (slot < run.count) {
            there |= 1u << c;
            points[c] = min(__ldg(args.groups.order + run.start + slot), last);
        }
        column++;
        behind--;
        if (column == wide) {
            column = 0;
            slot++;
        }
        if (behind == 0) {
            behind = Index(args.row.number);
            slot = 0;
            row++;
            run = run_of(args.groups, row, occupied);
        }
    }
    Pack<Voxel, V> pack;
    #pragma unroll
    for (int c = 0; c < V; c++) {
        double number = 0.0;
        if (there >> c & 1) {
            if (columns[c] >= 3) number = args.features.at(points[c], i64(columns[c]) - 3);
            else if (args.points.data) number = args.points.at(points[c], i64(columns[c]));
        }
        narrow(number, pack.numbers[c]);
    }
    if (args.whole && numbers - at >= V) {
        *(decltype(pack.raw)*)(args.voxels + at) = pack.raw;
        return;
    }
    #pragma unroll
    for (int c = 0; c < V; c++)
        if (c < numbers - at) args.voxels[at + c] = pack.numbers[c];
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 occupied = args.groups.occupied();
    for (u64 chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
        #pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const u64 at = ((chunk * VECTORS + i) * 256 + threadIdx.x) * V;
            if (at >= args.numbers) break;
            if (args.narrow) write_vector(args, u32(at), occupied);
            else write_vector(args, at, occupied);
        }
    }
}
