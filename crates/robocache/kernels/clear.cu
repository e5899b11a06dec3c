// Memory filled with a pattern of 8 bytes, most often 0. Launched by src/cuda/clear.rs.
// Grid: a block of 256 threads for every 16 KiB of the largest area; 16 bytes at once where an area
//   is aligned to them.
// Determinism: the same bits on every run.
#include "rc.cuh"

using namespace rc;

// Mirrors `ClearArgs` in clear.rs.
struct Args {
    u8* areas[4];
    u64 bytes[4];
    u64 patterns[4];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// Vectors of a thread, a block's width apart: with less to do, blocks take longer to start than to run.
const int VECTORS = 4;

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 thread = u64(blockIdx.x) * 256 + threadIdx.x, threads = u64(gridDim.x) * 256;
    #pragma unroll
    for (int a = 0; a < 4; a++) {
        const u64 bytes = args.bytes[a], pattern = args.patterns[a];
        if (bytes == 0) continue;
        u8* area = args.areas[a];
        const u32 low = u32(pattern), high = u32(pattern >> 32);
        u64 done = 0;
        if ((u64(area) & 15) == 0) {
            const u64 vectors = bytes / 16;
            const uint4 vector = make_uint4(low, high, low, high);
            for (u64 v = u64(blockIdx.x) * (256 * VECTORS) + threadIdx.x; v < vectors; v += threads * VECTORS) {
                uint4* to = (uint4*)area + v;
                #pragma unroll
                for (int i = 0; i < VECTORS; i++)
                    if (v + 256 * i < vectors) to[256 * i] = vector;
            }
            done = vectors * 16;
        } else if ((u64(area) & 3) == 0) {
            for (u64 i = thread; i < bytes / 4; i += threads) ((u32*)area)[i] = i & 1 ? high : low;
            done = bytes / 4 * 4;
        }
        for (u64 i = done + thread; i < bytes; i += threads) area[i] = u8(pattern >> (i % 8 * 8));
    }
}
