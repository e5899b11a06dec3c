//! Rows blended eight numbers at a time. Compilers do not turn conversions of half floats into
//! vector instructions by themselves.

use std::arch::x86_64::*;

use half::{bf16, f16};

/// Elements that are computed as f32.
pub(super) trait Eight: Copy {
    /// # Safety
    /// Eight elements behind `from`, on a machine with AVX2, FMA and F16C.
    unsafe fn load(from: *const Self) -> __m256;
    /// `STREAM`: past the caches, for which `to` must be aligned to what is written.
    ///
    /// # Safety
    /// As for `load`.
    unsafe fn store<const STREAM: bool>(to: *mut Self, numbers: __m256);
    fn zero() -> Self;
}

impl Eight for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store<const STREAM: bool>(to: *mut Self, numbers: __m256) {
        // SAFETY: the caller's promise.
        unsafe { if STREAM { _mm256_stream_ps(to, numbers) } else { _mm256_storeu_ps(to, numbers) } }
    }
    fn zero() -> Self {
        0.0
    }
}

#[inline(always)]
unsafe fn store_halves<const STREAM: bool>(to: *mut __m128i, halves: __m128i) {
    // SAFETY: the caller's promise.
    unsafe { if STREAM { _mm_stream_si128(to, halves) } else { _mm_storeu_si128(to, halves) } }
}

impl Eight for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store<const STREAM: bool>(to: *mut Self, numbers: __m256) {
        // SAFETY: the caller's promise.
        unsafe { store_halves::<STREAM>(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers)) }
    }
    fn zero() -> Self {
        Self::ZERO
    }
}

impl Eight for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn store<const STREAM: bool>(to: *mut Self, numbers: __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm256_castps_si256(numbers);
            // To nearest, ties to even; NaN stays NaN, made quiet.
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(numbers, numbers);
            let high = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
            let words = _mm256_srli_epi32::<16>(_mm256_castps_si256(high));
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(words, words));
            store_halves::<STREAM>(to.cast(), _mm256_castsi256_si128(packed));
        }
    }
    fn zero() -> Self {
        Self::ZERO
    }
}

/// On the line through both rows, as `Cell::blend` does it for one element.
///
/// # Safety
/// `width` elements must be readable at `first` and `second` and writable at `out`, on a machine
/// with AVX2, FMA and F16C.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn blend_row<T: Eight, const STREAM: bool>(
    first: *const T,
    second: *const T,
    weight: f32,
    out: *mut T,
    width: usize,
) {
    // SAFETY: blocks of eight inside the row, then a copy of the rest.
    unsafe {
        let mut done = 0;
        while done + 8 <= width {
            T::store::<STREAM>(out.add(done), blend(T::load(first.add(done)), T::load(second.add(done)), weight));
            done += 8;
        }
        if done < width {
            let (mut a, mut b, mut c) = ([T::zero(); 8], [T::zero(); 8], [T::zero(); 8]);
            let rest = width - done;
            std::ptr::copy_nonoverlapping(first.add(done), a.as_mut_ptr(), rest);
            std::ptr::copy_nonoverlapping(second.add(done), b.as_mut_ptr(), rest);
            T::store::<false>(c.as_mut_ptr(), blend(T::load(a.as_ptr()), T::load(b.as_ptr()), weight));
            std::ptr::copy_nonoverlapping(c.as_ptr(), out.add(done), rest);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn blend(a: __m256, b: __m256, weight: f32) -> __m256 {
    let w = _mm256_set1_ps(weight);
    let difference = _mm256_sub_ps(b, a);
    let blended = _mm256_fmadd_ps(w, difference, a);
    // Ends so far apart that their difference is not finite: rare, so worth a branch.
    let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), difference);
    let finite = _mm256_cmp_ps::<_CMP_LE_OQ>(size, _mm256_set1_ps(f32::MAX));
    if _mm256_movemask_ps(finite) == 0xff || !(weight > 0.0 && weight < 1.0) {
        return blended;
    }
    let rest = _mm256_mul_ps(_mm256_sub_ps(_mm256_set1_ps(1.0), w), a);
    _mm256_blendv_ps(_mm256_fmadd_ps(w, b, rest), blended, finite)
}
