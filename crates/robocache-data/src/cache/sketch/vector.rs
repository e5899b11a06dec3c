//! The loops over blocks of numbers, for the vector instructions that the machine has.
//!
//! Every lane is added up for itself, and nothing is fused, so that all machines give the same bits.

use super::Real;

/// A loop that is compiled once for any machine and once for AVX2, where the compiler makes vectors
/// of twice the size.
macro_rules! vectorised {
    ($(#[$doc:meta])* fn $name:ident<$real:ident>($($argument:ident: $type:ty),*) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name<$real: Real>($($argument: $type),*) $(-> $out)? {
            #[inline(always)]
            fn any<$real: Real>($($argument: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2<$real: Real>($($argument: $type),*) $(-> $out)? {
                    any($($argument),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the machine has AVX2.
                    return unsafe { avx2($($argument),*) };
                }
            }
            any($($argument),*)
        }
    };
}

const LANES: usize = 8;

vectorised! {
    /// The smallest and the largest; beyond any number where there is none.
    fn bounds<T>(values: &[T]) -> (T, T) {
        // Several vectors: one would wait for itself in every step.
        const LANES: usize = 16;
        let (rows, rest) = values.as_chunks::<LANES>();
        let less = |a: T, b: T| if b < a { b } else { a };
        let more = |a: T, b: T| if b > a { b } else { a };
        // Two passes, each of which becomes one instruction per vector.
        let mut low = [T::BEYOND.0; LANES];
        for row in rows {
            low = std::array::from_fn(|lane| less(low[lane], row[lane]));
        }
        let mut high = [T::BEYOND.1; LANES];
        for row in rows {
            high = std::array::from_fn(|lane| more(high[lane], row[lane]));
        }
        let low = low.iter().chain(rest).fold(T::BEYOND.0, |a, &b| less(a, b));
        (low, high.iter().chain(rest).fold(T::BEYOND.1, |a, &b| more(a, b)))
    }
}

vectorised! {
    /// The bucket of every number.
    fn digits<T>(values: &[T], low: T, scale: T, digits: &mut [u16]) {
        for (digit, value) in digits.iter_mut().zip(values) {
            *digit = value.digit(low, scale);
        }
    }
}

vectorised! {
    /// The sum of the distances from a number, and of their squares.
    fn sums<T>(values: &[T], origin: f64) -> (f64, f64) {
        let (mut sum, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let (rows, rest) = values.as_chunks::<LANES>();
        // In two passes for the same reason.
        for row in rows {
            sum = std::array::from_fn(|lane| sum[lane] + (row[lane].into() - origin));
        }
        for row in rows {
            squares = std::array::from_fn(|lane| {
                let distance = row[lane].into() - origin;
                squares[lane] + distance * distance
            });
        }
        for (lane, &value) in rest.iter().enumerate() {
            let distance = value.into() - origin;
            sum[lane] += distance;
            squares[lane] += distance * distance;
        }
        (sum.iter().sum(), squares.iter().sum())
    }
}
