//! `voxelize` on the host: which way a call goes, and features, reduced along the points sorted by cell.

use std::ops::Range;

use super::dims::{CountsIn, Dims, Reduce, Targets};
use super::fill::{TASK_BYTES, fill_part};
use super::find::{Finder, items_in};
use super::reduce::{Features, RowOut, Run, reduce};
use super::{Voxelize, count, occupancy};
use crate::cpu::{Item, Packing, Shared, for_each, is_worth_sharing, sort, vectorized, with_item};
use crate::ops::cloud::ReadPoints;
use crate::ops::depth::with_source;
use crate::ops::rows::check_length_values;
use crate::ops::scalar::{Scalar, with_float};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Outputs, Result};

/// Bytes of a task that writes a part of the grid, and of narrow rows comes back to it: a core's cache holds them.
const SLAB_BYTES: u64 = 512 << 10;
const ALIGN: usize = 64;

pub(super) fn workspace(op: &Voxelize<'_>, dims: &Dims) -> Result<usize> {
    let too_large = || Error::invalid(op.points.argument(), "too many to be sorted");
    if op.reduce.uses_features() {
        let item = Packing::new(dims.cloud.total(), dims.all_cells as u64).item_bytes();
        return Ok(dims.cloud.total().checked_mul(2 * item).ok_or_else(too_large)? + ALIGN);
    }
    let dealt = if op.counts_in(dims) == CountsIn::Nothing { None } else { count::Plan::new(dims) };
    let dealt = dealt.map_or(0, |plan| plan.workspace());
    let counts = counts_to_work_in(op, dims).ok_or_else(too_large)?;
    let bits = if op.reduce == Reduce::Count { 0 } else { occupancy::workspace(dims) };
    // Counting is done before cells are marked.
    let bytes = (dealt + counts).max(bits);
    Ok(if bytes > 0 { bytes + ALIGN } else { 0 })
}

/// Bytes of counts that are no result; none where they cannot be addressed.
fn counts_to_work_in(op: &Voxelize<'_>, dims: &Dims) -> Option<usize> {
    match op.counts_in(dims) {
        CountsIn::Workspace => dims.all_cells.checked_mul(4)?.checked_next_multiple_of(ALIGN),
        _ => Some(0),
    }
}

pub(super) fn voxelize(op: &Voxelize<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    if op.check {
        check_length_values(op.lengths, dims.cloud.batch, dims.cloud.count)?;
    }
    let targets = op.targets(dims, out)?;
    let scratch = out.workspace().map_addr(|address| address.next_multiple_of(ALIGN));
    with_source!(&op.points, &dims.cloud, with_points, op, dims, &targets, scratch, context)
}

fn with_points<P: ReadPoints>(
    points: P,
    op: &Voxelize<'_>,
    dims: &Dims,
    targets: &Targets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let finder = |dropped| Finder::new(points, op.lengths, &dims.cloud, &op.grid, dropped);
    if !targets.dropped.is_null() {
        // SAFETY: `[B]` int64, row-major.
        unsafe { targets.dropped.write_bytes(0, dims.cloud.batch) };
    }
    let found = finder(targets.dropped);
    if op.reduce.uses_features() {
        let packing = Packing::new(dims.cloud.total(), dims.all_cells as u64);
        return with_item!(packing, sorted::<P>, &found, packing, op, dims, targets, scratch, context);
    }
    let counts = match op.counts_in(dims) {
        CountsIn::Nothing => std::ptr::null_mut(),
        CountsIn::Counts => targets.counts,
        CountsIn::Out => targets.out.cast(),
        CountsIn::Workspace => scratch.cast(),
    };
    if !counts.is_null() {
        // SAFETY: `[B,X,Y,Z]` int32, row-major, or as much memory to work in; behind that is what counting asks for.
        unsafe {
            let behind = scratch.add(counts_to_work_in(op, dims).unwrap_or(0));
            count::count(&found, dims, counts, behind, context)?;
        }
        if op.reduce == Reduce::Count {
            return if counts.cast() == targets.out { Ok(()) } else { write_counts(counts, dims, targets, context) };
        }
    }
    // Counting has counted the dropped.
    let found = if counts.is_null() { found } else { finder(std::ptr::null_mut()) };
    // SAFETY: counting is done with the memory to work in.
    unsafe { occupancy::mark(&found, dims, targets, scratch, context) }
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
fn sorted<I: Item, P: ReadPoints>(
    found: &Finder<'_, P>,
    packing: Packing,
    op: &Voxelize<'_>,
    dims: &Dims,
    targets: &Targets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let Some(features) = op.features else {
        return Ok(());
    };
    // SAFETY: the workspace holds twice as many items.
    let [items, other] = unsafe { items_in::<I>(scratch, dims.cloud.total()) };
    let nowhere = dims.all_cells as u64;
    found.write_items(items, packing, nowhere, context)?;
    let swapped = sort(items, other, packing, context)?;
    let sorted = if swapped { &*other } else { &*items };
    let sorted = &sorted[..sorted.partition_point(|item| item.key(packing) < nowhere)];
    let job = Job { op, dims, targets, sorted, packing };
    with_float!(features.dtype(), reduce_all::<I>, &features, &job, context)
}

struct Job<'a, I> {
    op: &'a Voxelize<'a>,
    dims: &'a Dims,
    targets: &'a Targets,
    sorted: &'a [I],
    packing: Packing,
}

