// Units of numbers that are made one by one: rotations, angles, curves, and whatever is stored in
// another type than the result.
// Host twin: mixed.rs (apply), integers.rs.
#pragma once
#include "blend.cuh"
#include "numbers.cuh"

#if RC_RICH

// N numbers of one target from those of the two samples around it.
template <u32 METHOD, class W, int N> void make(const W (&a)[N], const W (&b)[N], W weight, u32 method, bool later, W (&result)[N]) {
    if constexpr (METHOD == SLERP) {
        between(a, b, weight, result);
    } else if constexpr (METHOD == ROT6D) {
        W first[3], second[3], factors[3];
        #pragma unroll
        for (int i = 0; i < 3; i++) {
            first[i] = line(a[i], b[i], weight);
            second[i] = line(a[i + 3], b[i + 3], weight);
        }
        orthonormal(first, second, factors);
        #pragma unroll
        for (int i = 0; i < 3; i++) {
            result[i] = first[i] * factors[0];
            result[i + 3] = second_column(first[i], second[i], factors);
        }
    } else {
        const bool second = method == NEXT || (method == NEAREST && later);
        #pragma unroll
        for (int i = 0; i < N; i++) {
            if (METHOD == ANGLE) result[i] = between_angles(a[i], b[i], weight);
            else result[i] = method == LINEAR ? line(a[i], b[i], weight) : second ? b[i] : a[i];
        }
    }
}

// Writes units of N numbers, which accesses of V numbers read and write; UNROLL are on their way at once.
template <u32 METHOD, class W, int N, int V, int UNROLL> void make_units(const Part& part) {
    const u32 total = part.total();
    for (u32 k = threadIdx.x; k < total; k += UNROLL * blockDim.x) {
        W a[UNROLL][N], b[UNROLL][N], weights[UNROLL];
        bool later[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const u32 own = min(k + u * blockDim.x, total - 1), t = part.target(own), unit = own - t * part.units;
            const Pick pick = part.picks[t];
            weights[u] = W(pick.weight);
            later[u] = pick.second & LATER;
            load_numbers<W, N, V>(part, unit, pick.first, a[u]);
            load_numbers<W, N, V>(part, unit, pick.second & ~LATER, b[u]);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const u32 own = k + u * blockDim.x, t = part.target(own), unit = own - t * part.units;
            if (own >= total) break;
            const W weight = weights[u];
            W result[N];
            make<METHOD>(a[u], b[u], weight, part.segment.method, later[u], result);
            // What slerp makes of a weight that is no number is none, either.
            store_numbers<W, N, V>(part, unit, t, result, METHOD == SLERP ? W(0) : weight);
        }
    }
}

// The same for curves, which take four samples.
template <class W, int V> void make_curves(const Part& part, const Beside* besides) {
    for (u32 k = threadIdx.x; k < part.total(); k += blockDim.x) {
        const u32 t = part.target(k), unit = k - t * part.units;
        const Pick pick = part.picks[t];
        Beside beside = {0, 0, 0, 0};
        // Only a target between two samples has any beside them.
        if (pick.first != (pick.second & ~LATER)) beside = besides[t];
        W earlier[V], a[V], b[V], later[V], result[V];
        load_numbers<W, V, V>(part, unit, beside.before, earlier);
        load_numbers<W, V, V>(part, unit, pick.first, a);
        load_numbers<W, V, V>(part, unit, pick.second & ~LATER, b);
        load_numbers<W, V, V>(part, unit, beside.behind, later);
        const W weight = W(pick.weight);
        #pragma unroll
        for (int i = 0; i < V; i++)
            result[i] = cubic(earlier[i], a[i], b[i], later[i], W(beside.before_gap), W(beside.behind_gap), weight);
        store_numbers<W, V, V>(part, unit, t, result, weight);
    }
}

// WIDE: numbers that the widest access takes.
template <class W, int WIDE> void write_methods(const Part& part, const Beside* besides) {
    const int PAIR = WIDE < 2 ? 1 : 2, AT_ONCE = sizeof(W) == 4 ? 2 : 1;
    const bool wide = part.segment.together > 1;
    switch (part.segment.method) {
        case SLERP:
            if (wide) make_units<SLERP, W, 4, WIDE, AT_ONCE>(part);
            else make_units<SLERP, W, 4, 1, AT_ONCE>(part);
            break;
        case ROT6D:
            if (wide) make_units<ROT6D, W, 6, PAIR, 1>(part);
            else make_units<ROT6D, W, 6, 1, 1>(part);
            break;
        case ANGLE:
            if (wide) make_units<ANGLE, W, WIDE, WIDE, 1>(part);
            else make_units<ANGLE, W, 1, 1, AT_ONCE>(part);
            break;
        case CUBIC:
            if (wide) make_curves<W, WIDE>(part, besides);
            else make_curves<W, 1>(part, besides);
            break;
        default:
#if RC_MIXED
            if (wide) make_units<LINEAR, W, WIDE, WIDE, AT_ONCE>(part);
            else make_units<LINEAR, W, 1, 1, AT_ONCE>(part);
#endif
            break;
    }
}

#endif

#if RC_MIXED
// Writes columns of integers, which are copied.
inline void write_integers(const Part& part) {
    const Args& args = part.args;
    const u32 dtype = part.stream.dtype, method = part.segment.method;
    for (u32 k = threadIdx.x; k < part.total(); k += blockDim.x) {
        const u32 t = part.target(k), unit = k - t * part.units;
        const Pick pick = part.picks[t];
        const bool second = method == NEXT || (method == NEAREST && (pick.second & LATER));
        const u32 sample = second ? pick.second & ~LATER : pick.first;
        u8* place = part.out + i64(t) * args.out_strides[1] + i64(unit) * args.out_strides[2];
        const u8* from = part.values + i64(sample) * part.stream.value_strides[1] + i64(unit) * part.stream.value_strides[2];
        if (pick.weight == pick.weight) store_integer(args.out_dtype, place, load_integer(dtype, from), dtype == DTYPE_uint64);
        else if (args.out_dtype >= DTYPE_uint8) store_integer(args.out_dtype, place, 0, false);
        else {
            const float none[1] = {__int_as_float(0x7fc00000)};
            store_group<float, 1>(args, place, none);
        }
    }
}
#endif
