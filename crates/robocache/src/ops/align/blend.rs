//! The arithmetic of the methods that are more than a straight line, number by number.
//!
//! Kernel twin: blend.cuh, step by step in the same order, so that both give the same bits. Sines
//! and arcs are polynomials of our own for that reason; their arguments are small.

use super::Stamp;
use crate::ops::trig::{atan_f64, odd_series};

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
    /// From here on neighbours are 2 and more apart: such a number says nothing about an angle.
    const NO_ANGLE: Self;
    /// What two quaternions, with their lengths and their product, are multiplied with; see [`slerp`].
    fn along_arc(a: [Self; 4], b: [Self; 4], lengths: [Self; 2], product: Self, weight: Self) -> [Self; 2];
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

/// 1/n! with alternating signs from 3! on.
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

/// For angles up to π/2 and in f32, fitted so that their largest relative error is small (3e-7, of which less than half
/// reaches a result, 6e-9 and 4e-8): the angle's square over 1 - cosine, by 1 - cosine; sine over angle, and angle over
/// sine, by the angle's square.
const SQUARE: [f32; 7] = [2.0, 0.33329728, 0.0895517, 0.024578737, 0.020901984, -0.009945659, 0.009016302];
const SINC: [f32; 5] = [1.0, -0.1666666, 0.0083330665, -0.00019809596, 2.6057653e-06];
const PER_SINC: [f32; 7] = [1.0, 0.16666566, 0.019452367, 0.0020297505, 0.00023387704, 7.791867e-06, 5.612295e-06];

macro_rules! real {
    ($type:ident, $weight:ident, $along_arc:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = $type::NAN;
            const PI: Self = std::$type::consts::PI;
            const TWO_PI: Self = std::$type::consts::TAU;
            const NO_ANGLE: Self = (1u64 << $type::MANTISSA_DIGITS) as $type;
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
            fn along_arc(a: [Self; 4], b: [Self; 4], lengths: [Self; 2], product: Self, weight: Self) -> [Self; 2] {
                $along_arc(a, b, lengths, product, weight)
            }
        }
    };
}
real!(f32, weight_f32, along_arc_f32);
real!(f64, weight_f64, along_arc_f64);

/// `c₀ + c₁ x + ...`.
#[inline(always)]
fn series<T: Real, const N: usize>(coefficients: [T; N], x: T) -> T {
    let mut sum = coefficients[N - 1];
    for &coefficient in coefficients[..N - 1].iter().rev() {
        sum = sum.mul_add(x, coefficient);
    }
    sum
}

#[inline(always)]
fn sin(x: f64) -> f64 {
    odd_series(SIN, x)
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
    let product = dot(a, b);
    if product < T::ZERO {
        second = -second;
    }
    T::along_arc(a, b, [first, second], product, weight)
}

/// By the cosine, without sines and arcs. It is not exact for small angles, but there the factors hardly
/// depend on the angle.
#[inline(always)]
fn along_arc_f32(_: [f32; 4], _: [f32; 4], [first, second]: [f32; 2], product: f32, weight: f32) -> [f32; 2] {
    let scale = 1.0 / (first * second);
    let below = 1.0 - product * scale;
    let square = below * series(SQUARE, below);
    let both = series(PER_SINC, square) * scale;
    let rest = 1.0 - weight;
    let from = rest * series(SINC, rest * rest * square) * (both * second);
    let to = weight * series(SINC, weight * weight * square) * (both * first);
    [from, to]
}

#[inline(always)]
fn along_arc_f64(a: [f64; 4], b: [f64; 4], [first, second]: [f64; 2], _: f64, weight: f64) -> [f64; 2] {
    // Both as long as the product of their lengths, which spares divisions.
    let (mut apart, mut along) = ([0.0; 4], [0.0; 4]);
    for i in 0..4 {
        let (a, b) = (a[i] * second, b[i] * first);
        apart[i] = a - b;
        along[i] = a + b;
    }
    // Twice the angle between one and the middle: exact for small angles, where a cosine is not.
    let half = atan_f64((dot(apart, apart) / dot(along, along)).sqrt());
    let angle = half + half;
    let (mut whole, mut from, mut to) = (sin(angle), sin((1.0 - weight) * angle), sin(weight * angle));
    if whole == 0.0 {
        (whole, from, to) = (1.0, 1.0 - weight, weight);
    }
    let scale = 1.0 / (whole * first * second);
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

/// The same angle in [−π, π), where a turn is 2π as this type has it: π itself becomes −π exactly. NaN where the
/// number is too large to hold an angle, for which the turns could not be counted either.
#[inline(always)]
pub(super) fn wrap<T: Real>(angle: T) -> T {
    let turns = ((angle + T::PI) / T::TWO_PI).floor();
    let near = if angle.abs() < T::NO_ANGLE { (-turns).mul_add(T::TWO_PI, angle) } else { T::NAN };
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
            let x = f64::from(i) / 1000.0 * std::f64::consts::FRAC_PI_2;
            assert!((sin(x) - x.sin()).abs() <= 2.5e-16, "sin {x}");
        }
        assert_eq!(sin(1e-300), 1e-300);
    }

    #[test]
    fn both_ways_along_an_arc_agree() {
        let mut angles = vec![0.0, 1e-30, 1e-8, 1e-4, 1e-3, 0.1];
        angles.extend((0..=200).map(|i| f64::from(i) / 200.0 * std::f64::consts::FRAC_PI_2));
        for angle in angles {
            let cases = [(0.25f32, 1.0, 1.0), (0.9, 0.01, -1.0), (0.5, 300.0, 1.0), (1e-6, 2.0, -1.0)];
            for (weight, length, sign) in cases.into_iter().chain([(0.3, 1e-18, 1.0), (0.7, 5e18, -1.0)]) {
                let a = [0.6f32, 0.0, 0.8, 0.0];
                let (sine, cosine) = (angle.sin() * sign * length, angle.cos() * sign * length);
                let b = [cosine * 0.6, sine * 0.6, cosine * 0.8, sine * 0.8].map(|x| x as f32);
                let near = slerp(a, b, weight);
                let exact = slerp(a.map(f64::from), b.map(f64::from), f64::from(weight));
                for i in 0..4 {
                    let (near, exact) = (weighted(a[i], b[i], near), weighted(f64::from(a[i]), f64::from(b[i]), exact));
                    assert!((f64::from(near) - exact).abs() <= 5e-7, "{angle} {weight} {length}: {near} {exact}");
                }
            }
        }
        assert!(slerp([0.0f32; 4], [1.0, 0.0, 0.0, 0.0], 0.5).iter().any(|factor| !factor.is_finite()));
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
        let (pi, most) = (std::f32::consts::PI, f32::NO_ANGLE);
        let mut x = most.next_down();
        while x > 1e6 {
            assert!((-pi..pi).contains(&wrap(x)) && (-pi..pi).contains(&wrap(-x)), "{x} became {}", wrap(x));
            x *= 0.9999;
        }
        for x in [most, 1e9, 1e30] {
            assert!(wrap(x).is_nan() && wrap(-x).is_nan() && angle(0.0, x, 0.5).is_nan());
            assert_eq!(angle(1.0, x, 0.0), 1.0);
        }
        assert!(wrap(f64::NO_ANGLE).is_nan() && (-PI..PI).contains(&wrap(f64::NO_ANGLE.next_down())));
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
