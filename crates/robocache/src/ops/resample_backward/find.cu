// The gradient of resample where it is more than weights, or a batch shares its values: first half. What each target of a row was made of, and which targets
// each sample is part of (links.cuh).
// Host twin: cpu.rs (find), row.rs and unordered.rs; ../align/locate.rs (the rules).
// Grid: one block of 256 threads per (row, part of its targets). Every block looks at all stamps and targets of its row:
//   whether resample took it, and whether targets are in order. Then each finds its own targets, or, where these are in any
//   order, the first block of the row sorts them all.
// Preconditions: Args as made by find_cuda.rs; fewer than 2^30 samples and targets. Nothing is assumed of stamps, targets and
//   lengths: rows that resample refuses are linked to nothing and not reported again.
// Determinism: the same bits on every run and for every number of parts.
//
// RC_STAMP: i64, double, float; RC_SUM_TYPE: float, double; RC_ARGS_SIZE.
#include "rc.cuh"
#include "block.cuh"
#include "locate.cuh"
#include "rows.cuh"
#include "links.cuh"

using namespace rc;

typedef RC_STAMP Stamp;
typedef RC_SUM_TYPE Sum;
typedef Links<Sum> List;

// Mirrors `Args` in find_cuda.rs. Strides are in elements.
struct Args {
    const Stamp* times;
    const Stamp* targets;
    const void* lengths;
    const void* target_lengths;
    u32* starts;
    Sum* weights;
    u32* order;
    Sum* gaps;  // two for each sample where curves are wanted: see find_gaps
    i64 time_strides[2], target_strides[2];
    i64 length_stride, target_length_stride;
    i64 first_row;
    u32 samples, target_count;
    u32 part, parts;  // targets of a block, blocks of a row
    u32 method, extrapolate, flags, padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// Beside those of rows.cuh: there is room in shared memory to sort a row.
const u32 NEAR = 16;

// What a block works on.
struct Task {
    i64 row;
    u32 part;
    u32 samples, targets;  // that exist
};

// The sample that a target is linked to, -1 and `Args::samples` for none, and the weight of the next one.
struct Link {
    i32 sample;
    Sum weight;
};

template <class Row> Link find(const Args& args, const Row& stamps, Stamp target) {
    typedef typename Row::Index RowIndex;
    const Limit none = {~0ull, 0};
    const Place<RowIndex> place = locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), none);
    if (place.first < 0) return {target < stamps.at(0) ? -1 : i32(args.samples), Sum(0)};
    if (place.first != place.second)
        return {i32(place.first), ratio(Sum(), target, stamps.at(place.first), stamps.at(place.second))};
    // Where lines go on outside, a target on the last sample lies between two that are linked to the one ahead.
    if (args.extrapolate == LINE && place.first == stamps.length - 1) {
        const RowIndex ahead = second_last(stamps);
        if (ahead >= 0) return {i32(ahead), Sum(1)};
    }
    return {i32(place.first), Sum(0)};
}

template <class Row> u32 twin(const Row& stamps, u32 sample) {
    typedef typename Row::Index RowIndex;
    if (sample == 0 || sample >= stamps.length) return 0;
    return stamps.at(RowIndex(sample)) == stamps.at(RowIndex(sample) - 1) ? List::TWIN : 0;
}

// The samples of a part, of those that exist and those that do not, and the end of the list.
struct Share {
    u32 begin, end;
};
inline Share share_of(const Args& args, u32 part) {
    const u64 all = u64(args.samples) + 1;
    return {u32(all * part / args.parts), u32(all * (part + 1) / args.parts)};
}

// What all threads of a block find out about a row.
enum Finding : u32 { STAMPS_OUT_OF_ORDER = 1, TARGETS_OUT_OF_ORDER = 2, OUTSIDE_OF_STAMPS = 4 };

// Whether ends of stamps that are in order are such that resample took them.
template <class Row> bool has_good_ends(const Row& stamps) {
    // NaN compares as out of order, so sorted stamps are finite when both ends are.
    const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
    return is_finite(low) && is_finite(high) && !is_coarse(low) && !is_coarse(high);
}

