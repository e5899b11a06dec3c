// Values of streams at other times: out[b,t,:] from the one or two samples around targets[b,t].
// Host twin: cpu.rs (the loops), locate.rs (the rules), cells.rs (blending).
// Grid: one block per (row, tile of targets, chunk of columns); the block first finds the samples
//   of its targets, with the row's stamps in shared memory where they fit, then copies rows.
// Preconditions: Args as made by cuda.rs. Unless RC_STRIDED, rows of values and out allow accesses
//   of RC_BYTES bytes, and indices and strides fit 32 bits. Nothing is assumed of the stamps,
//   targets and lengths themselves.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_CELL: element type; RC_BLEND: whether it is blended or only copied; RC_STAMP: i64, double,
// float; RC_BYTES: bytes per access; RC_STRIDED: any strides, 64-bit; RC_ARGS_SIZE.
#include "rc.cuh"
#include "report.cuh"
#include "locate.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef RC_STAMP Stamp;

enum Flags : u32 { CHECK = 1, WIDE_LENGTHS = 2, WIDE_TARGET_LENGTHS = 4, STAGE = 8 };
// Mirrors `describe` in cuda.rs.
enum Fault : u64 { DECREASES = 1, NOT_FINITE, COARSE, OUTSIDE, LENGTH, TARGET_LENGTH };

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
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_BLEND
typedef Number<Cell>::Compute Weight;
#else
typedef float Weight;
#endif
#if RC_STRIDED
typedef i64 Index;
#else
typedef i32 Index;
#endif

// What a target of the tile is made of: the line through two samples, with the weight of the
// second. One sample as it is: twice that sample with the weight -0, which keeps every finite
// number and the sign of 0. No value: the weight NaN. Samples can be read in every case.
struct __align__(16) Pick {
    Index first, second;
    Weight weight;
};

typedef Words<RC_BYTES> Vector;

void found(const Args& args, Fault fault, u64 row, u64 index, u64 first, u64 second = 0, u64 third = 0) {
    report(args.reporter, args.code | fault, args.first_row + row, index, first, second, third);
}

// The length that exists, inside 0..most whatever was given; tells whether it was good.
bool read_length(const Args& args, const void* lengths, Flags wide, i64 offset, i64 most, Fault fault, u64 row, i64& length) {
    const i64 given = args.flags & wide ? ((const i64*)lengths)[offset] : i64(((const i32*)lengths)[offset]);
    length = min(max(given, i64(0)), most);
    if (given == length || !(args.flags & CHECK)) return true;
    if (threadIdx.x == 0) found(args, fault, row, 0, u64(given), u64(most));
    return false;
}

inline bool is_coarse(float stamp) { return fabsf(stamp) > 16777216.0f; }
inline bool is_coarse(double) { return false; }
inline bool is_coarse(i64) { return false; }

// Looks for the first bad stamp and reports it; only called for a row that has one.
template <class Row> void report_stamps(const Args& args, const Row& stamps, u64 row) {
    __shared__ u64 first_bad;
    if (threadIdx.x == 0) first_bad = ~0ull;
    __syncthreads();
    for (typename Row::Index i = threadIdx.x; i < stamps.length; i += blockDim.x)
        if (!is_finite(stamps.at(i)) || (i > 0 && stamps.at(i) < stamps.at(i - 1))) {
            atomicMin(&first_bad, u64(i));
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0 && first_bad != ~0ull) {
        const typename Row::Index at = typename Row::Index(first_bad);
        const bool finite = is_finite(stamps.at(at));
        found(args, finite ? DECREASES : NOT_FINITE, row, first_bad, bits_of(stamps.at(at)),
              finite ? bits_of(stamps.at(at - 1)) : 0);
    }
}

// Whether some stamp comes before the one ahead of it. Each thread looks at its share.
bool has_bad_pair(const Stamps<Stamp>& stamps) {
    bool bad = false;
    for (i64 i = threadIdx.x; i + 1 < stamps.length; i += blockDim.x) bad |= !(stamps.at(i) <= stamps.at(i + 1));
    return bad;
}
bool has_bad_pair(const Staged<Stamp>& stamps) {
    const int PER = 16 / sizeof(Stamp);
    bool bad = false;
    for (i32 start = threadIdx.x * PER; start + 1 < stamps.length; start += blockDim.x * PER) {
        // The vector may reach past the row, where nothing is compared.
        union { uint4 raw; Stamp stamps[PER]; } own;
        own.raw = *(const uint4*)(stamps.data + start);
        #pragma unroll
        for (int k = 0; k + 1 < PER; k++) bad |= start + k + 1 < stamps.length && !(own.stamps[k] <= own.stamps[k + 1]);
        if (start + PER < stamps.length) bad |= !(own.stamps[PER - 1] <= stamps.at(start + PER));
    }
    return bad;
}

