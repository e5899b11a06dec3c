//! `voxelize` on the host. Occupancy and counts are written by atomic stores and additions; features
//! are reduced along the points sorted by cell.

use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::grid::Cells;
use super::reduce::{Features, reduce};
use super::{CountsIn, Dims, Reduce, Targets, Voxelize};
use crate::cpu::{Pair, Shared, for_each, is_worth_sharing, sort};
use crate::ops::cloud::{Cloud, Points};
use crate::ops::rows::check_length_values;
use crate::ops::scalar::{Scalar, with_float};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Outputs, Result};

/// Points of a task: enough to hide handing it out.
const TASK_POINTS: usize = 16 << 10;
/// Bytes of a task that only writes.
const TASK_BYTES: usize = 1 << 20;
const ALIGN: usize = 64;

pub(super) fn workspace(op: &Voxelize<'_>, dims: &Dims) -> Result<usize> {
    let too_large = || Error::invalid("points", "too many to be sorted");
    if op.reduce.uses_features() {
        let pairs = dims.cloud.total().checked_mul(2 * size_of::<Pair>()).ok_or_else(too_large)?;
        return Ok(pairs + ALIGN);
    }
    Ok(match CountsIn::of(op, dims) {
        CountsIn::Workspace => dims.all_cells.checked_mul(4).ok_or_else(too_large)? + ALIGN,
        _ => 0,
    })
}

pub(super) fn voxelize(op: &Voxelize<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    if op.check {
        check_length_values(op.lengths, dims.cloud.batch, dims.cloud.count)?;
    }
    let targets = Targets::new(op, out)?;
    let scratch = out.workspace().map_addr(|address| address.next_multiple_of(ALIGN));
    with_float!(op.points.dtype(), with_points, op, dims, &targets, scratch, context)
}

fn with_points<T: Scalar>(
    op: &Voxelize<'_>,
    dims: &Dims,
    targets: &Targets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let cloud = Finder::<T>::new(&op.points, op.lengths, &dims.cloud, Cells::new(&op.grid), dims.cells as u64);
    if !targets.dropped.is_null() {
        // SAFETY: `[B]` int64, row-major.
        unsafe { targets.dropped.write_bytes(0, dims.cloud.batch) };
    }
    if op.reduce.uses_features() {
        return with_float!(dims.dtype, sorted::<T>, &cloud, op, dims, targets, scratch, context);
    }
    let counts = match CountsIn::of(op, dims) {
        CountsIn::Nothing => std::ptr::null_mut(),
        CountsIn::Counts => targets.counts,
        CountsIn::Out => targets.out.cast(),
        CountsIn::Workspace => scratch.cast(),
    };
    if !counts.is_null() {
        // SAFETY: `[B,X,Y,Z]` int32, row-major, or as much memory to work in.
        unsafe { fill(counts.cast(), DType::I32, 0, dims.all_cells, context)? };
        let counts = Shared(counts);
        cloud.for_each_run(targets, (counts.get().cast(), 4), context, &|cell, points| {
            // SAFETY: a cell of the grid; aligned as int32 is.
            unsafe { AtomicI32::from_ptr(counts.get().add(cell as usize)) }.fetch_add(points, Relaxed);
        })?;
        if op.reduce == Reduce::Count {
            return if counts.get().cast() == targets.out {
                Ok(())
            } else {
                write_counts(counts.get(), dims, targets, context)
            };
        }
    }
    // SAFETY: `[B,X,Y,Z]` of this dtype, row-major.
    unsafe { fill(targets.out, dims.dtype, dims.fill, dims.all_cells, context)? };
    let (out, one) = (Shared(targets.out), dims.one);
    let again = Targets { dropped: if counts.is_null() { targets.dropped } else { std::ptr::null_mut() }, ..*targets };
    let slots = (targets.out, dims.dtype.size());
    match slots.1 {
        1 => cloud.for_each_run(&again, slots, context, &|cell, _| {
            // SAFETY: a cell of the grid. Stores of one value may meet.
            unsafe { AtomicU8::from_ptr(out.get().add(cell as usize)) }.store(one as u8, Relaxed);
        }),
        2 => cloud.for_each_run(&again, slots, context, &|cell, _| {
            // SAFETY: as above, aligned as its dtype is.
            unsafe { AtomicU16::from_ptr(out.get().cast::<u16>().add(cell as usize)) }.store(one as u16, Relaxed);
        }),
        4 => cloud.for_each_run(&again, slots, context, &|cell, _| {
            // SAFETY: as above.
            unsafe { AtomicU32::from_ptr(out.get().cast::<u32>().add(cell as usize)) }.store(one as u32, Relaxed);
        }),
        _ => cloud.for_each_run(&again, slots, context, &|cell, _| {
            // SAFETY: as above.
            unsafe { AtomicU64::from_ptr(out.get().cast::<u64>().add(cell as usize)) }.store(one, Relaxed);
        }),
    }
}

