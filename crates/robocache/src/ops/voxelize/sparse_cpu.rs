//! Sparse grids on the host.

use std::ops::Range;

use super::Reduce;
use super::cpu::items_in;
use super::divide::Divisor;
use super::find::{Finder, prefetch};
use super::reduce::{Features, Members, RowOut, reduce};
use super::sparse::{GatherDims, GatherTargets, GatherVoxels, GroupDims, GroupPoints, GroupTargets};
use crate::cpu::{Item, Packing, Shared, for_each, sort, threads, vectorized, with_item};
use crate::ops::cloud::ReadPoints;
use crate::ops::depth::with_source;
use crate::ops::scalar::{Scalar, with_float};
use crate::tensor::TensorRef;
use crate::{Context, Outputs, Result};

const ALIGN: usize = 64;
/// Sorted points of a task.
const TASK_POINTS: usize = 32 << 10;
/// Threads that each write a share of what all of them would else write all over.
const FEW_THREADS: usize = 4;
/// Rows of a task.
const TASK_ROWS: usize = 1024;
/// Bytes that are written twice while they are in the first cache.
const NEAR_BYTES: usize = 16 << 10;

fn packing(dims: &GroupDims) -> Packing {
    Packing::new(dims.cloud.total(), dims.all_cells)
}

pub(super) fn group_workspace(dims: &GroupDims) -> Result<usize> {
    // Fewer than 2^31 points.
    Ok(dims.cloud.total() * 2 * packing(dims).item_bytes() + ALIGN)
}

pub(super) fn group(
    op: &GroupPoints<'_>,
    dims: &GroupDims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let targets = GroupTargets::new(out)?;
    let scratch = out.workspace().map_addr(|address| address.next_multiple_of(ALIGN));
    with_source!(&op.points, &dims.cloud, group_points, op, dims, &targets, scratch, context)
}

fn group_points<P: ReadPoints>(
    points: P,
    op: &GroupPoints<'_>,
    dims: &GroupDims,
    targets: &GroupTargets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    // SAFETY: `[B]` int64, row-major.
    unsafe { targets.dropped.write_bytes(0, dims.cloud.batch) };
    let finder = Finder::new(points, op.lengths, &dims.cloud, &op.grid, targets.dropped);
    with_item!(packing(dims), sort_points::<P>, &finder, op, dims, targets, scratch, context)
}

fn sort_points<I: Item, P: ReadPoints>(
    finder: &Finder<'_, P>,
    op: &GroupPoints<'_>,
    dims: &GroupDims,
    targets: &GroupTargets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let packing = packing(dims);
    // SAFETY: the workspace holds twice as many items.
    let [items, other] = unsafe { items_in::<I>(scratch, dims.cloud.total()) };
    finder.write_items(items, packing, dims.all_cells, context)?;
    let swapped = sort(items, other, packing, context)?;
    let sorted = if swapped { &*other } else { &*items };
    write_groups(sorted, packing, op.max_voxels.unwrap_or(usize::MAX), dims.all_cells, targets, context)
}

