// Vectors of a few neighbouring columns: read, blended or copied, and written.
// Host twin: cells.rs. A Pick has `first`, `second` and `weight`: the line through two samples with
// the weight of the second; one sample as it is: twice that one with the weight -0; no value: NaN.
#pragma once
#include "rc.cuh"

namespace rc {

// Kernels of many methods read a row part by part: lines and copies, which most rows begin with, bring the whole line of
// what they read to the L2.
#if RC_RICH
#define RC_READ "ld.global.nc.L2::128B."
#else
#define RC_READ "ld.global.nc."
#endif

// Volatile, or the compiler moves the load to its use and waits there.
inline void load_words(const u8* place, Words<16>& to) {
    asm volatile(RC_READ "v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3]) : "l"(place));
}
inline void load_words(const u8* place, Words<8>& to) {
    asm volatile(RC_READ "v2.u32 {%0, %1}, [%2];" : "=r"(to.words[0]), "=r"(to.words[1]) : "l"(place));
}
inline void load_words(const u8* place, Words<4>& to) {
    asm volatile(RC_READ "u32 %0, [%1];" : "=r"(to.words[0]) : "l"(place));
}
inline void load_words(const u8* place, Words<2>& to) {
    asm volatile("{ .reg .u16 half; " RC_READ "u16 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "l"(place));
}
inline void load_words(const u8* place, Words<1>& to) {
    asm volatile("{ .reg .u16 half; " RC_READ "u8 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "l"(place));
}

// The same from shared memory.
inline void load_near(u32 place, Words<16>& to) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3]) : "r"(place));
}
inline void load_near(u32 place, Words<8>& to) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to.words[0]), "=r"(to.words[1]) : "r"(place));
}
inline void load_near(u32 place, Words<4>& to) { asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to.words[0]) : "r"(place)); }
inline void load_near(u32 place, Words<2>& to) {
    asm volatile("{ .reg .u16 half; ld.shared.u16 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "r"(place));
}
inline void load_near(u32 place, Words<1>& to) {
    asm volatile("{ .reg .u16 half; ld.shared.u8 half, [%1]; cvt.u32.u16 %0, half; }" : "=r"(to.words[0]) : "r"(place));
}

// On the line through both samples. BETWEEN_FAR: for points between ends whose difference is not
// finite. Tells whether all differences were finite.
template <class Cell, bool BETWEEN_FAR, class Vector, class Weight>
bool blend(const Vector& first, const Vector& second, Weight weight, Vector& result) {
    typedef Group<Cell> Group;
    bool finite = true;
    #pragma unroll
    for (int g = 0; g < Vector::COUNT; g += Group::WORDS) {
        Weight a[Group::NUMBERS], b[Group::NUMBERS];
        Group::widen(first.words + g, a);
        Group::widen(second.words + g, b);
        #pragma unroll
        for (int i = 0; i < Group::NUMBERS; i++) {
            const Weight difference = b[i] - a[i];
            if (BETWEEN_FAR && !is_finite(difference)) a[i] = fma(weight, b[i], (Weight(1) - weight) * a[i]);
            else a[i] = fma(weight, difference, a[i]);
            finite &= is_finite(difference);
        }
        Group::narrow(a, result.words + g);
    }
    return finite;
}

// The value that stands for none, in every element: `bits` are 8 bytes of such.
template <class Vector> Vector missing(u64 bits) {
    Vector vector;
    #pragma unroll
    for (int w = 0; w < Vector::COUNT; w++) vector.words[w] = u32(w % 2 ? bits >> 32 : bits);
    return vector;
}

// A column of vectors, one per sample: in global memory, or brought to shared memory before.
template <class Index> struct Far {
    static const bool NEAR = false;
    const u8* base;
    Index stride;
    Far(const u8* base, Index stride) : base(base), stride(stride) { settle(this->base); }
    template <int BYTES> void load(u32 sample, Words<BYTES>& to) const { load_words(step_to(base, sample, stride), to); }
    template <int BYTES> void load(i32 sample, Words<BYTES>& to) const { load(u32(sample), to); }
    template <int BYTES> void load(i64 sample, Words<BYTES>& to) const { load_words(step_to(base, sample, stride), to); }
};
struct Near {
    static const bool NEAR = true;
    u32 base, stride;
    Near(const u8* base, u32 stride) : base(u32(__cvta_generic_to_shared(base))), stride(stride) {}
    Near(u32 base, u32 stride) : base(base), stride(stride) {}
    template <int BYTES> void load(u32 sample, Words<BYTES>& to) const { load_near(base + sample * stride, to); }
};

// For samples that are not finite, or too far apart. They are read again: that is rare, and to keep
// them would cost registers always.
template <class Cell, class Values, class Pick, class Vector>
void blend_far(const Values& values, const Pick& pick, Vector& result) {
    const auto weight = pick.weight;
    Vector first, second;
    values.load(pick.first, first);
    values.load(pick.second, second);
    if (pick.first == pick.second) {
        if (weight == weight) result = first;
    } else if (weight > 0 && weight < 1) {
        blend<Cell, true>(first, second, weight, result);
    }
}

// Writes one vector of UNROLL targets, each `step` after the last; FULL: all of them are before `count`.
template <class Cell, int BYTES, bool BLEND, int UNROLL, bool FULL, class Values, class Index, class Picks>
void copy_batch(const Values& values, u8* out, Index out_stride, u64 none, Picks picks, u32 t, u32 count,
                u32 step) {
    typedef Words<BYTES> Vector;
    Vector first[UNROLL], second[UNROLL];
    // Everything is asked for before anything is used. Where there is no second sample, or no
    // value, a sample is read all the same: that is cheaper than to ask.
    #pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const auto pick = picks[FULL ? t + u * step : min(t + u * step, count - 1)];
        values.load(pick.first, first[u]);
        if (BLEND) values.load(pick.second, second[u]);
    }
    #pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (!FULL && t + u * step >= count) break;
        // Read anew: registers are better spent on samples that are on their way.
        const auto pick = picks[t + u * step];
        Vector result;
        if constexpr (BLEND) {
            // NaN comes out by itself where there is no value.
            if (!blend<Cell, false>(first[u], second[u], pick.weight, result))
                blend_far<Cell>(values, pick, result);
        } else {
            result = pick.weight == pick.weight ? first[u] : missing<Vector>(none);
        }
        *(typename Raw<BYTES>::Type*)step_to(out, t + u * step, out_stride) = result.raw;
    }
}

// Writes one vector of every `step`-th target from `t` on, UNROLL at a time. Strides are in bytes, as
// Index holds them; `picks` gives what a target is made of.
template <class Cell, int BYTES, bool BLEND, int UNROLL, class Values, class Index, class Picks>
void copy_column(const Values& values, u8* out, Index out_stride, u64 none, Picks picks, u32 t, u32 count,
                 u32 step) {
    settle(out);
    // Without a question in between the loads of a copy stay together; those of a blend do anyhow.
    if (!BLEND)
        for (; t + (UNROLL - 1) * step < count; t += step * UNROLL)
            copy_batch<Cell, BYTES, BLEND, UNROLL, true>(values, out, out_stride, none, picks, t, count, step);
    for (; t < count; t += step * UNROLL)
        copy_batch<Cell, BYTES, BLEND, UNROLL, false>(values, out, out_stride, none, picks, t, count, step);
}

}  // namespace rc
