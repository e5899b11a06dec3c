//! Poses of links and their Jacobians.
//!
//! A pose is xyz and a quaternion xyzw with w >= 0. A Jacobian has six rows, the velocity of the link's origin and then its
//! angular velocity, both in the base's frame, and a column for each joint.

use super::chain::Chain;
use super::frames::{Fixed, Frame, all_frames, column, end_frame, nothing_or_nan, quaternion};
use super::wide::{Float, Wide};
use super::{Batch, Count, HEADERS, PART, View, type_number, type_of};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result};

/// Outputs: `pose [B,L,7]`, then `jacobian [B,L,6,J]`, those that are asked for.
#[derive(Debug)]
pub struct Forward<'a> {
    /// `[B,J]` or `[J]`, float32 or float64.
    pub q: TensorRef<'a>,
    /// What leads to the links.
    pub chain: &'a Chain,
    /// Whether poses are wanted.
    pub pose: bool,
    /// Whether Jacobians are wanted.
    pub jacobian: bool,
    /// Whether results have no axis of links, which is then only one.
    pub single: bool,
}

/// The number of rows.
#[derive(Debug)]
pub struct Dims(Count);

/// The kernels, by type and by what they make: poses, Jacobians, or both.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("forward.cu"),
    headers: HEADERS,
    variants: || (2..8).collect(),
    entry: |variant| {
        let made = ["", "pose", "jacobian", "both"][variant as usize / 2 % 4];
        format!("rc_forward_{made}_{}", type_of(variant).0)
    },
    options: |variant| {
        vec![
            format!("-DRC_NUMBER={}", type_of(variant).1),
            format!("-DRC_POSE={}", variant / 2 % 2),
            format!("-DRC_JACOBIAN={}", variant / 4 % 2),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

/// Mirrors `Args` in forward.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    q: View,
    pose: View,
    jacobian: View,
    rows: u64,
    /// Whether a result is written by way of shared memory: bit 0 poses, bit 1 Jacobians.
    dense: u32,
    /// Bytes of shared memory of each warp; filled in by who knows the grid.
    warp_bytes: u32,
}

impl Op for Forward<'_> {
    const NAME: &'static str = "fk";
    type Dims = Dims;
    type On<'t>
        = Forward<'t>
    where
        Self: 't;

    fn name(&self) -> &'static str {
        if self.jacobian { "jacobian" } else { "fk" }
    }

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("q", &self.q)].into_iter()
    }

    fn check(&self) -> Result<Dims> {
        let mut batch = Batch::default();
        self.chain.check("q", &self.q, &mut batch)?;
        Ok(Dims(Count::of(&batch)))
    }

    fn cuts(&self, Dims(count): &Dims) -> Option<Cuts> {
        Some(count.cuts().inputs([(&self.q, 1)]))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Forward<'t> {
        Forward { q: tensors.next(), ..*self }
    }

    fn outputs(&self, Dims(count): &Dims) -> Result<Vec<OutputSpec>> {
        let mut outputs = Vec::with_capacity(2);
        let mut add = |name, inner: &[usize]| -> Result<()> {
            let links = (!self.single).then_some(self.chain.links());
            let inner: Vec<_> = links.into_iter().chain(inner.iter().copied()).collect();
            outputs.push(OutputSpec::new(name, self.q.dtype(), &count.shape(&inner))?);
            Ok(())
        };
        if self.pose {
            add("pose", &[7])?;
        }
        if self.jacobian {
            add("jacobian", &[6, self.chain.joints])?;
        }
        Ok(outputs)
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
        let mut args = self.args(*count, out);
        if count.rows == 0 {
            return Ok(());
        }
        let made = u32::from(self.pose) + 2 * u32::from(self.jacobian);
        let variant = 2 * made + type_number(self.q.dtype());
        let [poses, jacobians] = self.staged();
        let bytes = poses.filter(|_| args.dense & 1 != 0).max(jacobians.filter(|_| args.dense & 2 != 0)).unwrap_or(0);
        args.warp_bytes = bytes as u32;
        let warps = MOST_STAGED.checked_div(bytes).unwrap_or(4).clamp(1, 4);
        let blocks = Grid::for_blocks(count.rows.div_ceil(32 * warps) as u64);
        let grid = Grid { threads: 32 * warps as u32, shared: (warps * bytes) as u32, ..blocks };
        // SAFETY: the views were checked and live on this GPU; the framework keeps them until the stream has passed.
        unsafe { launcher.launch_special(&KERNELS, variant, self.chain.special(), grid, &args) }
    }
}

