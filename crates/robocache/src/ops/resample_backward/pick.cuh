// What a target was made of, and how it is found.
// Host twin: cpu.rs (find). Part of rows.cu, whose types it uses.
#pragma once

// What a target was made of: two samples with their weights, or one, then first == second and its
// weight is `near`. A sample of weight 0 does not matter. No value: a place before or after all
// samples. Firsts and seconds are in order where the targets are.
struct __align__(16) Pick {
    Index first, second;
    // Of targets in any order their number; `near` is then 1 - `far`, as ever.
    union {
        Sum near;
        u32 target;
    };
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

// What a target was made of.
template <class Row> Pick find(const Args& args, const Row& stamps, Stamp target) {
    const Limit none = {~0ull, 0};
    const Place<typename Row::Index> place =
        locate(stamps, target, Method(args.method), Extrapolate(args.extrapolate), none);
    if (place.first < 0) {
        const Index at = target < stamps.at(0) ? Index(-1) : AFTER_ALL;
        return {at, at, Sum(0), Sum(0)};
    }
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
