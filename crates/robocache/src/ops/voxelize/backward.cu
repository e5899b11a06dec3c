// The gradient of every cell handed on to its points. Host twin: backward.rs, which tells the rules.
// Grid: one block of 256 threads per tile of groups, of which each warp has up to 32 that follow each other,
//   in turns where there are too many. Most groups are of one point: lanes share the columns of all those of
//   their warp. Groups of several follow one after the other, and all warps share those of many points.
// Preconditions: out is 0; Args as made by backward.rs; what the groups hold is clamped before it indexes.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_COLUMNS: columns of a lane; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "divide.cuh"
#include "groups.cuh"
#include "rows.cuh"

using namespace rc;

typedef RC_FEATURE T;

enum Flags : u32 {
    SPARSE = 1,     // rows of the gradient are those of the groups, not of cells
    SAME_TYPE = 2,  // the gradient is of the features' type, and aligned as the result is
};

// Mirrors `Args` in backward.rs.
struct Args {
    Features<T> features;
    Groups groups;
    const void* grad;
    T* out;
    Divisor vectors;  // RC_COLUMNS each, in a row
    u64 grad_rows, tiles;
    u32 rows;  // groups of a warp, 32 at most
    u32 width, grad_kind, reduce, flags, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 WARPS = 8;
const int V = RC_COLUMNS;
// Blocks of a multiprocessor: as many as spill no registers.
const int BLOCKS = V > 1 ? 3 : 4;
typedef Pack<T, V> Vector;

// A group: its points, and its row of the gradient.
struct Cell {
    Run run;
    u64 row;
};
// No points where there is no row.
inline Cell cell_of(const Args& args, u64 group, u64 occupied) {
    Cell cell = {run_of(args.groups, group, occupied), group};
    if (cell.run.count && !(args.flags & SPARSE)) cell.row = u64(__ldg(args.groups.cells + group));
    if (cell.row >= args.grad_rows) cell.run.count = 0;
    return cell;
}

inline u32 point_at(const Args& args, u32 place) { return min(__ldg(args.groups.order + place), args.groups.last()); }

inline double grad_at(const Args& args, u64 at) {
    if (args.grad_kind == F32) return ((const float*)args.grad)[at];
    if (args.grad_kind == F64) return ((const double*)args.grad)[at];
    return args.grad_kind == F16 ? widen(((const f16*)args.grad)[at]) : widen(((const bf16*)args.grad)[at]);
}

// What each of `count` points gets of one number.
inline double part_of(const Args& args, double whole, u32 count) {
    return args.reduce == MEAN ? divide_by_count(whole, count) : whole;
}

// V columns of the gradient from `at` on, as they are, and what each of `count` points gets of them.
inline Vector copy_of(const Args& args, u64 at) {
    Vector own;
    own.raw = __ldg((const decltype(own.raw)*)((const T*)args.grad + at));
    return own;
}
inline Vector parts_of(const Args& args, u64 at, u32 count) {
    Vector own;
    #pragma unroll
    for (int c = 0; c < V; c++) narrow(part_of(args, grad_at(args, at + c), count), own.numbers[c]);
    return own;
}

// Groups of one point. Lanes go through the vectors of all groups of their warp side by side, each with AT_ONCE
// under way; each knows one group.
template <int AT_ONCE, class Part> void hand_on_singles(const Args& args, u32 groups, const Cell& cell, u32 point, Part part) {
    const u32 items = groups * u32(args.vectors.number), lane = threadIdx.x & 31;
    #pragma unroll 1
    for (u32 base = 0; base < items; base += 32 * AT_ONCE) {
        Vector parts[AT_ONCE];
        u64 to[AT_ONCE];
        bool single[AT_ONCE];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const u32 item = base + u * 32 + lane;
            u32 vector = min(item, items - 1);
            const u32 group = divide(args.vectors, vector);
            const u64 row = __shfl_sync(~0u, cell.row, group);
            to[u] = u64(__shfl_sync(~0u, point, group)) * args.width + u64(vector) * V;
            single[u] = __shfl_sync(~0u, cell.run.count, group) == 1 && item < items;
            if (single[u]) parts[u] = part(row * args.width + u64(vector) * V);
        }
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (single[u]) *(decltype(parts[u].raw)*)(args.out + to[u]) = parts[u].raw;
    }
}

// All points of a group, by `threads` threads.
inline void hand_on_all(const Args& args, const Cell& cell, u32 thread, u32 threads) {
    const u64 items = u64(cell.run.count) * args.vectors.number;
    const bool copies = (args.flags & SAME_TYPE) && args.reduce != MEAN;
    #pragma unroll 1
    for (u64 item = thread; item < items; item += threads) {
        u64 vector = item;
        const u32 point = point_at(args, cell.run.start + u32(divide(args.vectors, vector)));
        const u64 at = cell.row * args.width + vector * V;
        const Vector part = copies ? copy_of(args, at) : parts_of(args, at, cell.run.count);
        *(decltype(part.raw)*)(args.out + u64(point) * args.width + vector * V) = part.raw;
    }
}

