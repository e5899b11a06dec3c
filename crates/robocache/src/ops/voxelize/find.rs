//! The cells of points on the host, a block of points at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::grid::{Cells, Grid, NOWHERE};
use crate::cpu::{Item, Packing, Shared, for_each, vectorized};
use crate::ops::cloud::{BLOCK, Cloud, Compute, ReadPoints};
use crate::ops::scalar::Real;
use crate::tensor::TensorRef;
use crate::{Context, Result};

/// Points of a task: enough to hide handing it out.
pub(super) const TASK_POINTS: usize = 16 << 10;

/// Finds the cells of points, numbered through all rows.
pub(super) struct Finder<'a, P: ReadPoints> {
    points: P,
    cells: Cells<P::Number>,
    cloud: &'a Cloud,
    lengths: Option<TensorRef<'a>>,
    per_row: u64,
    /// `[B]`: where points without a cell are counted; null for nowhere.
    dropped: Shared<i64>,
}

/// What a task does with the cells of its points. Points come in their order, [`BLOCK`] at most at a time.
pub(super) trait Visitor {
    /// `first` is numbered through all rows.
    fn visit(&mut self, first: usize, cells: &[u64]);
    /// After the last of a task.
    fn finish(&mut self) {}
}

impl<'a, P: ReadPoints> Finder<'a, P> {
    pub(super) fn new(
        points: P,
        lengths: Option<TensorRef<'a>>,
        cloud: &'a Cloud,
        grid: &Grid,
        dropped: *mut i64,
    ) -> Self {
        // Whoever numbers cells through all rows has checked that they can be numbered.
        let per_row = u64::try_from(grid.cells()).unwrap_or(u64::MAX);
        Self { points, cells: Cells::new(grid), cloud, lengths, per_row, dropped: Shared(dropped) }
    }

    /// Tasks that the points are cut into, of [`TASK_POINTS`] of a row at most.
    pub(super) fn tasks(&self) -> usize {
        self.cloud.batch * self.cloud.count.div_ceil(TASK_POINTS).max(1)
    }

    /// Hands all points that exist to visitors, one for each task, on all cores, and counts the dropped.
    /// With `padding`, points past the length of a row come too, and have no cell.
    pub(super) fn for_each<V: Visitor>(
        &self,
        padding: bool,
        context: &Context<'_>,
        visitor: impl Fn(usize) -> V + Sync,
    ) -> Result<()> {
        let parts = self.cloud.count.div_ceil(TASK_POINTS).max(1);
        for_each(self.tasks(), context, &|task| {
            let first = task % parts * TASK_POINTS;
            let end = (first + TASK_POINTS).min(self.cloud.count);
            self.hand_out(task / parts, first..end, padding, visitor(task));
        })
    }

    /// As above, with one visitor for each row, made by the thread that then hands it the row's points.
    pub(super) fn for_each_row<V: Visitor>(
        &self,
        context: &Context<'_>,
        visitor: impl Fn(usize) -> V + Sync,
    ) -> Result<()> {
        for_each(self.cloud.batch, context, &|row| {
            self.hand_out(row, 0..self.cloud.count, false, visitor(row));
        })
    }

    /// Hands points of a row to a visitor.
    fn hand_out<V: Visitor>(&self, row: usize, points: Range<usize>, padding: bool, mut visitor: V) {
        let length = self.cloud.length(self.lengths, row);
        let mut lost = 0;
        // SAFETY: the row and the points exist.
        unsafe { visit_part(self, row, points.start, points.end.min(length), &mut visitor, &mut lost) };
        if padding {
            for start in (points.start.max(length)..points.end).step_by(BLOCK) {
                let padded = [NOWHERE; BLOCK];
                visitor.visit(row * self.cloud.count + start, &padded[..(points.end - start).min(BLOCK)]);
            }
        }
        visitor.finish();
        if lost > 0 && !self.dropped.get().is_null() {
            // SAFETY: `[B]` int64, row-major, in use by atomic additions only.
            unsafe { AtomicU64::from_ptr(self.dropped.get().add(row).cast()) }.fetch_add(lost, Relaxed);
        }
    }

    /// Writes an item for each point, with its cell as the key, `nowhere` for padding and what was dropped.
    pub(super) fn write_items<I: Item>(
        &self,
        items: &mut [I],
        packing: Packing,
        nowhere: u64,
        context: &Context<'_>,
    ) -> Result<()> {
        let items = Shared(items.as_mut_ptr());
        self.for_each(true, context, |_| Write { items, packing, nowhere })
    }
}

vectorized! {
    /// Adds to `lost` how many points have no cell.
    ///
    /// # Safety
    /// The row and its points `first..end` must exist.
    unsafe fn visit_part[P: ReadPoints, V: Visitor](
        finder: &Finder<'_, P>,
        row: usize,
        first: usize,
        end: usize,
        visitor: &mut V,
        lost: &mut u64,
    ) {
        let base = row as u64 * finder.per_row;
        let of = finder.points.row(row);
        let mut points = [[Compute::<P>::from_f64(0.0); BLOCK]; 3];
        let mut found = [NOWHERE; BLOCK];
        let mut start = first;
        while start < end {
            // SAFETY: the caller's promise.
            unsafe { finder.points.read(&of, start, end, &mut points) };
            finder.cells.find(&points, &mut found);
            let cells = &mut found[..(end - start).min(BLOCK)];
            for cell in &mut *cells {
                *lost += u64::from(*cell == NOWHERE);
                *cell = if *cell == NOWHERE { NOWHERE } else { base + *cell };
            }
            visitor.visit(row * finder.cloud.count + start, cells);
            start += cells.len();
        }
    }
}

struct Write<I> {
    items: Shared<I>,
    packing: Packing,
    nowhere: u64,
}

impl<I: Item> Visitor for Write<I> {
    #[inline(always)]
    fn visit(&mut self, first: usize, cells: &[u64]) {
        for (index, &cell) in (first..).zip(cells) {
            let item = I::new(cell.min(self.nowhere), index as u64, self.packing);
            // SAFETY: there is an item for each point, and no other task writes this one.
            unsafe { *self.items.get().add(index) = item };
        }
    }
}

/// Two slices of `count` items in memory to work in.
///
/// # Safety
/// As many must be writable at `scratch`, aligned, and nobody else may use them.
pub(super) unsafe fn items_in<'a, I: Item>(scratch: *mut u8, count: usize) -> [&'a mut [I]; 2] {
    if count == 0 {
        return [&mut [], &mut []];
    }
    let start = scratch.cast::<I>();
    // SAFETY: the caller's promise. Items are numbers, so all bits are items, and each slice is written
    // before it is read.
    unsafe { [std::slice::from_raw_parts_mut(start, count), std::slice::from_raw_parts_mut(start.add(count), count)] }
}
