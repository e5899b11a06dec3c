// Values of streams at other times: out[b,t,:] from the one or two samples around targets[b,t].
// Host twin: cpu.rs (the loops), locate.rs (the rules), cells.rs (blending).
// Grid: one block per (row, tile of targets, chunk of columns), or per several whole rows where rows
//   are short; the block first finds the samples of its targets, with the stamps in shared memory where
//   they fit, then copies rows.
// Preconditions: Args as made by cuda.rs. Unless RC_STRIDED, rows of values and out allow accesses
//   of RC_BYTES bytes, and indices and strides fit 32 bits. Several rows in a block: rows of values and
//   out follow each other without a gap, and their stamps fit in shared memory. Nothing is assumed of the
//   stamps, targets and lengths themselves.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_CELL: element type; RC_BLEND: whether it is blended or only copied; RC_STAMP: i64, double,
// float; RC_BYTES: bytes per access; RC_STRIDED: any strides, 64-bit; RC_ARGS_SIZE.
#include "rc.cuh"
#include "report.cuh"
#include "locate.cuh"
#include "rows.cuh"
#include "vectors.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef RC_STAMP Stamp;

// Mirrors `Args` in cuda.rs. Strides of values and out are in bytes, all others in elements.
struct Args {
    const u8* values;
    const Stamp* times;
    const Stamp* targets;
    const void* lengths;
    const void* target_lengths;
    u8* out;
    u8* valid;
    i64 value_strides[3], time_strides[2], target_strides[2], out_strides[3], valid_strides[2];
    i64 length_stride, target_length_stride;
    i64 batch;  // rows of this launch
    i64 samples, target_count;
    i64 vectors;  // per row of values, RC_BYTES each
    Limit max_gap;
    u64 missing;
    u64 code;  // what reports start from
    u64 first_row;
    Reporter reporter;
    u32 method, extrapolate, flags, tile;
    u32 tiles, chunks;  // per row
    u32 chunk;          // vectors
    u32 rows;           // of the batch in a block
    u32 per_samples, per_targets;  // 2^32 over them, rounded up
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_BLEND
typedef Number<Cell>::Compute Weight;
#else
typedef float Weight;
#endif
#if RC_STRIDED
typedef i64 Index, Stride;
#else
typedef i32 Index;
typedef u32 Stride;
#endif

// What a target of the tile is made of: the line through two samples, with the weight of the
// second. One sample as it is: twice that sample with the weight -0, which keeps every finite
// number and the sign of 0. No value: the weight NaN. Samples can be read in every case.
struct __align__(16) Pick {
    Index first, second;
    Weight weight;
};

// What a target is made of, and whether it is valid.
template <class Row> Pick pick_of(const Args& args, const Row& stamps, Stamp target, bool& valid) {
    auto place = locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), args.max_gap);
    valid = place.valid;
    Weight weight = Weight(-0.0);
#if RC_BLEND
    if (place.first != place.second) {
        weight = ratio(Weight(), target, stamps.at(place.first), stamps.at(place.second));
        // A sample of weight 0 must not matter, not even as NaN.
        if (weight == Weight(0)) place.second = place.first;
        if (weight == Weight(1)) place.first = place.second;
        if (place.first == place.second) weight = Weight(-0.0);
    }
#endif
    if (place.first < 0) return {0, 0, Weight(__int_as_float(0x7fc00000))};
    return {Index(place.first), Index(place.second), weight};
}

// Finds the samples of the tile's targets.
template <class Row>
void search(const Args& args, const Row& stamps, const Stamps<Stamp>& targets, bool usable, Stamp own, u64 row, i64 start,
            u32 count, bool write_valid, Pick* picks) {
    for (u32 t = threadIdx.x; t < count; t += blockDim.x) {
        const i64 index = start + t;
        const Stamp target = t == threadIdx.x ? own : targets.at(index);
        bool valid = false;
        picks[t] = {0, 0, Weight(__int_as_float(0x7fc00000))};
        if (usable && index < targets.length) picks[t] = pick_of(args, stamps, target, valid);
        if (write_valid) args.valid[i64(row) * args.valid_strides[0] + index * args.valid_strides[1]] = valid;
    }
}

// Blocks of 256 threads that a multiprocessor should hold: as many as the compiler manages without
// spilling registers, which differs between architectures.
#if __CUDA_ARCH__ == 900
const int BLOCKS = RC_BLEND && sizeof(Cell) == 8 ? 3 : 4;
#elif __CUDA_ARCH__ == 800
const int BLOCKS = 4;
#elif __CUDA_ARCH__ == 1000
const int BLOCKS = 2;
#else
const int BLOCKS = 3;
#endif

