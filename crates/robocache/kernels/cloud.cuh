// Points [B,N,3] of which lengths[b] exist, read four at a time by each thread.
// Host twin: src/ops/cloud.rs, src/cuda/cloud.rs.
#pragma once
#include "rc.cuh"
#include "report.cuh"
#include "scalar.cuh"

namespace rc {

enum CloudFlags : u32 { CHECK = 1, WIDE_LENGTHS = 2, VECTOR = 4 };

// Mirrors `CloudArgs` in cloud.rs. Strides are in elements.
struct CloudArgs {
    const void* points;
    const void* lengths;
    i64 strides[3];
    i64 length_stride;
    i64 count;   // points per row, padding included
    u64 rows;
    u64 tiles;   // per row
    u64 code;    // what reports start from
    Reporter reporter;
    u32 flags;
    u32 padding;
};

// Points of a block, four to a thread.
const int PER_THREAD = 4;
const int TILE_POINTS = 256 * PER_THREAD;

// The row of a block's unit of work, and its tile there.
struct Place { u64 row, tile; };
inline Place place_of(const CloudArgs& cloud, u64 unit) {
    if (cloud.rows == 1) return {0, unit};
    // Dividing 64 bits takes as long as finding the cells of a thread's points.
    if ((unit | cloud.tiles) >> 32) return {unit / cloud.tiles, unit % cloud.tiles};
    const u32 row = u32(unit) / u32(cloud.tiles);
    return {row, u32(unit) - row * u32(cloud.tiles)};
}

// Points of a row that exist: within 0..count whatever was given, and none where that is no length.
inline i64 row_length(const CloudArgs& cloud, u64 row, bool reports) {
    if (!cloud.lengths) return cloud.count;
    const i64 offset = i64(row) * cloud.length_stride;
    const i64 given =
        cloud.flags & WIDE_LENGTHS ? ((const i64*)cloud.lengths)[offset] : i64(((const i32*)cloud.lengths)[offset]);
    const i64 length = min(max(given, i64(0)), cloud.count);
    if (given == length || !(cloud.flags & CHECK)) return length;
    if (reports) report(cloud.reporter, cloud.code | 1, row, 0, u64(given), u64(cloud.count), 0);
    return 0;
}

// The coordinates of the four points from `first` on, a multiple of four; those past `length` are
// not read and come out as NaN.
template <class T>
void load_points(const CloudArgs& cloud, u64 row, i64 first, i64 length, typename Number<T>::Compute (*points)[3]) {
    typedef typename Number<T>::Compute Compute;
    const T* data = (const T*)cloud.points + i64(row) * cloud.strides[0];
    if ((cloud.flags & VECTOR) && first + PER_THREAD <= length) {
        // Twelve numbers that lie side by side, aligned to four of them.
        const int WORDS = int(sizeof(T)) * 3;
        union { u32 words[WORDS]; T numbers[12]; } raw;
        const u32* from = (const u32*)(data + first * 3);
        if (sizeof(T) == 2) {
            #pragma unroll
            for (int i = 0; i < WORDS / 2; i++) {
                const uint2 pair = __ldg((const uint2*)from + i);
                raw.words[2 * i] = pair.x;
                raw.words[2 * i + 1] = pair.y;
            }
        } else {
            #pragma unroll
            for (int i = 0; i < WORDS / 4; i++) {
                const uint4 quad = __ldg((const uint4*)from + i);
                raw.words[4 * i] = quad.x;
                raw.words[4 * i + 1] = quad.y;
                raw.words[4 * i + 2] = quad.z;
                raw.words[4 * i + 3] = quad.w;
            }
        }
        #pragma unroll
        for (int i = 0; i < 12; i++) points[i / 3][i % 3] = widen(raw.numbers[i]);
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++)
        #pragma unroll
        for (int axis = 0; axis < 3; axis++)
            points[p][axis] = first + p < length
                                  ? widen(data[(first + p) * cloud.strides[1] + axis * cloud.strides[2]])
                                  : Compute(__int_as_float(0x7fc00000));
}

}  // namespace rc
