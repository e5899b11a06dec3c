//! Sine and cosine of any angle, as polynomials of our own, so that CPU and GPU give the same bits and loops over them
//! become vector instructions.
//!
//! Kernel twin: `kernels/trig.cuh`, step by step. Errors are below one unit in the last place of the larger of the two
//! results. Angles beyond [`FAR_F64`] go to the platform's own functions, whose last bits differ between CPU and GPU.

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
}

macro_rules! trig {
    ($type:ident, $near:ident, $far:ident, $limit:ident) => {
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
        }
    };
}
trig!(f32, near_f32, far_f32, FAR_F32);
trig!(f64, near_f64, far_f64, FAR_F64);

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
}
