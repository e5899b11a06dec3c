// Values of streams at other times: out[b,t,:] from the one or two samples around targets[b,t].
// Host twin: cpu.rs (the loops), locate.rs (the rules), cells.rs (blending).
// Grid: one block per (row, tile of targets, chunk of columns); any number of threads.
// Preconditions: Args as made by cuda.rs; rows of values and out allow loads of RC_BYTES bytes,
//   unless RC_STRIDED. Nothing is assumed of stamps, targets and lengths.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_CELL: element type; RC_BLEND: whether it is blended or only copied; RC_STAMP: i64, double,
// float; RC_BYTES: bytes per access; RC_STRIDED: columns are not side by side; RC_ARGS_SIZE.
#include "rc.cuh"
#include "report.cuh"
#include "locate.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef RC_STAMP Stamp;

enum Flags : u32 { CHECK = 1, WIDE_LENGTHS = 2, WIDE_TARGET_LENGTHS = 4, STAGE = 8 };
// Mirrors `Fault` in cuda.rs.
enum Fault : u64 { DECREASES = 1, NOT_FINITE, COARSE, OUTSIDE, LENGTH, TARGET_LENGTH };

// Mirrors `Args` in cuda.rs. Strides are in elements.
struct Args {
    const Cell* values;
    const Stamp* times;
    const Stamp* targets;
    const void* lengths;
    const void* target_lengths;
    Cell* out;
    u8* valid;
    i64 value_strides[3], time_strides[2], target_strides[2], out_strides[3], valid_strides[2];
    i64 length_stride, target_length_stride;
    i64 samples, target_count;
    u64 tiles, chunks;  // per row
    i64 vectors;        // per row of values, RC_BYTES each
    double max_gap;
    u64 missing;
    u64 code;  // what reports start from
    u64 first_row;
    Reporter reporter;
    u32 method, extrapolate, flags, tile;
    u32 chunk;  // vectors per chunk
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_BLEND
typedef Number<Cell>::Compute Weight;
#else
typedef float Weight;
#endif

// What a target of the tile is made of; offsets are in elements.
struct Pick {
    i64 first, second;
    Weight weight;
    Mode mode;
};

const int LANES = RC_BYTES / sizeof(Cell);
typedef Pack<Cell, RC_BYTES> Vector;

i64 given_length(const void* lengths, bool wide, i64 offset) {
    return wide ? ((const i64*)lengths)[offset] : i64(((const i32*)lengths)[offset]);
}

// On the line through both samples. The second form is for ends whose difference is not finite;
// it is rare, so all lanes take it together.
Vector blend(const Vector& first, const Vector& second, Weight weight) {
    Vector result;
#if RC_BLEND
    bool finite = true;
    #pragma unroll
    for (int i = 0; i < LANES; i++) {
        const Weight a = widen(first.lanes[i]), b = widen(second.lanes[i]);
        const Weight blended = fma(weight, b - a, a);
        finite &= is_finite(blended);
        narrow(blended, result.lanes[i]);
    }
    if (!finite) {
        #pragma unroll
        for (int i = 0; i < LANES; i++) {
            const Weight a = widen(first.lanes[i]), b = widen(second.lanes[i]);
            Weight blended = fma(weight, b - a, a);
            if (!is_finite(blended)) blended = fma(weight, b, (Weight(1) - weight) * a);
            narrow(blended, result.lanes[i]);
        }
    }
#else
    result = first;
#endif
    return result;
}

Vector load(const Cell* row, i64 column, i64 stride) {
    Vector vector;
#if RC_STRIDED
    vector.lanes[0] = row[column * stride];
#else
    vector.raw = __ldg((const typename Raw<RC_BYTES>::Type*)row + column);
#endif
    return vector;
}

void store(Cell* row, i64 column, i64 stride, const Vector& vector) {
#if RC_STRIDED
    row[column * stride] = vector.lanes[0];
#else
    __stcs((typename Raw<RC_BYTES>::Type*)row + column, vector.raw);
#endif
}

void found(const Args& args, Fault fault, u64 row, u64 index, u64 first, u64 second) {
    report(args.reporter, args.code | fault, args.first_row + row, index, first, second);
}

// Looks for the first bad stamp and reports it; only called for a row that has one.
template <class S> void report_stamps(const Args& args, const Stamps<S>& stamps, u64 row) {
    __shared__ u64 first_bad;
    if (threadIdx.x == 0) first_bad = ~0ull;
    __syncthreads();
    for (i64 i = threadIdx.x; i < stamps.length; i += blockDim.x)
        if (!is_finite(stamps.at(i)) || (i > 0 && stamps.at(i) < stamps.at(i - 1))) {
            atomicMin(&first_bad, u64(i));
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0 && first_bad != ~0ull) {
        const S stamp = stamps.at(i64(first_bad));
        const bool finite = is_finite(stamp);
        found(args, finite ? DECREASES : NOT_FINITE, row, first_bad, bits_of(stamp),
               finite ? bits_of(stamps.at(i64(first_bad) - 1)) : 0);
    }
}

inline bool is_coarse(float stamp) { return fabsf(stamp) > 16777216.0f; }
inline bool is_coarse(double) { return false; }
inline bool is_coarse(i64) { return false; }

// Whether the row can be used. All threads of the block take part and get the same answer.
template <class S> bool row_is_good(const Args& args, const Stamps<S>& stamps, const Stamps<S>& targets, u64 row) {
    bool bad = false;
    for (i64 i = threadIdx.x; i + 1 < stamps.length; i += blockDim.x) bad |= !(stamps.at(i) <= stamps.at(i + 1));
    if (stamps.length > 0) bad |= !is_finite(stamps.at(0)) || !is_finite(stamps.at(stamps.length - 1));
    if (__syncthreads_or(bad)) {
        report_stamps(args, stamps, row);
        return false;
    }
    if (stamps.length == 0) return true;
    const S low = stamps.at(0), high = stamps.at(stamps.length - 1);
    if (is_coarse(low) || is_coarse(high)) {
        const bool at_start = is_coarse(low);
        if (threadIdx.x == 0)
            found(args, COARSE, row, at_start ? 0 : stamps.length - 1, bits_of(at_start ? low : high), 0);
        return false;
    }
    if (args.extrapolate != ERROR) return true;
    i64 outside = -1;
    for (i64 i = threadIdx.x; i < targets.length && outside < 0; i += blockDim.x)
        if (targets.at(i) < low || targets.at(i) > high) outside = i;
    if (outside >= 0)
        found(args, OUTSIDE, row, outside, bits_of(targets.at(outside)), 0);
    return !__syncthreads_or(outside >= 0);
}

// One target of the tile, found in stamps that lie in global or shared memory.
template <class S>
void search(const Args& args, const Stamps<S>& stamps, bool usable, S target, u64 row, i64 index, bool write_valid, Pick& pick) {
    Place place = {0, 0, MISSING, false};
    if (usable) place = locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), args.max_gap);
    pick.weight = 0;
