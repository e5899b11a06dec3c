//! Cells that hold points, on the host.
//!
//! Points set bits, one for each cell, in a set that a core has to itself; then the grid is written from the bits, in
//! its order and only once. Bits are so few that they lie in a core's cache, where the cells of a grid do not.
//! Grids with too many cells for that are filled, then marked in memory.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::dims::{Dims, Targets};
use super::fill::{NEAR_ROW_POINTS, TASK_BYTES, fill, fill_part, rows_are_tasks};
use super::find::{Finder, TASK_POINTS, Visitor};
use super::grid::NOWHERE;
use crate::cpu::{Shared, for_each, prefetch, threads, vectorized};
use crate::ops::cloud::ReadPoints;
use crate::{Context, Result};

/// Bytes of the bits of a row that one thread sets and then writes.
const ROW_BYTES: usize = 4 << 20;
/// Bytes of all sets of bits, where all threads work on the same rows.
const MOST_BYTES: usize = 32 << 20;
/// Bytes of bits for each point: more, and to clear and to read them takes longer than they save.
const POINT_BYTES: usize = 16;
/// Cells of a word of bits.
const WORD: usize = u64::BITS as usize;

/// How a grid is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Row by row, each by one thread: filled and marked while it is in its cache.
    Near,
    /// Row by row, each by one thread, with so many sets of bits.
    Rows(usize),
    /// All rows at once by all threads, with so many sets.
    Together(usize),
    /// In memory.
    Plain,
}

impl Way {
    fn of(dims: &Dims) -> Self {
        let (cloud, threads) = (&dims.cloud, threads());
        if rows_are_tasks(dims, dims.dtype) {
            return Self::Near;
        }
        if cloud.batch >= 2 * threads && cloud.count <= NEAR_ROW_POINTS && bytes_of(dims.cells) <= ROW_BYTES {
            return Self::Rows(threads);
        }
        let tasks = cloud.batch.saturating_mul(cloud.count.div_ceil(TASK_POINTS).max(1));
        let sets = threads.min(tasks).max(1);
        let bytes = bytes_of(dims.all_cells).saturating_mul(sets);
        let pays = bytes <= MOST_BYTES && bytes <= cloud.total().saturating_mul(POINT_BYTES);
        if pays { Self::Together(sets) } else { Self::Plain }
    }
}

/// Bytes of a bit for each of so many cells.
fn bytes_of(cells: usize) -> usize {
    cells.div_ceil(WORD) * size_of::<u64>()
}

/// Bytes to work in.
pub(super) fn workspace(dims: &Dims) -> usize {
    match Way::of(dims) {
        Way::Rows(sets) => sets * bytes_of(dims.cells),
        Way::Together(sets) => sets * bytes_of(dims.all_cells),
        Way::Near | Way::Plain => 0,
    }
}

/// Writes `one` into the cells of points, and what empty cells hold into the others.
///
/// # Safety
/// `scratch` must hold what [`workspace`] asks for, aligned as numbers of 64 bits are.
pub(super) unsafe fn mark<P: ReadPoints>(
    found: &Finder<'_, P>,
    dims: &Dims,
    targets: &Targets,
    scratch: *mut u8,
    context: &Context<'_>,
) -> Result<()> {
    let scratch = scratch.cast();
    // SAFETY: the caller's promise.
    unsafe {
        match dims.dtype.size() {
            1 => mark_cells(found, dims, targets, [dims.fill as u8, dims.one as u8], scratch, context),
            2 => mark_cells(found, dims, targets, [dims.fill as u16, dims.one as u16], scratch, context),
            4 => mark_cells(found, dims, targets, [dims.fill as u32, dims.one as u32], scratch, context),
            _ => mark_cells(found, dims, targets, [dims.fill, dims.one], scratch, context),
        }
    }
}

