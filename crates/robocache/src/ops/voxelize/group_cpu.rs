//! Points grouped by their cells on the host.

use super::find::{Finder, items_in};
use super::groups::{GroupDims, GroupPoints, GroupTargets};
use crate::cpu::{Item, Packing, Shared, for_each, prefetch, sort, threads, vectorized, with_item};
use crate::ops::cloud::ReadPoints;
use crate::ops::depth::with_source;
use crate::{Context, Outputs, Result};

const ALIGN: usize = 64;
/// Sorted points of a task.
const TASK_POINTS: usize = 32 << 10;
/// Points that are asked for ahead.
const AHEAD: usize = 24;
/// Threads that each write a share of what all of them would else write all over.
const FEW_THREADS: usize = 4;

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
    let tasks = sorted.len().div_ceil(TASK_POINTS);
    let part = |task: usize| {
        let places = task * TASK_POINTS..((task + 1) * TASK_POINTS).min(sorted.len());
        // The key before a part: none before the first.
        let before = if task > 0 { sorted[places.start - 1].key(packing) } else { u64::MAX };
        Part { items: &sorted[places.clone()], first: places.start, before, packing, nowhere }
    };
    let mut rows = vec![0usize; tasks];
    let counted = Shared(rows.as_mut_ptr());
    // SAFETY: each task has a number of its own.
    for_each(tasks, context, &|task| unsafe { count_rows(part(task), &mut *counted.get().add(task)) })?;
    let mut total = 0;
    for rows in &mut rows {
        total += std::mem::replace(rows, total);
    }
    let (cells, starts, order) = (Shared(targets.cells), Shared(targets.starts), Shared(targets.order));
    // SAFETY: outputs are row-major; a row and a place are written by one task.
    for_each(tasks, context, &|task| unsafe {
        let row = rows[task];
        let (cells, starts) = (cells.get().add(row), starts.get().add(row));
        write_rows(part(task), cells, starts, order.get().add(task * TASK_POINTS));
    })?;
    // Points of a part are all over `inverse`. Of few threads each looks at all parts and writes points of its own,
    // which is less than to take lines of the cache from each other; with many there would be too much to look at.
    let shares = if threads() <= FEW_THREADS { threads() } else { 1 };
    let share = sorted.len().div_ceil(shares).max(1);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let inverse = Shared(targets.inverse);
    // SAFETY: a point is written by one task.
    for_each(shares * tasks, context, &|task| unsafe {
        let (own, task) = (task / tasks * share, task % tasks);
        write_inverse(part(task), inverse.get(), own, share, rows[task] as i64, most);
    })?;
    // SAFETY: there is one more start than points, and one count.
    unsafe {
        *targets.starts.add(total) = valid as i32;
        *targets.count = total as i64;
    }
    Ok(())
}

/// Some of the sorted points, from place `first` on.
#[derive(Clone, Copy)]
struct Part<'a, I> {
    items: &'a [I],
    first: usize,
    before: u64,
    packing: Packing,
    nowhere: u64,
}

vectorized! {
    /// How many rows begin in a part.
    ///
    /// # Safety
    /// Nothing is asked for: unsafe as all that is compiled for instruction sets.
    unsafe fn count_rows[I: Item](part: Part<'_, I>, rows: &mut usize) {
        let mut last = part.before;
        let mut heads = 0;
        for item in part.items {
            let key = item.key(part.packing);
            heads += usize::from((key != last) & (key < part.nowhere));
            last = key;
        }
        *rows = heads;
    }
}

vectorized! {
    /// Writes the rows that begin in a part, and its points in their order.
    ///
    /// # Safety
    /// There must be room for them, which nobody else uses.
    unsafe fn write_rows[I: Item](part: Part<'_, I>, cells: *mut i64, starts: *mut i32, order: *mut i32) {
        let mut last = part.before;
        let mut row = 0;
        for (place, item) in part.items.iter().enumerate() {
            let key = item.key(part.packing);
            // SAFETY: the caller's promise.
            unsafe {
                if key < part.nowhere && key != last {
                    *cells.add(row) = key as i64;
                    *starts.add(row) = (part.first + place) as i32;
                    row += 1;
                }
                *order.add(place) = item.index(part.packing) as i32;
            }
            last = key;
        }
    }
}

vectorized! {
    /// Writes the row of each point of a part that is one of the `share` points from `own` on; -1 from row `most` on.
    ///
    /// # Safety
    /// There must be room for all points, and nobody else may use those of the share.
    unsafe fn write_inverse[I: Item](
        part: Part<'_, I>,
        inverse: *mut i64,
        own: usize,
        share: usize,
        row: i64,
        most: i64,
    ) {
        let mut last = part.before;
        let mut row = row - 1;
        // Not branches, which would be guessed wrong half of the time.
        let mut aside = 0;
        let mut to = |index: usize| {
            if index.wrapping_sub(own) < share { inverse.wrapping_add(index) } else { &raw mut aside }
        };
        for (place, item) in part.items.iter().enumerate() {
            if let Some(ahead) = part.items.get(place + AHEAD) {
                prefetch(to(ahead.index(part.packing) as usize));
            }
            let (key, index) = (item.key(part.packing), item.index(part.packing) as usize);
            let inside = key < part.nowhere;
            row += i64::from(inside & (key != last));
            last = key;
            // SAFETY: the caller's promise.
            unsafe { *to(index) = if inside & (row < most) { row } else { -1 } };
        }
    }
}
