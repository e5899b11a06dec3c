// Groups of points that are sorted by cell: the cells, where their points start, and the row of every
// point, in one pass over the keys.
// Host twin: `group_points` in group_cpu.rs.
// Grid: one block of 256 threads per tile of 256 * RC_ITEMS keys (one more than there are), which take
//   their tiles in the order in which they start and look back at the tiles before (so a tile only waits
//   for one that runs).
// Preconditions: keys are sorted, `order` tells their points; status, ticket and inverse are 0; fewer than
//   2^30 keys, none greater than `nowhere`.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_KEY: u32 or u64; RC_ITEMS: keys of a thread; RC_ARGS_SIZE.
#include "rc.cuh"

using namespace rc;

typedef RC_KEY Key;

// Mirrors `GroupArgs` in sparse_cuda.rs.
struct Args {
    const Key* keys;
    const u32* order;
    u32* status;  // [tiles]
    u32* ticket;
    i64* cells;
    i32* starts;
    i64* inverse;
    i64* count_out;
    u64 nowhere, most;
    u32 count, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const int WARPS = 8, ITEMS = RC_ITEMS, TILE = 256 * ITEMS;
// A tile's word: how many cells begin in it, or in all tiles so far.
const u32 PARTIAL = 1u << 30, INCLUSIVE = 2u << 30, VALUE = PARTIAL - 1;

// How many cells begin in the tiles before this one, by a warp: it asks 32 of them at once.
u32 look_back(const u32* status, u32 tile) {
    const u32 lane = threadIdx.x & 31;
    u32 before = 0;
    for (i32 last = i32(tile) - 1; last >= 0;) {
        const i32 own = last - i32(lane);
        const u32 word = own >= 0 ? *(volatile const u32*)(status + own) : INCLUSIVE;
        const u32 whole = __ballot_sync(~0u, word >= INCLUSIVE), silent = __ballot_sync(~0u, word < PARTIAL);
        // Up to the nearest that speaks for all before it.
        const u32 wanted = whole ? (whole & (0u - whole)) * 2 - 1 : ~0u;
        if (silent & wanted) continue;  // it runs, and will tell
        before += __reduce_add_sync(~0u, wanted >> lane & 1 ? word & VALUE : 0);
        last = whole ? -1 : last - 32;
    }
    return before;
}

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* sums = (u32*)shared;     // [WARPS]
    u32* taken = sums + WARPS;    // the tile
    u32* earlier = taken + 1;     // cells that begin before it
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, count = args.count;
    if (threadIdx.x == 0) *taken = atomicAdd(args.ticket, 1u);
    __syncthreads();
    const u32 tile = *taken, begin = tile * TILE + warp * (32 * ITEMS);
    const Key nowhere = Key(args.nowhere);

    // A warp's keys lie side by side, and so do the keys of a round.
    Key keys[ITEMS];
    u32 points[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 p = begin + i * 32 + lane;
        keys[i] = p < count ? __ldg(args.keys + p) : nowhere;
        points[i] = p < count ? __ldg(args.order + p) : 0;  // under way while others are asked
    }
    const Key edge = begin > 0 && begin <= count ? __ldg(args.keys + begin - 1) : nowhere;
    u32 begins[ITEMS];  // of all lanes, a bit each
    u32 own = 0;
    bool ends[ITEMS];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        Key last = __shfl_up_sync(~0u, keys[i], 1);
        const Key far = i == 0 ? edge : __shfl_sync(~0u, keys[i > 0 ? i - 1 : 0], 31);
        if (lane == 0) last = far;
        begins[i] = __ballot_sync(~0u, keys[i] < nowhere && keys[i] != last);
        // The first that is nowhere, padding or the end, tells where the last cell ends.
        ends[i] = keys[i] >= nowhere && (last < nowhere || begin + i * 32 + lane == 0);
        own += __popc(begins[i]);
    }
    if (lane == 0) sums[warp] = own;
    __syncthreads();
    if (warp == 0) {
        u32 total = 0;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) total += sums[w];
        volatile u32* status = args.status + tile;
        if (lane == 0) *status = (tile == 0 ? INCLUSIVE : PARTIAL) | total;
        if (tile > 0) {
            const u32 before = look_back(args.status, tile);
            if (lane == 0) {
                *status = INCLUSIVE | (before + total);
                *earlier = before;
            }
        } else if (lane == 0) {
            *earlier = 0;
        }
    }
    __syncthreads();
    u32 next = *earlier;
    #pragma unroll
    for (int w = 0; w < WARPS; w++)
        if (w < warp) next += sums[w];
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 p = begin + i * 32 + lane;
        const bool first = begins[i] >> lane & 1;
        const u32 row = next + __popc(begins[i] & ((1u << lane) - 1));  // cells that begin before this point
        if (first) args.cells[row] = i64(keys[i]);
        if (first || ends[i]) args.starts[row] = i32(p);
        if (ends[i]) *args.count_out = row;
        if (p < count) {
            const u32 cell = row - !first;
            // Points lie far apart: to set bits is quicker than to store a part of a line.
            set_in((u64*)args.inverse + points[i], keys[i] < nowhere && cell < args.most ? cell : ~0ull);
        }
        next += __popc(begins[i]);
    }
}
