// Two quaternions of 2-byte numbers, which are one access: those of the next target are on their way while these are
// made. Ones of unusual length are left to a second walk, so that the first has nothing to carry for them.
// Host twin: mixed.rs (apply). Strides fit 32 bits.
#pragma once
#include "blend.cuh"
#include "numbers.cuh"

#if RC_RICH && !RC_MIXED && RC_FLOAT

// What the pair of a target is made of.
struct Pair {
    Words<16> first, second;
    float weight;
};

// Volatile, or the compiler moves the load to its use and waits there. From wherever the values are.
inline void ask(const u8* place, Words<16>& to) {
    asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3]) : "l"(place));
}
inline void ask(const Part& part, u32 t, Pair& pair) {
    const Pick pick = part.picks[t];
    pair.weight = pick.weight;
    ask(place_of<8>(part.values, pick.first, part.stream.value_strides[1]), pair.first);
    ask(place_of<8>(part.values, pick.second & ~LATER, part.stream.value_strides[1]), pair.second);
}

// Writes the pair of a target, if it is a plain one (blend.cuh) or, with OTHERS, if it is none. Tells whether it is plain.
template <class Cell, bool OTHERS> bool make_pair(const Args& args, const Part& part, u32 t, const Pair& pair) {
    float first[8], second[8], squares[4], result[8];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        Group<Cell>::widen(pair.first.words + i, first + 2 * i);
        Group<Cell>::widen(pair.second.words + i, second + 2 * i);
    }
    const bool plain = are_plain(first, second, pair.weight, squares);
    if (!OTHERS) between_plain(first, second, squares, pair.weight, result);
    else if (!plain) between<float, 8>(first, second, pair.weight, result);
    // No value: what is made with a weight that is no number is none.
    if (plain != OTHERS) store_numbers<float, 8, 8>(args, part, t, result, 0.0f);
    return plain;
}

template <class Cell, bool OTHERS> void make_pairs(const Args& args, const Part& part) {
    u32 t = part.t;
    if (t >= part.count) return;
    Pair one, other;
    bool all = true;
    ask(part, t, one);
    while (true) {
        ask(part, min(t + part.step, part.count - 1), other);
        all &= make_pair<Cell, OTHERS>(args, part, t, one);
        if ((t += part.step) >= part.count) break;
        ask(part, min(t + part.step, part.count - 1), one);
        all &= make_pair<Cell, OTHERS>(args, part, t, other);
        if ((t += part.step) >= part.count) break;
    }
    if constexpr (!OTHERS) {
        if (!all) make_pairs<Cell, true>(args, part);
    }
}

#endif
