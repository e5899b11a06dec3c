//! Points counted in their cells on the host.
//!
//! Three ways, by size. Small rows of a batch are counted by one thread each. Many points are first dealt into
//! slabs of the grid, so that each slab is counted by one thread, in its cache. All others are added atomically.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::dims::Dims;
use super::fill::{fill, fill_part, rows_are_tasks};
use super::find::{Finder, TASK_POINTS, Visitor};
use super::grid::NOWHERE;
use crate::cpu::{Shared, for_each, prefetch, threads};
use crate::ops::cloud::{BLOCK, ReadPoints};
use crate::tensor::DType;
use crate::{Context, Result};

/// Cells of a slab at most, as a power of 2: their counts leave room in a core's cache.
const SLAB_BITS: u32 = 17;
/// Cells of a slab at least: smaller ones are not worth handing out.
const LEAST_SLAB_BITS: u32 = 12;
/// With more slabs, a task has too few points for each.
const MOST_SLABS: usize = 1024;
/// More than a task has slabs: a power of 2, so that no place in it need be checked.
const TABLE: usize = 2 * MOST_SLABS;
/// Fewer points are not worth a second pass.
const LEAST_POINTS: usize = 64 << 10;
/// Cells that a thread alone counts in its cache.
const NEAR_CELLS: usize = 256 << 10;

/// How points are dealt into slabs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    bits: u32,
    slabs: usize,
    tasks: usize,
    points: usize,
}

impl Plan {
    /// None where it does not pay.
    pub(super) fn new(dims: &Dims) -> Option<Self> {
        let (points, cells, threads) = (dims.cloud.total(), dims.all_cells, threads());
        let mut bits = SLAB_BITS;
        while bits > LEAST_SLAB_BITS && cells >> bits < 4 * threads {
            bits -= 1;
        }
        let slabs = cells.div_ceil(1 << bits);
        let tasks = dims.cloud.batch.saturating_mul(dims.cloud.count.div_ceil(TASK_POINTS).max(1));
        // Of fewer slabs than that, some would be a crowd.
        let enough = (2 * threads..=MOST_SLABS).contains(&slabs);
        let pays = enough && points >= LEAST_POINTS && tasks.saturating_mul(slabs + 1) <= points / 4;
        let narrow = u32::try_from(points).is_ok();
        let alone = threads == 1 && cells <= NEAR_CELLS;
        (pays && narrow && !alone && !rows_are_tasks(dims, DType::I32)).then_some(Self { bits, slabs, tasks, points })
    }

    /// Bytes to work in: the cells as they are dealt, and where the slabs of each task begin.
    pub(super) fn workspace(&self) -> usize {
        (self.points + self.tasks * (self.slabs + 1)) * size_of::<u32>()
    }

    /// The slab of a cell; the one past the last for [`NOWHERE`], which is cut to 32 bits.
    #[inline(always)]
    fn slab(&self, cell: u32) -> usize {
        (cell >> self.bits).min(self.slabs as u32) as usize
    }
}

/// Writes how many points each cell has.
///
/// # Safety
/// `counts` must hold all cells, and `scratch` what the plan asks for, aligned as numbers of 32 bits are.
pub(super) unsafe fn count<P: ReadPoints>(
    found: &Finder<'_, P>,
    dims: &Dims,
    counts: *mut i32,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let counts = Shared(counts);
    if rows_are_tasks(dims, DType::I32) {
        return found.for_each_row(context, |row| {
            // SAFETY: a row of the grid, which no other task writes.
            unsafe { fill_part(counts.get().cast(), DType::I32, 0, row * dims.cells..(row + 1) * dims.cells) };
            Count::<true>::new(counts)
        });
    }
    if let Some(plan) = Plan::new(dims) {
        // SAFETY: the caller's promise.
        return unsafe { count_slabs(found, &plan, dims.all_cells, counts, scratch.cast(), context) };
    }
    // SAFETY: the caller's promise.
    unsafe { fill(counts.get().cast(), DType::I32, 0, dims.all_cells, context)? };
    if threads() == 1 || found.tasks() == 1 {
        found.for_each(false, context, |_| Count::<true>::new(counts))
    } else {
        found.for_each(false, context, |_| Count::<false>::new(counts))
    }
}

/// Counts points in their cells, runs of one cell at once.
struct Count<const ALONE: bool> {
    counts: Shared<i32>,
    before: u64,
    run: i32,
}

impl<const ALONE: bool> Count<ALONE> {
    fn new(counts: Shared<i32>) -> Self {
        Self { counts, before: NOWHERE, run: 0 }
    }

