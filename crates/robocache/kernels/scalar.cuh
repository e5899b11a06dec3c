// Single numbers of every float type, there and back; and 16 bytes at once where memory allows it.
// Host twin: src/ops/scalar.rs.
#pragma once
#include "rc.cuh"

namespace rc {

inline float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
inline float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
inline float widen(float x) { return x; }
inline double widen(double x) { return x; }

// Rounds to nearest even; half floats by way of float.
inline void narrow(double x, f16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(float(x))); }
inline void narrow(double x, bf16& to) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(float(x))); }
inline void narrow(double x, float& to) { to = float(x); }
inline void narrow(double x, double& to) { to = x; }

// The float types by number; mirrors FLOATS in scalar.rs.
enum Float : u32 { F16, BF16, F32, F64 };

inline void store_as(Float type, void* out, i64 index, double x) {
    if (type == F32) narrow(x, ((float*)out)[index]);
    else if (type == F16) narrow(x, ((f16*)out)[index]);
    else if (type == BF16) narrow(x, ((bf16*)out)[index]);
    else narrow(x, ((double*)out)[index]);
}

// A pattern of 2, 4 or 8 bytes, or of one in the lowest.
inline void store_bits(u32 bytes, void* out, i64 index, u64 bits) {
    if (bytes == 4) ((u32*)out)[index] = u32(bits);
    else if (bytes == 2) ((u16*)out)[index] = u16(bits);
    else if (bytes == 1) ((u8*)out)[index] = u8(bits);
    else ((u64*)out)[index] = bits;
}

}  // namespace rc
