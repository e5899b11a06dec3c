// The arguments of `align`, and which samples the targets of a block need in each stream.
// Host twin: arguments.rs (Args), mixed.rs (gather).
#pragma once
#include "rows.cuh"

using namespace rc;

#if !RC_MIXED
typedef RC_OUT Out;
#endif
typedef RC_STAMP Stamp;

// How the columns of a stream are made.
enum Kind : u32 { MISSING, SINGLE, LINE_KIND, RICH };
// The methods of locate.cuh, then those that are more than lines and copies; zeros for a missing stream.
enum : u32 { CUBIC = 4, SLERP, ANGLE, ROT6D, ZEROS };

// Mirror the structs in arguments.rs. Strides of values and out are in bytes, all others in elements.
struct StreamArgs {
    const u8* values;
    const Stamp* times;
    const void* lengths;
    const float* scale;  // null: scale_all
    i64 value_strides[3], time_strides[2], length_stride, scale_stride;
    i64 samples;
    u64 max_gap;     // nanoseconds, or the bits of seconds as double
    u32 staged;    // where its stamps lie in shared memory
    u32 clock;     // how far from each other those of the rows lie there; 0 where rows share them
    u32 row_step;  // samples from row to row, where a block takes several
    float scale_all;
    u8 kind, method, dtype, wide_lengths, scaled, padding[3];
};
// Neighbouring columns of one stream that are made by one method, in units of a few numbers.
struct SegmentArgs {
    u32 first_unit, units;  // of those of a target
    u32 start;              // its first column in the stream
    u32 column;             // and in the output
    u32 inverse;            // 2^31 over `units`, rounded up
    u16 stream;
    u8 method;
    u8 per_unit;  // numbers of a unit
    u8 together;  // that one access takes
    u8 near;      // whether strides are not negative and fit 32 bits
    u16 padding;
};
struct Args {
    const Stamp* targets;
    const void* target_lengths;
    u8* out;
    u8* valid;
    float* age;
    i64 target_strides[2], out_strides[3], valid_strides[3], age_strides[3];
    i64 target_length_stride, target_count;
    i64 batch;
    u64 missing;
    u64 code;  // what reports start from
    u64 first_row;
    Reporter reporter;
    u32 extrapolate, flags;
    u32 rows, tile;     // of a block: rows of the batch, targets of each
    u32 tiles, chunk;   // blocks that share a row's targets; units of a target that a block writes
    u32 chunks;         // blocks that share those
    u32 streams, segments, units, out_dtype;
    u32 besides_at, lengths_at, stamps_at;  // bytes in shared memory
    u32 present;        // streams that exist, by bits
    StreamArgs stream[RC_STREAMS];
    SegmentArgs segment[RC_SEGMENTS];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");
// Flags: some columns need more than two samples; some rows are shorter than others; results are collected in shared memory,
// where the stamps were; rows are read four numbers at a time instead of two (whole.cuh).
const u32 CUBICS = 16, RAGGED = 32, COLLECT = 64, FOURS = 128;

// Calls with one stream of one method and dense results, most of `resample`, have kernels of their own: less to keep and to
// ask.
const bool ONE = RC_STREAMS == 1;

// What the block computes in; a stream that needs less rounds to float on its own.
#if RC_MIXED
typedef double Weight;
#elif RC_FLOAT
typedef Number<Out>::Compute Weight;
#else
typedef float Weight;
#endif

// What a target is made of: the line through two samples, with the weight of the second. One sample as it is: twice that
// sample with the weight -0, which keeps every finite number and the sign of 0. No value: the weight NaN. Samples can be read
// in every case. They are counted from the block's first row. The uppermost bit of `second`: the later one is nearer.
struct __align__(16) Pick {
    u32 first, second;
    Weight weight;
};
const u32 LATER = 0x80000000u;
// The samples beside those two, and the gaps to them; a gap of 0 where there is none.
struct __align__(16) Beside {
    u32 before, behind;
    Weight before_gap, behind_gap;
};

// x / y for x < 2^16: half an integer keeps it far enough from the next for a quick division.
inline u32 quotient(u32 x, u32 y) { return u32(__fdividef(float(x) + 0.5f, float(y))); }

// What a block works on, and where it keeps what it knows of that in shared memory.
struct Block {
    const Args& args;
    u8* memory;
    i64 row;    // the first
    u32 rows;   // how many
    i64 start;  // the first target
    u32 per;    // targets of a row
    u32 first, end;  // units
    u32 needed;      // streams that it has to look at

