// Which cell of a grid a point lies in. Host twin: `Cells` in src/ops/voxelize/grid.rs.
#pragma once
#include "rc.cuh"

namespace rc {

// Mirrors `GridArgs` in src/ops/voxelize/cuda.rs; origin and size are rounded to what points
// compute in.
struct GridArgs {
    double origin[3], size[3];
    i64 shape[3];
    u64 cells;  // of a row
};

// The cell in row-major order; -1 outside of the grid and for what is no number. Between 0 and the
// number of cells, rounding down is cutting off; nothing else is made an integer.
template <class Compute> i64 find_cell(const GridArgs& grid, const Compute* point) {
    i64 cell = 0;
    bool inside = true;
    #pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const Compute place = (point[axis] - Compute(grid.origin[axis])) / Compute(grid.size[axis]);
        const bool within = place >= Compute(0) && place < Compute(grid.shape[axis]);
        inside &= within;
        cell = cell * grid.shape[axis] + (within ? i64(place) : 0);
    }
    return inside ? cell : -1;
}

}  // namespace rc
