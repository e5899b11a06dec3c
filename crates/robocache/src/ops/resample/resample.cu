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
        // As many at once as 64 registers hold, so that a multiprocessor holds four blocks of 256 threads.
        const Far<Stride> from(values + column * args.value_strides[2], Stride(args.value_strides[1]));
        copy_column<Cell, RC_BYTES, RC_BLEND, 4>(from, out + column * args.out_strides[2], Stride(args.out_strides[1]),
                                                 args.missing, (const Pick*)picks, t, count, step);
    }
}
