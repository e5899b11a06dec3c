// Poses and cameras: a few numbers for each row, in memory or among the arguments.
// Host twin: src/ops/pose.rs, whose order of operations this keeps.
#pragma once
#include "rc.cuh"
#include "scalar.cuh"

namespace rc {

// Mirrors `SmallArgs` in pose.rs. Strides are in elements.
struct SmallArgs {
    const void* data;  // null: `host` holds the numbers, for all rows
    i64 strides[3];
    double host[12];
    u32 kind;  // Float
    u32 form;

    bool given() const { return form != ~0u; }
    // The numbers of a row at COUNT places, (outer, inner) for each: all loads are in flight together.
    template <int COUNT> void read(u64 row, const u32 (&outer)[COUNT], const u32 (&inner)[COUNT], double* to) const {
        if (kind == F32) read_as<float>(row, outer, inner, to);
        else if (kind == F64) read_as<double>(row, outer, inner, to);
        else if (kind == F16) read_as<f16>(row, outer, inner, to);
        else read_as<bf16>(row, outer, inner, to);
    }

  private:
    template <class T, int COUNT>
    void read_as(u64 row, const u32 (&outer)[COUNT], const u32 (&inner)[COUNT], double* to) const {
        const T* from = (const T*)data + i64(row) * strides[0];
        #pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = widen(from[outer[i] * strides[1] + inner[i] * strides[2]]);
    }
};

// Three rows of four numbers.
inline void read_pose(const SmallArgs& pose, u64 row, double* matrix) {
    if (!pose.data) {
        #pragma unroll
        for (int i = 0; i < 12; i++) matrix[i] = pose.host[i];
    } else if (pose.form < 2) {
        const u32 outer[12] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
        const u32 inner[12] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
        pose.read(row, outer, inner, matrix);
    } else {
        const u32 outer[7] = {}, inner[7] = {0, 1, 2, 3, 4, 5, 6};
        double numbers[7];
        pose.read(row, outer, inner, numbers);
        double x = numbers[3], y = numbers[4], z = numbers[5], w = numbers[6];
        const double length = sqrt(((x * x + y * y) + z * z) + w * w);
        x /= length;
        y /= length;
        z /= length;
        w /= length;
        matrix[0] = 1.0 - 2.0 * (y * y + z * z);
        matrix[1] = 2.0 * (x * y - z * w);
        matrix[2] = 2.0 * (x * z + y * w);
        matrix[3] = numbers[0];
        matrix[4] = 2.0 * (x * y + z * w);
        matrix[5] = 1.0 - 2.0 * (x * x + z * z);
        matrix[6] = 2.0 * (y * z - x * w);
        matrix[7] = numbers[1];
        matrix[8] = 2.0 * (x * z - y * w);
        matrix[9] = 2.0 * (y * z + x * w);
        matrix[10] = 1.0 - 2.0 * (x * x + y * y);
        matrix[11] = numbers[2];
    }
}

// fx, fy, cx, cy.
inline void read_camera(const SmallArgs& camera, u64 row, double* numbers) {
    if (!camera.data) {
        #pragma unroll
        for (int i = 0; i < 4; i++) numbers[i] = camera.host[i];
    } else if (camera.form == 0) {
        const u32 outer[4] = {0, 1, 0, 1}, inner[4] = {0, 1, 2, 2};
        camera.read(row, outer, inner, numbers);
    } else {
        const u32 outer[4] = {}, inner[4] = {0, 1, 2, 3};
        camera.read(row, outer, inner, numbers);
    }
}

// The point in the frame that the pose maps to; `matrix` is rounded to what points compute in.
template <class Compute> void transform(const Compute* matrix, Compute* point) {
    const Compute x = point[0], y = point[1], z = point[2];
    for (int axis = 0; axis < 3; axis++) {
        const Compute* row = matrix + 4 * axis;
        point[axis] = ((row[0] * x + row[1] * y) + row[2] * z) + row[3];
    }
}

}  // namespace rc
