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
    double at(u64 row, u32 outer, u32 inner) const {
        const i64 at = i64(row) * strides[0] + outer * strides[1] + inner * strides[2];
        if (kind == F32) return ((const float*)data)[at];
        if (kind == F64) return ((const double*)data)[at];
        return kind == F16 ? widen(((const f16*)data)[at]) : widen(((const bf16*)data)[at]);
    }
};

// Three rows of four numbers.
inline void read_pose(const SmallArgs& pose, u64 row, double* matrix) {
    if (!pose.data) {
        for (int i = 0; i < 12; i++) matrix[i] = pose.host[i];
    } else if (pose.form < 2) {
        for (int i = 0; i < 12; i++) matrix[i] = pose.at(row, i / 4, i % 4);
    } else {
        double x = pose.at(row, 0, 3), y = pose.at(row, 0, 4), z = pose.at(row, 0, 5), w = pose.at(row, 0, 6);
        const double length = sqrt(((x * x + y * y) + z * z) + w * w);
        x /= length;
        y /= length;
        z /= length;
        w /= length;
        matrix[0] = 1.0 - 2.0 * (y * y + z * z);
        matrix[1] = 2.0 * (x * y - z * w);
        matrix[2] = 2.0 * (x * z + y * w);
        matrix[3] = pose.at(row, 0, 0);
        matrix[4] = 2.0 * (x * y + z * w);
        matrix[5] = 1.0 - 2.0 * (x * x + z * z);
        matrix[6] = 2.0 * (y * z - x * w);
        matrix[7] = pose.at(row, 0, 1);
        matrix[8] = 2.0 * (x * z - y * w);
        matrix[9] = 2.0 * (y * z + x * w);
        matrix[10] = 1.0 - 2.0 * (x * x + y * y);
        matrix[11] = pose.at(row, 0, 2);
    }
}

// fx, fy, cx, cy.
inline void read_camera(const SmallArgs& camera, u64 row, double* numbers) {
    if (!camera.data) {
        for (int i = 0; i < 4; i++) numbers[i] = camera.host[i];
    } else if (camera.form == 0) {
        numbers[0] = camera.at(row, 0, 0);
        numbers[1] = camera.at(row, 1, 1);
        numbers[2] = camera.at(row, 0, 2);
        numbers[3] = camera.at(row, 1, 2);
    } else {
        for (int i = 0; i < 4; i++) numbers[i] = camera.at(row, 0, i);
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
