// Which cell of a grid a point lies in. Host twin: `Cells` in src/ops/voxelize/grid.rs.
#pragma once
#include "rc.cuh"

namespace rc {

// Mirrors `GridArgs` in src/ops/voxelize/place.rs; origin and size are rounded to what points
// compute in.
struct GridArgs {
    double origin[3], size[3];
    u64 cells;  // of a row
    // For points that compute in float: origin and size again; what lies in the grid is in low..high
    // from the origin; `inverse` is 1 / size, rounded to nearest.
    float from[3], step[3], inverse[3], low[3], high[3];
    u32 counts[3];  // along the axes, at most 2^24
    u32 narrow;     // at most 2^31 cells
    u32 quick;      // narrow, and sizes for which `find_quick` is proven
};

// The cell in row-major order; ~0 outside of the grid and for what is no number. Points that compute
// in float, where grid.quick is set.
//
// A quotient rounded as IEEE does in three steps. The reciprocal is rounded to nearest, so the first
// is off by 1.5 units in the last place at most, and the second step only fails where the quotient
// is so close to the middle of two numbers that all such pairs can be listed: none fails. That is
// for quotients of 1/2 and more; below, both ways are under 1. Underflow at the edge of the grid
// (-0 is inside) is with the host, which made `low` and `high` by dividing.
inline u32 find_quick(const GridArgs& grid, const float* point) {
    u32 cell = 0;
    bool inside = true;
    #pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const float x = point[axis] - grid.from[axis];
        inside = inside && x >= grid.low[axis] && x < grid.high[axis];
        const float guess = x * grid.inverse[axis];
        const float place = __fmaf_rn(__fmaf_rn(-guess, grid.step[axis], x), grid.inverse[axis], guess);
        // What is outside becomes some number that nobody uses.
        cell = cell * grid.counts[axis] + u32(__float2int_rz(place));
    }
    return inside ? cell : ~0u;
}

// The same for all grids and points; -1 outside. Between 0 and the number of cells, rounding down is
// cutting off; nothing else is made an integer.
inline i64 find_by_division(const GridArgs& grid, const double* point) {
    i64 cell = 0;
    bool inside = true;
    #pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const double place = (point[axis] - grid.origin[axis]) / grid.size[axis];
        const bool within = place >= 0 && place < double(grid.counts[axis]);
        inside &= within;
        cell = cell * grid.counts[axis] + (within ? i32(place) : 0);
    }
    return inside ? cell : -1;
}
inline i64 find_by_division(const GridArgs& grid, const float* point) {
    i64 cell = 0;
    bool inside = true;
    #pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const float x = point[axis] - grid.from[axis];
        const bool within = x >= grid.low[axis] && x < grid.high[axis];
        inside &= within;
        cell = cell * grid.counts[axis] + (within ? i32(x / grid.step[axis]) : 0);
    }
    return inside ? cell : -1;
}

// The cells of N points; Cell holds those of a row, and ~0 for none.
template <int N, class Cell> void find_cells(const GridArgs& grid, double (*points)[3], Cell* cells) {
    #pragma unroll
    for (int p = 0; p < N; p++) cells[p] = Cell(find_by_division(grid, points[p]));
}
template <int N, class Cell> void find_cells(const GridArgs& grid, float (*points)[3], Cell* cells) {
    // Asked once, not for each point.
    if (grid.quick) {
        #pragma unroll
        for (int p = 0; p < N; p++) {
            const u32 cell = find_quick(grid, points[p]);
            cells[p] = cell == ~0u ? Cell(~Cell(0)) : Cell(cell);
        }
    } else {
        #pragma unroll
        for (int p = 0; p < N; p++) cells[p] = Cell(find_by_division(grid, points[p]));
    }
}

}  // namespace rc