    #[inline(always)]
    fn add(&self) {
        if self.before != NOWHERE {
            // SAFETY: a cell of the grid, aligned as int32 is; with `ALONE` no other thread counts in the row.
            unsafe {
                let slot = self.counts.get().add(self.before as usize);
                if ALONE {
                    *slot = (*slot).wrapping_add(self.run);
                } else {
                    AtomicI32::from_ptr(slot).fetch_add(self.run, Relaxed);
                }
            }
        }
    }

    #[inline(always)]
    fn take(&mut self, cell: u64) {
        if cell == self.before {
            self.run += 1;
        } else {
            self.add();
            (self.before, self.run) = (cell, 1);
        }
    }
}

impl<const ALONE: bool> Visitor for Count<ALONE> {
    #[inline(always)]
    fn visit(&mut self, _: usize, cells: &[u64]) {
        for &cell in cells {
            prefetch(self.counts.get().wrapping_add(cell as usize));
        }
        for &cell in cells {
            self.take(cell);
        }
    }

    fn finish(&mut self) {
        self.add();
    }
}

/// Deals the points of a task into slabs.
struct Dealer {
    plan: Plan,
    /// The cells of the task's points as they came.
    found: Vec<u32>,
    /// Cells by slab, with room for the points of all tasks.
    dealt: *mut u32,
    /// Where each slab of this task begins in `dealt`, and what lies outside.
    starts: *mut u32,
    /// The first point.
    first: usize,
    places: [u32; TABLE],
}

impl Visitor for Dealer {
    #[inline(always)]
    fn visit(&mut self, first: usize, cells: &[u64]) {
        if self.found.is_empty() {
            self.first = first;
        }
        self.found.extend(cells.iter().map(|&cell| cell as u32));
        // Adding to one number again and again is slow, since each addition waits for the one before.
        if cells.iter().all(|&cell| cell == cells[0]) {
            self.places[self.plan.slab(cells[0] as u32)] += cells.len() as u32;
            return;
        }
        // Many at a time, then one by one.
        let mut slabs = [0u16; BLOCK];
        for (slab, &cell) in slabs.iter_mut().zip(cells) {
            *slab = self.plan.slab(cell as u32) as u16;
        }
        for &slab in &slabs[..cells.len()] {
            self.places[usize::from(slab) % TABLE] += 1;
        }
    }

    fn finish(&mut self) {
        let Self { plan, dealt, starts, first, ref found, ref mut places } = *self;
        let count = found.len();
        let all_in_one = places[..=plan.slabs].iter().any(|&place| place as usize == count);
        let mut next = first as u32;
        for (slab, place) in places[..=plan.slabs].iter_mut().enumerate() {
            // SAFETY: the table has so many starts for each task.
            unsafe { *starts.add(slab) = next };
            next += std::mem::replace(place, next);
        }
        if all_in_one {
            // SAFETY: there is room for the points of this task, which no other writes.
            return unsafe { dealt.add(first).copy_from_nonoverlapping(found.as_ptr(), count) };
        }
        for &cell in found {
            // SAFETY: as above; the counted places are as many, and lie within the task's points.
            unsafe {
                let place = &mut places[plan.slab(cell) % TABLE];
                *dealt.add(*place as usize) = cell;
                *place += 1;
            }
        }
    }
}

