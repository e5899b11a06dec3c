// The arguments of `fuse`, and which samples the targets of a tile need in each stream.
// Host twin: cuda.rs (Args), mixed.rs (gather).
#pragma once
#include "rows.cuh"

using namespace rc;

#if !RC_MIXED
typedef RC_OUT Out;
#endif
typedef RC_STAMP Stamp;

// How the columns of a stream are made.
enum Kind : u32 { MISSING, SINGLE, LINE_KIND, RICH };
// The methods of locate.cuh, then those that only this file knows.
enum : u32 { CUBIC = 4, SLERP, ANGLE, ROT6D, ROT6D_SECOND, WHOLE_SLERP };
// Of a range whose quaternions are whole units: their factors are made where they are used.
const u32 NO_FACTORS = ~0u;

// Mirror the structs in cuda.rs. Strides of values and out are in bytes, all others in elements.
struct StreamArgs {
    const u8* values;
    const Stamp* times;
    const void* lengths;
    const float* scale;  // null: scale_all
    i64 value_strides[3], time_strides[2], length_stride, scale_stride;
    i64 samples;
    u64 max_gap;     // nanoseconds, or the bits of seconds as double
    u32 first_unit;  // of those of a target
    u32 column;      // in the output
    u32 staged;      // where its stamps lie in shared memory
    u32 first_range, ranges;
    float scale_all;
    u8 kind, method, dtype, numbers;  // numbers per unit
    u8 wide_lengths, scaled, padding[2];
};
struct RangeArgs {
    u32 start, end;  // columns of the stream
    u32 factors;     // where its factors lie among those of a target
    u16 method, stream;
};
struct Args {
    const Stamp* targets;
    const void* target_lengths;
    u8* out;
    u8* valid;
    float* age;
    i64 target_strides[2], out_strides[3], valid_strides[3], age_strides[3];
    i64 target_length_stride, target_count;
    u64 missing;
    u64 code;  // what reports start from
    u64 first_row;
    Reporter reporter;
    u32 extrapolate, flags, tile, tiles, chunk, chunks;
    u32 streams, units, across, out_dtype;
    u32 factors;               // numbers per target
    u32 besides_at, factors_at, stamps_at;  // bytes in shared memory
    u32 stamps, padding;       // staged in all
    StreamArgs stream[RC_STREAMS];
    RangeArgs range[RC_RANGES];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");
const u32 CUBICS = 16;  // flag: some columns need more than two samples

// What the block computes in; a stream that needs less rounds to float on its own.
#if RC_MIXED
typedef double Weight;
#elif RC_FLOAT
typedef Number<Out>::Compute Weight;
#else
typedef float Weight;
#endif

// As in resample.cu: two samples and the weight of the second; one sample: twice that one with
// the weight -0; no value: the weight NaN. The uppermost bit of `second`: the later one is nearer.
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

// What a block shares.
struct Shared {
    const Args& args;
    Pick* picks;  // [streams, tile]
    i64* lengths;
    u32* bad;  // streams whose row cannot be used
    bool usable(u32 s) const { return !(*bad >> s & 1); }
    u8* base() const { return (u8*)picks; }
    Beside* besides() const { return (Beside*)(base() + args.besides_at); }
    Weight* factors() const { return (Weight*)(base() + args.factors_at); }
    Stamp* stamps() const { return (Stamp*)(base() + args.stamps_at); }
};

// What rows.cuh asks for, for one stream.
struct Judge {
    const Reporter& reporter;
    u64 code, first_row;
    u32 flags, extrapolate;
};
Judge judge(const Args& args, u32 s, u32 flags) {
    return {args.reporter, args.code | u64(s) << 16, 0, flags, args.extrapolate};
}

template <bool STAGED> auto row_of(const Shared& shared, u32 s, i64 row) {
    const StreamArgs& stream = shared.args.stream[s];
    if constexpr (STAGED) return Staged<Stamp>{shared.stamps() + stream.staged, i32(shared.lengths[s])};
    else return Stamps<Stamp>{stream.times + row * stream.time_strides[0], stream.time_strides[1], shared.lengths[s]};
}

// A thread for each stream: all lengths are on their way at once.
void read_lengths(const Shared& shared, i64 row, i64& targets) {
    const Args& args = shared.args;
    if (args.target_lengths) {
        const Judge own = {args.reporter, args.code, 0, args.flags, args.extrapolate};
        if (!read_length(own, args.target_lengths, WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                         args.target_count, TARGET_LENGTH, row, targets) && threadIdx.x == 0)
            atomicOr(shared.bad, ~0u);
    }
    const u32 s = threadIdx.x;
    if (s >= args.streams) return;
    const StreamArgs& stream = args.stream[s];
    i64 length = stream.samples;
    if (stream.lengths && stream.kind != MISSING) {
        const i64 at = row * stream.length_stride;
        const i64 given = stream.wide_lengths ? ((const i64*)stream.lengths)[at] : i64(((const i32*)stream.lengths)[at]);
        length = min(max(given, i64(0)), stream.samples);
        if (given != length && (args.flags & CHECK)) {
            found(judge(args, s, args.flags), LENGTH, row, 0, u64(given), u64(stream.samples));
            atomicOr(shared.bad, 1u << s);
        }
    }
    shared.lengths[s] = length;
}

// Brings the stamps of all streams near; several are on their way at once.
void stage_all(const Shared& shared, i64 row) {
    const Args& args = shared.args;
    u32 s = 0;
    const int BATCH = 4;
    for (u32 base = threadIdx.x; base < args.stamps; base += blockDim.x * BATCH) {
        Stamp items[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const u32 i = base + k * blockDim.x;
            while (s + 1 < args.streams && args.stream[s + 1].staged <= i) s++;
            const StreamArgs& stream = args.stream[s];
            const i64 index = i64(i) - stream.staged;
            if (i < args.stamps && stream.kind != MISSING && index < shared.lengths[s])
                items[k] = stream.times[row * stream.time_strides[0] + index * stream.time_strides[1]];
        }
        #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * blockDim.x < args.stamps) shared.stamps()[base + k * blockDim.x] = items[k];
    }
}

// Marks the streams whose stamps or targets are bad, and reports them.
template <bool STAGED> void check_rows(const Shared& shared, i64 row, i64 targets) {
    const Args& args = shared.args;
    // All pairs of all streams together, so that short streams do not wait for each other.
    u32 wrong = 0;
    if (STAGED) {
        u32 s = 0;
        for (u32 i = threadIdx.x; i < args.stamps; i += blockDim.x) {
            while (s + 1 < args.streams && args.stream[s + 1].staged <= i) s++;
            const i64 index = i64(i) - args.stream[s].staged;
            if (index + 1 < shared.lengths[s] && !(shared.stamps()[i] <= shared.stamps()[i + 1])) wrong |= 1u << s;
        }
    } else {
        for (u32 s = 0; s < args.streams; s++)
            if (args.stream[s].kind != MISSING && has_bad_pair(row_of<false>(shared, s, row))) wrong |= 1u << s;
    }
    for (u32 s = threadIdx.x; s < args.streams; s += blockDim.x) {
        const auto stamps = row_of<STAGED>(shared, s, row);
        if (args.stream[s].kind == MISSING || stamps.length == 0) continue;
        const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
        if (!is_finite(low) || !is_finite(high) || is_coarse(low) || is_coarse(high)) wrong |= 1u << s;
    }
    if (!__syncthreads_or(wrong != 0 || args.extrapolate == ERROR)) return;
    // Something is wrong, or targets are to be looked at: stream by stream, as `resample` does.
    const Stamps<Stamp> at = {args.targets + row * args.target_strides[0], args.target_strides[1], targets};
    for (u32 s = 0; s < args.streams; s++) {
        if (args.stream[s].kind == MISSING || !shared.usable(s)) continue;
        const bool good = row_is_good(judge(args, s, args.flags), row_of<STAGED>(shared, s, row), at, u64(row));
        if (!good && threadIdx.x == 0) atomicOr(shared.bad, 1u << s);
        __syncthreads();
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
void weigh(const StreamArgs& stream, const Row& stamps, Stamp target, Pick& pick, const Shared& shared, u32 place) {
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
    if (!(shared.args.flags & CUBICS)) return;
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
    shared.besides()[place] = beside;
#endif
}
