// How units, a few neighbouring columns of one stream, are read, made and written.
// Host twin: mixed.rs (apply), integers.rs.
#pragma once
#include "streams.cuh"
#include "blend.cuh"
#include "vectors.cuh"

// Numbers as they are stored, one by one.
inline float number(f16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
inline float number(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
inline float number(float x) { return x; }
inline double number(double x) { return x; }
inline float number(signed char x) { return float(x); }
// In the place of a float's exponent it is too small by 120 powers of two; also where it is 0. The
// conversions of sm_89 and later would be a second path to keep equal to the CPU.
inline float number(f8e4m3 x) {
    const u32 size = x.bits & 0x7fu;
    const float number = size == 0x7f ? __uint_as_float(0x7fc00000u) : __uint_as_float(size << 20) * 0x1p120f;
    return x.bits & 0x80u ? -number : number;
}
inline float number(f8e5m2 x) { return number(f16{u16(u32(x.bits) << 8)}); }

inline void put(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
inline void put(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
inline void put(float& to, float x) { to = x; }
inline void put(double& to, float x) { to = double(x); }
inline void put(double& to, double x) { to = x; }
template <class T> void put(T& to, double x) { put(to, float(x)); }
// V stored numbers side by side as one access.
template <class T, int V> union Pack {
    typename Raw<int(sizeof(T)) * V>::Type raw;
    T items[V];
    Pack() {}
};

template <class T, class W, int V> void load_as(const u8* place, W (&numbers)[V]) {
    Pack<T, V> pack;
    pack.raw = __ldg((const typename Raw<int(sizeof(T)) * V>::Type*)place);
    #pragma unroll
    for (int i = 0; i < V; i++) numbers[i] = W(number(pack.items[i]));
}

// V neighbouring numbers of a sample; with V = 1 any stride will do.
template <class W, int V> void load_numbers(const StreamArgs& stream, const u8* values, u32 sample, u32 column, W (&numbers)[V]) {
    const u8* place = values + i64(sample) * stream.value_strides[1] + i64(column) * stream.value_strides[2];
#if RC_MIXED
    switch (stream.dtype) {
        case DTYPE_float16: load_as<f16>(place, numbers); break;
        case DTYPE_bfloat16: load_as<bf16>(place, numbers); break;
        case DTYPE_float32: load_as<float>(place, numbers); break;
        case DTYPE_int8: load_as<signed char>(place, numbers); break;
        case DTYPE_float8_e4m3fn: load_as<f8e4m3>(place, numbers); break;
        case DTYPE_float8_e5m2: load_as<f8e5m2>(place, numbers); break;
        default:
            // Only streams of double compute in double, two at a time.
            if constexpr (sizeof(W) == 8 && V <= 2) load_as<double>(place, numbers);
    }
    if (stream.scaled) {
        #pragma unroll
        for (int i = 0; i < V; i++)
            numbers[i] *= stream.scale ? stream.scale[(column + i) * stream.scale_stride] : stream.scale_all;
    }
#elif RC_FLOAT
    load_as<Out>(place, numbers);
#endif
}

template <class W> W load_number(const StreamArgs& stream, const u8* values, u32 sample, u32 column) {
    W numbers[1];
    load_numbers<W, 1>(stream, values, sample, column, numbers);
    return numbers[0];
}

template <class T, class W, int V> void store_as(u8* place, const W (&numbers)[V]) {
    Pack<T, V> pack;
    #pragma unroll
    for (int i = 0; i < V; i++) put(pack.items[i], numbers[i]);
    __stcs((typename Raw<int(sizeof(T)) * V>::Type*)place, pack.raw);
}

template <class W, int V> void store_numbers(const Args& args, u8* place, const W (&numbers)[V]) {
#if RC_MIXED
    switch (args.out_dtype) {
        case DTYPE_float16: store_as<f16>(place, numbers); break;
        case DTYPE_bfloat16: store_as<bf16>(place, numbers); break;
        case DTYPE_float32: store_as<float>(place, numbers); break;
        default:
            // Two doubles fill an access, so they are written one by one.
            for (int i = 0; i < V; i++) *(double*)(place + i * args.out_strides[2]) = double(numbers[i]);
    }
#elif RC_FLOAT
    store_as<Out>(place, numbers);
#endif
}

#if RC_RICH
// What rotations are multiplied with: one thread for each quaternion or matrix of each target.
template <class W, u32 COLUMNS> void make_factors_of(const Shared& shared, const RangeArgs& range, i64 row, u32 count) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[range.stream];
    const u8* values = stream.values + row * stream.value_strides[0];
    const u32 groups = (range.end - range.start) / COLUMNS;
    for (u32 i = threadIdx.x; i < groups * count; i += blockDim.x) {
        const u32 t = i / groups, g = i - t * groups, column = range.start + g * COLUMNS;
        const Pick pick = shared.picks[range.stream * args.tile + t];
        const W weight = W(pick.weight);
        Weight* to = shared.factors() + t * args.factors + range.factors + g * (COLUMNS / 2);
        W a[COLUMNS], b[COLUMNS];
        #pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
            a[c] = load_number<W>(stream, values, pick.first, column + c);
            b[c] = load_number<W>(stream, values, pick.second & ~LATER, column + c);
        }
        if constexpr (COLUMNS == 4) {
            W from, along;
            slerp(a, b, weight, from, along);
            // No value: the weight is not a number, and neither is anything made of it.
            to[0] = weight == weight ? from : weight;
            to[1] = weight == weight ? along : weight;
        } else {
            W first[3], second[3], factors[3];
            #pragma unroll
            for (int c = 0; c < 3; c++) {
                first[c] = line(a[c], b[c], weight);
                second[c] = line(a[c + 3], b[c + 3], weight);
            }
            orthonormal(first, second, factors);
            #pragma unroll
            for (int c = 0; c < 3; c++) to[c] = factors[c];
        }
    }
}

void make_factors(const Shared& shared, i64 row, u32 count) {
    for (u32 r = 0; r < RC_RANGES && shared.args.range[r].end; r++) {
        const RangeArgs& range = shared.args.range[r];
        if ((range.method != SLERP && range.method != ROT6D) || range.factors == NO_FACTORS) continue;
#if RC_MIXED
        const bool is_double = shared.args.stream[range.stream].dtype == DTYPE_float64;
        if (range.method == SLERP && is_double) make_factors_of<double, 4>(shared, range, row, count);
        else if (range.method == SLERP) make_factors_of<float, 4>(shared, range, row, count);
        else if (is_double) make_factors_of<double, 6>(shared, range, row, count);
        else make_factors_of<float, 6>(shared, range, row, count);
#else
        if (range.method == SLERP) make_factors_of<Weight, 4>(shared, range, row, count);
        else make_factors_of<Weight, 6>(shared, range, row, count);
#endif
    }
}

// How a column is made: its method, and where its factors lie.
inline u32 column_code(const Args& args, const StreamArgs& stream, u32 column) {
    if (stream.kind == LINE_KIND) return LINEAR;
    if (stream.kind == SINGLE) return PREVIOUS;
    u32 r = stream.first_range;
    while (r + 1 < stream.first_range + stream.ranges && args.range[r + 1].start <= column) r++;
    const RangeArgs& range = args.range[r];
    const u32 inside = column - range.start;
    if (range.factors == NO_FACTORS) return WHOLE_SLERP;
    if (range.method == SLERP) return SLERP | (range.factors + inside / 4 * 2) << 4;
    if (range.method == ROT6D) return (inside % 6 < 3 ? ROT6D : ROT6D_SECOND) | (range.factors + inside / 6 * 3) << 4;
    return range.method;
}

// The methods that take more than two numbers; apart, so that the others keep their registers.
template <class W>
__noinline__ W make_rare(const Shared& shared, const StreamArgs& stream, const u8* values, Pick pick, u32 place, u32 code,
                         u32 column, const Weight* factors, W a, W b) {
    const W weight = W(pick.weight);
    if ((code & 15) == ANGLE) return between_angles(a, b, weight);
    if ((code & 15) == CUBIC) {
        Beside beside = {0, 0, 0, 0};
        // Only a target between two samples has any beside them.
        if (pick.first != (pick.second & ~LATER)) beside = shared.besides()[place];
        const W earlier = load_number<W>(stream, values, beside.before, column);
        const W later = load_number<W>(stream, values, beside.behind, column);
        return cubic(earlier, a, b, later, W(beside.before_gap), W(beside.behind_gap), weight);
    }
    const W own[3] = {W(factors[0]), W(factors[1]), W(factors[2])};
    const W first = line(load_number<W>(stream, values, pick.first, column - 3),
                         load_number<W>(stream, values, pick.second & ~LATER, column - 3), weight);
    return second_column(first, line(a, b, weight), own);
}

// Writes a unit of every `step`-th target from `t` on: MOST targets are on their way at once. RARE:
// whether there are methods that take more than two numbers of a column.
template <class W, int V, bool RARE>
void write_methods(const Shared& shared, u32 s, u32 column, const u32 (&codes)[V], i64 row, u8* out, u32 t, u32 count,
                   u32 step) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[s];
    const u8* values = stream.values + row * stream.value_strides[0];
    const int MOST = RARE || sizeof(W) * V > 16 ? 1 : 2;
    for (; t < count; t += step * MOST) {
        W a[MOST][V], b[MOST][V];
        #pragma unroll
        for (int u = 0; u < MOST; u++) {
            const Pick& pick = shared.picks[s * args.tile + min(t + u * step, count - 1)];
            load_numbers<W, V>(stream, values, pick.first, column, a[u]);
            load_numbers<W, V>(stream, values, pick.second & ~LATER, column, b[u]);
        }
        #pragma unroll
        for (int u = 0; u < MOST; u++) {
            const u32 own = t + u * step, place = s * args.tile + own;
            if (own >= count) break;
            const Pick pick = shared.picks[place];
            const W weight = W(pick.weight);
            const Weight* factors = shared.factors() + own * args.factors;
            W result[V];
            #pragma unroll
            for (int i = 0; i < V; i++) {
                const u32 method = codes[i] & 15, at = codes[i] >> 4;
                if (method == LINEAR) result[i] = line(a[u][i], b[u][i], weight);
                else if (method == SLERP) result[i] = weighted(a[u][i], b[u][i], W(factors[at]), W(factors[at + 1]));
                else if (method == ROT6D) result[i] = line(a[u][i], b[u][i], weight) * W(factors[at]);
                else if (!RARE || method <= NEXT) {
                    const bool second = method == NEXT || (method == NEAREST && (pick.second & LATER));
                    result[i] = weight != weight ? weight : second ? b[u][i] : a[u][i];
                } else {
                    result[i] = make_rare<W>(shared, stream, values, pick, place, codes[i], column + i, factors + at,
                                             a[u][i], b[u][i]);
                }
            }
            store_numbers<W, V>(args, out + i64(own) * args.out_strides[1], result);
        }
    }
}

// The same for units that are whole quaternions: their numbers are all at hand.
template <class W, int V>
void write_slerps(const Shared& shared, u32 s, u32 column, i64 row, u8* out, u32 t, u32 count, u32 step) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[s];
    const u8* values = stream.values + row * stream.value_strides[0];
    const int MOST = V == 4 ? 2 : 1;
    for (; t < count; t += step * MOST) {
        W a[MOST][V], b[MOST][V];
        #pragma unroll
        for (int u = 0; u < MOST; u++) {
            const Pick& pick = shared.picks[s * args.tile + min(t + u * step, count - 1)];
            load_numbers<W, V>(stream, values, pick.first, column, a[u]);
            load_numbers<W, V>(stream, values, pick.second & ~LATER, column, b[u]);
        }
        #pragma unroll
        for (int u = 0; u < MOST; u++) {
            const u32 own = t + u * step;
            if (own >= count) break;
            const W weight = W(shared.picks[s * args.tile + own].weight);
            W result[V];
            #pragma unroll
            for (int q = 0; q < V; q += 4) {
                const W first[4] = {a[u][q], a[u][q + 1], a[u][q + 2], a[u][q + 3]};
                const W second[4] = {b[u][q], b[u][q + 1], b[u][q + 2], b[u][q + 3]};
                W from, along;
                slerp(first, second, weight, from, along);
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    result[q + i] = weight == weight ? weighted(first[i], second[i], from, along) : weight;
            }
            store_numbers<W, V>(args, out + i64(own) * args.out_strides[1], result);
        }
    }
}