#if RC_BLEND
    if (place.mode == BLEND) {
        pick.weight = ratio(Weight(), target, stamps.at(place.first), stamps.at(place.second));
        // A sample of weight 0 must not matter, not even as NaN.
        if (pick.weight == Weight(0)) place.mode = TAKE;
        if (pick.weight == Weight(1)) { place.mode = TAKE; place.first = place.second; }
    }
#endif
    pick.first = place.first * args.value_strides[1];
    pick.second = place.second * args.value_strides[1];
    pick.mode = place.mode;
    if (write_valid) args.valid[i64(row) * args.valid_strides[0] + index * args.valid_strides[1]] = place.valid;
}

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Pick* picks = (Pick*)shared;
    Stamp* staged = (Stamp*)(shared + args.tile * sizeof(Pick));

    // Rows in the slow position: neighbours share a row's stamps in the cache.
    u64 unit = blockIdx.x;
    const u64 chunk = unit % args.chunks;
    unit /= args.chunks;
    const u64 tile = unit % args.tiles, row = unit / args.tiles;
    const i64 start = i64(tile * args.tile);
    const u32 count = u32(min(i64(args.tile), args.target_count - start));

    Stamps<Stamp> stamps = {args.times + i64(row) * args.time_strides[0], args.time_strides[1], args.samples};
    Stamps<Stamp> targets = {args.targets + i64(row) * args.target_strides[0], args.target_strides[1], args.target_count};
    // The target is on its way while the stamps are looked at.
    Stamp target = 0;
    if (threadIdx.x < count) target = targets.at(start + threadIdx.x);

    bool usable = true;
    if (args.lengths) {
        const i64 given = given_length(args.lengths, args.flags & WIDE_LENGTHS, i64(row) * args.length_stride);
        stamps.length = min(max(given, i64(0)), args.samples);
        if ((args.flags & CHECK) && given != stamps.length) {
            if (threadIdx.x == 0) found(args, LENGTH, row, 0, u64(given), u64(args.samples));
            usable = false;
        }
    }
    if (args.target_lengths) {
        const i64 given = given_length(args.target_lengths, args.flags & WIDE_TARGET_LENGTHS, i64(row) * args.target_length_stride);
        targets.length = min(max(given, i64(0)), args.target_count);
        if ((args.flags & CHECK) && given != targets.length) {
            if (threadIdx.x == 0) found(args, TARGET_LENGTH, row, 0, u64(given), u64(args.target_count));
            usable = false;
        }
    }

    const bool write_valid = args.valid && chunk == 0;
    if (args.flags & STAGE) {
        #pragma unroll 4
        for (u32 i = threadIdx.x; i < u32(stamps.length); i += blockDim.x) staged[i] = stamps.at(i);
        __syncthreads();
        const Stamps<Stamp> near = {staged, 1, stamps.length};
        if (usable && (args.flags & CHECK)) usable = row_is_good(args, near, targets, row);
        for (u32 t = threadIdx.x; t < count; t += blockDim.x) {
            const i64 index = start + t;
            if (t != threadIdx.x) target = targets.at(index);
            search(args, near, usable && index < targets.length, target, row, index, write_valid, picks[t]);
        }
    } else {
        if (usable && (args.flags & CHECK)) usable = row_is_good(args, stamps, targets, row);
        for (u32 t = threadIdx.x; t < count; t += blockDim.x) {
            const i64 index = start + t;
            if (t != threadIdx.x) target = targets.at(index);
            search(args, stamps, usable && index < targets.length, target, row, index, write_valid, picks[t]);
        }
    }
    __syncthreads();

    const Cell* values = args.values + i64(row) * args.value_strides[0];
    Cell* out = args.out + i64(row) * args.out_strides[0] + start * args.out_strides[1];
    const i64 first_vector = i64(chunk * args.chunk);
    const u32 vectors = u32(min(i64(args.chunk), args.vectors - first_vector));
    // i / vectors by multiplication: exact for the at most 2^20 items and 2^12 vectors of a tile.
    const u32 reciprocal = vectors > 1 ? u32((0x100000000ull + vectors - 1) / vectors) : 0;
    const u32 items = count * vectors;
    const int UNROLL = 4;
    for (u32 base = threadIdx.x; base < items; base += blockDim.x * UNROLL) {
        Vector first[UNROLL], second[UNROLL];
        // Everything is asked for before anything is used.
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const u32 item = base + u * blockDim.x;
            if (item >= items) break;
            const u32 t = vectors > 1 ? __umulhi(item, reciprocal) : item;
            const i64 column = first_vector + (item - t * vectors);
            const Pick& pick = picks[t];
            if (pick.mode != MISSING) first[u] = load(values + pick.first, column, args.value_strides[2]);
#if RC_BLEND
            if (pick.mode == BLEND) second[u] = load(values + pick.second, column, args.value_strides[2]);
#endif
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const u32 item = base + u * blockDim.x;
            if (item >= items) break;
            const u32 t = vectors > 1 ? __umulhi(item, reciprocal) : item;
            const i64 column = first_vector + (item - t * vectors);
            const Pick& pick = picks[t];
            Vector result = first[u];
#if RC_BLEND
            if (pick.mode == BLEND) result = blend(first[u], second[u], pick.weight);
#endif
            if (pick.mode == MISSING) {
                union { u64 bits; Cell cell; } missing = {args.missing};
                #pragma unroll
                for (int i = 0; i < LANES; i++) result.lanes[i] = missing.cell;
            }
            store(out + i64(t) * args.out_strides[1], column, args.out_strides[2], result);
        }
    }
}
