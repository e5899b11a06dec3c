//! Points in another frame.
//!
//! `((m0 x + m1 y) + m2 z) + m3` for each axis, without contraction, in what the points compute in:
//! the same bits on every backend.

use std::ops::Range;

use super::cloud::{BLOCK, Block, Cloud, Points, PointsMut};
use super::pose::{Pose, Small, SmallArgs, pose_axes};
use super::rows::{Batch, strides};
use super::scalar::{FLOATS, Real, Scalar, float_number, with_float};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{for_each, vectorized};
use crate::cuda::{CloudArgs, Grid, KernelFamily, Launcher, PointsOut};
use crate::tensor::TensorRef;
use crate::{Context, Op, OutputSpec, Outputs, Result};

/// Output 0 is `out [B,N,3]` with the dtype of the points.
#[derive(Debug, Clone)]
pub struct TransformPoints<'a> {
    /// `[B,N,3]` or `[N,3]` floats.
    pub points: TensorRef<'a>,
    /// A matrix `[4,4]` or `[3,4]`, or seven numbers, xyz and a quaternion xyzw; with a batch or without.
    pub pose: Small<'a>,
}

/// Sizes and strides.
#[derive(Debug)]
pub struct Dims {
    cloud: Cloud,
    form: usize,
}

/// The kernels, by the points' type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("transform.cu"),
    headers: &[],
    variants: || (0..4).collect(),
    entry: |number| format!("rc_transform_points_{}", FLOATS[number as usize % 4].0),
    options: |number| {
        vec![format!("-DRC_POINT={}", FLOATS[number as usize % 4].1), format!("-DRC_ARGS_SIZE={}", size_of::<Args>())]
    },
};

/// Mirrors `Args` in transform.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    cloud: CloudArgs,
    pose: SmallArgs,
    out: PointsOut,
}

impl Op for TransformPoints<'_> {
    const NAME: &'static str = "transform_points";
    type Dims = Dims;
    type On<'t>
        = TransformPoints<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("points", &self.points)].into_iter().chain(self.pose.tensor().map(|pose| ("pose", pose)))
    }

    fn check(&self) -> Result<Dims> {
        Cloud::new(&self.points, None, Batch::default())?;
        let mut batch = Batch::default();
        let form = Pose::new("pose", self.pose, &mut batch)?.form;
        Ok(Dims { cloud: Cloud::new(&self.points, None, batch)?, form })
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        let cuts = Cuts::new(dims.cloud.has_batch, dims.cloud.batch).items("point", dims.cloud.count);
        let pose = self.pose.tensor().map(|pose| (pose, pose_axes(dims.form)));
        Some(cuts.input_of_items(&self.points, 2, 0).inputs(pose))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> TransformPoints<'t> {
        TransformPoints { points: tensors.next(), pose: self.pose.on(&mut tensors) }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = [dims.cloud.batch, dims.cloud.count, 3];
        Ok(vec![OutputSpec::new("out", self.points.dtype(), dims.cloud.shape(&shape))?])
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        with_float!(self.points.dtype(), on_host, self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let Some(output) = out.get(0) else { return Ok(()) };
        if dims.cloud.total() == 0 {
            return Ok(());
        }
        let args = Args {
            cloud: CloudArgs::new(&self.points, None, &dims.cloud, false, None, launcher),
            pose: SmallArgs::pose(&Pose { source: self.pose, form: dims.form }),
            out: PointsOut::new(output),
        };
        let variant = u32::from(float_number(self.points.dtype()));
        let grid = Grid { shared: PointsOut::staged(self.points.dtype()), ..args.cloud.grid() };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&KERNELS, variant, grid, &args) }
    }
}

fn on_host<T: Scalar>(
    op: &TransformPoints<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    const PART: usize = 16 << 10;
    let Some(output) = out.get(0) else { return Ok(()) };
    let out_strides = strides::<3>(output.view());
    let out = PointsMut::<T>::new(output.data_mut(), out_strides);
    let (points, pose) = (Points::<T>::new(&op.points, &dims.cloud), Pose { source: op.pose, form: dims.form });
    let parts = dims.cloud.count.div_ceil(PART);
    for_each(dims.cloud.batch * parts, context, &|task| {
        let (row, first) = (task / parts, task % parts * PART);
        let matrix = pose.matrix(row).map(T::Compute::from_f64);
        // SAFETY: the row and the points exist in both; no other task writes these points.
        unsafe { move_part(&points, &out, &matrix, row, first..(first + PART).min(dims.cloud.count)) };
    })
}

vectorized! {
    /// # Safety
    /// The row and the points must exist in both, and nobody else may use what is written.
    unsafe fn move_part[T: Scalar](
        points: &Points<T>,
        out: &PointsMut<T>,
        matrix: &[T::Compute; 12],
        row: usize,
        range: Range<usize>,
    ) {
        let mut block = [[T::Compute::from_f64(0.0); BLOCK]; 3];
        for first in range.clone().step_by(BLOCK) {
            // SAFETY: the caller's promise.
            unsafe {
                points.read(row, first, range.end, &mut block);
                transform_block(matrix, &mut block);
                out.write(row, first, range.end, &block);
            }
        }
    }
}

/// Each point in the frame that the pose maps to.
#[inline(always)]
pub(crate) fn transform_block<C: Real>(matrix: &[C; 12], [x, y, z]: &mut Block<C>) {
    for ((x, y), z) in x.iter_mut().zip(y).zip(z) {
        [*x, *y, *z] = transform(matrix, [*x, *y, *z]);
    }
}

/// The point in the frame that the pose maps to.
#[inline(always)]
pub(crate) fn transform<C: Real>(matrix: &[C; 12], [x, y, z]: [C; 3]) -> [C; 3] {
    let axis =
        |m: usize| matrix[m].times(x).plus(matrix[m + 1].times(y)).plus(matrix[m + 2].times(z)).plus(matrix[m + 3]);
    [axis(0), axis(4), axis(8)]
}
