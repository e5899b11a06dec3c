//! The features of one cell made into one row. Twin of `rows.cuh`.
//!
//! Sums are taken in f64. The order is that of the points: one after the other below [`LONG`] of them,
//! else in [`LANES`] sums of every so manieth, which are then added pairwise. So the bits depend on
//! nothing but the cell's own features, on every backend.

use super::dims::Reduce;
use crate::cpu::{Item, Packing, prefetch};
use crate::ops::cloud::Cloud;
use crate::ops::scalar::{Real, Scalar};
use crate::tensor::{DType, TensorRef};

/// From so many points on a cell is reduced in lanes.
pub(crate) const LONG: usize = 64;
pub(crate) const LANES: usize = 32;
/// Columns that are reduced at once, where they lie side by side.
const COLUMNS: usize = 8;

/// Features on the host; points are numbered through all rows.
#[derive(Clone, Copy)]
pub(crate) struct Features<T> {
    data: *const T,
    strides: [isize; 3],
    per_row: usize,
    /// Whether rows follow each other as points do: then a point is found without its row.
    flat: bool,
    pub(crate) width: usize,
}

// SAFETY: a view that is only read.
unsafe impl<T: Sync> Sync for Features<T> {}

impl<T: Scalar> Features<T> {
    pub(crate) fn new(features: &TensorRef<'_>, strides: [isize; 3], cloud: &Cloud, width: usize) -> Self {
        let per_row = cloud.count.max(1);
        let flat = cloud.batch <= 1 || strides[0] == strides[1] * per_row as isize;
        Self { data: features.data().cast(), strides, per_row, flat, width }
    }

    /// The address of a column of a point.
    ///
    /// # Safety
    /// The point and the column must exist.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, index: u64, column: usize) -> *const T {
        let offset = if self.flat {
            index as isize * self.strides[1]
        } else {
            let (row, point) = (index as usize / self.per_row, index as usize % self.per_row);
            row as isize * self.strides[0] + point as isize * self.strides[1]
        };
        // SAFETY: the caller's promise.
        unsafe { self.data.offset(offset + column as isize * self.strides[2]) }
    }

    /// Asks for the features of a point that are soon read, the first and last of them.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u64) {
        let (row, point) = if self.flat {
            (0, index as usize)
        } else {
            (index as usize / self.per_row, index as usize % self.per_row)
        };
        let offset = row as isize * self.strides[0] + point as isize * self.strides[1];
        let last = self.width.saturating_sub(1) as isize * self.strides[2];
        prefetch(self.data.wrapping_offset(offset));
        prefetch(self.data.wrapping_offset(offset + last));
    }
}

/// The points of a cell, numbered through all rows.
pub(crate) trait Members {
    fn count(&self) -> usize;
    fn index(&self, place: usize) -> u64;
}

/// Points as the sort leaves them.
pub(crate) struct Run<'a, I> {
    pub(crate) items: &'a [I],
    pub(crate) packing: Packing,
}

impl<I: Item> Members for Run<'_, I> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.items.len()
    }
    #[inline(always)]
    fn index(&self, place: usize) -> u64 {
        self.items[place].index(self.packing)
    }
}

/// How two numbers become one.
trait Combine<N>: Copy {
    type Total: Copy + Default;
    fn first(self, number: N) -> Self::Total;
    fn join(self, one: Self::Total, other: Self::Total) -> Self::Total;
    fn finish(self, total: Self::Total, count: usize) -> f64;
}

#[derive(Clone, Copy)]
struct Sum {
    mean: bool,
}

impl<N: Real> Combine<N> for Sum {
    type Total = f64;
    #[inline(always)]
    fn first(self, number: N) -> f64 {
        number.into()
    }
    #[inline(always)]
    fn join(self, one: f64, other: f64) -> f64 {
        one + other
    }
    #[inline(always)]
    fn finish(self, total: f64, count: usize) -> f64 {
        if self.mean { total / count as f64 } else { total }
    }
}

/// The largest, or the least.
#[derive(Clone, Copy)]
struct Extreme<const LEAST: bool>;

impl<N: Real, const LEAST: bool> Combine<N> for Extreme<LEAST> {
    type Total = N::Order;
    #[inline(always)]
    fn first(self, number: N) -> N::Order {
        number.order(LEAST)
    }
    #[inline(always)]
    fn join(self, one: N::Order, other: N::Order) -> N::Order {
        one.max(other)
    }
    #[inline(always)]
    fn finish(self, total: N::Order, _: usize) -> f64 {
        N::from_order(total, LEAST).into()
    }
}

/// A row that is written, in any float dtype: the loops need not be compiled for each.
#[derive(Clone, Copy)]
pub(crate) struct RowOut {
    pub(crate) data: *mut u8,
    pub(crate) dtype: DType,
}

