// Curves: a thread goes along the intervals between the samples of a run. What the targets of an interval hand to the
// slopes at its ends is summed up, and then goes to the four samples around the interval at once.
// Host twin: hand_back.rs, with which it agrees to rounding; only gradients that are infinite may become NaN, where
// shares of different signs meet. Part of resample_backward.cu.
#pragma once

// The existing sample after one, or the length.
template <class Row> typename Row::Index next_of(const Row& stamps, typename Row::Index sample) {
    return sample + 1 < stamps.length ? last_equal(stamps, sample + 1) : stamps.length;
}

// Of one sample, or of none, there is no interval.
template <class Row> bool has_interval(const Row& stamps) { return stamps.length > 0 && second_last(stamps) >= 0; }

// The interval of a pick, by the sample ahead of it; the last sample belongs to the interval that it ends, which starts at `top`.
inline Index interval_of(const Pick& pick, Index top) {
    return pick.samples[1] < 0 ? pick.first : min(pick.samples[1], top);
}

// What the targets of an interval hand back in sum: to the samples at its ends, and to the slopes there.
struct Handed {
    Sum ends[2], slopes[2];
    Sum before, behind;  // the gaps beside the interval, in units of its own; 0 where no target is on the curve
};

// A target of weight 0 does not matter, not even as NaN.
inline void add_to_sum(Sum factor, Sum given, Sum& sum) {
    if (factor != Sum(0)) sum = fma(factor, given, sum);
}

inline void take(const Pick& pick, Index interval, Sum given, Handed& handed) {
    if (pick.samples[1] == pick.samples[2]) {
        const bool is_start = pick.samples[1] == interval;
        add_to_sum(is_start ? Sum(1) : Sum(0), given, handed.ends[0]);
        add_to_sum(is_start ? Sum(0) : Sum(1), given, handed.ends[1]);
        return;
    }
    Sum near = pick.near, far = pick.far;
    if (pick.before > Sum(0) || pick.behind > Sum(0)) {
        const Sum weight = far, square = weight * weight, cube = square * weight;
        far = Sum(3) * square - cube - cube;
        near = Sum(1) - far;
        add_to_sum(weight - square - square + cube, given, handed.slopes[0]);
        add_to_sum(cube - square, given, handed.slopes[1]);
        handed.before = pick.before;
        handed.behind = pick.behind;
    }
    add_to_sum(near, given, handed.ends[0]);
    add_to_sum(far, given, handed.ends[1]);
}

// Writes the tile. IN_ORDER: of the `count` picks of the targets from state.first on; else of picks that were sorted.
template <bool IN_ORDER, class Row>
void walk_curve(const Args& args, const Block& block, const Row& stamps, const Runs& runs, u32 count, const State& state) {
    typedef typename Row::Index RowIndex;
    const Lane lane = lane_of(args, block.chunk);
    const u32 run = (block.count + lane.slice - 1) / lane.slice, skipped = lane.number * run;
    if (lane.number >= lane.slice || skipped >= block.count) return;
    const i64 begin = block.start + skipped, end = block.start + min(skipped + run, block.count);
    const u8* grad = args.grad + block.group * args.grad_strides[0] + lane.column * args.grad_strides[2];
    const u8* values = args.values + block.group * args.value_strides[0] + lane.column * args.value_strides[2];
    u8* out = args.out + block.group * args.out_strides[0] + begin * args.out_strides[1] + lane.column * args.out_strides[2];
    if (IN_ORDER) grad += state.first * args.grad_strides[1];
    const auto value = [&](RowIndex sample) {
        return sample >= 0 && sample < stamps.length ? number(values + i64(sample) * args.value_strides[1]) : Sum(0);
    };
    const Pick* picks = runs.picks;
    const auto given = [&](u32 at) {
        return at < count ? number(grad + i64(IN_ORDER ? at : target_of(picks[at])) * args.grad_strides[1]) : Sum(0);
    };
    const auto run_at = [&](RowIndex sample) {
        return sample < block.start ? 0 : u32(min(i64(sample) - block.start, i64(block.count))) + 1;
    };
    // Samples that do not exist, since equal ones follow or the row has ended, are handed nothing.
    i64 written = begin;
    const auto write = [&](i64 sample, Sum sum) {
        for (; written < end && written <= sample; written++, out += args.out_strides[1]) {
            const Sum numbers[1] = {written == sample ? sum : Sum(0)};
            store(args, out, numbers);
        }
    };
    if (count > 0 && begin < stamps.length) {
        // Two samples ahead of the first one begins what reaches it.
        RowIndex a = last_equal(stamps, RowIndex(begin));
        for (int step = 0; step < 2; step++) a = max(step_back(stamps, a), RowIndex(0));
        a = last_equal(stamps, a);
        const Index top = Index(second_last(stamps));
        u32 at = 0;
        for (u32 last = IN_ORDER ? count : 0; at < last;) {
            const u32 middle = (at + last) / 2;
            if (interval_of(picks[middle], top) < Index(a)) at = middle + 1; else last = middle;
        }
        RowIndex earlier = step_back(stamps, a), b = next_of(stamps, a), later = next_of(stamps, b);
        Sum samples[4] = {value(earlier), value(a), value(b), value(later)}, sums[4] = {};
        Sum next = IN_ORDER ? given(at) : Sum(0);
        #pragma unroll 1
        while (b < stamps.length && earlier < end) {
            const RowIndex ahead = next_of(stamps, later);
            const Sum coming = value(ahead);
            Handed handed = {};
            u32 last = count;
            if (!IN_ORDER) {
                at = runs.starts[run_at(a)];
                last = runs.starts[run_at(Index(a) == top ? stamps.length - 1 : a) + 1];
            }
            #pragma unroll 1
            for (; at < last; at++) {
                // Runs beside the tile are those of several samples.
                if (interval_of(picks[at], top) != Index(a)) {
                    if (IN_ORDER) break;
                    continue;
                }
                const Sum own = IN_ORDER ? next : given(at);
                if (IN_ORDER) next = given(at + 1);
                take(picks[at], Index(a), own, handed);
            }
            sums[1] += handed.ends[0];
            sums[2] += handed.ends[1];
            if (handed.before > Sum(0) || handed.behind > Sum(0)) {
                Sum shares[4];
                through_slopes(samples, handed.before, handed.behind, handed.slopes[0], handed.slopes[1], shares);
                #pragma unroll
                for (int i = 0; i < 4; i++) sums[i] += shares[i];
            }
            if (earlier >= 0) write(earlier, sums[0]);
            earlier = a, a = b, b = later, later = ahead;
            #pragma unroll
            for (int i = 0; i < 3; i++) sums[i] = sums[i + 1], samples[i] = samples[i + 1];
            sums[3] = 0;
            samples[3] = coming;
        }
        if (b >= stamps.length) {
            if (earlier >= 0) write(earlier, sums[0]);
            write(a, sums[1]);
        }
    }
    write(end, Sum(0));
}
