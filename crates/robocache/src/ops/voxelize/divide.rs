//! Division by one number again and again, without the machine's slow division.

/// A number to divide by. Mirrors `rc::Divisor` in divide.cuh.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Divisor {
    number: u64,
    /// 2^64 over the number, rounded down; its upper half is 2^32 over the number, rounded down.
    inverse: u64,
}

impl Divisor {
    pub(super) fn new(number: u64) -> Self {
        let inverse = u64::try_from((1u128 << 64) / u128::from(number.max(1))).unwrap_or(u64::MAX);
        Self { number: number.max(1), inverse }
    }

    /// Quotient and remainder.
    #[inline(always)]
    pub(super) fn divide(self, dividend: u64) -> (u64, u64) {
        // Too small by 1 at most: the inverse is too small by less than 1 (for the number 1, by 1).
        let low = ((u128::from(dividend) * u128::from(self.inverse)) >> 64) as u64;
        let rest = dividend - low * self.number;
        if rest >= self.number { (low + 1, rest - self.number) } else { (low, rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [u64; 14] =
        [1, 2, 3, 5, 7, 10, 255, 256, 1000, (1 << 20) - 1, 1 << 20, (1 << 24) - 3, 1 << 24, u64::MAX >> 1];

    #[test]
    fn division_is_exact() {
        for number in NUMBERS {
            let divisor = Divisor::new(number);
            for factor in [0, 1, 2, 3, 1000, (1 << 40) + 7, u64::MAX] {
                let product = number.saturating_mul(factor);
                for dividend in [product.saturating_sub(1), product, product.saturating_add(1), (1 << 63) - 1, u64::MAX]
                {
                    assert_eq!(
                        divisor.divide(dividend),
                        (dividend / number, dividend % number),
                        "{dividend} / {number}"
                    );
                }
            }
        }
    }

    /// As divide.cuh divides 32 bits.
    #[test]
    fn half_of_the_inverse_divides_half_as_many_bits() {
        for number in NUMBERS.into_iter().filter(|&number| number <= u64::from(u32::MAX)) {
            let (number, inverse) = (number as u32, (Divisor::new(number).inverse >> 32) as u32);
            for factor in [0, 1, 2, 3, 1000, (1 << 20) + 7, u32::MAX] {
                let product = number.saturating_mul(factor);
                for dividend in [product.saturating_sub(1), product, product.saturating_add(1), u32::MAX] {
                    let low = ((u64::from(dividend) * u64::from(inverse)) >> 32) as u32;
                    let rest = dividend - low * number;
                    let got = if rest >= number { (low + 1, rest - number) } else { (low, rest) };
                    assert_eq!(got, (dividend / number, dividend % number), "{dividend} / {number}");
                }
            }
        }
    }
}