/// The groups of sorted points: cells are counted in parts, then all parts are written.
fn write_groups<I: Item>(
    sorted: &[I],
    packing: Packing,
    most: usize,
    nowhere: u64,
    targets: &GroupTargets,
    context: &Context<'_>,
) -> Result<()> {
    let valid = sorted.partition_point(|item| item.key(packing) < nowhere);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let tasks = sorted.len().div_ceil(TASK_POINTS);
    let part = |task: usize| task * TASK_POINTS..((task + 1) * TASK_POINTS).min(sorted.len());
    // The key before a part: none before the first.
    let before = |task: usize| (task > 0).then(|| sorted[task * TASK_POINTS - 1].key(packing));
    let mut rows = vec![0usize; tasks];
    let counted = Shared(rows.as_mut_ptr());
    for_each(tasks, context, &|task| {
        let mut last = before(task).unwrap_or(u64::MAX);
        let mut heads = 0;
        for item in &sorted[part(task)] {
            let key = item.key(packing);
            heads += usize::from((key != last) & (key < nowhere));
            last = key;
        }
        // SAFETY: each task has a number of its own.
        unsafe { *counted.get().add(task) = heads };
    })?;
    let mut total = 0;
    for rows in &mut rows {
        total += std::mem::replace(rows, total);
    }
    let (cells, starts, order) = (Shared(targets.cells), Shared(targets.starts), Shared(targets.order));
    for_each(tasks, context, &|task| {
        let mut last = before(task).unwrap_or(u64::MAX);
        let mut row = rows[task];
        for place in part(task) {
            let key = sorted[place].key(packing);
            // SAFETY: outputs are row-major; a row and a place are written by one task.
            unsafe {
                if key < nowhere && key != last {
                    *cells.get().add(row) = key as i64;
                    *starts.get().add(row) = place as i32;
                    row += 1;
                }
                *order.get().add(place) = sorted[place].index(packing) as i32;
            }
            last = key;
        }
    })?;
    // Points of a part are all over `inverse`. Of few threads each looks at all parts and writes points of its own,
    // which is less than to take lines of the cache from each other; with many there would be too much to look at.
    let shares = if threads() <= FEW_THREADS { threads() } else { 1 };
    let share = sorted.len().div_ceil(shares).max(1);
    let inverse = Shared(targets.inverse);
    for_each(shares * tasks, context, &|task| {
        let (own, task) = (task / tasks * share, task % tasks);
        let mut last = before(task).unwrap_or(u64::MAX);
        let mut row = rows[task] as i64 - 1;
        let mut aside = 0;
        for item in &sorted[part(task)] {
            let (key, index) = (item.key(packing), item.index(packing) as usize);
            let inside = key < nowhere;
            row += i64::from(inside & (key != last));
            last = key;
            // Not a branch, which would be guessed wrong half of the time.
            let mine = index.wrapping_sub(own) < share;
            let to = if mine { inverse.get().wrapping_add(index) } else { &raw mut aside };
            // SAFETY: a point is written by one task.
            unsafe { *to = if inside & (row < most) { row } else { -1 } };
        }
    })?;
    // SAFETY: there is one more start than points, and one count.
    unsafe {
        *targets.starts.add(total) = valid as i32;
        *targets.count = total as i64;
    }
    Ok(())
}

/// The groups of points on the host. What is read is clamped, since others may have written it.
pub(super) struct Groups<'a> {
    pub(super) rows: usize,
    total: usize,
    cells: TensorRef<'a>,
    starts: TensorRef<'a>,
    order: TensorRef<'a>,
}

/// The points of a group, in their order.
pub(super) struct Group<'a> {
    order: &'a [i32],
    last: u64,
}

impl Members for Group<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.order.len()
    }
    #[inline(always)]
    fn index(&self, place: usize) -> u64 {
        u64::try_from(self.order[place]).unwrap_or(0).min(self.last)
    }
}

