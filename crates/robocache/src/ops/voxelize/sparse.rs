//! Occupied cells only: points are grouped by cell, then each group becomes a row.
//!
//! Two ops, because how many cells are occupied is only known after the first: a caller that wants
//! exact shapes waits for its `count`, one that must not wait sets a number of rows beforehand.

use super::{Grid, Reduce, check_features, gather_cpu, group_cpu, sparse_cuda};
use crate::cuda::{GpuInfo, Launcher};
use crate::ops::cloud::Cloud;
use crate::ops::depth::PointSource;
use crate::ops::rows::{Batch, check_length_values};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, ErrorKind, Op, OutputSpec, Outputs, Result, ensure};

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

impl Op for GroupPoints<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = GroupDims;

    fn name(&self) -> &'static str {
        self.points.op()
    }

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        self.points.inputs().chain(self.lengths.as_ref().map(|x| ("lengths", x)))
    }

    fn check(&self) -> Result<GroupDims> {
        let cloud = self.points.check(self.lengths, Batch::default())?;
        self.grid.check(self.points.dtype())?;
        let all = self.grid.cells().saturating_mul(cloud.batch.max(1) as u128);
        ensure!(
            all < 1 << 63,
            "shape",
            "{:?} for each of {} rows are 2^63 cells or more",
            self.grid.shape,
            cloud.batch
        );
        if cloud.total() >= i32::MAX as usize {
            let text = format!("{} points; fewer than {} can be grouped", cloud.total(), i32::MAX);
            return Err(Error::new(ErrorKind::Unsupported, text).argument(self.points.argument()));
        }
        Ok(GroupDims { cloud, cells: self.grid.cells() as u64, all_cells: all as u64 })
    }

    fn outputs(&self, dims: &GroupDims) -> Result<Vec<OutputSpec>> {
        let total = dims.cloud.total();
        let shape = [dims.cloud.batch, dims.cloud.count];
        Ok(vec![
            OutputSpec::new("cells", DType::I64, &[total])?,
            OutputSpec::new("starts", DType::I32, &[total + 1])?,
            OutputSpec::new("order", DType::I32, &[total])?,
            OutputSpec::new("inverse", DType::I64, dims.cloud.shape(&shape))?,
            OutputSpec::new("dropped", DType::I64, dims.cloud.shape(&shape[..1]))?,
            OutputSpec::new("count", DType::I64, &[])?,
        ])
    }

    fn workspace(&self, dims: &GroupDims, gpu: Option<&GpuInfo>) -> Result<usize> {
        match gpu {
            None => group_cpu::group_workspace(dims),
            Some(_) => sparse_cuda::group_workspace(self, dims),
        }
    }

    fn cpu(&self, dims: &GroupDims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        if self.check {
            check_length_values(self.lengths, dims.cloud.batch, dims.cloud.count)?;
        }
        group_cpu::group(self, dims, out, context)
    }

    fn cuda(&self, dims: &GroupDims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        sparse_cuda::group(self, dims, out, launcher)
    }
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

impl Op for GatherVoxels<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = GatherDims;

    fn name(&self) -> &'static str {
        self.points.op()
    }

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        let groups = [("cells", &self.cells), ("starts", &self.starts), ("order", &self.order), ("count", &self.count)];
        let features = self.features.as_ref().map(|features| ("features", features));
        self.points.inputs().chain(features).chain(groups)
    }

    fn check(&self) -> Result<GatherDims> {
        let cloud = self.points.check(None, Batch::default())?;
        let (mut width, mut feature_strides, mut dtype) = (0, [0; 3], self.points.dtype());
        if let Some(features) = &self.features {
            (width, feature_strides) = check_features(features, cloud.count)?;
            let mut batch = Batch::default();
            if cloud.has_batch {
                batch.add_size(self.points.argument(), cloud.batch)?;
            }
            batch.add("features", features, 2)?;
            let together = batch.size.map_or(1, |(size, _)| size);
            ensure!(
                together == cloud.batch,
                "features",
                "a batch of {together} for points with a batch of {}; a sparse grid shares no points",
                cloud.batch
            );
            dtype = features.dtype();
        } else {
            ensure!(!self.reduce.uses_features(), "features", "{} reduces features, and there are none", self.reduce);
        }
        check_groups([&self.cells, &self.starts, &self.order, &self.count], &cloud)?;
        let voxel_dtype = match (self.points.dtype(), dtype) {
            (a, b) if a == b => a,
            (DType::F64, _) | (_, DType::F64) => DType::F64,
            _ => DType::F32,
        };
        let dtype = self.dtype.unwrap_or(dtype);
        ensure!(dtype.is_float(), "dtype", "features are held in floats, got {dtype}");
        if self.max_points == Some(0) {
            return Err(Error::invalid("max_points_per_voxel", "expected 1 or more, got 0"));
        }
        Ok(GatherDims { cloud, width, feature_strides, cells: self.grid.cells() as u64, dtype, voxel_dtype })
    }

    fn outputs(&self, dims: &GatherDims) -> Result<Vec<OutputSpec>> {
        let mut outputs = vec![
            OutputSpec::new("coords", DType::I64, &[self.rows, 4])?,
            OutputSpec::new("counts", DType::I32, &[self.rows])?,
        ];
        if self.reduce.uses_features() {
            outputs.push(OutputSpec::new("features", dims.dtype, &[self.rows, dims.width])?);
        }
        if let Some(points) = self.max_points {
            outputs.push(OutputSpec::new("voxels", dims.voxel_dtype, &[self.rows, points, 3 + dims.width])?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &GatherDims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        gather_cpu::gather(self, dims, out, context)
    }

    fn cuda(&self, dims: &GatherDims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        sparse_cuda::gather(self, dims, out, launcher)
    }
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
