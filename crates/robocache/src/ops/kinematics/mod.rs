//! Robots: where links are for given joints, how they move, and which joints bring a link somewhere.
//!
//! `robot.rs` is what a robot is, `chain.rs` what of it a call needs, `frames.rs` the arithmetic. CPU and GPU give the same
//! bits but where an op says otherwise. A NaN or infinite position makes its row NaN.

mod backward;
mod chain;
mod dh;
mod forward;
mod frames;
mod inverse;
pub mod pose;
mod robot;
mod solve;
#[cfg(test)]
mod tests;
mod velocity;
mod wide;

pub use backward::ForwardBackward;
pub use chain::Chain;
pub use dh::{Convention, DhRow};
pub use forward::Forward;
pub use inverse::{InverseKinematics, Tolerance};
pub use robot::{Joint, Mimic, Motion, Robot};
pub use velocity::JointVelocity;

pub(crate) use backward::KERNELS as BACKWARD_KERNELS;
pub(crate) use forward::KERNELS as FORWARD_KERNELS;
pub(crate) use inverse::KERNELS as INVERSE_KERNELS;
pub(crate) use velocity::KERNELS as VELOCITY_KERNELS;

use super::rows::Batch;
use crate::chunks::Cuts;
use crate::cuda::Special;
use crate::tensor::{DType, TensorMut, TensorRef};
use crate::{Result, ensure};
use wide::Wide;

/// Headers of all kernels here. The robot's own takes the place of `robot.cuh`, which is an example.
const HEADERS: &[(&str, &str)] = &[
    ("robot.cuh", include_str!("robot.cuh")),
    ("frames.cuh", include_str!("frames.cuh")),
    ("solve.cuh", include_str!("solve.cuh")),
];

/// Rows of one task on the CPU.
const PART: usize = 1024;

/// A variant's number is that of its type, and what it makes.
fn type_of(variant: u32) -> (&'static str, &'static str) {
    if variant.is_multiple_of(2) { ("float32", "float") } else { ("float64", "double") }
}

/// float32 is 0, float64 is 1.
fn type_number(dtype: DType) -> u32 {
    u32::from(dtype == DType::F64)
}

impl Chain {
    /// The header that a kernel is compiled with.
    fn special(&self) -> Special<'_> {
        Special { name: "robot.cuh", text: &self.header, id: self.id }
    }

    /// Checks positions, and takes in their batch.
    fn check(&self, name: &'static str, q: &TensorRef<'_>, batch: &mut Batch) -> Result<()> {
        let wanted = || {
            let names: Vec<_> = self.names.iter().take(8).map(String::as_str).collect();
            let more = if self.names.len() > names.len() { ", ..." } else { "" };
            format!("[B,{0}] or [{0}] ({1}{more})", self.joints, names.join(", "))
        };
        ensure!(is_float(q.dtype()), name, "expected float32 or float64, got {}", q.dtype());
        takes(name, q, &[self.joints], wanted, batch)
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// Checks the last axes of a tensor, and takes in its batch.
fn takes(
    name: &'static str,
    tensor: &TensorRef<'_>,
    inner: &[usize],
    wanted: impl Fn() -> String,
    batch: &mut Batch,
) -> Result<()> {
    let shape = tensor.shape();
    let fits = shape.ends_with(inner) && (shape.len() == inner.len() || shape.len() == inner.len() + 1);
    ensure!(fits, name, "expected {}, got shape {shape:?}", wanted());
    batch.add(name, tensor, inner.len()).map(drop)
}

/// Refuses a second tensor of another type.
fn same_type(name: &'static str, tensor: &TensorRef<'_>, first: &'static str, like: &TensorRef<'_>) -> Result<()> {
    ensure!(tensor.dtype() == like.dtype(), name, "expected {} as {first} has, got {}", like.dtype(), tensor.dtype());
    Ok(())
}

/// The batch of a call: how many rows, and whether results have an axis for them.
#[derive(Debug, Clone, Copy)]
struct Count {
    rows: usize,
    batched: bool,
}

impl Count {
    fn of(batch: &Batch) -> Self {
        Self { rows: batch.size.map_or(1, |(size, _)| size), batched: batch.size.is_some() }
    }

    /// Rows do not know of each other.
    fn cuts(self) -> Cuts {
        Cuts::new(self.batched, self.rows)
    }

    /// A shape with the batch in front where there is one.
    fn shape(self, inner: &[usize]) -> Vec<usize> {
        self.batched.then_some(self.rows).into_iter().chain(inner.iter().copied()).collect()
    }
}

/// A tensor as kernels and loops see it: strides of its rows, and of up to three axes in a row. Mirrors `rc::View` in
/// frames.cuh.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct View {
    data: *mut u8,
    strides: [i64; 4],
}

