// Several streams at common targets, side by side: out[b,t,:] from the samples around targets[b,t]
// in each stream. Also `resample` with methods and columns that its own kernel does not know.
// Host twin: cpu.rs, mixed.rs, integers.rs (the loops), blend.rs (the arithmetic).
// Grid: one block per (row, tile of targets, chunk of units). The block finds the samples of its
//   targets in every stream, with the stamps in shared memory where they fit, then goes through the
//   segments: columns of one stream that are made by one method, so that all threads do the same.
//   A unit is a few neighbouring columns of a segment; a thread writes one unit of several targets, or,
//   of wide segments, a warp writes a target after the other. With KEEP the values of the row come to
//   shared memory meanwhile, with APART each warp brings and checks the stamps of streams of its own, with COLLECT
//   the results leave by way of shared memory, in whole vectors.
// Preconditions: Args as made by arguments.rs: units allow accesses of their size, indices of
//   samples fit 31 bits; with KEEP rows of values are dense multiples of 16 bytes and strides fit 32
//   bits; with COLLECT rows of out are dense and tiles of it begin at multiples of 16 bytes. Nothing is
//   assumed of the stamps, targets and lengths themselves.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_OUT: type of all elements; RC_FLOAT: whether it is a float; RC_MIXED: any types instead; RC_RICH:
// whether there are methods beside lines and copies; RC_KEPT: lines alone, with STAGE, KEEP and APART and without
// lengths, validity and ages, see kept.cuh; RC_WHOLE: narrow rows of one stream, see whole.cuh, by blocks of
// RC_WHOLE_THREADS at most; RC_STAMP: i64, double, float; RC_STREAMS, RC_SEGMENTS: how many Args can hold; RC_ARGS_SIZE.
#include "copy.cuh"
#include "kept.cuh"
#include "units.cuh"
#include "whole.cuh"

#if RC_KEPT

// One block per row.
extern "C" __global__ void __launch_bounds__(256, 4) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ i64 lengths[RC_STREAMS];
    __shared__ u32 bad;
    __shared__ u64 arrival;
    const i64 row = i64(args.first_row + blockIdx.x);
    const u32 count = u32(args.target_count);
    Shared shared = {args, (Pick*)memory, lengths, &bad, &arrival, args.present};
    keep_first(shared, row);

    const Team team(args);
    stage_targets(shared, team, row, count);
    stage_all(shared, team, row);
    keep_later(shared, row);
    end_copies();
    place_columns(shared, row);
    if (threadIdx.x < args.streams) lengths[threadIdx.x] = args.stream[threadIdx.x].samples;
    if (threadIdx.x == 0) bad = 0;
    await_copies<1>();
    __syncwarp();
    const bool wrong = (args.flags & CHECK) && (args.extrapolate == ERROR || seem_wrong(shared, team));
    if (__syncthreads_or(wrong)) check_rows<true>(shared, row, args.target_count);
    pick_samples(shared, count);
    await_values(shared);
    __syncthreads();
    write_lines(shared, args.out + row * args.out_strides[0], count);
}

#else

inline Stamp target_at(const Args& args, i64 row, i64 index) {
    return args.targets[row * args.target_strides[0] + index * args.target_strides[1]];
}

