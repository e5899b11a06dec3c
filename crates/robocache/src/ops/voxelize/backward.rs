//! Gradients of the reductions in the features.
//!
//! Points are grouped as for a sparse grid; each group hands the gradient of its cell on to its points:
//! all of it for sums, a part for means, and for the largest and smallest to the first point that holds
//! it (the first NaN, where there is one). Nothing is added up, so the bits are the same on every run
//! and every backend.

use super::dims::{Reduce, check_features};
use super::divide::Divisor;
use super::gather_cpu::Groups;
use super::groups::{check_groups, row_major};
use super::reduce::{Features, Members};
use super::reduce_cuda::{FeatureArgs, VECTOR_COLUMNS};
use super::sparse_cuda::{GROUP_HEADERS, GroupsArgs, WARPS, rows_of_warp};
use crate::chunks::Tensors;
use crate::cpu::{Shared, for_each};
use crate::cuda::{Grid, KernelFamily, Launcher, clear};
use crate::ops::cloud::Cloud;
use crate::ops::depth::PointSource;
use crate::ops::rows::Batch;
use crate::ops::scalar::{FLOATS, Real, Scalar, float_number, with_float};
use crate::tensor::TensorRef;
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

/// Groups of a task on the host.
const TASK_ROWS: usize = 256;

/// Output 0 is `out`, the gradient of the features, with their shape and dtype; 0 for points outside.
#[derive(Debug, Clone)]
pub struct VoxelizeBackward<'a> {
    /// As they were reduced.
    pub features: TensorRef<'a>,
    /// As [`super::GroupPoints`] took them; of these only shape and batch matter.
    pub points: PointSource<'a>,
    /// How they were reduced.
    pub reduce: Reduce,
    /// The gradient of a dense grid, `[B,X,Y,Z,F]` or `[X,Y,Z,F]`, or of sparse rows, `[K,F]`; row-major.
    pub grad: TensorRef<'a>,
    /// Whether `grad` is that of sparse rows.
    pub sparse: bool,
    /// What [`super::GroupPoints`] wrote.
    pub cells: TensorRef<'a>,
    /// What [`super::GroupPoints`] wrote.
    pub starts: TensorRef<'a>,
    /// What [`super::GroupPoints`] wrote.
    pub order: TensorRef<'a>,
    /// What [`super::GroupPoints`] wrote.
    pub count: TensorRef<'a>,
}

/// Sizes and strides.
#[derive(Debug)]
pub struct BackwardDims {
    cloud: Cloud,
    width: usize,
    feature_strides: [isize; 3],
    /// Rows of `grad`.
    rows: usize,
}

