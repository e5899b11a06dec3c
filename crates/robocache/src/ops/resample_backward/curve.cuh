// Curves: a thread goes along the intervals between the samples of a run. What the targets of an interval hand to the
// slopes at its ends is summed up, and then goes to the four samples around the interval at once.
// Host twin: hand_back.rs, with which it agrees to rounding; only gradients that are infinite may become NaN, where
// shares of different signs meet. Part of gather.cu.
#pragma once

// What the targets of an interval hand back in sum: to the samples at its ends, and to the slopes there.
struct Handed {
    Sum ends[2], slopes[2];
    bool curved;
};

// A target of weight 0 does not matter, not even as NaN.
inline void add_to_sum(Sum factor, Sum given, Sum& sum) {
    if (factor != Sum(0)) sum = fma(factor, given, sum);
}

inline void take(Sum weight, bool has_slopes, Sum given, Handed& handed) {
    Sum far = weight;
    if (has_slopes && weight > Sum(0) && weight < Sum(1)) {
        const Sum square = weight * weight, cube = square * weight;
        far = Sum(3) * square - cube - cube;
        add_to_sum(weight - square - square + cube, given, handed.slopes[0]);
        add_to_sum(cube - square, given, handed.slopes[1]);
        handed.curved = true;
    }
    add_to_sum(Sum(1) - far, given, handed.ends[0]);
    add_to_sum(far, given, handed.ends[1]);
}

// What a row hands back to the samples begin..end: write(sample, sum) is called in their order, but not for those that do not
// exist, and not at all where a row has nothing to hand back.
template <class Write> void walk_curve(const Args& args, i64 row, i64 column, u32 begin, u32 end, Write write) {
    const List links = links_of(args, row);
    const u32 length = links.length();
    if (begin >= length || links.start(0) == links.start(length)) return;
    const u8* grad = args.grad + row * args.grad_strides[0] + column * args.grad_strides[2];
    const u8* values = args.values + row * args.value_strides[0] + column * args.value_strides[2];
    const Sum* gaps = args.gaps + 2 * row * args.samples;
    const bool has_order = links.has_order();
    const u32 count = links.start(length);
    const auto given = [&](u32 at) {
        return at < count ? number(grad + i64(has_order ? links.order[at] : at) * args.grad_strides[1]) : Sum(0);
    };
    const auto value = [&](i32 sample) {
        return sample >= 0 && u32(sample) < length ? number(values + i64(sample) * args.value_strides[1]) : Sum(0);
    };
    // Two samples ahead of the first one that exists begins what reaches it.
    u32 a = begin;
    while (!links.exists(a))
        if (++a >= end) return;
    for (int step = 0; step < 2; step++) {
        const i32 ahead = links.previous(a);
        if (ahead >= 0) a = u32(ahead);
    }
    i32 earlier = links.previous(a);
    u32 b = links.next(a, length), later = links.next(b, length);
    Sum samples[4] = {value(earlier), value(i32(a)), value(i32(b)), value(i32(later))}, sums[4] = {};
    u32 at = links.start(a);
    Sum next = given(at);
    #pragma unroll 1
    while (b < length && earlier < i32(end)) {
        const u32 ahead = links.next(later, length), last = links.start(a + 1);
        const Sum coming = value(i32(ahead));
        const Sum before = gaps[2 * i64(a)], behind = gaps[2 * i64(a) + 1];
        const bool has_slopes = before > Sum(0) || behind > Sum(0);
        Handed handed = {};
        #pragma unroll 1
        for (; at < last; at++) {
            const Sum own = next;
            next = given(at + 1);
            take(links.weights[at], has_slopes, own, handed);
        }
        sums[1] += handed.ends[0];
        sums[2] += handed.ends[1];
        if (handed.curved) {
            Sum shares[4];
            through_slopes(samples, before, behind, handed.slopes[0], handed.slopes[1], shares);
            #pragma unroll
            for (int i = 0; i < 4; i++) sums[i] += shares[i];
        }
        if (earlier >= i32(begin)) write(u32(earlier), sums[0]);
        earlier = i32(a), a = b, b = later, later = ahead;
        #pragma unroll
        for (int i = 0; i < 3; i++) sums[i] = sums[i + 1], samples[i] = samples[i + 1];
        sums[3] = 0;
        samples[3] = coming;
    }
    if (b < length) return;
    // Targets that are the last sample itself belong to no interval.
    #pragma unroll 1
    for (; at < count; at++) {
        sums[1] += next;
        next = given(at + 1);
    }
    if (earlier >= i32(begin) && earlier < i32(end)) write(u32(earlier), sums[0]);
    if (a >= begin && a < end) write(a, sums[1]);
}

inline void add_row(const Args& args, i64 row, u32 sample, i64 column, Sum (&sums)[NUMBERS]) {
    walk_curve(args, row, column, sample, sample + 1, [&](u32, Sum sum) { sums[0] += sum; });
}

// Cuts the tile into runs, and walks along them.
inline void write_tile(const Args& args, const Block& block, const Lane& lane) {
    const u32 count = block.end - block.start, run = (count + lane.slice - 1) / lane.slice, skipped = lane.number * run;
    if (skipped >= count) return;
    const u32 begin = block.start + skipped, end = min(begin + run, block.end);
    u32 written = begin;
    u8* out = place_of(args, block.group, begin, lane.column);
    const auto write = [&](u32 sample, Sum sum) {
        for (; written <= sample; written++, out += args.out_strides[1]) {
            const Sum numbers[1] = {written == sample ? sum : Sum(0)};
            store(args, out, numbers);
        }
    };
    walk_curve(args, block.group, lane.column, begin, end, write);
    if (written < end) write(end - 1, Sum(0));
}