/// Part by part of the grid: cells with points are written, the others filled unless the grid is blank.
fn reduce_all<F: Scalar, I: Item>(features: &TensorRef<'_>, job: &Job<'_, I>, context: &Context<'_>) -> Result<()> {
    let &Job { op, dims, targets, sorted, packing } = job;
    let features = Features::<F>::new(features, dims.feature_strides, &dims.cloud, dims.width);
    let (out, counts, blank) = (Shared(targets.out), Shared(targets.counts), targets.blank);
    let slabs = Slabs {
        sorted,
        packing,
        cells: dims.all_cells as u64,
        cell_cost: (dims.width * dims.dtype.size()).max(1) as u64,
        point_cost: (dims.width * size_of::<F>() + 16) as u64,
    };
    slabs.for_each(context, &|cells, points| {
        let slab = Slab {
            cells: cells.start as usize..cells.end as usize,
            out: RowOut { data: out.get(), dtype: dims.dtype },
            fill: (!blank).then_some(dims.fill),
            counts: counts.get(),
        };
        // SAFETY: the outputs are row-major, of these dtypes, no other task writes these cells, and the points exist.
        unsafe {
            if !slab.counts.is_null() {
                slab.counts.add(slab.cells.start).write_bytes(0, slab.cells.len());
            }
            reduce_slab(&features, points, packing, op.reduce, &slab);
        }
    })
}

/// Cells that one task writes.
struct Slab {
    cells: Range<usize>,
    /// The first row of the whole grid.
    out: RowOut,
    /// What cells without points are filled with; none where they hold it already.
    fill: Option<u64>,
    /// May be null.
    counts: *mut i32,
}

/// Bytes of a row from which on empty rows are filled one gap after the other, so that no row is written twice;
/// of smaller ones a slab is filled as a whole.
const WIDE_ROW: usize = 32;

vectorized! {
    /// Writes the cells of a slab, which hold these sorted points.
    ///
    /// # Safety
    /// The points and the cells must exist, and nobody else may use the cells.
    unsafe fn reduce_slab[F: Scalar, I: Item](
        features: &Features<F>,
        points: &[I],
        packing: Packing,
        how: Reduce,
        slab: &Slab,
    ) {
        /// Points whose features are asked for ahead.
        const AHEAD: usize = 32;
        let (out, width) = (slab.out, features.width);
        let fill = |cells: Range<usize>| {
            if let Some(bits) = slab.fill
                && !cells.is_empty()
            {
                // SAFETY: the caller's promise.
                unsafe { fill_part(out.data, out.dtype, bits, cells.start * width..cells.end * width) };
            }
        };
        let by_gaps = width * out.dtype.size() >= WIDE_ROW;
        if !by_gaps {
            fill(slab.cells.clone());
        }
        let (mut first, mut next) = (0, slab.cells.start);
        while first < points.len() {
            let cell = points[first].key(packing) as usize;
            let run = points[first..].iter().take_while(|item| item.key(packing) as usize == cell).count();
            let ahead = (first + AHEAD).min(points.len());
            for item in &points[ahead..(ahead + run).min(points.len())] {
                features.prefetch(item.index(packing));
            }
            if by_gaps {
                fill(next..cell);
                next = cell + 1;
            }
            // SAFETY: the caller's promise.
            unsafe {
                reduce(features, &Run { items: &points[first..first + run], packing }, how, out.add(cell * width));
                if !slab.counts.is_null() {
                    *slab.counts.add(cell) = i32::try_from(run).unwrap_or(i32::MAX);
                }
            }
            first += run;
        }
        if by_gaps {
            fill(next..slab.cells.end);
        }
    }
}

