//! Elements as the loops of `resample` move and blend them.

use half::{bf16, f16};

use super::locate::Stamp;

/// An element: copied by every method, blended by some.
pub(super) trait Cell: Copy + Send + Sync + 'static {
    /// The type that blending computes in.
    type Weight: Copy + PartialEq;
    const ZERO: Self::Weight;
    const ONE: Self::Weight;

    fn from_bits(bits: u64) -> Self;
    fn weight<S: Stamp>(target: S, first: S, second: S) -> Self::Weight;
    fn blend(first: Self, second: Self, weight: Self::Weight) -> Self;

    /// Blends rows without holes. `FMA` says that the caller was compiled for AVX2, FMA and F16C.
    ///
    /// # Safety
    /// `width` elements must be readable at `first` and `second` and writable at `out`.
    #[inline(always)]
    unsafe fn blend_row<const FMA: bool>(
        first: *const Self,
        second: *const Self,
        weight: Self::Weight,
        out: *mut Self,
        width: usize,
    ) {
        for column in 0..width {
            // SAFETY: column < width.
            unsafe { *out.add(column) = Self::blend(*first.add(column), *second.add(column), weight) };
        }
    }
}

/// On the line through `a` at 0 and `b` at 1. Equal ends give that value exactly. The second
/// form is for points between ends so far apart, or infinite, that their difference is not finite.
macro_rules! lerp {
    ($a:expr, $b:expr, $weight:expr) => {{
        let (a, b, weight) = ($a, $b, $weight);
        let difference = b - a;
        if difference.is_finite() || !(weight > 0.0 && weight < 1.0) {
            weight.mul_add(difference, a)
        } else {
            weight.mul_add(b, (1.0 - weight) * a)
        }
    }};
}

macro_rules! float_cell {
    ($type:ty, $bits:ty, $weight:ty, $method:ident, $widen:expr, $narrow:expr) => {
        type Weight = $weight;
        const ZERO: $weight = 0.0;
        const ONE: $weight = 1.0;

        #[inline(always)]
        fn from_bits(bits: u64) -> Self {
            <$type>::from_bits(bits as $bits)
        }
        #[inline(always)]
        fn weight<S: Stamp>(target: S, first: S, second: S) -> $weight {
            target.$method(first, second)
        }
        #[inline(always)]
        fn blend(first: Self, second: Self, weight: $weight) -> Self {
            $narrow(lerp!($widen(first), $widen(second), weight))
        }
    };
}

impl Cell for f32 {
    float_cell!(f32, u32, f32, weight_f32, |x| x, |x| x);
}

impl Cell for f64 {
    float_cell!(f64, u64, f64, weight_f64, |x| x, |x| x);
}

impl Cell for bf16 {
    float_cell!(bf16, u16, f32, weight_f32, widen_bf16, narrow_bf16);
}

impl Cell for f16 {
    float_cell!(f16, u16, f32, weight_f32, f16::to_f32, f16::from_f32);

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn blend_row<const FMA: bool>(
        first: *const Self,
        second: *const Self,
        weight: f32,
        out: *mut Self,
        width: usize,
    ) {
        let mut done = 0;
        if FMA {
            while done + 8 <= width {
                // SAFETY: eight elements from `done` on are inside the row.
                unsafe { blend_8_f16(first.add(done), second.add(done), weight, out.add(done)) };
                done += 8;
            }
            if done < width {
                let (mut a, mut b, mut c) = ([f16::ZERO; 8], [f16::ZERO; 8], [f16::ZERO; 8]);
                let rest = width - done;
                // SAFETY: `rest` elements are left in the row, and fewer than 8.
                unsafe {
                    std::ptr::copy_nonoverlapping(first.add(done), a.as_mut_ptr(), rest);
                    std::ptr::copy_nonoverlapping(second.add(done), b.as_mut_ptr(), rest);
                    blend_8_f16(a.as_ptr(), b.as_ptr(), weight, c.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(c.as_ptr(), out.add(done), rest);
                }
            }
        } else {
            for column in done..width {
                // SAFETY: column < width.
                unsafe { *out.add(column) = Self::blend(*first.add(column), *second.add(column), weight) };
            }
        }
    }
}

/// Compilers do not turn conversions of f16 into vector instructions by themselves.
///
/// # Safety
/// Eight elements behind each pointer, on a machine with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn blend_8_f16(first: *const f16, second: *const f16, weight: f32, out: *mut f16) {
    use std::arch::x86_64::*;
    // SAFETY: unaligned accesses to the eight elements that the caller vouches for.
    unsafe {
        let a = _mm256_cvtph_ps(_mm_loadu_si128(first.cast()));
        let b = _mm256_cvtph_ps(_mm_loadu_si128(second.cast()));
        let w = _mm256_set1_ps(weight);
        let difference = _mm256_sub_ps(b, a);
        let blended = _mm256_fmadd_ps(w, difference, a);
        // Past the ends everything counts as finite.
        let limit = if weight > 0.0 && weight < 1.0 { f32::MAX } else { f32::INFINITY };
        let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), difference);
        let finite = _mm256_cmp_ps::<_CMP_LE_OQ>(size, _mm256_set1_ps(limit));
        let rest = _mm256_mul_ps(_mm256_sub_ps(_mm256_set1_ps(1.0), w), a);
        let far = _mm256_fmadd_ps(w, b, rest);
        let result = _mm256_blendv_ps(far, blended, finite);
        _mm_storeu_si128(out.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(result));
    }
}

