//! Elements as the gradient reads and rounds them, and what it computes in.

use half::{bf16, f16};

use crate::ops::align::Real;

/// What sums are made in: the numbers of the forward methods, and what only gradients need.
pub(super) trait Number: Real {
    /// Below this, series are closer than formulas with sines.
    const SMALL_ANGLE: Self;

    /// `1 - self`.
    fn rest(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn atan2(self, other: Self) -> Self;
}

macro_rules! number {
    ($type:ident, $small:literal) => {
        impl Number for $type {
            const SMALL_ANGLE: Self = $small;
            #[inline(always)]
            fn rest(self) -> Self {
                1.0 - self
            }
            #[inline(always)]
            fn sin(self) -> Self {
                $type::sin(self)
            }
            #[inline(always)]
            fn cos(self) -> Self {
                $type::cos(self)
            }
            #[inline(always)]
            fn atan2(self, other: Self) -> Self {
                $type::atan2(self, other)
            }
        }
    };
}
number!(f32, 0.1);
number!(f64, 0.005);

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
// The library's way looks for NaN first, which keeps loops from becoming vector instructions.
cell!(bf16, f32, |x: bf16| f32::from_bits(u32::from(x.to_bits()) << 16), bf16::from_f32);
