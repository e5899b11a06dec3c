// The gradient of resample in its values, for methods that are linear in them: out[b,s,:] = sum over the targets t that were
// made of sample s, in order, of their weight on it times grad[b,t,:]. Other methods, and rows that share their values, are
// the matter of find.cu and gather.cu.
// Host twin: cpu.rs (the loops), ../align/locate.rs (the rules).
// Grid: one block per (row, tile of samples, chunk of columns). The block finds the targets that touch its samples, into
//   shared memory, then each thread sums up one vector of columns of a run of samples (walk.cuh), or of one sample after the
//   other.
// Preconditions: Args as made by rows_cuda.rs. Rows of grad and out allow accesses of RC_BYTES bytes, and numbers of samples
//   and targets fit 31 bits. Nothing is assumed of stamps, targets and lengths: rows that resample refuses get 0 and are not
//   reported again; targets in order (the usual case) let a block look only at those near its tile, any other order means to
//   look at all of the row and to sort those that touch the tile (unordered.cuh); more targets than there is room for are not
//   sorted.
// Determinism: the same bits on every run and for every tile. Tolerance against the CPU: none, the same bits, but for the
//   payload of NaN.
//
// RC_CELL: element type; RC_STAMP: i64, double, float; RC_BYTES: bytes per access; RC_PICK_SIZE; RC_ARGS_SIZE.
#include "rc.cuh"
#include "locate.cuh"
#include "rows.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef RC_STAMP Stamp;
typedef Number<Cell>::Compute Sum;
typedef Words<RC_BYTES> Vector;

// Mirrors `Args` in rows_cuda.rs. Strides of grad and out are in bytes, the last from one vector to the next. All others are
// in elements.
struct Args {
    const u8* grad;
    const Stamp* times;
    const Stamp* targets;
    const void* lengths;
    const void* target_lengths;
    u8* out;
    i64 grad_strides[3], time_strides[2], target_strides[2], out_strides[3];
    i64 length_stride, target_length_stride;
    i64 samples, target_count;
    i64 vectors;  // per row
    i64 first_row;
    u32 method, extrapolate, flags;
    u32 reach;          // how many stamps further than its own interval a sample is touched from
    u32 tile, tiles;    // samples; tiles per row
    u32 chunk, chunks;  // vectors; chunks per row
    u32 piece;          // targets that shared memory holds beside bounds for each sample of the tile
    u32 most;           // targets that it holds without
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

typedef i32 Index;
const Index AFTER_ALL = 0x7fffffff;

#include "pick.cuh"

// What all threads know of the row that the block looks at; in shared memory, since registers are
// better spent on gradients that are on their way.
struct State {
    i64 samples, targets;  // that exist
    i64 first, last;       // the targets that may touch the tile
    bool sorted;
};

// Whether resample took the row. All threads of the block take part and get the same answer.
template <class Row> bool row_is_good(const Args& args, const Row& stamps, const Stamps<Stamp>& targets) {
    // NaN compares as out of order, so sorted stamps are finite when both ends are.
    bool bad = has_bad_pair(stamps, threadIdx.x, blockDim.x);
    const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
    bad |= !is_finite(low) || !is_finite(high) || is_coarse(low) || is_coarse(high);
    if (args.extrapolate == ERROR)
        for (i64 i = threadIdx.x; i < targets.length; i += blockDim.x) bad |= targets.at(i) < low || targets.at(i) > high;
    return !__syncthreads_or(bad);
}

// Which targets may touch the `count` samples from `start` on.
template <class Row>
void find_window(const Args& args, const Row& stamps, const Stamps<Stamp>& targets, i64 start, i64 count, State& state) {
    typedef typename Row::Index RowIndex;
    if (start >= stamps.length || targets.length == 0) return;
    RowIndex before = RowIndex(start), after = RowIndex(min(start + count, i64(stamps.length)) - 1);
    for (u32 step = 0; step < args.reach && before >= 0; step++) before = step_back(stamps, before);
    for (u32 step = 0; step < args.reach && after < stamps.length; step++) after = step_on(stamps, after);
    // Samples near an end are touched by whatever lies outside.
    const bool has_low = before >= 0, has_high = after < stamps.length;
    const Stamp low = has_low ? stamps.at(before) : Stamp(0), high = has_high ? stamps.at(after) : Stamp(0);
    if (threadIdx.x == 0) state.last = has_high && targets.at(0) > high ? 0 : targets.length;
    __syncthreads();
    const int AT_ONCE = 4;  // targets that are on their way
    const u32 length = u32(targets.length);
    bool disorder = false;
    for (u32 base = threadIdx.x; base < length; base += blockDim.x * AT_ONCE) {
        Stamp own[AT_ONCE], others[AT_ONCE];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const u32 i = min(base + blockDim.x * u, length - 1);
            own[u] = targets.at(i);
            others[u] = targets.at(min(i + 1, length - 1));
        }
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const u32 i = base + blockDim.x * u;
            if (i >= length) break;
            const Stamp target = own[u], next = others[u];
            const bool ends = i + 1 == length;
            disorder |= !ends && !(target <= next);
            // In order, each of these is true for one target at most; else what they leave does not matter.
            if (has_low && target < low && (ends || !(next < low))) atomicMax(&state.first, i64(i) + 1);
            if (has_high && !ends && !(target > high) && next > high) atomicMin(&state.last, i64(i) + 1);
        }
    }
    if (__syncthreads_or(disorder) && threadIdx.x == 0) {
        state.first = 0;
        state.last = targets.length;
        state.sorted = false;
    }
}

