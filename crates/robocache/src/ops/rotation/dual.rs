//! Numbers that formulas are written for: plain ones, and such as carry derivatives along.
//!
//! Kernel twin: `Dual` in rotation.cuh, step by step.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::ops::trig::Trig;

/// Derivatives that are carried along at once.
pub(super) const PARTS: usize = 3;

/// A number of a formula.
pub(super) trait Arithmetic:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// What it is compared as.
    type Value: Float;

    /// A number that depends on nothing.
    fn constant(value: Self::Value) -> Self;
    fn value(self) -> Self::Value;
    fn plus(self, constant: Self::Value) -> Self;
    fn times(self, constant: Self::Value) -> Self;
    fn over(self, constant: Self::Value) -> Self;
    /// The derivative at 0 counts as 0.
    fn sqrt(self) -> Self;
    /// Sines and cosines.
    fn sin_cos<const N: usize>(angles: [Self; N]) -> ([Self; N], [Self; N]);
    /// The angle of the point (x, y); the derivative at (0, 0) counts as 0.
    fn direction(y: Self, x: Self) -> Self;
}

/// f32 or f64.
pub(super) trait Float: Arithmetic<Value = Self> + Trig + PartialOrd + 'static {
    const NAN: Self;
    const PI: Self;
    const HALF_PI: Self;
    const TWO_PI: Self;
    /// Middle angles that are nearer than this to where Euler angles lock are there.
    const LOCK: Self;
    /// Squares of lengths between these lose no digits.
    const LEAST: Self;
    const MOST: Self;
    fn of(x: f64) -> Self;
    /// Without its sign.
    fn size(self) -> Self;
    /// Whether it is NaN.
    fn is_bad(self) -> bool;
}

macro_rules! float {
    ($type:ident, $lock:expr, $least:expr, $most:expr) => {
        impl Arithmetic for $type {
            type Value = Self;
            #[inline(always)]
            fn constant(value: Self) -> Self {
                value
            }
            #[inline(always)]
            fn value(self) -> Self {
                self
            }
            #[inline(always)]
            fn plus(self, constant: Self) -> Self {
                self + constant
            }
            #[inline(always)]
            fn times(self, constant: Self) -> Self {
                self * constant
            }
            #[inline(always)]
            fn over(self, constant: Self) -> Self {
                self / constant
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline(always)]
            fn sin_cos<const N: usize>(angles: [Self; N]) -> ([Self; N], [Self; N]) {
                Self::trig_of(angles)
            }
            #[inline(always)]
            fn direction(y: Self, x: Self) -> Self {
                Trig::direction(y, x)
            }
        }
        impl Float for $type {
            const NAN: Self = $type::NAN;
            const PI: Self = std::$type::consts::PI;
            const HALF_PI: Self = std::$type::consts::FRAC_PI_2;
            const TWO_PI: Self = std::$type::consts::TAU;
            const LOCK: Self = $lock;
            const LEAST: Self = $least;
            const MOST: Self = $most;
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $type
            }
            #[inline(always)]
            fn size(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn is_bad(self) -> bool {
                self.is_nan()
            }
        }
    };
}
// 2^-20, 2^-80 and 2^80; 2^-23, 2^-800 and 2^800.
float!(f32, 9.536_743e-7, 8.271_806e-25, 1.208_925_8e24);
float!(f64, 1.192_092_895_507_812_5e-7, 1.499_696_813_895_631e-241, 6.668_014_432_879_854e240);

/// A number with some of its derivatives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dual<T> {
    value: T,
    pub(super) parts: [T; PARTS],
}

impl<T: Float> Dual<T> {
    /// An input; `part` says which derivative is its own, if any.
    #[inline(always)]
    pub(super) fn input(value: T, part: usize) -> Self {
        let parts = std::array::from_fn(|index| T::of(if index == part { 1.0 } else { 0.0 }));
        Self { value, parts }
    }

    #[inline(always)]
    fn with(self, value: T, part: impl Fn(T) -> T) -> Self {
        Self { value, parts: self.parts.map(part) }
    }

    #[inline(always)]
    fn and(self, other: Self, value: T, part: impl Fn(T, T) -> T) -> Self {
        Self { value, parts: std::array::from_fn(|index| part(self.parts[index], other.parts[index])) }
    }
}

impl<T: Float> Add for Dual<T> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.and(other, self.value + other.value, |a, b| a + b)
    }
}

impl<T: Float> Sub for Dual<T> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.and(other, self.value - other.value, |a, b| a - b)
    }
}

impl<T: Float> Mul for Dual<T> {
    type Output = Self;
    #[inline(always)]
    #[expect(clippy::suspicious_arithmetic_impl, reason = "the product rule")]
    fn mul(self, other: Self) -> Self {
        self.and(other, self.value * other.value, |a, b| self.value * b + a * other.value)
    }
}

impl<T: Float> Div for Dual<T> {
    type Output = Self;
    #[inline(always)]
    #[expect(clippy::suspicious_arithmetic_impl, reason = "the quotient rule")]
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        self.and(other, value, |a, b| (a - value * b) / other.value)
    }
}

impl<T: Float> Neg for Dual<T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.with(-self.value, |a| -a)
    }
}

impl<T: Float> Arithmetic for Dual<T> {
    type Value = T;
    #[inline(always)]
    fn constant(value: T) -> Self {
        Self { value, parts: [T::of(0.0); PARTS] }
    }
    #[inline(always)]
    fn value(self) -> T {
        self.value
    }
    #[inline(always)]
    fn plus(self, constant: T) -> Self {
        Self { value: self.value + constant, ..self }
    }
    #[inline(always)]
    fn times(self, constant: T) -> Self {
        self.with(self.value * constant, |a| a * constant)
    }
    #[inline(always)]
    fn over(self, constant: T) -> Self {
        self.with(self.value / constant, |a| a / constant)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        let value = Arithmetic::sqrt(self.value);
        self.with(value, |a| if value == T::of(0.0) { value } else { a / (value + value) })
    }
    #[inline(always)]
    fn sin_cos<const N: usize>(angles: [Self; N]) -> ([Self; N], [Self; N]) {
        let (sines, cosines) = T::trig_of(angles.map(|angle| angle.value));
        let sine = |i: usize| angles[i].with(sines[i], |a| cosines[i] * a);
        let cosine = |i: usize| angles[i].with(cosines[i], |a| -(sines[i] * a));
        (std::array::from_fn(sine), std::array::from_fn(cosine))
    }
    #[inline(always)]
    fn direction(y: Self, x: Self) -> Self {
        let square = x.value * x.value + y.value * y.value;
        let part = |a: T, b: T| if square == T::of(0.0) { square } else { (x.value * a - y.value * b) / square };
        y.and(x, Arithmetic::direction(y.value, x.value), part)
    }
}