// Stamps in shared memory, of which the last search is remembered: the next one, for a later target, starts there.
struct Ahead : Staged<Stamp> {
    mutable i32 from;
};
inline i32 count_until(const Ahead& stamps, Stamp target) {
    i32 low = stamps.from, high = stamps.length;
    // Of a clock it is the next one or the one behind that; then steps double.
    for (i32 step = 1; low < high; step *= 2) {
        const i32 probe = min(low + step, high) - 1;
        if (target < stamps.at(probe)) {
            high = probe;
            break;
        }
        low = probe + 1;
    }
    while (low < high) {
        const i32 middle = (low + high) >> 1;
        if (target < stamps.at(middle)) high = middle; else low = middle + 1;
    }
    return stamps.from = low;
}
inline Ahead following(const Staged<Stamp>& stamps, Stamp target) { return {stamps.data, stamps.length, count_until(stamps, target)}; }
inline Stamps<Stamp> following(const Stamps<Stamp>& stamps, Stamp) { return stamps; }

// The gaps before and behind the interval that starts at a sample, in units of its own; 0 where there is none.
template <class Row> void find_gaps(const Args& args, const Task& task, const Row& stamps) {
    typedef typename Row::Index RowIndex;
    const auto next_of = [&](RowIndex sample) { return sample + 1 < stamps.length ? last_equal(stamps, sample + 1) : stamps.length; };
    const auto [begin, end] = share_of(args, task.part);
    for (u32 sample = begin + threadIdx.x; sample < min(end, task.samples); sample += blockDim.x) {
        // Of samples that exist only.
        const RowIndex own = RowIndex(sample);
        if (own + 1 < stamps.length && stamps.at(own + 1) == stamps.at(own)) continue;
        const RowIndex second = next_of(own);
        RowIndex earlier = own;
        while (earlier > 0 && stamps.at(earlier - 1) == stamps.at(own)) earlier--;
        Sum before = 0, behind = 0;
        if (second < stamps.length) {
            const double between = double(gap(stamps.at(own), stamps.at(second)));
            const RowIndex later = next_of(second);
            if (earlier > 0) before = Sum(double(gap(stamps.at(earlier - 1), stamps.at(own))) / between);
            if (later < stamps.length) behind = Sum(double(gap(stamps.at(second), stamps.at(later))) / between);
        }
        Sum* gaps = args.gaps + 2 * (task.row * args.samples + sample);
        gaps[0] = before;
        gaps[1] = behind;
    }
}

// Starts of the samples begin..end, which are all the same.
template <class Row> void write_starts(const Row& stamps, u32* starts, i32 begin, i32 end, u32 start, u32 thread, u32 threads) {
    for (i32 sample = begin + i32(thread); sample < end; sample += i32(threads)) starts[sample] = start | twin(stamps, u32(sample));
}

