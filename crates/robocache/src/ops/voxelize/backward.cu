// The gradient of every cell handed on to its points. Host twin: backward.rs, which tells the rules.
// Grid: blocks of 256 threads; a warp for each group of points, in turns, and all threads together for
//   groups of many points.
// Preconditions: out is 0; Args as made by backward.rs; what the groups hold is clamped before it indexes.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for
//   the payload of NaN.
//
// RC_FEATURE: element type; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "fold.cuh"

using namespace rc;

// Mirrors `Args` in backward.rs.
struct Args {
    Features<RC_FEATURE> features;
    const i64* cells;
    const i32* starts;
    const i32* order;
    const i64* count;
    const void* grad;
    RC_FEATURE* out;
    u64 rows, total;  // rows of the gradient, points
    i64 width;
    u32 grad_kind, reduce, sparse, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

inline u32 point_at(const Args& args, u32 place) { return u32(min(u64(u32(args.order[place])), args.total - 1)); }

// The group's points, and its row of the gradient; no points where there is none.
void read_group(const Args& args, u64 group, u64 groups, u32& start, u32& end, u64& row) {
    start = end = 0;
    row = 0;
    if (group >= groups) return;
    row = args.sparse ? group : u64(args.cells[group]);
    if (row >= args.rows) return;
    end = u32(min(u64(max(args.starts[group + 1], 0)), args.total));
    start = min(u32(max(args.starts[group], 0)), end);
}

double part_of(const Args& args, u64 row, i64 column, u32 count) {
    const i64 at = i64(row) * args.width + column;
    double whole;
    if (args.grad_kind == F32) whole = ((const float*)args.grad)[at];
    else if (args.grad_kind == F64) whole = ((const double*)args.grad)[at];
    else whole = args.grad_kind == F16 ? widen(((const f16*)args.grad)[at]) : widen(((const bf16*)args.grad)[at]);
    return args.reduce == MEAN ? whole / double(count) : whole;
}

inline i64 order_at(const Args& args, u32 place, i64 column) {
    return order_of(args.features.at(point_at(args, place), column), args.reduce == MIN);
}

void hand_on(const Args& args, u32 place, i64 column, double part) {
    narrow(part, args.out[i64(point_at(args, place)) * args.width + column]);
}

extern "C" __global__ void __launch_bounds__(256, 4) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    i64* orders = (i64*)shared;           // [256]
    u32* places = (u32*)(orders + 256);   // [256]
    const bool picks = args.reduce == MAX || args.reduce == MIN;
    const u64 groups = u64(min(max(*args.count, i64(0)), i64(args.total)));
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;

    for (u64 base = u64(blockIdx.x) * 8; base < groups; base += u64(gridDim.x) * 8) {
        u32 start, end;
        u64 row;
        read_group(args, base + warp, groups, start, end, row);
        const u32 count = end - start;
        if (count < LONG) {
            if (picks) {
                for (i64 column = lane; count && column < args.width; column += 32) {
                    u32 best = start;
                    i64 most = order_at(args, start, column);
                    for (u32 p = start + 1; p < end; p++) {
                        const i64 order = order_at(args, p, column);
                        if (order > most) {
                            most = order;
                            best = p;
                        }
                    }
                    hand_on(args, best, column, part_of(args, row, column, count));
                }
            } else {
                for (i64 i = lane; i < count * args.width; i += 32)
                    hand_on(args, start + u32(i / args.width), i % args.width,
                            part_of(args, row, i % args.width, count));
            }
        }
        if (!__syncthreads_or(count >= LONG)) continue;
        for (u32 w = 0; w < 8; w++) {
            read_group(args, base + w, groups, start, end, row);
            const u32 many = end - start;
            if (many < LONG) continue;
            if (!picks) {
                for (i64 i = threadIdx.x; i < many * args.width; i += 256)
                    hand_on(args, start + u32(i / args.width), i % args.width,
                            part_of(args, row, i % args.width, many));
                continue;
            }
            for (i64 column = 0; column < args.width; column++) {
                u32 best = ~0u;
                i64 most = 0;
                for (u32 p = start + threadIdx.x; p < end; p += 256) {
                    const i64 order = order_at(args, p, column);
                    if (best == ~0u || order > most) {
                        most = order;
                        best = p;
                    }
                }
                orders[threadIdx.x] = most;
                places[threadIdx.x] = best;
                __syncthreads();
                if (threadIdx.x == 0) {
                    // The first of the greatest: places of a thread without points are none.
                    for (u32 t = 1; t < 256; t++) {
                        if (places[t] == ~0u) continue;
                        if (orders[t] > most || (orders[t] == most && places[t] < best)) {
                            most = orders[t];
                            best = places[t];
                        }
                    }
                    hand_on(args, best, column, part_of(args, row, column, many));
                }
                __syncthreads();
            }
        }
    }
}
