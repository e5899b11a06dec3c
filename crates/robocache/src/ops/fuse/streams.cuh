// The arguments of `fuse`, and which samples the targets of a tile need in each stream.
// Host twin: arguments.rs (Args), mixed.rs (gather).
#pragma once
#include "rows.cuh"
#include "bulk.cuh"

using namespace rc;

#if !RC_MIXED
typedef RC_OUT Out;
#endif
typedef RC_STAMP Stamp;

// How the columns of a stream are made.
enum Kind : u32 { MISSING, SINGLE, LINE_KIND, RICH };
// The methods of locate.cuh, then those that only `fuse` knows; zeros for a missing stream.
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
    u32 staged;  // where its stamps lie in shared memory
    u32 kept;    // and its values, in bytes
    float scale_all;
    u8 kind, method, dtype, wide_lengths, scaled, padding[7];
};
// Neighbouring columns of one stream that are made by one method, in units of a few numbers.
struct SegmentArgs {
    u32 first_unit, units;  // of those of a target
    u32 start;              // its first column in the stream
    u32 column;             // and in the output
    u16 stream;
    u8 method;
    u8 per_unit;  // numbers of a unit
    u8 together;  // that one access takes
    u8 near;      // whether strides are not negative and fit 32 bits
    u16 across;   // units that threads write at once
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
    u32 streams, segments, units, out_dtype;
    u32 besides_at, stamps_at;  // bytes in shared memory
    u32 kept_bytes;             // of values in shared memory
    u32 present;                // streams that exist, by bits
    u32 columns_at;             // of the table of kept.cuh, in shared memory
    u32 per_unit;               // 2^32 over `units`, rounded up, for that kernel
    StreamArgs stream[RC_STREAMS];
    SegmentArgs segment[RC_SEGMENTS];
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");
// Flags: some columns need more than two samples; some rows are shorter than others; the values of
// a row are brought to shared memory as a whole; each warp looks at the stamps of streams of its own; results
// are collected in shared memory, where the stamps were; rows are read four numbers
// at a time instead of two (whole.cuh).
const u32 CUBICS = 16, RAGGED = 32, KEEP = 64, APART = 128, COLLECT = 256, FOURS = 512;

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
    u64* arrival;  // of the values
    u32 needed;  // streams that the block has to look at
    bool looks_at(u32 s) const { return needed >> s & 1; }
    bool usable(u32 s) const { return !(*bad >> s & 1); }
    // Before all threads have met, only the lengths that they met for are known.
    u32 staged_length(u32 s) const { return u32(args.flags & RAGGED ? lengths[s] : args.stream[s].samples); }
    u8* base() const { return (u8*)picks; }
    Beside* besides() const { return (Beside*)(base() + args.besides_at); }
    Stamp* stamps() const { return (Stamp*)(base() + args.stamps_at); }
    const u8* values(const StreamArgs& stream, i64 row) const {
        return args.flags & KEEP ? base() + stream.kept : far(stream, row);
    }
    const u8* far(const StreamArgs& stream, i64 row) const { return stream.values + row * stream.value_strides[0]; }
    // As far into a line as in global memory: else the copy engine reads parts of two lines for each one that it
    // writes. Kernels of more methods have no registers to spare for that.
    u8* kept(const StreamArgs& stream, i64 row) const {
        const u32 within = RC_KEPT ? u32(u64(far(stream, row))) & 127 : 0;
        return base() + stream.kept + within;
    }
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

// Kernels that wait for memory gain nothing from a quicker search, and have no registers for it.
#if RC_RICH && !RC_MIXED
typedef Even<Stamp> NearStamps;
#else
typedef Staged<Stamp> NearStamps;
#endif

template <bool STAGED> auto row_of(const Shared& shared, u32 s, i64 row) {
    const StreamArgs& stream = shared.args.stream[s];
    if constexpr (STAGED) return NearStamps{shared.stamps() + stream.staged, i32(shared.lengths[s])};
    else return Stamps<Stamp>{stream.times + row * stream.time_strides[0], stream.time_strides[1], shared.lengths[s]};
}

// A thread of the first warp for each stream: all lengths are on their way at once.
inline void read_lengths(const Shared& shared, i64 row, i64& targets) {
    const Args& args = shared.args;
    bool usable = true;
    if (args.target_lengths) {
        const Judge own = {args.reporter, args.code, 0, args.flags, args.extrapolate};
        usable = read_length(own, args.target_lengths, WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                             args.target_count, TARGET_LENGTH, row, targets);
    }
    const u32 s = threadIdx.x;
    if (s >= 32) return;
    bool wrong = false;
    if (s < args.streams) {
        const StreamArgs& stream = args.stream[s];
        i64 length = stream.samples;
        if (stream.lengths && stream.kind != MISSING) {
            const i64 at = row * stream.length_stride;
            const i64 given = stream.wide_lengths ? ((const i64*)stream.lengths)[at] : i64(((const i32*)stream.lengths)[at]);
            length = min(max(given, i64(0)), stream.samples);
            wrong = given != length && (args.flags & CHECK);
            if (wrong) found(judge(args, s, args.flags), LENGTH, row, 0, u64(given), u64(stream.samples));
        }
        shared.lengths[s] = length;
    }
    const u32 all = __ballot_sync(~0u, wrong);
    if (s == 0) *shared.bad = usable ? all : ~0u;
}

// Copies to shared memory without waiting: `end_copies` ends a group of them, and `await_copies` waits
// for all but the last LEFT groups.
template <int BYTES> void copy_near(void* to, const void* from) {
    const u32 place = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(BYTES) : "memory");
}
inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// Which streams a thread looks at, and which of their stamps.
struct Team {
    u32 stream, streams;  // the first, and how many further the next
    u32 thread, threads;
    Team(const Args& args) {
        const bool apart = args.flags & APART;
        stream = apart ? threadIdx.x / 32 : 0;
        streams = apart ? blockDim.x / 32 : 1;
        thread = apart ? threadIdx.x & 31 : threadIdx.x;
        threads = apart ? 32 : blockDim.x;
    }
};