// Whether the row can be used. All threads of the block take part and get the same answer.
template <class Row> bool row_is_good(const Args& args, const Row& stamps, const Stamps<Stamp>& targets, u64 row) {
    typedef typename Row::Index Index;
    // NaN compares as out of order, so sorted stamps are finite when both ends are.
    bool bad = has_bad_pair(stamps);
    if (stamps.length > 0) bad |= !is_finite(stamps.at(0)) || !is_finite(stamps.at(stamps.length - 1));
    if (__syncthreads_or(bad)) {
        report_stamps(args, stamps, row);
        return false;
    }
    if (stamps.length == 0) return true;
    const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
    if (is_coarse(low) || is_coarse(high)) {
        const Index at = is_coarse(low) ? Index(0) : stamps.length - 1;
        if (threadIdx.x == 0) found(args, COARSE, row, at, bits_of(stamps.at(at)));
        return false;
    }
    if (args.extrapolate != ERROR) return true;
    __shared__ u64 first_outside;
    if (threadIdx.x == 0) first_outside = ~0ull;
    __syncthreads();
    for (i64 i = threadIdx.x; i < targets.length; i += blockDim.x)
        if (targets.at(i) < low || targets.at(i) > high) {
            atomicMin(&first_outside, u64(i));
            break;
        }
    __syncthreads();
    if (first_outside == ~0ull) return true;
    if (threadIdx.x == 0)
        found(args, OUTSIDE, row, first_outside, bits_of(targets.at(i64(first_outside))), bits_of(low), bits_of(high));
    return false;
}

// Copies `count` items to shared memory; several are on their way at once.
template <class T, class Load> void gather(T* to, u32 first, u32 count, Load load) {
    const int BATCH = 4;
    for (u32 base = first + threadIdx.x; base < count; base += blockDim.x * BATCH) {
        T items[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * blockDim.x < count) items[k] = load(base + k * blockDim.x);
        #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * blockDim.x < count) to[base + k * blockDim.x] = items[k];
    }
}

// Copies the row's stamps to shared memory, 16 bytes at a time where they lie so.
void stage(const Stamps<Stamp>& stamps, Stamp* staged) {
    const int PER = 16 / sizeof(Stamp);
    const u32 length = u32(stamps.length);
    u32 done = 0;
    if (stamps.stride == 1 && (u64(stamps.data) & 15) == 0) {
        const uint4* from = (const uint4*)stamps.data;
        gather((uint4*)staged, 0, length / PER, [&](u32 i) { return __ldg(from + i); });
        done = length / PER * PER;
    }
    gather(staged, done, length, [&](u32 i) { return stamps.at(i); });
}

// Finds the samples of the tile's targets.
template <class Row>
void search(const Args& args, const Row& stamps, const Stamps<Stamp>& targets, bool usable, Stamp own, u64 row, i64 start,
            u32 count, bool write_valid, Pick* picks) {
    for (u32 t = threadIdx.x; t < count; t += blockDim.x) {
        const i64 index = start + t;
        const Stamp target = t == threadIdx.x ? own : targets.at(index);
        Place<typename Row::Index> place = {-1, -1, false};
        if (usable && index < targets.length)
            place = locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), args.max_gap);
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
        if (place.first < 0) picks[t] = {0, 0, Weight(__int_as_float(0x7fc00000))};
        else picks[t] = {Index(place.first), Index(place.second), weight};
        if (write_valid) args.valid[i64(row) * args.valid_strides[0] + index * args.valid_strides[1]] = place.valid;
    }
}

#if RC_BLEND
// On the line through both samples. BETWEEN_FAR: for points between ends whose difference is not
// finite. Tells whether all differences were finite.
template <bool BETWEEN_FAR> bool blend(const Vector& first, const Vector& second, Weight weight, Vector& result) {
    typedef Group<Cell> Group;
    bool finite = true;
    #pragma unroll
    for (int g = 0; g < Vector::COUNT; g += Group::WORDS) {
        Weight a[Group::NUMBERS], b[Group::NUMBERS];
        Group::widen(first.words + g, a);
        Group::widen(second.words + g, b);
        #pragma unroll
        for (int i = 0; i < Group::NUMBERS; i++) {
            const Weight difference = b[i] - a[i];
            if (BETWEEN_FAR && !is_finite(difference)) a[i] = fma(weight, b[i], (Weight(1) - weight) * a[i]);
            else a[i] = fma(weight, difference, a[i]);
            finite &= is_finite(difference);
        }
        Group::narrow(a, result.words + g);
    }
    return finite;
}
#endif

