//! Occupied cells only: points are grouped by cell, then each group becomes a row.
//!
//! Two ops, because how many cells are occupied is only known after the first: a caller that wants
//! exact shapes waits for its `count`, one that must not wait sets a number of rows beforehand.

use super::dims::check_features;
use super::groups::{GatherDims, GatherVoxels, GroupDims, GroupPoints, check_groups};
use super::{gather_cpu, group_cpu, sparse_cuda};
use crate::chunks::Tensors;
use crate::cuda::{GpuInfo, Launcher};
use crate::ops::rows::{Batch, check_length_values};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, ErrorKind, Op, OutputSpec, Outputs, Result, ensure};

impl Op for GroupPoints<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = GroupDims;
    type On<'t>
        = GroupPoints<'t>
    where
        Self: 't;

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

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> GroupPoints<'t> {
        GroupPoints {
            points: self.points.on(&mut tensors),
            lengths: tensors.next_if(self.lengths.is_some()),
            ..self.clone()
        }
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

impl Op for GatherVoxels<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = GatherDims;
    type On<'t>
        = GatherVoxels<'t>
    where
        Self: 't;

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

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> GatherVoxels<'t> {
        GatherVoxels {
            points: self.points.on(&mut tensors),
            features: tensors.next_if(self.features.is_some()),
            cells: tensors.next(),
            starts: tensors.next(),
            order: tensors.next(),
            count: tensors.next(),
            ..self.clone()
        }
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
