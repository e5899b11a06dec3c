//! Point clouds as kernels take them.

use super::launch::{Grid, Launcher};
use super::report::Reporter;
use crate::ops::cloud::Cloud;
use crate::tensor::{DType, TensorRef};

const CHECK: u32 = 1;
const WIDE_LENGTHS: u32 = 2;
const VECTOR: u32 = 4;
/// Points of a block, as in cloud.cuh.
const TILE_POINTS: u64 = 1024;

/// Mirrors `rc::CloudArgs` in `kernels/cloud.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloudArgs {
    points: *const u8,
    lengths: *const u8,
    strides: [i64; 3],
    length_stride: i64,
    count: i64,
    rows: u64,
    tiles: u64,
    code: u64,
    reporter: Reporter,
    flags: u32,
    padding: u32,
}

impl CloudArgs {
    /// The points and lengths of an op whose number is `op`.
    pub(crate) fn new(
        points: &TensorRef<'_>,
        lengths: Option<TensorRef<'_>>,
        cloud: &Cloud,
        check: bool,
        op: u32,
        launcher: &Launcher<'_>,
    ) -> Self {
        let size = points.dtype().size();
        // Four points are read at once where all rows start well.
        let aligned = |bytes: usize| bytes.is_multiple_of(4 * size.min(4));
        let row = if cloud.batch > 1 { cloud.point_strides[0].unsigned_abs().saturating_mul(size) } else { 0 };
        let dense = cloud.count <= 1 || cloud.point_strides[1] == 3;
        let vector = dense && cloud.point_strides[2] == 1 && aligned(points.data() as usize) && aligned(row);
        let rest = Self::without_points(lengths, cloud, check, op, launcher);
        Self { points: points.data(), flags: rest.flags | if vector { VECTOR } else { 0 }, ..rest }
    }

    /// The same for points that are made from something else.
    pub(super) fn without_points(
        lengths: Option<TensorRef<'_>>,
        cloud: &Cloud,
        check: bool,
        op: u32,
        launcher: &Launcher<'_>,
    ) -> Self {
        let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
        Self {
            points: std::ptr::null(),
            lengths: lengths.map_or(std::ptr::null(), |lengths| lengths.data()),
            strides: cloud.point_strides.map(|stride| stride as i64),
            length_stride: cloud.length_stride as i64,
            count: cloud.count as i64,
            rows: cloud.batch as u64,
            tiles: (cloud.count as u64).div_ceil(TILE_POINTS).max(1),
            code: u64::from(op) << 32,
            reporter: launcher.reporter(),
            flags: flag(check, CHECK)
                | flag(lengths.is_some_and(|lengths| lengths.dtype() == DType::I64), WIDE_LENGTHS),
            padding: 0,
        }
    }

    /// A block for each tile of points of each row.
    pub(crate) fn grid(&self) -> Grid {
        Grid::for_blocks(self.rows.saturating_mul(self.tiles))
    }
}