// Volatile, or the compiler moves the load to its use and waits there.
inline void load_words(const u8* place, Words<16>& to) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3]) : "l"(place));
}
inline void load_words(const u8* place, Words<8>& to) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to.words[0]), "=r"(to.words[1]) : "l"(place));
}
inline void load_words(const u8* place, Words<4>& to) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(to.words[0]) : "l"(place));
}
inline void load_words(const u8* place, Words<2>& to) {
    asm volatile("{ .reg .u16 half; ld.global.nc.u16 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "l"(place));
}
inline void load_words(const u8* place, Words<1>& to) {
    asm volatile("{ .reg .u16 half; ld.global.nc.u8 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "l"(place));
}

#if !RC_BLEND
// The value that stands for none, in every element.
Vector missing(u64 bits) {
    Vector vector;
    #pragma unroll
    for (int w = 0; w < Vector::COUNT; w++) {
        if (sizeof(Cell) == 8) vector.words[w] = u32(w % 2 ? bits >> 32 : bits);
        else if (sizeof(Cell) == 4) vector.words[w] = u32(bits);
        else vector.words[w] = u32(bits) * (sizeof(Cell) == 2 ? 0x10001u : 0x1010101u);
    }
    return vector;
}
#endif

#if RC_BLEND
// For samples that are not finite, or too far apart. They are read again: that is rare, and to keep
// them would cost registers always.
void blend_far(const u8* values, Index value_stride, const Pick& pick, Vector& result) {
    const Weight weight = pick.weight;
    Vector first, second;
    load_words(values + i64(pick.first) * value_stride, first);
    load_words(values + i64(pick.second) * value_stride, second);
    if (pick.first == pick.second) {
        if (weight == weight) result = first;
    } else if (weight > Weight(0) && weight < Weight(1)) {
        blend<true>(first, second, weight, result);
    }
}
#endif

// Writes one vector of every `step`-th target from `t` on.
void copy_column(const Args& args, const u8* values, u8* out, const Pick* picks, u32 t, u32 count, u32 step) {
    // As many as 64 registers hold, so that a multiprocessor holds four blocks of 256 threads.
    const int UNROLL = 4;
    const Index value_stride = Index(args.value_strides[1]), out_stride = Index(args.out_strides[1]);
    for (; t < count; t += step * UNROLL) {
        Vector first[UNROLL], second[UNROLL];
        // Everything is asked for before anything is used. Where there is no second sample, or no
        // value, a sample is read all the same: that is cheaper than to ask.
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const Pick& pick = picks[min(t + u * step, count - 1)];
            load_words(values + i64(pick.first) * value_stride, first[u]);
            if (RC_BLEND) load_words(values + i64(pick.second) * value_stride, second[u]);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (t + u * step >= count) break;
            // Read anew: registers are better spent on samples that are on their way.
            const Pick& pick = picks[t + u * step];
#if RC_BLEND
            // NaN comes out by itself where there is no value.
            Vector result;
            if (!blend<false>(first[u], second[u], pick.weight, result)) blend_far(values, value_stride, pick, result);
#else
            const Vector result = pick.weight == pick.weight ? first[u] : missing(args.missing);
#endif
            __stcs((typename Raw<RC_BYTES>::Type*)(out + i64(Index(t + u * step)) * out_stride), result.raw);
        }
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

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Pick* picks = (Pick*)shared;
    Stamp* staged = (Stamp*)(picks + args.tile);

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

    const u8* values = args.values + i64(row) * args.value_strides[0];
    u8* out = args.out + i64(row) * args.out_strides[0] + start * args.out_strides[1];
    const i64 first_vector = i64(chunk) * args.chunk;
    const u32 vectors = u32(min(i64(args.chunk), args.vectors - first_vector));
    // A thread keeps its column and goes through targets; wide rows take several rounds.
    const u32 across = min(vectors, blockDim.x), step = blockDim.x / max(across, 1u);
    const u32 t = threadIdx.x / max(across, 1u);
    if (t >= step) return;
    for (u32 v = threadIdx.x - t * across; v < vectors; v += across) {
        const i64 column = first_vector + v;
        copy_column(args, values + column * args.value_strides[2], out + column * args.out_strides[2], picks, t, count, step);
    }
}
