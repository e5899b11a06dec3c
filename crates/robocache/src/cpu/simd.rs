//! Which vector instructions the loops may use, decided once per process.

use std::sync::atomic::{AtomicU8, Ordering};

/// The instruction sets that loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Simd {
    /// What the target guarantees.
    Baseline = 1,
    /// AVX2 with BMI, FMA and half-float conversion, on every x86-64 machine since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2 = 2,
}

/// The best instruction set of this machine.
pub(crate) fn simd() -> Simd {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    #[cfg(target_arch = "x86_64")]
    {
        match FOUND.load(Ordering::Relaxed) {
            0 => {
                let found = is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c");
                let found = if found { Simd::Avx2 } else { Simd::Baseline };
                FOUND.store(found as u8, Ordering::Relaxed);
                found
            }
            found if found == Simd::Avx2 as u8 => Simd::Avx2,
            _ => Simd::Baseline,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        FOUND.store(Simd::Baseline as u8, Ordering::Relaxed);
        Simd::Baseline
    }
}

/// Compiles a function for each instruction set and calls the one for this machine. Nothing is contracted, so
/// the numbers are the same for every set. Type parameters stand in brackets and follow from the arguments; what
/// the body calls must be inlined to take part, so a closure will not do.
macro_rules! vectorized {
    ($(#[$doc:meta])* $visible:vis unsafe fn $name:ident[$($generics:tt)*]($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $visible unsafe fn $name<$($generics)*>($($argument: $type),*) {
            #[inline(always)]
            unsafe fn plain<$($generics)*>($($argument: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,fma,f16c")]
            unsafe fn with_avx2<$($generics)*>($($argument: $type),*) {
                // SAFETY: the caller's promise.
                unsafe { plain($($argument),*) }
            }

            // SAFETY: the caller's promise; the machine has what is asked for.
            unsafe {
                match $crate::cpu::simd() {
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::Simd::Avx2 => with_avx2($($argument),*),
                    $crate::cpu::Simd::Baseline => plain($($argument),*),
                }
            }
        }
    };
}
pub(crate) use vectorized;

/// Asks for what is about to be used; a hint, so any address will do.
#[inline(always)]
pub(crate) fn prefetch<T>(slot: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching ahead has no effect on memory and does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(slot.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}

/// The vector instructions in use, for people.
pub fn features() -> &'static str {
    match simd() {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => "AVX2, BMI, FMA, F16C",
        Simd::Baseline => "baseline",
    }
}
