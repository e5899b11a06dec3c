// The gradient of resample in its values, for methods that are linear in them and rows of few columns: what rows.cu computes,
// bit for bit, where a batch has rows enough that a block can make a whole one.
// Host twin: cpu.rs (the loops), ../resample/locate.rs (the rules).
// Grid: one block per row. It merges stamps and targets, which tells the sample ahead of each target, and then sums up one
//   tile of samples after the other, a sample by a thread, or by a few. The copy engine brings the gradients that a tile
//   needs while the one ahead of it is summed up, and takes the sums away.
// Preconditions: Args as made by narrow_cuda.rs, from sm_90 on. Samples of a row of grad and out follow on each other, rows
//   begin at multiples of 16 bytes and have whole units of them. The method is LINEAR or PREVIOUS. Nothing is assumed of
//   stamps, targets and lengths: rows that resample refuses, that have no samples, whose targets are not in order, of which
//   stamps are equal, or that reach the highest number are left to rows.cu, see `done`.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for the payload of NaN.
//
// RC_CELL: element type; RC_STAMP: i64, double, float; RC_BYTES: bytes per access; RC_THREADS: of a block, at most;
// RC_BUFFERS: for gradients; RC_ARGS_SIZE.
#include "rc.cuh"
#include "bulk.cuh"
#include "rows.cuh"
#include "vectors.cuh"

using namespace rc;

typedef RC_CELL Cell;
typedef RC_STAMP Stamp;
typedef Words<RC_BYTES> Vector;

// Mirrors `Args` in narrow_cuda.rs. Strides of grad and out are in bytes, all others in elements.
struct Args {
    const u8* grad;
    const Stamp* times;
    const Stamp* targets;
    const void* lengths;
    const void* target_lengths;
    u8* out;
    u8* done;  // for each row, whether it was made here
    i64 grad_stride, out_stride, time_strides[2], target_strides[2], length_stride, target_length_stride;
    i64 first_row;
    u32 samples, target_count;
    u32 method, extrapolate, flags;
    u32 bytes;    // of a sample
    u32 vectors;  // of a sample
    u32 tile;     // samples
    u32 parts;    // threads that share a sample
    u32 piece;    // targets that a buffer holds
    u32 starts_at, room_at, buffers_at, buffer;  // places and a size in shared memory
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if __CUDA_ARCH__ >= 900

// Which targets were made of which samples. Sample n is the one ahead of the targets starts[n]..starts[n + 1] and has
// the weight 1 - weights[t] in them, the next one weights[t]; a weight of 0 does not matter.
struct Links {
    union {
        float* weights;
        u32* begun;  // at first: how many samples begin at a target or before it
    };
    u32* starts;
};

// Before and after all targets.
inline float lowest_of(float) { return -__int_as_float(0x7f800000); }
inline double lowest_of(double) { return -__hiloint2double(0x7ff00000, 0); }
inline i64 lowest_of(i64) { return i64(1ull << 63); }
inline float highest_of(float) { return __int_as_float(0x7f800000); }
inline double highest_of(double) { return __hiloint2double(0x7ff00000, 0); }
inline i64 highest_of(i64) { return ~i64(1ull << 63); }
// The next number.
inline float after(float x) { return __uint_as_float(x == 0 ? 1u : __float_as_uint(x) + (x > 0 ? 1u : ~0u)); }
inline double after(double x) { return __longlong_as_double(x == 0 ? 1 : __double_as_longlong(x) + (x > 0 ? 1 : -1)); }
inline i64 after(i64 x) { return x + 1; }

// The stamps of a row, and then from where on targets belong to samples: their stamps, but for the ends of the row.
struct Keys {
    Stamp* data;  // with room for two more than args.samples
    i32 length;   // samples that exist
    Stamp low, high;

