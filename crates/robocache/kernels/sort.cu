// A stable radix sort of keys with a number each, by bytes from the lowest up. Host twin: src/cpu/sort.rs; launched by src/cuda/sort.rs.
// Grid: HISTOGRAM any number of blocks; PASS one block of 256 threads per tile of 256 * RC_ITEMS
//   keys, which take their tiles in the order in which they start and look back at the tiles before
//   (so a tile only waits for one that runs).
// Preconditions: histograms, status and ticket are 0 before the first stage; fewer than 2^30 keys.
// Determinism: the same bits on every run: all that is counted are integers.
//
// RC_KEY: u32 or u64; RC_STAGE; RC_ITEMS: keys of a thread; RC_ARGS_SIZE.
#include "rc.cuh"
#include "block.cuh"

using namespace rc;

typedef RC_KEY Key;

// Mirrors `SortArgs` in sort.rs.
struct Args {
    const Key* keys;
    const u32* values;  // null: the places of the keys
    Key* keys_out;
    u32* values_out;
    u32* histograms;  // [passes][256]
    u32* status;      // [tiles][256] of this pass
    u32* ticket;      // of this pass
    u32 count, pass, passes, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const int THREADS = 256, WARPS = 8, ITEMS = RC_ITEMS, TILE = THREADS * ITEMS;
// A tile's word for a digit: its own count, or that of all tiles so far.
const u32 PARTIAL = 1u << 30, INCLUSIVE = 2u << 30, VALUE = PARTIAL - 1;

inline u32 digit_of(Key key, u32 pass) { return u32(key >> (8 * pass)) & 255; }

#if RC_STAGE == 0
// Counts the digits of all passes.
extern "C" __global__ void __launch_bounds__(THREADS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* counts = (u32*)shared;
    for (u32 i = threadIdx.x; i < args.passes * 256; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (u64 i = u64(blockIdx.x) * THREADS + threadIdx.x; i < args.count; i += u64(gridDim.x) * THREADS) {
        const Key key = args.keys[i];
        for (u32 pass = 0; pass < args.passes; pass++) atomicAdd(counts + pass * 256 + digit_of(key, pass), 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < args.passes * 256; i += THREADS)
        if (counts[i]) atomicAdd(args.histograms + i, counts[i]);
}
#endif

#if RC_STAGE == 1
// Where this tile's keys of the thread's digit start, counted over the tiles before.
u32 look_back(const Args& args, u32 tile, u32 own) {
    volatile u32* status = args.status + u64(tile) * 256 + threadIdx.x;
    if (tile == 0) {
        *status = INCLUSIVE | own;
        return 0;
    }
    *status = PARTIAL | own;
    u32 before = 0;
    for (volatile const u32* other = status - 256;;) {
        const u32 word = *other;
        if (word < PARTIAL) continue;  // it runs, and will tell
        before += word & VALUE;
        if (word >= INCLUSIVE) break;
        other -= 256;
    }
    *status = INCLUSIVE | (before + own);
    return before;
}

extern "C" __global__ void __launch_bounds__(THREADS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Key* sorted_keys = (Key*)shared;
    u32* sorted_values = (u32*)(sorted_keys + TILE);
    u32* counts = sorted_values + TILE;       // [WARPS][256]
    u32* places = counts + WARPS * 256;       // where a digit starts in the tile
    u32* moves = places + 256;                // from there to where it starts in the result
    u32* sums = moves + 256;                  // for scans
    u32* taken = sums + WARPS;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, digit = threadIdx.x;

    if (threadIdx.x == 0) *taken = atomicAdd(args.ticket, 1u);
    __syncthreads();
    const u32 tile = *taken;
    const u32 base = tile * TILE, valid = min(args.count - base, u32(TILE));

    // A warp's keys lie side by side, and so do the keys of a round: their order is that of rounds,
    // then of lanes.
    Key keys[ITEMS];
    u32 values[ITEMS], ranks[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 at = warp * 32 * ITEMS + i * 32 + lane;
        // Padding comes last of all: it is the last of the highest digit.
        keys[i] = at < valid ? args.keys[base + at] : ~Key(0);
        values[i] = args.values ? (at < valid ? args.values[base + at] : 0) : base + at;
    }
    u32* own_counts = counts + warp * 256;
    for (u32 i = lane; i < 256; i += 32) own_counts[i] = 0;
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 own = digit_of(keys[i], args.pass);
        const u32 peers = __match_any_sync(~0u, own);
        const u32 before = __popc(peers & ((1u << lane) - 1));
        const u32 seen = own_counts[own];
        __syncwarp();
        if (before == 0) own_counts[own] = seen + __popc(peers);
        __syncwarp();
        ranks[i] = seen + before;
    }
    __syncthreads();

    // From here each thread speaks for a digit.
    u32 total = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const u32 count = counts[w * 256 + digit];
        counts[w * 256 + digit] = total;
        total += count;
    }
    const u32 before = look_back(args, tile, total);
    const u32 place = exclusive_scan(total, sums);
    const u32 start = exclusive_scan(args.histograms[args.pass * 256 + digit], sums);
    places[digit] = place;
    moves[digit] = start + before - place;
    __syncthreads();

    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 own = digit_of(keys[i], args.pass);
        const u32 at = places[own] + own_counts[own] + ranks[i];
        sorted_keys[at] = keys[i];
        sorted_values[at] = values[i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < valid; i += THREADS) {
        const Key key = sorted_keys[i];
        const u32 to = moves[digit_of(key, args.pass)] + i;
        args.keys_out[to] = key;
        args.values_out[to] = sorted_values[i];
    }
}
#endif
