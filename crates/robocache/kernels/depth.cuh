// Points made from the pixels of depth images, four at a time by each thread, in place of a cloud in
// memory: the interface is that of cloud.cuh (and tells which are points), the bits are those of unproject.cu.
// Host twin: src/ops/depth.rs, src/cuda/points.rs.
#pragma once
#include "rc.cuh"
#include "cloud.cuh"
#include "pose.cuh"
#include "scalar.cuh"

namespace rc {

// The dtypes of depth by number: Float, and this. Mirrors DEPTHS in depth.rs.
const u32 DEPTH_U16 = 4;

// Mirrors `DepthArgs` in points.rs. Strides are in elements.
struct DepthArgs {
    const void* depth;
    i64 strides[3];
    SmallArgs camera, pose;
    i64 width;
    float scale;
    u32 kind;
    u32 vector;  // whether four pixels can be read at once; only float32 and u16
    u32 padding;
};

// Mirrors `PixelArgs` in points.rs.
struct PixelArgs : CloudArgs { DepthArgs image; };

// What all pixels of an image have in common.
struct Lens {
    float camera[4];  // fx, fy, cx, cy
    float matrix[12];
};

inline void read_lens(const SmallArgs& camera, u64 row, float* to) {
    double numbers[4];
    read_camera(camera, row, numbers);
    #pragma unroll
    for (int i = 0; i < 4; i++) to[i] = float(numbers[i]);
}
inline void read_matrix(const SmallArgs& pose, u64 row, float* to) {
    double numbers[12];
    read_pose(pose, row, numbers);
    #pragma unroll
    for (int i = 0; i < 12; i++) to[i] = float(numbers[i]);
}

inline float depth_of(u16 x) { return float(x); }
inline float depth_of(f16 x) { return widen(x); }
inline float depth_of(bf16 x) { return widen(x); }
inline float depth_of(float x) { return x; }
inline float depth_of(double x) { return float(x); }

// Of a line of the image.
inline float slope_of(const Lens& lens, i64 v) { return (float(v) - lens.camera[3]) / lens.camera[1]; }

// The point of a pixel in column u, NaN where its depth is none; tells whether it is one.
inline bool unproject(const Lens& lens, bool moves, float scale, float depth, float u, float slope, float* point) {
    const float z = depth * scale;
    const bool good = depth > 0 && is_finite(z);
    point[0] = (u - lens.camera[2]) / lens.camera[0] * z;
    point[1] = slope * z;
    point[2] = z;
    if (moves) transform(lens.matrix, point);
    #pragma unroll
    for (int axis = 0; axis < 3; axis++) point[axis] = good ? point[axis] : __int_as_float(0x7fc00000);
    return good;
}

// The block's lens: reading it takes a while, so one thread does for all.
inline Lens& lens_of_block() {
    __shared__ Lens lens;
    return lens;
}

// To be called by all threads of a block before points of a row are loaded; `open` is the row before, ~0
// at first. Clouds need nothing.
inline void open_row(const CloudArgs&, u64, u64&) {}
inline void open_row(const PixelArgs& pixels, u64 row, u64& open) {
    if (row == open) return;
    open = row;
    __syncthreads();  // nobody reads the lens before any more
    // In different warps, so that none waits for the other.
    if (threadIdx.x == 0) read_lens(pixels.image.camera, row, lens_of_block().camera);
    if (threadIdx.x == 32 && pixels.image.pose.given()) read_matrix(pixels.image.pose, row, lens_of_block().matrix);
    __syncthreads();
}

inline float depth_at(const DepthArgs& image, i64 at) {
    if (image.kind == DEPTH_U16) return depth_of(((const u16*)image.depth)[at]);
    if (image.kind == F32) return ((const float*)image.depth)[at];
    if (image.kind == F64) return depth_of(((const double*)image.depth)[at]);
    return image.kind == F16 ? depth_of(((const f16*)image.depth)[at]) : depth_of(((const bf16*)image.depth)[at]);
}

// Line and column of a pixel.
struct PixelPlace { i64 v, u; };
inline PixelPlace pixel_place(const DepthArgs& image, i64 index) {
    // Dividing 64 bits takes as long as all the rest.
    if (u64(index | image.width) >> 32) return {index / image.width, index % image.width};
    const u32 v = u32(index) / u32(image.width);
    return {i64(v), i64(u32(index) - v * u32(image.width))};
}

// As for clouds; the row must be open. Tells by bits which are points.
template <class T>
u32 load_points(const PixelArgs& pixels, u64 row, i64 first, i64 length, float (*points)[3]) {
    const DepthArgs& image = pixels.image;
    if (first >= length) {
        #pragma unroll
        for (int i = 0; i < PER_THREAD * 3; i++) points[i / 3][i % 3] = __int_as_float(0x7fc00000);
        return 0;
    }
    const Lens& lens = lens_of_block();
    const bool moves = image.pose.given();
    const PixelPlace start = pixel_place(image, first);
    const i64 begin = i64(row) * image.strides[0];
    float depths[PER_THREAD];
    if (image.vector && first + PER_THREAD <= length) {
        if (image.kind == DEPTH_U16) {
            const uint2 pair = __ldg((const uint2*)((const u16*)image.depth + begin + first));
            depths[0] = float(pair.x & 0xffff);
            depths[1] = float(pair.x >> 16);
            depths[2] = float(pair.y & 0xffff);
            depths[3] = float(pair.y >> 16);
        } else {
            const uint4 quad = __ldg((const uint4*)((const float*)image.depth + begin + first));
            depths[0] = __uint_as_float(quad.x);
            depths[1] = __uint_as_float(quad.y);
            depths[2] = __uint_as_float(quad.z);
            depths[3] = __uint_as_float(quad.w);
        }
    } else {
        i64 v = start.v, u = start.u;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            // What is past the end has no depth, and so becomes NaN.
            const i64 at = begin + v * image.strides[1] + u * image.strides[2];
            depths[p] = first + p < length ? depth_at(image, at) : 0.0f;
            if (++u == image.width) u = 0, v++;
        }
    }
    i64 v = start.v, u = start.u;
    float slope = slope_of(lens, v);
    u32 good = 0;
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) {
        good |= u32(unproject(lens, moves, image.scale, depths[p], float(u), slope, points[p])) << p;
        if (++u == image.width) {
            u = 0;
            slope = slope_of(lens, ++v);
        }
    }
    return good;
}

// One point; the row must be open.
inline void load_point(const PixelArgs& pixels, u64 row, i64 index, float* point) {
    const DepthArgs& image = pixels.image;
    const Lens& lens = lens_of_block();
    const PixelPlace at = pixel_place(image, index);
    const float depth =
        depth_at(image, i64(row) * image.strides[0] + at.v * image.strides[1] + at.u * image.strides[2]);
    unproject(lens, image.pose.given(), image.scale, depth, float(at.u), slope_of(lens, at.v), point);
}

// Where a kernel takes its points from.
#if defined(RC_PIXELS) && RC_PIXELS
typedef PixelArgs PointArgs;
#else
typedef CloudArgs PointArgs;
#endif

}  // namespace rc
