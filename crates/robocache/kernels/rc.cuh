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
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };

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
    X(bool, bool) \
    X(float8_e4m3fn, rc::f8e4m3) \
    X(float8_e5m2, rc::f8e5m2)

// What an element computes in.
template <class T> struct Number { typedef T Compute; };
template <> struct Number<f16> { typedef float Compute; };
template <> struct Number<bf16> { typedef float Compute; };

inline bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
inline bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }
inline bool is_finite(i64) { return true; }
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
inline bool is_nan(i64) { return false; }

// place + index * stride.
template <class T, class Number> T* step_to(T* place, Number index, u32 stride) { return place + u64(u32(index)) * stride; }
template <class T, class Number> T* step_to(T* place, Number index, i64 stride) { return place + i64(index) * stride; }

// Keeps an address in one register pair; else its parts are added up for every access.
template <class T> void settle(T*& place) { asm volatile("" : "+l"(place)); }

// An address in shared memory, as its own instructions take it.
inline u32 near_place(const void* place) { return u32(__cvta_generic_to_shared(place)); }

// Numbers added to global memory, and bits set there, that nobody waits for: the assembler lets atomicAdd and
// atomicOr ask for the old number even where nobody uses it.
inline void add_to(u32* place, u32 number) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(place), "r"(number) : "memory");
}
inline void add_to(i32* place, i32 number) { add_to((u32*)place, u32(number)); }
inline void add_to(u64* place, u64 number) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(place), "l"(number) : "memory");
}
inline void set_in(u64* place, u64 bits) {
    asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" : : "l"(place), "l"(bits) : "memory");
}
inline void set_in(u32* place, u32 bits) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" : : "l"(place), "r"(bits) : "memory");
}

// Memory of BYTES bytes, as one load or store.
template <int BYTES> struct Raw;
template <> struct Raw<16> { typedef uint4 Type; };
template <> struct Raw<8> { typedef uint2 Type; };
template <> struct Raw<4> { typedef u32 Type; };
template <> struct Raw<2> { typedef u16 Type; };
template <> struct Raw<1> { typedef u8 Type; };

// The same in registers, by 32-bit words; less than a word fills the lower part of one.
template <int BYTES> union Words {
    static const int COUNT = BYTES < 4 ? 1 : BYTES / 4;
    u32 words[COUNT];
    typename Raw<BYTES>::Type raw;
};

// Computing on words: how many numbers a word (or a pair of words) holds, and the way there and
// back. Conversions round to nearest even.
template <class T> struct Group;
template <> struct Group<f16> {
    static const int WORDS = 1, NUMBERS = 2;
    static void widen(const u32* words, float* numbers) {
        asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(numbers[0]), "=f"(numbers[1]) : "r"(words[0]));
    }
    static void narrow(const float* numbers, u32* words) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words[0]) : "f"(numbers[1]), "f"(numbers[0]));
    }
};
template <> struct Group<bf16> {
    static const int WORDS = 1, NUMBERS = 2;
    static void widen(const u32* words, float* numbers) {
        numbers[0] = __uint_as_float(words[0] << 16);
        numbers[1] = __uint_as_float(words[0] & 0xffff0000u);
    }
    static void narrow(const float* numbers, u32* words) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[0]) : "f"(numbers[1]), "f"(numbers[0]));
    }
};
template <> struct Group<float> {
    static const int WORDS = 1, NUMBERS = 1;
    static void widen(const u32* words, float* numbers) { numbers[0] = __uint_as_float(words[0]); }
    static void narrow(const float* numbers, u32* words) { words[0] = __float_as_uint(numbers[0]); }
};
template <> struct Group<double> {
    static const int WORDS = 2, NUMBERS = 1;
    static void widen(const u32* words, double* numbers) { numbers[0] = __hiloint2double(words[1], words[0]); }
    static void narrow(const double* numbers, u32* words) {
        words[0] = __double2loint(numbers[0]);
        words[1] = __double2hiint(numbers[0]);
    }
};

}  // namespace rc
