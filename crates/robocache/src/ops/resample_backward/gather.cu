// The gradient of resample where it is more than weights, or a batch shares its values: second half. out[b,s,:] = sum over the
// targets t that were made of sample s of what they hand back to it. find.cu has told which these are (links.cuh), so nothing
// here knows stamps. Rows that share their values are summed up in groups (RC_PARTIAL), and the groups by
// rc_resample_backward_sum (RC_SUM).
// Host twin: hand_back.rs, and cpu.rs (store).
// Grid: one block per (group of rows, tile of samples, chunk of units); a thread keeps its unit of columns and takes one sample
//   of each slice of the tile, or, of curves, a run of samples (curve.cuh).
// Preconditions: Args as made by gather_cuda.rs. Links are inside their lists whatever stamps and targets were.
// Determinism: the same bits on every run and for every tile. Tolerance against the CPU: for weights none,
//   the same bits, but for the payload of NaN; others agree to rounding: of sines and roots, and of the order of additions for
//   cubics.
//
// RC_CELL: element type; RC_FORM: columns of a unit (WEIGHTED, CUBIC, SLERP, ROT6D); RC_PARTIAL: out holds sums, not elements;
// RC_SUM; RC_ARGS_SIZE.
#include "rc.cuh"
#include "vjp.cuh"
#include "links.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef Number<Cell>::Compute Sum;
typedef Words<sizeof(Cell)> Vector;
typedef typename Raw<sizeof(Cell)>::Type Access;
typedef Group<Cell> CellGroup;
typedef Links<Sum> List;

#define RC_WEIGHTED 0  // of one column
#define RC_CUBIC 1
#define RC_SLERP 4
#define RC_ROT6D 6

// Mirrors `Args` in gather_cuda.rs. Strides of grad, values and out are in bytes, the last from one unit to the next; `steps`
// are those from number to number.
struct Args {
    const u8* grad;
    const u8* values;
    u8* out;
    const u32* starts;
    const Sum* weights;
    const u32* order;
    const Sum* gaps;
    i64 grad_strides[3], value_strides[3], steps[3], out_strides[3];
    i64 units;  // per row of grad
    i64 rows;
    i64 rows_per_group;
    i64 first_group;
    u32 samples, target_count;
    u32 tile, tiles;    // samples; tiles per group
    u32 chunk, chunks;  // units; chunks per row
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_SUM

// Adds up the groups: grad is [groups,S,D] of sums, `rows` the number of groups, `units` is D.
extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    const i64 each = i64(args.samples) * args.units;
    for (i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x; at < each; at += i64(gridDim.x) * blockDim.x) {
        Sum sum = Sum(0);
        for (i64 group = 0; group < args.rows; group++) sum += ((const Sum*)args.grad)[group * each + at];
        Sum numbers[CellGroup::NUMBERS] = {sum};
        Vector result;
        CellGroup::narrow(numbers, result.words);
        u8* out = args.out + at / args.units * args.out_strides[1] + at % args.units * args.out_strides[2];
        *(Access*)out = result.raw;
    }
}

#else

// What a block works on.
struct Block {
    u32 chunk, start, end;
    i64 group;
};
inline Block block_of(const Args& args) {
    u32 unit = blockIdx.x;
    const u32 chunk = unit % args.chunks;
    unit /= args.chunks;
    const u32 start = unit % args.tiles * args.tile;
    return {chunk, start, min(start + args.tile, args.samples), args.first_group + unit / args.tiles};
}

// The unit of a thread, and which of the samples side by side is its own.
struct Lane {
    u32 number, slice;
    i64 column;
};
inline Lane lane_of(const Args& args, u32 chunk) {
    const i64 first = i64(chunk) * args.chunk;
    const u32 across = u32(min(i64(args.chunk), args.units - first)), number = threadIdx.x / across;
    return {number, blockDim.x / across, first + (threadIdx.x - number * across)};
}

inline List links_of(const Args& args, i64 row) {
    return {args.starts + row * (i64(args.samples) + List::MORE), args.weights + row * args.target_count,
            args.order + row * args.target_count, args.samples};
}

// Which targets a sample is part of: those from `from` to `middle` are linked to the one ahead of it, the others to itself.
struct Reach {
    u32 from, middle, to;
};
inline Reach reach_of(const List& links, u32 sample) {
    const u32 own = links.starts[sample], next = links.starts[sample + 1], ahead = sample > 0 ? links.starts[sample - 1] : own;
    if (!((own | next) & List::TWIN)) return {ahead & ~List::TWIN, own, next};
    if (next & List::TWIN) return {0, 0, 0};
    const u32 middle = own & ~List::TWIN;
    const i32 previous = links.previous(sample);
    return {previous < 0 ? middle : links.start(u32(previous)), middle, next};
}

// Calls visit(target, place in the list, whether it is linked to the sample itself) for each target, in their order.
template <class Visit> void for_each(const List& links, const Reach& reach, Visit visit) {
    if (!links.has_order()) {
        for (u32 at = reach.from; at < reach.to; at++) visit(at, at, at >= reach.middle);
        return;
    }
    u32 ahead = reach.from, at = reach.middle;
    while (ahead < reach.middle || at < reach.to) {
        const bool is_ahead = at >= reach.to || (ahead < reach.middle && links.order[ahead] < links.order[at]);
        const u32 place = is_ahead ? ahead++ : at++;
        visit(links.order[place], place, !is_ahead);
    }
}

#include "units.cuh"
#if RC_FORM == RC_CUBIC
#include "curve.cuh"
#endif

extern "C" __global__ void __launch_bounds__(256, 2) RC_ENTRY(const __grid_constant__ Args args) {
    const Block block = block_of(args);
    const Lane lane = lane_of(args, block.chunk);
    if (lane.number >= lane.slice) return;
#if RC_PARTIAL
    const i64 first_row = block.group * args.rows_per_group, last_row = min(first_row + args.rows_per_group, args.rows);
    for (u32 sample = block.start + lane.number; sample < block.end; sample += lane.slice) {
        Sum sums[NUMBERS] = {};
        for (i64 row = first_row; row < last_row; row++) add_row(args, row, sample, lane.column, sums);
        store(args, place_of(args, block.group, sample, lane.column), sums);
    }
#else
    write_tile(args, block, lane);
#endif
}

#endif
