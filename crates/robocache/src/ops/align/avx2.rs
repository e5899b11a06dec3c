//! Rows blended sixteen numbers at a time. Compilers do not turn conversions of half floats into
//! vector instructions by themselves.

use std::arch::x86_64::*;

use half::{bf16, f16};

/// Numbers of one step.
pub(super) const STEP: usize = 16;

/// Sixteen numbers.
type Numbers = [__m256; 2];

/// Elements that are computed as f32. All functions need [`STEP`] elements behind the pointer and a
/// machine with AVX2, FMA and F16C.
pub(super) trait Lanes: Copy {
    const ZERO: Self;

    /// # Safety
    /// See the trait.
    unsafe fn load(from: *const Self) -> Numbers;
    /// Rounds to nearest even. `STREAM`: past the caches, for which `to` must be aligned to
    /// 32 bytes. `NAN`: whether numbers may be NaN.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store<const STREAM: bool, const NAN: bool>(to: *mut Self, numbers: Numbers);
}

impl Lanes for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Numbers {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn store<const STREAM: bool, const NAN: bool>(to: *mut Self, [low, high]: Numbers) {
        // SAFETY: the caller's promise.
        unsafe {
            if STREAM {
                _mm256_stream_ps(to, low);
                _mm256_stream_ps(to.add(8), high);
            } else {
                _mm256_storeu_ps(to, low);
                _mm256_storeu_ps(to.add(8), high);
            }
        }
    }
}

#[inline(always)]
unsafe fn store_halves<const STREAM: bool>(to: *mut __m256i, halves: __m256i) {
    // SAFETY: the caller's promise.
    unsafe { if STREAM { _mm256_stream_si256(to, halves) } else { _mm256_storeu_si256(to, halves) } }
}

impl Lanes for f16 {
    const ZERO: Self = Self::ZERO;

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Numbers {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(8).cast()));
            [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
        }
    }

    #[inline(always)]
    unsafe fn store<const STREAM: bool, const NAN: bool>(to: *mut Self, numbers: Numbers) {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers[0]);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers[1]);
            store_halves::<STREAM>(to.cast(), _mm256_set_m128i(high, low));
        }
    }
}

/// f32 rounded to bf16, in the lower halves of the words. (No closures here: they would not be
/// compiled for the instructions that their surroundings use.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn upper_halves<const NAN: bool>(numbers: __m256) -> __m256i {
    let bits = _mm256_castps_si256(numbers);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let mut rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    if NAN {
        // Rounding could carry NaN into infinity; it is only made quiet.
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(numbers, numbers));
        rounded = _mm256_blendv_epi8(rounded, quiet, is_nan);
    }
    _mm256_srli_epi32::<16>(rounded)
}

impl Lanes for bf16 {
    const ZERO: Self = Self::ZERO;

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Numbers {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast()));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))]
        }
    }

    #[inline(always)]
    unsafe fn store<const STREAM: bool, const NAN: bool>(to: *mut Self, numbers: Numbers) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (upper_halves::<NAN>(numbers[0]), upper_halves::<NAN>(numbers[1]));
            // Packing works within halves of a register, so the middle parts change places.
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
            store_halves::<STREAM>(to.cast(), packed);
        }
    }
}

/// On the line through both rows, as `Cell::blend` does it for one element.
///
/// # Safety
/// `width` elements must be readable at `first` and `second` and writable at `out`, on a machine
/// with AVX2, FMA and F16C; `out` aligned as [`Lanes::store`] wants it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blend_row<T: Lanes, const STREAM: bool>(
    first: *const T,
    second: *const T,
    weight: f32,
    out: *mut T,
    width: usize,
) {
    // SAFETY: steps inside the row, then a copy of the rest.
    unsafe {
        let mut done = 0;
        while done + STEP <= width {
            step::<T, STREAM>(first.add(done), second.add(done), weight, out.add(done));
            done += STEP;
        }
        if done < width {
            let (mut a, mut b, mut c) = ([T::ZERO; STEP], [T::ZERO; STEP], [T::ZERO; STEP]);
            let rest = width - done;
            std::ptr::copy_nonoverlapping(first.add(done), a.as_mut_ptr(), rest);
            std::ptr::copy_nonoverlapping(second.add(done), b.as_mut_ptr(), rest);
            step::<T, false>(a.as_ptr(), b.as_ptr(), weight, c.as_mut_ptr());
            std::ptr::copy_nonoverlapping(c.as_ptr(), out.add(done), rest);
        }
    }
}

/// One step. # Safety: as for `blend_row`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn step<T: Lanes, const STREAM: bool>(first: *const T, second: *const T, weight: f32, out: *mut T) {
    // SAFETY: the caller's promise.
    let (a, b) = unsafe { (T::load(first), T::load(second)) };
    let w = _mm256_set1_ps(weight);
    let (mut blended, mut finite) = (a, a);
    for part in 0..2 {
        let difference = _mm256_sub_ps(b[part], a[part]);
        blended[part] = _mm256_fmadd_ps(w, difference, a[part]);
        let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), difference);
        finite[part] = _mm256_cmp_ps::<_CMP_LE_OQ>(size, _mm256_set1_ps(f32::MAX));
    }
    if _mm256_movemask_ps(_mm256_and_ps(finite[0], finite[1])) == 0xff && weight.is_finite() {
        // SAFETY: the caller's promise.
        return unsafe { T::store::<STREAM, false>(out, blended) };
    }
    // Samples that are not finite, or too far apart: rare, so worth a branch.
    if weight > 0.0 && weight < 1.0 {
        let rest = _mm256_set1_ps(1.0 - weight);
        for part in 0..2 {
            let far = _mm256_fmadd_ps(w, b[part], _mm256_mul_ps(rest, a[part]));
            blended[part] = _mm256_blendv_ps(far, blended[part], finite[part]);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { T::store::<STREAM, true>(out, blended) }
}