// Brings the stamps of all streams near: all are on their way at once. 16 bytes at a time where they lie so.
inline void stage_all(const Shared& shared, const Team& team, i64 row) {
    const Args& args = shared.args;
    const u32 PER = 16 / sizeof(Stamp);
    for (u32 s = team.stream; s < args.streams; s += team.streams) {
        const StreamArgs& stream = args.stream[s];
        if (!shared.looks_at(s)) continue;
        const u32 length = shared.staged_length(s);
        const Stamp* from = stream.times + row * stream.time_strides[0];
        Stamp* to = shared.stamps() + stream.staged;
        u32 done = 0;
        if (stream.time_strides[1] == 1 && (u64(from) & 15) == 0) {
            done = length & ~(PER - 1);
            for (u32 i = team.thread * PER; i < done; i += team.threads * PER) copy_near<16>(to + i, from + i);
        }
        for (u32 i = done + team.thread; i < length; i += team.threads)
            copy_near<sizeof(Stamp)>(to + i, from + i64(i) * stream.time_strides[1]);
    }
    end_copies();
}

// Brings the values of all streams near, where they are little enough and most are needed; from sm_90 on
// by the copy engine, which takes one warp a few instructions, so that it comes first. `await_values`
// waits for them.
#if __CUDA_ARCH__ >= 900
inline void keep_later(const Shared&, i64) {}
inline void expect_values(const Shared& shared) {
    make_arrival(shared.arrival);
    end_making();
    expect(shared.arrival, shared.args.kept_bytes);
}
inline void bring_values(const Shared& shared, const StreamArgs& stream, i64 row) {
    const u32 bytes = u32(stream.samples) * u32(stream.value_strides[1]);
    if (stream.kind == MISSING || bytes == 0) return;
    bring(shared.kept(stream, row), shared.far(stream, row), bytes, shared.arrival);
}
inline void keep_first(const Shared& shared, i64 row) {
    const Args& args = shared.args;
#if RC_KEPT
    // A lane for each stream, of the warp that has the fewest stamps to bring.
    if (threadIdx.x < blockDim.x - 32) return;
    const u32 s = threadIdx.x & 31;
    if (s == 0) expect_values(shared);
    __syncwarp();
    if (s < args.streams) bring_values(shared, args.stream[s], row);
#else
    // One thread takes fewer registers.
    if (threadIdx.x != 0) return;
    expect_values(shared);
    for (u32 s = 0; s < args.streams; s++) bring_values(shared, args.stream[s], row);
#endif
}
inline void await_values(const Shared& shared) { await(shared.arrival, 0); }
#else
inline void keep_first(const Shared&, i64) {}
// Behind the stamps, which are waited for first.
inline void keep_later(const Shared& shared, i64 row) {
    const Args& args = shared.args;
    for (u32 s = 0; s < args.streams; s++) {
        const StreamArgs& stream = args.stream[s];
        if (stream.kind == MISSING) continue;
        const u32 bytes = u32(stream.samples) * u32(stream.value_strides[1]);
        const u8* from = shared.far(stream, row);
        u8* to = shared.kept(stream, row);
        for (u32 i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16) copy_near<16>(to + i, from + i);
    }
}
inline void await_values(const Shared&) { await_copies<0>(); }
#endif

// Whether some stamp of a row is not in order, not finite or too coarse; each thread of a team sees its share.
template <class Row> bool seems_wrong(const Row& stamps, const Team& team) {
    if (stamps.length == 0) return false;
    bool wrong = has_bad_pair(stamps, team.thread, team.threads);
    if (team.thread == 0) {
        const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
        wrong |= !is_finite(low) || !is_finite(high) || is_coarse(low) || is_coarse(high);
    }
    return wrong;
}
inline bool seem_wrong(const Shared& shared, const Team& team) {
    bool wrong = false;
    for (u32 s = team.stream; s < shared.args.streams; s += team.streams)
        if (shared.looks_at(s))
            wrong |= seems_wrong(Staged<Stamp>{shared.stamps() + shared.args.stream[s].staged, i32(shared.staged_length(s))}, team);
    return wrong;
}

// Marks the streams whose stamps or targets are bad, and reports them: stream by stream, as `resample` does.
template <bool STAGED> void check_rows(const Shared& shared, i64 row, i64 targets) {
    const Args& args = shared.args;
    const Stamps<Stamp> at = {args.targets + row * args.target_strides[0], args.target_strides[1], targets};
    for (u32 s = 0; s < args.streams; s++) {
        if (!shared.looks_at(s) || !shared.usable(s)) continue;
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
