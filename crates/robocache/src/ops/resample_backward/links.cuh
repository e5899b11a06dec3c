// Which targets were made of which sample: what find.cu writes and gather.cu reads.
#pragma once
#include "rc.cuh"

namespace rc {

// A target is made of the sample that it is linked to, of weight 1 - `weight`, and of the next one that exists, of weight
// `weight`. A weight of 0 does not matter, so there need not be a next one. Samples that equal ones follow do not exist.
// Targets are listed by their sample, those of one sample in their own order.
template <class Sum> struct Links {
    // For each sample: how many targets are listed before its own, and whether it equals the one ahead (TWIN); then the end of
    // the list, whether it has an order of its own, and the number of samples of the row: 0 for a row that gets nothing.
    const u32* starts;
    const Sum* weights;  // as listed
    const u32* order;    // the targets as listed, where their order is not that
    u32 samples;         // that starts has room for

    static const u32 TWIN = 1u << 31;
    // Numbers of `starts` beside those of samples.
    static const u32 MORE = 3;

    bool has_order() const { return starts[samples + 1] != 0; }
    u32 length() const { return starts[samples + 2]; }
    u32 start(u32 sample) const { return starts[sample] & ~TWIN; }
    bool exists(u32 sample) const { return !(starts[sample + 1] & TWIN); }
    // The last sample that exists before one, or -1.
    i32 previous(u32 sample) const {
        while (sample > 0 && (starts[sample] & TWIN)) sample--;
        return i32(sample) - 1;
    }
    // The sample itself or the next that exists, of samples before the row's length.
    u32 existing(u32 sample) const {
        while (!exists(sample)) sample++;
        return sample;
    }
    u32 next(u32 sample, u32 length) const { return sample + 1 < length ? existing(sample + 1) : length; }
};

}  // namespace rc