impl RowOut {
    /// The row so many numbers behind this one.
    ///
    /// # Safety
    /// It must be part of the same tensor.
    #[inline(always)]
    pub(crate) unsafe fn add(self, count: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { data: unsafe { self.data.add(count * self.dtype.size()) }, ..self }
    }

    /// # Safety
    /// The numbers must be writable from `start` on.
    #[inline(always)]
    unsafe fn write<const N: usize>(self, start: usize, numbers: [f64; N]) {
        #[inline(always)]
        unsafe fn write_as<O: Scalar, const N: usize>(to: *mut O, numbers: [f64; N]) {
            for (column, &number) in numbers.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { *to.add(column) = O::narrow(number) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F16 => write_as(self.data.cast::<half::f16>().add(start), numbers),
                DType::BF16 => write_as(self.data.cast::<half::bf16>().add(start), numbers),
                DType::F32 => write_as(self.data.cast::<f32>().add(start), numbers),
                _ => write_as(self.data.cast::<f64>().add(start), numbers),
            }
        }
    }
}

/// Writes a row of `features.width` numbers made of the features of `points`, of which there is one
/// at least.
///
/// # Safety
/// The points must exist, and the row must be writable at `out`.
#[inline(always)]
pub(crate) unsafe fn reduce<T: Scalar>(
    features: &Features<T>,
    points: &(impl Members + ?Sized),
    reduce: Reduce,
    out: RowOut,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Sum, mean, largest and least of one number are itself.
        if points.count() == 1 && out.dtype == T::DTYPE {
            let (index, to) = (points.index(0), out.data.cast::<T>());
            if features.strides[2] == 1 && features.width > 0 {
                return to.copy_from_nonoverlapping(features.at(index, 0), features.width);
            }
            return (0..features.width).for_each(|column| *to.add(column) = *features.at(index, column));
        }
        match reduce {
            Reduce::Max => combine(features, points, Extreme::<false>, out),
            Reduce::Min => combine(features, points, Extreme::<true>, out),
            _ => combine(features, points, Sum { mean: reduce == Reduce::Mean }, out),
        }
    }
}

/// # Safety
/// As for [`reduce`].
#[inline(always)]
unsafe fn combine<T: Scalar, C: Combine<T::Compute>>(
    features: &Features<T>,
    points: &(impl Members + ?Sized),
    how: C,
    out: RowOut,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if points.count() < LONG {
            combine_in::<T, C, _, 1>(features, points, how, out);
        } else {
            combine_in::<T, C, _, LANES>(features, points, how, out);
        }
    }
}

/// # Safety
/// As for [`reduce`].
#[inline(always)]
unsafe fn combine_in<T: Scalar, C: Combine<T::Compute>, M: Members + ?Sized, const LANES: usize>(
    features: &Features<T>,
    points: &M,
    how: C,
    out: RowOut,
) {
    let mut start = 0;
    // SAFETY: the caller's promise; columns lie within the width.
    unsafe {
        if features.strides[2] == 1 {
            while start + COLUMNS <= features.width {
                combine_columns::<T, C, M, LANES, COLUMNS>(features, points, how, start, out);
                start += COLUMNS;
            }
        }
        while start < features.width {
            combine_columns::<T, C, M, LANES, 1>(features, points, how, start, out);
            start += 1;
        }
    }
}

/// # Safety
/// As for [`reduce`]; so many columns must lie side by side.
#[inline(always)]
unsafe fn combine_columns<
    T: Scalar,
    C: Combine<T::Compute>,
    M: Members + ?Sized,
    const LANES: usize,
    const COLUMNS: usize,
>(
    features: &Features<T>,
    points: &M,
    how: C,
    start: usize,
    out: RowOut,
) {
    let mut totals = [[C::Total::default(); COLUMNS]; LANES];
    // SAFETY: the point exists, and so do its columns.
    let read = |index: usize| unsafe { &*features.at(points.index(index), start).cast::<[T; COLUMNS]>() };
    let firsts = points.count().min(LANES);
    for (index, totals) in totals[..firsts].iter_mut().enumerate() {
        for (total, &number) in totals.iter_mut().zip(read(index)) {
            *total = how.first(number.widen());
        }
    }
    for index in firsts..points.count() {
        for (total, &number) in totals[index % LANES].iter_mut().zip(read(index)) {
            *total = how.join(*total, how.first(number.widen()));
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (lower, upper) = totals.split_at_mut(half);
        for (one, other) in lower.iter_mut().zip(&*upper) {
            for (total, more) in one.iter_mut().zip(other) {
                *total = how.join(*total, *more);
            }
        }
        half /= 2;
    }
    let mut row = [0.0; COLUMNS];
    for (number, &total) in row.iter_mut().zip(&totals[0]) {
        *number = how.finish(total, points.count());
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(start, row) };
}
