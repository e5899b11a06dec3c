// One pass of a stable radix sort of keys with a number each, by bytes from the lowest up.
// Host twin: src/cpu/sort.rs; launched by src/cuda/sort.rs.
// Grid: one block of 256 threads per tile of 256 * RC_ITEMS keys, which take their tiles in the order
//   in which they start and look back at the tiles before (so a tile only waits for one that runs).
// Preconditions: histograms tell how many keys have each digit, by whoever made the keys (digits.cuh);
//   status and ticket are 0; fewer than 2^30 keys.
// Determinism: the same bits on every run: all that is counted are integers.
//
// RC_KEY: u32 or u64; RC_ITEMS: keys of a thread; RC_ARGS_SIZE.
#include "rc.cuh"
#include "block.cuh"
#include "digits.cuh"

using namespace rc;

typedef RC_KEY Key;

// Mirrors `SortArgs` in sort.rs.
struct Args {
    const Key* keys;
    const u32* values;  // null: the places of the keys
    Key* keys_out;
    u32* values_out;
    const u32* histogram;  // [256] of this pass
    u32* status;           // [tiles][256] of this pass
    u32* ticket;           // of this pass
    u32 count, pass;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const int THREADS = 256, WARPS = 8, ITEMS = RC_ITEMS, TILE = THREADS * ITEMS;
// A tile's word for a digit: its own count, or that of all tiles so far.
const u32 PARTIAL = 1u << 30, INCLUSIVE = 2u << 30, VALUE = PARTIAL - 1;

// How many keys of the thread's digit the tiles before this one have. Several of their words are asked
// for at once: tiles that start together find only partial counts, and would wait for one after the
// other.
u32 look_back(const u32* status, u32 tile) {
    const int AT_ONCE = 4;
    u32 before = 0;
    for (i32 last = i32(tile) - 1; last >= 0;) {
        u32 words[AT_ONCE];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            words[i] = last >= i ? *(volatile const u32*)(status + u64(last - i) * DIGITS + threadIdx.x) : INCLUSIVE;
        bool waits = false;  // for a tile that runs, and will tell
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            waits |= words[i] < PARTIAL;
            if (waits || last < 0) continue;
            before += words[i] & VALUE;
            last = words[i] >= INCLUSIVE ? -1 : last - 1;
        }
    }
    return before;
}

// The lanes whose digit is that of this one. By votes on its bits: `match.any` goes through the different
// digits of a warp one by one.
inline u32 same_digit(u32 digit) {
    u32 peers = ~0u;
    #pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const bool set = digit >> bit & 1;
        const u32 votes = __ballot_sync(~0u, set);
        peers &= set ? votes : ~votes;
    }
    return peers;
}

extern "C" __global__ void __launch_bounds__(THREADS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Key* sorted_keys = (Key*)shared;
    u32* sorted_values = (u32*)(sorted_keys + TILE);
    u32* counts = sorted_values + TILE;       // [WARPS][256]
    u32* places = counts + WARPS * DIGITS;    // where a digit starts in the tile
    u32* moves = places + DIGITS;             // from there to where it starts in the result
    u32* sums = moves + DIGITS;               // for scans
    u32* taken = sums + WARPS;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, digit = threadIdx.x;

    if (threadIdx.x == 0) *taken = atomicAdd(args.ticket, 1u);
    u32* own_counts = counts + warp * DIGITS;
    for (u32 i = lane; i < DIGITS; i += 32) own_counts[i] = 0;
    const u32 all = args.histogram[digit];
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
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 own = digit_of(keys[i], args.pass);
        const u32 peers = same_digit(own);
        const u32 before = __popc(peers & ((1u << lane) - 1));
        const u32 seen = own_counts[own];
        __syncwarp();
        if (before == 0) own_counts[own] = seen + __popc(peers);
        __syncwarp();
        ranks[i] = seen + before;
    }
    __syncthreads();

    // From here each thread speaks for a digit. What others wait for comes first.
    u32 total = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const u32 count = counts[w * DIGITS + digit];
        counts[w * DIGITS + digit] = total;
        total += count;
    }
    volatile u32* own_status = args.status + u64(tile) * DIGITS + digit;
    *own_status = (tile == 0 ? INCLUSIVE : PARTIAL) | total;
    const u32 place = exclusive_scan(total, sums);
    const u32 start = exclusive_scan(all, sums);
    places[digit] = place;
    if (tile > 0) {
        const u32 before = look_back(args.status, tile);
        *own_status = INCLUSIVE | (before + total);
        moves[digit] = start + before - place;
    } else {
        moves[digit] = start - place;
    }
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
