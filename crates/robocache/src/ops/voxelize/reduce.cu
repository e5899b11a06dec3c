// A dense grid of reduced features from points sorted by cell: every cell is written once, with its
// features or with what empty cells hold.
// Host twin: `sorted` in cpu.rs, reduce.rs.
// Grid: one block of 256 threads per group of tiles and slab of columns. A tile is made in shared
//   memory, so that the grid is written in whole vectors whatever its rows look like; the keys and
//   points of the next tile are on their way meanwhile.
// Preconditions: keys are sorted, `order` tells their points; Args as made by reduce_cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_TYPE: its number; RC_KEY: u32 or u64; RC_COLUMNS: columns of a thread;
// RC_ARGS_SIZE.
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
    u64 cells;    // of all rows
    u64 fill;     // repeated to 8 bytes
    u32 width, count;  // columns, points
    u32 tiles, tile;  // how many, and cells of one
    u32 group;        // tiles of a block
    u32 slabs, slab;  // how many, and columns of one; more than one only where a tile is one cell
    u32 stage;        // bytes of a tile
    u32 reduce, type, element_bytes;
    u32 aligned;  // whether all tiles of the grid start at multiples of 16 bytes
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 THREADS = 256, WARPS = 8;
const int V = RC_COLUMNS;
// Points of a thread that are under way at once.
const int AT_ONCE = 2;
// Columns of a thread where there is something to compute: fewer, for the sake of registers, and so
// that more warps share a crowded cell.
const int FOLD_V = V > 2 ? 2 : 1;
// Blocks of a multiprocessor: as many as spill no registers.
const int BLOCKS = sizeof(Key) == 8 || sizeof(T) == 8 || (sizeof(T) == 2 && RC_SUMS && __CUDA_ARCH__ != 900) ? 3 : 4;
const u32 NO_CELL = ~0u;

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

inline uint4 fill_of(const Args& args) {
    const u32 low = u32(args.fill), high = u32(args.fill >> 32);
    return make_uint4(low, high, low, high);
}

// Writes a tile from shared memory.
inline void write_tile(const Args& args, u8* to, const u8* stage, u32 bytes) {
    u32 done = 0;
    if (args.aligned) {
        #pragma unroll 4
        for (u32 i = threadIdx.x; i < bytes / 16; i += THREADS) __stcs((uint4*)to + i, ((const uint4*)stage)[i]);
        done = bytes / 16 * 16;
    }
    // Numbers have two bytes at least.
    for (u32 i = done / 2 + threadIdx.x; i < bytes / 2; i += THREADS) ((u16*)to)[i] = ((const u16*)stage)[i];
}

// Writes a tile without points.
inline void fill_tile(const Args& args, u8* to, u32 bytes) {
    const uint4 fill = fill_of(args);
    u32 done = 0;
    if (args.aligned) {
        for (u32 i = threadIdx.x; i < bytes / 16; i += THREADS) __stcs((uint4*)to + i, fill);
        done = bytes / 16 * 16;
    }
    for (u32 i = done / 2 + threadIdx.x; i < bytes / 2; i += THREADS) ((u16*)to)[i] = u16(args.fill >> i % 4 * 16);
}

// The points of a tile that are looked at together, 256 at most, and the tile itself.
struct Chunk {
    u8* stage;
    const u32* cells;   // of the points, within the tile
    const u32* points;  // their numbers
    u64 first;          // cell of the tile
    u32 begin, count;   // where the points lie in the sorted ones
    u32 before;         // the cell of the point before these, where it is of this tile
    u32 columns;        // of the slab, from this one on
    u32 base_column;

    // Whether the tile may have more points.
    bool goes_on() const { return count == THREADS; }
    bool starts(u32 slot) const { return cells[slot] != (slot ? cells[slot - 1] : before); }
    bool has_more(u32 slot) const { return slot + 1 < count ? cells[slot + 1] == cells[slot] : goes_on(); }
};

// A thread keeps its columns and goes through points; wide rows take several rounds.
struct Share {
    u32 across, step, own;
    Share(u32 vectors) : across(max(min(vectors, THREADS), 1u)), step(THREADS / across), own(threadIdx.x / across) {}
    u32 first() const { return threadIdx.x - own * across; }
};

