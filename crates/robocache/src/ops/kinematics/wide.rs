//! Numbers side by side, which formulas compute with as if they were one: loops over them become vector instructions.

use std::ops::{Add, Mul, Neg, Sub};

use crate::ops::align::Real;
use crate::ops::trig::Trig;

/// f32 or f64.
pub(super) trait Float: Real + Trig + crate::Element {
    fn to_f64(self) -> f64;
}
impl Float for f32 {
    fn to_f64(self) -> f64 {
        self.into()
    }
}
impl Float for f64 {
    fn to_f64(self) -> f64 {
        self
    }
}

/// `N` numbers, each of another row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wide<T, const N: usize>(pub(super) [T; N]);

impl<T: Float, const N: usize> Wide<T, N> {
    #[inline(always)]
    pub(super) fn all(x: T) -> Self {
        Self([x; N])
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        let mut result = self;
        for i in 0..N {
            result.0[i] = f(self.0[i], other.0[i]);
        }
        result
    }

    #[inline(always)]
    fn map(self, f: impl Fn(T) -> T) -> Self {
        let mut result = self;
        for i in 0..N {
            result.0[i] = f(self.0[i]);
        }
        result
    }

    /// `self * factor + addend`, rounded once.
    #[inline(always)]
    pub(super) fn fma(self, factor: Self, addend: Self) -> Self {
        let mut result = self;
        for i in 0..N {
            result.0[i] = self.0[i].mul_add(factor.0[i], addend.0[i]);
        }
        result
    }

    /// As [`Wide::fma`], with the same factor for all.
    #[inline(always)]
    pub(super) fn fma_by(self, factor: T, addend: Self) -> Self {
        self.fma(Self::all(factor), addend)
    }

    #[inline(always)]
    pub(super) fn sqrt(self) -> Self {
        self.map(Real::sqrt)
    }

    #[inline(always)]
    pub(super) fn over(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    /// `yes` where this is greater than `other`, else `no`.
    #[inline(always)]
    pub(super) fn greater(self, other: Self, yes: Self, no: Self) -> Self {
        let mut result = no;
        for i in 0..N {
            result.0[i] = if self.0[i] > other.0[i] { yes.0[i] } else { no.0[i] };
        }
        result
    }

    #[inline(always)]
    pub(super) fn sin_cos(self) -> (Self, Self) {
        let (sines, cosines) = T::trig_of(self.0);
        (Self(sines), Self(cosines))
    }
}

impl<T: Float, const N: usize> Add for Wide<T, N> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl<T: Float, const N: usize> Sub for Wide<T, N> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
}

impl<T: Float, const N: usize> Mul for Wide<T, N> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
}

impl<T: Float, const N: usize> Neg for Wide<T, N> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|a| -a)
    }
}

/// `a × b`.
#[inline(always)]
pub(super) fn cross<T: Float, const N: usize>(a: [Wide<T, N>; 3], b: [Wide<T, N>; 3]) -> [Wide<T, N>; 3] {
    [a[1].fma(b[2], -(a[2] * b[1])), a[2].fma(b[0], -(a[0] * b[2])), a[0].fma(b[1], -(a[1] * b[0]))]
}

/// `a · b`.
#[inline(always)]
pub(super) fn dot<T: Float, const N: usize>(a: [Wide<T, N>; 3], b: [Wide<T, N>; 3]) -> Wide<T, N> {
    a[2].fma(b[2], a[1].fma(b[1], a[0] * b[0]))
}
