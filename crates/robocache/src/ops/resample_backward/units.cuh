// Units of columns, each of which is read by itself: what a target hands back to a sample. Part of gather.cu.
#pragma once

const int NUMBERS = RC_FORM == RC_WEIGHTED ? 1 : RC_FORM;

inline u8* place_of(const Args& args, i64 group, u32 sample, i64 column) {
    return args.out + group * args.out_strides[0] + i64(sample) * args.out_strides[1] + column * args.out_strides[2];
}

inline Sum number(const u8* place) {
    Vector one;
    one.words[0] = 0;
    one.raw = __ldg((const Access*)place);
    Sum numbers[CellGroup::NUMBERS];
    CellGroup::widen(one.words, numbers);
    return numbers[0];
}

inline void store(const Args& args, u8* out, const Sum (&sums)[NUMBERS]) {
    for (int i = 0; i < NUMBERS; i++) {
#if RC_PARTIAL
        *(Sum*)(out + i * args.steps[2]) = sums[i];
#else
        Sum both[CellGroup::NUMBERS] = {sums[i]};
        Vector result;
        CellGroup::narrow(both, result.words);
        *(Access*)(out + i * args.steps[2]) = result.raw;
#endif
    }
}

#if RC_FORM != RC_CUBIC
inline void numbers(const u8* place, i64 step, Sum (&to)[NUMBERS]) {
    for (int i = 0; i < NUMBERS; i++) to[i] = number(place + i * step);
}

// What the targets of a row hand back to a sample.
inline void add_row(const Args& args, i64 row, u32 sample, i64 column, Sum (&sums)[NUMBERS]) {
    const u8* grad = args.grad + row * args.grad_strides[0] + column * args.grad_strides[2];
    const u8* values = args.values + row * args.value_strides[0] + column * args.value_strides[2];
    const List links = links_of(args, row);
    const Reach reach = reach_of(links, sample);
    if (reach.from == reach.to) return;
#if RC_FORM != RC_WEIGHTED
    const i64 ahead = links.previous(sample), behind = links.next(sample, links.length());
#endif
    for_each(links, reach, [&](u32 target, u32 place, bool own) {
        // A target of weight 0 does not matter, not even as NaN.
        const Sum far = links.weights[place], near = Sum(1) - far, weight = own ? near : far;
        if (weight == Sum(0)) return;
#if RC_FORM == RC_WEIGHTED
        sums[0] = fma(weight, number(grad + i64(target) * args.grad_strides[1]), sums[0]);
#else
        const bool one = near == Sum(0) || far == Sum(0);
        const i64 other = one ? i64(sample) : own ? behind : ahead;
        Sum given[NUMBERS], first[NUMBERS], second[NUMBERS], handed[NUMBERS];
        numbers(grad + i64(target) * args.grad_strides[1], args.steps[0], given);
        numbers(values + (own ? i64(sample) : other) * args.value_strides[1], args.steps[1], first);
        numbers(values + (own ? other : i64(sample)) * args.value_strides[1], args.steps[1], second);
#if RC_FORM == RC_SLERP
        if (one) normal(first, given, handed);
        else slerp(first, second, far, given, !own, handed);
        const Sum factor = 1;
#else
        const Sum factor = one ? Sum(1) : weight;
        if (!one)
            for (int i = 0; i < NUMBERS; i++) first[i] = fma(far, second[i] - first[i], first[i]);
        orthonormal(first, given, handed);
#endif
        for (int i = 0; i < NUMBERS; i++) sums[i] += factor * handed[i];
#endif
    });
}

inline void write_tile(const Args& args, const Block& block, const Lane& lane) {
    for (u32 sample = block.start + lane.number; sample < block.end; sample += lane.slice) {
        Sum sums[NUMBERS] = {};
        add_row(args, block.group, sample, lane.column, sums);
        store(args, place_of(args, block.group, sample, lane.column), sums);
    }
}
#endif
