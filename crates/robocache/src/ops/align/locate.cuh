// Which samples a target needs: the rules of `resample`.
// Host twin: locate.rs, rule by rule; a test runs both on the same random rows.
#pragma once
#include "rc.cuh"

namespace rc {

enum Method : u32 { LINEAR, NEAREST, PREVIOUS, NEXT };
enum Extrapolate : u32 { CLAMP, LINE, NANS, ERROR };

// The stamps of one row, wherever they are.
template <class S> struct Stamps {
    typedef i64 Index;
    const S* data;
    i64 stride;
    i64 length;
    S at(i64 index) const { return data[index * stride]; }
};

// The stamps of one row, side by side in shared memory.
template <class S> struct Staged {
    typedef i32 Index;
    const S* data;
    i32 length;
    S at(i32 index) const { return data[index]; }
};

// The same of a clock, whose stamps are nearly evenly spaced.
template <class S> struct Even : Staged<S> {};

// later - earlier for later >= earlier, exact for integers.
inline u64 gap(i64 earlier, i64 later) { return u64(later) - u64(earlier); }
inline double gap(double earlier, double later) { return later - earlier; }
inline float gap(float earlier, float later) { return later - earlier; }

// The longest gap that is valid, in the stamps' own unit.
struct Limit {
    u64 nanoseconds;
    double seconds;
};
inline bool exceeds(i64 earlier, i64 later, Limit limit) { return gap(earlier, later) > limit.nanoseconds; }
inline bool exceeds(double earlier, double later, Limit limit) { return later - earlier > limit.seconds; }
inline bool exceeds(float earlier, float later, Limit limit) { return double(later - earlier) > limit.seconds; }

// (target - first) / (second - first), for first < second.
inline float ratio(float, i64 target, i64 first, i64 second) {
    const float size = float(target < first ? gap(target, first) : gap(first, target)) / float(gap(first, second));
    return target < first ? -size : size;
}
inline double ratio(double, i64 target, i64 first, i64 second) {
    const double size = double(target < first ? gap(target, first) : gap(first, target)) / double(gap(first, second));
    return target < first ? -size : size;
}
inline float ratio(float, double target, double first, double second) {
    const float gap = float(second - first);
    const bool normal = gap >= 1.17549435e-38f && is_finite(gap);
    return normal ? float(target - first) / gap : float((target - first) / (second - first));
}
inline double ratio(double, double target, double first, double second) { return (target - first) / (second - first); }
inline float ratio(float, float target, float first, float second) { return (target - first) / (second - first); }
inline double ratio(double, float target, float first, float second) {
    return double(target - first) / double(second - first);
}

// How many stamps in [low, high) from the front are at or before `target`, plus low.
template <class Row, class S>
typename Row::Index count_until(const Row& stamps, S target, typename Row::Index low, typename Row::Index high) {
    while (low < high) {
        const typename Row::Index middle = low + ((high - low) >> 1);
        if (target < stamps.at(middle)) high = middle; else low = middle + 1;
    }
    return low;
}

// How many stamps of the row are at or before `target`. Three probes at a time: the steps wait for
// each other, the probes of a step do not.
template <class Row, class S> typename Row::Index count_until(const Row& stamps, S target) {
    typedef typename Row::Index Index;
    Index count = 0, step = 1;
    while (4 * step <= stamps.length) step *= 4;
    for (; step > 0; step >>= 2) {
        const Index first = count + step, second = first + step, third = second + step;
        const bool a = first <= stamps.length && !(target < stamps.at(first - 1));
        const bool b = second <= stamps.length && !(target < stamps.at(second - 1));
        const bool c = third <= stamps.length && !(target < stamps.at(third - 1));
        count += (Index(a) + Index(b) + Index(c)) * step;
    }
    return count;
}

// The same in shared memory, where waiting is short: fewer instructions instead.
template <class S> i32 count_until(const Staged<S>& stamps, S target) {
    i32 count = 0;
    for (i32 step = stamps.length > 0 ? 1 << (31 - __clz(stamps.length)) : 0; step > 0; step >>= 1) {
        const i32 next = count + step;
        if (next <= stamps.length && !(target < stamps.at(next - 1))) count = next;
    }
    return count;
}

// How far `target` lies between two stamps, about.
inline float share(i64 target, i64 first, i64 second) {
    return __fdividef(float(gap(first, target)), float(gap(first, second)));
}
inline float share(double target, double first, double second) {
    return __fdividef(float(target - first), float(second - first));
}
inline float share(float target, float first, float second) { return __fdividef(target - first, second - first); }

// The same from where a target would be if stamps were evenly spaced, by steps that double until they are beyond it: a
// look or two, where that is about so.
template <class S> i32 count_until(const Even<S>& stamps, S target) {
    i32 low = 0, high = stamps.length - 1;
    if (high < 0) return 0;
    const S first = stamps.at(0), last = stamps.at(high);
    if (target < first) return 0;
    if (!(target < last)) return stamps.length;
    // From here on: stamps[low] <= target < stamps[high].
    const i32 guess = min(max(i32(share(target, first, last) * float(high)), 0), high - 1);
    const bool beyond = target < stamps.at(guess);
    if (beyond) high = guess; else low = guess;
    for (i32 step = 1; high - low > step; step *= 2) {
        const i32 probe = beyond ? high - step : low + step;
        const bool before = target < stamps.at(probe);
        if (before) high = probe; else low = probe;
        if (before != beyond) break;
    }
    while (high - low > 1) {
        const i32 middle = (low + high) >> 1;
        if (target < stamps.at(middle)) high = middle; else low = middle;
    }
    return low + 1;
}

// The last of the stamps that equal the one at `index`.
template <class Row> typename Row::Index last_equal(const Row& stamps, typename Row::Index index) {
    if (index + 1 < stamps.length && stamps.at(index + 1) == stamps.at(index))
        return max(count_until(stamps, stamps.at(index), index, stamps.length) - 1, index);
    return index;
}

// The last stamp before those that equal the last one, or -1.
template <class Row> typename Row::Index second_last(const Row& stamps) {
    const auto end = stamps.at(stamps.length - 1);
    typename Row::Index low = 0, high = stamps.length - 1;
    while (low < high) {
        const typename Row::Index middle = low + ((high - low) >> 1);
        if (stamps.at(middle) < end) low = middle + 1; else high = middle;
    }
    return low - 1;
}

// The samples of a target: both the same for one sample as it is, -1 for no value.
template <class Index> struct Place {
    Index first, second;
    bool valid;
};

template <class Row, class S>
Place<typename Row::Index> locate(const Row& stamps, S target, Method method, Extrapolate extrapolate, Limit limit) {
    typedef typename Row::Index Index;
    Place<Index> place = {-1, -1, false};
    if (stamps.length == 0 || is_nan(target)) return place;
    const Index upper = count_until(stamps, target);
    if (upper > 0 && stamps.at(upper - 1) == target) {
        place.first = place.second = upper - 1;
        place.valid = true;
    } else if (upper == 0 || upper == stamps.length) {
        const Index edge = upper == 0 ? last_equal(stamps, Index(0)) : stamps.length - 1;
        if (extrapolate == CLAMP || extrapolate == LINE) place.first = place.second = edge;
        if (extrapolate == LINE) {
            if (upper > 0) place.first = max(second_last(stamps), Index(-1));
            if (place.first < 0) place.first = edge;
            if (upper == 0 && edge + 1 < stamps.length) place.second = last_equal(stamps, edge + 1);
        }
    } else {
        const Index before = upper - 1, after = last_equal(stamps, upper);
        const S earlier = stamps.at(before), later = stamps.at(after);
        place.first = before;
        place.second = after;
        if (method == PREVIOUS || (method == NEAREST && gap(earlier, target) <= gap(target, later))) place.second = before;
        else if (method != LINEAR) place.first = after;
        place.valid = !exceeds(earlier, later, limit);
    }
    return place;
}

}  // namespace rc
