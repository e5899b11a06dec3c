// The features of one cell made into one number per column. Host twin: reduce.rs, which tells the
// order of sums.
#pragma once
#include "rc.cuh"
#include "scalar.cuh"

namespace rc {

// Mirrors `Reduce` in mod.rs.
enum Reduce : u32 { OCCUPANCY, COUNT, SUM, MEAN, MAX, MIN };

const u32 LONG = 64, LANES = 32, LANE_COLUMNS = 8;

// Features of points that are numbered through all rows. Strides are in elements.
template <class T> struct Features {
    const T* data;
    i64 strides[3];
    u32 per_row, flat;  // flat: the rows follow each other as points do

    i64 place_of(u32 index) const {
        return flat ? i64(index) * strides[1]
                    : i64(index / per_row) * strides[0] + i64(index % per_row) * strides[1];
    }
    double at(u32 index, i64 column) const { return double(widen(data[place_of(index) + column * strides[2]])); }
};

// A number as a sum takes it, and as an integer that is ordered as floats are: -0 below +0, NaN
// above all for the largest and below all for the smallest.
inline i64 order_of(double x, bool least) {
    if (x != x) x = __longlong_as_double(least ? i64(0xfff8000000000000ull) : i64(0x7ff8000000000000ull));
    const i64 bits = __double_as_longlong(x);
    const i64 order = bits ^ ((bits >> 63) & 0x7fffffffffffffffll);
    return least ? ~order : order;
}
inline double number_of(i64 order, bool least) {
    if (least) order = ~order;
    return __longlong_as_double(order ^ ((order >> 63) & 0x7fffffffffffffffll));
}

// What was seen so far: a sum, or the greatest order; as bits, so that both go through shared memory.
struct Fold {
    u32 reduce;
    bool sums() const { return reduce <= MEAN; }
    u64 first(double x) const { return u64(sums() ? __double_as_longlong(x) : order_of(x, reduce == MIN)); }
    u64 join(u64 a, u64 b) const {
        if (sums()) return u64(__double_as_longlong(__longlong_as_double(i64(a)) + __longlong_as_double(i64(b))));
        return u64(max(i64(a), i64(b)));
    }
    double finish(u64 total, u32 count) const {
        if (!sums()) return number_of(i64(total), reduce == MIN);
        const double sum = __longlong_as_double(i64(total));
        return reduce == MEAN ? sum / double(count) : sum;
    }
};

// The points order[start..end] one after the other.
template <class T>
double fold_short(const Fold& fold, const Features<T>& features, const u32* order, u32 start, u32 end, i64 column) {
    u64 total = fold.first(features.at(order[start], column));
    for (u32 p = start + 1; p < end; p++) total = fold.join(total, fold.first(features.at(order[p], column)));
    return fold.finish(total, end - start);
}

// The same of many points by all 256 threads, for 8 columns from `column` on: 32 lanes of every 32nd
// point, then pairwise. The threads of lane 0 get the result. `totals`: 256 words of shared memory.
template <class T>
double fold_long(const Fold& fold, const Features<T>& features, const u32* order, u32 start, u32 end, i64 column,
                 i64 width, u64* totals) {
    const u32 lane = threadIdx.x / LANE_COLUMNS;
    const i64 own = min(column + threadIdx.x % LANE_COLUMNS, width - 1);
    u64 total = fold.first(features.at(order[start + lane], own));
    for (u32 p = start + lane + LANES; p < end; p += LANES)
        total = fold.join(total, fold.first(features.at(order[p], own)));
    __syncthreads();
    totals[threadIdx.x] = total;
    for (u32 half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            totals[threadIdx.x] = fold.join(totals[threadIdx.x], totals[threadIdx.x + half * LANE_COLUMNS]);
    }
    __syncthreads();
    return fold.finish(totals[threadIdx.x % LANE_COLUMNS], end - start);
}

}  // namespace rc
