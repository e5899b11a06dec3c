// What all kernels share: integer names, the list of dtypes, conversions, and vectors of bytes.
// Host twin: src/tensor/dtype.rs. Free of toolkit headers, so that NVRTC needs none.
#pragma once

typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

namespace rc {

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

// Mirrors for_each_dtype! of dtype.rs; a test compares the two. X(name, type).
#define RC_DTYPES(X) \
    X(float16, rc::f16) \
    X(bfloat16, rc::bf16) \
    X(float32, float) \
    X(float64, double) \
    X(uint8, u8) \
    X(int8, signed char) \
    X(uint16, u16) \
    X(int16, short) \
    X(uint32, u32) \
    X(int32, i32) \
    X(uint64, u64) \
    X(int64, i64) \
    X(bool, bool)

// What an element computes in, and the way there and back. Conversions round to nearest even.
template <class T> struct Number { typedef T Compute; };
template <> struct Number<f16> { typedef float Compute; };
template <> struct Number<bf16> { typedef float Compute; };

inline float widen(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
inline float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
inline float widen(float x) { return x; }
inline double widen(double x) { return x; }

inline void narrow(float x, f16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
inline void narrow(float x, bf16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
inline void narrow(float x, float& y) { y = x; }
inline void narrow(double x, double& y) { y = x; }

// Whole vectors: two halves in one instruction.
template <int COUNT, class C, class T> void narrow_all(const C (&from)[COUNT], T (&to)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) narrow(from[i], to[i]);
}
inline u32 narrow_pair(float low, float high, f16) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
inline u32 narrow_pair(float low, float high, bf16) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <int COUNT, class T> void narrow_pairs(const float (&from)[COUNT], T (&to)[COUNT]) {
    #pragma unroll
    for (int i = 0; i + 1 < COUNT; i += 2) {
        const u32 pair = narrow_pair(from[i], from[i + 1], T());
        to[i].bits = u16(pair);
        to[i + 1].bits = u16(pair >> 16);
    }
    if (COUNT % 2) narrow(from[COUNT - 1], to[COUNT - 1]);
}
template <int COUNT> void narrow_all(const float (&from)[COUNT], f16 (&to)[COUNT]) { narrow_pairs(from, to); }
template <int COUNT> void narrow_all(const float (&from)[COUNT], bf16 (&to)[COUNT]) { narrow_pairs(from, to); }

inline bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
inline bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }
inline bool is_finite(i64) { return true; }
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
inline bool is_nan(i64) { return false; }

// A vector of BYTES bytes, as one load or store.
template <int BYTES> struct Raw;
template <> struct Raw<16> { typedef uint4 Type; };
template <> struct Raw<8> { typedef uint2 Type; };
template <> struct Raw<4> { typedef u32 Type; };
template <> struct Raw<2> { typedef u16 Type; };
template <> struct Raw<1> { typedef u8 Type; };

template <class T, int BYTES> union Pack {
    static const int COUNT = BYTES / sizeof(T);
    typename Raw<BYTES>::Type raw;
    T lanes[COUNT];
};

}  // namespace rc