/// Bytes of shared memory for the rows of a warp; none where they are too wide. Mirrors `Staged` in frames.cuh.
fn staged_bytes(width: usize, dtype: DType) -> Option<usize> {
    let bytes = 32 * (width | 1) * dtype.size();
    (bytes <= MOST_STAGED).then_some(bytes)
}

/// Bytes of shared memory that a block takes at most.
const MOST_STAGED: usize = 48 << 10;

impl Forward<'_> {
    /// Bytes of shared memory for what is made, where it is wanted and fits.
    fn staged(&self) -> [Option<usize>; 2] {
        let (links, dtype) = (self.chain.links(), self.q.dtype());
        let poses = staged_bytes(links * 7, dtype).filter(|_| self.pose);
        // Without joints there are no Jacobians to write.
        let wanted = self.jacobian && self.chain.joints > 0;
        [poses, staged_bytes(links * 6 * self.chain.joints, dtype).filter(|_| wanted)]
    }

    fn args(&self, count: Count, out: &mut Outputs<'_, '_>) -> Args {
        let links = usize::from(!self.single);
        let is_dense = |out: Option<&mut crate::TensorMut<'_>>| {
            u32::from(out.is_some_and(|out| out.view().layout().is_contiguous()))
        };
        let after = usize::from(self.pose);
        let [poses, jacobians] = self.staged();
        let dense = poses.map_or(0, |_| is_dense(out.get(0))) | jacobians.map_or(0, |_| is_dense(out.get(after)) << 1);
        let pose = if self.pose { View::output(out.get(0), 1 + links) } else { View::NONE };
        let jacobian = if self.jacobian { View::output(out.get(after), 2 + links) } else { View::NONE };
        let q = View::new(&self.q, 1);
        Args { q, pose, jacobian, rows: count.rows as u64, dense, warp_bytes: 0 }
    }
}

fn on_host<T: Float, const N: usize>(chain: &Chain, args: &Args, context: &Context<'_>) -> Result<()> {
    let fixed = Fixed::<T>::new(chain);
    let rows = args.rows as usize;
    for_each(rows.div_ceil(PART), context, &|task| {
        let mut frames = vec![Frame::<T, N>::zero(); fixed.steps.len()];
        let mut q = vec![Wide::all(T::ZERO); chain.joints];
        let mut columns = vec![[Wide::all(T::ZERO); 6]; chain.joints];
        let end = ((task + 1) * PART).min(rows);
        // SAFETY: the views were checked; no other task has these rows.
        unsafe { compute_part(&fixed, args, task * PART, end, &mut q, &mut frames, &mut columns) };
    })
}

vectorized! {
    /// # Safety
    /// The rows must exist in all views, and nobody else may use those of results.
    unsafe fn compute_part[T: Float, const N: usize](
        fixed: &Fixed<'_, T>,
        args: &Args,
        begin: usize,
        end: usize,
        q: &mut [Wide<T, N>],
        frames: &mut [Frame<T, N>],
        columns: &mut [[Wide<T, N>; 6]],
    ) {
        for first in (begin..end).step_by(N) {
            for (joint, q) in q.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *q = unsafe { args.q.load(first, end, [0, 0, joint]) };
            }
            all_frames(fixed, q, frames);
            let nothing = nothing_or_nan(&fixed.steps, q);
            for link in 0..fixed.chain.links() {
                let last = end_frame(fixed, frames, link);
                if !args.pose.is_none() {
                    let turn = quaternion(&last.axes);
                    for i in 0..3 {
                        // SAFETY: the caller's promise.
                        unsafe { args.pose.store(first, end, [0, link, i], last.origin[i] + nothing) };
                    }
                    for (i, &number) in turn.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { args.pose.store(first, end, [0, link, 3 + i], number + nothing) };
                    }
                }
                if args.jacobian.is_none() {
                    continue;
                }
                columns.fill([Wide::all(T::ZERO); 6]);
                for &place in &fixed.chain.ends[link].path {
                    let step = &fixed.steps[place];
                    let [linear, angular] = column(step.slides, &frames[place], &last.origin);
                    let to = &mut columns[step.joint];
                    for i in 0..3 {
                        to[i] = linear[i].fma_by(step.factor, to[i]);
                        to[3 + i] = angular[i].fma_by(step.factor, to[3 + i]);
                    }
                }
                for (joint, column) in columns.iter().enumerate() {
                    for (i, &number) in column.iter().enumerate() {
                        // SAFETY: the caller's promise.
                        unsafe { args.jacobian.store(first, end, [link, i, joint], number + nothing) };
                    }
                }
            }
        }
    }
}