/// Finds the cells of points, numbered through all rows.
pub(super) struct Finder<'a, T: Scalar> {
    points: Points<T>,
    cells: Cells<T>,
    cloud: &'a Cloud,
    lengths: Option<TensorRef<'a>>,
    per_row: u64,
}

impl<'a, T: Scalar> Finder<'a, T> {
    pub(super) fn new(
        points: &TensorRef<'_>,
        lengths: Option<TensorRef<'a>>,
        cloud: &'a Cloud,
        cells: Cells<T>,
        per_row: u64,
    ) -> Self {
        Self { points: Points::new(points, cloud), cells, cloud, lengths, per_row }
    }

    /// Cuts the points into tasks: calls `body(row, first, end)` on all cores.
    fn for_each_part(&self, context: &Context<'_>, body: &(dyn Fn(usize, usize, usize) + Sync)) -> Result<()> {
        let Cloud { batch, count, .. } = *self.cloud;
        let parts = count.div_ceil(TASK_POINTS).max(1);
        for_each(batch * parts, context, &|task| {
            let (row, first) = (task / parts, task % parts * TASK_POINTS);
            body(row, first, (first + TASK_POINTS).min(count));
        })
    }

    /// Calls `visit(cell, points)` for each run of points in one cell, and counts the dropped. `slots`
    /// is where cells of `size` bytes lie: they are asked for a few points ahead.
    fn for_each_run(
        &self,
        targets: &Targets,
        slots: (*mut u8, usize),
        context: &Context<'_>,
        visit: &(impl Fn(u64, i32) + Sync),
    ) -> Result<()> {
        const AHEAD: usize = 64;
        const NOWHERE: u64 = u64::MAX;
        let (dropped, slots, size) = (Shared(targets.dropped), Shared(slots.0), slots.1);
        self.for_each_part(context, &|row, first, end| {
            let end = end.min(self.cloud.length(self.lengths, row));
            let base = row as u64 * self.per_row;
            let mut found = [NOWHERE; AHEAD];
            let (mut before, mut run, mut lost) = (NOWHERE, 0, 0u64);
            let mut start = first;
            while start < end {
                let count = (end - start).min(AHEAD);
                for (index, found) in (start..end).zip(&mut found) {
                    // SAFETY: the row and the point exist.
                    let cell = self.cells.find(unsafe { self.points.at(row, index) });
                    *found = cell.map_or(NOWHERE, |cell| base + cell);
                    if let Some(cell) = cell {
                        prefetch(slots.get().wrapping_add((base + cell) as usize * size));
                    }
                }
                for &cell in &found[..count] {
                    lost += u64::from(cell == NOWHERE);
                    if cell == before {
                        run += 1;
                        continue;
                    }
                    if before != NOWHERE {
                        visit(before, run);
                    }
                    (before, run) = (cell, 1);
                }
                start += count;
            }
            if before != NOWHERE {
                visit(before, run);
            }
            add_dropped(dropped, row, lost);
        })
    }

