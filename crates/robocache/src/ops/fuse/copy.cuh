// Units that are copied, or blended along lines, as vectors of bytes.
// Host twin: cpu.rs, ../resample/cells.rs.
#pragma once
#include "vectors.cuh"
#include "part.cuh"

#if !RC_MIXED

// Where columns of several methods share the picks, these tell both samples: a line leaves out one of
// weight 0, a copy takes one of them.
#if RC_RICH
struct Lines {
    const Pick* picks;
    Pick operator[](u32 t) const {
        Pick pick = picks[t];
        pick.second &= ~LATER;
        if (pick.weight == Weight(0)) pick.second = pick.first;
        if (pick.weight == Weight(1)) pick.first = pick.second;
        if (pick.first == pick.second && pick.weight == pick.weight) pick.weight = Weight(-0.0);
        return pick;
    }
};
struct Copies {
    const Pick* picks;
    u32 method;
    Pick operator[](u32 t) const {
        Pick pick = picks[t];
        if (method == NEXT || (method == NEAREST && (pick.second & LATER))) pick.first = pick.second & ~LATER;
        return pick;
    }
};
inline Lines lines(const Part& part) { return {part.picks}; }
inline Copies copies(const Part& part) { return {part.picks, part.segment.method}; }
#else
inline const Pick* lines(const Part& part) { return part.picks; }
inline const Pick* copies(const Part& part) { return part.picks; }
#endif

template <int BYTES, class Index, class Values> void copy_or_blend(const Args& args, const Part& part, const Values& values) {
    // As many as registers hold, see BLOCKS; shared memory answers soon.
    const int WIDE = sizeof(Weight) == 8 || RC_RICH ? 4 : 3;
    const int UNROLL = Values::NEAR ? 2 : BYTES == 16 ? WIDE : sizeof(Out) == 4 ? 5 : 6;
    const Index out_stride = Index(args.out_strides[1]);
#if RC_FLOAT
    if (part.segment.method == LINEAR)
        return copy_column<Out, BYTES, true, UNROLL>(values, part.out, out_stride, args.missing, lines(part), part.t,
                                                     part.count, part.step);
#endif
    copy_column<Out, BYTES, false, UNROLL>(values, part.out, out_stride, args.missing, copies(part), part.t, part.count,
                                           part.step);
}
template <int BYTES, class Index> void copy_or_blend(const Args& args, const Part& part) {
    // Calls that keep the values have strides that fit 32 bits.
    if (sizeof(Index) == 4 && (args.flags & KEEP))
        return copy_or_blend<BYTES, Index>(args, part, Near(part.values, u32(part.stream.value_strides[1])));
    copy_or_blend<BYTES, Index>(args, part, Far<Index>(part.values, Index(part.stream.value_strides[1])));
}

// Zeros for a modality that was not recorded.
inline void write_zeros(const Args& args, const Part& part) {
    typedef Raw<sizeof(Out)>::Type Zero;
    const Zero zero = {};
    for (u32 t = part.t; t < part.count; t += part.step) *(Zero*)(part.out + i64(t) * args.out_strides[1]) = zero;
}

// Copies, or blends along lines, units of as many bytes as one access takes.
inline void write_plain(const Args& args, const Part& part) {
    const int SIZE = sizeof(Out);
    const u32 bytes = part.segment.together * SIZE;
    if (!part.segment.near) return copy_or_blend<SIZE, i64>(args, part);
    if (bytes == 16) return copy_or_blend<16, u32>(args, part);
    if (bytes == 8) return copy_or_blend<8, u32>(args, part);
    if (SIZE <= 4 && bytes == 4) return copy_or_blend<SIZE <= 4 ? 4 : 8, u32>(args, part);
    if (SIZE <= 2 && bytes == 2) return copy_or_blend<SIZE <= 2 ? 2 : 8, u32>(args, part);
    if (SIZE == 1) copy_or_blend<SIZE == 1 ? 1 : 8, u32>(args, part);
}

#if !RC_RICH
// A vector of a target; `from`: where it begins within a row of the segment, in bytes; `out`: that row.
inline void write_vector(const Args& args, bool blends, const Near& values, const Pick& pick, u8* out, u32 from) {
    typedef Words<16> Vector;
    const Near own(values.base + from, values.stride);
    Vector vector;
    own.load(pick.first, vector);
#if RC_FLOAT
    if (blends) {
        Vector other;
        own.load(pick.second, other);
        if (!blend<Out, false>(vector, other, pick.weight, vector)) blend_far<Out>(own, pick, vector);
    } else
#endif
    if (!(pick.weight == pick.weight)) vector = missing<Vector>(args.missing);
    *(Raw<16>::Type*)(out + from) = vector.raw;
}

// Segments of vectors for whole steps of a warp, of values in shared memory: a warp writes a target after the other.
inline bool is_wide(const Args& args, const SegmentArgs& segment) {
    return (args.flags & KEEP) && segment.together * sizeof(Out) == 16 && segment.units % 32 == 0 && segment.units > 0 &&
           segment.method != ZEROS && args.out_strides[2] == sizeof(Out);
}

inline void write_wide(const Shared& shared, const SegmentArgs& segment, u8* out, u32 count) {
    const Args& args = shared.args;
    const StreamArgs& stream = args.stream[segment.stream];
    const Near values(shared.base() + stream.kept + segment.start * u32(sizeof(Out)), u32(stream.value_strides[1]));
    const Pick* picks = shared.picks + segment.stream * args.tile;
    const bool blends = segment.method == LINEAR;
    const u32 lane = threadIdx.x & 31, steps = segment.units / 32;
    out += segment.column * sizeof(Out);
    for (u32 t = threadIdx.x / 32; t < count; t += blockDim.x / 32) {
        const Pick pick = picks[t];
        u8* row = step_to(out, t, u32(args.out_strides[1]));
        // All but one step write whole lines of 128 bytes; that one writes what is left on both ends.
        const u32 rest = -(u32(u64(row)) / 16) & 7;
        u32 from = (rest + lane) * 16;
        for (u32 step = 1; step < steps; step++, from += 32 * 16) write_vector(args, blends, values, pick, row, from);
        write_vector(args, blends, values, pick, row, (lane < rest ? lane : lane + 32 * (steps - 1)) * 16);
    }
}
#endif

#endif
