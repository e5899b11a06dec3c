//! Conversions on the host, row by row on all cores.

use std::ops::Range;

use super::dual::Float;
use super::formulas::{ROOM, convert, pull_back};
use super::representation::Representation;
use super::{Convert, ConvertBackward, Dims, Steps, steps};
use crate::cpu::{for_each, vectorized};
use crate::ops::scalar::Scalar;
use crate::tensor::{TensorMut, TensorRef};
use crate::{Context, Outputs, Result};

/// Rows of a task.
const PART: usize = 2048;

/// The numbers of rotations in memory.
#[derive(Clone, Copy)]
struct Rows<P> {
    data: P,
    steps: Steps,
    numbers: usize,
}

// SAFETY: tasks write rows of their own, and nobody writes what is read.
unsafe impl<P> Sync for Rows<P> {}

impl<T: Scalar> Rows<*const T> {
    fn new(tensor: &TensorRef<'_>, representation: Representation) -> Self {
        let steps = steps(tensor, representation);
        Self { data: tensor.data().cast(), steps, numbers: representation.numbers() }
    }

    /// # Safety
    /// The row must exist.
    #[inline(always)]
    unsafe fn read(&self, row: usize) -> [T::Compute; ROOM]
    where
        T::Compute: Float,
    {
        let [step, three, one] = self.steps;
        let mut numbers = [T::Compute::of(0.0); ROOM];
        // All of them, so that the loop is unrolled.
        for (i, number) in numbers.iter_mut().enumerate() {
            if i >= self.numbers {
                continue;
            }
            let offset = row as isize * step + (i / 3) as isize * three + (i % 3) as isize * one;
            // SAFETY: the caller's promise; `check` proved the strides.
            *number = unsafe { *self.data.offset(offset) }.widen();
        }
        numbers
    }
}

impl<T: Scalar> Rows<*mut T> {
    fn new(tensor: &mut TensorMut<'_>, representation: Representation) -> Self {
        let steps = steps(tensor.view(), representation);
        Self { data: tensor.data_mut().cast(), steps, numbers: representation.numbers() }
    }

    /// # Safety
    /// The row must exist, and nobody else may use it.
    #[inline(always)]
    unsafe fn write(&self, row: usize, numbers: &[T::Compute; ROOM]) {
        let [step, three, one] = self.steps;
        for (i, &number) in numbers.iter().enumerate() {
            if i >= self.numbers {
                continue;
            }
            let offset = row as isize * step + (i / 3) as isize * three + (i % 3) as isize * one;
            // SAFETY: the caller's promise; `check` proved the strides.
            unsafe { *self.data.offset(offset) = T::narrow(number.into()) };
        }
    }
}

/// Calls `body` with parts of the rows on all cores.
fn for_each_part(rows: usize, context: &Context<'_>, body: &(dyn Fn(Range<usize>) + Sync)) -> Result<()> {
    for_each(rows.div_ceil(PART), context, &|task| body(task * PART..((task + 1) * PART).min(rows)))
}

pub(super) fn forward<T: Scalar<Compute: Float>>(
    op: &Convert<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let Some(output) = out.get(0) else { return Ok(()) };
    let (x, out) = (Rows::<*const T>::new(&op.x, op.source), Rows::<*mut T>::new(output, op.target));
    for_each_part(dims.rows, context, &|range| {
        // SAFETY: the rows exist in both; no other task writes them.
        unsafe { convert_part(&x, &out, op.source, op.target, range) };
    })
}

pub(super) fn backward<T: Scalar<Compute: Float>>(
    op: &ConvertBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let Some(output) = out.get(0) else { return Ok(()) };
    let (source, target) = (op.forward.source, op.forward.target);
    let (x, out) = (Rows::<*const T>::new(&op.forward.x, source), Rows::<*mut T>::new(output, source));
    let grad = Rows::<*const T>::new(&op.grad, target);
    for_each_part(dims.rows, context, &|range| {
        // SAFETY: the rows exist in all; no other task writes them.
        unsafe { pull_back_part(&x, &grad, &out, source, target, range) };
    })
}

vectorized! {
    /// # Safety
    /// The rows must exist in both, and nobody else may use what is written.
    unsafe fn convert_part[T: Scalar<Compute: Float>](
        x: &Rows<*const T>,
        out: &Rows<*mut T>,
        source: Representation,
        target: Representation,
        range: Range<usize>,
    ) {
        for row in range {
            // SAFETY: the caller's promise.
            unsafe { out.write(row, &convert(&x.read(row), source, target)) };
        }
    }
}

vectorized! {
    /// # Safety
    /// The rows must exist in all, and nobody else may use what is written.
    unsafe fn pull_back_part[T: Scalar<Compute: Float>](
        x: &Rows<*const T>,
        grad: &Rows<*const T>,
        out: &Rows<*mut T>,
        source: Representation,
        target: Representation,
        range: Range<usize>,
    ) {
        for row in range {
            // SAFETY: the caller's promise.
            unsafe { out.write(row, &pull_back(&x.read(row), &grad.read(row), source, target)) };
        }
    }
}
