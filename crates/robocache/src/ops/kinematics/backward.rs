//! The gradient of poses and Jacobians in the joints' positions.
//!
//! Of a pose: a force at the link and a torque about it, brought to each joint. Of a Jacobian: its derivative is made of
//! products of its own columns, so sums from either end of the path give all of it at once.

use super::chain::Chain;
use super::frames::{Fixed, Frame, all_frames, column, end_frame, nothing_or_nan, quaternion};
use super::wide::{Float, Wide, cross, dot};
use super::{Batch, Count, HEADERS, PART, View, same_type, takes, type_number, type_of};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result};

/// Output 0 is `grad_q [B,J]`, what a loss changes by with the positions.
#[derive(Debug)]
pub struct ForwardBackward<'a> {
    /// `[B,J]` or `[J]`, float32 or float64.
    pub q: TensorRef<'a>,
    /// What leads to the links.
    pub chain: &'a Chain,
    /// `[B,L,7]`: what the loss changes by with the poses.
    pub pose: Option<TensorRef<'a>>,
    /// `[B,L,6,J]`: the same with the Jacobians.
    pub jacobian: Option<TensorRef<'a>>,
}

/// The number of rows.
#[derive(Debug)]
pub struct Dims(Count);

/// The kernels, by type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("backward.cu"),
    headers: HEADERS,
    variants: || vec![0, 1],
    entry: |variant| format!("rc_forward_backward_{}", type_of(variant).0),
    options: |variant| {
        vec![format!("-DRC_NUMBER={}", type_of(variant).1), format!("-DRC_ARGS_SIZE={}", size_of::<Args>())]
    },
};

/// Mirrors `Args` in backward.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    q: View,
    pose: View,
    jacobian: View,
    out: View,
    rows: u64,
}

impl Op for ForwardBackward<'_> {
    const NAME: &'static str = "fk_backward";
    type Dims = Dims;
    type On<'t>
        = ForwardBackward<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        let pose = self.pose.as_ref().map(|pose| ("grad_pose", pose));
        let jacobian = self.jacobian.as_ref().map(|jacobian| ("grad_jacobian", jacobian));
        [("q", &self.q)].into_iter().chain(pose).chain(jacobian)
    }

    fn check(&self) -> Result<Dims> {
        let mut batch = Batch::default();
        self.chain.check("q", &self.q, &mut batch)?;
        let links = self.chain.links();
        if let Some(pose) = &self.pose {
            same_type("grad_pose", pose, "q", &self.q)?;
            takes("grad_pose", pose, &[links, 7], || format!("[B,{links},7]"), &mut batch)?;
        }
        if let Some(jacobian) = &self.jacobian {
            same_type("grad_jacobian", jacobian, "q", &self.q)?;
            let inner = [links, 6, self.chain.joints];
            takes("grad_jacobian", jacobian, &inner, || format!("[B,{links},6,{}]", inner[2]), &mut batch)?;
        }
        Ok(Dims(Count::of(&batch)))
    }

    fn cuts(&self, Dims(count): &Dims) -> Option<Cuts> {
        let pose = self.pose.as_ref().map(|pose| (pose, 2));
        let jacobian = self.jacobian.as_ref().map(|jacobian| (jacobian, 3));
        Some(count.cuts().inputs([(&self.q, 1)]).inputs(pose).inputs(jacobian))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> ForwardBackward<'t> {
        ForwardBackward {
            q: tensors.next(),
            pose: tensors.next_if(self.pose.is_some()),
            jacobian: tensors.next_if(self.jacobian.is_some()),
            ..*self
        }
    }

    fn outputs(&self, Dims(count): &Dims) -> Result<Vec<OutputSpec>> {
        Ok(vec![OutputSpec::new("grad_q", self.q.dtype(), &count.shape(&[self.chain.joints]))?])
    }

    fn cpu(&self, Dims(count): &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        let args = self.args(*count, out);
        if self.q.dtype() == DType::F64 {
            on_host::<f64, 4>(self.chain, &args, context)
        } else {
            on_host::<f32, 8>(self.chain, &args, context)
        }
    }

    fn cuda(&self, Dims(count): &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let args = self.args(*count, out);
        if count.rows == 0 || self.chain.joints == 0 {
            return Ok(());
        }
        let grid = Grid { threads: 128, ..Grid::for_blocks(count.rows.div_ceil(128) as u64) };
        // SAFETY: the views were checked and live on this GPU; the framework keeps them until the stream has passed.
        unsafe { launcher.launch_special(&KERNELS, type_number(self.q.dtype()), self.chain.special(), grid, &args) }
    }
}

impl ForwardBackward<'_> {
    fn args(&self, count: Count, out: &mut Outputs<'_, '_>) -> Args {
        Args {
            q: View::new(&self.q, 1),
            pose: View::optional(self.pose.as_ref(), 2),
            jacobian: View::optional(self.jacobian.as_ref(), 3),
            out: View::output(out.get(0), 1),
            rows: count.rows as u64,
        }
    }
}

fn on_host<T: Float, const N: usize>(chain: &Chain, args: &Args, context: &Context<'_>) -> Result<()> {
    let fixed = Fixed::<T>::new(chain);
    let rows = args.rows as usize;
    for_each(rows.div_ceil(PART), context, &|task| {
        let mut frames = vec![Frame::<T, N>::zero(); fixed.steps.len()];
        let mut q = vec![Wide::all(T::ZERO); chain.joints];
        let mut grads = vec![Wide::all(T::ZERO); fixed.steps.len()];
        let end = ((task + 1) * PART).min(rows);
        // SAFETY: the views were checked; no other task has these rows.
        unsafe { compute_part(&fixed, args, task * PART, end, &mut q, &mut frames, &mut grads) };
    })
}