/// `states`: what a cell holds without points, and with some.
///
/// # Safety
/// As for [`mark`].
unsafe fn mark_cells<S: Cell, P: ReadPoints>(
    found: &Finder<'_, P>,
    dims: &Dims,
    targets: &Targets,
    states: [S; 2],
    scratch: *mut u64,
    context: &Context<'_>,
) -> Result<()> {
    let (out, blank) = (Shared(targets.out.cast::<S>()), targets.blank);
    match Way::of(dims) {
        Way::Near => found.for_each_row(context, |row| {
            if !blank {
                // SAFETY: a row of the grid, which no other task writes.
                unsafe { fill_part(out.get().cast(), dims.dtype, dims.fill, row * dims.cells..(row + 1) * dims.cells) };
            }
            Mark::new(out.get(), states[1])
        }),
        Way::Rows(count) => {
            let sets = Sets::new(scratch, dims.cells, count);
            found.for_each_row(context, |row| {
                let first = row * dims.cells;
                let own = SetBits::new(&sets);
                // SAFETY: a set that no other task has, and a row of the grid that no other task writes.
                let row = unsafe {
                    own.bits.write_bytes(0, sets.words);
                    OwnRow { out: out.get().add(first), cells: dims.cells, states, blank }
                };
                SetBits { first: first as u64, row: Some(row), ..own }
            })
        }
        Way::Together(count) => {
            let sets = Sets::new(scratch, dims.all_cells, count);
            sets.clear(context)?;
            found.for_each(false, context, |_| SetBits::<S>::new(&sets))?;
            let words = (TASK_BYTES / size_of::<S>() / WORD).max(1);
            for_each(sets.words.div_ceil(words), context, &|task| {
                let (first, end) = (task * words, ((task + 1) * words).min(sets.words));
                let cells = first * WORD..(end * WORD).min(dims.all_cells);
                // SAFETY: cells of the grid, which no other task writes; all bits are set.
                unsafe {
                    let bits = sets.bits.get().add(first);
                    write_cells(bits, sets.words, count, out.get().add(cells.start), cells.len(), states, blank);
                }
            })
        }
        Way::Plain => {
            // SAFETY: `[B,X,Y,Z]` of this dtype, row-major.
            unsafe {
                if blank {
                    touch(targets.out, dims.all_cells * size_of::<S>(), context)?;
                } else {
                    fill(targets.out, dims.dtype, dims.fill, dims.all_cells, context)?;
                }
            }
            found.for_each(false, context, |_| Mark::new(out.get(), states[1]))
        }
    }
}

/// Sets of bits in memory to work in, one for each thread.
struct Sets {
    bits: Shared<u64>,
    words: usize,
    /// Whether a task has it.
    taken: Vec<AtomicBool>,
}

impl Sets {
    fn new(bits: *mut u64, cells: usize, count: usize) -> Self {
        let taken = (0..count).map(|_| AtomicBool::new(false)).collect();
        Self { bits: Shared(bits), words: cells.div_ceil(WORD), taken }
    }

    /// Clears all of them.
    fn clear(&self, context: &Context<'_>) -> Result<()> {
        let words = TASK_BYTES / size_of::<u64>();
        let total = self.words * self.taken.len();
        for_each(total.div_ceil(words), context, &|task| {
            let (first, end) = (task * words, ((task + 1) * words).min(total));
            // SAFETY: as many words as the sets have, and tasks have parts of their own.
            unsafe { self.bits.get().add(first).write_bytes(0, end - first) };
        })
    }

    /// A set that no other task has: there are as many as tasks run at a time.
    fn take(&self) -> usize {
        loop {
            let free = self.taken.iter().position(|taken| !taken.swap(true, Ordering::Acquire));
            if let Some(free) = free {
                return free;
            }
            std::hint::spin_loop();
        }
    }
}

/// A row of the grid that is written when its points are known.
struct OwnRow<S> {
    out: *mut S,
    cells: usize,
    states: [S; 2],
    blank: bool,
}

