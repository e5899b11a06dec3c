// Points [B,N,3] of which lengths[b] exist, read and written four at a time by each thread.
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

// Mirrors `PointsOut` in cloud.rs. Strides are in elements.
struct PointsOut {
    void* data;
    i64 strides[3];
    u64 vector;  // whether points lie side by side, and rows start at 16 bytes
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

// Writes four bits as bytes of 0 and 1, none past `count`.
inline void store_flags(u8* row, i64 stride, i64 first, i64 count, u32 bits) {
    u8* to = row + first * stride;
    if (stride == 1 && first + PER_THREAD <= count && !(u64(to) & 3)) {
        *(u32*)to = (bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21;
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++)
        if (first + p < count) to[p * stride] = bits >> p & 1;
}

// Writes the points of a block's tile, of which each thread holds four, and none past `count`. All threads of
// the block call this; `staged` is shared memory for TILE_POINTS * 3 numbers, aligned to 16 bytes: the vectors that
// a warp would store at once lie three apart, and lines would reach memory in pieces.
template <class T, class Compute>
void store_points(const PointsOut& out, u64 row, u64 tile, i64 count, const Compute (*points)[3], T* staged) {
    const i64 begin = i64(tile) * TILE_POINTS, first = begin + threadIdx.x * PER_THREAD;
    T* data = (T*)out.data + i64(row) * out.strides[0];
    if (!out.vector) {
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++)
            if (first + p < count)
                #pragma unroll
                for (int axis = 0; axis < 3; axis++)
                    narrow(points[p][axis], data[(first + p) * out.strides[1] + axis * out.strides[2]]);
        return;
    }
    const int BYTES = sizeof(T) == 2 ? 8 : 16, VECTORS = int(sizeof(T)) * 12 / BYTES;
    typedef typename Raw<BYTES>::Type Piece;
    union { T numbers[12]; Piece pieces[VECTORS]; } own;
    #pragma unroll
    for (int i = 0; i < 12; i++) narrow(points[i / 3][i % 3], own.numbers[i]);
    #pragma unroll
    for (int i = 0; i < VECTORS; i++) ((Piece*)staged)[threadIdx.x * VECTORS + i] = own.pieces[i];
    __syncthreads();
    const int WIDE = 16 / int(sizeof(T));
    const int numbers = int(min(i64(TILE_POINTS), count - begin)) * 3, whole = numbers / WIDE;
    data += begin * 3;
    for (int i = threadIdx.x; i < whole; i += 256) ((uint4*)data)[i] = ((const uint4*)staged)[i];
    if (int(threadIdx.x) < numbers - whole * WIDE) data[whole * WIDE + threadIdx.x] = staged[whole * WIDE + threadIdx.x];
}

}  // namespace rc