impl<'a> Groups<'a> {
    /// Cells, starts, order and count of so many points, of which at most `most` rows are meant.
    pub(super) fn new([cells, starts, order, count]: [TensorRef<'a>; 4], most: usize, total: usize) -> Self {
        // SAFETY: a single int64.
        let count = unsafe { count.data().cast::<i64>().read() };
        let rows = usize::try_from(count).unwrap_or(0).min(most).min(total);
        Self { rows, total, cells, starts, order }
    }

    #[inline(always)]
    pub(super) fn cell(&self, row: usize) -> u64 {
        // SAFETY: the row is one of `cells`.
        unsafe { self.cells.data().cast::<u64>().add(row).read() }
    }

    /// The first point of a row.
    #[inline(always)]
    fn first(&self, row: usize) -> u64 {
        // SAFETY: as below.
        unsafe {
            let start = self.starts.data().cast::<i32>().add(row).read();
            let place = usize::try_from(start).unwrap_or(0).min(self.total.saturating_sub(1));
            let index = self.order.data().cast::<i32>().add(place).read();
            u64::try_from(index).unwrap_or(0).min(self.total.saturating_sub(1) as u64)
        }
    }

    #[inline(always)]
    pub(super) fn points(&self, row: usize) -> Group<'a> {
        // SAFETY: `starts` has one more than there are rows, `order` as many as points.
        let at = |row: usize| unsafe { self.starts.data().cast::<i32>().add(row).read() };
        let end = usize::try_from(at(row + 1)).unwrap_or(0).min(self.total);
        let start = usize::try_from(at(row)).unwrap_or(0).min(end);
        // SAFETY: as above.
        let order = unsafe { std::slice::from_raw_parts(self.order.data().cast::<i32>().add(start), end - start) };
        Group { order, last: self.total.saturating_sub(1) as u64 }
    }
}

pub(super) fn gather(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let targets = GatherTargets::new(op, out)?;
    let groups = Groups::new([op.cells, op.starts, op.order, op.count], op.rows, dims.cloud.total());
    let tasks = op.rows.div_ceil(TASK_ROWS);
    let rows = |task: usize| task * TASK_ROWS..((task + 1) * TASK_ROWS).min(op.rows);
    let (coords, counts) = (Shared(targets.coords), Shared(targets.counts));
    let [x, y, z] = op.grid.shape.map(|cells| Divisor::new(cells as u64));
    for_each(tasks, context, &|task| {
        for row in rows(task) {
            let (mut place, mut count) = ([-1; 4], 0);
            if row < groups.rows {
                let (rest, z) = z.divide(groups.cell(row));
                let (rest, y) = y.divide(rest);
                let (batch, x) = x.divide(rest);
                place = [batch as i64, x as i64, y as i64, z as i64];
                count = groups.points(row).count() as i32;
            }
            // SAFETY: the row exists in both, and no other task writes it.
            unsafe {
                *coords.get().cast::<[i64; 4]>().add(row) = place;
                *counts.get().add(row) = count;
            }
        }
    })?;
    if !targets.voxels.is_null() {
        with_float!(dims.voxel_dtype, hard_voxels, op, dims, &targets, &groups, context)?;
    }
    match &op.features {
        Some(features) if op.reduce.uses_features() => {
            with_float!(features.dtype(), reduce_rows, features, op, dims, &targets, &groups, context)
        }
        _ => Ok(()),
    }
}

/// The first points of each row as they came, zeros behind them.
fn hard_voxels<V: Scalar>(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: &Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    with_source!(&op.points, &dims.cloud, hard_voxels_of::<_, V>, op, dims, targets, groups, context)
}

fn hard_voxels_of<P: ReadPoints, V: Scalar>(
    points: P,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: &Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let Some(most) = op.max_points else { return Ok(()) };
    let voxels = Shared(targets.voxels.cast::<V>());
    let row_length = most * (3 + dims.width);
    // Zeros are written to as many rows at once as then are still in the first cache.
    let together = (NEAR_BYTES / (row_length * size_of::<V>()).max(1)).clamp(1, TASK_ROWS);
    for_each(op.rows.div_ceil(TASK_ROWS), context, &|task| {
        let end = ((task + 1) * TASK_ROWS).min(op.rows);
        for first in (task * TASK_ROWS..end).step_by(together) {
            let rows = first..(first + together).min(end);
            // SAFETY: the rows exist, no other task writes them, and their points exist.
            unsafe {
                voxels.get().add(first * row_length).write_bytes(0, rows.len() * row_length);
                write_points(&points, op, dims, groups, rows.start..rows.end.min(groups.rows), voxels.get());
            }
        }
    })
}

