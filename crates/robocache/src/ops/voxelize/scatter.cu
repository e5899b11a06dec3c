// Points to cells: a key for each point to sort by, and how many keys have each digit. Occupied cells and
// counts are in mark.cu.
// Host twin: `Finder` in find.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: histograms and dropped are 0 before. Nothing is assumed of the points and lengths
//   themselves.
// Determinism: the same bits on every run: all additions are of integers. Tolerance against the CPU:
//   none, the same bits.
//
// RC_POINT: element type; RC_PIXELS: 1 where points are made from pixels; RC_MODE: 0 keys of 32 bits, 1 keys of 64; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"
#include "digits.cuh"
#include "grid.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `ScatterArgs` in cuda.rs, behind the points.
struct Args {
    PointArgs cloud;
    GridArgs grid;
    void* cells;   // keys
    u64* dropped;  // [rows], or null
    u64 nowhere;   // the key of padding and of what was dropped
    DigitArgs digits;  // of keys
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_MODE == 0
typedef u32 Key;
#else
typedef u64 Key;
#endif

// Whether all points of a warp have the same key.
inline bool in_one_cell(const Key* keys) {
    bool same = true;
    #pragma unroll
    for (int p = 1; p < PER_THREAD; p++) same &= keys[p] == keys[0];
    const Key first = __shfl_sync(~0u, keys[0], 0);
    return __all_sync(~0u, same && keys[0] == first);
}

// Writes the keys of a thread's points, of which so many are there, and counts their digits.
void write_keys(const Args& args, const Key* keys, u64 at, i64 there, u32* counts) {
    Key* out = (Key*)args.cells + at;
    if (there >= PER_THREAD && at % PER_THREAD == 0) {
        const int WORDS = PER_THREAD * int(sizeof(Key)) / 4;
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
    if (whole && in_one_cell(keys)) {
        if ((threadIdx.x & 31) == 0) count_digits(args.digits, counts, keys[0], 32 * PER_THREAD);
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++)
        if (p < there) count_digits(args.digits, counts, keys[p], 1);
}

// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = RC_PIXELS && RC_MODE == 1 && __CUDA_ARCH__ > 1030 ? 4 : 0;

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* counts = (u32*)shared;  // [passes][256]
    clear_digits(args.digits, counts);
    const u64 units = args.cloud.rows * args.cloud.tiles;
    u64 open = ~0ull;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const auto [row, tile] = place_of(args.cloud, unit);
        open_row(args.cloud, row, open);
        const i64 length = row_length(args.cloud, row, tile == 0 && threadIdx.x == 0);
        const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
        Compute points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, length, points);
        Key keys[PER_THREAD];
        find_cells<PER_THREAD>(args.grid, points, keys);
        u32 lost = 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            const bool inside = keys[p] != Key(~Key(0));
            lost += !inside && first + p < length;
            keys[p] = inside ? keys[p] + Key(row * args.grid.cells) : Key(args.nowhere);
        }
        if (args.dropped) {
            lost = __reduce_add_sync(~0u, lost);
            if (lost && (threadIdx.x & 31) == 0) add_to(args.dropped + row, u64(lost));
        }
        write_keys(args, keys, row * u64(args.cloud.count) + u64(first), args.cloud.count - first, counts);
    }
    add_digits(args.digits, counts);
}