    // Whether the row is none for this kernel. Each thread sees its share.
    bool are_bad() const {
        bool bad = !is_finite(low) || !is_finite(high) || is_coarse(low) || is_coarse(high) || !(high < highest_of(high));
        for (i32 i = threadIdx.x; i + 1 < length; i += blockDim.x) bad |= !(data[i] < data[i + 1]);
        return bad;
    }
    bool go_on_as_lines(const Args& args) const { return args.extrapolate == LINE && length > 1; }
    // Behind a barrier, and ahead of one.
    void set_ends(const Args& args) {
        const bool goes_on = args.extrapolate == CLAMP || args.extrapolate == LINE;
        const Stamp none = highest_of(high);
        if (threadIdx.x == 0 && goes_on) data[0] = lowest_of(low);
        // Samples that do not exist. Targets behind all others, where those have no value, come behind all of these.
        for (i32 i = length + i32(threadIdx.x); i <= i32(args.samples); i += blockDim.x) data[i] = goes_on ? none : after(high);
        // A line through the last two samples goes on behind them.
        if (threadIdx.x == 0 && go_on_as_lines(args)) data[length - 1] = none;
    }
    // The weight in a target of the sample behind the last that has begun, of `begun`.
    float weight_behind(const Args& args, u32 begun, Stamp target) const {
        const bool outside = target < low && !go_on_as_lines(args);
        if (args.method != LINEAR || begun == 0 || begun >= u32(length) || outside) return 0.0f;
        const i32 first = i32(begun) - 1;
        // Also where the gap is so large that no ratio tells.
        if (first + 2 == length && target == high) return 1.0f;
        return ratio(0.0f, target, first == 0 ? low : data[first], first + 2 == length ? high : data[first + 1]);
    }
};

// Whether targets are none for this kernel; each thread sees its share. Behind the last is the highest number of all.
inline bool are_bad(const Args& args, const Keys& keys, const Stamp* targets, u32 count) {
    bool bad = false;
    for (u32 t = threadIdx.x; t < count; t += blockDim.x) {
        const Stamp target = targets[t];
        bad |= !(target <= targets[t + 1]) || !(target < highest_of(target));  // NaN is not in order.
        bad |= args.extrapolate == ERROR && (target < keys.low || target > keys.high);
    }
    return bad;
}

// Merges keys and targets, a key ahead of targets that equal it: how many targets come before a key is where its sample
// starts. Each thread has as many of them as any other, whatever they are.
inline void merge(const Args& args, const Stamp* keys, const Stamp* targets, u32 count, const Links& links) {
    const u32 key_count = args.samples + 1, all = key_count + count;
    // An odd number, so that threads side by side look at different banks.
    const u32 run = (all + blockDim.x - 1) / blockDim.x | 1, start = threadIdx.x * run;
    if (start >= all) return;
    u32 s = start > count ? start - count : 0, most = min(start, key_count);
    while (s < most) {
        const u32 middle = (s + most) / 2;
        if (targets[start - 1 - middle] < keys[middle]) most = middle; else s = middle + 1;
    }
    u32 t = start - s;
    Stamp key = keys[s], target = targets[t];
    #pragma unroll 1
    for (u32 left = min(run, all - start); left > 0; left--) {
        const bool begins = s < key_count && !(target < key);
        *(begins ? links.starts + s : links.begun + t) = begins ? t : s;
        s += begins;
        t += !begins;
        const Stamp next = *(begins ? keys + s : targets + t);
        key = begins ? next : key;
        target = begins ? target : next;
    }
}

// Makes weights of what `merge` found out.
inline void weigh(const Args& args, const Keys& keys, const Stamp* targets, u32 count, const Links& links) {
    for (u32 t = threadIdx.x; t < count; t += blockDim.x)
        links.weights[t] = keys.weight_behind(args, links.begun[t], targets[t]);
}

// What the copy engine brings at a time: the targets from..to, of those that a tile needs. One thread cuts the row into
// these; the others read them behind the arrival of the gradients.
struct __align__(16) Step {
    u32 tile, from, to;
    u32 ends;  // whether these are the last ones of the tile
};
struct Cut {
    u32 tile, from, end;

