// The grid from what is known of its cells: bits to a pattern, counts to a pattern, counts to numbers.
// Host twin: `fill` and `write_counts` in cpu.rs.
// Grid: blocks of 256 threads in turns; a thread writes 16 bytes at once where out is aligned to them.
// Preconditions: Args as made by cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_MODE: 1 bits to a pattern, 2 counts to a pattern, 3 counts to numbers;
// RC_BYTES: of an element; RC_NUMBER: its type in mode 3; RC_ARGS_SIZE.
#include "rc.cuh"

using namespace rc;

// Mirrors `WriteArgs` in cuda.rs.
struct Args {
    const u32* cells;  // bits or counts
    void* out;
    u64 count;  // elements
    u64 fill, one;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

template <int BYTES> struct Pattern { typedef typename Raw<BYTES>::Type Type; };
template <> struct Pattern<8> { typedef u64 Type; };
typedef Pattern<RC_BYTES>::Type Element;
const int PER = 16 / RC_BYTES;

Element element_of(const Args& args, u64 index) {
#if RC_MODE == 1
    return Element(args.cells[index >> 5] >> (index & 31) & 1 ? args.one : args.fill);
#elif RC_MODE == 2
    return Element(args.cells[index] ? args.one : args.fill);
#else
    union { RC_NUMBER number; Element element; } value;
    value.number = RC_NUMBER(i32(args.cells[index]));
    return args.cells[index] ? value.element : Element(args.fill);
#endif
}

union Vector {
    uint4 raw;
    u32 words[4];
    Element elements[PER];
};

Vector vector_of(const Args& args, u64 v) {
    Vector vector;
#if RC_MODE == 1 && RC_BYTES == 1
    // Four bits become four bytes at once.
    const u32 bits = ((const u16*)args.cells)[v], one = u32(args.one & 0xff) * 0x1010101u, fill = u32(args.fill & 0xff) * 0x1010101u;
    #pragma unroll
    for (int w = 0; w < 4; w++) {
        const u32 mask = ((bits >> (4 * w) & 15) * 0x204081u & 0x1010101u) * 0xffu;
        vector.words[w] = (one & mask) | (fill & ~mask);
    }
#else
    #pragma unroll
    for (int i = 0; i < PER; i++) vector.elements[i] = element_of(args, v * PER + i);
#endif
    return vector;
}

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 thread = u64(blockIdx.x) * 256 + threadIdx.x, threads = u64(gridDim.x) * 256;
    Element* out = (Element*)args.out;
    const u64 vectors = (u64(out) & 15) == 0 ? args.count / PER : 0;
    for (u64 v = thread; v < vectors; v += threads) __stcs((uint4*)out + v, vector_of(args, v).raw);
    for (u64 i = vectors * PER + thread; i < args.count; i += threads) out[i] = element_of(args, i);
}
