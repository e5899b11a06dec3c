// What a thread writes of a segment: one unit of every `step`-th target.
// Host twin: none; the host goes through rows.
#pragma once
#include "streams.cuh"

struct Part {
    const SegmentArgs& segment;
    const StreamArgs& stream;
    const Pick* picks;
    const u8* values;  // the unit in sample 0; in shared memory where values are kept there
    u8* out;           // and for target 0
    u32 column;        // of the unit, in the stream
    u32 t, step, count;
};

// x / y for x < 2^16: half an integer keeps it far enough from the next for a quick division.
inline u32 quotient(u32 x, u32 y) { return u32(__fdividef(float(x) + 0.5f, float(y))); }