    Block(const Args& args, u8* memory) : args(args), memory(memory) {
        u32 unit = blockIdx.x, chunk = 0, tile = 0;
        if (args.chunks > 1) { chunk = unit % args.chunks; unit /= args.chunks; }
        if (args.tiles > 1) { tile = unit % args.tiles; unit /= args.tiles; }
        row = i64(args.first_row + u64(unit) * args.rows);
        rows = u32(min(i64(args.rows), args.batch - row));
        start = i64(tile) * args.tile;
        per = u32(min(i64(args.tile), args.target_count - start));
        first = chunk * args.chunk;
        end = min(first + args.chunk, args.units);
        needed = args.present;
        if (!ONE && args.chunks > 1) look_only(chunk == 0);
    }
    u32 streams() const { return ONE ? 1 : args.streams; }
    // Leaves streams without units in the block to other blocks; the first one looks at all where it tells what is valid
    // or how old, and at those without columns.
    void look_only(bool tells) {
        if (tells && (args.valid || args.age)) return;
        needed = 0;
        for (u32 g = 0; g < args.segments; g++) {
            const SegmentArgs& segment = args.segment[g];
            const bool inside = segment.first_unit < end && first < segment.first_unit + segment.units;
            if (segment.method != ZEROS && (inside || (tells && segment.units == 0))) needed |= 1u << segment.stream;
        }
    }
    u32 count() const { return rows * per; }
    bool tells() const { return first == 0; }
    bool looks_at(u32 s) const { return ONE || needed >> s & 1; }
    // Divisions only where several rows need them.
    u32 row_of(u32 p) const { return args.rows == 1 ? 0 : quotient(p, per); }

    Pick* picks(u32 s) const { return (Pick*)memory + s * (args.rows * args.tile); }
    Beside* besides(u32 s) const { return (Beside*)(memory + args.besides_at) + s * (args.rows * args.tile); }
    // Samples of a stream in each row, targets of each row of those of the block, and streams whose row cannot be used.
    i32* lengths(u32 s) const { return (i32*)(memory + args.lengths_at) + s * args.rows; }
    i32* target_lengths() const { return lengths(streams()); }
    u32* bad() const { return (u32*)lengths(streams() + 1); }
    Stamp* stamps(u32 s) const { return (Stamp*)(memory + args.stamps_at) + args.stream[s].staged; }
    // Where the results for `out` are collected: as far behind a multiple of 16 bytes.
    u8* collected(const u8* out) const { return memory + args.stamps_at + (u32(u64(out)) & 15); }
    bool usable(u32 s, u32 r) const { return !(bad()[r] >> s & 1); }
};

// What rows.cuh asks for, for one stream.
struct Judge {
    const Reporter& reporter;
    u64 code, first_row;
    u32 flags, extrapolate;
};
Judge judge(const Args& args, u32 s) { return {args.reporter, args.code | u64(s) << 16, 0, args.flags, args.extrapolate}; }

// Kernels that wait for memory gain nothing from a quicker search, and have no registers for it.
#if RC_RICH && !RC_MIXED
typedef Even<Stamp> NearStamps;
#else
typedef Staged<Stamp> NearStamps;
#endif

template <bool STAGED> auto stamps_of(const Block& block, u32 s, u32 r) {
    const StreamArgs& stream = block.args.stream[s];
    const i32 length = block.lengths(s)[r];
    if constexpr (STAGED) return NearStamps{block.stamps(s) + r * stream.clock, length};
    else return Stamps<Stamp>{stream.times + (block.row + r) * stream.time_strides[0], stream.time_strides[1], length};
}

// Lengths of streams and of targets, which other threads know after a barrier.
inline void read_lengths(const Block& block) {
    const Args& args = block.args;
    const bool ragged = args.flags & RAGGED;
    for (u32 r = threadIdx.x; r < block.rows; r += blockDim.x) block.bad()[r] = 0;
    if (ragged) __syncthreads();
    for (u32 i = threadIdx.x; i < (block.streams() + 1) * block.rows; i += blockDim.x) {
        const u32 s = quotient(i, block.rows), r = i - s * block.rows;
        const i64 row = block.row + r;
        if (s == block.streams()) {
            i64 length = args.target_count;
            const Judge own = {args.reporter, args.code, 0, args.flags, args.extrapolate};
            if (args.target_lengths && !read_length(own, args.target_lengths, WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                                                    args.target_count, TARGET_LENGTH, row, length, block.tells()))
                atomicOr(block.bad() + r, ~0u);
            block.target_lengths()[r] = i32(min(max(length - block.start, i64(0)), i64(block.per)));
            continue;
        }
        const StreamArgs& stream = args.stream[ONE ? 0 : s];
        i64 length = stream.samples;
        if (ragged && stream.lengths && stream.kind != MISSING) {
            const i64 at = row * stream.length_stride;
            const i64 given = stream.wide_lengths ? ((const i64*)stream.lengths)[at] : i64(((const i32*)stream.lengths)[at]);
            length = min(max(given, i64(0)), stream.samples);
            if (given != length && (args.flags & CHECK)) {
                found(judge(args, s), LENGTH, row, 0, u64(given), u64(stream.samples));
                atomicOr(block.bad() + r, 1u << s);
            }
        }
        block.lengths(s)[r] = i32(length);
    }
}

// Copies to shared memory without waiting, until `await_copies`.
template <int BYTES> void copy_near(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(near_place(to)), "l"(from), "n"(BYTES) : "memory");
}
inline void await_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");
}