/// Sets the bits of cells.
struct SetBits<'a, S> {
    sets: &'a Sets,
    set: usize,
    bits: *mut u64,
    /// The cell of the first bit.
    first: u64,
    before: u64,
    /// Where bits go that are not needed: no branch to guess wrong.
    aside: u64,
    row: Option<OwnRow<S>>,
}

impl<'a, S: Cell> SetBits<'a, S> {
    fn new(sets: &'a Sets) -> Self {
        let set = sets.take();
        // SAFETY: there are so many sets.
        let bits = unsafe { sets.bits.get().add(set * sets.words) };
        Self { sets, set, bits, first: 0, before: NOWHERE, aside: 0, row: None }
    }
}

impl<S: Cell> Visitor for SetBits<'_, S> {
    #[inline(always)]
    fn visit(&mut self, _: usize, cells: &[u64]) {
        // A crowd: to set one word again and again is slow, since each time waits for the one before.
        if cells.iter().all(|&cell| cell == self.before) {
            return;
        }
        for &cell in cells {
            let needed = (cell != NOWHERE) & (cell != self.before);
            let bit = cell.wrapping_sub(self.first);
            let word = if needed { self.bits.wrapping_add((bit / WORD as u64) as usize) } else { &raw mut self.aside };
            self.before = cell;
            // SAFETY: the bit of a cell, which nobody else has at this time.
            unsafe { *word |= 1 << (bit % WORD as u64) };
        }
    }

    fn finish(&mut self) {
        if let Some(row) = &self.row {
            // SAFETY: a row of the grid, which no other task writes.
            unsafe { write_cells(self.bits, 0, 1, row.out, row.cells, row.states, row.blank) };
        }
        self.sets.taken[self.set].store(false, Ordering::Release);
    }
}

vectorized! {
    /// Writes cells from the bits of so many `sets` of them, which begin `apart` words after each other. Where the
    /// grid is `blank` empty cells hold what they should.
    ///
    /// # Safety
    /// So many cells must be writable at `out`, and have bits in all sets.
    unsafe fn write_cells[S: Cell](
        bits: *const u64,
        apart: usize,
        sets: usize,
        out: *mut S,
        cells: usize,
        states: [S; 2],
        blank: bool,
    ) {
        /// Words whose sets are joined at once.
        const AT_ONCE: usize = 16;
        let words = cells.div_ceil(WORD);
        for first in (0..words).step_by(AT_ONCE) {
            let count = (words - first).min(AT_ONCE);
            let mut joined = [0; AT_ONCE];
            for set in 0..sets {
                // SAFETY: the caller's promise.
                let of = unsafe { std::slice::from_raw_parts(bits.add(set * apart + first), count) };
                joined.iter_mut().zip(of).for_each(|(joined, bits)| *joined |= bits);
            }
            for (word, bits) in (first..).zip(&joined[..count]) {
                // SAFETY: the caller's promise.
                let to = unsafe { std::slice::from_raw_parts_mut(out.add(word * WORD), (cells - word * WORD).min(WORD)) };
                match <&mut [S; WORD]>::try_from(&mut *to) {
                    Ok(to) => write_word(*bits, to, states, blank),
                    Err(_) => to.iter_mut().enumerate().for_each(|(cell, to)| *to = states[(bits >> cell & 1) as usize]),
                }
            }
        }
    }
}

/// Writes the cells of a word of bits, of which most are empty, or none but one.
#[inline(always)]
fn write_word<S: Cell>(bits: u64, to: &mut [S; WORD], states: [S; 2], blank: bool) {
    if bits & bits.wrapping_sub(1) != 0 {
        return S::write(bits, to, states);
    }
    if !blank {
        to.fill(states[0]);
    }
    if bits != 0 {
        to[bits.trailing_zeros() as usize % WORD] = states[1];
    }
}

