// Lines of streams whose values are in shared memory as a whole, into rows that follow on each other: units are
// written in the order of memory, across streams, so that a warp writes whole lines of 128 bytes.
// Host twin: cpu.rs, ../resample/cells.rs.
#pragma once
#include "vectors.cuh"
#include "part.cuh"

#if RC_KEPT

// Whether all of many numbers are finite, asked once. What is finite, times 0, leaves the next number as it is
// where it is added; what is not makes it NaN, and that stays.
template <class Cell> struct Finite;
template <> struct Finite<bf16> {
    u32 last = 0;
    void take(const u32* words) { asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(last) : "r"(0), "r"(words[0])); }
    bool all() {
        const u32 zeros = 0;
        take(&zeros);
        return (last & 0x7fff7fffu) == 0;
    }
};
template <> struct Finite<f16> {
    u32 last = 0;
    void take(const u32* words) { asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(last) : "r"(0), "r"(words[0])); }
    bool all() {
        const u32 zeros = 0;
        take(&zeros);
        return (last & 0x7fff7fffu) == 0;
    }
};
template <> struct Finite<float> {
    float last = 0;
    void take(const u32* words) { last = fmaf(last, 0.0f, __uint_as_float(words[0])); }
    bool all() const { return is_finite(last); }
};
template <> struct Finite<double> {
    double last = 0;
    void take(const u32* words) { last = fma(last, 0.0, __hiloint2double(words[1], words[0])); }
    bool all() const { return is_finite(last); }
};

// Keeps a place in shared memory in one register, as the other `settle` does for addresses.
inline void settle(u32& place) { asm volatile("" : "+r"(place)); }

// Targets come to where their picks will be, for each stream: no memory of their own, and no barrier between
// the warps that bring the stamps of different streams.
inline void stage_targets(const Shared& shared, const Team& team, i64 row, u32 count) {
    const Args& args = shared.args;
    const Stamp* targets = args.targets + row * args.target_strides[0];
    for (u32 s = team.stream; s < args.streams; s += team.streams)
        for (u32 t = team.thread; t < count; t += team.threads)
            copy_near<sizeof(Stamp)>(shared.picks + s * count + t, targets + i64(t) * args.target_strides[1]);
}

inline void pick_samples(const Shared& shared, u32 count) {
    const Args& args = shared.args;
    for (u32 p = threadIdx.x; p < args.streams * count; p += blockDim.x) {
        const u32 s = quotient(p, count);
        const StreamArgs& stream = args.stream[s];
        const Staged<Stamp> stamps = {shared.stamps() + stream.staged, i32(stream.samples)};
        const Stamp target = *(const Stamp*)(shared.picks + p);
        Pick pick = {0, 0, Weight(__int_as_float(0x7fc00000))};
        if (shared.usable(s)) {
            // Only what is valid depends on a limit, and nobody asks for that here.
            const Place<i32> place = locate(stamps, target, LINEAR, Extrapolate(args.extrapolate), Limit{0, 0});
            if (place.first >= 0) {
                pick = {u32(place.first), u32(place.second), Weight(-0.0)};
                if (place.first != place.second) weigh(stream, stamps, target, pick, shared, p);
            }
        }
        shared.picks[p] = pick;
    }
}

// Where the values of a unit lie in sample 0, how far it is to the next sample, and where the stream's picks begin.
struct Column {
    u32 place, stride, picks;
};

// Notes these for every unit of a target: two words, the second of two halves. The last warps come first, since
// the first ones bring stamps.
inline void place_columns(const Shared& shared, i64 row) {
    const Args& args = shared.args;
    uint2* columns = (uint2*)(shared.base() + args.columns_at);
    for (u32 unit = blockDim.x - 1 - threadIdx.x; unit < args.units; unit += blockDim.x) {
        u32 g = 0;
        while (g + 1 < args.segments && unit >= args.segment[g + 1].first_unit) g++;
        const SegmentArgs& segment = args.segment[g];
        const StreamArgs& stream = args.stream[segment.stream];
        const u32 column = segment.start + (unit - segment.first_unit) * segment.per_unit;
        columns[unit] = {near_place(shared.kept(stream, row)) + column * u32(sizeof(Out)),
                         u32(stream.value_strides[1]) | segment.stream * args.tile << 16};
    }
}
inline Column column_at(u32 place) {
    Words<8> both;
    load_near(place, both);
    return {both.words[0], both.words[1] & 0xffffu, both.words[1] >> 16};
}
inline Pick pick_at(u32 place) {
    union { Words<16> words; Pick pick; } both;
    load_near(place, both.words);
    return both.pick;
}