vectorized! {
    /// # Safety
    /// The rows must exist in all views, and nobody else may use those of the result.
    unsafe fn compute_part[T: Float, const N: usize](
        fixed: &Fixed<'_, T>,
        args: &Args,
        begin: usize,
        end: usize,
        q: &mut [Wide<T, N>],
        frames: &mut [Frame<T, N>],
        grads: &mut [Wide<T, N>],
    ) {
        for first in (begin..end).step_by(N) {
            for (joint, q) in q.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *q = unsafe { args.q.load(first, end, [0, 0, joint]) };
            }
            all_frames(fixed, q, frames);
            let nothing = nothing_or_nan(&fixed.steps, q);
            grads.fill(nothing);
            for link in 0..fixed.chain.links() {
                let last = end_frame(fixed, frames, link);
                if !args.pose.is_none() {
                    let mut given = [Wide::all(T::ZERO); 7];
                    for (i, given) in given.iter_mut().enumerate() {
                        // SAFETY: the caller's promise.
                        *given = unsafe { args.pose.load(first, end, [0, link, i]) };
                    }
                    of_pose(fixed, frames, link, &last, &given, grads);
                }
                if !args.jacobian.is_none() {
                    // SAFETY: the caller's promise.
                    unsafe { of_jacobian(fixed, args, first, end, frames, link, &last, grads) };
                }
            }
            for joint in 0..fixed.chain.joints {
                let mut sum = nothing;
                for (step, grad) in fixed.steps.iter().zip(grads.iter()) {
                    if step.joint == joint {
                        sum = grad.fma_by(step.factor, sum);
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { args.out.store(first, end, [0, 0, joint], sum) };
            }
        }
    }
}

/// What the poses of a link add to the gradients of the steps that move it.
#[inline(always)]
fn of_pose<T: Float, const N: usize>(
    fixed: &Fixed<'_, T>,
    frames: &[Frame<T, N>],
    link: usize,
    last: &Frame<T, N>,
    given: &[Wide<T, N>; 7],
    grads: &mut [Wide<T, N>],
) {
    let [fx, fy, fz, gx, gy, gz, gw] = *given;
    let [x, y, z, w] = quaternion(&last.axes);
    // A small turn r changes the quaternion by half of r times it.
    let across = cross([x, y, z], [gx, gy, gz]);
    let half = Wide::all(T::of(0.5));
    let torque = [
        (w.fma(gx, across[0]) - gw * x) * half,
        (w.fma(gy, across[1]) - gw * y) * half,
        (w.fma(gz, across[2]) - gw * z) * half,
    ];
    for &place in &fixed.chain.ends[link].path {
        let [linear, angular] = column(fixed.steps[place].slides, &frames[place], &last.origin);
        grads[place] = grads[place] + (dot(linear, [fx, fy, fz]) + dot(angular, torque));
    }
}

/// The gradient of a step's column.
///
/// # Safety
/// The rows must exist.
#[inline(always)]
unsafe fn given_column<T: Float, const N: usize>(
    args: &Args,
    first: usize,
    end: usize,
    link: usize,
    joint: usize,
    factor: T,
) -> [[Wide<T, N>; 3]; 2] {
    let mut given = [[Wide::all(T::ZERO); 3]; 2];
    for i in 0..6 {
        // SAFETY: the caller's promise.
        given[i / 3][i % 3] = unsafe { args.jacobian.load(first, end, [link, i, joint]) } * Wide::all(factor);
    }
    given
}

/// What the Jacobian of a link adds to the gradients of the steps that move it.
///
/// A step i before a step j turns the column of j; one behind it moves the point that the column of j is about:
/// `dJ_j/dq_i = z_i × J_j`, and `z_j × J_i` where i comes later; of the angular part only the first.
///
/// # Safety
/// The rows must exist.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a part of a loop")]
unsafe fn of_jacobian<T: Float, const N: usize>(
    fixed: &Fixed<'_, T>,
    args: &Args,
    first: usize,
    end: usize,
    frames: &[Frame<T, N>],
    link: usize,
    last: &Frame<T, N>,
    grads: &mut [Wide<T, N>],
) {
    let path = &fixed.chain.ends[link].path;
    // From the tip: what this step and those behind it bring.
    let mut turned = [Wide::all(T::ZERO); 3];
    for &place in path.iter().rev() {
        let step = &fixed.steps[place];
        let [linear, angular] = column(step.slides, &frames[place], &last.origin);
        // SAFETY: the caller's promise.
        let [to_linear, to_angular] = unsafe { given_column(args, first, end, link, step.joint, step.factor) };
        let own = cross(linear, to_linear);
        for i in 0..3 {
            turned[i] = turned[i] + own[i];
        }
        if !step.slides {
            let z = frames[place].z();
            grads[place] = grads[place] + dot(z, turned);
            let behind = cross(angular, to_angular);
            for i in 0..3 {
                turned[i] = turned[i] + behind[i];
            }
        }
    }
    // From the base: what the steps before bring.
    let mut moved = [Wide::all(T::ZERO); 3];
    for &place in path {
        let step = &fixed.steps[place];
        let [linear, angular] = column(step.slides, &frames[place], &last.origin);
        grads[place] = grads[place] + dot(moved, linear);
        if !step.slides {
            // SAFETY: the caller's promise.
            let [to_linear, _] = unsafe { given_column(args, first, end, link, step.joint, step.factor) };
            let before = cross(to_linear, angular);
            for i in 0..3 {
                moved[i] = moved[i] + before[i];
            }
        }
    }
}
