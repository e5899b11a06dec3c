//! Points counted, or their features reduced, in the cells of a grid.
//!
//! The cell of a point is `floor((p - origin) / voxel_size)`: origin and size rounded to what the
//! points compute in, then an IEEE subtraction and division, without contraction. Features of a cell
//! are reduced in the order of the points, in f64 (see `reduce.rs`), so every result has the same
//! bits on every run and on every backend.

mod backward;
mod count;
mod cpu;
mod cuda;
mod dims;
mod divide;
mod fill;
mod find;
mod gather_cpu;
mod grid;
mod group_cpu;
mod groups;
mod hard_cuda;
mod mark;
mod occupancy;
mod place;
mod reduce;
mod reduce_cuda;
mod sparse;
mod sparse_cuda;

pub(crate) use backward::BACKWARD_KERNELS;
pub use backward::{BackwardDims, VoxelizeBackward};
pub(crate) use cuda::{SCATTER_KERNELS, WRITE_KERNELS};
pub use dims::{Dims, Reduce};
pub use grid::Grid;
pub use groups::{GatherDims, GatherVoxels, GroupDims, GroupPoints};
pub(crate) use hard_cuda::{HARD_KERNELS, PIXEL_KERNELS};
pub(crate) use mark::{MARK_KERNELS, NEAR_KERNELS};
pub(crate) use reduce_cuda::REDUCE_KERNELS;
pub(crate) use sparse_cuda::{GATHER_KERNELS, GROUP_KERNELS};

use self::dims::{CountsIn, Targets, check_features};
use super::depth::PointSource;
use super::rows::Batch;
use super::scalar::{Number, bits_of};
use crate::chunks::{Cuts, Tensors};
use crate::cuda::{GpuInfo, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result};

/// A dense grid. Output 0 is `out [B,X,Y,Z]`, or `[B,X,Y,Z,F]` for reductions of features; then,
/// where asked for, `counts [B,X,Y,Z]` int32 and `dropped [B]` int64. Outputs are row-major.
#[derive(Debug, Clone)]
pub struct Voxelize<'a> {
    /// What lies in cells.
    pub points: PointSource<'a>,
    /// `[B,N,F]` or `[N,F]` floats; only for reductions of features.
    pub features: Option<TensorRef<'a>>,
    /// The cells.
    pub grid: Grid,
    /// What a cell holds.
    pub reduce: Reduce,
    /// `[B]` int32 or int64: how many points of each row exist.
    pub lengths: Option<TensorRef<'a>>,
    /// Of the grid: any for occupancy (uint8 without a choice), int32 (without a choice), int64,
    /// float32 and float64 for counts, floats for features (theirs without a choice).
    pub dtype: Option<DType>,
    /// What empty cells hold: integers hold it exactly, floats round it.
    pub fill: Number,
    /// Whether to write `counts`.
    pub return_counts: bool,
    /// Whether to write `dropped`: points outside of the grid, NaN or infinite; padding is none.
    pub return_dropped: bool,
    /// Whether to look for bad lengths. Without it they are clamped.
    pub check: bool,
}

impl<'a> Voxelize<'a> {
    /// Occupancy in uint8 with checks; the other fields can be set.
    pub fn new(points: impl Into<PointSource<'a>>, grid: Grid) -> Self {
        Self {
            points: points.into(),
            features: None,
            grid,
            reduce: Reduce::Occupancy,
            lengths: None,
            dtype: None,
            fill: Number::Whole(0),
            return_counts: false,
            return_dropped: false,
            check: true,
        }
    }

    fn check_dtype(&self) -> Result<DType> {
        let (default, allowed) = match (self.reduce, self.features) {
            (Reduce::Occupancy, _) => (DType::U8, DType::ALL),
            (Reduce::Count, _) => (DType::I32, &[DType::I32, DType::I64, DType::F32, DType::F64][..]),
            (_, features) => {
                let own = features.map_or(DType::F32, |features| features.dtype());
                (own, &[DType::F16, DType::BF16, DType::F32, DType::F64][..])
            }
        };
        let dtype = self.dtype.unwrap_or(default);
        if !allowed.contains(&dtype) || dtype.is_stored() {
            let names: Vec<_> = allowed.iter().filter(|dtype| !dtype.is_stored()).map(|dtype| dtype.name()).collect();
            return Err(Error::invalid(
                "dtype",
                format!("{} is held in {}, got {dtype}", self.reduce, names.join(", ")),
            ));
        }
        Ok(dtype)
    }
}