// Writes a chunk of the columns of targets that follow each other.
inline void copy_all(const Args& args, const u8* values, u8* out, u32 chunk, const Pick* picks, u32 count) {
    const i64 first_vector = i64(chunk) * args.chunk;
    const u32 vectors = u32(min(i64(args.chunk), args.vectors - first_vector));
    // A thread keeps its column and goes through targets; wide rows take several rounds.
    const u32 across = min(vectors, blockDim.x), step = blockDim.x / max(across, 1u);
    const u32 t = threadIdx.x / max(across, 1u);
    if (t >= step) return;
    for (u32 v = threadIdx.x - t * across; v < vectors; v += across) {
        const i64 column = first_vector + v;
        // As many at once as 64 registers hold, so that a multiprocessor holds four blocks of 256 threads.
        const Far<Stride> from(values + column * args.value_strides[2], Stride(args.value_strides[1]));
        copy_column<Cell, RC_BYTES, RC_BLEND, 4>(from, out + column * args.out_strides[2], Stride(args.out_strides[1]),
                                                 args.missing, picks, t, count, step);
    }
}

#if !RC_STRIDED
// Several rows in a block, side by side: their stamps in shared memory, their targets one after the other.
const u32 MOST_ROWS = 64;
inline u32 part_of(u32 number, u32 inverse) { return inverse ? __umulhi(number, inverse) : number; }

// Looks at the rows one by one, since something seems wrong with them; those that cannot be used get the length -1.
inline void look_closely(const Args& args, const Stamp* staged, u32 pitch, i32* lengths, const i32* target_lengths, u64 row, u32 rows) {
    for (u32 r = 0; r < rows; r++) {
        const Stamps<Stamp> stamps = {staged + r * pitch, 1, lengths[r]};
        const Stamps<Stamp> targets = {args.targets + i64(row + r) * args.target_strides[0], args.target_strides[1], target_lengths[r]};
        const bool good = lengths[r] < 0 || row_is_good(args, stamps, targets, row + r);
        __syncthreads();
        if (!good && threadIdx.x == 0) lengths[r] = -1;
        __syncthreads();
    }
}

