//! Sine, cosine and arctangent as polynomials of our own, so that CPU and GPU give the same bits and loops over them
//! become vector instructions.
//!
//! Kernel twin: `kernels/trig.cuh`, step by step. Errors of sine and cosine are below one unit in the last place of the
//! larger of the two. Angles beyond [`FAR_F64`] go to the platform's own functions, whose last bits differ between CPU
//! and GPU.

/// Angles beyond which a turn is no longer taken off exactly.
const FAR_F32: f32 = 16384.0;
const FAR_F64: f64 = 1_048_576.0;

/// π/2 in parts, the first of which has few enough bits for products with whole numbers to be exact.
const HALF_PI_F32: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];
const HALF_PI_F64: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];

const SIN_F32: [f32; 3] = [-0.166_666_55, 8.332_161e-3, -1.951_529_6e-4];
const COS_F32: [f32; 3] = [4.166_664_6e-2, -1.388_731_6e-3, 2.443_315_7e-5];
const SIN_F64: [f64; 6] = [
    -1.666_666_666_666_663_2e-1,
    8.333_333_333_322_49e-3,
    -1.984_126_982_985_795e-4,
    2.755_731_370_707_006_8e-6,
    -2.505_076_025_340_686_3e-8,
    1.589_690_995_211_55e-10,
];
const COS_F64: [f64; 6] = [
    4.166_666_666_666_66e-2,
    -1.388_888_888_887_411e-3,
    2.480_158_728_947_673e-5,
    -2.755_731_435_139_066_3e-7,
    2.087_572_321_298_175e-9,
    -1.135_964_755_778_819_5e-11,
];

/// -1/3, 1/5, ...
const ATAN_F64: [f64; 9] =
    [-1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0, 1.0 / 9.0, -1.0 / 11.0, 1.0 / 13.0, -1.0 / 15.0, 1.0 / 17.0, -1.0 / 19.0];
const ATAN_QUARTERS: [f64; 5] =
    [0.0, 0.244_978_663_126_864_14, 0.463_647_609_000_806_1, 0.643_501_108_793_284_4, std::f64::consts::FRAC_PI_4];
/// Fitted for slopes up to tan(π/8).
const ATAN_F32: [f32; 4] = [-0.333_329_5, 0.199_777_11, -0.138_776_86, 8.053_745e-2];

/// `x + x³ (c₀ + c₁ x² + ...)`.
#[inline(always)]
pub(super) fn odd_series<const N: usize>(coefficients: [f64; N], x: f64) -> f64 {
    let square = x * x;
    let mut sum = coefficients[N - 1];
    for &coefficient in coefficients[..N - 1].iter().rev() {
        sum = sum.mul_add(square, coefficient);
    }
    (x * square).mul_add(sum, x)
}

/// Of a slope from 0 to 1, by quarters, so that the series ends soon: atan(x) = atan(q) + atan((x - q) / (1 + x q)).
#[inline(always)]
pub(super) fn atan_f64(x: f64) -> f64 {
    // The cast saturates and takes NaN to 0.
    let quarter = ((x * 4.0 + 0.5) as usize).min(4);
    let known = quarter as f64 * 0.25;
    ATAN_QUARTERS[quarter] + odd_series(ATAN_F64, (x - known) / x.mul_add(known, 1.0))
}

/// Of a slope from 0 to 1: above about tan(π/8) as the angle from π/4.
#[inline(always)]
fn atan_f32(slope: f32) -> f32 {
    let is_steep = slope > 0.414_062_5;
    let x = if is_steep { (slope - 1.0) / (slope + 1.0) } else { slope };
    let square = x * x;
    let mut sum = ATAN_F32[3];
    for i in (0..3).rev() {
        sum = sum.mul_add(square, ATAN_F32[i]);
    }
    let angle = (x * square).mul_add(sum, x);
    if is_steep { std::f32::consts::FRAC_PI_4 + angle } else { angle }
}

macro_rules! near {
    ($name:ident, $type:ident, $half_pi:ident, $sin:ident, $cos:ident) => {
        /// Angles that are not far.
        #[inline(always)]
        fn $name(angle: $type) -> ($type, $type) {
            let quarters = angle.mul_add(std::$type::consts::FRAC_2_PI, 0.5).floor();
            let mut x = angle;
            for part in $half_pi {
                x = (-quarters).mul_add(part, x);
            }
            let square = x * x;
            let (mut sine, mut cosine) = ($sin[$sin.len() - 1], $cos[$cos.len() - 1]);
            for i in (0..$sin.len() - 1).rev() {
                sine = sine.mul_add(square, $sin[i]);
                cosine = cosine.mul_add(square, $cos[i]);
            }
            let sine = (x * square).mul_add(sine, x);
            let cosine = (square * square).mul_add(cosine, square.mul_add(-0.5, 1.0));
            // Which quarter of a turn, in floats: 0, 1, 2 or 3.
            let quarter = (-4.0 as $type).mul_add((quarters * 0.25).floor(), quarters);
            let is_odd = quarter == 1.0 || quarter == 3.0;
            let (first, second) = if is_odd { (cosine, sine) } else { (sine, cosine) };
            let first = if quarter >= 2.0 { -first } else { first };
            let second = if quarter == 1.0 || quarter == 2.0 { -second } else { second };
            (first, second)
        }
    };
}
near!(near_f32, f32, HALF_PI_F32, SIN_F32, COS_F32);
near!(near_f64, f64, HALF_PI_F64, SIN_F64, COS_F64);

#[cold]
#[inline(never)]
fn far_f32(angle: f32) -> (f32, f32) {
    let (sine, cosine) = f64::from(angle).trig();
    (sine as f32, cosine as f32)
}