// Blocks that a multiprocessor should hold: as many as registers allow without spilling.
#define RC_BLOCKS (__CUDA_ARCH__ > 1030 ? 2 : NUMBERS <= 4 && sizeof(Sum) + sizeof(Stamp) == 8 ? 4 : 3)

// What a block works on. Found anew where it is needed: registers are better spent.
struct Block {
    u32 chunk, count;
    i64 start, row;
};
inline Block block_of(const Args& args) {
    u32 unit;
    asm volatile("mov.u32 %0, %ctaid.x;" : "=r"(unit));
    const u32 chunk = unit % args.chunks;
    unit /= args.chunks;
    const i64 start = i64(unit % args.tiles) * args.tile;
    return {chunk, u32(min(i64(args.tile), args.samples - start)), start, args.first_row + unit / args.tiles};
}

// The vector of a thread, and which of the samples side by side is its own; also found anew.
struct Lane {
    u32 number, slice;
    i64 column;
};
inline Lane lane_of(const Args& args, u32 chunk) {
    u32 thread;
    asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
    const i64 first = i64(chunk) * args.chunk;
    const u32 across = u32(min(i64(args.chunk), args.vectors - first)), number = thread / across;
    return {number, blockDim.x / across, first + (thread - number * across)};
}

inline u8* place_of(const Args& args, i64 row, i64 sample, i64 column) {
    return args.out + row * args.out_strides[0] + sample * args.out_strides[1] + column * args.out_strides[2];
}

#include "add.cuh"
#include "walk.cuh"

inline Stamps<Stamp> row_targets(const Args& args, i64 row, i64 length) {
    return {args.targets + row * args.target_strides[0], args.target_strides[1], length};
}

// The stamps of a row where they are read from: in shared memory, known as such or not, or where they were given.
inline Staged<Stamp> row_stamps(const Args&, i64, i64 length, const Stamp* staged, Staged<Stamp>*) { return {staged, i32(length)}; }
inline Stamps<Stamp> row_stamps(const Args& args, i64 row, i64 length, const Stamp* staged, Stamps<Stamp>*) {
    if (args.flags & STAGE) return {staged, 1, length};
    return {args.times + row * args.time_strides[0], args.time_strides[1], length};
}

#include "unordered.cuh"

// Looks at a row: which of its targets may touch the tile.
template <class Row> void look_at(const Args& args, i64 row, i64 start, u32 count, Stamp* staged, State& state) {
    i64 samples = args.samples, targets = args.target_count;
    bool usable = true;
    if (args.lengths)
        usable &= read_length(args.lengths, args.flags & WIDE_LENGTHS, row * args.length_stride, args.samples, samples);
    if (args.target_lengths)
        usable &= read_length(args.target_lengths, args.flags & WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                              args.target_count, targets);
    if (args.flags & STAGE) {
        const Stamps<Stamp> given = {args.times + row * args.time_strides[0], args.time_strides[1], samples};
        stage(given, staged);
    }
    if (threadIdx.x == 0) state = {samples, targets, 0, 0, true};
    __syncthreads();
    const Row stamps = row_stamps(args, row, samples, staged, (Row*)nullptr);
    const Stamps<Stamp> wanted = row_targets(args, row, targets);
    if (samples == 0) return;
    if ((args.flags & CHECK) && (!usable || !row_is_good(args, stamps, wanted))) return;
    find_window(args, stamps, wanted, start, count, state);
}