#[inline(always)]
fn widen_bf16(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Round to nearest even without a branch, so that the loop becomes vector instructions.
#[inline(always)]
fn narrow_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { rounded } as u16)
}

/// Elements that are only copied, by their size.
macro_rules! copied_cell {
    ($($type:ty),+) => {$(
        impl Cell for $type {
            type Weight = ();
            const ZERO: () = ();
            const ONE: () = ();
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }
            #[inline(always)]
            fn weight<S: Stamp>(_: S, _: S, _: S) {}
            // Only float cells are given to methods that blend.
            #[inline(always)]
            fn blend(first: Self, _: Self, (): ()) -> Self {
                first
            }
        }
    )+};
}
copied_cell!(u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowing_equals_the_half_crate() {
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(high) << 16 | low);
                let (ours, theirs) = (narrow_bf16(x), bf16::from_f32(x));
                assert!(ours == theirs || (ours.is_nan() && theirs.is_nan()), "{x}");
            }
        }
    }

    #[test]
    fn equal_ends_give_that_value_and_far_ends_stay_finite() {
        for x in [0.0f32, -0.1, 3e38, f32::MIN_POSITIVE / 4.0, f32::INFINITY] {
            for weight in [1e-9f32, 0.3, 0.999_999] {
                assert_eq!(f32::blend(x, x, weight), x);
            }
        }
        assert_eq!(f32::blend(-f32::MAX, f32::MAX, 0.5), 0.0);
        assert_eq!(f64::blend(f64::INFINITY, 1.0, 0.5), f64::INFINITY);
        assert!(f32::blend(f32::INFINITY, f32::NEG_INFINITY, 0.5).is_nan());
        assert_eq!(f32::blend(1e38, 2e38, 10.0), f32::INFINITY);
        assert_eq!(f32::blend(0.0, 1.0, f32::NEG_INFINITY), f32::NEG_INFINITY);
    }

    #[test]
    fn vector_and_scalar_f16_agree() {
        if crate::cpu::simd() == crate::cpu::Simd::Baseline {
            return;
        }
        let first: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let second: Vec<f16> = (0..=u16::MAX).map(|bits| f16::from_bits(bits.wrapping_mul(40503))).collect();
        let mut out = vec![f16::ZERO; first.len()];
        for weight in [0.25f32, 0.7, 1.5] {
            for start in [0, 3] {
                let width = first.len() - start - 1;
                // SAFETY: all three hold more than start + width elements; AVX2 was found.
                unsafe {
                    f16::blend_row::<true>(
                        first[start..].as_ptr(),
                        second[start..].as_ptr(),
                        weight,
                        out.as_mut_ptr(),
                        width,
                    );
                }
                for column in 0..width {
                    let expected = f16::blend(first[start + column], second[start + column], weight);
                    assert!(out[column] == expected || (out[column].is_nan() && expected.is_nan()));
                }
            }
        }
    }
}