template <class W, int V>
void write_numbers(const Shared& shared, u32 s, u32 column, i64 row, u8* out, u32 t, u32 count, u32 step) {
    const StreamArgs& stream = shared.args.stream[s];
    u32 codes[V];
    bool rare = false;
    #pragma unroll
    for (int i = 0; i < V; i++) {
        codes[i] = column_code(shared.args, stream, column + i);
        const u32 method = codes[i] & 15;
        rare |= method == ANGLE || method == CUBIC || method == ROT6D_SECOND;
    }
    if constexpr (V % 4 == 0)
        if (codes[0] == WHOLE_SLERP) return write_slerps<W, V>(shared, s, column, row, out, t, count, step);
    if (rare) write_methods<W, V, true>(shared, s, column, codes, row, out, t, count, step);
    else write_methods<W, V, false>(shared, s, column, codes, row, out, t, count, step);
}
#endif

#if RC_MIXED
template <class T> i64 load_integer_as(const u8* place) { return i64(*(const T*)place); }
i64 load_integer(u32 dtype, const u8* place) {
    switch (dtype) {
        case DTYPE_uint8: return load_integer_as<u8>(place);
        case DTYPE_int8: return load_integer_as<signed char>(place);
        case DTYPE_uint16: return load_integer_as<u16>(place);
        case DTYPE_int16: return load_integer_as<short>(place);
        case DTYPE_uint32: return load_integer_as<u32>(place);
        case DTYPE_int32: return load_integer_as<i32>(place);
        case DTYPE_bool: return load_integer_as<u8>(place);
        default: return load_integer_as<i64>(place);
    }
}

