//! Where the cells of a grid lie.

use crate::ops::cloud::{BLOCK, Block};
use crate::ops::scalar::{Real, Scalar};
use crate::tensor::DType;
use crate::{Result, ensure};

/// The cell of a point that has none.
pub(crate) const NOWHERE: u64 = u64::MAX;
/// Cells along an axis: what f32 counts exactly.
const MOST_CELLS: usize = 1 << 24;

/// A box of equal cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// The lower corner of cell (0, 0, 0).
    pub origin: [f64; 3],
    /// Lengths of a cell along x, y and z.
    pub voxel_size: [f64; 3],
    /// Cells along x, y and z.
    pub shape: [usize; 3],
}

impl Grid {
    /// Refuses what is no grid for points of this dtype.
    pub(crate) fn check(&self, points: DType) -> Result<()> {
        // What the points compute in decides: a size that vanishes there is 0.
        let rounded = |number: f64| if points == DType::F64 { number } else { f64::from(number as f32) };
        for axis in 0..3 {
            let (origin, size, cells) = (self.origin[axis], self.voxel_size[axis], self.shape[axis]);
            ensure!(rounded(origin).is_finite(), "origin", "expected finite numbers, got {origin}");
            ensure!(
                rounded(size) > 0.0 && rounded(size).is_finite(),
                "voxel_size",
                "expected finite sizes over 0 (in float32 unless points are float64), got {size}"
            );
            ensure!(
                (1..=MOST_CELLS).contains(&cells),
                "shape",
                "expected 1 to {MOST_CELLS} cells along an axis, got {cells}"
            );
        }
        Ok(())
    }

    /// Cells of one grid; the shape was checked, so they can be counted.
    pub(crate) fn cells(&self) -> u128 {
        self.shape.iter().map(|&cells| cells as u128).product()
    }
}

/// A grid in the numbers that points compute in.
#[derive(Clone, Copy)]
pub(crate) struct Cells<T: Scalar> {
    origin: [T::Compute; 3],
    size: [T::Compute; 3],
    limit: [T::Compute; 3],
    shape: [u64; 3],
    cells: u128,
}

impl<T: Scalar> Cells<T> {
    pub(crate) fn new(grid: &Grid) -> Self {
        Self {
            origin: grid.origin.map(T::Compute::from_f64),
            size: grid.voxel_size.map(T::Compute::from_f64),
            limit: grid.shape.map(|cells| T::Compute::from_f64(cells as f64)),
            shape: grid.shape.map(|cells| cells as u64),
            cells: grid.cells(),
        }
    }

    /// The cells of points in row-major order, [`NOWHERE`] outside of the grid and for what is no number.
    /// Between 0 and the number of cells, rounding down is cutting off.
    #[inline(always)]
    pub(crate) fn find(&self, points: &Block<T::Compute>, found: &mut [u64; BLOCK]) {
        // Most grids have so few cells that they are numbered in half the width.
        if self.cells <= 1 << 32 {
            let mut cells = [0u32; BLOCK];
            let inside = self.number(points, &mut cells, |cell, index, axis| {
                cell.wrapping_mul(self.shape[axis] as u32).wrapping_add(index)
            });
            for ((found, cell), inside) in found.iter_mut().zip(cells).zip(inside) {
                *found = if inside != 0 { u64::from(cell) } else { NOWHERE };
            }
        } else {
            let inside = self.number(points, found, |cell, index, axis| {
                cell.wrapping_mul(self.shape[axis]).wrapping_add(u64::from(index))
            });
            for (found, inside) in found.iter_mut().zip(inside) {
                *found = if inside != 0 { *found } else { NOWHERE };
            }
        }
    }

    /// Numbers cells axis by axis; tells which points lie inside.
    #[inline(always)]
    fn number<N: Copy + Default>(
        &self,
        points: &Block<T::Compute>,
        cells: &mut [N; BLOCK],
        join: impl Fn(N, u32, usize) -> N,
    ) -> [u32; BLOCK] {
        let zero = T::Compute::from_f64(0.0);
        let mut inside = [u32::MAX; BLOCK];
        cells.fill(N::default());
        for (axis, numbers) in points.iter().enumerate() {
            let (origin, size, limit) = (self.origin[axis], self.size[axis], self.limit[axis]);
            for ((&number, cell), inside) in numbers.iter().zip(&mut *cells).zip(&mut inside) {
                let place = number.minus(origin).over(size);
                let within = (place >= zero) & (place < limit);
                // SAFETY: below the limit, which is at most 2^24, or 0.
                let index = unsafe { if within { place } else { zero }.to_index() };
                *inside = if within { *inside } else { 0 };
                *cell = join(*cell, index, axis);
            }
        }
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cell of one point, in a block of others.
    fn find<T: Scalar>(grid: &Grid, point: [T::Compute; 3]) -> Option<u64> {
        let cells = Cells::<T>::new(grid);
        let mut found = [7; BLOCK];
        cells.find(&point.map(|number| [number; BLOCK]), &mut found);
        assert!(found.iter().all(|cell| *cell == found[0]));
        Some(found[0]).filter(|cell| *cell != NOWHERE)
    }

    #[test]
    fn borders_belong_to_the_upper_cell_and_nonsense_to_none() {
        let grid = Grid { origin: [-1.0, 0.0, 0.0], voxel_size: [0.5, 1.0, 0.1], shape: [4, 2, 3] };
        assert_eq!(find::<f32>(&grid, [-1.0, 0.0, 0.0]), Some(0));
        assert_eq!(find::<f32>(&grid, [-0.5, 1.0, 0.1]), Some((2 + 1) * 3 + 1));
        assert_eq!(find::<f32>(&grid, [0.999, 1.999, 0.29]), Some(3 * 6 + 3 + 2));
        assert_eq!(find::<f32>(&grid, [-1.0, -0.0, 0.0]), Some(0));
        for outside in [1.0f32, -1.000_001, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(find::<f32>(&grid, [outside, 0.0, 0.0]), None, "{outside}");
        }
    }

    #[test]
    fn cells_are_numbered_alike_on_both_sides_of_32_bits() {
        for shape in [[1 << 12, 1 << 10, 1 << 10], [1 << 12, 1 << 10, (1 << 10) + 1], [1 << 20; 3], [1 << 24, 3, 1]] {
            let grid = Grid { origin: [0.0; 3], voxel_size: [1.0; 3], shape };
            let last = shape.map(|cells| cells as f64 - 0.5);
            let cells = u64::try_from(grid.cells()).unwrap();
            assert_eq!(find::<f64>(&grid, last), Some(cells - 1), "{shape:?}");
            assert_eq!(find::<f64>(&grid, [0.5, 0.5, -0.5]), None);
        }
    }
}