// Finds the samples of the tile's targets in all streams. `ahead`: the first target that the thread needs.
template <bool STAGED>
void search(const Shared& shared, i64 row, i64 start, u32 count, i64 targets, Stamp ahead, bool write) {
    const Args& args = shared.args;
    for (u32 p = threadIdx.x; p < args.streams * count; p += blockDim.x) {
        const u32 s = quotient(p, count), t = p - s * count;
        const StreamArgs& stream = args.stream[s];
        const i64 index = start + t;
        Pick pick = {0, 0, Weight(__int_as_float(0x7fc00000))};
        float age = __int_as_float(0x7fc00000);
        bool valid = false;
        if (shared.looks_at(s) && shared.usable(s) && index < targets) {
            const Stamp target = p == threadIdx.x ? ahead : target_at(args, row, index);
            const auto stamps = row_of<STAGED>(shared, s, row);
            typedef decltype(stamps.length) Index;
            const Method method = stream.kind == SINGLE ? Method(stream.method) : LINEAR;
            const Limit limit = {stream.max_gap, __longlong_as_double(i64(stream.max_gap))};
            const Place<Index> place = locate(stamps, target, method, Extrapolate(args.extrapolate), limit);
            valid = place.valid;
            if (place.first >= 0) {
                pick = {u32(place.first), u32(place.second), Weight(-0.0)};
                if (place.first != place.second) weigh(stream, stamps, target, pick, shared, s * args.tile + t);
            }
            if (args.age) age = age_of(stamps, target);
        }
        shared.picks[s * args.tile + t] = pick;
        if (!write) continue;
        if (args.valid) args.valid[row * args.valid_strides[0] + index * args.valid_strides[1] + s * args.valid_strides[2]] = valid;
        if (args.age) args.age[row * args.age_strides[0] + index * args.age_strides[1] + s * args.age_strides[2]] = age;
    }
}

// Which streams have units in `first..end`; all that exist where the block writes all, or tells what is valid or how old.
inline u32 needed_streams(const Args& args, u32 first, u32 end, bool tells) {
    if (args.chunks == 1 || (tells && (args.valid || args.age))) return args.present;
    u32 needed = 0;
    for (u32 g = 0; g < args.segments; g++) {
        const SegmentArgs& segment = args.segment[g];
        const bool inside = segment.first_unit < end && first < segment.first_unit + segment.units;
        // A stream without columns is looked at all the same, by one block.
        if (segment.method != ZEROS && (inside || (tells && segment.units == 0))) needed |= 1u << segment.stream;
    }
    return needed;
}

// Writes the units of a segment that lie in `first..end` of all units, for the targets of the tile.
inline void write_segment(const Shared& shared, const SegmentArgs& segment, u32 first, u32 end, i64 row, u8* out, u32 count) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[segment.stream];
#if !RC_MIXED && !RC_RICH
    if (is_wide(args, segment)) return write_wide(shared, segment, out, count);
#endif
    const u32 t = quotient(threadIdx.x, segment.across), step = quotient(blockDim.x, segment.across);
    if (t >= step) return;
    first = max(first, segment.first_unit);
    end = min(end, segment.first_unit + segment.units);
    // A thread keeps its unit and goes through targets; wide segments take several rounds.
    for (u32 unit = first + threadIdx.x - t * segment.across; unit < end; unit += segment.across) {
        const u32 inside = (unit - segment.first_unit) * segment.per_unit;
        const Part part = {
            segment, stream, shared.picks + segment.stream * args.tile,
            shared.values(stream, row) + i64(segment.start + inside) * stream.value_strides[2],
            out + i64(segment.column + inside) * args.out_strides[2],
            segment.start + inside, t, step, count,
        };
#if RC_MIXED
        const Beside* besides = shared.besides() + segment.stream * args.tile;
        if (segment.method == ZEROS) {
            for (u32 i = t; i < count; i += step) store_integer(args.out_dtype, part.out + i64(i) * args.out_strides[1], 0, false);
        } else if (!stream.scaled && stream.dtype >= DTYPE_uint8) write_integers(args, part);
        else if (stream.dtype == DTYPE_float64) write_methods<double, 1>(args, part, besides);
        else write_methods<float, 4>(args, part, besides);
#else
        if (segment.method == ZEROS) { write_zeros(args, part); continue; }
#if RC_RICH
        const int WIDE = sizeof(Out) == 8 ? 2 : 4;
        if (segment.method >= CUBIC) {
            write_methods<Weight, WIDE>(args, part, shared.besides() + segment.stream * args.tile);
            continue;
        }
#endif
        write_plain(args, part);
#endif
    }
}

