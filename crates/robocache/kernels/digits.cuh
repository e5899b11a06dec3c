// The digits that keys are sorted by, counted by the kernel that makes the keys.
// Host twin: src/cuda/sort.rs.
#pragma once
#include "rc.cuh"

namespace rc {

const u32 DIGITS = 256;

template <class Key> u32 digit_of(Key key, u32 pass) { return u32(key >> (8 * pass)) & (DIGITS - 1); }

// Mirrors `DigitArgs` in sort.rs.
struct DigitArgs {
    u32* histograms;  // [passes][256]
    u64 passes;
};

// All threads of a block do these together: `counts` has passes * 256 words of shared memory.
inline void clear_digits(const DigitArgs& args, u32* counts) {
    for (u32 i = threadIdx.x; i < args.passes * DIGITS; i += blockDim.x) counts[i] = 0;
    __syncthreads();
}
inline void add_digits(const DigitArgs& args, const u32* counts) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < args.passes * DIGITS; i += blockDim.x)
        if (counts[i]) add_to(args.histograms + i, counts[i]);
}

// So many keys that are the same.
template <class Key> void count_digits(const DigitArgs& args, u32* counts, Key key, u32 times) {
    #pragma unroll
    for (u32 pass = 0; pass < sizeof(Key); pass++)
        if (pass < u32(args.passes)) atomicAdd(counts + pass * DIGITS + digit_of(key, pass), times);
}

}  // namespace rc