    void begin(const Args& args, const u32* starts, u32 which) {
        tile = which;
        const u32 first = tile * args.tile;
        if (first >= args.samples) return;
        // The first sample also needs the targets of the one ahead of it.
        from = starts[first > 0 ? first - 1 : 0];
        end = starts[min(first + args.tile, args.samples)];
    }
    // Asks for the next step, if there is one; its gradients lie as far into a unit of 16 bytes in the buffer as in memory.
    void request(const Args& args, const u32* starts, const u8* grad, Step& step, u8* buffer, u64* arrival) {
        if (tile * args.tile >= args.samples) return;
        const u32 to = min(from + args.piece, end), start = from * args.bytes & ~15u;
        const u32 bytes = from < to ? ((to * args.bytes + 15) & ~15u) - start : 0;
        step = {tile, from, to, to == end};
        expect(arrival, bytes);
        if (bytes > 0) bring(buffer, grad + start, bytes, arrival);
        from = to;
        if (to == end) begin(args, starts, tile + 1);
    }
};

typedef Group<Cell> CellGroup;
// Vectors of a thread, and their numbers. Whole units of 16 bytes go to threads side by side, else a warp would find
// all of them in a few banks.
const u32 PER = RC_BYTES == 16 ? 1 : 4;
const int NUMBERS = Vector::COUNT / CellGroup::WORDS * CellGroup::NUMBERS;

// Which vectors of which sample of a tile a thread has.
struct Lane {
    u32 sample, first, count;
};
inline Lane lane_of(const Args& args) {
    const bool side_by_side = PER == 1;
    const u32 by = side_by_side ? args.parts : args.tile, quotient = threadIdx.x / by, rest = threadIdx.x - quotient * by;
    const u32 first = (side_by_side ? rest : quotient) * PER;
    return {side_by_side ? quotient : rest, first, min(args.vectors - min(first, args.vectors), PER)};
}

// Adds what the targets from..to hand back; those before `own` are of the sample ahead. `place`: the gradient of target 0 in
// shared memory, were it there. COUNT: vectors.
template <int COUNT>
void add(const Args& args, const float* weights, u32 place, u32 from, u32 own, u32 to, float (&sums)[PER][NUMBERS]) {
    place += from * args.bytes;
    #pragma unroll 1
    for (; from < to; from++, place += args.bytes) {
        const float weight = weights[from], factor = from < own ? weight : 1.0f - weight;
        // A target of weight 0 does not matter, not even as NaN.
        if (factor == 0.0f) continue;
        Vector given[COUNT];
        #pragma unroll
        for (int v = 0; v < COUNT; v++) load_near(place + v * RC_BYTES, given[v]);
        #pragma unroll
        for (int v = 0; v < COUNT; v++) {
            #pragma unroll
            for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++) {
                float numbers[CellGroup::NUMBERS];
                CellGroup::widen(given[v].words + g * CellGroup::WORDS, numbers);
                #pragma unroll
                for (int i = 0; i < CellGroup::NUMBERS; i++) {
                    float& sum = sums[v][g * CellGroup::NUMBERS + i];
                    sum = fmaf(factor, numbers[i], sum);
                }
            }
        }
    }
}

// Writes sums to where the copy engine takes them from, and begins new ones.
inline void put(u8* place, u32 count, float (&sums)[PER][NUMBERS]) {
    #pragma unroll
    for (u32 v = 0; v < PER; v++) {
        Vector result;
        #pragma unroll
        for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++)
            CellGroup::narrow(sums[v] + g * CellGroup::NUMBERS, result.words + g * CellGroup::WORDS);
        if (v < count) *(typename Raw<RC_BYTES>::Type*)(place + v * RC_BYTES) = result.raw;
        #pragma unroll
        for (int i = 0; i < NUMBERS; i++) sums[v][i] = 0.0f;
    }
}

