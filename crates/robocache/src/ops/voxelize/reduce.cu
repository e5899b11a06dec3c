// A dense grid of reduced features from points sorted by cell. The grid holds what empty cells hold;
// every other cell is written once.
// Host twin: `sorted` in cpu.rs, reduce.rs.
// Grid: one block of 256 threads per 256 sorted points, in turns where there are too many. A cell is
//   made by the block in which its points start.
// Preconditions: keys are sorted, `order` tells their points; Args as made by reduce_cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_TYPE: its number; RC_KEY: u32 or u64; RC_COLUMNS: columns of a thread;
// RC_SUMS: whether numbers are added, not compared; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "rows.cuh"

using namespace rc;

typedef RC_KEY Key;
typedef RC_FEATURE T;

// Mirrors `ReduceArgs` in reduce_cuda.rs.
struct Args {
    Features<T> features;
    const Key* keys;
    const u32* order;
    u8* out;
    i32* counts;  // or null
    u64 cells;    // of all rows; greater keys are of points that lie nowhere
    u32 width, count;  // columns, points
    u32 reduce, type;
    u32 copies;  // whether a cell of one point is a copy in whole vectors
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 THREADS = 256, WARPS = 8;
const int V = RC_COLUMNS;
// Points of a thread that are under way at once.
const int AT_ONCE = 4;
// Columns of a thread where there is something to compute: fewer, for the sake of registers, and so
// that more warps share a crowded cell.
const int FOLD_V = V > 2 ? 2 : 1;
// Blocks of a multiprocessor: as many as spill no registers.
const int BLOCKS = sizeof(Key) == 8 || sizeof(T) == 8 || (sizeof(T) == 2 && RC_SUMS && __CUDA_ARCH__ != 900) ? 3 : 4;

// Known when it is compiled but for the half of it, which costs nothing.
inline Fold fold_of(const Args& args) {
#if RC_SUMS
    return {args.reduce == MEAN ? MEAN : SUM};
#else
    return {args.reduce == MIN ? MIN : MAX};
#endif
}

// The first of keys[low..high] that is not below `wanted`, found by a warp.
u32 first_from(const Key* keys, u32 low, u32 high, u64 wanted) {
    while (low < high) {
        const u32 step = (high - low + 31) / 32, probe = low + (threadIdx.x & 31) * step;
        const u32 below = __popc(__ballot_sync(~0u, probe < high && u64(keys[probe]) < wanted));
        if (below == 0) break;
        const u32 last = low + (below - 1) * step;
        low = last + 1;
        high = min(last + step, high);
    }
    return low;
}

// Where the run that starts at `start` ends, or LONG behind its start where it is that long.
u32 run_end(const Key* keys, u32 start, u32 count) {
    const Key key = keys[start];
    const u32 stop = min(start + LONG, count);
    u32 end = start + 1;
    while (end < stop) {
        bool same[4];
        #pragma unroll
        for (u32 u = 0; u < 4; u++) same[u] = keys[min(end + u, stop - 1)] == key && end + u < stop;
        #pragma unroll
        for (int u = 1; u < 4; u++) same[u] &= same[u - 1];
        end += same[0] + same[1] + same[2] + same[3];
        if (!same[3]) break;
    }
    return end;
}

// Points that a block looks at together, in shared memory; one key more on each side.
struct Chunk {
    const Key* keys;
    const u32* points;
    u32 begin, count;

    Key key(u32 slot) const { return keys[slot + 1]; }
    bool starts(const Args& args, u32 slot) const { return u64(key(slot)) < args.cells && keys[slot] != key(slot); }
    bool has_more(u32 slot) const { return keys[slot + 2] == key(slot); }
};

// A thread keeps its columns and goes through points; wide rows take several rounds.
struct Share {
    u32 across, step, own;
    Share(u32 vectors) : across(max(min(vectors, THREADS), 1u)), step(THREADS / across), own(threadIdx.x / across) {}
    u32 first() const { return threadIdx.x - own * across; }
};

// Cells of one point, in the grid's type: sum, mean, largest and smallest of one number are itself.
inline void copy_points(const Args& args, const Chunk& chunk) {
    const u32 vectors = args.width / V;
    const Share share(vectors);
    if (share.own >= share.step) return;
    for (u32 v = share.first(); v < vectors; v += share.across) {
        for (u32 slot = share.own; slot < chunk.count; slot += AT_ONCE * share.step) {
            Pack<T, V> packs[AT_ONCE];
            bool alone[AT_ONCE];
            #pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const u32 s = slot + u * share.step;
                alone[u] = s < chunk.count && chunk.starts(args, s) && !chunk.has_more(s);
                if (alone[u]) packs[u] = load_pack<V>(args.features, chunk.points[s], v * V);
            }
            #pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (alone[u]) {
                    const u64 at = u64(chunk.key(slot + u * share.step)) * args.width + v * V;
                    *(decltype(packs[u].raw)*)(args.out + at * sizeof(T)) = packs[u].raw;
                }
        }
    }
}