// Finds what the targets of a piece were made of.
template <class Row>
void find_all(const Args& args, i64 row, i64 piece, u32 length, const Stamp* staged, const State& state, Pick* picks) {
    const Row stamps = row_stamps(args, row, state.samples, staged, (Row*)nullptr);
    const Stamps<Stamp> targets = row_targets(args, row, state.targets);
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) picks[i] = find(args, stamps, targets.at(piece + i));
    __syncthreads();
}

// The same, and which of them each sample of the tile needs; all, where they are not in order.
template <class Row>
void fill(const Args& args, i64 row, i64 piece, u32 length, i64 start, u32 count, const Stamp* staged, const State& state,
          Pick* picks, u32* from, u32* to) {
    find_all<Row>(args, row, piece, length, staged, state, picks);
    if (!state.sorted) return;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        from[i] = count_before(picks, length, Index(start + i));
        to[i] = count_reaching(picks, length, Index(start + i));
    }
    __syncthreads();
}

// Looks at the row of the block and finds the picks of its tile: tells whether targets are in order and all of them fit.
template <class Row> bool find_tile(const Args& args, Stamp* staged, State& state, Pick* picks) {
    const Block block = block_of(args);
    look_at<Row>(args, block.row, block.start, block.count, staged, state);
    __syncthreads();
    // Stamps that are not in order, and nobody checked, may give a window that ends before it starts.
    const i64 length = state.last - state.first;
    if (!state.sorted || length < 0 || length > args.most) return false;
    find_all<Row>(args, block.row, state.first, u32(length), staged, state, picks);
    return true;
}

// What is not the usual case: targets in any order, or more of them than there is room for. Compiled once: stamps are read
// wherever they are.
inline void rest(const Args& args, Stamp* staged, State& state, Pick* picks, u32* from, u32* to) {
    typedef Stamps<Stamp> Row;
    const auto [chunk, count, start, row] = block_of(args);
    if (!state.sorted && sort_picks<Row>(args, row, start, count, staged, state, picks)) return add_tile<Row>(args, staged, state, picks);
    // A thread keeps its column and takes one sample of each slice of the tile.
    bool ready = false;  // the only piece is in shared memory
    const Lane lane = lane_of(args, chunk);
    for (u32 base = 0; base < count; base += lane.slice) {
        const u32 own = base + lane.number;
        const bool takes_part = lane.number < lane.slice && own < count;
        Sum sums[NUMBERS] = {};
        const u32 at_once = state.sorted ? args.piece : args.most;
        for (i64 piece = state.first; piece < state.last; piece += at_once) {
            const u32 length = u32(min(i64(at_once), state.last - piece));
            if (!ready) {
                __syncthreads();  // Nobody reads the last piece any more.
                fill<Row>(args, row, piece, length, start, count, staged, state, picks, from, to);
                ready = length == state.last - state.first;
            }
            if (takes_part)
                add(args, args.grad + row * args.grad_strides[0] + piece * args.grad_strides[1] + lane.column * args.grad_strides[2], picks,
                    state.sorted ? from[own] : 0, state.sorted ? to[own] : length, Index(start + own), sums);
        }
        if (takes_part) store(place_of(args, row, start + own, lane.column), sums);
    }
}

extern "C" __global__ void __launch_bounds__(256, RC_BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ State state;
    Pick* picks = (Pick*)shared;
    u32* from = (u32*)(picks + args.piece);
    u32* to = from + args.tile;
    Stamp* staged = (Stamp*)(to + args.tile);  // at 16 bytes: the tile is even
    const bool near = args.flags & STAGE;
    if (near ? find_tile<Staged<Stamp>>(args, staged, state, picks) : find_tile<Stamps<Stamp>>(args, staged, state, picks))
        walk_tile(args, block_of(args), picks, state);
    else
        rest(args, staged, state, picks, from, to);
}