// Sums up all samples of the row.
inline void sum_tiles(const Args& args, const Links& links, i64 row, u8* shared, u64* arrivals, Step* steps) {
    const u8* grad = args.grad + row * args.grad_stride;
    u8* const out = args.out + row * args.out_stride;
    u8* const buffers = shared + args.buffers_at;
    const Lane lane = lane_of(args);
    const bool leads = threadIdx.x == 0, takes_part = lane.sample < args.tile && lane.count > 0;
    Cut cut;
    if (leads) {
        cut.begin(args, links.starts, 0);
        for (u32 i = 0; i < RC_BUFFERS; i++)
            cut.request(args, links.starts, grad, steps[i], buffers + i * args.buffer, arrivals + i);
    }
    float sums[PER][NUMBERS] = {};
    u32 tile = 0;
    for (u32 number = 0; tile * args.tile < args.samples; number++) {
        const u32 slot = number % RC_BUFFERS;
        await(arrivals + slot, number / RC_BUFFERS % 2);
        const Step step = steps[slot];
        tile = step.tile;
        const u32 start = tile * args.tile, sample = start + lane.sample;
        u8* const made = shared + args.room_at + tile % 2 * (args.tile * args.bytes);
        if (takes_part && sample < args.samples) {
            const u32 own = links.starts[sample], ahead = sample > 0 ? links.starts[sample - 1] : own;
            const u32 from = max(ahead, step.from), to = min(links.starts[sample + 1], step.to);
            const u32 place = near_place(buffers + slot * args.buffer) + (step.from * args.bytes & 15) + lane.first * RC_BYTES -
                              step.from * args.bytes;
            // Never two: of whole units there is one, and of others, if they are more, an odd number.
            if (lane.count == PER) add<PER>(args, links.weights, place, from, own, to, sums);
            else if (lane.count == 3) add<PER < 3 ? PER : 3>(args, links.weights, place, from, own, to, sums);
            else add<1>(args, links.weights, place, from, own, to, sums);
            if (step.ends) put(made + lane.sample * args.bytes + lane.first * RC_BYTES, lane.count, sums);
        }
        tile += step.ends;
        hand_over();
        if (leads) await_sent();  // what was put where the next sums will be
        __syncthreads();
        if (leads) {
            if (step.ends) send(out + start * args.bytes, made, min(args.tile, args.samples - start) * args.bytes);
            cut.request(args, links.starts, grad, steps[slot], buffers + slot * args.buffer, arrivals + slot);
        }
    }
    if (leads) await_sent();
}

// How many bytes of a row of stamps the copy engine can bring; the rest is brought by the threads.
inline u32 units_of(const Stamps<Stamp>& row) {
    return row.stride == 1 && (u64(row.data) & 15) == 0 ? u32(row.length) * u32(sizeof(Stamp)) & ~15u : 0;
}
inline void bring_rest(const Stamps<Stamp>& row, Stamp* to) {
    for (u32 i = units_of(row) / u32(sizeof(Stamp)) + threadIdx.x; i < u32(row.length); i += blockDim.x) to[i] = row.at(i);
}

extern "C" __global__ void __launch_bounds__(RC_THREADS, 2) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ u64 arrivals[RC_BUFFERS + 1];
    __shared__ Step steps[RC_BUFFERS];
    const i64 row = args.first_row + blockIdx.x;
    i64 samples = args.samples, targets = args.target_count;
    bool bad = false;
    if (args.lengths)
        bad |= !read_length(args.lengths, args.flags & WIDE_LENGTHS, row * args.length_stride, args.samples, samples);
    if (args.target_lengths)
        bad |= !read_length(args.target_lengths, args.flags & WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                            args.target_count, targets);
    const Stamps<Stamp> given = {args.times + row * args.time_strides[0], args.time_strides[1], samples};
    const Stamps<Stamp> wanted = {args.targets + row * args.target_strides[0], args.target_strides[1], targets};
    // Where sums and gradients will be.
    Keys keys = {(Stamp*)(shared + args.room_at), i32(samples)};
    Stamp* const targets_at = (Stamp*)(shared + args.buffers_at);
    u64* const arrival = arrivals + RC_BUFFERS;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i <= RC_BUFFERS; i++) make_arrival(arrivals + i);
        end_making();
        const u32 of_stamps = units_of(given), of_targets = units_of(wanted);
        expect(arrival, of_stamps + of_targets);
        if (of_stamps > 0) bring(keys.data, given.data, of_stamps, arrival);
        if (of_targets > 0) bring(targets_at, wanted.data, of_targets, arrival);
        targets_at[targets] = highest_of(Stamp());
    }
    bring_rest(given, keys.data);
    bring_rest(wanted, targets_at);
    __syncthreads();
    await(arrival, 0);
    const Links links = {{(float*)shared}, (u32*)(shared + args.starts_at)};
    bad |= samples == 0;
    if (!bad) {
        keys.low = keys.data[0];
        keys.high = keys.data[samples - 1];
        bad = keys.are_bad() || are_bad(args, keys, targets_at, u32(targets));
    }
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0) args.done[row] = !bad;
    if (bad) return;
    keys.set_ends(args);
    __syncthreads();
    merge(args, keys.data, targets_at, u32(targets), links);
    __syncthreads();
    weigh(args, keys, targets_at, u32(targets), links);
    hand_over();
    __syncthreads();
    sum_tiles(args, links, row, shared, arrivals, steps);
}

#else
extern "C" __global__ void RC_ENTRY(const __grid_constant__ Args args) {}
#endif