    /// Writes the cell of every point, `nowhere` for padding and what was dropped.
    pub(super) fn write_pairs(
        &self,
        pairs: &mut [Pair],
        nowhere: u64,
        dropped: *mut i64,
        context: &Context<'_>,
    ) -> Result<()> {
        let (pairs, dropped) = (Shared(pairs.as_mut_ptr()), Shared(dropped));
        self.for_each_part(context, &|row, first, end| {
            let length = self.cloud.length(self.lengths, row);
            let mut lost = 0;
            for index in first..end {
                let global = row * self.cloud.count + index;
                let mut key = nowhere;
                if index < length {
                    // SAFETY: the row and the point exist.
                    match self.cells.find(unsafe { self.points.at(row, index) }) {
                        Some(cell) => key = row as u64 * self.per_row + cell,
                        None => lost += 1,
                    }
                }
                // SAFETY: there is a pair for each point, and no other task writes this one.
                unsafe { *pairs.get().add(global) = Pair { key, index: global as u64 } };
            }
            add_dropped(dropped, row, lost);
        })
    }
}

/// Asks for a cell that is about to be written; a hint, so any address will do.
#[inline(always)]
fn prefetch(slot: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching ahead has no effect on memory and does not fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(slot.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}

fn add_dropped(dropped: Shared<i64>, row: usize, lost: u64) {
    if lost > 0 && !dropped.get().is_null() {
        // SAFETY: `[B]` int64, row-major, in use by atomic additions only.
        unsafe { AtomicU64::from_ptr(dropped.get().add(row).cast()) }.fetch_add(lost, Relaxed);
    }
}

/// Writes one pattern to `count` elements.
///
/// # Safety
/// They must be writable at `out`, aligned as their dtype is.
unsafe fn fill(out: *mut u8, dtype: DType, bits: u64, count: usize, context: &Context<'_>) -> Result<()> {
    let size = dtype.size();
    let per_task = TASK_BYTES / size;
    let out = Shared(out);
    let body = |task: usize| {
        let (first, end) = (task * per_task, ((task + 1) * per_task).min(count));
        // SAFETY: the caller's promise; tasks have parts of their own.
        unsafe {
            let part = out.get().add(first * size);
            let bytes = bits.to_le_bytes();
            if bytes[..size].iter().all(|byte| *byte == bytes[0]) {
                return part.write_bytes(bytes[0], (end - first) * size);
            }
            match size {
                2 => std::slice::from_raw_parts_mut(part.cast(), end - first).fill(bits as u16),
                4 => std::slice::from_raw_parts_mut(part.cast(), end - first).fill(bits as u32),
                _ => std::slice::from_raw_parts_mut(part.cast(), end - first).fill(bits),
            }
        }
    };
    for_each(count.div_ceil(per_task), context, &body)
}

/// Counts in another dtype, or with another number than 0 in empty cells.
fn write_counts(counts: *const i32, dims: &Dims, targets: &Targets, context: &Context<'_>) -> Result<()> {
    let per_task = TASK_BYTES / 8;
    let (counts, out) = (Shared(counts.cast_mut()), Shared(targets.out));
    let (dtype, fill) = (dims.dtype, dims.fill);
    for_each(dims.all_cells.div_ceil(per_task), context, &|task| {
        for cell in task * per_task..((task + 1) * per_task).min(dims.all_cells) {
            // SAFETY: a cell of both.
            unsafe {
                let count = *counts.get().add(cell);
                match (dtype, count) {
                    (DType::I32, 0) => out.get().cast::<u32>().add(cell).write(fill as u32),
                    (DType::I32, _) => out.get().cast::<i32>().add(cell).write(count),
                    (DType::F32, 0) => out.get().cast::<u32>().add(cell).write(fill as u32),
                    (DType::F32, _) => out.get().cast::<f32>().add(cell).write(count as f32),
                    (_, 0) => out.get().cast::<u64>().add(cell).write(fill),
                    (DType::I64, _) => out.get().cast::<i64>().add(cell).write(i64::from(count)),
                    _ => out.get().cast::<f64>().add(cell).write(f64::from(count)),
                }
            }
        }
    })
}

/// Features along the points sorted by cell.
fn sorted<O: Scalar, T: Scalar>(
    cloud: &Finder<'_, T>,
    op: &Voxelize<'_>,
    dims: &Dims,
    targets: &Targets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let Some(features) = op.features else {
        return Ok(());
    };
    let total = dims.cloud.total();
    // SAFETY: the workspace holds twice as many pairs, and zeros are pairs.
    let (pairs, other) = unsafe {
        let start = scratch.cast::<Pair>();
        if total == 0 {
            (&mut [][..], &mut [][..])
        } else {
            start.write_bytes(0, 2 * total);
            (std::slice::from_raw_parts_mut(start, total), std::slice::from_raw_parts_mut(start.add(total), total))
        }
    };
    let nowhere = dims.all_cells as u64;
    cloud.write_pairs(pairs, nowhere, targets.dropped, context)?;
    let swapped = sort(pairs, other, u64::BITS - nowhere.leading_zeros(), context)?;
    let sorted = if swapped { &*other } else { &*pairs };
    let sorted = &sorted[..sorted.partition_point(|pair| pair.key < nowhere)];
    // SAFETY: the outputs are row-major, of these dtypes.
    unsafe {
        fill(targets.out, dims.dtype, dims.fill, dims.all_cells * dims.width, context)?;
        if !targets.counts.is_null() {
            fill(targets.counts.cast(), DType::I32, 0, dims.all_cells, context)?;
        }
    }
    let job = Job { op, dims, sorted, out: Shared(targets.out.cast::<O>()), counts: Shared(targets.counts) };
    with_float!(features.dtype(), reduce_all::<O>, &features, &job, context)
}

struct Job<'a, O> {
    op: &'a Voxelize<'a>,
    dims: &'a Dims,
    sorted: &'a [Pair],
    out: Shared<O>,
    counts: Shared<i32>,
}