// One integer into whatever holds it.
template <class T> void put_at(u8* place, i64 number) { *(T*)place = T(number); }
void store_integer(u32 dtype, u8* place, i64 number, bool is_unsigned) {
    switch (dtype) {
        case DTYPE_float16: put(*(f16*)place, is_unsigned ? float(u64(number)) : float(number)); break;
        case DTYPE_bfloat16: put(*(bf16*)place, is_unsigned ? float(u64(number)) : float(number)); break;
        case DTYPE_float32: *(float*)place = is_unsigned ? float(u64(number)) : float(number); break;
        case DTYPE_float64: *(double*)place = is_unsigned ? double(u64(number)) : double(number); break;
        case DTYPE_uint8: case DTYPE_int8: put_at<u8>(place, number); break;
        case DTYPE_uint16: case DTYPE_int16: put_at<u16>(place, number); break;
        case DTYPE_uint32: case DTYPE_int32: put_at<u32>(place, number); break;
        case DTYPE_bool: *place = number != 0; break;
        default: put_at<i64>(place, number);
    }
}

// Writes one column of integers, which are copied.
void write_integers(const Shared& shared, u32 s, u32 column, i64 row, u8* out, u32 t, u32 count, u32 step) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[s];
    const u8* values = stream.values + row * stream.value_strides[0] + i64(column) * stream.value_strides[2];
    const u32 method = column_code(args, stream, column);
    for (; t < count; t += step) {
        const Pick pick = shared.picks[s * args.tile + t];
        const bool second = method == NEXT || (method == NEAREST && (pick.second & LATER));
        const u32 sample = second ? pick.second & ~LATER : pick.first;
        u8* place = out + i64(t) * args.out_strides[1];
        if (pick.weight == pick.weight)
            store_integer(args.out_dtype, place, load_integer(stream.dtype, values + i64(sample) * stream.value_strides[1]),
                          stream.dtype == DTYPE_uint64);
        else if (args.out_dtype >= DTYPE_uint8) store_integer(args.out_dtype, place, 0, false);
        else {
            const float none[1] = {__int_as_float(0x7fc00000)};
            store_numbers<float, 1>(args, place, none);
        }
    }
}
#else
template <bool FIRST, class A, class B> struct Chosen { typedef A Type; };
template <class A, class B> struct Chosen<false, A, B> { typedef B Type; };