/// Writes the first points of rows that have some.
///
/// # Safety
/// The rows must exist in groups and in `voxels`, which nobody else may use.
unsafe fn write_points<P: ReadPoints, V: Scalar>(
    points: &P,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    groups: &Groups<'_>,
    rows: Range<usize>,
    voxels: *mut V,
) {
    /// Rows whose points are asked for ahead.
    const AHEAD: usize = 16;
    let (most, wide) = (op.max_points.unwrap_or(0), 3 + dims.width);
    // Cells are sorted by the row of their points, so it seldom changes.
    let mut known: Option<(usize, P::Row)> = None;
    for row in rows {
        if row + AHEAD < groups.rows {
            // Most rows have one point.
            let (row, index) = place_of(dims, groups.first(row + AHEAD));
            if let Some((known, of)) = &known
                && *known == row
            {
                prefetch(points.address(of, index));
            }
        }
        let members = groups.points(row);
        for slot in 0..members.count().min(most) {
            let index = members.index(slot);
            // SAFETY: the caller's promise; a point has three numbers, then its features.
            unsafe {
                let to = voxels.add((row * most + slot) * wide);
                let (row, place) = place_of(dims, index);
                let (_, of) = match &known {
                    Some(of) if of.0 == row => of,
                    _ => known.insert((row, points.row(row))),
                };
                for (axis, number) in points.at(of, place).into_iter().enumerate() {
                    *to.add(axis) = V::narrow(number.into());
                }
                if let Some(features) = &op.features {
                    with_float!(features.dtype(), copy_features::<V>, features, dims, index, to.add(3));
                }
            }
        }
    }
}

/// Row and place of a point that is numbered through all rows.
#[inline(always)]
fn place_of(dims: &GatherDims, index: u64) -> (usize, usize) {
    let (index, count) = (index as usize, dims.cloud.count.max(1));
    if dims.cloud.batch > 1 { (index / count, index % count) } else { (0, index) }
}

/// # Safety
/// The point must exist, and its features be writable.
unsafe fn copy_features<F: Scalar, V: Scalar>(features: &TensorRef<'_>, dims: &GatherDims, index: u64, to: *mut V) {
    let features = Features::<F>::new(features, dims.feature_strides, &dims.cloud, dims.width);
    for column in 0..dims.width {
        // SAFETY: the caller's promise.
        unsafe { *to.add(column) = V::narrow((*features.at(index, column)).widen().into()) };
    }
}

fn reduce_rows<F: Scalar>(
    features: &TensorRef<'_>,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: &Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let features = Features::<F>::new(features, dims.feature_strides, &dims.cloud, dims.width);
    let out = Shared(targets.features);
    for_each(op.rows.div_ceil(TASK_ROWS), context, &|task| {
        let rows = task * TASK_ROWS..((task + 1) * TASK_ROWS).min(op.rows);
        // SAFETY: the rows and their points exist; no other task writes them.
        unsafe {
            let out = RowOut { data: out.get(), dtype: dims.dtype };
            reduce_part(&features, groups, rows, op.reduce, out);
        }
    })
}

vectorized! {
    /// # Safety
    /// The rows and their points must exist, and nobody else may use the rows.
    unsafe fn reduce_part[F: Scalar](
        features: &Features<F>,
        groups: &Groups<'_>,
        rows: Range<usize>,
        how: Reduce,
        out: RowOut,
    ) {
        /// Rows whose points are asked for ahead.
        const AHEAD: usize = 32;
        for row in rows {
            if row + AHEAD < groups.rows {
                let points = groups.points(row + AHEAD);
                for place in 0..points.count().min(4) {
                    features.prefetch(points.index(place));
                }
            }
            // SAFETY: the caller's promise.
            unsafe {
                let to = out.add(row * features.width);
                if row < groups.rows && groups.points(row).count() > 0 {
                    reduce(features, &groups.points(row), how, to);
                } else {
                    to.data.write_bytes(0, features.width * to.dtype.size());
                }
            }
        }
    }
}
