// What a block writes of a segment: units of a few neighbouring columns, of all its targets. Threads take them in the order of
// memory, which is the order of targets and of units within a target.
// Host twin: none; the host goes through rows.
#pragma once
#include "streams.cuh"

struct Part {
    const Args& args;
    const SegmentArgs& segment;
    const StreamArgs& stream;
    const Pick* picks;
    const u8* values;  // the first unit in sample 0 of the block's first row
    u8* out;           // and for target 0
    u32 column;        // of that unit, in the stream
    u32 units, inverse, count;

    u32 total() const { return count * units; }
    // The target of the unit in place `k`.
    u32 target(u32 k) const { return __umulhi(2 * k, inverse); }
};