/// What a cell is held in.
trait Cell: Copy + Default + Send + Sync {
    /// Writes the cells of a word of bits.
    #[inline(always)]
    fn write(bits: u64, to: &mut [Self; WORD], [empty, occupied]: [Self; 2]) {
        for (half, to) in to.chunks_exact_mut(WORD / 2).enumerate() {
            let bits = (bits >> (half * WORD / 2)) as u32;
            for (cell, to) in to.iter_mut().enumerate() {
                *to = if bits & 1 << cell != 0 { occupied } else { empty };
            }
        }
    }

    /// # Safety
    /// The slot must be writable and aligned. Stores of one value may meet.
    unsafe fn store(slot: *mut Self, value: Self);
}

macro_rules! cells {
    ($(($type:ty, $atomic:ty, $($write:item)?)),+) => {$(
        impl Cell for $type {
            $($write)?

            #[inline(always)]
            unsafe fn store(slot: *mut Self, value: Self) {
                // SAFETY: the caller's promise.
                unsafe { <$atomic>::from_ptr(slot) }.store(value, Ordering::Relaxed);
            }
        }
    )+};
}
cells!(
    (
        u8,
        AtomicU8,
        #[inline(always)]
        fn write(bits: u64, to: &mut [u8; WORD], [empty, occupied]: [u8; 2]) {
            /// 1 in each byte.
            const ONES: u64 = 0x0101_0101_0101_0101;
            for (to, eight) in to.chunks_exact_mut(8).zip(bits.to_le_bytes()) {
                // Each byte keeps the bit of its own place, and is made 1 where that is set.
                let apart = (u64::from(eight) * ONES) & 0x8040_2010_0804_0201;
                let set = ((apart + 0x7f * ONES) >> 7) & ONES;
                let cells = (u64::from(empty) * ONES) ^ (set * u64::from(empty ^ occupied));
                to.copy_from_slice(&cells.to_le_bytes());
            }
        }
    ),
    (u16, AtomicU16,),
    (u32, AtomicU32,),
    (u64, AtomicU64,)
);

/// Writes `one` into the cells of points.
struct Mark<S> {
    out: *mut S,
    one: S,
    before: u64,
    /// As in [`SetBits`].
    aside: S,
}

impl<S: Cell> Mark<S> {
    fn new(out: *mut S, one: S) -> Self {
        Self { out, one, before: NOWHERE, aside: S::default() }
    }
}

impl<S: Cell> Visitor for Mark<S> {
    #[inline(always)]
    fn visit(&mut self, _: usize, cells: &[u64]) {
        for &cell in cells {
            prefetch(self.out.wrapping_add(cell as usize));
        }
        for &cell in cells {
            // Not one store after the other to a cell that other cores write, too.
            let needed = (cell != NOWHERE) & (cell != self.before);
            let slot = if needed { self.out.wrapping_add(cell as usize) } else { &raw mut self.aside };
            self.before = cell;
            // SAFETY: a cell of the grid, aligned as its dtype is.
            unsafe { S::store(slot, self.one) };
        }
    }
}