/// # Safety
/// As for [`count`], with the plan's memory at `scratch`.
unsafe fn count_slabs<P: ReadPoints>(
    found: &Finder<'_, P>,
    plan: &Plan,
    cells: usize,
    counts: Shared<i32>,
    scratch: *mut u32,
    context: &Context<'_>,
) -> Result<()> {
    let wide = plan.slabs + 1;
    // SAFETY: the caller's promise.
    let (dealt, table) = unsafe { (Shared(scratch), Shared(scratch.add(plan.points))) };
    found.for_each(false, context, |task| Dealer {
        plan: *plan,
        found: Vec::with_capacity(TASK_POINTS),
        dealt: dealt.get(),
        starts: table.get().wrapping_add(task * wide),
        first: 0,
        places: [0; TABLE],
    })?;
    // SAFETY: every task has written its starts.
    let starts = unsafe { std::slice::from_raw_parts(table.get(), plan.tasks * wide) };
    // SAFETY: the tasks have written what lies between two starts.
    let between = |start: u32, end: u32| unsafe {
        std::slice::from_raw_parts(dealt.get().add(start as usize), (end - start) as usize)
    };
    let points_in = |slab: usize| starts.chunks_exact(wide).map(|of| (of[slab + 1] - of[slab]) as usize).sum::<usize>();
    if (0..plan.slabs).any(|slab| points_in(slab) > plan.points / 2 * 3 / threads()) {
        // A crowd, with which one thread would be busy long after the others.
        // SAFETY: the caller's promise.
        unsafe { fill(counts.get().cast(), DType::I32, 0, cells, context)? };
        return for_each(plan.tasks, context, &|task| {
            let mut count = Count::<false>::new(counts);
            for &cell in between(starts[task * wide], starts[task * wide + plan.slabs]) {
                count.take(u64::from(cell));
            }
            count.finish();
        });
    }
    for_each(plan.slabs, context, &|slab| {
        // SAFETY: the cells of a slab, which no other task writes.
        unsafe {
            let slab = slab << plan.bits..((slab + 1) << plan.bits).min(cells);
            fill_part(counts.get().cast(), DType::I32, 0, slab);
        }
        for of in starts.chunks_exact(wide) {
            for &cell in between(of[slab], of[slab + 1]) {
                // SAFETY: as above.
                unsafe {
                    let slot = counts.get().add(cell as usize);
                    *slot = (*slot).wrapping_add(1);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::voxelize::{Grid, Reduce, Voxelize};
    use crate::tensor::Tensor;
    use crate::{Op, run};

    /// Points on a line along x, each at the middle of a cell or outside; counts must be those of a plain loop.
    fn check(rows: usize, count: usize, cells: usize, dealt: bool, place: impl Fn(usize) -> i64) {
        let places: Vec<i64> = (0..rows * count).map(place).collect();
        let points: Vec<f32> = places.iter().flat_map(|&x| [x as f32 + 0.5, 0.5, 0.5]).collect();
        let length = |row: usize| count - row % 3 * (count / 2);
        let lengths: Vec<i64> = (0..rows).map(|row| length(row) as i64).collect();
        let points = Tensor::from_slice(&points, &[rows, count, 3]).unwrap();
        let lengths = Tensor::from_slice(&lengths, &[rows]).unwrap();
        let mut want = vec![0i32; rows * cells];
        let mut outside = vec![0i64; rows];
        for (index, &x) in places.iter().enumerate() {
            let (row, index) = (index / count, index % count);
            if index < length(row) {
                match usize::try_from(x).ok().filter(|&x| x < cells) {
                    Some(x) => want[row * cells + x] += 1,
                    None => outside[row] += 1,
                }
            }
        }
        let grid = Grid { origin: [0.0; 3], voxel_size: [1.0; 3], shape: [cells, 1, 1] };
        let mut op = Voxelize::new(points.view(), grid);
        (op.lengths, op.return_dropped, op.reduce) = (Some(lengths.view()), true, Reduce::Count);
        // Beyond that, slabs are too few for their threads.
        if (2..=4).contains(&threads()) {
            assert_eq!(Plan::new(&op.check().unwrap()).is_some(), dealt);
        }
        let out = run(&op).unwrap();
        assert!(out[0].as_slice::<i32>().unwrap() == want);
        assert_eq!(out[1].as_slice::<i64>().unwrap(), outside);
        // Counts to work in lie before what counting works in.
        op.fill = (-1).into();
        let out = run(&op).unwrap();
        let filled = out[0].as_slice::<i32>().unwrap().iter().zip(&want);
        assert!(filled.into_iter().all(|(&got, &want)| got == if want == 0 { -1 } else { want }));
        (op.reduce, op.fill) = (Reduce::Occupancy, 3.into());
        let out = run(&op).unwrap();
        let marked = out[0].as_slice::<u8>().unwrap().iter().zip(&want);
        assert!(marked.into_iter().all(|(&got, &want)| got == if want == 0 { 3 } else { 1 }));
    }

    #[test]
    fn all_ways_count_alike() {
        let spread = |cells: i64| move |index: usize| (index as i64 * 7919) % (cells + 100) - 50;
        for (cells, dealt) in [(1, false), (5, false), (4096, false), (4097, false), (70_000, true), (1_000_003, true)]
        {
            check(1, 150_001, cells, dealt, spread(cells as i64));
        }
        check(2, 150_001, 300_000, true, spread(300_000));
        // A crowd in one cell, in the last one, and outside.
        check(1, 150_001, 300_000, true, |index| if index % 10 == 0 { index as i64 } else { 77 });
        check(2, 150_001, 300_000, true, |_| 299_999);
        check(1, 150_001, 300_000, true, |_| -1);
        // Rows so small that each is a task.
        check(2 * threads(), 1000, 1000, false, spread(1000));
        check(2 * threads() + 1, 3, 70, false, spread(70));
    }
}