// Writes a unit of BYTES bytes of a stream that is copied, or blended along lines.
template <int BYTES> void write_plain(const Shared& shared, u32 s, u32 column, i64 row, u8* out, u32 t, u32 count, u32 step) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[s];
    const u8* values = stream.values + row * stream.value_strides[0] + i64(column) * stream.value_strides[2];
    const Pick* picks = shared.picks + s * args.tile;
    // Strides that do not fit 32 bits are left to units of one number.
    typedef typename Chosen<(BYTES > sizeof(Out)), i32, i64>::Type Index;
#if RC_FLOAT
    if (stream.kind == LINE_KIND) {
        copy_column<Out, BYTES, true, Index>(values, stream.value_strides[1], out, args.out_strides[1], 0, picks, t, count, step);
        return;
    }
#endif
    copy_column<Out, BYTES, false, Index>(values, stream.value_strides[1], out, args.out_strides[1], args.missing, picks, t,
                                        count, step);
}
#endif

#if !RC_MIXED
// Zeros for a modality that was not recorded.
template <int BYTES> void write_zeros(const Args& args, u8* out, u32 t, u32 count, u32 step) {
    const typename Raw<BYTES>::Type zero = {};
    for (; t < count; t += step) __stcs((typename Raw<BYTES>::Type*)(out + i64(t) * args.out_strides[1]), zero);
}
#endif