#[cold]
#[inline(never)]
fn far_f64(angle: f64) -> (f64, f64) {
    angle.sin_cos()
}

/// f32 and f64, which have sines of their own here.
pub(crate) trait Trig: Copy {
    /// Sine and cosine.
    fn trig(self) -> (Self, Self);
    /// Of several angles side by side.
    fn trig_of<const N: usize>(angles: [Self; N]) -> ([Self; N], [Self; N]);
    /// The angle in [-π, π] of the point (x, y); 0 of (0, 0). Zeros have no sign.
    fn direction(y: Self, x: Self) -> Self;
}

macro_rules! trig {
    ($type:ident, $near:ident, $far:ident, $limit:ident, $atan:ident) => {
        impl Trig for $type {
            #[inline(always)]
            fn trig(self) -> (Self, Self) {
                if self.abs() <= $limit { $near(self) } else { $far(self) }
            }
            #[inline(always)]
            fn trig_of<const N: usize>(angles: [Self; N]) -> ([Self; N], [Self; N]) {
                let (mut sines, mut cosines) = ([0.0; N], [0.0; N]);
                let mut all_near = true;
                for i in 0..N {
                    (sines[i], cosines[i]) = $near(angles[i]);
                    all_near &= angles[i].abs() <= $limit;
                }
                if !all_near {
                    for i in 0..N {
                        (sines[i], cosines[i]) = angles[i].trig();
                    }
                }
                (sines, cosines)
            }
            #[inline(always)]
            fn direction(y: Self, x: Self) -> Self {
                use std::$type::consts::{FRAC_PI_2, PI};
                let (up, along) = (y.abs(), x.abs());
                let is_steep = up > along;
                let (less, more) = if is_steep { (along, up) } else { (up, along) };
                let slope = if less == 0.0 && more == 0.0 { 0.0 } else { less / more };
                let mut angle = $atan(slope);
                if is_steep {
                    angle = FRAC_PI_2 - angle;
                }
                if x < 0.0 {
                    angle = PI - angle;
                }
                if y < 0.0 { -angle } else { angle }
            }
        }
    };
}
trig!(f32, near_f32, far_f32, FAR_F32, atan_f32);
trig!(f64, near_f64, far_f64, FAR_F64, atan_f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_are_exact_to_the_last_digit() {
        let mut angles = vec![0.0, 1e-300, 0.5, std::f64::consts::FRAC_PI_2, std::f64::consts::PI, 1e9, 1e300];
        angles.extend((0..20_000).map(|i| f64::from(i) * 0.001_237));
        angles.extend((0..2000).map(|i| f64::from(i) * 523.77));
        for angle in angles.iter().flat_map(|&x| [x, -x]) {
            let ((sine, cosine), exact) = (angle.trig(), angle.sin_cos());
            assert!((sine - exact.0).abs() <= 2.3e-16 && (cosine - exact.1).abs() <= 2.3e-16, "{angle}");
            let small = angle as f32;
            let ((sine, cosine), exact) = (small.trig(), f64::from(small).sin_cos());
            let apart = |near: f32, exact: f64| (f64::from(near) - exact).abs();
            if small.is_finite() {
                assert!(apart(sine, exact.0) <= 1e-7 && apart(cosine, exact.1) <= 1e-7, "{small}");
            }
            let one_by_one = [small, 1.0, 2.0, 3.0].map(Trig::trig);
            let (sines, cosines) = f32::trig_of([small, 1.0, 2.0, 3.0]);
            for (i, (sine, cosine)) in one_by_one.into_iter().enumerate() {
                assert_eq!((sines[i].to_bits(), cosines[i].to_bits()), (sine.to_bits(), cosine.to_bits()), "{small}");
            }
        }
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(odd.trig().0.is_nan() && odd.trig().1.is_nan());
            assert!((odd as f32).trig().0.is_nan() && f32::trig_of([odd as f32, 0.0]).1[0].is_nan());
        }
    }

    #[test]
    fn arcs_are_exact_to_the_last_digits() {
        for i in 0..=1000 {
            let x = f64::from(i) / 1000.0;
            assert!((atan_f64(x) - x.atan()).abs() <= 2.5e-16, "atan {x}");
            assert!((f64::from(atan_f32(x as f32)) - f64::from(x as f32).atan()).abs() <= 8e-8, "atan {x}");
        }
        assert_eq!((atan_f64(1e-300), atan_f32(1e-30)), (1e-300, 1e-30));
        assert!(atan_f64(f64::NAN).is_nan() && atan_f32(f32::NAN).is_nan());
    }

    #[test]
    fn directions_go_all_around() {
        for i in 0..4000 {
            let angle = f64::from(i - 2000) * 0.001_57;
            let (y, x) = angle.sin_cos();
            assert!((f64::direction(3.0 * y, 3.0 * x) - angle).abs() <= 1e-15, "{angle}");
            assert!((f64::from(f32::direction(y as f32, x as f32)) - angle).abs() <= 4e-7, "{angle}");
        }
        let pi = std::f64::consts::PI;
        for ((y, x), angle) in [((0.0, 0.0), 0.0), ((0.0, -2.0), pi), ((2.0, 0.0), pi / 2.0), ((-2.0, 0.0), -pi / 2.0)]
        {
            assert_eq!((f64::direction(y, x), f32::direction(y as f32, x as f32)), (angle, angle as f32));
        }
        for (y, x) in [(f64::NAN, 0.0), (0.0, f64::NAN), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert!(f64::direction(y, x).is_nan() && f32::direction(y as f32, x as f32).is_nan());
        }
    }
}
