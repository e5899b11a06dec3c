// What a target was made of, and how it is found.
// Host twin: cpu.rs (find). Part of resample_backward.cu, whose types it uses.
#pragma once

// What a target was made of: two samples with their weights, or one, then first == second and its
// weight is `near`. A sample of weight 0 does not matter. No value: a place before or after all
// samples. Firsts and seconds are in order where the targets are.
struct __align__(16) Pick {
    Index first, second;
#if RC_FORM == RC_CUBIC
    Index samples[4];  // all that it was made of, -1 for none; first and second lie around them
    Sum before, behind;
    Sum near;
#else
    // Of targets in any order their number; `near` is then 1 - `far`, as ever.
    union {
        Sum near;
        u32 target;
    };
#endif
    Sum far;
};

static_assert(sizeof(Pick) == RC_PICK_SIZE, "Pick differs from what its host twin makes room for");

// The last sample whose stamp is before that of `at`, or -1.
template <class Row> typename Row::Index step_back(const Row& stamps, typename Row::Index at) {
    const Stamp stamp = stamps.at(at);
    typename Row::Index low = 0, high = at;
    if (at > 0 && stamps.at(at - 1) < stamp) low = at;
    while (low < high) {
        const typename Row::Index middle = low + ((high - low) >> 1);
        if (stamps.at(middle) < stamp) low = middle + 1; else high = middle;
    }
    return low - 1;
}

// The first sample whose stamp is after that of `at`, or the length.
template <class Row> typename Row::Index step_on(const Row& stamps, typename Row::Index at) {
    const Stamp stamp = stamps.at(at);
    if (at + 1 < stamps.length && stamp < stamps.at(at + 1)) return at + 1;
    return max(count_until(stamps, stamp, at, stamps.length), at + 1);
}

#if RC_FORM == RC_CUBIC
// Up to four samples; the bounds are wide enough to be in order where the targets are.
template <class Row> Pick find_cubic(const Row& stamps, Stamp target, typename Row::Index first, typename Row::Index second) {
    typedef typename Row::Index RowIndex;
    Pick pick = {};
    pick.samples[0] = pick.samples[3] = -1;
    const int steps = first == second ? 2 : 1;
    RowIndex low = first, high = second;
    for (int step = 0; step < steps; step++) {
        low = max(step_back(stamps, low), RowIndex(0));
        // The first sample may be one of equals, of which the last exists; it is only a bound.
        high = min(RowIndex(last_equal(stamps, min(step_on(stamps, high), stamps.length - 1))), stamps.length - 1);
    }
    pick.first = low;
    pick.second = high;
    Sum weight = 0;
    if (first != second) weight = ratio(Sum(), target, stamps.at(first), stamps.at(second));
    if (weight == Sum(0)) second = first;
    if (weight == Sum(1)) first = second;
    if (first == second) weight = 0;
    pick.samples[1] = first;
    pick.samples[2] = second;
    pick.near = Sum(1) - weight;
    pick.far = weight;
    if (weight > Sum(0) && weight < Sum(1)) {
        const double between = double(gap(stamps.at(first), stamps.at(second)));
        const RowIndex earlier = step_back(stamps, first), later = step_on(stamps, second);
        if (earlier >= 0) {
            pick.samples[0] = earlier;
            pick.before = Sum(double(gap(stamps.at(earlier), stamps.at(first))) / between);
        }
        if (later < stamps.length) {
            pick.samples[3] = last_equal(stamps, later);
            pick.behind = Sum(double(gap(stamps.at(second), stamps.at(later))) / between);
        }
    }
    return pick;
}
#endif

// What a target was made of.
template <class Row> Pick find(const Args& args, const Row& stamps, Stamp target) {
    const Limit none = {~0ull, 0};
    const Place<typename Row::Index> place =
        locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), none);
    if (place.first < 0) {
        const Index at = target < stamps.at(0) ? Index(-1) : AFTER_ALL;
        Pick none = {};
        none.first = none.second = at;
#if RC_FORM == RC_CUBIC
        for (int i = 0; i < 4; i++) none.samples[i] = -1;
#endif
        return none;
    }
#if RC_FORM == RC_CUBIC
    return find_cubic(stamps, target, place.first, place.second);
#else
    typename Row::Index first = place.first, second = place.second;
    if (first != second) {
        const Sum weight = ratio(Sum(), target, stamps.at(first), stamps.at(second));
        const bool only_first = weight == Sum(0), only_second = weight == Sum(1);
        const Sum near = only_first ? Sum(1) : only_second ? Sum(0) : Sum(1) - weight;
        return {Index(first), Index(second), near, only_first ? Sum(0) : only_second ? Sum(1) : weight};
    }
    // Where lines go on outside, a target on an end lies between two that are made of two samples.
    if (args.extrapolate == LINE && stamps.at(0) < stamps.at(stamps.length - 1)) {
        if (stamps.at(first) == stamps.at(0)) second = last_equal(stamps, step_on(stamps, first));
        else if (first == stamps.length - 1) first = step_back(stamps, first);
    }
    const bool is_first = place.first == first;
    return {Index(first), Index(second), is_first ? Sum(1) : Sum(0), is_first ? Sum(0) : Sum(1)};
#endif
}

// How many picks from the front have their second sample before `sample` (or their first one at or
// before it), for picks in order.
inline u32 count_before(const Pick* picks, u32 count, Index sample) {
    u32 low = 0;
    while (low < count) {
        const u32 middle = (low + count) / 2;
        if (picks[middle].second < sample) low = middle + 1; else count = middle;
    }
    return low;
}
inline u32 count_reaching(const Pick* picks, u32 count, Index sample) {
    u32 low = 0;
    while (low < count) {
        const u32 middle = (low + count) / 2;
        if (picks[middle].first <= sample) low = middle + 1; else count = middle;
    }
    return low;
}
