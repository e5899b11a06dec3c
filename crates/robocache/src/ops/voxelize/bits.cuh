// Bits of cells as elements of the grid.
#pragma once
#include "rc.cuh"

namespace rc {

template <int BYTES> struct Pattern { typedef typename Raw<BYTES>::Type Type; };
template <> struct Pattern<8> { typedef u64 Type; };

// 16 bytes of the grid from the lowest bits; `one` and `fill` are the bits of one element.
template <int BYTES> uint4 spread_bits(u32 bits, u64 one, u64 fill) {
    typedef typename Pattern<BYTES>::Type Element;
    union { uint4 raw; u32 words[4]; Element elements[16 / BYTES]; } vector;
    if (BYTES == 1) {
        // Four bits become four bytes at once.
        const u32 ones = u32(one & 0xff) * 0x1010101u, fills = u32(fill & 0xff) * 0x1010101u;
        #pragma unroll
        for (int w = 0; w < 4; w++) {
            const u32 mask = ((bits >> (4 * w) & 15) * 0x204081u & 0x1010101u) * 0xffu;
            vector.words[w] = (ones & mask) | (fills & ~mask);
        }
    } else {
        #pragma unroll
        for (int i = 0; i < 16 / BYTES; i++) vector.elements[i] = bits >> i & 1 ? Element(one) : Element(fill);
    }
    return vector.raw;
}

}  // namespace rc
