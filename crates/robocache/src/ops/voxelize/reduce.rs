//! The features of one cell made into one row. Twin of `reduce.cu`.
//!
//! Sums are taken in f64. The order is that of the points: one after the other below [`LONG`] of them,
//! else in [`LANES`] sums of every so manieth, which are then added pairwise. So the bits depend on
//! nothing but the cell's own features, on every backend.

use super::Reduce;
use super::find::prefetch;
use crate::cpu::{Item, Packing};
use crate::ops::cloud::Cloud;
use crate::ops::scalar::Scalar;
use crate::tensor::TensorRef;

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

    /// Asks for the features of a point that are soon read.
    ///
    /// # Safety
    /// The point must exist.
    #[inline(always)]
    pub(crate) unsafe fn prefetch(&self, index: u64) {
        // SAFETY: the caller's promise; there may be no column, but a hint takes any address.
        prefetch(unsafe { self.at(index, 0) });
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

/// A number whose order as an integer is that of floats, -0 below +0; NaN above all.
#[inline(always)]
pub(crate) fn order_of(number: f64, least: bool) -> i64 {
    let number = if number.is_nan() { if least { -f64::NAN.abs() } else { f64::NAN.abs() } } else { number };
    let bits = number.to_bits() as i64;
    let order = bits ^ ((bits >> 63) & i64::MAX);
    if least { !order } else { order }
}

#[inline(always)]
fn number_of(order: i64, least: bool) -> f64 {
    let order = if least { !order } else { order };
    f64::from_bits((order ^ ((order >> 63) & i64::MAX)) as u64)
}

/// How two numbers become one.
trait Combine: Copy {
    type Total: Copy + Default;
    fn first(self, number: f64) -> Self::Total;
    fn join(self, one: Self::Total, other: Self::Total) -> Self::Total;
    fn finish(self, total: Self::Total, count: usize) -> f64;
}

#[derive(Clone, Copy)]
struct Sum {
    mean: bool,
}

impl Combine for Sum {
    type Total = f64;
    #[inline(always)]
    fn first(self, number: f64) -> f64 {
        number
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

#[derive(Clone, Copy)]
struct Extreme {
    least: bool,
}

impl Combine for Extreme {
    type Total = i64;
    #[inline(always)]
    fn first(self, number: f64) -> i64 {
        order_of(number, self.least)
    }
    #[inline(always)]
    fn join(self, one: i64, other: i64) -> i64 {
        one.max(other)
    }
    #[inline(always)]
    fn finish(self, total: i64, _: usize) -> f64 {
        number_of(total, self.least)
    }
}

/// Writes a row of `features.width` numbers made of the features of `points`, of which there is one
/// at least.
///
/// # Safety
/// The points must exist, and the row must be writable at `out`.
#[inline(always)]
pub(crate) unsafe fn reduce<T: Scalar, O: Scalar>(
    features: &Features<T>,
    points: &(impl Members + ?Sized),
    reduce: Reduce,
    out: *mut O,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match reduce {
            Reduce::Max | Reduce::Min => {
                combine(features, points, Extreme { least: reduce == Reduce::Min }, out);
            }
            _ => combine(features, points, Sum { mean: reduce == Reduce::Mean }, out),
        }
    }
}

/// # Safety
/// As for [`reduce`].
#[inline(always)]
unsafe fn combine<T: Scalar, O: Scalar, C: Combine>(
    features: &Features<T>,
    points: &(impl Members + ?Sized),
    how: C,
    out: *mut O,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if points.count() < LONG {
            combine_in::<T, O, C, _, 1>(features, points, how, out);
        } else {
            combine_in::<T, O, C, _, LANES>(features, points, how, out);
        }
    }
}

/// # Safety
/// As for [`reduce`].
#[inline(always)]
unsafe fn combine_in<T: Scalar, O: Scalar, C: Combine, M: Members + ?Sized, const LANES: usize>(
    features: &Features<T>,
    points: &M,
    how: C,
    out: *mut O,
) {
    let mut start = 0;
    // SAFETY: the caller's promise; columns lie within the width.
    unsafe {
        if features.strides[2] == 1 {
            while start + COLUMNS <= features.width {
                combine_columns::<T, O, C, M, LANES, COLUMNS>(features, points, how, start, out);
                start += COLUMNS;
            }
        }
        while start < features.width {
            combine_columns::<T, O, C, M, LANES, 1>(features, points, how, start, out);
            start += 1;
        }
    }
}

/// # Safety
/// As for [`reduce`]; so many columns must lie side by side.
#[inline(always)]
unsafe fn combine_columns<
    T: Scalar,
    O: Scalar,
    C: Combine,
    M: Members + ?Sized,
    const LANES: usize,
    const COLUMNS: usize,
>(
    features: &Features<T>,
    points: &M,
    how: C,
    start: usize,
    out: *mut O,
) {
    let mut totals = [[C::Total::default(); COLUMNS]; LANES];
    for index in 0..points.count() {
        // SAFETY: the point exists, and so do its columns.
        let row = unsafe { *features.at(points.index(index), start).cast::<[T; COLUMNS]>() };
        let totals = &mut totals[index % LANES];
        let numbers = row.map(|number| how.first(number.widen().into()));
        if index < LANES {
            *totals = numbers;
        } else {
            for (total, number) in totals.iter_mut().zip(numbers) {
                *total = how.join(*total, number);
            }
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
    let row = totals[0].map(|total| O::narrow(how.finish(total, points.count())));
    // SAFETY: the caller's promise.
    unsafe { *out.add(start).cast::<[O; COLUMNS]>() = row };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_ordered_as_floats_are() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, f64::INFINITY];
        for (index, &number) in numbers.iter().enumerate() {
            assert_eq!(number_of(order_of(number, false), false).to_bits(), number.to_bits());
            assert_eq!(number_of(order_of(number, true), true).to_bits(), number.to_bits());
            for &greater in &numbers[index + 1..] {
                assert!(order_of(number, false) < order_of(greater, false));
                assert!(order_of(number, true) > order_of(greater, true));
            }
            for nan in [f64::NAN, -f64::NAN] {
                assert!(order_of(nan, false) > order_of(number, false));
                assert!(order_of(nan, true) > order_of(number, true));
            }
        }
        assert!(number_of(order_of(f64::NAN, true), true).is_nan());
    }
}