/// Touches the pages of fresh zeros part by part. Points are all over the grid, and two threads that touch a page
/// at once both clear it.
///
/// # Safety
/// So many bytes must be writable at `out`, and 0.
unsafe fn touch(out: *mut u8, bytes: usize, context: &Context<'_>) -> Result<()> {
    /// The smallest that there are.
    const PAGE: usize = 4096;
    let out = Shared(out);
    for_each(bytes.div_ceil(TASK_BYTES), context, &|task| {
        for at in (task * TASK_BYTES..((task + 1) * TASK_BYTES).min(bytes)).step_by(PAGE) {
            // SAFETY: the caller's promise; tasks have parts of their own.
            unsafe { out.get().add(at).write_volatile(0) };
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::voxelize::{Grid, Voxelize};
    use crate::tensor::Tensor;
    use crate::{DType, Op, prepare, run};

    /// Points along x at these places; all ways and dtypes must mark the cells of a plain loop.
    fn check(rows: usize, cells: usize, places: &[i64], way: fn(&Way) -> bool) {
        let count = places.len() / rows;
        let points: Vec<f32> = places.iter().flat_map(|&x| [x as f32 + 0.5, 0.5, 0.5]).collect();
        let points = Tensor::from_slice(&points, &[rows, count, 3]).unwrap();
        let mut want = vec![false; rows * cells];
        for (index, &x) in places.iter().enumerate() {
            if let Some(x) = usize::try_from(x).ok().filter(|&x| x < cells) {
                want[index / count * cells + x] = true;
            }
        }
        let grid = Grid { origin: [0.0; 3], voxel_size: [1.0; 3], shape: [cells, 1, 1] };
        for (dtype, fill) in
            [(DType::U8, 0.0f64), (DType::U8, 5.0), (DType::F16, 2.0), (DType::F32, -0.0), (DType::F64, 0.0)]
        {
            let mut op = Voxelize::new(points.view(), grid);
            (op.dtype, op.fill) = (Some(dtype), fill.into());
            // Counting works in the same memory before.
            (op.return_counts, op.return_dropped) = (fill == 5.0, fill == 5.0);
            let chosen = Way::of(&op.check().unwrap());
            assert!(way(&chosen), "{chosen:?}");
            // Fresh zeros, and memory that holds anything.
            let fresh = run(&op).unwrap();
            let mut used = vec![Tensor::zeros(&[rows, cells, 1, 1], dtype).unwrap()];
            let prepared = prepare(&op, &Context::default()).unwrap();
            used.extend(
                prepared.outputs()[1..].iter().map(|spec| Tensor::zeros(spec.layout.shape(), spec.dtype).unwrap()),
            );
            let mut views: Vec<_> = used.iter_mut().map(Tensor::view_mut).collect();
            for view in &mut views {
                let (start, end) = view.view().address_range();
                // SAFETY: all bytes of a tensor of numbers.
                unsafe { view.data_mut().write_bytes(0x5a, end - start) };
            }
            prepared.run(&mut views, &Context::default()).unwrap();
            drop(views);
            for result in [&fresh[0], &used[0]] {
                let got: Vec<f64> = match dtype {
                    DType::U8 => result.as_slice::<u8>().unwrap().iter().map(|&x| f64::from(x)).collect(),
                    DType::F16 => result.as_slice::<half::f16>().unwrap().iter().map(|&x| x.to_f64()).collect(),
                    DType::F32 => result.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
                    _ => result.as_slice::<f64>().unwrap().to_vec(),
                };
                let wanted = |want: bool| if want { 1.0 } else { fill };
                assert!(got.iter().zip(&want).all(|(got, &want)| got.to_bits() == wanted(want).to_bits()), "{dtype}");
            }
        }
    }

    #[test]
    fn all_ways_mark_alike() {
        let spread = |cells: usize, count: usize| -> Vec<i64> {
            (0..count as i64).map(|index| (index * 7919) % (cells as i64 + 20) - 10).collect()
        };
        let together = |way: &Way| matches!(way, Way::Together(_));
        for cells in [1, 63, 64, 65, 127, 1000, 70_001] {
            check(1, cells, &spread(cells, 40_000), together);
        }
        check(1, 300, &vec![-1; 500], together);
        check(1, 300, &vec![299; 500], together);
        // Rows that begin within a word of bits, and rows of their own.
        check(2, 77, &spread(77, 2000), |way| *way == Way::Near || matches!(way, Way::Together(_)));
        let rows = 2 * threads() + 1;
        for cells in [1, 63, 64, 65, 5000] {
            check(rows, cells, &spread(cells, rows * 400), |way| *way == Way::Near);
        }
        // Rows that one core's cache does not hold; of many there would be too much memory for a test.
        if rows < 40 {
            check(rows, (1 << 20) + 77, &spread(1 << 20, rows * 40_000), |way| matches!(way, Way::Rows(_)));
        }
        // So few points that bits do not pay.
        check(1, 70_001, &spread(70_001, 10), |way| *way == Way::Plain);
    }
}
