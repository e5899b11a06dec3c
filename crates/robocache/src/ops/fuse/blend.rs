//! The arithmetic of the methods that are more than a straight line, number by number.
//!
//! Kernel twin: blend.cuh, step by step in the same order, so that both give the same bits. Sines
//! and arcs are polynomials of our own for that reason; their arguments are small.

use crate::ops::resample::Stamp;

/// A type to compute in.
pub(in crate::ops) trait Real:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    const PI: Self;
    const TWO_PI: Self;
    /// sin(x) = x + x³ (s₀ + s₁ x² + ...), for x in [0, π/2].
    const SIN: &'static [Self];
    /// The angle whose tangent is `self`, in [0, 1].
    fn atan(self) -> Self;
    fn of(x: f64) -> Self;
    /// `(target - first) / (second - first)`.
    fn weight<S: Stamp>(target: S, first: S, second: S) -> Self;
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    fn abs(self) -> Self;
    fn is_finite(self) -> bool;
    fn is_nan(self) -> bool;
}

/// 1/n! with alternating signs from 3! on; -1/3, 1/5, ...
const SIN: [f64; 10] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
    -1.0 / 121_645_100_408_832_000.0,
    1.0 / 51_090_942_171_709_440_000.0,
];
const ATAN: [f64; 9] =
    [-1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0, 1.0 / 9.0, -1.0 / 11.0, 1.0 / 13.0, -1.0 / 15.0, 1.0 / 17.0, -1.0 / 19.0];
const ATAN_QUARTERS: [f64; 5] =
    [0.0, 0.244_978_663_126_864_14, 0.463_647_609_000_806_1, 0.643_501_108_793_284_4, std::f64::consts::FRAC_PI_4];

/// atan(x) = x + x³ (a₀ + a₁ x² + ...) in f32.
const ATAN_F32: [f32; 8] =
    [-0.33333153, 0.19993773, -0.14211056, 0.10666004, -0.075522125, 0.043211844, -0.016367916, 0.002920689];

macro_rules! real {
    ($type:ident, $weight:ident, $sin:literal, $atan:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = $type::NAN;
            const PI: Self = std::$type::consts::PI;
            const TWO_PI: Self = std::$type::consts::TAU;
            const SIN: &'static [Self] = &{
                let (mut all, mut i) = ([0.0; $sin], 0);
                while i < $sin {
                    all[i] = SIN[i] as $type;
                    i += 1;
                }
                all
            };
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $type
            }
            #[inline(always)]
            fn weight<S: Stamp>(target: S, first: S, second: S) -> Self {
                target.$weight(first, second)
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                $type::mul_add(self, factor, addend)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $type::floor(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $type::abs(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $type::is_nan(self)
            }
            #[inline(always)]
            fn atan(self) -> Self {
                $atan(self)
            }
        }
    };
}
real!(f32, weight_f32, 6, atan_f32);
real!(f64, weight_f64, 10, atan_f64);

/// `x + x³ (c₀ + c₁ x² + ...)`.
#[inline(always)]
fn odd_series<T: Real>(x: T, coefficients: &[T]) -> T {
    let square = x * x;
    let mut sum = T::ZERO;
    for &coefficient in coefficients.iter().rev() {
        sum = sum.mul_add(square, coefficient);
    }
    (x * square).mul_add(sum, x)
}

#[inline(always)]
fn sin<T: Real>(x: T) -> T {
    odd_series(x, T::SIN)
}

/// By quarters, so that the series ends soon: atan(x) = atan(q) + atan((x - q) / (1 + x q)).
#[inline(always)]
fn atan_f64(x: f64) -> f64 {
    // The cast saturates and takes NaN to 0.
    let quarter = ((x * 4.0 + 0.5) as usize).min(4);
    let known = quarter as f64 * 0.25;
    ATAN_QUARTERS[quarter] + odd_series((x - known) / x.mul_add(known, 1.0), &ATAN)
}

/// One polynomial for all of [0, 1], fitted so that its largest relative error is small.
#[inline(always)]
fn atan_f32(x: f32) -> f32 {
    odd_series(x, &ATAN_F32)
}

/// On the line through `a` at 0 and `b` at 1; a sample of weight 0 does not matter, not even as NaN.
#[inline(always)]
pub(super) fn line<T: Real>(a: T, b: T, weight: T) -> T {
    if weight == T::ZERO {
        return a;
    }
    if weight == T::ONE {
        return b;
    }
    let difference = b - a;
    if difference.is_finite() || !(weight > T::ZERO && weight < T::ONE) {
        weight.mul_add(difference, a)
    } else {
        weight.mul_add(b, (T::ONE - weight) * a)
    }
}

