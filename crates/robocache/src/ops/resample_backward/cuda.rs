//! The gradient of `resample` on CUDA: methods that are linear in the values go through `rows_cuda`; others, and
//! values that a batch shares, through `find_cuda` and `gather_cuda`.

use super::find_cuda::{Memory, find};
use super::gather_cuda::{add_groups, gather};
use super::rows_cuda::sum_rows;
use super::{Dims, ResampleBackward};
use crate::cuda::{Launcher, Parts};
use crate::ops::align::{ColumnRange, Method, STAMPS, strides};
use crate::tensor::DType;
use crate::{Outputs, Result};

/// Names, types and bytes of elements.
pub(super) const CELLS: [(&str, &str, u32); 4] =
    [("float16", "rc::f16", 2), ("bfloat16", "rc::bf16", 2), ("float32", "float", 4), ("float64", "double", 8)];

/// A kernel of methods that are linear in the values: its elements, its stamps and the width of its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) cell: u8,
    pub(super) stamp: u8,
    pub(super) bytes: u8,
}

impl Variant {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CELLS.len() as u8).flat_map(|cell| {
            let size = CELLS[usize::from(cell)].2;
            let widths = [16u8, 8, 4, 2].into_iter().filter(move |&bytes| u32::from(bytes) >= size);
            widths.flat_map(move |bytes| (0..STAMPS.len() as u8).map(move |stamp| Self { cell, stamp, bytes }))
        })
    }

    pub(super) fn number(self) -> u32 {
        u32::from_le_bytes([self.cell, self.stamp, self.bytes, 0])
    }

    pub(super) fn from_number(number: u32) -> Self {
        let [cell, stamp, bytes, _] = number.to_le_bytes();
        Self { cell, stamp, bytes }
    }

    pub(super) fn cell(self) -> (&'static str, &'static str, u32) {
        CELLS[usize::from(self.cell) % CELLS.len()]
    }

    pub(super) fn stamp(self) -> (&'static str, &'static str, u32) {
        STAMPS[usize::from(self.stamp) % STAMPS.len()]
    }

    /// Its name behind that of the kernel.
    pub(super) fn name(self) -> String {
        format!("{}_{}_{}", self.cell().0, self.stamp().0, self.bytes)
    }

    /// What all such kernels are told; `A` are their arguments.
    pub(super) fn options<A>(self) -> Vec<String> {
        vec![
            format!("-DRC_CELL={}", self.cell().1),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_BYTES={}", self.bytes),
            format!("-DRC_ARGS_SIZE={}", size_of::<A>()),
        ]
    }
}

/// What a call has to do, with its output.
pub(super) struct Call<'a> {
    pub(super) op: &'a ResampleBackward<'a>,
    pub(super) dims: &'a Dims,
    pub(super) out: *mut u8,
    pub(super) out_strides: [isize; 3],
}

impl Call<'_> {
    /// The place of the elements in [`CELLS`].
    pub(super) fn cell(&self) -> u8 {
        match self.op.forward.values.dtype() {
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

/// Whether there is nothing to compute.
fn is_empty(dims: &Dims) -> bool {
    let forward = &dims.forward;
    forward.width == 0 || forward.samples == 0 || (forward.batch == 0 && dims.groups.is_none())
}

/// Whether targets are listed by their samples before they are summed up.
fn is_listed(dims: &Dims, range: &ColumnRange) -> bool {
    dims.groups.is_some() || range.method.reads_values()
}

/// Bytes of memory that a call needs while it runs.
pub(super) fn workspace(op: &ResampleBackward<'_>, dims: &Dims) -> Result<usize> {
    if is_empty(dims) {
        return Ok(0);
    }
    if dims.forward.ranges.iter().any(|range| is_listed(dims, range)) {
        return Ok(Memory::new(op, dims)?.bytes());
    }
    Ok(0)
}

pub(super) fn backward(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    if is_empty(dims) {
        return Ok(());
    }
    let base = Parts::base(out.workspace());
    let partial = dims.groups.and_then(|_| out.get(1)).map(|partial| partial.data_mut());
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let call = Call { op, dims, out_strides: strides(output.view()), out: output.data_mut() };
    let mut found = None;
    for range in dims.forward.ranges.iter() {
        if !is_listed(dims, range) {
            sum_rows(&call, range, launcher)?;
            continue;
        }
        let memory = Memory::new(op, dims)?;
        let rule = rule_of(range);
        if found != Some(rule) {
            find(op, dims, rule, (&memory, base), launcher)?;
            found = Some(rule);
        }
        gather(&call, range, partial, (&memory, base), launcher)?;
    }
    partial.map_or(Ok(()), |partial| add_groups(&call, partial, launcher))
}
