// A row for each group of points: where its cell lies, how many points it has, and their features made
// into one row. The points themselves are in hard.cu.
// Host twin: `gather` in gather_cpu.rs, reduce.rs.
// Grid: one block of 256 threads per tile of rows, of which each warp has up to 32 that follow each other,
//   in turns where there are too many. Most rows are of one or two points: lanes share the columns of
//   all rows of their warp.
// Preconditions: Args as made by sparse_cuda.rs; what the groups hold is clamped before it indexes.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_COLUMNS: columns of a lane; RC_SUMS: whether numbers are added, not
// compared; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "divide.cuh"
#include "groups.cuh"
#include "rows.cuh"

using namespace rc;

typedef RC_FEATURE T;

enum Flags : u32 {
    VECTOR_PLACES = 1,  // coords are aligned to 16 bytes
    FEW_CELLS = 2,      // the numbers of cells have 32 bits
    SAME_TYPE = 4,      // out is of the features' type, and aligned as they are
};

// Mirrors `GatherArgs` in sparse_cuda.rs.
struct Args {
    Features<T> features;
    Groups groups;
    i64* coords;
    i32* counts;
    void* out;  // or null
    Divisor x, y, z;   // cells along the axes
    Divisor vectors;   // RC_COLUMNS each, in a row
    u64 tiles;
    u32 rows;  // of a warp, 32 at most
    u32 width, type, reduce, flags, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 WARPS = 8;
const int V = RC_COLUMNS;
// Vectors of a lane that are under way at once.
const int AT_ONCE = 4;
// Columns of a lane where there is something to compute: fewer, for the sake of registers.
const int FOLD_V = V > 2 ? V / 2 : V;
// In crowded cells fewer still, so that more warps share them.
const int CROWD_V = V > 2 ? 2 : 1;
// Blocks of a multiprocessor: as many as spill no registers.
const int BLOCKS = V == 4 && __CUDA_ARCH__ == 900 ? 5 : V == 8 && __CUDA_ARCH__ > 1030 ? 3 : 4;

// Known when it is compiled but for the half of it, which costs nothing.
inline Fold fold_of(const Args& args) {
#if RC_SUMS
    return {args.reduce == MEAN ? MEAN : SUM};
#else
    return {args.reduce == MIN ? MIN : MAX};
#endif
}

template <class Index> void place_of(const Args& args, Index cell, i64* place) {
    Index rest = cell, left = divide(args.z, rest);
    place[3] = i64(rest);
    rest = left;
    left = divide(args.y, rest);
    place[2] = i64(rest);
    rest = left;
    place[0] = i64(divide(args.x, rest));
    place[1] = i64(rest);
}

// Where the cells of rows lie: a row is two vectors of 16 bytes, and lanes side by side write what lies
// side by side.
inline void write_places(const Args& args, u64 first, u32 rows, u64 occupied) {
    for (u32 i = threadIdx.x & 31; i < 2 * rows; i += 32) {
        const u64 row = first + i / 2;
        i64 place[4] = {-1, -1, -1, -1};
        if (row < occupied) {
            const u64 cell = u64(__ldg(args.groups.cells + row));
            if (args.flags & FEW_CELLS) place_of(args, u32(cell), place);
            else place_of(args, cell, place);
        }
        const bool second = i & 1;
        const i64 one = second ? place[2] : place[0], two = second ? place[3] : place[1];
        i64* to = args.coords + 4 * row + 2 * second;
        if (args.flags & VECTOR_PLACES) {
            *(longlong2*)to = make_longlong2(one, two);
        } else {
            to[0] = one;
            to[1] = two;
        }
    }
}

// What the totals of some columns come to, from this place of the result on.
inline void write_totals(const Args& args, u64 at, const u64* totals, u32 count) {
    const Fold fold = fold_of(args);
    double numbers[FOLD_V];
    #pragma unroll
    for (int c = 0; c < FOLD_V; c++) numbers[c] = count ? fold.finish(totals[c], count) : 0.0;
    if (args.flags & SAME_TYPE) {
        Pack<T, FOLD_V> pack;
        #pragma unroll
        for (int c = 0; c < FOLD_V; c++) narrow(numbers[c], pack.numbers[c]);
        *(decltype(pack.raw)*)((T*)args.out + at) = pack.raw;
    } else {
        #pragma unroll
        for (int c = 0; c < FOLD_V; c++) store_as(Float(args.type), args.out, i64(at + c), numbers[c]);
    }
}

// Rows of one point are copies of it in whole vectors, and rows of none are 0. Lanes go through the vectors of
// all rows of their warp side by side; each knows count and first point of one row.
inline void copy_rows(const Args& args, u64 first, u32 rows, u32 count, u32 point) {
    const u32 items = rows * u32(args.vectors.number), lane = threadIdx.x & 31;
    T* out = (T*)args.out + first * args.width;
    #pragma unroll 1
    for (u32 base = 0; base < items; base += 32 * AT_ONCE) {
        Pack<T, V> packs[AT_ONCE];
        bool writes[AT_ONCE];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const u32 item = base + u * 32 + lane;
            u32 vector = min(item, items - 1);
            const u32 row = divide(args.vectors, vector);
            const u32 there = __shfl_sync(~0u, count, row), from = __shfl_sync(~0u, point, row);
            writes[u] = item < items && there <= 1;
            #pragma unroll
            for (int c = 0; c < V; c++) narrow(0.0, packs[u].numbers[c]);
            if (writes[u] && there) packs[u] = load_pack<V>(args.features, from, vector * V);
        }
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (writes[u]) *(decltype(packs[u].raw)*)(out + u64(base + u * 32 + lane) * V) = packs[u].raw;
    }
}

