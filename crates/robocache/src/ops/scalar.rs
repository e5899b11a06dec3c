//! Floating point elements as ops on points compute with them.

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

/// A number as bits of `dtype`; none where an integer cannot hold it exactly.
pub(crate) fn bits_of(dtype: DType, number: f64) -> Option<u64> {
    let whole = |low: f64, high: f64| (number.trunc() == number && number >= low && number <= high).then_some(number);
    Some(match dtype {
        DType::F16 => u64::from(f16::narrow(number).to_bits()),
        DType::BF16 => u64::from(bf16::narrow(number).to_bits()),
        DType::F32 => u64::from((number as f32).to_bits()),
        DType::F64 => number.to_bits(),
        DType::Bool => whole(0.0, 1.0)? as u64,
        DType::U8 => whole(0.0, 255.0)? as u64,
        DType::U16 => whole(0.0, 65_535.0)? as u64,
        DType::U32 => whole(0.0, f64::from(u32::MAX))? as u64,
        DType::U64 => whole(0.0, 9.007_199_254_740_992e15)? as u64,
        DType::I8 => whole(-128.0, 127.0)? as i64 as u64 & 0xff,
        DType::I16 => whole(-32_768.0, 32_767.0)? as i64 as u64 & 0xffff,
        DType::I32 => whole(f64::from(i32::MIN), f64::from(i32::MAX))? as i64 as u64 & 0xffff_ffff,
        DType::F8E4M3 | DType::F8E5M2 => return None,
        DType::I64 => whole(-9.007_199_254_740_992e15, 9.007_199_254_740_992e15)? as i64 as u64,
    })
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
        assert_eq!(bits_of(DType::I8, -1.0), Some(0xff));
        assert_eq!(bits_of(DType::F16, 1.0), Some(0x3c00));
        assert_eq!(bits_of(DType::BF16, -2.0), Some(0xc000));
        assert_eq!(bits_of(DType::F32, f64::NAN).map(|bits| f32::from_bits(bits as u32).is_nan()), Some(true));
        for (dtype, number) in [
            (DType::U8, 256.0),
            (DType::U8, -1.0),
            (DType::Bool, 2.0),
            (DType::I32, 0.5),
            (DType::I64, f64::NAN),
            (DType::U16, f64::INFINITY),
        ] {
            assert_eq!(bits_of(dtype, number), None, "{dtype} {number}");
        }
    }
}