/// `factors[0] a + factors[1] b`, where a factor of 0 means that the sample does not matter.
#[inline(always)]
pub(super) fn weighted<T: Real>(a: T, b: T, factors: [T; 2]) -> T {
    if factors[1] == T::ZERO {
        factors[0] * a
    } else if factors[0] == T::ZERO {
        factors[1] * b
    } else {
        factors[1].mul_add(b, factors[0] * a)
    }
}

#[inline(always)]
fn dot<T: Real, const N: usize>(a: [T; N], b: [T; N]) -> T {
    let mut sum = a[0] * b[0];
    for i in 1..N {
        sum = a[i].mul_add(b[i], sum);
    }
    sum
}

/// What two quaternions are multiplied with to go along the shorter arc, including that neither
/// needs to have unit length. Quaternions of length 0 have no direction: NaN.
#[inline(always)]
pub(super) fn slerp<T: Real>(a: [T; 4], b: [T; 4], weight: T) -> [T; 2] {
    let (first, mut second) = (dot(a, a).sqrt(), dot(b, b).sqrt());
    if weight == T::ZERO {
        return [T::ONE / first, T::ZERO];
    }
    if weight == T::ONE {
        return [T::ZERO, T::ONE / second];
    }
    if dot(a, b) < T::ZERO {
        second = -second;
    }
    // Both as long as the product of their lengths, which spares divisions.
    let (mut apart, mut along) = ([T::ZERO; 4], [T::ZERO; 4]);
    for i in 0..4 {
        let (a, b) = (a[i] * second, b[i] * first);
        apart[i] = a - b;
        along[i] = a + b;
    }
    // Twice the angle between one and the middle: exact for small angles, where a cosine is not.
    let half = (dot(apart, apart) / dot(along, along)).sqrt().atan();
    let angle = half + half;
    let (mut whole, mut from, mut to) = (sin(angle), sin((T::ONE - weight) * angle), sin(weight * angle));
    if whole == T::ZERO {
        (whole, from, to) = (T::ONE, T::ONE - weight, weight);
    }
    let scale = T::ONE / (whole * first * second);
    [from * second * scale, to * first * scale]
}

/// For two blended columns of three: 1/|first|, how much of the first is in the second, 1/|rest|.
#[inline(always)]
pub(super) fn orthonormal<T: Real>(first: [T; 3], second: [T; 3]) -> [T; 3] {
    let scale = T::ONE / dot(first, first).sqrt();
    let unit = first.map(|x| x * scale);
    let share = dot(unit, second);
    let mut rest = second;
    for i in 0..3 {
        rest[i] = (-share).mul_add(unit[i], second[i]);
    }
    [scale, share, T::ONE / dot(rest, rest).sqrt()]
}

/// A number of the second column: `first` is the number above it in the first.
#[inline(always)]
pub(super) fn second_column<T: Real>(first: T, second: T, factors: [T; 3]) -> T {
    (-factors[1]).mul_add(first * factors[0], second) * factors[2]
}

/// The same angle in [−π, π), where a turn is 2π as this type has it: π itself becomes −π exactly.
#[inline(always)]
pub(super) fn wrap<T: Real>(angle: T) -> T {
    let turns = ((angle + T::PI) / T::TWO_PI).floor();
    let near = (-turns).mul_add(T::TWO_PI, angle);
    if near < -T::PI {
        near + T::TWO_PI
    } else if near >= T::PI {
        near - T::TWO_PI
    } else {
        near
    }
}

/// Around the shorter way from `a` to `b`; half a turn goes the way that the numbers go.
#[inline(always)]
pub(super) fn angle<T: Real>(a: T, b: T, weight: T) -> T {
    if weight == T::ZERO {
        return wrap(a);
    }
    if weight == T::ONE {
        return wrap(b);
    }
    let difference = b - a;
    let mut way = wrap(difference);
    if way == -T::PI && difference > T::ZERO {
        way = T::PI;
    }
    wrap(weight.mul_add(way, a))
}

/// The samples beside the two around a target, for [`cubic`]; gaps in units of the one between.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<T> {
    /// The gap before the two; 0 when there is no sample before.
    pub(super) before: T,
    /// The gap behind the two; 0 when there is no sample behind.
    pub(super) behind: T,
}

/// The slope at a sample between two gaps: 0 at a turn, else the weighted harmonic mean.
#[inline(always)]
fn inner_slope<T: Real>(left: T, right: T, left_gap: T, right_gap: T) -> T {
    let rises = left > T::ZERO && right > T::ZERO;
    let falls = left < T::ZERO && right < T::ZERO;
    if !rises && !falls {
        // NaN must stay NaN.
        return if left.is_nan() || right.is_nan() { T::NAN } else { T::ZERO };
    }
    let (first, second) = (right_gap + right_gap + left_gap, right_gap + left_gap + left_gap);
    (first + second) / (first / left + second / right)
}

