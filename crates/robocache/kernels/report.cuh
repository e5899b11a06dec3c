// How a kernel reports bad data: once, into host memory, without anybody waiting.
// Host twin: src/cuda/report.rs, which also says why it is done this way.
#pragma once
#include "rc.cuh"

namespace rc {

struct Letter {
    u64 epoch, posted, call, code, row, index, first, second, third;
};

const int RECENT = 7;

struct Claims {
    u64 epoch;           // the last that was claimed
    u64 recent[RECENT];  // by whom the last ones were claimed
};

struct Reporter {
    Letter* letter;  // in host memory
    Claims* claims;  // in device memory
    u64 call;
    u64 once;  // the call, if it runs once; 0 in a graph, where every replay may report
};

// `code` is op << 32 | what was found; what the numbers mean is the op's own.
inline void report(const Reporter& reporter, u64 code, u64 row, u64 index, u64 first, u64 second, u64 third) {
    volatile Letter* letter = reporter.letter;
    volatile Claims* claims = reporter.claims;
    const u64 next = letter->epoch + 1;
    // Who sees that a letter was read also sees who wrote it: a call reports once, even when the
    // host has read its letter while it still runs.
    __threadfence_system();
    for (int i = 0; i < RECENT; i++)
        if (reporter.once && claims->recent[i] == reporter.once) return;
    if (atomicMax(&reporter.claims->epoch, next) >= next) return;
    claims->recent[next % RECENT] = reporter.once;
    letter->call = reporter.call;
    letter->code = code;
    letter->row = row;
    letter->index = index;
    letter->first = first;
    letter->second = second;
    letter->third = third;
    __threadfence_system();
    letter->posted = next;
}

inline u64 bits_of(i64 x) { return u64(x); }
inline u64 bits_of(double x) { return u64(__double_as_longlong(x)); }
inline u64 bits_of(float x) { return __float_as_uint(x); }

}  // namespace rc