// SAFETY: threads read what nobody writes, and write rows of their own.
unsafe impl Sync for View {}
// SAFETY: as above.
unsafe impl Send for View {}

impl View {
    const NONE: Self = Self { data: std::ptr::null_mut(), strides: [0; 4] };

    /// Of a tensor with so many axes in a row, which are the last of the three.
    fn new(tensor: &TensorRef<'_>, inner: usize) -> Self {
        let layout = tensor.layout();
        let batched = layout.rank() > inner;
        let mut strides = [0; 4];
        if batched && layout.shape()[0] != 1 {
            strides[0] = layout.strides()[0] as i64;
        }
        let own = &layout.strides()[usize::from(batched)..];
        for (to, &stride) in strides[4 - inner..].iter_mut().zip(own) {
            *to = stride as i64;
        }
        Self { data: tensor.data().cast_mut(), strides }
    }

    fn optional(tensor: Option<&TensorRef<'_>>, inner: usize) -> Self {
        tensor.map_or(Self::NONE, |tensor| Self::new(tensor, inner))
    }

    /// Of a result, if it is wanted.
    fn output(tensor: Option<&mut TensorMut<'_>>, inner: usize) -> Self {
        tensor.map_or(Self::NONE, |tensor| Self { data: tensor.data_mut(), ..Self::new(tensor.view(), inner) })
    }

    fn is_none(&self) -> bool {
        self.data.is_null()
    }

    #[inline(always)]
    fn offset(&self, row: usize, [i, j, k]: [usize; 3]) -> isize {
        let [rows, first, second, third] = self.strides;
        (row as i64 * rows + i as i64 * first + j as i64 * second + k as i64 * third) as isize
    }

    /// # Safety
    /// The element must exist and be a `T`, and nobody may write it meanwhile.
    #[inline(always)]
    unsafe fn get<T: Copy>(&self, row: usize, place: [usize; 3]) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.data.cast::<T>().offset(self.offset(row, place)).read() }
    }

    /// # Safety
    /// The element must exist and be a `T`, and nobody else may use it meanwhile.
    #[inline(always)]
    unsafe fn set<T: Copy>(&self, row: usize, place: [usize; 3], value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.data.cast::<T>().offset(self.offset(row, place)).write(value) }
    }

    /// The same number of rows side by side; lanes past the end repeat the last row.
    ///
    /// # Safety
    /// As for [`View::get`], for rows from `first` up to and without `end`.
    #[inline(always)]
    unsafe fn load<T: wide::Float, const N: usize>(&self, first: usize, end: usize, place: [usize; 3]) -> Wide<T, N> {
        let mut wide = Wide([T::ZERO; N]);
        for lane in 0..N {
            // SAFETY: the caller's promise.
            wide.0[lane] = unsafe { self.get((first + lane).min(end - 1), place) };
        }
        wide
    }

    /// # Safety
    /// As for [`View::set`], for rows from `first` up to and without `end`.
    #[inline(always)]
    unsafe fn store<T: wide::Float, const N: usize>(
        &self,
        first: usize,
        end: usize,
        place: [usize; 3],
        wide: Wide<T, N>,
    ) {
        for lane in 0..N.min(end - first) {
            // SAFETY: the caller's promise.
            unsafe { self.set(first + lane, place, wide.0[lane]) };
        }
    }
}
