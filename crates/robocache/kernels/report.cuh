// How a kernel reports bad data: once, into host memory, without anybody waiting.
// Host twin: src/cuda/report.rs, which also says why it is done this way.
#pragma once
#include "rc.cuh"

namespace rc {

struct Letter {
    u64 epoch, posted, call, code, row, index, first, second;
};

struct Reporter {
    Letter* letter;  // in host memory
    u64* claim;      // in device memory
    u64 call;
};

// `code` is op << 32 | what was found; what the numbers mean is the op's own.
inline void report(const Reporter& reporter, u64 code, u64 row, u64 index, u64 first, u64 second) {
    volatile Letter* letter = reporter.letter;
    const u64 next = letter->epoch + 1;
    if (atomicMax(reporter.claim, next) >= next) return;
    letter->call = reporter.call;
    letter->code = code;
    letter->row = row;
    letter->index = index;
    letter->first = first;
    letter->second = second;
    __threadfence_system();
    letter->posted = next;
}

inline u64 bits_of(i64 x) { return u64(x); }
inline u64 bits_of(double x) { return u64(__double_as_longlong(x)); }
inline u64 bits_of(float x) { return __float_as_uint(x); }

}  // namespace rc
