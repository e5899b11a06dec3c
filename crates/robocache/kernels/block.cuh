// What the threads of a block of 256 do together.
#pragma once
#include "rc.cuh"

namespace rc {

// The sum of `own` over all threads before this one. `sums`: 8 words of shared memory, which may be
// used again after the next barrier.
inline u32 exclusive_scan(u32 own, u32* sums) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    u32 sum = own;
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads();  // whoever used `sums` before is done
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 before = sum - own;
    #pragma unroll
    for (int w = 0; w < 8; w++)
        if (w < warp) before += sums[w];
    return before;
}

}  // namespace rc
