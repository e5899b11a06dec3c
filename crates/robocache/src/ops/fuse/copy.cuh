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

template <int BYTES, class Index> void copy_or_blend(const Args& args, const Part& part) {
    // As many as registers hold, see BLOCKS.
    const int WIDE = sizeof(Weight) == 8 || RC_RICH ? 4 : 3;
    const int UNROLL = BYTES == 16 ? WIDE : sizeof(Out) == 4 ? 5 : 6;
    const Index value_stride = Index(part.stream.value_strides[1]), out_stride = Index(args.out_strides[1]);
#if RC_FLOAT
    if (part.segment.method == LINEAR)
        return copy_column<Out, BYTES, true, UNROLL>(part.values, value_stride, part.out, out_stride, args.missing,
                                                     lines(part), part.t, part.count, part.step);
#endif
    copy_column<Out, BYTES, false, UNROLL>(part.values, value_stride, part.out, out_stride, args.missing, copies(part),
                                           part.t, part.count, part.step);
}

// Zeros for a modality that was not recorded.
inline void write_zeros(const Args& args, const Part& part) {
    typedef Raw<sizeof(Out)>::Type Zero;
    const Zero zero = {};
    for (u32 t = part.t; t < part.count; t += part.step) __stcs((Zero*)(part.out + i64(t) * args.out_strides[1]), zero);
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

#endif
