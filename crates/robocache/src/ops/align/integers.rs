//! Streams of integers that go to another dtype, or whose columns are copied by different methods.

use half::{bf16, f16};

use super::cpu::{Destination, StreamJob, age_of};
use super::{Arguments, Method, Pick, Rows, Rules, Stamp};
use crate::tensor::{DType, F8E4M3, F8E5M2};

/// The work for a stream of integers.
pub(super) fn job<'a, S: Stamp>(op: &Arguments<'a>, rows: Rows<'a, S>, to: Destination) -> Box<dyn StreamJob + 'a> {
    let dtype = op.values.dtype();
    Box::new(IntegerJob {
        bracket: op.rules(Method::Linear, to.valid.is_null()),
        values: op.values.data(),
        read: reader(dtype),
        write: writer(to.dtype),
        size: dtype.size(),
        to,
        rows,
    })
}

/// A stream of integers, whose samples are only copied, into a dtype that holds them.
struct IntegerJob<'a, S> {
    rows: Rows<'a, S>,
    /// Finds the two samples around a target; each range of columns then takes one of them.
    bracket: Rules,
    values: *const u8,
    size: usize,
    read: unsafe fn(*const u8) -> i128,
    write: unsafe fn(*mut u8, Option<i128>),
    to: Destination,
}

// SAFETY: inputs are only read; every task writes its own rows and targets of the outputs.
unsafe impl<S: Sync> Sync for IntegerJob<'_, S> {}

/// An element as a whole number, and made of one; of nothing where there is no value.
trait Whole: Copy {
    fn number(self) -> i128;
    fn of(number: Option<i128>) -> Self;
}

macro_rules! whole {
    ($($type:ty: $number:expr, $of:expr);+) => {$(
        impl Whole for $type {
            fn number(self) -> i128 {
                ($number)(self)
            }
            fn of(number: Option<i128>) -> Self {
                ($of)(number)
            }
        }
    )+};
}
macro_rules! integers {
    ($($type:ty),+) => { whole!($($type: i128::from, |number: Option<i128>| number.unwrap_or(0) as $type);+); };
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);
// Floats are only written here.
whole!(
    bool: i128::from, |number: Option<i128>| number.unwrap_or(0) != 0;
    f16: |_| 0, |number: Option<i128>| number.map_or(f16::NAN, |number| f16::from_f32(number as f32));
    bf16: |_| 0, |number: Option<i128>| number.map_or(bf16::NAN, |number| bf16::from_f32(number as f32));
    f32: |_| 0, |number: Option<i128>| number.map_or(f32::NAN, |number| number as f32);
    f64: |_| 0, |number: Option<i128>| number.map_or(f64::NAN, |number| number as f64);
    // These are only stored: floats on the way, and never a result.
    F8E4M3: |_| 0, |_| F8E4M3(0x7f);
    F8E5M2: |_| 0, |_| F8E5M2(0x7f)
);

/// # Safety
/// A `T` must be readable at `data`.
unsafe fn read<T: Whole>(data: *const u8) -> i128 {
    // SAFETY: the caller's promise.
    unsafe { data.cast::<T>().read() }.number()
}

/// # Safety
/// A `T` must be writable at `data`.
unsafe fn write<T: Whole>(data: *mut u8, number: Option<i128>) {
    // SAFETY: the caller's promise.
    unsafe { data.cast::<T>().write(T::of(number)) };
}

macro_rules! by_dtype {
    ($(($variant:ident, $type:ty, $name:literal, $class:ident)),+) => {
        fn reader(dtype: DType) -> unsafe fn(*const u8) -> i128 {
            match dtype { $(DType::$variant => read::<$type>),+ }
        }
        fn writer(dtype: DType) -> unsafe fn(*mut u8, Option<i128>) {
            match dtype { $(DType::$variant => write::<$type>),+ }
        }
    };
}
crate::for_each_dtype!(by_dtype);

impl<S: Stamp> StreamJob for IntegerJob<'_, S> {
    fn target_bytes(&self) -> usize {
        self.rows.dims.width * (self.size + self.to.dtype.size()) + 2 * size_of::<S>()
    }

    fn run(&self, row: usize, start: usize, end: usize) {
        let (stamps, targets) = (self.rows.stamps(row), self.rows.targets(row));
        let dims = self.rows.dims;
        let [value_batch, value_step, value_column] = dims.value_strides.map(|stride| stride * self.size as isize);
        let [batch, step, column] = self.to.out_strides.map(|stride| stride * self.to.dtype.size() as isize);
        let (row, mut hint) = (row as isize, 0);
        for index in start..end {
            let (pick, valid) = if index < targets.len() {
                self.bracket.locate(&stamps, targets.at(index), &mut hint)
            } else {
                (Pick::Missing, false)
            };
            // SAFETY: rows, samples, targets and columns inside what the checks proved.
            unsafe { self.to.mark(row, index as isize, valid, || age_of(&stamps, &targets, index, hint)) };
            for range in dims.ranges.iter() {
                let sample = match (pick, range.method) {
                    (Pick::Missing, _) => None,
                    (Pick::Take(sample), _) | (Pick::Blend(sample, _), Method::Previous) => Some(sample),
                    (Pick::Blend(_, sample), Method::Next) => Some(sample),
                    (Pick::Blend(first, second), _) => {
                        let nearer = targets.at(index).is_nearer_to_earlier(stamps.at(first), stamps.at(second));
                        Some(if nearer { first } else { second })
                    }
                };
                for c in range.start as isize..range.end as isize {
                    // SAFETY: as above; no other task writes this target.
                    unsafe {
                        let number = sample.map(|sample| {
                            let offset = row * value_batch + sample as isize * value_step + c * value_column;
                            (self.read)(self.values.offset(offset))
                        });
                        (self.write)(self.to.out.offset(row * batch + index as isize * step + c * column), number);
                    }
                }
            }
        }
    }
}