// Cells of one point, in the grid's type: sum, mean, largest and smallest of one number are itself.
inline void copy_points(const Args& args, const Chunk& chunk) {
    const u32 vectors = chunk.columns / V;
    const Share share(vectors);
    if (share.own >= share.step) return;
    for (u32 v = share.first(); v < vectors; v += share.across) {
        for (u32 slot = share.own; slot < chunk.count; slot += AT_ONCE * share.step) {
            Pack<T, V> packs[AT_ONCE];
            bool alone[AT_ONCE];
            #pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const u32 s = slot + u * share.step;
                alone[u] = s < chunk.count && chunk.starts(s) && !chunk.has_more(s);
                if (alone[u]) packs[u] = load_pack<V>(args.features, chunk.points[s], chunk.base_column + v * V);
            }
            #pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (alone[u]) {
                    const u32 at = chunk.cells[slot + u * share.step] * chunk.columns + v * V;
                    *(decltype(packs[u].raw)*)(chunk.stage + at * sizeof(T)) = packs[u].raw;
                }
        }
    }
}

// The cells that copy_points leaves, of fewer points than LONG.
inline void reduce_short(const Args& args, const Chunk& chunk, bool copied) {
    const u32 vectors = chunk.columns / FOLD_V;
    const Share share(vectors);
    if (share.own >= share.step) return;
    const Fold fold = fold_of(args);
    #pragma unroll 1
    for (u32 slot = share.own; slot < chunk.count; slot += share.step) {
        const bool more = chunk.has_more(slot);
        if (!chunk.starts(slot) || (!more && copied)) continue;
        const u32 start = chunk.begin + slot, end = more ? run_end(args.keys, start, args.count) : start + 1;
        if (end - start >= LONG) continue;
        #pragma unroll 1
        for (u32 v = share.first(); v < vectors; v += share.across) {
            u64 totals[FOLD_V];
            fold_run<FOLD_V>(fold, args.features, args.order, start, end, chunk.base_column + v * FOLD_V, totals);
            store_totals<FOLD_V>(fold, Float(args.type), chunk.stage,
                                 chunk.cells[slot] * chunk.columns + v * FOLD_V, totals, end - start);
        }
    }
}

