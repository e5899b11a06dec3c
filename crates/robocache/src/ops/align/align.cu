// Several streams at common targets, side by side: out[b,t,:] from the samples around targets[b,t] in each stream.
// `resample` is the same for one stream.
// Host twin: cpu.rs, mixed.rs, integers.rs (the loops), locate.rs (the rules), blend.rs, cells.rs (the arithmetic).
// Grid: one block per (rows, tile of targets, chunk of units): several whole rows where they are short, a tile of one where
//   it is long. The block finds the samples of its targets in every stream, with the stamps in shared memory where they fit,
//   then goes through the segments: columns of one stream that are made by one method, so that all threads do the same.
//   Threads take the units of a segment, a few neighbouring columns each, in the order of memory. Where segments would write
//   parts of sectors, results are collected in shared memory first.
// Preconditions: Args as made by cuda.rs: units allow accesses of their size, samples of all rows of a block are counted in
//   31 bits; several rows: those of out follow each other, those of values are `row_step` samples apart.
//   Nothing is assumed of the stamps, targets and lengths themselves.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_OUT: type of all elements; RC_FLOAT: whether it is a float; RC_MIXED: any types instead; RC_RICH:
// whether there are methods beside lines and copies; RC_WHOLE: narrow rows of one stream, see whole.cuh, by blocks of
// RC_WHOLE_THREADS at most; RC_STAMP: i64, double, float; RC_STREAMS, RC_SEGMENTS: how many Args can hold; RC_ARGS_SIZE.
#include "lines.cuh"
#include "units.cuh"
#include "whole.cuh"

inline Stamp target_at(const Block& block, u32 r, u32 t) {
    const Args& args = block.args;
    return args.targets[(block.row + r) * args.target_strides[0] + (block.start + t) * args.target_strides[1]];
}

// Finds the samples of the block's targets in all streams. `ahead`: the first target that the thread needs.
template <bool STAGED> void search(const Block& block, Stamp ahead) {
    const Args& args = block.args;
    const u32 count = block.count();
    for (u32 p = threadIdx.x; p < block.streams() * count; p += blockDim.x) {
        const u32 s = block.streams() == 1 ? 0 : quotient(p, count), q = p - s * count, r = block.row_of(q), t = q - r * block.per;
        const StreamArgs& stream = args.stream[s];
        Pick pick = {0, 0, Weight(__int_as_float(0x7fc00000))};
        Beside beside = {0, 0, 0, 0};
        float age = __int_as_float(0x7fc00000);
        bool valid = false;
        if (block.looks_at(s) && block.usable(s, r) && i32(t) < block.target_lengths()[r]) {
            const Stamp target = p == threadIdx.x ? ahead : target_at(block, r, t);
            const auto stamps = stamps_of<STAGED>(block, s, r);
            typedef decltype(stamps.length) Index;
            const Method method = stream.kind == SINGLE ? Method(stream.method) : LINEAR;
            const Limit limit = {stream.max_gap, __longlong_as_double(i64(stream.max_gap))};
            const Place<Index> place = locate(stamps, target, method, Extrapolate(args.extrapolate), limit);
            valid = place.valid;
            if (place.first >= 0) {
                pick = {u32(place.first), u32(place.second), Weight(-0.0)};
                if (place.first != place.second) weigh(stream, stamps, target, pick, args.flags, &beside);
            }
            if (args.age) age = age_of(stamps, target);
        }
        const u32 before = r * stream.row_step;
        pick.first += before;
        pick.second += before;
        block.picks(s)[q] = pick;
        if (RC_RICH && (args.flags & CUBICS)) {
            beside.before += before;
            beside.behind += before;
            block.besides(s)[q] = beside;
        }
        if (!block.tells()) continue;
        const i64 row = block.row + r, index = block.start + t;
        if (args.valid) args.valid[row * args.valid_strides[0] + index * args.valid_strides[1] + s * args.valid_strides[2]] = valid;
        if (args.age) args.age[row * args.age_strides[0] + index * args.age_strides[1] + s * args.age_strides[2]] = age;
    }
}

