// Units that are copied, or blended along lines, as vectors of bytes.
// Host twin: cpu.rs, cells.rs.
#pragma once
#include "part.cuh"

#if !RC_MIXED

namespace rc {

inline void load_vector(const u8* place, Words<16>& to) { to.raw = __ldg((const uint4*)place); }
inline void load_vector(const u8* place, Words<8>& to) { to.raw = __ldg((const uint2*)place); }
inline void load_vector(const u8* place, Words<4>& to) { to.words[0] = __ldg((const u32*)place); }
inline void load_vector(const u8* place, Words<2>& to) { to.words[0] = __ldg((const u16*)place); }
inline void load_vector(const u8* place, Words<1>& to) { to.words[0] = __ldg(place); }

// On the line through both samples. BETWEEN_FAR: for points between ends whose difference is not
// finite. Tells whether all differences were finite.
template <class Cell, bool BETWEEN_FAR, int BYTES, class Weight>
bool blend(const Words<BYTES>& first, const Words<BYTES>& second, Weight weight, Words<BYTES>& result) {
    typedef Group<Cell> Group;
    // A vector of one number may be less than a word.
    const int NUMBERS = BYTES < 4 ? BYTES / int(sizeof(Cell)) : Group::NUMBERS;
    bool finite = true;
    #pragma unroll
    for (int g = 0; g < Words<BYTES>::COUNT; g += Group::WORDS) {
        Weight a[Group::NUMBERS], b[Group::NUMBERS];
        Group::widen(first.words + g, a);
        Group::widen(second.words + g, b);
        #pragma unroll
        for (int i = 0; i < NUMBERS; i++) {
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

}  // namespace rc

// The samples of a target. Where columns of several methods share the picks, these tell both: a line leaves out one of
// weight 0, a copy takes one of them.
inline Pick plain_pick(const Part& part, u32 t) {
    Pick pick = part.picks[t];
#if RC_RICH
    const u32 method = part.segment.method;
    const bool later = pick.second & LATER;
    pick.second &= ~LATER;
    if (method == NEXT || (method == NEAREST && later)) pick.first = pick.second;
    if (method != LINEAR || pick.weight == Weight(0)) pick.second = pick.first;
    if (method == LINEAR && pick.weight == Weight(1)) pick.first = pick.second;
    if (pick.first == pick.second && pick.weight == pick.weight) pick.weight = Weight(-0.0);
#endif
    return pick;
}

// Goes through vectors of BYTES bytes, UNROLL at a time: all that they need is asked for before anything is used. Floats that
// are copied are lines between twice the same sample: one loop for both. `Offset`: u32 where the block's samples and targets
// lie within so many bytes, else i64.
template <int BYTES, class Offset> struct Vectors {
    typedef Words<BYTES> Vector;
    static const int UNROLL = BYTES >= 8 ? 2 : 4;
    const Part& part;
    Offset sample, target;            // from one to the next, in bytes
    Offset value_column, out_column;  // the same of units
    u32 row;                          // bytes of a target that lies dense

    Vectors(const Part& part)
        : part(part), sample(Offset(part.stream.value_strides[1])), target(Offset(part.args.out_strides[1])),
          value_column(Offset(part.segment.per_unit * part.stream.value_strides[2])),
          out_column(Offset(part.segment.per_unit * part.args.out_strides[2])), row(part.units * BYTES) {}

    // Where unit `k` lies: of which target it is, how far behind the first unit of its sample, and of target 0.
    struct Place {
        u32 target;
        Offset column, out;
    };
    Place place(u32 k) const {
        const u32 t = part.target(k);
        // Dense rows are one long row.
        if (ONE) return {t, Offset(k * BYTES - t * row), Offset(k * BYTES)};
        const u32 unit = k - t * part.units;
        return {t, Offset(unit) * value_column, Offset(t) * target + Offset(unit) * out_column};
    }
    void load(u32 index, Offset column, Vector& to) const { load_vector(part.values + (Offset(index) * sample + column), to); }
    void store(Offset place, const Vector& vector) const { *(typename Raw<BYTES>::Type*)(part.out + place) = vector.raw; }

#if RC_FLOAT
    // For samples that are not finite, or too far apart.
    void store_far(u32 k) const {
        const Place own = place(k);
        const Pick pick = plain_pick(part, own.target);
        Vector first, second, result;
        load(pick.first, own.column, first);
        load(pick.second, own.column, second);
        if (!blend<Out, false>(first, second, pick.weight, result)) {
            if (pick.first == pick.second) {
                if (pick.weight == pick.weight) result = first;
            } else if (pick.weight > 0 && pick.weight < 1) {
                blend<Out, true>(first, second, pick.weight, result);
            }
        }
        store(own.out, result);
    }
#endif

    // UNROLL units from `k` on; all of them are there, or only those before `total`.
    template <bool ALL> void write_from(u32 k, u32 total) const {
        Vector first[UNROLL], second[UNROLL];
        Weight weights[UNROLL];
        Offset places[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const u32 each = k + u * blockDim.x;
            const Place own = place(ALL ? each : min(each, total - 1));
            const Pick pick = plain_pick(part, own.target);
            weights[u] = pick.weight;
            places[u] = own.out;
            // Where there is no second sample, or no value, a sample is read all the same: that is cheaper than to ask.
            load(pick.first, own.column, first[u]);
            if (RC_FLOAT) load(pick.second, own.column, second[u]);
        }
#if RC_FLOAT
        bool finite = true;
        // NaN comes out by itself where there is no value.
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) finite &= blend<Out, false>(first[u], second[u], weights[u], first[u]);
        if (__builtin_expect(!finite, 0)) {
            // One after the other: it is rare, and little code keeps the rest close together.
            #pragma unroll 1
            for (u32 own = k; own < min(k + UNROLL * blockDim.x, total); own += blockDim.x)
                store_far(own);
            return;
        }
#else
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (!(weights[u] == weights[u])) first[u] = missing<Vector>(part.args.missing);
#endif
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (ALL || k + u * blockDim.x < total) store(places[u], first[u]);
    }

    void write() const {
        const u32 total = part.total(), step = UNROLL * blockDim.x;
        u32 k = threadIdx.x;
        for (; k + step - blockDim.x < total; k += step) write_from<true>(k, total);
        if (k < total) write_from<false>(k, total);
    }
};

// Writes units of as many bytes as one access takes.
inline void write_plain(const Part& part) {
    const int SIZE = sizeof(Out);
    const u32 bytes = part.segment.together * SIZE;
    if (!ONE && !part.segment.near) return Vectors<SIZE, i64>(part).write();
    if (bytes == 16) return Vectors<16, u32>(part).write();
    if (bytes == 8) return Vectors<8, u32>(part).write();
    if (SIZE <= 4 && bytes == 4) return Vectors<SIZE <= 4 ? 4 : 8, u32>(part).write();
    if (SIZE <= 2 && bytes == 2) return Vectors<SIZE <= 2 ? 2 : 8, u32>(part).write();
    if (SIZE == 1) Vectors<SIZE == 1 ? 1 : 8, u32>(part).write();
}

// Zeros for a modality that was not recorded.
inline void write_zeros(const Part& part) {
    typedef Raw<sizeof(Out)>::Type Zero;
    const Zero zero = {};
    for (u32 k = threadIdx.x; k < part.total(); k += blockDim.x) {
        const u32 t = part.target(k), unit = k - t * part.units;
        *(Zero*)(part.out + i64(t) * part.args.out_strides[1] + i64(unit) * part.args.out_strides[2]) = zero;
    }
}

#endif