/// The kernels, by the features' type and whether several columns can be written at once.
pub(crate) static BACKWARD_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("backward.cu"),
    headers: &GROUP_HEADERS,
    variants: || (0..8).collect(),
    entry: |number| {
        let columns = ["scalar", "vector"][number as usize / 4 % 2];
        format!("rc_voxelize_backward_{columns}_{}", FLOATS[number as usize % 4].0)
    },
    options: |number| {
        let columns = if number < 4 { 1 } else { VECTOR_COLUMNS[number as usize % 4] };
        vec![
            format!("-DRC_FEATURE={}", FLOATS[number as usize % 4].1),
            format!("-DRC_COLUMNS={columns}"),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

/// Mirrors `Args` in backward.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    features: FeatureArgs,
    groups: GroupsArgs,
    grad: *const u8,
    out: *mut u8,
    vectors: Divisor,
    grad_rows: u64,
    tiles: u64,
    rows: u32,
    width: u32,
    grad_kind: u32,
    reduce: u32,
    flags: u32,
    padding: u32,
}

/// Mirror `Flags` in backward.cu.
const SPARSE: u32 = 1;
const SAME_TYPE: u32 = 2;

impl Op for VoxelizeBackward<'_> {
    const NAME: &'static str = "voxelize_backward";
    type Dims = BackwardDims;
    type On<'t>
        = VoxelizeBackward<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        let others = [
            ("features", &self.features),
            ("grad", &self.grad),
            ("cells", &self.cells),
            ("starts", &self.starts),
            ("order", &self.order),
            ("count", &self.count),
        ];
        self.points.inputs().chain(others)
    }

    fn check(&self) -> Result<BackwardDims> {
        ensure!(self.reduce.uses_features(), "reduce", "{} has no gradient in features", self.reduce);
        let cloud = self.points.check(None, Batch::default())?;
        let (width, feature_strides) = check_features(&self.features, cloud.count)?;
        let shape = [cloud.batch, cloud.count, width];
        let own = self.features.shape();
        ensure!(own == cloud.shape(&shape), "features", "expected shape {:?}, got {own:?}", cloud.shape(&shape));
        check_groups([&self.cells, &self.starts, &self.order, &self.count], &cloud)?;
        let (grad, layout) = (self.grad.shape(), self.grad.layout());
        ensure!(
            grad.last() == Some(&width) && layout.is_contiguous() && self.grad.dtype().is_float(),
            "grad",
            "expected row-major floats with {width} columns, got {} {layout:?}",
            self.grad.dtype()
        );
        let rows = grad[..grad.len() - 1].iter().product();
        Ok(BackwardDims { cloud, width, feature_strides, rows })
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> VoxelizeBackward<'t> {
        VoxelizeBackward {
            points: self.points.on(&mut tensors),
            features: tensors.next(),
            grad: tensors.next(),
            cells: tensors.next(),
            starts: tensors.next(),
            order: tensors.next(),
            count: tensors.next(),
            ..self.clone()
        }
    }

    fn outputs(&self, _dims: &BackwardDims) -> Result<Vec<OutputSpec>> {
        Ok(vec![OutputSpec::new("out", self.features.dtype(), self.features.shape())?])
    }

    fn cpu(&self, dims: &BackwardDims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        let target = row_major(out, 0)?;
        with_float!(self.features.dtype(), on_host, self, dims, target, context)
    }

    fn cuda(&self, dims: &BackwardDims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let target = row_major(out, 0)?;
        let bytes = dims.cloud.total() * dims.width * self.features.dtype().size();
        if bytes == 0 && !launcher.only_loads() {
            return Ok(());
        }
        let (dtype, total) = (self.features.dtype(), dims.cloud.total());
        let width = u32::try_from(dims.width).ok().filter(|&width| width <= i32::MAX as u32);
        let width = width.ok_or_else(|| Error::invalid("features", "too many columns"))?;
        let float = u32::from(float_number(dtype));
        let columns = VECTOR_COLUMNS[float as usize];
        let vector = dims.width.is_multiple_of(columns) && (target as usize).is_multiple_of(16);
        let vectors = if vector { dims.width / columns } else { dims.width };
        let same = self.grad.dtype() == dtype && (!vector || (self.grad.data() as usize).is_multiple_of(16));
        let groups = if self.sparse { dims.rows.min(total) } else { total } as u64;
        let rows = rows_of_warp(groups, vectors, launcher);
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let args = Args {
            features: FeatureArgs::new(&self.features, dims.feature_strides, &dims.cloud),
            groups: GroupsArgs::of([&self.cells, &self.starts, &self.order, &self.count], groups as usize, total),
            grad: self.grad.data(),
            out: target,
            vectors: Divisor::new(vectors as u64),
            grad_rows: dims.rows as u64,
            tiles: groups.div_ceil(WARPS * rows),
            rows: rows as u32,
            width,
            grad_kind: u32::from(float_number(self.grad.dtype())),
            reduce: self.reduce as u32,
            flags: flag(self.sparse, SPARSE) | flag(same, SAME_TYPE),
            padding: 0,
        };
        // As the kernel lays it out: a word for each warp and for each lane.
        let grid = Grid { shared: 4 * (8 + 256), ..Grid::for_blocks(args.tiles) };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps them
        // until the stream has passed. The kernel clamps what it reads of the groups.
        unsafe {
            clear(launcher, &[(target, bytes)])?;
            launcher.launch(&BACKWARD_KERNELS, float + if vector { 4 } else { 0 }, grid, &args)
        }
    }
}

fn on_host<F: Scalar>(
    op: &VoxelizeBackward<'_>,
    dims: &BackwardDims,
    target: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    with_float!(op.grad.dtype(), hand_on::<F>, op, dims, target, context)
}

fn hand_on<G: Scalar, F: Scalar>(
    op: &VoxelizeBackward<'_>,
    dims: &BackwardDims,
    target: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let width = dims.width;
    let (out, grad) = (Shared(target.cast::<F>()), Shared(op.grad.data().cast::<G>().cast_mut()));
    // SAFETY: row-major, of this size.
    unsafe { out.get().write_bytes(0, dims.cloud.total() * width) };
    let most = if op.sparse { dims.rows } else { usize::MAX };
    let groups = Groups::new([op.cells, op.starts, op.order, op.count], most, dims.cloud.total());
    let features = Features::<F>::new(&op.features, dims.feature_strides, &dims.cloud, width);
    let hand_on_row = |row: usize| {
        let place = if op.sparse { row } else { groups.cell(row) as usize };
        let points = groups.points(row);
        if place >= dims.rows || points.count() == 0 {
            return;
        }
        for column in 0..width {
            // SAFETY: the row of the gradient exists, and so do the points; no other task has them.
            unsafe {
                let whole: f64 = (*grad.get().add(place * width + column)).widen().into();
                let part = if op.reduce == Reduce::Mean { whole / points.count() as f64 } else { whole };
                if matches!(op.reduce, Reduce::Max | Reduce::Min) {
                    let order =
                        |at: usize| (*features.at(points.index(at), column)).widen().order(op.reduce == Reduce::Min);
                    let best = (1..points.count()).fold(0, |best, at| if order(at) > order(best) { at } else { best });
                    *out.get().add(points.index(best) as usize * width + column) = F::narrow(part);
                } else {
                    for at in 0..points.count() {
                        *out.get().add(points.index(at) as usize * width + column) = F::narrow(part);
                    }
                }
            }
        }
    };
    for_each(groups.rows.div_ceil(TASK_ROWS), context, &|task| {
        (task * TASK_ROWS..((task + 1) * TASK_ROWS).min(groups.rows)).for_each(hand_on_row);
    })
}
