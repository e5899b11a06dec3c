//! Where the cells of a grid lie.

use crate::ops::scalar::{Real, Scalar};
use crate::tensor::DType;
use crate::{Result, ensure};

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
}

impl<T: Scalar> Cells<T> {
    pub(crate) fn new(grid: &Grid) -> Self {
        Self {
            origin: grid.origin.map(T::Compute::from_f64),
            size: grid.voxel_size.map(T::Compute::from_f64),
            limit: grid.shape.map(|cells| T::Compute::from_f64(cells as f64)),
            shape: grid.shape.map(|cells| cells as u64),
        }
    }

    /// The cell of a point in row-major order; none outside of the grid and for what is no number.
    /// Between 0 and the number of cells, rounding down is cutting off.
    #[inline(always)]
    pub(crate) fn find(&self, point: [T::Compute; 3]) -> Option<u64> {
        let zero = T::Compute::from_f64(0.0);
        let mut cell = 0;
        let mut inside = true;
        for (axis, number) in point.into_iter().enumerate() {
            let place = number.minus(self.origin[axis]).over(self.size[axis]);
            let within = place >= zero && place < self.limit[axis];
            inside &= within;
            cell = cell * self.shape[axis] + if within { place.to_index() } else { 0 };
        }
        inside.then_some(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_belong_to_the_upper_cell_and_nonsense_to_none() {
        let grid = Grid { origin: [-1.0, 0.0, 0.0], voxel_size: [0.5, 1.0, 0.1], shape: [4, 2, 3] };
        let cells = Cells::<f32>::new(&grid);
        assert_eq!(cells.find([-1.0, 0.0, 0.0]), Some(0));
        assert_eq!(cells.find([-0.5, 1.0, 0.1]), Some((2 + 1) * 3 + 1));
        assert_eq!(cells.find([0.999, 1.999, 0.29]), Some(3 * 6 + 3 + 2));
        assert_eq!(cells.find([-1.0, -0.0, 0.0]), Some(0));
        for outside in [1.0f32, -1.000_001, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(cells.find([outside, 0.0, 0.0]), None, "{outside}");
        }
    }
}
