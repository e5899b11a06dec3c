// The stamps, targets and lengths of a row: brought near, looked at, and reported when they are bad.
// Host twin: rows.rs. Args is any struct with `reporter`, `code`, `first_row`, `flags`, `extrapolate`.
#pragma once
#include "report.cuh"
#include "locate.cuh"

namespace rc {

enum Flags : u32 { CHECK = 1, WIDE_LENGTHS = 2, WIDE_TARGET_LENGTHS = 4, STAGE = 8 };
// Mirrors `describe` in cuda.rs.
enum Fault : u64 { DECREASES = 1, NOT_FINITE, COARSE, OUTSIDE, LENGTH, TARGET_LENGTH };

template <class Args> void found(const Args& args, Fault fault, u64 row, u64 index, u64 first, u64 second = 0, u64 third = 0) {
    report(args.reporter, args.code | fault, args.first_row + row, index, first, second, third);
}

// The length that exists, inside 0..most whatever was given; tells whether it was good.
template <class Args>
bool read_length(const Args& args, const void* lengths, Flags wide, i64 offset, i64 most, Fault fault, u64 row, i64& length,
                 bool tells = threadIdx.x == 0) {
    const i64 given = args.flags & wide ? ((const i64*)lengths)[offset] : i64(((const i32*)lengths)[offset]);
    length = min(max(given, i64(0)), most);
    if (given == length || !(args.flags & CHECK)) return true;
    if (tells) found(args, fault, row, 0, u64(given), u64(most));
    return false;
}

// The same without a report.
inline bool read_length(const void* lengths, bool wide, i64 offset, i64 most, i64& length) {
    const i64 given = wide ? ((const i64*)lengths)[offset] : i64(((const i32*)lengths)[offset]);
    length = min(max(given, i64(0)), most);
    return given == length;
}

inline bool is_coarse(float stamp) { return fabsf(stamp) > 16777216.0f; }
inline bool is_coarse(double) { return false; }
inline bool is_coarse(i64) { return false; }

// Looks for the first bad stamp and reports it; only called for a row that has one.
template <class Args, class Row> void report_stamps(const Args& args, const Row& stamps, u64 row) {
    __shared__ u64 first_bad;
    if (threadIdx.x == 0) first_bad = ~0ull;
    __syncthreads();
    for (typename Row::Index i = threadIdx.x; i < stamps.length; i += blockDim.x)
        if (!is_finite(stamps.at(i)) || (i > 0 && stamps.at(i) < stamps.at(i - 1))) {
            atomicMin(&first_bad, u64(i));
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0 && first_bad != ~0ull) {
        const typename Row::Index at = typename Row::Index(first_bad);
        const bool finite = is_finite(stamps.at(at));
        found(args, finite ? DECREASES : NOT_FINITE, row, first_bad, bits_of(stamps.at(at)),
              finite ? bits_of(stamps.at(at - 1)) : 0);
    }
}

// Whether some stamp comes before the one ahead of it. Each thread looks at its share.
template <class Stamp> bool has_bad_pair(const Stamps<Stamp>& stamps, u32 thread, u32 threads) {
    bool bad = false;
    for (i64 i = thread; i + 1 < stamps.length; i += threads) bad |= !(stamps.at(i) <= stamps.at(i + 1));
    return bad;
}
// The same for `count` stamps side by side in shared memory, from a multiple of 16 bytes on, `length` of each row.
template <class Stamp> bool has_bad_pair(const Stamp* stamps, u32 count, u32 length, u32 thread, u32 threads) {
    const u32 PER = 16 / sizeof(Stamp);
    bool bad = false;
    const auto look = [&](u32 at, Stamp before, Stamp stamp) {
        if (at < count && !(before <= stamp)) bad |= at % length != 0;
    };
    for (u32 start = thread * PER; start + 1 < count; start += threads * PER) {
        // The vector may reach past the rows, where nothing is compared.
        union { uint4 raw; Stamp stamps[PER]; } own;
        own.raw = *(const uint4*)(stamps + start);
        #pragma unroll
        for (u32 k = 1; k < PER; k++) look(start + k, own.stamps[k - 1], own.stamps[k]);
        if (start + PER < count) look(start + PER, own.stamps[PER - 1], stamps[start + PER]);
    }
    return bad;
}
template <class Stamp> bool has_bad_pair(const Staged<Stamp>& stamps, u32 thread, u32 threads) {
    return has_bad_pair(stamps.data, u32(stamps.length), u32(stamps.length), thread, threads);
}

// Whether the row can be used. All threads of the block take part and get the same answer.
template <class Args, class Row, class Stamp>
bool row_is_good(const Args& args, const Row& stamps, const Stamps<Stamp>& targets, u64 row) {
    typedef typename Row::Index Index;
    // NaN compares as out of order, so sorted stamps are finite when both ends are.
    bool bad = has_bad_pair(stamps, threadIdx.x, blockDim.x);
    if (stamps.length > 0) bad |= !is_finite(stamps.at(0)) || !is_finite(stamps.at(stamps.length - 1));
    if (__syncthreads_or(bad)) {
        report_stamps(args, stamps, row);
        return false;
    }
    if (stamps.length == 0) return true;
    const Stamp low = stamps.at(0), high = stamps.at(stamps.length - 1);
    if (is_coarse(low) || is_coarse(high)) {
        const Index at = is_coarse(low) ? Index(0) : stamps.length - 1;
        if (threadIdx.x == 0) found(args, COARSE, row, at, bits_of(stamps.at(at)));
        return false;
    }
    if (args.extrapolate != ERROR) return true;
    __shared__ u64 first_outside;
    if (threadIdx.x == 0) first_outside = ~0ull;
    __syncthreads();
    for (i64 i = threadIdx.x; i < targets.length; i += blockDim.x)
        if (targets.at(i) < low || targets.at(i) > high) {
            atomicMin(&first_outside, u64(i));
            break;
        }
    __syncthreads();
    if (first_outside == ~0ull) return true;
    if (threadIdx.x == 0)
        found(args, OUTSIDE, row, first_outside, bits_of(targets.at(i64(first_outside))), bits_of(low), bits_of(high));
    return false;
}

// Copies `count` items to shared memory; several are on their way at once.
template <class T, class Load> void gather(T* to, u32 first, u32 count, Load load) {
    const int BATCH = 4;
    for (u32 base = first + threadIdx.x; base < count; base += blockDim.x * BATCH) {
        T items[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * blockDim.x < count) items[k] = load(base + k * blockDim.x);
        #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * blockDim.x < count) to[base + k * blockDim.x] = items[k];
    }
}

// Copies the row's stamps to shared memory, 16 bytes at a time where they lie so.
template <class Stamp> void stage(const Stamps<Stamp>& stamps, Stamp* staged) {
    const int PER = 16 / sizeof(Stamp);
    const u32 length = u32(stamps.length);
    u32 done = 0;
    if (stamps.stride == 1 && (u64(stamps.data) & 15) == 0) {
        const uint4* from = (const uint4*)stamps.data;
        gather((uint4*)staged, 0, length / PER, [&](u32 i) { return __ldg(from + i); });
        done = length / PER * PER;
    }
    gather(staged, done, length, [&](u32 i) { return stamps.at(i); });
}

}  // namespace rc
