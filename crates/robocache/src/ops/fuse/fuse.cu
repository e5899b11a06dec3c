// Several streams at common targets, side by side: out[b,t,:] from the samples around targets[b,t]
// in each stream. Also `resample` with methods and columns that its own kernel does not know.
// Host twin: cpu.rs, mixed.rs, integers.rs (the loops), blend.rs (the arithmetic).
// Grid: one block per (row, tile of targets, chunk of units); a unit is a few neighbouring columns
//   of one stream. The block finds the samples of its targets in every stream, with the stamps in
//   shared memory where they fit, then what rotations are multiplied with, then writes units.
// Preconditions: Args as made by cuda.rs: units allow accesses of their size, indices of samples fit
//   31 bits. Nothing is assumed of the stamps, targets and lengths themselves.
// Determinism: the same bits on every run, for every tile. Tolerance against the CPU: none, the
//   same bits, but for the payload of NaN.
//
// RC_OUT: type of all elements; RC_FLOAT: whether it is a float; RC_MIXED: any types instead; RC_RICH:
// whether there are methods beside lines and copies; RC_STAMP: i64, double, float; RC_STREAMS,
// RC_RANGES: how many Args can hold; RC_ARGS_SIZE.
#include "streams.cuh"
#include "units.cuh"

// Finds the samples of the tile's targets in all streams.
template <bool STAGED> void search(const Shared& shared, i64 row, i64 start, u32 count, i64 targets, bool write) {
    const Args& args = shared.args;
    for (u32 p = threadIdx.x; p < args.streams * count; p += blockDim.x) {
        const u32 s = p / count, t = p - s * count;
        const StreamArgs& stream = args.stream[s];
        const i64 index = start + t;
        Pick pick = {0, 0, Weight(__int_as_float(0x7fc00000))};
        float age = __int_as_float(0x7fc00000);
        bool valid = false;
        if (stream.kind != MISSING && shared.usable(s) && index < targets) {
            const Stamp target = args.targets[row * args.target_strides[0] + index * args.target_strides[1]];
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

// Blocks of 256 threads that a multiprocessor should hold without spilled registers.
#if __CUDA_ARCH__ >= 1000
const int BLOCKS = RC_RICH ? 2 : sizeof(Weight) == 8 ? 3 : 4;
#else
const int BLOCKS = RC_RICH ? 2 : 3;
#endif

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ i64 lengths[RC_STREAMS];
    __shared__ u32 bad;
    u32 unit = blockIdx.x, chunk = 0, tile = 0;
    if (args.chunks > 1) { chunk = unit % args.chunks; unit /= args.chunks; }
    if (args.tiles > 1) { tile = unit % args.tiles; unit /= args.tiles; }
    const i64 row = i64(args.first_row + unit);
    const i64 start = i64(tile) * args.tile;
    const u32 count = u32(min(i64(args.tile), args.target_count - start));
    Shared shared = {args, (Pick*)memory, lengths, &bad};

    if (threadIdx.x == 0) bad = 0;
    __syncthreads();
    i64 targets = args.target_count;
    read_lengths(shared, row, targets);
    __syncthreads();
    if (args.flags & STAGE) {
        stage_all(shared, row);
        __syncthreads();
        if (args.flags & CHECK) check_rows<true>(shared, row, targets);
        search<true>(shared, row, start, count, targets, chunk == 0);
    } else {
        if (args.flags & CHECK) check_rows<false>(shared, row, targets);
        search<false>(shared, row, start, count, targets, chunk == 0);
    }
    __syncthreads();
#if RC_RICH
    make_factors(shared, row, count);
    __syncthreads();
#endif

    const u32 first = chunk * args.chunk, end = min(first + args.chunk, args.units);
    // A thread keeps its unit and goes through targets; wide rows take several rounds.
    const u32 across = min(end - first, args.across), step = blockDim.x / max(across, 1u);
    const u32 t = threadIdx.x / max(across, 1u);
    if (t >= step) return;
    u8* out = args.out + row * args.out_strides[0] + start * args.out_strides[1];
    for (u32 u = first + threadIdx.x - t * across; u < end; u += across) {
        u32 s = 0;
        while (s + 1 < args.streams && args.stream[s + 1].first_unit <= u) s++;
        write_units(shared, s, u - args.stream[s].first_unit, row, out, t, count, step);
    }
}
