//! Grids written with one pattern on the host, and when rows of a grid are tasks.

use std::ops::Range;

use super::dims::Dims;
use crate::cpu::{Shared, for_each, threads};
use crate::tensor::DType;
use crate::{Context, Result};

/// Bytes of a task that only writes.
pub(super) const TASK_BYTES: usize = 1 << 20;
/// Bytes of the grid, and points, of a row that one thread fills and then writes.
const NEAR_ROW_BYTES: usize = 1 << 20;
pub(super) const NEAR_ROW_POINTS: usize = 1 << 20;

/// Whether each row of the grid is filled and written by one thread, while it is in its cache.
pub(super) fn rows_are_tasks(dims: &Dims, dtype: DType) -> bool {
    let small = dims.cells.saturating_mul(dtype.size()) <= NEAR_ROW_BYTES && dims.cloud.count <= NEAR_ROW_POINTS;
    small && dims.cloud.batch >= 2 * threads()
}

/// Writes one pattern to `count` elements.
///
/// # Safety
/// They must be writable at `out`, aligned as their dtype is.
pub(super) unsafe fn fill(out: *mut u8, dtype: DType, bits: u64, count: usize, context: &Context<'_>) -> Result<()> {
    let per_task = TASK_BYTES / dtype.size();
    let out = Shared(out);
    for_each(count.div_ceil(per_task), context, &|task| {
        let (first, end) = (task * per_task, ((task + 1) * per_task).min(count));
        // SAFETY: the caller's promise; tasks have parts of their own.
        unsafe { fill_part(out.get(), dtype, bits, first..end) };
    })
}

/// # Safety
/// As for [`fill`].
pub(super) unsafe fn fill_part(out: *mut u8, dtype: DType, bits: u64, range: Range<usize>) {
    let (size, count) = (dtype.size(), range.len());
    let bytes = bits.to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        let part = out.add(range.start * size);
        if bytes[..size].iter().all(|byte| *byte == bytes[0]) {
            return part.write_bytes(bytes[0], count * size);
        }
        match size {
            2 => std::slice::from_raw_parts_mut(part.cast(), count).fill(bits as u16),
            4 => std::slice::from_raw_parts_mut(part.cast(), count).fill(bits as u32),
            _ => std::slice::from_raw_parts_mut(part.cast(), count).fill(bits),
        }
    }
}
