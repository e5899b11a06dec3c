// Division by a number that the host knows: a multiplication and one correction. Host twin: divide.rs.
#pragma once
#include "rc.cuh"

namespace rc {

// Mirrors `Divisor` in divide.rs: 2^64 over the number, rounded down.
struct Divisor {
    u64 number, inverse;
};

// The quotient; what is left takes the place of the dividend. The first guess is too small by 1 at most.
inline u64 divide(const Divisor& by, u64& rest) {
    u64 quotient = __umul64hi(rest, by.inverse);
    rest -= quotient * by.number;
    if (rest >= by.number) {
        quotient++;
        rest -= by.number;
    }
    return quotient;
}

// The same where dividend and number have 32 bits.
inline u32 divide(const Divisor& by, u32& rest) {
    u32 quotient = __umulhi(rest, u32(by.inverse >> 32));
    rest -= quotient * u32(by.number);
    if (rest >= u32(by.number)) {
        quotient++;
        rest -= u32(by.number);
    }
    return quotient;
}

}  // namespace rc