// Writes unit `v` of a stream of every `step`-th target from `t` on.
void write_units(const Shared& shared, u32 s, u32 v, i64 row, u8* out, u32 t, u32 count, u32 step) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[s];
    const u32 column = v * stream.numbers;
    out += (i64(stream.column) + column) * args.out_strides[2];
#if RC_MIXED
    if (stream.kind == MISSING) {
        for (; t < count; t += step) store_integer(args.out_dtype, out + i64(t) * args.out_strides[1], 0, false);
        return;
    }
    if (!stream.scaled && stream.dtype >= DTYPE_uint8) return write_integers(shared, s, column, row, out, t, count, step);
    if (stream.dtype == DTYPE_float64) write_numbers<double, 1>(shared, s, column, row, out, t, count, step);
    else if (stream.numbers == 4) write_numbers<float, 4>(shared, s, column, row, out, t, count, step);
    else write_numbers<float, 1>(shared, s, column, row, out, t, count, step);
#else
    if (stream.kind == MISSING) return write_zeros<sizeof(Out)>(args, out, t, count, step);
    const int SIZE = sizeof(Out);
    const u32 bytes = stream.numbers * SIZE;
#if RC_RICH
    if (stream.kind == RICH) {
        if (bytes == 16) write_numbers<Weight, 16 / SIZE>(shared, s, column, row, out, t, count, step);
        else write_numbers<Weight, 1>(shared, s, column, row, out, t, count, step);
        return;
    }
#endif
    if (bytes == 16) write_plain<16>(shared, s, column, row, out, t, count, step);
    else if (bytes == 8) write_plain<8>(shared, s, column, row, out, t, count, step);
    else if (SIZE <= 4 && bytes == 4) write_plain<SIZE <= 4 ? 4 : 8>(shared, s, column, row, out, t, count, step);
    else if (SIZE <= 2 && bytes == 2) write_plain<SIZE <= 2 ? 2 : 8>(shared, s, column, row, out, t, count, step);
    else if (SIZE == 1) write_plain<SIZE == 1 ? 1 : 8>(shared, s, column, row, out, t, count, step);
#endif
}
