//! A call as its kernels take it.

use super::dims::Dims;
use crate::ops::align::{ColumnRange, Method};
use crate::ops::resample::Resample;
use crate::tensor::{DType, TensorRef};

/// Names, types and bytes of elements.
pub(super) const CELLS: [(&str, &str, u32); 4] =
    [("float16", "rc::f16", 2), ("bfloat16", "rc::bf16", 2), ("float32", "float", 4), ("float64", "double", 8)];

/// What a call has to do, with its output.
pub(super) struct Call<'a> {
    pub(super) forward: &'a Resample<'a>,
    /// The gradient in its result.
    pub(super) grad: &'a TensorRef<'a>,
    pub(super) dims: &'a Dims,
    pub(super) out: *mut u8,
    pub(super) out_strides: [isize; 3],
}

impl Call<'_> {
    /// The place of the elements in [`CELLS`].
    pub(super) fn cell(&self) -> u8 {
        match self.forward.values.dtype() {
            DType::F16 => 0,
            DType::BF16 => 1,
            DType::F32 => 2,
            _ => 3,
        }
    }
}

/// How methods are numbered in kernels; those that blend are made of the same samples.
pub(super) fn rule_of(range: &ColumnRange) -> Method {
    if range.method.copies() { range.method } else { Method::Linear }
}

/// Strides in bytes; that of the columns from one unit to the next.
pub(super) fn in_bytes(strides: [isize; 3], size: usize, unit: usize) -> [i64; 3] {
    let [batch, row, column] = strides.map(|stride| stride as i64 * size as i64);
    [batch, row, column * unit as i64]
}