// Targets in order: each block lists those of its part, and says where they start for the samples after that of the target
// ahead of the part. `samples`: shared memory for one number more than the part has targets.
template <class Row>
void list_part(const Args& args, const Task& task, const Row& stamps, const Stamps<Stamp>& targets, u32* starts, i32* samples) {
    const u32 first = task.part * args.part;
    if (first >= task.targets && task.part > 0) return;
    const u32 count = min(args.part, task.targets - first);
    Sum* weights = args.weights + task.row * args.target_count + first;
    // Each thread finds a few side by side, one behind the other.
    const u32 each = (count + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each, end = min(begin + each, count);
    if (begin < end) {
        auto row = following(stamps, targets.at(first + begin));
        for (u32 i = begin; i < end; i++) {
            const Link link = find(args, row, targets.at(first + i));
            samples[i + 1] = link.sample;
            weights[i] = link.weight;
        }
    }
    if (threadIdx.x == 0) samples[0] = first == 0 ? -1 : find(args, stamps, targets.at(first - 1)).sample;
    __syncthreads();
    // Up to the sample of a target, there is nothing between it and the target ahead of it.
    for (u32 base = 0; base < count; base += blockDim.x) {
        const u32 i = base + threadIdx.x;
        const i32 from = i < count ? samples[i] + 1 : 0, to = i < count ? samples[i + 1] + 1 : 0;
        const i32 FEW = 8;
        write_starts(stamps, starts, from, min(to, from + FEW), first + i, 0, 1);
        // What is much is done by the warp.
        for (u32 left = __ballot_sync(~0u, to - from > FEW); left; left &= left - 1) {
            const u32 lane = __ffs(left) - 1;
            const i32 begin = __shfl_sync(~0u, from, lane) + FEW, end = __shfl_sync(~0u, to, lane);
            write_starts(stamps, starts, begin, end, first + base + (threadIdx.x & ~31u) + lane, threadIdx.x & 31, 32);
        }
    }
    if (first + count < task.targets) return;
    write_starts(stamps, starts, samples[count] + 1, i32(args.samples) + 1, task.targets, threadIdx.x, blockDim.x);
    if (threadIdx.x == 0) {
        starts[args.samples + 1] = 0;
        starts[args.samples + 2] = task.samples;
    }
}

// Makes how many there are of each into how many there are before each.
inline void add_up(u32* counts, u32 length) {
    __shared__ u32 sums[8];
    const u32 each = (length + blockDim.x - 1) / blockDim.x, begin = min(threadIdx.x * each, length), end = min(begin + each, length);
    u32 own = 0;
    for (u32 i = begin; i < end; i++) own += counts[i];
    u32 before = exclusive_scan(own, sums);
    for (u32 i = begin; i < end; i++) {
        const u32 count = counts[i];
        counts[i] = before;
        before += count;
    }
    __syncthreads();
}

// Targets in any order, sorted by one block. `room`: shared memory for two numbers more than there are samples.
template <class Row>
void sort_row(const Args& args, const Task& task, const Row& stamps, const Stamps<Stamp>& targets, u32* starts, u32* room) {
    const u32 runs = args.samples + 2;  // before all samples, of each of them, after all
    u32* counts = args.flags & NEAR ? room : starts;
    for (u32 i = threadIdx.x; i < runs; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    #pragma unroll 1
    for (u32 i = threadIdx.x; i < task.targets; i += blockDim.x) atomicAdd(&counts[find(args, stamps, targets.at(i)).sample + 1], 1);
    __syncthreads();
    add_up(counts, runs);
    // Warp after warp takes its places, so that targets of a sample stay in their order, however many they are.
    const u32 lane = threadIdx.x & 31, none = ~0u;
    #pragma unroll 1
    for (u32 base = 0; base < task.targets; base += blockDim.x) {
        const u32 own = base + threadIdx.x;
        Link link = {0, Sum(0)};
        if (own < task.targets) link = find(args, stamps, targets.at(own));
        const u32 run = own < task.targets ? u32(link.sample + 1) : none;
        u32 ahead = 0;
        bool is_last = true;
        #pragma unroll 1
        for (u32 i = 0; i < 32; i++) {
            const bool same = __shfl_sync(~0u, run, i) == run;
            ahead += same && i < lane;
            is_last &= !(same && i > lane);
        }
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
            if (threadIdx.x / 32 == warp) {
                const u32 place = run == none ? 0 : counts[run] + ahead;
                __syncwarp();
                if (run != none) {
                    if (is_last) counts[run] = place + 1;
                    args.order[task.row * args.target_count + place] = own;
                    args.weights[task.row * args.target_count + place] = link.weight;
                }
            }
            __syncthreads();
        }
    }
    // By now they are counted up to and with a run.
    for (u32 sample = threadIdx.x; sample <= args.samples; sample += blockDim.x) starts[sample] = counts[sample] | twin(stamps, sample);
    if (threadIdx.x == 0) {
        starts[args.samples + 1] = 1;
        starts[args.samples + 2] = task.samples;
    }
}

template <class Row>
void find_row(const Args& args, const Task& task, const Row& stamps, const Stamps<Stamp>& targets, bool usable, u32 seen, unsigned char* room) {
    __shared__ u32 all_seen;
    if (threadIdx.x == 0) all_seen = 0;
    __syncthreads();
    if (has_bad_pair(stamps, threadIdx.x, blockDim.x)) seen |= STAMPS_OUT_OF_ORDER;
    if ((args.flags & CHECK) && args.extrapolate == ERROR && task.samples > 0) {
        const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
        for (i64 i = threadIdx.x; i < targets.length; i += blockDim.x)
            if (targets.at(i) < low || targets.at(i) > high) seen |= OUTSIDE_OF_STAMPS;
    }
    if (seen) atomicOr(&all_seen, seen);
    __syncthreads();
    u32* starts = args.starts + task.row * (i64(args.samples) + List::MORE);
    const bool refused = !usable || (all_seen & (STAMPS_OUT_OF_ORDER | OUTSIDE_OF_STAMPS));
    if (task.samples == 0 || ((args.flags & CHECK) && (refused || !has_good_ends(stamps)))) {
        const auto [begin, end] = share_of(args, task.part);
        for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x) starts[i] = 0;
        if (task.part == 0 && threadIdx.x < 2) starts[args.samples + 1 + threadIdx.x] = 0;
        return;
    }
    if (args.gaps) find_gaps(args, task, stamps);
    // Of stamps that are not in order, and nobody checked, neither are samples of targets.
    const bool ordered = !(all_seen & (STAMPS_OUT_OF_ORDER | TARGETS_OUT_OF_ORDER));
    if (ordered) list_part(args, task, stamps, targets, starts, (i32*)room);
    else if (task.part == 0) sort_row(args, task, stamps, targets, starts, (u32*)room);
}

