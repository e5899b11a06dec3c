//! Which vector instructions the loops may use, decided once per process.

use std::sync::atomic::{AtomicU8, Ordering};

/// The instruction sets that loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Simd {
    /// What the target guarantees.
    Baseline = 1,
    /// AVX2 with FMA and half-float conversion, on every x86-64 machine since 2013.
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

/// Runs `body` as compiled for the best instruction set of this machine. What `body` calls must be inlined to
/// take part. Nothing is contracted: the numbers are the same for every set.
#[inline(always)]
pub(crate) fn vectorized<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn with_avx2<R>(body: impl FnOnce() -> R) -> R {
        body()
    }
    match simd() {
        // SAFETY: the machine has them.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => unsafe { with_avx2(body) },
        Simd::Baseline => body(),
    }
}

/// The vector instructions in use, for people.
pub fn features() -> &'static str {
    match simd() {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => "AVX2, FMA, F16C",
        Simd::Baseline => "baseline",
    }
}
