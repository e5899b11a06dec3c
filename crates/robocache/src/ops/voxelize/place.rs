//! A grid as kernels take it, with what they need to find cells without dividing.

use super::grid::Grid;
use crate::tensor::DType;

/// Sizes for which the kernels' quotient is proven to be that of a division; see `find_quick` in
/// `kernels/grid.cuh`: 2^-60 to 2^60, where what it rounds on the way to a cell is far from underflow.
const QUICK_SIZES: std::ops::RangeInclusive<f32> = f32::from_bits((127 - 60) << 23)..=f32::from_bits((127 + 60) << 23);
/// Cells of a row that kernels number in 32 bits, with room for "none".
const NARROW_CELLS: u64 = 1 << 31;

/// Mirrors `rc::GridArgs` in `kernels/grid.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct GridArgs {
    origin: [f64; 3],
    size: [f64; 3],
    cells: u64,
    from: [f32; 3],
    step: [f32; 3],
    inverse: [f32; 3],
    low: [f32; 3],
    high: [f32; 3],
    counts: [u32; 3],
    narrow: u32,
    quick: u32,
}

impl GridArgs {
    /// A grid that was checked for points of this type.
    pub(super) fn new(grid: &Grid, points: DType, cells: u64) -> Self {
        let counts = grid.shape.map(|cells| cells as u32);
        let narrow = cells <= NARROW_CELLS;
        let mut args = Self {
            origin: grid.origin,
            size: grid.voxel_size,
            cells,
            from: [0.0; 3],
            step: [0.0; 3],
            inverse: [0.0; 3],
            low: [0.0; 3],
            high: [0.0; 3],
            counts,
            narrow: u32::from(narrow),
            quick: 0,
        };
        if points != DType::F64 {
            args.from = grid.origin.map(|origin| origin as f32);
            args.step = grid.voxel_size.map(|size| size as f32);
            args.inverse = args.step.map(|size| 1.0 / size);
            args.low = args.step.map(lowest);
            args.high = [0, 1, 2].map(|axis| end(args.step[axis], counts[axis] as f32));
            args.quick = u32::from(narrow && args.step.iter().all(|size| QUICK_SIZES.contains(size)));
        }
        args
    }
}

/// The least number that divided by the size is not below 0: what vanishes becomes -0.
fn lowest(size: f32) -> f32 {
    let mut number = -((f64::from(size) * 2f64.powi(-150)) as f32);
    while number / size < 0.0 {
        number = number.next_up();
    }
    while number.next_down() / size >= 0.0 {
        number = number.next_down();
    }
    number
}

/// The least number that divided by the size is no longer below so many cells.
fn end(size: f32, cells: f32) -> f32 {
    let mut number = (size * cells).min(f32::MAX);
    while number.next_down() / size >= cells {
        number = number.next_down();
    }
    while number / size < cells {
        number = number.next_up();
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::cloud::BLOCK;
    use crate::ops::voxelize::grid::{Cells, NOWHERE};

    /// As `find_quick` and `find_by_division` in `kernels/grid.cuh` do it.
    fn find(args: &GridArgs, point: [f32; 3]) -> u64 {
        let (mut cell, mut inside) = (0u64, true);
        for (axis, number) in point.into_iter().enumerate() {
            let x = number - args.from[axis];
            inside &= x >= args.low[axis] && x < args.high[axis];
            let guess = x * args.inverse[axis];
            let quick = (-guess).mul_add(args.step[axis], x).mul_add(args.inverse[axis], guess);
            let place = if args.quick != 0 { quick } else { x / args.step[axis] };
            cell = cell.wrapping_mul(u64::from(args.counts[axis])).wrapping_add(place as i32 as u64);
        }
        if inside { cell } else { NOWHERE }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.wrapping_mul(2_685_821_657_736_338_717)
    }

    #[test]
    fn kernels_find_the_cells_of_a_division() {
        let (mut state, mut quick, mut inside) = (88_172_645_463_325_252, 0, 0);
        for round in 0..4000u32 {
            // Sizes of all exponents, often with a mantissa of all zeros or ones.
            let exponent = if round % 4 == 0 { 1 + random(&mut state) % 254 } else { 67 + random(&mut state) % 120 };
            let mantissa = match round % 5 {
                0 => 0,
                1 => 0x7f_ffff,
                _ => random(&mut state) & 0x7f_ffff,
            };
            let size = f32::from_bits((exponent << 23 | mantissa) as u32);
            let shape = [1 + random(&mut state) as usize % (1 << (1 + round % 24)), 1, 1];
            let grid = Grid { origin: [0.0; 3], voxel_size: [f64::from(size), 1.0, 1.0], shape };
            let args = GridArgs::new(&grid, DType::F32, shape[0] as u64);
            quick += args.quick;
            let cells = Cells::<f32>::new(&grid);
            for choice in 0..16 {
                // Around borders of cells, both ends of the grid, 0, and anything.
                let number = random(&mut state);
                let near = |x: f32| f32::from_bits(x.to_bits().wrapping_add((number >> 40) as u32 % 9).wrapping_sub(4));
                let mut points = [[0.0; BLOCK]; 3];
                points[0][0] = match choice {
                    0..8 => near((number % (shape[0] as u64 + 1)) as f32 * size),
                    8 | 9 => near(args.high[0]),
                    10 | 11 => near(args.low[0]),
                    12 => f32::from_bits(number as u32 >> (8 + number % 24) | (number >> 63 << 31) as u32),
                    13 => f32::from_bits(number as u32),
                    _ => (number >> 40) as f32 / 16_777_216.0 * shape[0] as f32 * size,
                };
                let mut found = [7; BLOCK];
                cells.find(&points, &mut found);
                inside += u32::from(found[0] != NOWHERE);
                assert_eq!(find(&args, points.map(|numbers| numbers[0])), found[0], "{:e} / {size:e}", points[0][0]);
            }
        }
        assert!((2000..4000).contains(&quick) && inside > 20_000, "{quick} {inside}");
    }

    #[test]
    fn ends_of_grids_are_where_a_division_puts_them() {
        assert_eq!((lowest(0.1), lowest(1.999), end(0.1, 3.0)), (0.0, 0.0, 0.3));
        // Half of the least number is rounded to -0, which is inside.
        assert_eq!(lowest(2.0), -f32::from_bits(1));
        assert_eq!(end(f32::MAX, 2.0), f32::INFINITY);
        assert_eq!(end(f32::from_bits(1), 5.0), f32::from_bits(5));
    }
}
