// Points to cells: bits of occupied cells, counts, or a key for each point to sort by, and how many keys
// have each digit.
// Host twin: `Finder` in cpu.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: bits, counts, histograms and dropped are 0 before. Nothing is assumed of the points and lengths
//   themselves.
// Determinism: the same bits on every run: all additions are of integers. Tolerance against the CPU:
//   none, the same bits.
//
// RC_POINT: element type; RC_MODE: 0 bits, 1 counts, 2 keys of 32 bits, 3 keys of 64; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"
#include "digits.cuh"
#include "grid.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `ScatterArgs` in cuda.rs.
struct Args {
    CloudArgs cloud;
    GridArgs grid;
    void* cells;   // words of bits, counts, or keys
    u64* dropped;  // [rows], or null
    u64 nowhere;   // the key of padding and of what was dropped
    u64 looks;     // whether to look at a cell before it is marked
    DigitArgs digits;  // of keys
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// Whether all points of a warp lie in one cell, or in none.
inline bool in_one_cell(const i64* cells) {
    bool same = true;
    #pragma unroll
    for (int p = 1; p < PER_THREAD; p++) same &= cells[p] == cells[0];
    const i64 first = __shfl_sync(~0u, cells[0], 0);
    return __all_sync(~0u, same && cells[0] == first);
}

#if RC_MODE == 0
// Where most points find their cell empty, they are marked without a look. Else a cell that was seen
// before costs a load that the nearest cache answers; an old answer does no harm, but for its cost:
// so equal cells of a warp are marked at once.
void mark(u32* bits, const i64* cells, bool looks) {
    const u32 lane = threadIdx.x & 31;
    const bool one = in_one_cell(cells);
    if (one && lane != 0) return;
    const u32 here = one ? 1u : ~0u;
    bool fresh[PER_THREAD];
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) fresh[p] = cells[p] >= 0 && (p == 0 || cells[p] != cells[p - 1]);
    if (looks) {
        u32 words[PER_THREAD];
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) words[p] = fresh[p] ? bits[cells[p] >> 5] : 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) fresh[p] = fresh[p] && !(words[p] >> (cells[p] & 31) & 1);
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) {
        if (looks) {
            if (!__any_sync(here, fresh[p])) continue;
            const u32 peers = __match_any_sync(here, fresh[p] ? cells[p] : i64(-1));
            fresh[p] = fresh[p] && (peers & ((1u << lane) - 1)) == 0;
        }
        if (fresh[p]) atomicOr(bits + (cells[p] >> 5), 1u << (cells[p] & 31));
    }
}
#endif

#if RC_MODE == 1
// Equal cells of a warp are added at once, so that crowded cells do not wait in line.
void count(i32* counts, const i64* cells) {
    if (in_one_cell(cells)) {
        if ((threadIdx.x & 31) == 0 && cells[0] >= 0) atomicAdd(counts + cells[0], 32 * PER_THREAD);
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) {
        const u32 peers = __match_any_sync(~0u, cells[p]);
        const bool leads = (peers & ((1u << (threadIdx.x & 31)) - 1)) == 0;
        if (leads && cells[p] >= 0) atomicAdd(counts + cells[p], __popc(peers));
    }
}
#endif

#if RC_MODE >= 2
#if RC_MODE == 2
typedef u32 Key;
#else
typedef u64 Key;
#endif

// Writes the keys of a thread's points, of which so many are there, and counts their digits.
void write_keys(const Args& args, const i64* cells, u64 at, i64 there, u32* counts) {
    Key keys[PER_THREAD];
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) keys[p] = Key(cells[p] >= 0 ? u64(cells[p]) : args.nowhere);
    Key* out = (Key*)args.cells + at;
    if (there >= PER_THREAD && at % PER_THREAD == 0) {
        const int WORDS = int(sizeof(keys)) / 4;
        union { Key keys[PER_THREAD]; u32 words[WORDS]; } raw;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) raw.keys[p] = keys[p];
        #pragma unroll
        for (int w = 0; w < WORDS; w += 4)
            ((uint4*)out)[w / 4] = make_uint4(raw.words[w], raw.words[w + 1], raw.words[w + 2], raw.words[w + 3]);
    } else {
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++)
            if (p < there) out[p] = keys[p];
    }
    // Crowds that come one after the other do not wait in line.
    const bool whole = __all_sync(~0u, there >= PER_THREAD);
    if (whole && in_one_cell(cells)) {
        if ((threadIdx.x & 31) == 0) count_digits(args.digits, counts, keys[0], 32 * PER_THREAD);
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++)
        if (p < there) count_digits(args.digits, counts, keys[p], 1);
}
#endif

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
#if RC_MODE >= 2
    extern __shared__ __align__(16) unsigned char shared[];
    u32* counts = (u32*)shared;  // [passes][256]
    clear_digits(args.digits, counts);
#endif
    const u64 units = args.cloud.rows * args.cloud.tiles;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const u64 row = unit / args.cloud.tiles, tile = unit % args.cloud.tiles;
        const i64 length = row_length(args.cloud, row, tile == 0 && threadIdx.x == 0);
        const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        Compute points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, length, points);
        i64 cells[PER_THREAD];
        u32 lost = 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            cells[p] = find_cell(args.grid, points[p]);
            if (cells[p] >= 0) cells[p] += i64(row * args.grid.cells);
            else lost += first + p < length;
        }
        if (args.dropped) {
            lost = __reduce_add_sync(~0u, lost);
            if (lost && (threadIdx.x & 31) == 0) atomicAdd((unsigned long long*)args.dropped + row, (unsigned long long)lost);
        }
#if RC_MODE == 0
        mark((u32*)args.cells, cells, args.looks);
#elif RC_MODE == 1
        count((i32*)args.cells, cells);
#else
        write_keys(args, cells, row * u64(args.cloud.count) + u64(first), args.cloud.count - first, counts);
#endif
    }
#if RC_MODE >= 2
    add_digits(args.digits, counts);
#endif
}
