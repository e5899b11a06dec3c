//! Elements as ops on points compute with them, and numbers for elements of any dtype.

use std::cmp::Ordering;
use std::fmt;

use half::{bf16, f16};

use crate::tensor::{DType, Element};

/// An element of points, features or depth.
pub(crate) trait Scalar: Element {
    /// What it computes in: f64 for f64, else f32.
    type Compute: Real;

    /// The same number.
    fn widen(self) -> Self::Compute;
    /// The nearest number; by way of f32 for the half floats, as kernels do it.
    fn narrow(number: f64) -> Self;
}

/// f32 or f64.
pub(crate) trait Real: Copy + Send + Sync + PartialOrd + Into<f64> + 'static {
    /// The nearest number.
    fn from_f64(number: f64) -> Self;
    /// IEEE difference.
    fn minus(self, other: Self) -> Self;
    /// IEEE sum.
    fn plus(self, other: Self) -> Self;
    /// IEEE product.
    fn times(self, other: Self) -> Self;
    /// IEEE quotient.
    fn over(self, other: Self) -> Self;
    /// Towards zero.
    ///
    /// # Safety
    /// The number must lie within `0..2^31`.
    unsafe fn to_index(self) -> u32;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;

    /// An integer of this width.
    type Order: Copy + Default + Ord;
    /// An integer whose order is that of floats, -0 below +0, NaN above all; the other way round for `least`.
    fn order(self, least: bool) -> Self::Order;
    /// The number of an order.
    fn from_order(order: Self::Order, least: bool) -> Self;
}

macro_rules! real {
    ($(($type:ty, $order:ty)),+) => {$(
        impl Real for $type {
            type Order = $order;
            #[inline(always)]
            fn order(self, least: bool) -> $order {
                let (bits, nan) = (self.to_bits() as $order, <$type>::NAN.abs());
                let is_nan = (bits & <$order>::MAX) > <$type>::INFINITY.to_bits() as $order;
                let greatest = if least { -nan } else { nan }.to_bits() as $order;
                let bits = if is_nan { greatest } else { bits };
                let order = bits ^ ((bits >> (<$order>::BITS - 1)) & <$order>::MAX);
                if least { !order } else { order }
            }
            #[inline(always)]
            fn from_order(order: $order, least: bool) -> Self {
                let order = if least { !order } else { order };
                Self::from_bits((order ^ ((order >> (<$order>::BITS - 1)) & <$order>::MAX)) as _)
            }
            #[inline(always)]
            fn from_f64(number: f64) -> Self {
                number as $type
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            unsafe fn to_index(self) -> u32 {
                // By way of i32, which machines have an instruction for.
                // SAFETY: the caller's promise.
                unsafe { self.to_int_unchecked::<i32>() as u32 }
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
        }
    )+};
}
real!((f32, i32), (f64, i64));

macro_rules! scalar {
    ($(($type:ty, $compute:ty, $widen:expr, $narrow:expr)),+) => {$(
        impl Scalar for $type {
            type Compute = $compute;
            #[inline(always)]
            fn widen(self) -> $compute {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(number: f64) -> Self {
                $narrow(number)
            }
        }
    )+};
}
scalar!(
    (f16, f32, f16::to_f32, |x: f64| f16::from_f32(x as f32)),
    (bf16, f32, bf16::to_f32, |x: f64| bf16::from_f32(x as f32)),
    (f32, f32, |x| x, |x: f64| x as f32),
    (f64, f64, |x| x, |x| x)
);

/// Calls `$function::<T>(..)` with the type of a float dtype.
macro_rules! with_float {
    ($dtype:expr, $function:ident $(::<$($more:ty),+>)?, $($argument:expr),* $(,)?) => {
        match $dtype {
            $crate::DType::F16 => $function::<half::f16 $(, $($more),+)?>($($argument),*),
            $crate::DType::BF16 => $function::<half::bf16 $(, $($more),+)?>($($argument),*),
            $crate::DType::F32 => $function::<f32 $(, $($more),+)?>($($argument),*),
            _ => $function::<f64 $(, $($more),+)?>($($argument),*),
        }
    };
}
pub(crate) use with_float;

/// The float dtypes in the order of the kernels' numbers.
pub(crate) const FLOATS: [(DType, &str); 4] =
    [(DType::F16, "rc::f16"), (DType::BF16, "rc::bf16"), (DType::F32, "float"), (DType::F64, "double")];

/// A float dtype's number in [`FLOATS`].
pub(crate) fn float_number(dtype: DType) -> u8 {
    match dtype {
        DType::F16 => 0,
        DType::BF16 => 1,
        DType::F32 => 2,
        _ => 3,
    }
}

/// A number for elements of any dtype. f64 does not hold every integer of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Whole(i128),
    /// Any number, NaN and infinity too.
    Real(f64),
}

macro_rules! number {
    ($($variant:ident: $($type:ty),+;)+) => {$($(
        impl From<$type> for Number {
            fn from(number: $type) -> Self {
                Self::$variant(number.into())
            }
        }
    )+)+};
}
number! {
    Whole: i32, i64, u64, i128;
    Real: f32, f64;
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number:?}"),
        }
    }
}