/// All cells of a grid and the points in them, cut into parts of about the same work.
struct Slabs<'a, I> {
    sorted: &'a [I],
    packing: Packing,
    cells: u64,
    cell_cost: u64,
    point_cost: u64,
}

impl<I: Item> Slabs<'_, I> {
    fn for_each(&self, context: &Context<'_>, visit: &(dyn Fn(Range<u64>, &[I]) + Sync)) -> Result<()> {
        if self.cells == 0 {
            return Ok(());
        }
        let total = self.cost(self.cells, self.sorted.len());
        let tasks = if is_worth_sharing(usize::try_from(total).unwrap_or(usize::MAX)) {
            total.div_ceil(u128::from(SLAB_BYTES)).min(u128::from(self.cells)).max(1) as u64
        } else {
            1
        };
        for_each(tasks as usize, context, &|task| {
            let border = |task: u64| self.border(total * u128::from(task) / u128::from(tasks), task == tasks);
            let cells = border(task as u64)..border(task as u64 + 1);
            let before = |cell: u64| self.sorted.partition_point(|item| item.key(self.packing) < cell);
            visit(cells.clone(), &self.sorted[before(cells.start)..before(cells.end)]);
        })
    }

    fn cost(&self, cells: u64, points: usize) -> u128 {
        u128::from(cells) * u128::from(self.cell_cost) + points as u128 * u128::from(self.point_cost)
    }

    /// The first cell that, with its points, begins at this cost or later.
    fn border(&self, cost: u128, last: bool) -> u64 {
        if last {
            return self.cells;
        }
        let mut low = 0;
        let mut high = self.sorted.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if self.cost(self.sorted[middle].key(self.packing), middle) < cost {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // Below this point's cell the cost is that of empty cells.
        let after = low.checked_sub(1).map_or(0, |before| self.sorted[before].key(self.packing) + 1);
        let empty = cost.saturating_sub(low as u128 * u128::from(self.point_cost));
        let cell = empty.div_ceil(u128::from(self.cell_cost)).min(u128::from(self.cells)) as u64;
        let next = self.sorted.get(low).map_or(self.cells, |item| item.key(self.packing));
        cell.clamp(after, next.max(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Slabs lie side by side, hold all cells and points once, and none is much more work than the others
    /// unless one cell is.
    fn check_slabs(keys: &[u64], cells: u64, cell_cost: u64, point_cost: u64) {
        let packing = Packing::new(keys.len(), cells);
        let sorted: Vec<u64> = (0..).zip(keys).map(|(index, &key)| u64::new(key, index, packing)).collect();
        let slabs = Slabs { sorted: &sorted, packing, cells, cell_cost, point_cost };
        let seen = Mutex::new(Vec::new());
        slabs
            .for_each(&Context::default(), &|cells, points| {
                assert!(points.iter().all(|point| cells.contains(&point.key(packing))));
                seen.lock().unwrap().push((cells.start, cells.end, points.len()));
            })
            .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let mut next = 0;
        for &(start, end, _) in &seen {
            assert_eq!(start, next);
            next = end;
        }
        assert_eq!(next, cells);
        assert_eq!(seen.iter().map(|slab| slab.2).sum::<usize>(), keys.len());
        let crowd = keys.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0) as u64;
        let most = SLAB_BYTES + cell_cost + (crowd + 1) * point_cost;
        for (start, end, points) in seen {
            assert!((end - start) * cell_cost + points as u64 * point_cost <= 2 * most, "{start}..{end}: {points}");
        }
    }

    #[test]
    fn slabs_hold_everything_once() {
        let spread: Vec<u64> = (0..60_000).map(|i| i * 37 / 3).collect();
        let crowded: Vec<u64> = (0..60_000).map(|i| if i < 50_000 { 7 } else { 500_000 + i % 3 }).collect();
        let crowded = {
            let mut keys = crowded;
            keys.sort_unstable();
            keys
        };
        for keys in [&[][..], &[0], &[999_999], &spread, &crowded] {
            for (cell_cost, point_cost) in [(64, 80), (1, 20), (4096, 4112)] {
                check_slabs(keys, 1_000_000, cell_cost, point_cost);
            }
        }
        check_slabs(&[0, 0, 0], 1, 4, 20);
        check_slabs(&[], 0, 4, 20);
    }
}
