// Memory set to 0. Launched by src/cuda/clear.rs.
// Grid: blocks of 256 threads in turns; 16 bytes at once where the memory is aligned to them.
// Determinism: the same bits on every run.
#include "rc.cuh"

using namespace rc;

// Mirrors `ClearArgs` in clear.rs.
struct Args {
    u8* areas[3];
    u64 bytes[3];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 thread = u64(blockIdx.x) * 256 + threadIdx.x, threads = u64(gridDim.x) * 256;
    for (int a = 0; a < 3; a++) {
        u8* area = args.areas[a];
        const u64 bytes = args.bytes[a];
        u64 done = 0;
        if ((u64(area) & 15) == 0) {
            for (u64 i = thread; i < bytes / 16; i += threads) ((uint4*)area)[i] = make_uint4(0, 0, 0, 0);
            done = bytes / 16 * 16;
        } else if ((u64(area) & 3) == 0) {
            for (u64 i = thread; i < bytes / 4; i += threads) ((u32*)area)[i] = 0;
            done = bytes / 4 * 4;
        }
        for (u64 i = done + thread; i < bytes; i += threads) area[i] = 0;
    }
}