// Brings the stamps of all streams near: all are on their way at once. 16 bytes at a time where they lie so. Those past the
// length of a row are not read.
inline void stage_all(const Block& block) {
    const u32 PER = 16 / sizeof(Stamp);
    for (u32 s = 0; s < block.streams(); s++) {
        if (!block.looks_at(s)) continue;
        const StreamArgs& stream = block.args.stream[s];
        const bool ragged = stream.lengths, all = !ragged || block.rows == 1;
        const u32 samples = ragged && all ? u32(block.lengths(s)[0]) : u32(stream.samples);
        const u32 rows = stream.clock ? block.rows : 1, count = samples * rows;
        const Stamp* from = stream.times + block.row * stream.time_strides[0];
        Stamp* to = block.stamps(s);
        const i64 step = stream.time_strides[1];
        u32 done = 0;
        if (step == 1 && all && (rows == 1 || stream.time_strides[0] == stream.samples)) {
            if ((u64(from) & 15) == 0) {
                done = count & ~(PER - 1);
                for (u32 i = threadIdx.x * PER; i < done; i += blockDim.x * PER) copy_near<16>(to + i, from + i);
            }
            for (u32 i = done + threadIdx.x; i < count; i += blockDim.x) copy_near<sizeof(Stamp)>(to + i, from + i);
        } else {
            for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
                const u32 r = rows == 1 ? 0 : quotient(i, samples), at = i - r * samples;
                if (!all && stream.clock && at >= u32(block.lengths(s)[r])) continue;
                copy_near<sizeof(Stamp)>(to + i, from + i64(r) * stream.time_strides[0] + i64(at) * step);
            }
        }
    }
}

// Whether some stamp is not in order, not finite or too coarse; each thread sees its share.
inline bool seems_wrong(const Block& block, u32 s) {
    const StreamArgs& stream = block.args.stream[s];
    const Stamp* stamps = block.stamps(s);
    // NaN compares as out of order, so sorted stamps are finite when both ends are.
    const auto bad_end = [&](i32 at) { return !is_finite(stamps[at]) || is_coarse(stamps[at]); };
    bool wrong = false;
    if (block.rows == 1 || !stream.lengths) {
        const u32 rows = stream.clock ? block.rows : 1, length = u32(block.lengths(s)[0]);
        if (length == 0) return false;
        wrong = has_bad_pair(stamps, rows * length, length, threadIdx.x, blockDim.x);
        for (u32 r = threadIdx.x; r < rows; r += blockDim.x)
            wrong |= bad_end(i32(r * length)) || bad_end(i32((r + 1) * length - 1));
        return wrong;
    }
    const u32 samples = u32(stream.samples);
    for (u32 i = threadIdx.x; i < samples * block.rows; i += blockDim.x) {
        const u32 r = quotient(i, samples);
        const i32 at = i32(i - r * samples), length = block.lengths(s)[r], place = i32(r * stream.clock) + at;
        if (at + 1 < length) wrong |= !(stamps[place] <= stamps[place + 1]);
        if (at + 1 == length || (at == 0 && length > 0)) wrong |= bad_end(place);
    }
    return wrong;
}
inline bool seem_wrong(const Block& block) {
    bool wrong = false;
    for (u32 s = 0; s < block.streams(); s++)
        if (block.looks_at(s)) wrong |= seems_wrong(block, s);
    return wrong;
}