impl Voxelize<'_> {
    fn targets(&self, dims: &Dims, out: &mut Outputs<'_, '_>) -> Result<Targets> {
        Targets::new(out, dims, self.return_counts, self.return_dropped)
    }

    fn counts_in(&self, dims: &Dims) -> CountsIn {
        match self.reduce {
            _ if self.return_counts => CountsIn::Counts,
            Reduce::Count if dims.dtype == DType::I32 && dims.fill == 0 => CountsIn::Out,
            Reduce::Count => CountsIn::Workspace,
            _ => CountsIn::Nothing,
        }
    }
}

impl Op for Voxelize<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = Dims;
    type On<'t>
        = Voxelize<'t>
    where
        Self: 't;

    fn name(&self) -> &'static str {
        self.points.op()
    }

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        let optional = [("features", &self.features), ("lengths", &self.lengths)];
        let given = optional.into_iter().filter_map(|(name, input)| Some((name, input.as_ref()?)));
        self.points.inputs().chain(given)
    }

    fn check(&self) -> Result<Dims> {
        let mut batch = Batch::default();
        // Points speak first: a rank that is wrong there says more than one that does not fit it.
        let count = self.points.check(None, Batch::default())?.count;
        let (mut width, mut feature_strides) = (0, [0; 3]);
        match (&self.features, self.reduce.uses_features()) {
            (Some(features), true) => {
                (width, feature_strides) = check_features(features, count)?;
                batch.add("features", features, 2)?;
            }
            (None, true) => {
                return Err(Error::invalid(
                    "features",
                    format!("{} reduces features, and there are none", self.reduce),
                ));
            }
            (Some(_), false) => {
                let text = format!("{} uses no features; choose sum, mean, max or min", self.reduce);
                return Err(Error::invalid("features", text));
            }
            (None, false) => {}
        }
        let cloud = self.points.check(self.lengths, batch)?;
        self.grid.check(self.points.dtype())?;
        let dtype = self.check_dtype()?;
        let bits = |argument, number| {
            bits_of(dtype, number).ok_or_else(|| Error::invalid(argument, format!("{dtype} does not hold {number}")))
        };
        let too_many = || Error::invalid("shape", format!("{:?} cells cannot be addressed", self.grid.shape));
        let cells = usize::try_from(self.grid.cells()).ok().filter(|&cells| cells <= isize::MAX as usize);
        let cells = cells.ok_or_else(too_many)?;
        let all_cells = cells.checked_mul(cloud.batch).filter(|&all| all <= isize::MAX as usize);
        Ok(Dims {
            cloud,
            width,
            feature_strides,
            cells,
            all_cells: all_cells.ok_or_else(too_many)?,
            dtype,
            fill: bits("fill", self.fill)?,
            one: bits("dtype", Number::Whole(1))?,
        })
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        let cuts = Cuts::new(dims.cloud.has_batch, dims.cloud.batch);
        let cuts = cuts.inputs(self.points.inputs_and_axes(&dims.cloud));
        let (features, lengths) = (self.features.as_ref(), self.lengths.as_ref());
        Some(cuts.inputs(features.map(|tensor| (tensor, 2))).inputs(lengths.map(|tensor| (tensor, 0))))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Voxelize<'t> {
        Voxelize {
            points: self.points.on(&mut tensors),
            features: tensors.next_if(self.features.is_some()),
            lengths: tensors.next_if(self.lengths.is_some()),
            ..self.clone()
        }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let [x, y, z] = self.grid.shape;
        let shape = [dims.cloud.batch, x, y, z, dims.width];
        let rank = if self.reduce.uses_features() { 5 } else { 4 };
        let out = OutputSpec::new("out", dims.dtype, dims.cloud.shape(&shape[..rank]))?;
        let mut outputs = vec![out];
        if self.return_counts {
            outputs.push(OutputSpec::new("counts", DType::I32, dims.cloud.shape(&shape[..4]))?);
        }
        if self.return_dropped {
            outputs.push(OutputSpec::new("dropped", DType::I64, dims.cloud.shape(&shape[..1]))?);
        }
        Ok(outputs)
    }

    fn workspace(&self, dims: &Dims, gpu: Option<&GpuInfo>) -> Result<usize> {
        match gpu {
            None => cpu::workspace(self, dims),
            Some(_) => cuda::workspace(self, dims),
        }
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        cpu::voxelize(self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::voxelize(self, dims, out, launcher)
    }
}