/// A number as bits of `dtype`: rounded for floats, exact for integers. None where `dtype` does not hold it.
pub(crate) fn bits_of(dtype: DType, number: Number) -> Option<u64> {
    let (least, most): (i128, i128) = match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return float_bits_of(dtype, number),
        DType::F8E4M3 | DType::F8E5M2 => return None,
        DType::Bool => (0, 1),
        DType::U8 => (0, u8::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::U64 => (0, u64::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
    };
    let whole = match number {
        Number::Whole(number) => number,
        // What lies beyond i128 becomes its end, which no dtype holds.
        Number::Real(number) if number.trunc() == number => number as i128,
        Number::Real(_) => return None,
    };
    let bits = whole as u64 & (u64::MAX >> (64 - 8 * dtype.size()));
    (least..=most).contains(&whole).then_some(bits)
}

/// Rounded once. None where a finite number would become infinite.
fn float_bits_of(dtype: DType, number: Number) -> Option<u64> {
    let (nearest, cut) = match number {
        Number::Whole(number) => (number as f64, odd_f64(number)),
        Number::Real(number) => (number, number),
    };
    let (bits, is_infinite) = match dtype {
        DType::F16 => {
            let half = f16::from_f32(odd_f32(cut));
            (u64::from(half.to_bits()), half.is_infinite())
        }
        DType::BF16 => {
            let half = bf16::from_f32(odd_f32(cut));
            (u64::from(half.to_bits()), half.is_infinite())
        }
        DType::F32 => (u64::from((cut as f32).to_bits()), (cut as f32).is_infinite()),
        _ => (nearest.to_bits(), nearest.is_infinite()),
    };
    (is_infinite == nearest.is_infinite()).then_some(bits)
}

/// Rounded to odd: what is cut off leaves a 1 in the last bit, so that rounding again to fewer bits is right.
fn odd_f64(number: i128) -> f64 {
    let near = number as f64;
    let cut = (near as i128).unsigned_abs();
    let bits = near.to_bits();
    match cut.cmp(&number.unsigned_abs()) {
        Ordering::Equal => near,
        Ordering::Less => f64::from_bits(bits | 1),
        Ordering::Greater => f64::from_bits((bits - 1) | 1),
    }
}

/// The same for a number with more bits than 32 hold; infinite only where it is.
fn odd_f32(number: f64) -> f32 {
    let near = number as f32;
    let bits = near.to_bits();
    match f64::from(near).abs().partial_cmp(&number.abs()) {
        Some(Ordering::Less) => f32::from_bits(bits | 1),
        Some(Ordering::Greater) => f32::from_bits((bits - 1) | 1),
        _ => near,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_order<C: Real + std::fmt::Debug>(numbers: &[C], bits: impl Fn(C) -> u64) {
        for (index, &number) in numbers.iter().enumerate() {
            for least in [false, true] {
                assert_eq!(bits(C::from_order(number.order(least), least)), bits(number));
            }
            for &greater in &numbers[index + 1..] {
                assert!(number.order(false) < greater.order(false), "{number:?} {greater:?}");
                assert!(number.order(true) > greater.order(true), "{number:?} {greater:?}");
            }
            for nan in [f64::NAN, -f64::NAN].map(C::from_f64) {
                assert!(nan.order(false) > number.order(false));
                assert!(nan.order(true) > number.order(true));
            }
        }
        let nan = C::from_f64(f64::NAN);
        assert!(
            [false, true]
                .map(|least| C::from_order(nan.order(least), least))
                .iter()
                .all(|x| x.partial_cmp(x).is_none())
        );
    }

    #[test]
    fn integers_are_ordered_as_floats_are() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, f64::INFINITY];
        check_order(&numbers, f64::to_bits);
        let numbers = [f32::NEG_INFINITY, -1e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, f32::INFINITY];
        check_order(&numbers, |number| u64::from(number.to_bits()));
    }

    #[test]
    fn numbers_become_bits_or_nothing() {
        assert_eq!(bits_of(DType::I8, (-1.0).into()), Some(0xff));
        assert_eq!(bits_of(DType::F16, 1.0.into()), Some(0x3c00));
        assert_eq!(bits_of(DType::BF16, (-2).into()), Some(0xc000));
        assert_eq!(bits_of(DType::F32, f64::NAN.into()).map(|bits| f32::from_bits(bits as u32).is_nan()), Some(true));
        assert_eq!(bits_of(DType::F16, f64::NEG_INFINITY.into()), Some(0xfc00));
        // Between two numbers, and so near to the middle that rounding twice would take the wrong one.
        let (above, below) = ((1i128 << 60) + (1 << 36) + 1, (1i128 << 60) + (3 << 36) - 1);
        for (number, sign) in [(above, 0), (-above, 1 << 31), (below, 0), (-below, 1 << 31)] {
            assert_eq!(bits_of(DType::F32, number.into()), Some(0x5d80_0001 | sign), "{number}");
        }
        for (number, sign) in [(1.0 + 2f64.powi(-11) + 2f64.powi(-40), 0), (-1.0 - 2f64.powi(-11) - 2f64.powi(-40), 1)]
        {
            assert_eq!(bits_of(DType::F16, number.into()), Some(0x3c01 | sign << 15), "{number}");
        }
        assert_eq!(bits_of(DType::BF16, ((1i128 << 60) + (1 << 52) + 1).into()), Some(0x5d81));
        assert_eq!(bits_of(DType::F16, 1e300.into()), None);
        assert_eq!(bits_of(DType::F32, (-i128::MAX).into()), Some(0xff00_0000));
        for (dtype, number) in [
            (DType::U8, 256.into()),
            (DType::U8, (-1.0).into()),
            (DType::Bool, 2.0.into()),
            (DType::I32, 0.5.into()),
            (DType::I64, f64::NAN.into()),
            (DType::U16, f64::INFINITY.into()),
            (DType::U64, f64::MAX.into()),
            (DType::F16, 65_520.into()),
            (DType::F32, 1e39.into()),
            (DType::F8E4M3, 1.into()),
        ] {
            assert_eq!(bits_of(dtype, number), None, "{dtype} {number}");
        }
    }

    #[test]
    fn integers_are_exact_to_the_ends_of_their_dtypes() {
        let above = (1i64 << 53) + 1;
        assert_eq!(bits_of(DType::I64, above.into()), Some(above as u64));
        assert_eq!(bits_of(DType::I64, (-above).into()), Some(-above as u64));
        for (dtype, least, most) in [
            (DType::Bool, 0, 1),
            (DType::U8, 0, i128::from(u8::MAX)),
            (DType::I8, i128::from(i8::MIN), i128::from(i8::MAX)),
            (DType::U16, 0, i128::from(u16::MAX)),
            (DType::I16, i128::from(i16::MIN), i128::from(i16::MAX)),
            (DType::U32, 0, i128::from(u32::MAX)),
            (DType::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (DType::U64, 0, i128::from(u64::MAX)),
            (DType::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
        ] {
            let bits = |number: i128| bits_of(dtype, number.into());
            let mask = u64::MAX >> (64 - 8 * dtype.size());
            assert_eq!((bits(least), bits(most)), (Some(least as u64 & mask), Some(most as u64 & mask)), "{dtype}");
            assert_eq!((bits(least - 1), bits(most + 1)), (None, None), "{dtype}");
        }
    }
}