// Writes the units of a segment that the block has.
inline void write_segment(const Block& block, const SegmentArgs& segment, u8* out) {
    const Args& args = block.args;
    const u32 s = ONE ? 0 : segment.stream;
    const StreamArgs& stream = args.stream[s];
    const u32 first = max(block.first, segment.first_unit), end = min(block.end, segment.first_unit + segment.units);
    if (first >= end) return;
    const u32 units = end - first, skipped = (first - segment.first_unit) * segment.per_unit;
    const Part part = {
        args, segment, stream, block.picks(s),
        stream.values + block.row * stream.value_strides[0] + i64(segment.start + skipped) * stream.value_strides[2],
        out + i64(segment.column + skipped) * args.out_strides[2],
        segment.start + skipped, units,
        units == segment.units ? segment.inverse : (~0u >> 1) / units + 1, block.count(),
    };
#if RC_MIXED
    if (segment.method == ZEROS) {
        for (u32 k = threadIdx.x; k < part.total(); k += blockDim.x) {
            const u32 t = part.target(k), unit = k - t * part.units;
            store_integer(args.out_dtype, part.out + i64(t) * args.out_strides[1] + i64(unit) * args.out_strides[2], 0, false);
        }
    } else if (!stream.scaled && stream.dtype >= DTYPE_uint8) write_integers(part);
    else if (stream.dtype == DTYPE_float64) write_methods<double, 1>(part, block.besides(segment.stream));
    else write_methods<float, 4>(part, block.besides(segment.stream));
#else
    if (!ONE && segment.method == ZEROS) return write_zeros(part);
#if RC_RICH
    const int WIDE = sizeof(Out) == 8 ? 2 : 4;
    if (segment.method >= CUBIC) return write_methods<Weight, WIDE>(part, block.besides(segment.stream));
#endif
    write_plain(part);
#endif
}

// Writes the results that were collected, in the order of memory: segments alone would write parts of
// sectors, and each part costs the L2 as much as a whole one.
inline void write_collected(const Block& block, u8* out, const u8* from) {
    __syncthreads();
    // Both begin as far behind a multiple of 16 bytes.
    const u32 begin = u32(u64(out)) & 15, end = begin + block.count() * u32(block.args.out_strides[1]);
    const u32 first = (begin + 15) / 16 * 16, last = max(end / 16 * 16, first);
    out -= begin;
    from -= begin;
    for (u32 i = first + threadIdx.x * 16; i < last; i += blockDim.x * 16) *(uint4*)(out + i) = *(const uint4*)(from + i);
    for (u32 i = begin + threadIdx.x; i < min(first, end); i += blockDim.x) out[i] = from[i];
    for (u32 i = last + threadIdx.x; i < end; i += blockDim.x) out[i] = from[i];
}

// Blocks of THREADS threads that a multiprocessor should hold without spilled registers.
template <class T> constexpr bool is_bf16(T) { return false; }
constexpr bool is_bf16(bf16) { return true; }
template <class T> constexpr bool is_double(T) { return false; }
constexpr bool is_double(double) { return true; }
#if RC_MIXED
#elif __CUDA_ARCH__ > 1030
const int ONE_BLOCKS = 3, LEAN_BLOCKS = 2, RICH_BLOCKS = 2;
#else
const int ONE_BLOCKS = is_bf16(Out()) || sizeof(Weight) == 8 ? 4 : 5, LEAN_BLOCKS = is_bf16(Out()) ? 2 : 3;
const int RICH_BLOCKS = is_bf16(Out()) || is_double(Stamp()) || __CUDA_ARCH__ >= 1000 ? 2 : 3;
#endif
#if RC_MIXED
const int THREADS = 256, BLOCKS = 2;
#elif RC_WHOLE
const int THREADS = RC_WHOLE_THREADS, BLOCKS = blocks_of_rows(Out());
#elif RC_RICH
const int THREADS = 256, BLOCKS = sizeof(Weight) == 8 ? 2 : RICH_BLOCKS;
#else
const int THREADS = 256, BLOCKS = ONE ? ONE_BLOCKS : LEAN_BLOCKS;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Block block(args, memory);
    const u32 p = threadIdx.x - quotient(threadIdx.x, block.count()) * block.count(), r = block.row_of(p);
    const Stamp ahead = target_at(block, r, p - r * block.per);
    const bool checks = args.flags & CHECK;
    if (__builtin_expect(args.flags & STAGE, STAGE)) {
        read_lengths(block);
        if (args.flags & RAGGED) __syncthreads();
        stage_all(block);
        await_copies();
        __syncthreads();
        const bool outside = checks && args.extrapolate == ERROR;
        if (__builtin_expect(outside, 0)) check_rows(block, true);
        bool wrong = checks && !outside && seem_wrong(block);
        // Stamps are found to be wrong together with the samples, and those then again.
        for (;;) {
            search<true>(block, ahead);
            if (__builtin_expect(!__syncthreads_or(wrong), 1)) break;
            check_rows(block, true);
            wrong = false;
        }
    } else {
        read_lengths(block);
        __syncthreads();
        if (checks) check_rows(block, false);
        search<false>(block, ahead);
        __syncthreads();
    }

    u8* out = args.out + block.row * args.out_strides[0] + block.start * args.out_strides[1];
    const bool collects = !ONE && args.flags & COLLECT;
    u8* place = collects ? block.collected(out) : out;
#if RC_WHOLE
    if (args.flags & FOURS) write_whole<4, 12>(block, place);
    else write_whole<2, 14>(block, place);
#else
    for (u32 g = 0; g < (ONE ? 1 : args.segments); g++) write_segment(block, args.segment[g], place);
#endif
    if (collects) write_collected(block, out, place);
}
