// Numbers as they are stored: read, widened, narrowed and written.
// Host twin: mixed.rs, ../../tensor/scalar.rs.
#pragma once
#include "part.cuh"
#include "scalar.cuh"

namespace rc {

// The types that only store, beside those of scalar.cuh.
inline float widen(signed char x) { return float(x); }
// In the place of a float's exponent it is too small by 120 powers of two; also where it is 0. The
// conversions of sm_89 and later would be a second path to keep equal to the CPU.
inline float widen(f8e4m3 x) {
    const u32 size = x.bits & 0x7fu;
    const float number = size == 0x7f ? __uint_as_float(0x7fc00000u) : __uint_as_float(size << 20) * 0x1p120f;
    return x.bits & 0x80u ? -number : number;
}
inline float widen(f8e5m2 x) { return widen(f16{u16(u32(x.bits) << 8)}); }

}  // namespace rc

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
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        // A word at a time, which takes fewer instructions.
        #pragma unroll
        for (int i = 0; i < V; i += 2) {
            float pair[2];
            Group<T>::widen((const u32*)&pack.raw + i / 2, pair);
            numbers[i] = W(pair[0]);
            numbers[i + 1] = W(pair[1]);
        }
    } else {
        #pragma unroll
        for (int i = 0; i < V; i++) numbers[i] = W(widen(pack.items[i]));
    }
}

// V neighbouring numbers; with V = 1 any stride will do.
template <class W, int V> void load_group(const StreamArgs& stream, const u8* place, W (&numbers)[V]) {
#if RC_MIXED
    switch (stream.dtype) {
        case DTYPE_float16: load_as<f16>(place, numbers); break;
        case DTYPE_bfloat16: load_as<bf16>(place, numbers); break;
        case DTYPE_float32: load_as<float>(place, numbers); break;
        case DTYPE_int8: load_as<signed char>(place, numbers); break;
        case DTYPE_float8_e4m3fn: load_as<f8e4m3>(place, numbers); break;
        case DTYPE_float8_e5m2: load_as<f8e5m2>(place, numbers); break;
        default:
            // Only streams of double compute in double, one by one.
            if constexpr (sizeof(W) == 8 && V == 1) load_as<double>(place, numbers);
    }
#elif RC_FLOAT
    load_as<Out>(place, numbers);
#endif
}

// Accesses of several numbers have those side by side, and strides from row to row that fit 32 bits.
template <int V, class T> T* place_of(T* first, u32 index, i64 stride) {
    if constexpr (V > 1) {
        // Else the compiler multiplies 64 bits of which half are 0.
        u32 narrow = u32(stride);
        asm("" : "+r"(narrow));
        return step_to(first, index, narrow);
    } else {
        return step_to(first, index, stride);
    }
}
template <int V> i64 column_step(i64 stride) {
#if !RC_MIXED
    if constexpr (V > 1) return sizeof(Out);
#endif
    return stride;
}

// The N numbers of a sample's unit, V at a time.
template <class W, int N, int V> void load_numbers(const Part& part, u32 unit, u32 sample, W (&numbers)[N]) {
    const StreamArgs& stream = part.stream;
    const i64 step = column_step<V>(stream.value_strides[2]);
    const u8* place = place_of<V>(part.values, sample, stream.value_strides[1]) + i64(unit * part.segment.per_unit) * step;
    #pragma unroll
    for (int i = 0; i < N; i += V) {
        W group[V];
        load_group<W, V>(stream, place + i * step, group);
        #pragma unroll
        for (int k = 0; k < V; k++) numbers[i + k] = group[k];
    }
#if RC_MIXED
    if (!stream.scaled) return;
    #pragma unroll
    for (int i = 0; i < N; i++)
        numbers[i] *= stream.scale ? stream.scale[i64(part.column + unit * part.segment.per_unit + i) * stream.scale_stride] : stream.scale_all;
#endif
}

template <class T, class W, int V> void store_as(u8* place, const W (&numbers)[V]) {
    Pack<T, V> pack;
    #pragma unroll
    for (int i = 0; i < V; i++) put(pack.items[i], numbers[i]);
    *(typename Raw<int(sizeof(T)) * V>::Type*)place = pack.raw;
}

template <class W, int V> void store_group(const Args& args, u8* place, const W (&numbers)[V]) {
#if RC_MIXED
    switch (args.out_dtype) {
        case DTYPE_float16: store_as<f16>(place, numbers); break;
        case DTYPE_bfloat16: store_as<bf16>(place, numbers); break;
        case DTYPE_float32: store_as<float>(place, numbers); break;
        default:
            // Four doubles are more than an access takes.
            for (int i = 0; i < V; i++) *(double*)(place + i * args.out_strides[2]) = double(numbers[i]);
    }
#elif RC_FLOAT
    store_as<Out>(place, numbers);
#endif
}

// The N numbers of a target's unit, V at a time. A weight that is no number means no value.
template <class W, int N, int V> void store_numbers(const Part& part, u32 unit, u32 t, const W (&numbers)[N], W weight) {
    const Args& args = part.args;
    const i64 step = column_step<V>(args.out_strides[2]);
    u8* place = place_of<V>(part.out, t, args.out_strides[1]) + i64(unit * part.segment.per_unit) * step;
    #pragma unroll
    for (int i = 0; i < N; i += V) {
        W group[V];
        #pragma unroll
        for (int k = 0; k < V; k++) group[k] = weight == weight ? numbers[i + k] : weight;
        store_group<W, V>(args, place + i * step, group);
    }
}

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
#endif