// Finds the samples of all targets of the rows.
inline void search_rows(const Args& args, u64 row, u32 rows, Pick* picks, Stamp* staged) {
    __shared__ i32 lengths[MOST_ROWS], target_lengths[MOST_ROWS];
    const u32 samples = u32(args.samples), targets = u32(args.target_count), count = rows * targets;
    // The first target is on its way while the stamps are looked at.
    Stamp own = 0;
    const u32 mine = part_of(threadIdx.x, args.per_targets);
    if (threadIdx.x < count)
        own = args.targets[i64(row + mine) * args.target_strides[0] + i64(threadIdx.x - mine * targets) * args.target_strides[1]];
    // A clock that all rows share is brought once.
    const u32 clocks = args.time_strides[0] == 0 ? 1 : rows, pitch = args.time_strides[0] == 0 ? 0 : samples;
    const Stamp* times = args.times + i64(row) * args.time_strides[0];
    if (args.time_strides[1] == 1 && (clocks == 1 || args.time_strides[0] == args.samples)) {
        stage(Stamps<Stamp>{times, 1, clocks * samples}, staged);
    } else {
        gather(staged, 0, clocks * samples, [&](u32 i) {
            const u32 r = part_of(i, args.per_samples);
            return times[i64(r) * args.time_strides[0] + i64(i - r * samples) * args.time_strides[1]];
        });
    }
    for (u32 r = threadIdx.x; r < rows; r += blockDim.x) {
        i64 length = args.samples, wanted = args.target_count;
        bool usable = true;
        if (args.lengths) usable &= read_length(args, args.lengths, WIDE_LENGTHS, i64(row + r) * args.length_stride, args.samples, LENGTH, row + r, length, true);
        if (args.target_lengths)
            usable &= read_length(args, args.target_lengths, WIDE_TARGET_LENGTHS, i64(row + r) * args.target_length_stride, args.target_count, TARGET_LENGTH, row + r, wanted, true);
        lengths[r] = usable ? i32(length) : -1;
        target_lengths[r] = i32(wanted);
    }
    __syncthreads();
    if (args.flags & CHECK) {
        bool wrong = args.extrapolate == ERROR;
        // One look at a clock that is the same for all rows.
        const u32 looked_at = pitch == 0 && !args.lengths && !args.target_lengths ? samples : rows * samples;
        for (u32 i = threadIdx.x; i < looked_at; i += blockDim.x) {
            const u32 r = part_of(i, args.per_samples);
            const i32 at = i32(i - r * samples), length = lengths[r];
            const Stamp* stamp = staged + r * pitch + at;
            // NaN compares as out of order, so sorted stamps are finite when both ends are.
            if (at + 1 < length) wrong |= !(stamp[0] <= stamp[1]);
            if (at == 0 || at + 1 == length) wrong |= at < length && (!is_finite(stamp[0]) || is_coarse(stamp[0]));
        }
        if (__syncthreads_or(wrong)) look_closely(args, staged, pitch, lengths, target_lengths, row, rows);
    }
    for (u32 p = threadIdx.x; p < count; p += blockDim.x) {
        const u32 r = part_of(p, args.per_targets), t = p - r * targets;
        const i32 length = lengths[r];
        bool valid = false;
        Pick pick = {0, 0, Weight(__int_as_float(0x7fc00000))};
        if (length >= 0 && i32(t) < target_lengths[r]) {
            const Stamp target = p == threadIdx.x ? own : args.targets[i64(row + r) * args.target_strides[0] + i64(t) * args.target_strides[1]];
            pick = pick_of(args, Staged<Stamp>{staged + r * pitch, length}, target, valid);
        }
        pick.first += r * samples;
        pick.second += r * samples;
        picks[p] = pick;
        if (args.valid) args.valid[i64(row + r) * args.valid_strides[0] + i64(t) * args.valid_strides[1]] = valid;
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Pick* picks = (Pick*)shared;
    Stamp* staged = (Stamp*)(picks + args.tile * args.rows);

#if !RC_STRIDED
    if (args.rows > 1) {
        const u64 row = u64(blockIdx.x) * args.rows;
        const u32 rows = u32(min(u64(args.rows), u64(args.batch) - row));
        search_rows(args, row, rows, picks, staged);
        __syncthreads();
        copy_all(args, args.values + i64(row) * args.value_strides[0], args.out + i64(row) * args.out_strides[0], 0, picks,
                 rows * u32(args.target_count));
        return;
    }
#endif
    // Rows in the slow position: neighbours share a row's stamps in the cache.
    u32 unit = blockIdx.x, chunk = 0, tile = 0;
    if (args.chunks > 1) { chunk = unit % args.chunks; unit /= args.chunks; }
    if (args.tiles > 1) { tile = unit % args.tiles; unit /= args.tiles; }
    const u64 row = unit;
    const i64 start = i64(tile) * args.tile;
    const u32 count = u32(min(i64(args.tile), args.target_count - start));

    Stamps<Stamp> stamps = {args.times + i64(row) * args.time_strides[0], args.time_strides[1], args.samples};
    Stamps<Stamp> targets = {args.targets + i64(row) * args.target_strides[0], args.target_strides[1], args.target_count};
    // The target is on its way while the stamps are looked at.
    Stamp own = 0;
    if (threadIdx.x < count) own = targets.at(start + threadIdx.x);

    bool usable = true;
    if (args.lengths)
        usable &= read_length(args, args.lengths, WIDE_LENGTHS, i64(row) * args.length_stride, args.samples, LENGTH, row, stamps.length);
    if (args.target_lengths)
        usable &= read_length(args, args.target_lengths, WIDE_TARGET_LENGTHS, i64(row) * args.target_length_stride,
                              args.target_count, TARGET_LENGTH, row, targets.length);

    const bool write_valid = args.valid && chunk == 0;
    if (args.flags & STAGE) {
        stage(stamps, staged);
        __syncthreads();
        const Staged<Stamp> near = {staged, i32(stamps.length)};
        if (usable && (args.flags & CHECK)) usable = row_is_good(args, near, targets, row);
        search(args, near, targets, usable, own, row, start, count, write_valid, picks);
    } else {
        if (usable && (args.flags & CHECK)) usable = row_is_good(args, stamps, targets, row);
        search(args, stamps, targets, usable, own, row, start, count, write_valid, picks);
    }
    __syncthreads();

    copy_all(args, args.values + i64(row) * args.value_strides[0],
             args.out + i64(row) * args.out_strides[0] + start * args.out_strides[1], chunk, picks, count);
}