// Rows of which `folds` has a bit, of fewer points than LONG. `chosen`: a word of shared memory for each lane.
inline void fold_rows(const Args& args, u64 first, u32 folds, const Run& own, u32* chosen) {
    const Clamped order = {args.groups.order, args.groups.last()};
    const u32 lane = threadIdx.x & 31, parts = u32(args.vectors.number) * (V / FOLD_V);
    __syncwarp();
    if (folds >> lane & 1) chosen[__popc(folds & ((1u << lane) - 1))] = lane;
    __syncwarp();
    const u32 items = __popc(folds) * parts;
    #pragma unroll 1
    for (u32 base = 0; base < items; base += 32) {
        const u32 item = min(base + lane, items - 1);
        u32 column = item / (V / FOLD_V);
        const u32 row = chosen[divide(args.vectors, column)];
        column = column * V + item % (V / FOLD_V) * FOLD_V;
        const u32 start = __shfl_sync(~0u, own.start, row), count = __shfl_sync(~0u, own.count, row);
        if (base + lane >= items) continue;
        u64 totals[FOLD_V];
        if (count) fold_run<FOLD_V>(fold_of(args), args.features, order, start, start + count, column, totals);
        write_totals(args, (first + row) * args.width + column, totals, count);
    }
}

// A row of LONG points or more, by all warps, each with columns of its own.
inline void write_crowd(const Args& args, u64 row, const Run& run) {
    const Fold fold = fold_of(args);
    const Clamped order = {args.groups.order, args.groups.last()};
    #pragma unroll 1
    for (u32 column = threadIdx.x / 32 * CROWD_V; column < args.width; column += WARPS * CROWD_V) {
        u64 totals[CROWD_V];
        fold_lanes<CROWD_V>(fold, args.features, order, run.start, run.start + run.count, column, totals);
        if ((threadIdx.x & 31) == 0)
            store_totals<CROWD_V>(fold, Float(args.type), args.out, i64(row * args.width + column), totals, run.count);
    }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* crowded = (u32*)shared;     // [WARPS]: a bit for each row of a warp
    u32* chosen = crowded + WARPS;   // [WARPS][32]
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const u64 occupied = args.groups.occupied();
    for (u64 tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        const u64 first = (tile * WARPS + warp) * args.rows;
        const u32 rows = u32(min(u64(args.rows), args.groups.rows - min(first, args.groups.rows)));
        Run own = {0, 0};
        if (lane < rows) own = run_of(args.groups, first + lane, occupied);
        // On its way while places are written.
        const u32 point = args.out && own.count ? min(__ldg(args.groups.order + own.start), args.groups.last()) : 0;
        if (lane < rows) args.counts[first + lane] = i32(own.count);
        write_places(args, first, rows, occupied);
        if (!args.out) continue;
        const bool copies = args.flags & SAME_TYPE;
        if (copies) copy_rows(args, first, rows, own.count, point);
        const u32 folds = __ballot_sync(~0u, lane < rows && own.count < LONG && (!copies || own.count > 1));
        if (folds) fold_rows(args, first, folds, own, chosen + warp * 32);
        const u32 crowds = __ballot_sync(~0u, own.count >= LONG);
        if (!__syncthreads_or(crowds != 0)) continue;
        if (lane == 0) crowded[warp] = crowds;
        __syncthreads();
        for (u32 w = 0; w < WARPS; w++)
            for (u32 left = crowded[w]; left; left &= left - 1) {
                const u64 row = (tile * WARPS + w) * args.rows + __ffs(left) - 1;
                write_crowd(args, row, run_of(args.groups, row, occupied));
            }
        __syncthreads();  // Nobody reads the bits any more.
    }
}
