// Sums of one sample: what the picks of a piece hand back to it, and how it is written.
// Host twin: hand_back.rs, and cpu.rs (store). Part of resample_backward.cu, whose types it uses.
#pragma once

typedef Group<Cell> CellGroup;
#if RC_FORM != RC_WEIGHTED
const int NUMBERS = RC_FORM;

inline Sum number(const u8* place) {
    Vector one;
    one.words[0] = 0;
    one.raw = __ldg((const typename Raw<RC_BYTES>::Type*)place);
    Sum numbers[CellGroup::NUMBERS];
    CellGroup::widen(one.words, numbers);
    return numbers[0];
}
inline void numbers(const u8* place, i64 step, Sum (&to)[NUMBERS]) {
    for (int i = 0; i < NUMBERS; i++) to[i] = number(place + i * step);
}

inline void copy(const Sum (&from)[NUMBERS], Sum (&to)[NUMBERS]) {
    for (int i = 0; i < NUMBERS; i++) to[i] = from[i];
}

// Adds what the picks `from..to` hand back to `sample`.
inline void add(const Args& args, const u8* grad, const u8* values, const Pick* picks, u32 from, u32 to, Index sample, Sum* sums) {
    for (; from < to; from++) {
        const Pick& pick = picks[from];
#if RC_FORM == RC_CUBIC
        int role = -1;
        for (int i = 0; i < 4; i++)
            if (pick.samples[i] == sample) role = i;
        if (role < 0) continue;
        Sum factor = pick.samples[1] == pick.samples[2] ? Sum(1) : role == 1 ? pick.near : pick.far;
        if (pick.before > Sum(0) || pick.behind > Sum(0)) {
            Sum samples[4], factors[4];
            for (int i = 0; i < 4; i++) samples[i] = pick.samples[i] < 0 ? Sum(0) : number(values + i64(pick.samples[i]) * args.value_strides[1]);
            cubic(samples, pick.before, pick.behind, pick.far, factors);
            factor = role == 0 ? factors[0] : role == 1 ? factors[1] : role == 2 ? factors[2] : factors[3];
        }
        if (factor != Sum(0)) sums[0] += factor * number(grad + i64(from) * args.grad_strides[1]);
#else
        const bool is_first = pick.first == sample && pick.near != Sum(0), is_second = pick.second == sample && pick.far != Sum(0);
        if (!is_first && !is_second) continue;
        Sum given[NUMBERS], first[NUMBERS], second[NUMBERS], handed[NUMBERS];
        numbers(grad + i64(from) * args.grad_strides[1], args.steps[0], given);
        numbers(values + i64(pick.first) * args.value_strides[1], args.steps[1], first);
        numbers(values + i64(pick.second) * args.value_strides[1], args.steps[1], second);
        const bool one = pick.near == Sum(0) || pick.far == Sum(0);
#if RC_FORM == RC_SLERP
        // Chosen number by number: arrays that are pointed to do not stay in registers.
        if (one && is_second) copy(second, first);
        if (one) normal(first, given, handed);
        else slerp(first, second, pick.far, given, is_second, handed);
        const Sum factor = 1;
#else
        const Sum factor = one ? Sum(1) : is_first ? pick.near : pick.far;
        if (!one)
            for (int i = 0; i < NUMBERS; i++) first[i] = fma(pick.far, second[i] - first[i], first[i]);
        // Chosen number by number: arrays that are pointed to do not stay in registers.
        if (one && is_second) copy(second, first);
        orthonormal(first, given, handed);
#endif
        for (int i = 0; i < NUMBERS; i++) sums[i] += factor * handed[i];
#endif
    }
}

inline void store(const Args& args, u8* out, const Sum* sums) {
    for (int i = 0; i < NUMBERS; i++) {
#if RC_PARTIAL
        *(Sum*)(out + i * args.steps[2]) = sums[i];
#else
        Sum both[CellGroup::NUMBERS] = {sums[i]};
        Vector result;
        CellGroup::narrow(both, result.words);
        *(typename Raw<RC_BYTES>::Type*)(out + i * args.steps[2]) = result.raw;
#endif
    }
}
#else
const int NUMBERS = Vector::COUNT / CellGroup::WORDS * CellGroup::NUMBERS;

// Adds what the picks `from..to` hand back to `sample`.
inline void add(const Args& args, const u8* grad, const u8*, const Pick* picks, u32 from, u32 to, Index sample, Sum* sums) {
    const i64 stride = args.grad_strides[1];
    // As many as registers hold.
    const int UNROLL = sizeof(Sum) == 8 || sizeof(Stamp) == 8 || NUMBERS == 8 ? 2 : 3;
    grad += i64(from) * stride;
    for (; from < to; from += UNROLL, grad += UNROLL * stride) {
        Vector given[UNROLL];
        Sum factors[UNROLL];
        bool touched[UNROLL];
        // Everything is asked for before anything is used.
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            touched[u] = false;
            if (from + u >= to) continue;
            const Pick& pick = picks[from + u];
            factors[u] = pick.first == sample ? pick.near : pick.second == sample ? pick.far : Sum(0);
            touched[u] = factors[u] != Sum(0);
            if (touched[u]) given[u].raw = __ldg((const typename Raw<RC_BYTES>::Type*)(grad + u * stride));
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (!touched[u]) continue;
            #pragma unroll
            for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++) {
                Sum numbers[CellGroup::NUMBERS];
                CellGroup::widen(given[u].words + g * CellGroup::WORDS, numbers);
                #pragma unroll
                for (int i = 0; i < CellGroup::NUMBERS; i++) {
                    Sum& sum = sums[g * CellGroup::NUMBERS + i];
                    sum = fma(factors[u], numbers[i], sum);
                }
            }
        }
    }
}

inline void store(const Args&, u8* out, const Sum* sums) {
#if RC_PARTIAL
    #pragma unroll
    for (int i = 0; i < int(RC_BYTES / sizeof(Cell)); i++) ((Sum*)out)[i] = sums[i];
#else
    Vector result;
    #pragma unroll
    for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++)
        CellGroup::narrow(sums + g * CellGroup::NUMBERS, result.words + g * CellGroup::WORDS);
    __stcs((typename Raw<RC_BYTES>::Type*)out, result.raw);
#endif
}
#endif