// Whether targets are out of order. Each thread looks at its share; the first of it are on their way while `meanwhile` runs.
template <class Meanwhile> bool out_of_order(const Stamps<Stamp>& targets, Meanwhile meanwhile) {
    const int AT_ONCE = 4;
    const u32 length = u32(targets.length);
    Stamp own[AT_ONCE], others[AT_ONCE];
    const auto look = [&](u32 base) {
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const u32 i = min(base + blockDim.x * u, length - 1);
            own[u] = targets.at(i);
            others[u] = targets.at(min(i + 1, length - 1));
        }
    };
    if (length > 0) look(threadIdx.x);
    meanwhile();
    bool disorder = false;
    for (u32 base = threadIdx.x; base < length;) {
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) disorder |= !(own[u] <= others[u]);
        base += blockDim.x * AT_ONCE;
        if (base < length) look(base);
    }
    return disorder;
}

extern "C" __global__ void __launch_bounds__(256, 3) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    const i64 row = args.first_row + blockIdx.x / args.parts;
    i64 samples = args.samples, count = args.target_count;
    bool usable = true;
    if (args.lengths)
        usable &= read_length(args.lengths, args.flags & WIDE_LENGTHS, row * args.length_stride, args.samples, samples);
    if (args.target_lengths)
        usable &= read_length(args.target_lengths, args.flags & WIDE_TARGET_LENGTHS, row * args.target_length_stride,
                              args.target_count, count);
    const Task task = {row, blockIdx.x % args.parts, u32(samples), u32(count)};
    const Stamps<Stamp> given = {args.times + task.row * args.time_strides[0], args.time_strides[1], task.samples};
    const Stamps<Stamp> targets = {args.targets + task.row * args.target_strides[0], args.target_strides[1], task.targets};
    const bool near = args.flags & STAGE;
    const bool disorder = out_of_order(targets, [&] {
        if (near) stage(given, (Stamp*)shared);
    });
    const u32 seen = disorder ? TARGETS_OUT_OF_ORDER : 0;
    if (near) {
        const u32 bytes = (args.samples * u32(sizeof(Stamp)) + 15) & ~15u;
        find_row(args, task, Staged<Stamp>{(const Stamp*)shared, i32(task.samples)}, targets, usable, seen, shared + bytes);
    } else {
        find_row(args, task, given, targets, usable, seen, shared);
    }
}