// The cells that copy_points leaves, of fewer points than LONG.
inline void reduce_short(const Args& args, const Chunk& chunk) {
    const u32 vectors = args.width / FOLD_V;
    const Share share(vectors);
    if (share.own >= share.step) return;
    const Fold fold = fold_of(args);
    #pragma unroll 1
    for (u32 slot = share.own; slot < chunk.count; slot += share.step) {
        const bool more = chunk.has_more(slot);
        if (!chunk.starts(args, slot) || (!more && args.copies)) continue;
        const u32 start = chunk.begin + slot, end = more ? run_end(args.keys, start, args.count) : start + 1;
        if (end - start >= LONG) continue;
        #pragma unroll 1
        for (u32 v = share.first(); v < vectors; v += share.across) {
            u64 totals[FOLD_V];
            fold_run<FOLD_V>(fold, args.features, Sorted{args.order}, start, end, v * FOLD_V, totals);
            store_totals<FOLD_V>(fold, Float(args.type), args.out, i64(u64(chunk.key(slot)) * args.width + v * FOLD_V), totals,
                                 end - start);
        }
    }
}

// A cell of LONG points or more from `start` on, by all warps, each with columns of its own.
inline void reduce_long(const Args& args, u32 start) {
    const Fold fold = fold_of(args);
    const u64 cell = u64(args.keys[start]);
    const u32 end = first_from(args.keys, start + LONG, args.count, cell + 1), lane = threadIdx.x & 31;
    if (args.counts && threadIdx.x == 0) args.counts[cell] = i32(end - start);
    #pragma unroll 1
    for (u32 column = threadIdx.x / 32 * FOLD_V; column < args.width; column += WARPS * FOLD_V) {
        u64 totals[FOLD_V];
        fold_lanes<FOLD_V>(fold, args.features, Sorted{args.order}, start, end, column, totals);
        if (lane == 0) store_totals<FOLD_V>(fold, Float(args.type), args.out, i64(cell * args.width + column), totals, end - start);
    }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Key* keys = (Key*)shared;                   // [THREADS + 2]
    u32* points = (u32*)(keys + THREADS + 2);   // [THREADS]
    u32* crowded = points + THREADS;            // [THREADS / LONG]
    u32& crowds = crowded[THREADS / LONG];
    auto key_at = [&](u32 p) { return p < args.count ? args.keys[p] : ~Key(0); };
    const u32 chunks = (args.count + THREADS - 1) / THREADS;
    for (u32 c = blockIdx.x; c < chunks; c += gridDim.x) {
        const u32 begin = c * THREADS, slot = threadIdx.x, own = begin + slot;
        const Chunk chunk = {keys, points, begin, min(args.count - begin, THREADS)};
        keys[slot + 1] = key_at(own);
        points[slot] = own < args.count ? args.order[own] : 0;
        if (slot == 0) {
            keys[0] = begin > 0 ? args.keys[begin - 1] : ~Key(0);
            keys[THREADS + 1] = key_at(begin + THREADS);
            crowds = 0;
        }
        __syncthreads();
        if (args.copies) copy_points(args, chunk);
        if (slot < chunk.count && chunk.starts(args, slot)) {
            const bool more = chunk.has_more(slot);
            if (more && key_at(own + LONG - 1) == chunk.key(slot)) crowded[atomicAdd(&crowds, 1u)] = own;
            else if (args.counts) args.counts[chunk.key(slot)] = more ? i32(run_end(args.keys, own, args.count) - own) : 1;
        }
        reduce_short(args, chunk);
        __syncthreads();
        for (u32 i = 0; i < crowds; i++) reduce_long(args, crowded[i]);
        __syncthreads();  // Nobody reads the tables any more.
    }
}
