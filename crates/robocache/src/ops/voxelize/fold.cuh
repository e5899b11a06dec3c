// The features of one cell made into one number per column. Host twin: reduce.rs, which tells the
// order of sums.
#pragma once
#include "rc.cuh"
#include "scalar.cuh"

namespace rc {

// Mirrors `Reduce` in mod.rs.
enum Reduce : u32 { OCCUPANCY, COUNT, SUM, MEAN, MAX, MIN };

const u32 LONG = 64, LANES = 32;

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

// x / count. A power of two divides by a multiplication, with the same bits.
inline double divide_by_count(double x, u32 count) {
    if ((count & (count - 1)) == 0) return x * __longlong_as_double(i64(1023 + __clz(count) - 31) << 52);
    return x / double(count);
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
        return reduce == MEAN ? divide_by_count(sum, count) : sum;
    }
};

}  // namespace rc