// The first of the points with the greatest order, so far.
struct Best {
    u32 place;
    i64 order;
    void join(u32 other_place, i64 other_order) {
        if (other_order < order || (other_order == order && other_place >= place)) return;
        place = other_place;
        order = other_order;
    }
};
inline i64 order_at(const Args& args, u32 place, u32 column) {
    return order_of(args.features.at(point_at(args, place), column), args.reduce == MIN);
}
inline void hand_on_best(const Args& args, const Best& best, u64 row, u32 column) {
    narrow(grad_at(args, row * args.width + column), args.out[u64(point_at(args, best.place)) * args.width + column]);
}

// Groups of which `several` has a bit, of fewer points than LONG: a lane for each column. `chosen`: a word of shared
// memory for each lane.
inline void pick_few(const Args& args, u32 several, const Cell& cell, u32* chosen) {
    const u32 lane = threadIdx.x & 31;
    __syncwarp();
    if (several >> lane & 1) chosen[__popc(several & ((1u << lane) - 1))] = lane;
    __syncwarp();
    const u32 items = __popc(several) * args.width;  // the host gives a warp few wide groups
    #pragma unroll 1
    for (u32 base = 0; base < items; base += 32) {
        const u32 item = min(base + lane, items - 1);
        const u32 at = item / args.width, column = item - at * args.width, group = chosen[at];
        const u64 row = __shfl_sync(~0u, cell.row, group);
        const u32 start = __shfl_sync(~0u, cell.run.start, group), count = __shfl_sync(~0u, cell.run.count, group);
        if (base + lane >= items) continue;
        Best best = {start, order_at(args, start, column)};
        for (u32 place = start + 1; place < start + count; place++) best.join(place, order_at(args, place, column));
        hand_on_best(args, best, row, column);
    }
}

// A group of LONG points or more, by all warps, each with columns of its own.
inline void pick_many(const Args& args, const Cell& cell) {
    const u32 lane = threadIdx.x & 31, end = cell.run.start + cell.run.count;
    for (u32 column = threadIdx.x / 32; column < args.width; column += WARPS) {
        u32 place = cell.run.start + lane;
        Best best = {place, order_at(args, place, column)};
        for (place += 32; place < end; place += 32) best.join(place, order_at(args, place, column));
        __syncwarp();
        #pragma unroll
        for (int half = 16; half > 0; half /= 2)
            best.join(__shfl_xor_sync(~0u, best.place, half), __shfl_xor_sync(~0u, best.order, half));
        if (lane == 0) hand_on_best(args, best, cell.row, column);
    }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* crowded = (u32*)shared;    // [WARPS]: a bit for each group of a warp
    u32* chosen = crowded + WARPS;  // [WARPS][32]
    const bool picks = args.reduce == MAX || args.reduce == MIN;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const u64 occupied = args.groups.occupied();
    for (u64 tile = blockIdx.x; tile < args.tiles && tile * WARPS * args.rows < occupied; tile += gridDim.x) {
        const u64 first = (tile * WARPS + warp) * args.rows;
        const u32 groups = u32(min(u64(args.rows), occupied - min(first, occupied)));
        Cell own = {{0, 0}, 0};
        if (lane < groups) own = cell_of(args, first + lane, occupied);
        const u32 point = own.run.count ? point_at(args, own.run.start) : 0;
        // The only point gets all of it.
        if (args.flags & SAME_TYPE) hand_on_singles<2>(args, groups, own, point, [&](u64 at) { return copy_of(args, at); });
        else hand_on_singles<1>(args, groups, own, point, [&](u64 at) { return parts_of(args, at, 1); });
        const u32 several = __ballot_sync(~0u, own.run.count > 1 && own.run.count < LONG);
        if (picks) {
            if (several) pick_few(args, several, own, chosen + warp * 32);
        } else {
            for (u32 left = several; left; left &= left - 1) {
                const u32 group = __ffs(left) - 1;
                const Cell cell = {{__shfl_sync(~0u, own.run.start, group), __shfl_sync(~0u, own.run.count, group)},
                                   __shfl_sync(~0u, own.row, group)};
                hand_on_all(args, cell, lane, 32);
            }
        }
        const u32 crowds = __ballot_sync(~0u, own.run.count >= LONG);
        if (!__syncthreads_or(crowds != 0)) continue;
        if (lane == 0) crowded[warp] = crowds;
        __syncthreads();
        for (u32 w = 0; w < WARPS; w++)
            for (u32 left = crowded[w]; left; left &= left - 1) {
                const Cell cell = cell_of(args, (tile * WARPS + w) * args.rows + __ffs(left) - 1, occupied);
                if (picks) pick_many(args, cell);
                else hand_on_all(args, cell, threadIdx.x, 256);
            }
        __syncthreads();  // Nobody reads the bits any more.
    }
}
