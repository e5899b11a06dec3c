// Points to bits of occupied cells, where one grid has far more points than cells: bits are set in
// shared memory, and only what a block has found is merged in global memory.
// Host twin: `Finder` in find.rs.
// Grid: one block of 1024 threads per (group of points, part of the grid). Every block of a group
//   reads the group's points and keeps those in its part; the blocks of a group follow each other,
//   so that the points come from the cache for all but one.
// Shared memory: a word for 32 cells of a part.
// Preconditions: bits and dropped are 0 before; one row of at most 2^31 cells. Nothing is assumed of
//   the points and lengths themselves.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_POINT: element type that computes in float; RC_PIXELS: 1 where points are made from pixels; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"
#include "grid.cuh"

using namespace rc;

typedef RC_POINT Point;

// Mirrors `NearArgs` in mark.rs, behind the points.
struct Args {
    PointArgs cloud;
    GridArgs grid;
    u32* bits;
    u64* dropped;  // [1], or null
    i64 share;     // points of a group, a multiple of 4
    u32 parts, words;  // words of a part
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 THREADS = 1024;

extern __shared__ u32 near_bits[];

// By address: that of the array would be made anew for every use, which is slow.
inline u32 look(u32 address) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
inline void set(u32 address, u32 bit) {
    asm volatile("red.shared.or.b32 [%0], %1;" : : "r"(address), "r"(bit) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) RC_ENTRY(const __grid_constant__ Args args) {
    const u32 group = blockIdx.x / args.parts, part = blockIdx.x % args.parts;
    const u32 words = args.words, base = part * words * 32;
    for (u32 w = threadIdx.x; w < words; w += THREADS) near_bits[w] = 0;
    const i64 length = row_length(args.cloud, 0, blockIdx.x == 0 && threadIdx.x == 0);
    const i64 end = min(i64(group + 1) * args.share, length);
    u64 open = ~0ull;
    open_row(args.cloud, 0, open);
    __syncthreads();
    // The same in all lanes; through a shuffle, so that the assembler keeps it.
    const u32 start = __shfl_sync(~0u, u32(__cvta_generic_to_shared(near_bits)), 0);
    u32 lost = 0;
    for (i64 first = i64(group) * args.share + threadIdx.x * PER_THREAD; first < end; first += THREADS * PER_THREAD) {
        float points[PER_THREAD][3];
        load_points<Point>(args.cloud, 0, first, end, points);
        u32 cells[PER_THREAD], known[PER_THREAD];
        find_cells<PER_THREAD>(args.grid, points, cells);
        if (args.dropped) {
            const i64 left = end - first;
            #pragma unroll
            for (int p = 0; p < PER_THREAD; p++) lost += cells[p] == ~0u && p < left;
        }
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            // What is below the part, above it or nowhere lies past its last word.
            cells[p] -= base;
            known[p] = cells[p] >> 5 < words ? look(start + (cells[p] >> 5) * 4) : ~0u;
        }
        // A bit that is set costs no more than this look: many points of few cells do not wait in line.
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            const u32 bit = 1u << (cells[p] & 31);
            if (!(known[p] & bit)) set(start + (cells[p] >> 5) * 4, bit);
        }
    }
    if (args.dropped && part == 0) {
        lost = __reduce_add_sync(~0u, lost);
        if (lost && (threadIdx.x & 31) == 0) add_to(args.dropped, u64(lost));
    }
    __syncthreads();
    // Groups start at different words, so that they do not meet; what others have set is left alone.
    const u32 groups = gridDim.x / args.parts, turn = u32(u64(words) * group / groups) & ~31u;
    for (u32 i = threadIdx.x; i < words; i += THREADS) {
        const u32 w = i + turn < words ? i + turn : i + turn - words;
        const u32 found = near_bits[w];
        u32* to = args.bits + part * words + w;
        if (found && (found & ~__ldcg(to))) set_in(to, found);
    }
}