// Writes the rows of the tile that were collected, in the order of memory: segments alone would write parts of
// sectors, and each part costs the L2 as much as a whole one.
inline void write_collected(const Shared& shared, u8* out, u32 count) {
    typedef Raw<16>::Type Vector;
    const u8* from = (const u8*)shared.stamps();
    const u32 bytes = count * u32(shared.args.out_strides[1]), vectors = bytes / 16;
    __syncthreads();
    for (u32 i = threadIdx.x; i < vectors; i += blockDim.x) ((Vector*)out)[i] = ((const Vector*)from)[i];
    const u32 last = vectors * 16 + threadIdx.x;
    if (last < bytes) out[last] = from[last];
}

// Blocks of THREADS threads that a multiprocessor should hold without spilled registers; stamps of 8 bytes
// and compilers for sm_80 and sm_120 take a few more.
#if __CUDA_ARCH__ < 900
const int LEAN_BLOCKS = 3, RICH_BLOCKS = 3;
#elif __CUDA_ARCH__ > 1030
const int LEAN_BLOCKS = 3, RICH_BLOCKS = 2;
#else
const int LEAN_BLOCKS = sizeof(Weight) == 8 ? 3 : 4, RICH_BLOCKS = sizeof(Stamp) == 4 ? 4 : __CUDA_ARCH__ < 1000 ? 3 : 2;
#endif
#if RC_WHOLE
const int THREADS = RC_WHOLE_THREADS, BLOCKS = blocks_of_rows(Out());
#else
const int THREADS = 256, BLOCKS = RC_MIXED || (RC_RICH && sizeof(Weight) == 8) ? 2 : RC_RICH ? RICH_BLOCKS : LEAN_BLOCKS;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ i64 lengths[RC_STREAMS];
    __shared__ u32 bad;
    __shared__ u64 arrival;
    u32 unit = blockIdx.x, chunk = 0, tile = 0;
    if (args.chunks > 1) { chunk = unit % args.chunks; unit /= args.chunks; }
    if (args.tiles > 1) { tile = unit % args.tiles; unit /= args.tiles; }
    const i64 row = i64(args.first_row + unit);
    const i64 start = i64(tile) * args.tile;
    const u32 count = u32(min(i64(args.tile), args.target_count - start));
    const u32 first = chunk * args.chunk, end = min(first + args.chunk, args.units);
    Shared shared = {args, (Pick*)memory, lengths, &bad, &arrival, needed_streams(args, first, end, chunk == 0)};
    if (args.flags & KEEP) keep_first(shared, row);

    const Stamp ahead = target_at(args, row, start + threadIdx.x - quotient(threadIdx.x, count) * count);
    i64 targets = args.target_count;
    read_lengths(shared, row, targets);
    const bool checks = args.flags & CHECK;
    if (args.flags & STAGE) {
        // Stamps past the end of a row are not looked at, so its length comes first.
        if (args.flags & RAGGED) __syncthreads();
        const Team team(args);
        stage_all(shared, team, row);
        if (args.flags & KEEP) keep_later(shared, row);
        end_copies();
        await_copies<1>();
        if (args.flags & APART) __syncwarp();
        else __syncthreads();
        const bool wrong = checks && (args.extrapolate == ERROR || seem_wrong(shared, team));
        if (__syncthreads_or(wrong)) check_rows<true>(shared, row, targets);
        search<true>(shared, row, start, count, targets, ahead, chunk == 0);
    } else {
        __syncthreads();
        if (checks) check_rows<false>(shared, row, targets);
        search<false>(shared, row, start, count, targets, ahead, chunk == 0);
    }
    if (args.flags & KEEP) await_values(shared);
    __syncthreads();

    u8* out = args.out + row * args.out_strides[0] + start * args.out_strides[1];
#if RC_WHOLE
    if (args.flags & FOURS) write_whole<4, 12>(shared, row, (u8*)shared.stamps(), count);
    else write_whole<2, 14>(shared, row, (u8*)shared.stamps(), count);
    write_collected(shared, out, count);
#else
    u8* place = RC_RICH && (args.flags & COLLECT) ? (u8*)shared.stamps() : out;
    for (u32 g = 0; g < args.segments; g++) write_segment(shared, args.segment[g], first, end, row, place, count);
    if (RC_RICH && (args.flags & COLLECT)) write_collected(shared, out, count);
#endif
}

#endif