// Marks the rows whose stamps or targets are bad, and reports them. It is rare where stamps are `staged`, so that one loop
// does for both: a pointer tells which memory it is to.
inline void check_rows(const Block& block, bool staged) {
    const Args& args = block.args;
    for (u32 r = 0; r < block.rows; r++) {
        const i64 row = block.row + r;
        // All targets of the row, whichever the block writes.
        i64 targets = args.target_count;
        if (args.target_lengths) read_length(args.target_lengths, args.flags & WIDE_TARGET_LENGTHS, row * args.target_length_stride, targets, targets);
        const Stamps<Stamp> at = {args.targets + row * args.target_strides[0], args.target_strides[1], targets};
        for (u32 s = 0; s < block.streams(); s++) {
            if (!block.looks_at(s) || !block.usable(s, r)) continue;
            Stamps<Stamp> stamps = stamps_of<false>(block, s, r);
            if (staged) stamps = {block.stamps(s) + r * args.stream[s].clock, 1, stamps.length};
            const bool good = row_is_good(judge(args, s), stamps, at, u64(row));
            if (!good && threadIdx.x == 0) atomicOr(block.bad() + r, 1u << s);
            __syncthreads();
        }
    }
}

// Seconds since the newest stamp at or before the target.
inline float seconds_since(i64 target, i64 stamp) { return float(double(gap(stamp, target)) / 1e9); }
inline float seconds_since(double target, double stamp) { return float(target - stamp); }
inline float seconds_since(float target, float stamp) { return target - stamp; }
template <class Row> float age_of(const Row& stamps, Stamp target) {
    if (stamps.length == 0 || is_nan(target)) return __int_as_float(0x7fc00000);
    const auto upper = count_until(stamps, target);
    return upper > 0 ? seconds_since(target, stamps.at(upper - 1)) : __int_as_float(0x7fc00000);
}

// The dtypes as for_each_dtype! numbers them.
#define RC_NUMBER(name, type) DTYPE_##name,
enum : u32 { RC_DTYPES(RC_NUMBER) };

// A quotient in what the stream computes in.
Weight narrowed(const StreamArgs& stream, double quotient) {
    return stream.dtype == DTYPE_float64 ? Weight(quotient) : Weight(float(quotient));
}

// Sets the weight of a target between two samples, and for cubics the samples beside them.
template <class Row>
void weigh(const StreamArgs& stream, const Row& stamps, Stamp target, Pick& pick, u32 flags, Beside* to) {
    typedef typename Row::Index Index;
    const Index first = Index(pick.first), second = Index(pick.second);
    const Stamp earlier = stamps.at(first), later = stamps.at(second);
#if RC_MIXED
    if (stream.dtype == DTYPE_float64) pick.weight = ratio(double(), target, earlier, later);
    else pick.weight = ratio(float(), target, earlier, later);
#else
    pick.weight = ratio(Weight(), target, earlier, later);
#endif
    if (stream.kind == LINE_KIND) {
        // A sample of weight 0 must not matter, not even as NaN.
        if (pick.weight == Weight(0)) pick.second = pick.first;
        if (pick.weight == Weight(1)) pick.first = pick.second;
        if (pick.first == pick.second) pick.weight = Weight(-0.0);
    }
#if RC_RICH
    if (stream.kind != RICH) return;
    if (!(gap(earlier, target) <= gap(target, later))) pick.second |= LATER;
    if (!(flags & CUBICS)) return;
    const double between = double(gap(earlier, later));
    Beside beside = {0, 0, 0, 0};
    Index before = first - 1;
    if (before >= 0 && !(stamps.at(before) < earlier)) {
        // Of equal stamps only the last one exists; they were found to be many.
        Index low = 0, high = before;
        while (low < high) {
            const Index middle = low + ((high - low) >> 1);
            if (stamps.at(middle) < earlier) low = middle + 1; else high = middle;
        }
        before = low - 1;
    }
    if (before >= 0) {
        beside.before = u32(before);
        beside.before_gap = narrowed(stream, double(gap(stamps.at(before), earlier)) / between);
    }
    if (second + 1 < stamps.length) {
        const Index behind = last_equal(stamps, Index(second + 1));
        beside.behind = u32(behind);
        beside.behind_gap = narrowed(stream, double(gap(later, stamps.at(behind))) / between);
    }
    *to = beside;
#endif
}