// The cells of many points among the sorted points begin..end, which hold whole cells: a warp for each
// and some of its columns. Such a cell has a point at a multiple of LONG; the first of them speaks for it.
inline void reduce_long(const Args& args, u32 begin, u32 end, u32 base_column, u32 columns) {
    const Fold fold = fold_of(args);
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, parts = columns / FOLD_V;
    u32 turn = 0;
    for (u32 batch = (begin + LONG - 1) / LONG * LONG; batch < end; batch += 32 * LONG) {
        const u32 place = batch + lane * LONG;
        u32 start = place;
        bool found = false;
        if (place < end) {
            const Key key = args.keys[place];
            const bool inner = place - begin >= LONG;
            if (!inner || args.keys[place - LONG] != key) {
                u32 low = inner ? place - LONG + 1 : begin;
                while (low < start) {
                    const u32 middle = low + (start - low) / 2;
                    if (args.keys[middle] < key) low = middle + 1;
                    else start = middle;
                }
                found = start + LONG <= end && args.keys[start + LONG - 1] == key;
            }
        }
        for (u32 cells = __ballot_sync(~0u, found); cells; cells &= cells - 1) {
            const u32 first = __shfl_sync(~0u, start, __ffs(cells) - 1);
            const u64 cell = u64(args.keys[first]);
            u32 last = 0;
            #pragma unroll 1
            for (u32 part = 0; part < parts; part++, turn++) {
                if (turn % WARPS != warp) continue;
                if (last == 0) last = first_from(args.keys, first + LONG, end, cell + 1);
                u64 totals[FOLD_V];
                const u32 column = base_column + part * FOLD_V;
                fold_lanes<FOLD_V>(fold, args.features, args.order, first, last, column, totals);
                if (lane == 0)
                    store_totals<FOLD_V>(fold, Float(args.type), args.out, i64(cell * args.width + column), totals,
                                         last - first);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u8* stage = shared;                       // [args.stage]
    u32* cells = (u32*)(stage + args.stage);  // [256] of the tile, by point
    u32* points = cells + THREADS;            // [256]
    u32* counts = points + THREADS;           // [tile], where they are wanted
    const u32 base_column = blockIdx.x % args.slabs * args.slab;
    const u32 columns = min(args.width - base_column, args.slab);
    const bool counting = args.counts && base_column == 0;
    u32 tile = blockIdx.x / args.slabs * args.group;
    const u32 last_tile = min(tile + args.group, args.tiles);
    u32 next = first_from(args.keys, 0, args.count, u64(tile) * args.tile);
    auto key_at = [&](u32 p) { return p < args.count ? args.keys[p] : Key(~Key(0)); };
    auto point_at = [&](u32 p) { return p < args.count ? args.order[p] : 0; };
    Key key = key_at(next + threadIdx.x);
    u32 point = point_at(next + threadIdx.x);
    const u32 group_begin = next;
    bool crowded = false;

    for (; tile < last_tile; tile++) {
        const u64 first = u64(tile) * args.tile;
        const u32 size = u32(min(u64(args.tile), args.cells - first));
        const u32 bytes = size * columns * args.element_bytes;
        u32 before = NO_CELL, here;
        bool staged = false;
        do {
            // Whoever read the tables or the stage before is done behind this barrier.
            here = __syncthreads_count(key < Key(first + size));
            if (here == 0) break;
            const Chunk chunk = {stage, cells, points, first, next, here, before, columns, base_column};
            cells[threadIdx.x] = u32(u64(key) - first);
            points[threadIdx.x] = point;
            next += here;
            key = key_at(next + threadIdx.x);
            point = point_at(next + threadIdx.x);
            if (!staged) {
                #pragma unroll 1
                for (u32 i = threadIdx.x; i < (bytes + 15) / 16; i += THREADS) ((uint4*)stage)[i] = fill_of(args);
                #pragma unroll 1
                for (u32 i = threadIdx.x; counting && i < size; i += THREADS) counts[i] = 0;
                staged = true;
            }
            __syncthreads();
            if (here == THREADS && cells[THREADS - 1] == before) {
                // Nothing starts here: on to where the crowded cell ends.
                next = first_from(args.keys, next, args.count, first + before + 1);
                key = key_at(next + threadIdx.x);
                point = point_at(next + threadIdx.x);
                if (counting && threadIdx.x == 0) atomicAdd(counts + before, next);
                continue;
            }
            if (threadIdx.x < here && (here >= LONG || counting)) {
                const u32 slot = threadIdx.x, cell = cells[slot], far = slot + LONG - 1;
                const bool starts = chunk.starts(slot);
                crowded |= far < here ? cells[far] == cell
                                      : chunk.goes_on() && u64(key_at(chunk.begin + far)) == first + cell;
                if (counting) {
                    const bool ends = slot + 1 < here ? cells[slot + 1] != cell
                                                      : !chunk.goes_on() || u64(key_at(next)) != first + cell;
                    if (starts) atomicSub(counts + cell, chunk.begin + slot);
                    if (ends) atomicAdd(counts + cell, chunk.begin + slot + 1);
                }
            }
            const bool copies = args.type == RC_TYPE;
            if (copies) copy_points(args, chunk);
            reduce_short(args, chunk, copies);
            before = cells[THREADS - 1];
        } while (here == THREADS);
        __syncthreads();
        u8* to = args.out + (first * args.width + base_column) * args.element_bytes;
        if (staged) write_tile(args, to, stage, bytes);
        else fill_tile(args, to, bytes);
        if (counting)
            for (u32 i = threadIdx.x; i < size; i += THREADS)
                __stcs(args.counts + first + i, staged ? i32(counts[i]) : 0);
    }
    // These cells are written a second time, behind the barrier.
    if (__syncthreads_or(crowded)) reduce_long(args, group_begin, next, base_column, columns);
}
