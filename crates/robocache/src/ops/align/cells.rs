//! Elements as the loops of `resample` move and blend them.

use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::locate::Stamp;

/// An element: copied by every method, blended by some.
pub(in crate::ops) trait Cell: Copy + Send + Sync + 'static {
    /// The type that blending computes in.
    type Weight: Copy + PartialEq;
    const ZERO: Self::Weight;
    const ONE: Self::Weight;

    fn from_bits(bits: u64) -> Self;
    fn weight<S: Stamp>(target: S, first: S, second: S) -> Self::Weight;
    fn blend(first: Self, second: Self, weight: Self::Weight) -> Self;

    /// Blends rows without holes. `FMA` says that the machine has AVX2, FMA and F16C, `STREAM` that
    /// the row should go past the caches.
    ///
    /// # Safety
    /// `width` elements must be readable at `first` and `second` and writable at `out`; `FMA` must
    /// be true of the machine.
    #[inline(always)]
    unsafe fn blend_row<const FMA: bool, const STREAM: bool>(
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

/// Rows in vector instructions where the machine has them.
macro_rules! blend_row_in_vectors {
    () => {
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        unsafe fn blend_row<const FMA: bool, const STREAM: bool>(
            first: *const Self,
            second: *const Self,
            weight: f32,
            out: *mut Self,
            width: usize,
        ) {
            if FMA {
                // Streaming stores need aligned rows; the others go the ordinary way.
                let aligned = (out as usize).is_multiple_of(32);
                // SAFETY: the caller's promise.
                unsafe {
                    if STREAM && aligned {
                        avx2::blend_row::<Self, true>(first, second, weight, out, width);
                    } else {
                        avx2::blend_row::<Self, false>(first, second, weight, out, width);
                    }
                }
                return;
            }
            for column in 0..width {
                // SAFETY: column < width.
                unsafe { *out.add(column) = Self::blend(*first.add(column), *second.add(column), weight) };
            }
        }
    };
}

impl Cell for f32 {
    float_cell!(f32, u32, f32, weight_f32, |x| x, |x| x);
    blend_row_in_vectors!();
}

impl Cell for f64 {
    float_cell!(f64, u64, f64, weight_f64, |x| x, |x| x);
}

impl Cell for bf16 {
    float_cell!(bf16, u16, f32, weight_f32, bf16::to_f32, bf16::from_f32);
    blend_row_in_vectors!();
}

impl Cell for f16 {
    float_cell!(f16, u16, f32, weight_f32, f16::to_f32, f16::from_f32);
    blend_row_in_vectors!();
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

    /// All bit patterns of a half float, or as many of f32, in vectors and one by one.
    fn vectors_agree<T: Cell<Weight = f32> + PartialEq>(from_bits: impl Fn(u32) -> T, is_nan: impl Fn(T) -> bool) {
        if crate::cpu::simd() == crate::cpu::Simd::Baseline {
            return;
        }
        let first: Vec<T> = (0..=0xffff).map(&from_bits).collect();
        let second: Vec<T> = (0..=0xffffu32).map(|bits| from_bits(bits.wrapping_mul(40503))).collect();
        let mut out = first.clone();
        for weight in [0.25f32, 0.7, 1.5, -3.0] {
            for start in [0, 3] {
                let width = first.len() - start - 1;
                // SAFETY: all three hold more than start + width elements; AVX2 was found.
                unsafe {
                    let (first, second) = (first[start..].as_ptr(), second[start..].as_ptr());
                    T::blend_row::<true, false>(first, second, weight, out.as_mut_ptr(), width);
                }
                for column in 0..width {
                    let expected = T::blend(first[start + column], second[start + column], weight);
                    assert!(
                        out[column] == expected || (is_nan(out[column]) && is_nan(expected)),
                        "{column} at {weight}"
                    );
                }
            }
        }
    }

    #[test]
    fn vectors_and_single_elements_agree() {
        vectors_agree(|bits| f16::from_bits(bits as u16), f16::is_nan);
        vectors_agree(|bits| bf16::from_bits(bits as u16), bf16::is_nan);
        vectors_agree(|bits| f32::from_bits(bits.wrapping_mul(65_537) ^ (bits >> 3)), f32::is_nan);
    }
}
