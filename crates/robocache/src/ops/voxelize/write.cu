// The grid from what is known of its cells: bits to a pattern, counts to a pattern, counts to numbers.
// Host twin: `fill` and `write_counts` in cpu.rs.
// Grid: blocks of 256 threads, enough for RC_VECTORS vectors of 16 bytes by every thread.
// Preconditions: Args as made by cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_MODE: 1 bits to a pattern, 2 counts to a pattern, 3 counts to numbers;
// RC_BYTES: of an element; RC_NUMBER: its type in mode 3; RC_VECTORS; RC_ARGS_SIZE.
#include "rc.cuh"
#include "bits.cuh"

using namespace rc;

// Mirrors `WriteArgs` in cuda.rs.
struct Args {
    const u32* cells;  // bits or counts
    void* out;
    u64 count;  // elements
    u64 fill, one;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

typedef Pattern<RC_BYTES>::Type Element;
const int PER = 16 / RC_BYTES;

union Vector {
    uint4 raw;
    Element elements[PER];
};

// What is known of the cells of a vector: their bits, or a count each.
struct Known { u32 words[RC_MODE == 1 ? 1 : PER]; };

Element element_of(const Args& args, u32 known) {
#if RC_MODE == 3
    union { RC_NUMBER number; Element element; } value;
    value.number = RC_NUMBER(i32(known));
    return known ? value.element : Element(args.fill);
#else
    return known ? Element(args.one) : Element(args.fill);
#endif
}

// The cells of vector v.
Known known_of(const Args& args, u64 v) {
    Known known;
#if RC_MODE == 1 && RC_BYTES == 1
    known.words[0] = ((const u16*)args.cells)[v];
#elif RC_MODE == 1
    known.words[0] = args.cells[v / (32 / PER)] >> (u32(v) % (32 / PER) * PER);
#else
    #pragma unroll
    for (int i = 0; i < PER; i++) known.words[i] = args.cells[v * PER + i];
#endif
    return known;
}

Vector vector_of(const Args& args, const Known& known) {
    Vector vector;
#if RC_MODE == 1
    vector.raw = spread_bits<RC_BYTES>(known.words[0], args.one, args.fill);
#else
    #pragma unroll
    for (int i = 0; i < PER; i++) vector.elements[i] = element_of(args, known.words[i]);
#endif
    return vector;
}

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    Element* out = (Element*)args.out;
    const u64 vectors = (u64(out) & 15) == 0 ? args.count / PER : 0;
    // All is asked for before anything is written: a store alone would wait for one load at a time.
    const u64 first = u64(blockIdx.x) * (256 * RC_VECTORS) + threadIdx.x;
    if (first + 256 * (RC_VECTORS - 1) < vectors) {
        Known known[RC_VECTORS];
        #pragma unroll
        for (int i = 0; i < RC_VECTORS; i++) known[i] = known_of(args, first + 256 * i);
        #pragma unroll
        for (int i = 0; i < RC_VECTORS; i++) __stcs((uint4*)out + first + 256 * i, vector_of(args, known[i]).raw);
    } else {
        for (u64 v = first; v < min(vectors, first + 256 * RC_VECTORS); v += 256)
            __stcs((uint4*)out + v, vector_of(args, known_of(args, v)).raw);
    }
    // What is no whole vector, or all where out is not aligned.
    const u64 thread = u64(blockIdx.x) * 256 + threadIdx.x, threads = u64(gridDim.x) * 256;
    for (u64 i = vectors * PER + thread; i < args.count; i += threads) {
        const u32 known = RC_MODE == 1 ? args.cells[i >> 5] >> (i & 31) & 1 : args.cells[i];
        out[i] = element_of(args, known);
    }
}
