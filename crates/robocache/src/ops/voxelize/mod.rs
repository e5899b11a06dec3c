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
mod divide;
mod find;
mod gather_cpu;
mod grid;
mod group_cpu;
mod hard_cuda;
mod mark;
mod occupancy;
mod place;
mod reduce;
mod reduce_cuda;
mod sparse;
mod sparse_cuda;

use std::fmt;
use std::str::FromStr;

pub(crate) use backward::BACKWARD_KERNELS;
pub use backward::{BackwardDims, VoxelizeBackward};
pub(crate) use cuda::{SCATTER_KERNELS, WRITE_KERNELS};
pub use grid::Grid;
pub(crate) use hard_cuda::{HARD_KERNELS, PIXEL_KERNELS};
pub(crate) use mark::{MARK_KERNELS, NEAR_KERNELS};
pub(crate) use reduce_cuda::REDUCE_KERNELS;
pub use sparse::{GatherDims, GatherVoxels, GroupDims, GroupPoints};
pub(crate) use sparse_cuda::{GATHER_KERNELS, GROUP_KERNELS};

use super::cloud::{Cloud, expect_float};
use super::depth::PointSource;
use super::rows::{Batch, by_name, name_of, strides};
use super::scalar::{Number, bits_of};
use crate::cuda::{GpuInfo, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// 1 where there is a point.
    Occupancy,
    /// How many points there are.
    Count,
    /// The sum of the features.
    Sum,
    /// Their mean.
    Mean,
    /// The largest of each; -0 is below +0, NaN above all.
    Max,
    /// The smallest of each; NaN is below all.
    Min,
}

impl Reduce {
    const NAMES: [(&'static str, Self); 6] = [
        ("occupancy", Self::Occupancy),
        ("count", Self::Count),
        ("sum", Self::Sum),
        ("mean", Self::Mean),
        ("max", Self::Max),
        ("min", Self::Min),
    ];

    /// Whether it reduces features.
    pub fn uses_features(self) -> bool {
        !matches!(self, Self::Occupancy | Self::Count)
    }
}

impl FromStr for Reduce {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        by_name("reduce", &Self::NAMES, name)
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

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

/// Sizes, strides and patterns.
#[derive(Debug)]
pub struct Dims {
    cloud: Cloud,
    /// Features per point; 0 without.
    width: usize,
    feature_strides: [isize; 3],
    /// Cells of a row and of all rows.
    cells: usize,
    all_cells: usize,
    dtype: DType,
    /// An empty and an occupied cell, as bits of `dtype`.
    fill: u64,
    one: u64,
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

/// Features that belong to so many points of a row; returns their number and strides.
fn check_features(features: &TensorRef<'_>, count: usize) -> Result<(usize, [isize; 3])> {
    features.layout().expect_rank("features", &[2, 3], "[B,N,F] or [N,F]")?;
    expect_float("features", features.dtype())?;
    let (shape, rank) = (features.shape(), features.layout().rank());
    ensure!(shape[rank - 2] == count, "features", "expected features of {count} points, got shape {shape:?}");
    Ok((shape[rank - 1], strides(features)))
}

impl Op for Voxelize<'_> {
    const NAME: &'static str = "voxelize";
    type Dims = Dims;

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

/// The addresses of the outputs; null where one was not asked for.
struct Targets {
    out: *mut u8,
    /// Whether empty cells hold their number already.
    blank: bool,
    counts: *mut i32,
    dropped: *mut i64,
}

impl Targets {
    fn new(op: &Voxelize<'_>, dims: &Dims, out: &mut Outputs<'_, '_>) -> Result<Self> {
        let blank = dims.fill == 0 && out.get(0).is_some_and(|out| out.is_zeroed());
        let mut next = 0;
        let mut take = |wanted: bool, name: &'static str| {
            if !wanted {
                return Ok(std::ptr::null_mut());
            }
            let output = out.get(next).ok_or_else(|| Error::invalid(name, "is missing"))?;
            next += 1;
            let layout = output.view().layout();
            ensure!(layout.is_contiguous(), name, "expected a row-major tensor, got {layout:?}");
            Ok(output.data_mut())
        };
        Ok(Self {
            out: take(true, "out")?,
            blank,
            counts: take(op.return_counts, "counts")?.cast(),
            dropped: take(op.return_dropped, "dropped")?.cast(),
        })
    }
}

/// Where counts are kept that are not a result themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountsIn {
    /// Nowhere: occupancy alone.
    Nothing,
    /// `counts`.
    Counts,
    /// `out`, which then is the result.
    Out,
    /// Memory to work in.
    Workspace,
}

impl CountsIn {
    fn of(op: &Voxelize<'_>, dims: &Dims) -> Self {
        match op.reduce {
            _ if op.return_counts => Self::Counts,
            Reduce::Count if dims.dtype == DType::I32 && dims.fill == 0 => Self::Out,
            Reduce::Count => Self::Workspace,
            _ => Self::Nothing,
        }
    }
}
