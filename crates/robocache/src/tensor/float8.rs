//! Floats of 8 bits: only stored, never computed in. The kernels decode them alike (`rc.cuh`).

use half::f16;

/// 4 bits of exponent, 3 of mantissa: up to 448, no infinity (`float8_e4m3fn` of torch and NumPy's
/// ml_dtypes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// 5 bits of exponent, 2 of mantissa: the upper half of a float16 (`float8_e5m2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

/// The numbers of all codes: a look at 1 KiB is quicker than making them.
macro_rules! numbers {
    ($type:ident) => {{
        let mut numbers = [0.0; 256];
        let mut code = 0;
        while code < numbers.len() {
            numbers[code] = $type::decode(code as u8);
            code += 1;
        }
        numbers
    }};
}

impl F8E4M3 {
    /// The number, exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        static NUMBERS: [f32; 256] = numbers!(F8E4M3);
        NUMBERS[usize::from(self.0)]
    }

    const fn decode(code: u8) -> f32 {
        let size = (code & 0x7f) as u32;
        if size == 0x7f {
            return f32::NAN;
        }
        // In the place of a float's exponent it is too small by 127 - 7 powers of two; also where it is 0.
        let number = f32::from_bits(size << 20) * f32::from_bits((127 + 120) << 23);
        if code & 0x80 == 0 { number } else { -number }
    }
}

impl F8E5M2 {
    /// The number, exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        static NUMBERS: [f32; 256] = numbers!(F8E5M2);
        NUMBERS[usize::from(self.0)]
    }

    const fn decode(code: u8) -> f32 {
        f16::from_bits((code as u16) << 8).to_f32_const()
    }
}

impl From<F8E4M3> for f64 {
    fn from(stored: F8E4M3) -> Self {
        stored.to_f32().into()
    }
}

impl From<F8E5M2> for f64 {
    fn from(stored: F8E5M2) -> Self {
        stored.to_f32().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_the_number_that_its_bits_say() {
        for code in 0..=u8::MAX {
            let sign = if code & 0x80 == 0 { 1.0f64 } else { -1.0 };
            let number = |exponent: u8, mantissa: u8, bits: i32, bias: i32| {
                let share = f64::from(mantissa) / f64::from(1 << bits);
                match exponent {
                    0 => sign * share * f64::from(1 - bias).exp2(),
                    _ => sign * (1.0 + share) * f64::from(i32::from(exponent) - bias).exp2(),
                }
            };
            let (exponent, mantissa) = (code >> 3 & 15, code & 7);
            let found = f64::from(F8E4M3(code));
            match (exponent, mantissa) {
                (15, 7) => assert!(found.is_nan()),
                _ => assert_eq!(found.to_bits(), number(exponent, mantissa, 3, 7).to_bits(), "{code:#x}"),
            }
            let (exponent, mantissa) = (code >> 2 & 31, code & 3);
            let found = f64::from(F8E5M2(code));
            match (exponent, mantissa) {
                (31, 0) => assert_eq!(found, sign * f64::INFINITY),
                (31, _) => assert!(found.is_nan()),
                _ => assert_eq!(found.to_bits(), number(exponent, mantissa, 2, 15).to_bits(), "{code:#x}"),
            }
        }
        assert_eq!((F8E4M3(0x7e).to_f32(), F8E5M2(0x7b).to_f32()), (448.0, 57344.0));
    }
}
