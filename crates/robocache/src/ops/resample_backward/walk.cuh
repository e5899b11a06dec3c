// The usual case: targets in order, and those of the tile all in shared memory. A thread walks along
// the targets of a run of samples with the sums of two samples in registers, so that each gradient is
// read once and several are on their way at once.
// Host twin: hand_back.rs; the order of additions is the same. Part of rows.cu.
#pragma once

// The sums of two samples: `at`, the first that is not stored yet, and `after`, one behind it. What `next` holds
// once `at` has come there is not looked at again, so nothing clears it.
struct Walk {
    Index at, after;
    Sum own[NUMBERS], next[NUMBERS];
    u8* out;  // of `at`

    // Stores a sample and goes on to the one behind it.
    void pass(const Args& args) {
        store(out, own);
        out += args.out_strides[1];
        const bool here = ++at == after;
        #pragma unroll
        for (int i = 0; i < NUMBERS; i++) own[i] = here ? next[i] : Sum(0);
    }
};

inline void add_times(Sum factor, const Sum (&numbers)[NUMBERS], Sum (&sums)[NUMBERS]) {
    #pragma unroll
    for (int i = 0; i < NUMBERS; i++) sums[i] = fma(factor, numbers[i], sums[i]);
}

// Writes the samples first..end. `grad`: the gradient of the first of the `count` picks; `out`: the first sample.
inline void walk(const Args& args, const u8* grad, const Pick* picks, u32 count, u8* out, Index first, Index end) {
    const int UNROLL = 6;  // gradients that are on their way at once
    u32 from = count_before(picks, count, first);
    const u32 to = count_reaching(picks, count, end - 1);
    Walk walk = {first, Index(-1), {}, {}, out};
    grad += i64(from) * args.grad_strides[1];
    while (from < to) {
        Vector given[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (from + u < to) given[u].raw = __ldg((const typename Raw<RC_BYTES>::Type*)grad);
            grad += args.grad_strides[1];
            settle(grad);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; u++, from++) {
            if (from >= to) break;
            const Pick pick = picks[from];
            #pragma unroll 1
            while (walk.at < min(pick.first, end)) walk.pass(args);
            Sum numbers[NUMBERS];
            #pragma unroll
            for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++)
                CellGroup::widen(given[u].words + g * CellGroup::WORDS, numbers + g * CellGroup::NUMBERS);
            // A target of weight 0 does not matter, not even as NaN.
            if (walk.at == pick.first && pick.near != Sum(0)) add_times(pick.near, numbers, walk.own);
            if (pick.first == pick.second || pick.far == Sum(0)) continue;
            if (walk.at == pick.second) {
                add_times(pick.far, numbers, walk.own);
            } else {
                const bool more = walk.after == pick.second;
                #pragma unroll
                for (int i = 0; i < NUMBERS; i++)
                    walk.next[i] = fma(pick.far, numbers[i], more ? walk.next[i] : Sum(0));
                walk.after = pick.second;
            }
        }
    }
    #pragma unroll 1
    while (walk.at < end) walk.pass(args);
}

// Cuts the tile into runs, and walks along them.
inline void walk_tile(const Args& args, const Block& block, const Pick* picks, const State& state) {
    const Lane lane = lane_of(args, block.chunk);
    const u32 run = (block.count + lane.slice - 1) / lane.slice, first = lane.number * run;
    if (lane.number >= lane.slice || first >= block.count) return;
    const i64 start = block.start + first, end = block.start + min(first + run, block.count);
    walk(args, args.grad + block.row * args.grad_strides[0] + state.first * args.grad_strides[1] + lane.column * args.grad_strides[2],
         picks, u32(state.last - state.first),
         place_of(args, block.row, start, lane.column), Index(start), Index(end));
}
