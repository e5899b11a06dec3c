//! Point clouds as kernels take them.

use super::launch::{Grid, Launcher};
use super::report::{Reporter, Reports};
use crate::ops::cloud::Cloud;
use crate::ops::rows::strides;
use crate::tensor::{DType, TensorMut, TensorRef};

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

/// Points `[B,N,3]` or `[N,3]` that a kernel writes. Mirrors `rc::PointsOut` in `kernels/cloud.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointsOut {
    data: *mut u8,
    strides: [i64; 3],
    vector: u64,
}

impl PointsOut {
    pub(crate) fn new(output: &mut TensorMut<'_>) -> Self {
        let (own, size) = (strides::<3>(output.view()), output.view().dtype().size());
        let starts_well = |bytes: usize| bytes.is_multiple_of(16);
        let row = own[0].unsigned_abs().saturating_mul(size);
        let vector = own[1..] == [3, 1] && starts_well(output.data_mut() as usize) && starts_well(row);
        Self { data: output.data_mut(), strides: own.map(|stride| stride as i64), vector: u64::from(vector) }
    }

    /// Shared memory in which a block puts the points of a tile in order.
    pub(crate) fn staged(dtype: DType) -> u32 {
        TILE_POINTS as u32 * 3 * dtype.size() as u32
    }
}

impl CloudArgs {
    /// The points and lengths of an op.
    pub(crate) fn new(
        points: &TensorRef<'_>,
        lengths: Option<TensorRef<'_>>,
        cloud: &Cloud,
        check: bool,
        reports: Option<&'static Reports>,
        launcher: &Launcher<'_>,
    ) -> Self {
        let size = points.dtype().size();
        // Four points are read at once where all rows start well.
        let aligned = |bytes: usize| bytes.is_multiple_of(4 * size.min(4));
        let row = if cloud.batch > 1 { cloud.point_strides[0].unsigned_abs().saturating_mul(size) } else { 0 };
        let dense = cloud.count <= 1 || cloud.point_strides[1] == 3;
        let vector = dense && cloud.point_strides[2] == 1 && aligned(points.data() as usize) && aligned(row);
        let rest = Self::without_points(lengths, cloud, check, reports, launcher);
        Self { points: points.data(), flags: rest.flags | if vector { VECTOR } else { 0 }, ..rest }
    }

    /// The same for points that are made from something else.
    pub(super) fn without_points(
        lengths: Option<TensorRef<'_>>,
        cloud: &Cloud,
        check: bool,
        reports: Option<&'static Reports>,
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
            code: reports.map_or(0, Reports::code),
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