// One unit whose samples may not be finite.
template <int BYTES> void write_careful(const Near& values, const Pick& pick, u8* out) {
    Words<BYTES> first, second, result;
    values.load(pick.first, first);
    values.load(pick.second, second);
    blend<Out, false>(first, second, pick.weight, result);
    blend_far<Out>(values, pick, result);
    *(typename Raw<BYTES>::Type*)out = result.raw;
}

// One unit of COUNT targets; their picks are `step` bytes apart, and they themselves `out_step`.
template <int BYTES, int COUNT>
void write_targets(const Near& values, u32 picks, u32 step, u8* out, u32 at, u32 out_step) {
    typedef Words<BYTES> Unit;
    Unit first[COUNT], second[COUNT], result[COUNT];
    Weight weights[COUNT];
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const Pick pick = pick_at(picks + i * step);
        weights[i] = pick.weight;
        values.load(pick.first, first[i]);
        values.load(pick.second, second[i]);
    }
    // Where a difference is not finite, the result is not either.
    Finite<Out> finite;
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
        blend<Out, false>(first[i], second[i], weights[i], result[i]);
        #pragma unroll
        for (int w = 0; w < Unit::COUNT; w += Group<Out>::WORDS) finite.take(result[i].words + w);
    }
    if (!finite.all()) {
        // One after the other: it is rare, and little code keeps the rest close together.
        #pragma unroll 1
        for (int i = 0; i < COUNT; i++)
            write_careful<BYTES>(values, pick_at(picks + i * step), step_to(out, at + i * out_step, 1u));
        return;
    }
    #pragma unroll
    for (int i = 0; i < COUNT; i++) *(typename Raw<BYTES>::Type*)step_to(out, at + i * out_step, 1u) = result[i].raw;
}

// Writes all units of all targets. After `cycle` targets a unit comes to the same place of a line again. Threads
// take the units of `every` targets, a multiple of that, in the order of memory, from the beginning of a line
// on, and write each of them for all targets that are so far apart: MANY, or a few more.
template <int BYTES> void write_lines(const Shared& shared, u8* out, u32 count) {
    const Args& args = shared.args;
    const u32 PER_LINE = 128 / BYTES, units = args.units;
    // As many at once as registers hold.
    const int MANY = BYTES == 16 || sizeof(Weight) == 8 ? 2 : 3;
    const u32 cycle = max(PER_LINE >> (__ffs(units) - 1), 1u);
    const u32 every = max((count + MANY - 1) / MANY & -cycle, cycle);
    const u32 period = every * units, step = every * u32(sizeof(Pick)), out_step = period * BYTES;
    const u32 ahead = u32(u64(out)) / BYTES % PER_LINE;  // units of the first line that are not ours
    const u32 slots = min(period, ahead + count * units);
    u32 columns = near_place(shared.base() + args.columns_at), all_picks = near_place(shared.picks);
    settle(columns);
    settle(all_picks);
    settle(out);
    for (u32 slot = threadIdx.x; slot < slots; slot += blockDim.x) {
        const u32 unit = slot < ahead ? slot + period - ahead : slot - ahead;
        u32 t = __umulhi(unit, args.per_unit);
        const Column column = column_at(columns + (unit - t * units) * 8);
        const Near values(column.place, column.stride);
        u32 at = unit * BYTES, picks = all_picks + (column.picks + t) * u32(sizeof(Pick));
        for (; t + (MANY - 1) * every < count; t += MANY * every, at += MANY * out_step, picks += MANY * step)
            write_targets<BYTES, MANY>(values, picks, step, out, at, out_step);
        for (; t < count; t += every, at += out_step, picks += step)
            write_targets<BYTES, 1>(values, picks, step, out, at, out_step);
    }
}
inline void write_lines(const Shared& shared, u8* out, u32 count) {
    const int SIZE = sizeof(Out);
    const u32 bytes = shared.args.segment[0].together * SIZE;
    if (bytes == 16) return write_lines<16>(shared, out, count);
    if (bytes == 8) return write_lines<8>(shared, out, count);
    if (SIZE <= 4 && bytes == 4) return write_lines<SIZE <= 4 ? 4 : 8>(shared, out, count);
    if (SIZE == 2) write_lines<SIZE == 2 ? 2 : 8>(shared, out, count);
}

#endif