fn reduce_all<F: Scalar, O: Scalar>(features: &TensorRef<'_>, job: &Job<'_, O>, context: &Context<'_>) -> Result<()> {
    let (dims, sorted) = (job.dims, job.sorted);
    let features = Features::<F>::new(features, dims.feature_strides, dims.cloud.count, dims.width);
    for_each_cell(sorted, dims.width * size_of::<F>(), context, &|_, points| {
        let cell = points[0].key as usize;
        // SAFETY: the cell and its points exist, and no other task writes the cell.
        unsafe {
            reduce(&features, points, job.op.reduce, job.out.get().add(cell * dims.width));
            if !job.counts.get().is_null() {
                *job.counts.get().add(cell) = i32::try_from(points.len()).unwrap_or(i32::MAX);
            }
        }
    })
}

/// Calls `visit(first, points)` for the points of each cell, which start at `first` of `sorted`.
pub(super) fn for_each_cell(
    sorted: &[Pair],
    point_bytes: usize,
    context: &Context<'_>,
    visit: &(dyn Fn(usize, &[Pair]) + Sync),
) -> Result<()> {
    let bytes = sorted.len().saturating_mul(point_bytes + size_of::<Pair>());
    let per_task = if is_worth_sharing(bytes) {
        (TASK_BYTES / 4 / (point_bytes + size_of::<Pair>())).max(64)
    } else {
        sorted.len()
    };
    let per_task = per_task.max(1);
    for_each(sorted.len().div_ceil(per_task), context, &|task| {
        let end = ((task + 1) * per_task).min(sorted.len());
        let mut first = task * per_task;
        // A cell belongs to the task that its first point lies in.
        while first > 0 && first < end && sorted[first].key == sorted[first - 1].key {
            first += 1;
        }
        while first < end {
            let key = sorted[first].key;
            let points = sorted[first..].iter().take_while(|pair| pair.key == key).count();
            visit(first, &sorted[first..first + points]);
            first += points;
        }
    })
}
