// Several columns of points at once, and the points of one cell made into one row of them.
// Host twin: reduce.rs, which tells the order of sums.
#pragma once
#include "fold.cuh"

namespace rc {

// V numbers that lie side by side.
template <class T, int V> union Pack {
    typename Raw<V * int(sizeof(T))>::Type raw;
    T numbers[V];
};

// More than one number at once needs dense, aligned rows; the host looks at that.
template <int V, class T> Pack<T, V> load_pack(const Features<T>& features, u32 point, u32 column) {
    const T* place = features.data + features.place_of(point) + (V == 1 ? i64(column) * features.strides[2] : i64(column));
    Pack<T, V> pack;
    pack.raw = __ldg((const typename Raw<V * int(sizeof(T))>::Type*)place);
    return pack;
}

template <class T, int V> void first_pack(const Fold& fold, const Pack<T, V>& pack, u64* totals) {
    #pragma unroll
    for (int c = 0; c < V; c++) totals[c] = fold.first(double(widen(pack.numbers[c])));
}

template <class T, int V> void join_pack(const Fold& fold, const Pack<T, V>& pack, u64* totals) {
    #pragma unroll
    for (int c = 0; c < V; c++) totals[c] = fold.join(totals[c], fold.first(double(widen(pack.numbers[c]))));
}

// Points in the order of their cells: as a sort of our own left them, or as others may have written them.
struct Sorted {
    const u32* order;
    u32 operator[](u32 place) const { return __ldg(order + place); }
};
struct Clamped {
    const u32* order;
    u32 last;
    u32 operator[](u32 place) const { return min(__ldg(order + place), last); }
};

// The totals of the points order[start..end], one after the other; four are asked for at once.
template <int V, class T, class Order>
void fold_run(const Fold& fold, const Features<T>& features, const Order& order, u32 start, u32 end, u32 column,
              u64* totals) {
    const int AT_ONCE = 4;
    for (u32 p = start; p < end; p += AT_ONCE) {
        Pack<T, V> packs[AT_ONCE];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            packs[u] = load_pack<V>(features, order[min(p + u, end - 1)], column);
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (u == 0 && p == start) first_pack(fold, packs[u], totals);
            else if (p + u < end) join_pack(fold, packs[u], totals);
        }
    }
}

// The totals of LONG points or more by a warp: 32 lanes of every 32nd point, then pairwise. Lane 0
// gets the result. The next points are asked for while the features of these are under way.
template <int V, class T, class Order>
void fold_lanes(const Fold& fold, const Features<T>& features, const Order& order, u32 start, u32 end, u32 column,
                u64* totals) {
    const int AT_ONCE = 4;
    const u32 lane = threadIdx.x & 31;
    first_pack(fold, load_pack<V>(features, order[start + lane], column), totals);
    u32 points[AT_ONCE];
    u32 p = start + lane + LANES;
    #pragma unroll
    for (int u = 0; u < AT_ONCE; u++) points[u] = order[min(p + u * LANES, end - 1)];
    while (p < end) {
        Pack<T, V> packs[AT_ONCE];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) packs[u] = load_pack<V>(features, points[u], column);
        const u32 next = p + AT_ONCE * LANES;
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) points[u] = order[min(next + u * LANES, end - 1)];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (p + u * LANES < end) join_pack(fold, packs[u], totals);
        p = next;
    }
    __syncwarp();
    #pragma unroll
    for (u32 half = LANES / 2; half > 0; half /= 2)
        #pragma unroll
        for (int c = 0; c < V; c++) totals[c] = fold.join(totals[c], __shfl_down_sync(~0u, totals[c], half));
}

// Writes what the totals come to, from `index` on.
template <int V> void store_totals(const Fold& fold, Float type, void* out, i64 index, const u64* totals, u32 count) {
    double numbers[V];
    #pragma unroll
    for (int c = 0; c < V; c++) numbers[c] = fold.finish(totals[c], count);
    #pragma unroll
    for (int c = 0; c < V; c++) store_as(type, out, index + c, numbers[c]);
}

}  // namespace rc
