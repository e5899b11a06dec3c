// Sums of one sample: what the picks of a piece hand back to it, and how it is written.
// Host twin: hand_back.rs, and cpu.rs (store). Part of rows.cu, whose types it uses.
#pragma once

typedef Group<Cell> CellGroup;
const int NUMBERS = Vector::COUNT / CellGroup::WORDS * CellGroup::NUMBERS;

// Adds what the picks `from..to` hand back to `sample`.
inline void add(const Args& args, const u8* grad, const Pick* picks, u32 from, u32 to, Index sample, Sum* sums) {
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

inline void store(u8* out, const Sum* sums) {
    Vector result;
    #pragma unroll
    for (int g = 0; g < Vector::COUNT / CellGroup::WORDS; g++)
        CellGroup::narrow(sums + g * CellGroup::NUMBERS, result.words + g * CellGroup::WORDS);
    __stcs((typename Raw<RC_BYTES>::Type*)out, result.raw);
}
