// Which samples a target needs: the rules of `resample`.
// Host twin: locate.rs, rule by rule; a test runs both on the same random rows.
#pragma once
#include "rc.cuh"

namespace rc {

enum Method : u32 { LINEAR, NEAREST, PREVIOUS, NEXT };
enum Extrapolate : u32 { CLAMP, LINE, NANS, ERROR };
enum Mode : u32 { MISSING, TAKE, BLEND };

// The stamps of one row, in global or in shared memory.
template <class S> struct Stamps {
    const S* data;
    i64 stride;
    i64 length;
    S at(i64 index) const { return data[index * stride]; }
};

// later - earlier for later >= earlier, exact for integers.
inline u64 gap(i64 earlier, i64 later) { return u64(later) - u64(earlier); }
inline double gap(double earlier, double later) { return later - earlier; }
inline float gap(float earlier, float later) { return later - earlier; }

inline bool exceeds(i64 earlier, i64 later, double seconds) {
    // As Rust's saturating cast of the rounded number.
    const double nanoseconds = round(seconds * 1e9);
    const u64 limit = nanoseconds >= 18446744073709551616.0 ? ~0ull : u64(nanoseconds);
    return gap(earlier, later) > limit;
}
inline bool exceeds(double earlier, double later, double seconds) { return later - earlier > seconds; }
inline bool exceeds(float earlier, float later, double seconds) { return double(later - earlier) > seconds; }

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
    const float weight = float(target - first) / float(second - first);
    return is_finite(weight) ? weight : float((target - first) / (second - first));
}
inline double ratio(double, double target, double first, double second) { return (target - first) / (second - first); }
inline float ratio(float, float target, float first, float second) { return (target - first) / (second - first); }
inline double ratio(double, float target, float first, float second) {
    return double(target - first) / double(second - first);
}

// How many stamps in [low, high) from the front are at or before `target`, plus low.
template <class S> i64 count_until(const Stamps<S>& stamps, S target, i64 low, i64 high) {
    while (low < high) {
        const i64 middle = low + ((high - low) >> 1);
        if (target < stamps.at(middle)) high = middle; else low = middle + 1;
    }
    return low;
}

// The last of the stamps that equal the one at `index`.
template <class S> i64 last_equal(const Stamps<S>& stamps, i64 index) {
    if (index + 1 < stamps.length && stamps.at(index + 1) == stamps.at(index))
        return max(count_until(stamps, stamps.at(index), index, stamps.length) - 1, index);
    return index;
}

// The last stamp before those that equal the last one, or -1.
template <class S> i64 second_last(const Stamps<S>& stamps) {
    const S end = stamps.at(stamps.length - 1);
    i64 low = 0, high = stamps.length - 1;
    while (low < high) {
        const i64 middle = low + ((high - low) >> 1);
        if (stamps.at(middle) < end) low = middle + 1; else high = middle;
    }
    return low - 1;
}

struct Place {
    i64 first, second;
    Mode mode;
    bool valid;
};

template <class S>
Place locate(const Stamps<S>& stamps, S target, Method method, Extrapolate extrapolate, double max_gap) {
    Place place = {0, 0, MISSING, false};
    if (stamps.length == 0 || is_nan(target)) return place;
    const i64 upper = count_until(stamps, target, i64(0), stamps.length);
    if (upper > 0 && stamps.at(upper - 1) == target) {
        place.first = upper - 1;
        place.mode = TAKE;
        place.valid = true;
        return place;
    }
    if (upper == 0 || upper == stamps.length) {
        const i64 edge = upper == 0 ? last_equal(stamps, i64(0)) : stamps.length - 1;
        place.first = edge;
        if (extrapolate == CLAMP) place.mode = TAKE;
        if (extrapolate == LINE) {
            place.mode = TAKE;
            if (upper > 0) {
                const i64 before = second_last(stamps);
                if (before >= 0) { place.first = before; place.second = edge; place.mode = BLEND; }
            } else if (edge + 1 < stamps.length) {
                place.second = last_equal(stamps, edge + 1);
                place.mode = BLEND;
            }
        }
        return place;
    }
    const i64 before = upper - 1, after = last_equal(stamps, upper);
    const S earlier = stamps.at(before), later = stamps.at(after);
    place.first = before;
    place.second = after;
    place.mode = TAKE;
    if (method == LINEAR) place.mode = BLEND;
    else if (method == NEXT || (method == NEAREST && !(gap(earlier, target) <= gap(target, later)))) place.first = after;
    place.valid = !exceeds(earlier, later, max_gap);
    return place;
}

}  // namespace rc