/// The slope at an end: that of a parabola through three samples, kept from overshooting.
#[inline(always)]
fn end_slope<T: Real>(near: T, far: T, far_gap: T) -> T {
    let two = T::ONE + T::ONE;
    let slope = ((two + far_gap) * near - far) / (T::ONE + far_gap);
    let sign = |x: T| (x > T::ZERO, x < T::ZERO);
    if !slope.is_nan() && sign(slope) != sign(near) {
        T::ZERO
    } else if sign(near) != sign(far) && slope.abs() > (two + T::ONE) * near.abs() {
        (two + T::ONE) * near
    } else {
        slope
    }
}

/// The monotone cubic between `samples[1]` and `samples[2]`; `samples[0]` and `samples[3]` matter
/// only where `beside` has a gap to them.
#[inline(always)]
pub(super) fn cubic<T: Real>(samples: [T; 4], beside: Beside<T>, weight: T) -> T {
    let [earlier, a, b, later] = samples;
    if weight == T::ZERO {
        return a;
    }
    if weight == T::ONE {
        return b;
    }
    let middle = b - a;
    let left = (a - earlier) / beside.before;
    let right = (later - b) / beside.behind;
    let (has_left, has_right) = (beside.before > T::ZERO, beside.behind > T::ZERO);
    if !has_left && !has_right || !(weight > T::ZERO && weight < T::ONE) {
        return line(a, b, weight);
    }
    let start = if has_left {
        inner_slope(left, middle, beside.before, T::ONE)
    } else {
        end_slope(middle, right, beside.behind)
    };
    let end = if has_right {
        inner_slope(middle, right, T::ONE, beside.behind)
    } else {
        end_slope(middle, left, beside.before)
    };
    let bend = start + end - (middle + middle);
    weight.mul_add(weight.mul_add(weight.mul_add(bend, middle - start - bend), start), a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_are_exact_to_the_last_digits() {
        for i in 0..=1000 {
            let x = f64::from(i) / 1000.0;
            assert!((atan_f64(x) - x.atan()).abs() <= 2.5e-16, "atan {x}");
            assert!((f64::from(atan_f32(x as f32)) - f64::from(x as f32).atan()).abs() <= 1e-7, "atan {x}");
            let x = x * std::f64::consts::FRAC_PI_2;
            assert!((sin(x) - x.sin()).abs() <= 2.5e-16, "sin {x}");
            assert!((f64::from(sin(x as f32)) - f64::from(x as f32).sin()).abs() <= 1.2e-7, "sin {x}");
        }
        assert_eq!(atan_f32(1e-30), 1e-30);
        assert_eq!(sin(1e-300f64), 1e-300);
        assert!(atan_f64(f64::NAN).is_nan() && atan_f32(f32::NAN).is_nan());
    }

    #[test]
    fn angles_stay_in_the_half_open_circle() {
        use std::f64::consts::PI;
        for x in [-PI, PI, 3.0 * PI, -3.0 * PI, 0.0, 1e6, -1e6, PI.next_down(), (-PI).next_down()] {
            let wrapped = wrap(x);
            assert!((-PI..PI).contains(&wrapped), "{x} became {wrapped}");
            assert!((wrapped.sin() - x.sin()).abs() < 1e-9, "{x} became {wrapped}");
        }
        assert_eq!(angle(0.0, PI, 0.5), PI / 2.0);
        assert_eq!(angle(PI, 0.0, 0.5), PI / 2.0);
        assert_eq!(angle(0.0f32, -std::f32::consts::PI, 0.5), -std::f32::consts::FRAC_PI_2);
        assert!((angle(3.0, -3.0, 0.5).abs() - PI).abs() < 1e-15);
        assert!(wrap(f64::INFINITY).is_nan());
    }

    #[test]
    fn samples_of_no_weight_do_not_matter() {
        let nan = f64::NAN;
        assert_eq!(line(1.0, nan, 0.0), 1.0);
        assert_eq!(line(nan, 2.0, 1.0), 2.0);
        assert_eq!(cubic([nan, 1.0, nan, nan], Beside { before: 1.0, behind: 1.0 }, 0.0), 1.0);
        assert_eq!(cubic([nan, 1.0, 3.0, nan], Beside { before: 0.0, behind: 0.0 }, 0.5), 2.0);
        assert!(cubic([nan, 1.0, 3.0, 4.0], Beside { before: 1.0, behind: 1.0 }, 0.5).is_nan());
        let factors = slerp([nan; 4], [0.0, 0.0, 0.0, 2.0], 1.0);
        assert_eq!(weighted(nan, 2.0, factors), 1.0);
    }
}
