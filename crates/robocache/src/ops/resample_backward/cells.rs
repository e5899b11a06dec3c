//! Elements as the gradient reads and rounds them.

use half::{bf16, f16};

use crate::ops::resample::Stamp;

/// What sums are made in.
pub(super) trait Number: Copy + PartialEq + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;

    /// The weight of the second of two samples, as `resample` has it.
    fn weight<S: Stamp>(target: S, first: S, second: S) -> Self;
    /// `1 - self`.
    fn rest(self) -> Self;
    /// `self * factor + sum`, rounded once.
    fn mul_add(self, factor: Self, sum: Self) -> Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! number {
    ($type:ty, $weight:ident) => {
        impl Number for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn weight<S: Stamp>(target: S, first: S, second: S) -> Self {
                target.$weight(first, second)
            }
            #[inline(always)]
            fn rest(self) -> Self {
                1.0 - self
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, sum: Self) -> Self {
                <$type>::mul_add(self, factor, sum)
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
        }
    };
}
number!(f32, weight_f32);
number!(f64, weight_f64);

/// An element of the values and of the gradients.
pub(super) trait Cell: Copy + Send + Sync + 'static {
    type Sum: Number;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
}

macro_rules! cell {
    ($type:ty, $sum:ty, $widen:expr, $narrow:expr) => {
        impl Cell for $type {
            type Sum = $sum;
            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(sum: $sum) -> Self {
                $narrow(sum)
            }
        }
    };
}
cell!(f32, f32, |x| x, |x| x);
cell!(f64, f64, |x| x, |x| x);
cell!(f16, f32, f16::to_f32, f16::from_f32);
cell!(bf16, f32, bf16::to_f32, bf16::from_f32);
