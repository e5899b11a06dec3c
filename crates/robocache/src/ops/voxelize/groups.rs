//! The sparse ops themselves: what they are given, what a checked call knows, and where results go.

use super::dims::Reduce;
use super::grid::Grid;
use crate::ops::cloud::Cloud;
use crate::ops::depth::PointSource;
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result, ensure};

/// Points grouped by cell. Outputs: `cells [T]` int64, the occupied cells in order (T points in all; M of
/// them are meant); `starts [T+1]` int32, where the points of a cell start in `order [T]` int32;
/// `inverse [B,N]` int64, the row of each point's cell, -1 for none; `dropped [B]` int64; `count []`
/// int64: M.
#[derive(Debug, Clone)]
pub struct GroupPoints<'a> {
    /// What lies in cells.
    pub points: PointSource<'a>,
    /// The cells.
    pub grid: Grid,
    /// `[B]` int32 or int64: how many points of each row exist.
    pub lengths: Option<TensorRef<'a>>,
    /// Rows that there will be; cells past them are no rows.
    pub max_voxels: Option<usize>,
    /// Whether to look for bad lengths. Without it they are clamped.
    pub check: bool,
}

/// Sizes.
#[derive(Debug)]
pub struct GroupDims {
    pub(super) cloud: Cloud,
    /// Cells of a row and of all rows.
    pub(super) cells: u64,
    pub(super) all_cells: u64,
}

/// The addresses of the outputs of [`GroupPoints`].
pub(super) struct GroupTargets {
    pub(super) cells: *mut i64,
    pub(super) starts: *mut i32,
    pub(super) order: *mut i32,
    pub(super) inverse: *mut i64,
    pub(super) dropped: *mut i64,
    pub(super) count: *mut i64,
}

/// The address of an output, which must be row-major.
pub(super) fn row_major(out: &mut Outputs<'_, '_>, index: usize) -> Result<*mut u8> {
    let output = out.get(index).ok_or_else(|| Error::invalid("out", "is missing"))?;
    let layout = output.view().layout();
    ensure!(layout.is_contiguous(), "out", "expected a row-major tensor, got {layout:?}");
    Ok(output.data_mut())
}

impl GroupTargets {
    pub(super) fn new(out: &mut Outputs<'_, '_>) -> Result<Self> {
        let mut at = |index| row_major(out, index);
        Ok(Self {
            cells: at(0)?.cast(),
            starts: at(1)?.cast(),
            order: at(2)?.cast(),
            inverse: at(3)?.cast(),
            dropped: at(4)?.cast(),
            count: at(5)?.cast(),
        })
    }
}

/// A row for each group of points. Outputs: `coords [K,4]` int64 (row of the batch, x, y, z), `counts [K]`
/// int32; then, where asked for, `features [K,F]`, the reduced features, and `voxels [K,P,3+F]`, the first
/// P points of each cell with their features, zero-padded. Rows past the occupied cells hold -1 as
/// coordinates and 0 elsewhere.
#[derive(Debug, Clone)]
pub struct GatherVoxels<'a> {
    /// As for [`GroupPoints`].
    pub points: PointSource<'a>,
    /// `[B,N,F]` or `[N,F]` floats.
    pub features: Option<TensorRef<'a>>,
    /// As for [`GroupPoints`].
    pub grid: Grid,
    /// How features are reduced, where they are.
    pub reduce: Reduce,
    /// Of the reduced features; theirs without a choice.
    pub dtype: Option<DType>,
    /// P: points of a cell that `voxels` keeps.
    pub max_points: Option<usize>,
    /// K: rows.
    pub rows: usize,
    /// What [`GroupPoints`] wrote.
    pub cells: TensorRef<'a>,
    /// What [`GroupPoints`] wrote.
    pub starts: TensorRef<'a>,
    /// What [`GroupPoints`] wrote.
    pub order: TensorRef<'a>,
    /// What [`GroupPoints`] wrote.
    pub count: TensorRef<'a>,
}

/// Sizes and strides.
#[derive(Debug)]
pub struct GatherDims {
    pub(super) cloud: Cloud,
    pub(super) width: usize,
    pub(super) feature_strides: [isize; 3],
    pub(super) cells: u64,
    /// Of `features` and `voxels`.
    pub(super) dtype: DType,
    pub(super) voxel_dtype: DType,
}

/// Refuses groups that grouping these points cannot have written.
pub(super) fn check_groups(groups: [&TensorRef<'_>; 4], cloud: &Cloud) -> Result<()> {
    let total = cloud.total();
    let expected = [
        ("cells", DType::I64, &[total][..]),
        ("starts", DType::I32, &[total + 1]),
        ("order", DType::I32, &[total]),
        ("count", DType::I64, &[]),
    ];
    for ((name, dtype, shape), tensor) in expected.into_iter().zip(groups) {
        ensure!(
            tensor.dtype() == dtype && tensor.shape() == shape && tensor.layout().is_contiguous(),
            name,
            "expected {dtype} {shape:?} as grouping wrote it, got {} {:?}",
            tensor.dtype(),
            tensor.shape()
        );
    }
    Ok(())
}

/// The addresses of the outputs of [`GatherVoxels`]; null where one was not asked for.
pub(super) struct GatherTargets {
    pub(super) coords: *mut i64,
    pub(super) counts: *mut i32,
    pub(super) features: *mut u8,
    pub(super) voxels: *mut u8,
}

impl GatherTargets {
    pub(super) fn new(op: &GatherVoxels<'_>, out: &mut Outputs<'_, '_>) -> Result<Self> {
        let (coords, counts) = (row_major(out, 0)?.cast(), row_major(out, 1)?.cast());
        let reduces = op.reduce.uses_features();
        let features = if reduces { row_major(out, 2)? } else { std::ptr::null_mut() };
        let voxels =
            if op.max_points.is_some() { row_major(out, if reduces { 3 } else { 2 })? } else { std::ptr::null_mut() };
        Ok(Self { coords, counts, features, voxels })
    }
}
