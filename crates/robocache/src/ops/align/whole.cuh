// One thread builds a whole narrow row in registers (RC_WHOLE). Rows are read in vectors wherever ranges of columns begin,
// and what a target needs is looked up once.
// Host twin: mixed.rs (apply). Preconditions: one stream without cubics, whose rows are dense and allow accesses of four
//   numbers and hold at most 12 (FOURS), or of two and at most 14; results are collected.
#pragma once
#include "lines.cuh"
#include "units.cuh"

#if RC_WHOLE

// Blocks that a multiprocessor should hold without spilled registers.
template <class T> constexpr int blocks_of_rows(T) { return sizeof(Stamp) == 4 ? 7 : 6; }
constexpr int blocks_of_rows(float) { return 6; }
constexpr int blocks_of_rows(f16) { return 5; }

// The numbers of a row in registers, which have no index: PER of them in an access, MOST in all.
template <int PER, int MOST> struct Whole {
    static const int UNITS = MOST / PER;
    typedef Words<PER * int(sizeof(Out))> Vector;
    Vector vectors[UNITS];

    void ask(const u8* place, u32 units) {
        #pragma unroll
        for (int v = 0; v < UNITS; v++)
            if (v < units) load_vector(place + v * int(sizeof(Vector)), vectors[v]);
    }
    static void narrow(const Weight (&numbers)[PER], Vector& to) {
        typedef Group<Out> Group;
        #pragma unroll
        for (int g = 0; g < Vector::COUNT / Group::WORDS; g++)
            Group::narrow(numbers + g * Group::NUMBERS, to.words + g * Group::WORDS);
    }
    void widen(Weight (&numbers)[MOST]) const {
        typedef Group<Out> Group;
        #pragma unroll
        for (int v = 0; v < UNITS; v++) {
            #pragma unroll
            for (int g = 0; g < Vector::COUNT / Group::WORDS; g++)
                Group::widen(vectors[v].words + g * Group::WORDS, numbers + v * PER + g * Group::NUMBERS);
        }
    }
};

template <int STEP, int LEFT> void halve(const Weight (&row)[LEFT], u32 start, Weight (&to)[LEFT - STEP]) {
    #pragma unroll
    for (int i = 0; i < LEFT - STEP; i++) to[i] = start & STEP ? row[i + STEP] : row[i];
}
// N numbers of a row from `start` on, by halves.
template <int N, int MOST> void cut_out(const Weight (&row)[MOST], u32 start, Weight (&to)[N]) {
    Weight all[N + 15], eight[N + 7], four[N + 3], two[N + 1];
    #pragma unroll
    for (int i = 0; i < N + 15; i++) all[i] = i < MOST ? row[i < MOST ? i : 0] : Weight(0);
    halve<8, N + 15>(all, start, eight);
    halve<4, N + 7>(eight, start, four);
    halve<2, N + 3>(four, start, two);
    halve<1, N + 1>(two, start, to);
}

// One unit of a method that is more than a line.
template <u32 METHOD, int N, int MOST>
void make_unit(const Weight (&first)[MOST], const Weight (&second)[MOST], u32 start, Weight weight, u8* to) {
    Weight a[N], b[N], result[N];
    cut_out(first, start, a);
    cut_out(second, start, b);
    make<METHOD>(a, b, weight, METHOD, false, result);
    #pragma unroll
    for (int i = 0; i < N; i++) put(((Out*)to)[i], METHOD == SLERP || weight == weight ? result[i] : weight);
}

// Which columns lines make, and which take the later sample: always, or where that is nearer.
struct Columns {
    u32 lines = 0, later = 0, nearest = 0;
    Columns(const Args& args) {
        for (u32 g = 0; g < args.segments; g++) {
            const SegmentArgs& segment = args.segment[g];
            const u32 own = ((1u << segment.units * segment.per_unit) - 1) << segment.start;
            if (segment.method == LINEAR) lines |= own;
            if (segment.method == NEXT) later |= own;
            if (segment.method == NEAREST) nearest |= own;
        }
    }
};

// The bits of a word whose numbers, the first of which is that of column `c`, have their bit in `columns`.
inline u32 mask_of(u32 columns, int c) {
    const u32 first = columns >> c & 1 ? ~0u : 0;
    if (sizeof(Out) == 4) return first;
    return first & 0xffffu | (columns >> (c + 1) & 1 ? 0xffff0000u : 0);
}

// Writes the results of the block's targets to `to`, one behind the other.
template <int PER, int MOST> void write_whole(const Block& block, u8* to) {
    typedef Whole<PER, MOST> Row;
    const Args& args = block.args;
    const StreamArgs& stream = args.stream[0];
    const u8* values = stream.values + block.row * stream.value_strides[0];
    const u32 stride = u32(stream.value_strides[1]), bytes = u32(args.out_strides[1]);
    const u32 units = bytes / u32(sizeof(typename Row::Vector));
    const Columns columns(args);
    const typename Row::Vector none = missing<typename Row::Vector>(args.missing);
    for (u32 t = threadIdx.x; t < block.count(); t += blockDim.x) {
        const Pick pick = block.picks(0)[t];
        Row near, far;
        near.ask(step_to(values, pick.first, stride), units);
        far.ask(step_to(values, pick.second & ~LATER, stride), units);
        Weight first[MOST], second[MOST];
        near.widen(first);
        far.widen(second);
        const Weight weight = pick.weight;
        const u32 later = columns.later | (pick.second & LATER ? columns.nearest : 0);
        u8* own = to + t * bytes;
        #pragma unroll
        for (int v = 0; v < Row::UNITS; v++) {
            if (v >= units) break;
            Weight numbers[PER], finite = Weight(0);
            #pragma unroll
            for (int i = 0; i < PER; i++) {
                const Weight a = first[v * PER + i], difference = second[v * PER + i] - a;
                finite = fma(difference, Weight(0), finite);
                numbers[i] = fma(weight, difference, a);
            }
            // A sample of weight 0 does not matter, not even as NaN.
            if (finite != Weight(0) || weight == Weight(0) || weight == Weight(1)) {
                #pragma unroll
                for (int i = 0; i < PER; i++) numbers[i] = line(first[v * PER + i], second[v * PER + i], weight);
            }
            typename Row::Vector result;
            Row::narrow(numbers, result);
            #pragma unroll
            for (int w = 0; w < Row::Vector::COUNT; w++) {
                const int c = v * PER + w * Group<Out>::NUMBERS;
                // As they are: copies keep their bits.
                const u32 made = mask_of(columns.lines, c), taken = mask_of(later, c);
                const u32 copied = near.vectors[v].words[w] & ~taken | far.vectors[v].words[w] & taken;
                result.words[w] = result.words[w] & made | (weight == weight ? copied : none.words[w]) & ~made;
            }
            *(typename Raw<int(sizeof(result))>::Type*)(own + v * int(sizeof(result))) = result.raw;
        }
        for (u32 g = 0; g < args.segments; g++) {
            const SegmentArgs& segment = args.segment[g];
            if (segment.method < CUBIC) continue;
            const u32 end = segment.start + segment.units * segment.per_unit;
            const u32 step = segment.method == SLERP ? 4 : segment.method == ROT6D ? 6 : 1;
            for (u32 start = segment.start; start < end; start += step) {
                u8* place = own + start * u32(sizeof(Out));
                if (segment.method == SLERP) make_unit<SLERP, 4>(first, second, start, weight, place);
                else if (segment.method == ROT6D) make_unit<ROT6D, 6>(first, second, start, weight, place);
                else make_unit<ANGLE, 1>(first, second, start, weight, place);
            }
        }
    }
}

#endif
