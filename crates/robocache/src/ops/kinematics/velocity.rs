//! Joint velocities that move a link as wished.
//!
//! `Jᵀ (J Jᵀ + damping² I)⁻¹ twist`: near a singular pose the joints stay slow instead of the link being exact.

use super::chain::Chain;
use super::frames::{Fixed, Frame, all_frames, end_frame, nothing_or_nan};
use super::solve::{columns, damped_step};
use super::wide::{Float, Wide};
use super::{Batch, Count, HEADERS, PART, View, same_type, takes, type_number, type_of};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result, ensure};

/// Output 0 is `velocity [B,J]`.
#[derive(Debug)]
pub struct JointVelocity<'a> {
    /// `[B,J]` or `[J]`, float32 or float64.
    pub q: TensorRef<'a>,
    /// `[B,6]` or `[6]`: linear and angular velocity in the base's frame.
    pub twist: TensorRef<'a>,
    /// What leads to the link.
    pub chain: &'a Chain,
    /// More than 0: metres and radians are treated alike.
    pub damping: f64,
}

/// The number of rows.
#[derive(Debug)]
pub struct Dims(Count);

/// The kernels, by type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("velocity.cu"),
    headers: HEADERS,
    variants: || vec![0, 1],
    entry: |variant| format!("rc_joint_velocity_{}", type_of(variant).0),
    options: |variant| {
        vec![format!("-DRC_NUMBER={}", type_of(variant).1), format!("-DRC_ARGS_SIZE={}", size_of::<Args>())]
    },
};

/// Mirrors `Args` in velocity.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    q: View,
    twist: View,
    out: View,
    rows: u64,
    /// The damping's square.
    damping: f64,
}

impl Op for JointVelocity<'_> {
    const NAME: &'static str = "joint_velocity";
    type Dims = Dims;
    type On<'t>
        = JointVelocity<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("q", &self.q), ("twist", &self.twist)].into_iter()
    }

    fn check(&self) -> Result<Dims> {
        let mut batch = Batch::default();
        self.chain.check("q", &self.q, &mut batch)?;
        one_link(self.chain)?;
        same_type("twist", &self.twist, "q", &self.q)?;
        takes("twist", &self.twist, &[6], || "[B,6] or [6]".to_owned(), &mut batch)?;
        let damping = self.damping;
        ensure!((1e-4..=1e4).contains(&damping), "damping", "expected 0.0001 to 10000, got {damping}");
        Ok(Dims(Count::of(&batch)))
    }

    fn cuts(&self, Dims(count): &Dims) -> Option<Cuts> {
        Some(count.cuts().inputs([(&self.q, 1), (&self.twist, 1)]))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> JointVelocity<'t> {
        JointVelocity { q: tensors.next(), twist: tensors.next(), ..*self }
    }

    fn outputs(&self, Dims(count): &Dims) -> Result<Vec<OutputSpec>> {
        Ok(vec![OutputSpec::new("velocity", self.q.dtype(), &count.shape(&[self.chain.joints]))?])
    }

    fn cpu(&self, Dims(count): &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        let args = self.args(*count, out);
        if self.q.dtype() == DType::F64 {
            on_host::<f64>(self.chain, &args, context)
        } else {
            on_host::<f32>(self.chain, &args, context)
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

/// Refuses several links where only one can be meant.
pub(super) fn one_link(chain: &Chain) -> Result<()> {
    ensure!(chain.links() == 1, "links", "expected one link, got {}", chain.links());
    Ok(())
}

impl JointVelocity<'_> {
    fn args(&self, count: Count, out: &mut Outputs<'_, '_>) -> Args {
        Args {
            q: View::new(&self.q, 1),
            twist: View::new(&self.twist, 1),
            out: View::output(out.get(0), 1),
            rows: count.rows as u64,
            damping: self.damping * self.damping,
        }
    }
}

/// Memory of a task.
struct Work<T> {
    q: Vec<Wide<T, 1>>,
    frames: Vec<Frame<T, 1>>,
    columns: Vec<[T; 6]>,
    held: Vec<bool>,
    step: Vec<T>,
}

fn on_host<T: Float>(chain: &Chain, args: &Args, context: &Context<'_>) -> Result<()> {
    let fixed = Fixed::<T>::new(chain);
    let (rows, joints) = (args.rows as usize, chain.joints);
    for_each(rows.div_ceil(PART), context, &|task| {
        let mut work = Work {
            q: vec![Wide::all(T::ZERO); joints],
            frames: vec![Frame::zero(); fixed.steps.len()],
            columns: vec![[T::ZERO; 6]; joints],
            held: vec![false; joints],
            step: vec![T::ZERO; joints],
        };
        let end = ((task + 1) * PART).min(rows);
        // SAFETY: the views were checked; no other task has these rows.
        unsafe { compute_part(&fixed, args, task * PART, end, &mut work) };
    })
}

vectorized! {
    /// # Safety
    /// The rows must exist in all views, and nobody else may use those of the result.
    unsafe fn compute_part[T: Float](
        fixed: &Fixed<'_, T>,
        args: &Args,
        begin: usize,
        end: usize,
        work: &mut Work<T>,
    ) {
        for row in begin..end {
            for (joint, q) in work.q.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *q = unsafe { args.q.load(row, row + 1, [0, 0, joint]) };
            }
            all_frames(fixed, &work.q, &mut work.frames);
            let last = end_frame(fixed, &work.frames, 0);
            columns(fixed, &work.frames, &last, T::ONE, &mut work.columns);
            let mut wish = [T::ZERO; 6];
            for (i, wish) in wish.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *wish = unsafe { args.twist.get(row, [0, 0, i]) };
            }
            damped_step(&work.columns, &work.held, T::of(args.damping), wish, &mut work.step);
            let nothing = nothing_or_nan(&fixed.steps, &work.q);
            for (joint, &step) in work.step.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { args.out.set(row, [0, 0, joint], step + nothing.0[0]) };
            }
        }
    }
}
