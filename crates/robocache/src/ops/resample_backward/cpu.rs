//! The gradient of `resample` on the host: tiles of samples, whose sums stay in the first cache,
//! spread over all cores.

use std::ops::Range;

use half::{bf16, f16};

use super::ResampleBackward;
use super::area::Area;
use super::cells::Cell;
use super::dims::Dims;
use super::row::Row;
use super::unordered::Dealt;
use crate::cpu::{Simd, for_each, is_worth_sharing, simd};
use crate::ops::align::Real;
use crate::ops::align::{ColumnRange, Extrapolate, Method, Pick, Rows, Rules, Stamp, strides};
use crate::tensor::DType;
use crate::{Context, Outputs, Result};

/// Bytes that one task moves, as in `resample`.
const TASK_BYTES: usize = 256 << 10;
/// Sums of a tile.
const TILE: usize = 2048;
/// Columns of a tile.
const MOST_COLUMNS: usize = 240;

pub(super) fn backward(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    match op.forward.times.dtype() {
        DType::I64 => with_stamps::<i64>(op, dims, out, context),
        DType::F64 => with_stamps::<f64>(op, dims, out, context),
        _ => with_stamps::<f32>(op, dims, out, context),
    }
}

fn with_stamps<S: Stamp>(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let rows = Rows::<S>::new(&op.forward.arguments(), &dims.forward);
    // As `resample`: where nothing is computed, bad data spoils nothing.
    let empty = dims.forward.batch == 0 || dims.forward.targets == 0 || dims.forward.width == 0;
    if op.forward.check && !empty {
        rows.check(op.forward.extrapolate, context)?;
    }
    match op.forward.values.dtype() {
        DType::F16 => compute::<S, f16>(op, &rows, dims, out, context),
        DType::BF16 => compute::<S, bf16>(op, &rows, dims, out, context),
        DType::F32 => compute::<S, f32>(op, &rows, dims, out, context),
        _ => compute::<S, f64>(op, &rows, dims, out, context),
    }
}

/// Everything that the tasks share.
pub(super) struct Job<'a, S, C: Cell> {
    rows: &'a Rows<'a, S>,
    pub(super) dims: &'a Dims,
    pub(super) rules: Rules,
    /// The columns that the method applies to.
    columns: (usize, usize),
    /// How many samples further than those of its interval a target may need, and one if lines go on
    /// outside.
    radius: usize,
    pub(super) values: *const C,
    pub(super) grad: *const C,
    out: *mut C,
    out_strides: [isize; 3],
    /// `[groups,S,D]`; null where rows are not summed up.
    partial: *mut C::Sum,
}

// SAFETY: inputs are only read; every task writes its own samples of its own rows.
unsafe impl<S: Sync, C: Cell> Sync for Job<'_, S, C> {}

fn compute<S: Stamp, C: Cell>(
    op: &ResampleBackward<'_>,
    rows: &Rows<'_, S>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let partial = match out.get(1) {
        Some(partial) => partial.data_mut().cast(),
        None => std::ptr::null_mut(),
    };
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let forward = &dims.forward;
    if forward.width == 0 || (forward.batch == 0 && dims.groups.is_none()) {
        return Ok(());
    }
    let (out_strides, out) = (strides(output.view()), output.data_mut().cast());
    let job = |range: &ColumnRange| Job::<S, C> {
        rows,
        dims,
        rules: op.forward.arguments().rules(range.method, true),
        columns: (range.start, range.end),
        radius: match range.method {
            Method::Cubic => 2,
            _ => usize::from(op.forward.extrapolate == Extrapolate::Linear),
        },
        values: op.forward.values.data().cast(),
        grad: op.grad.data().cast(),
        out_strides,
        out,
        partial,
    };
    for range in forward.ranges.iter() {
        job(range).run_all(context)?;
    }
    match forward.ranges.first() {
        Some(range) if dims.groups.is_some() => job(range).sum_groups(context),
        _ => Ok(()),
    }
}

/// The first index in `low..high` for which `wanted` holds, which then holds for all after it.
fn first_where(mut low: usize, mut high: usize, mut wanted: impl FnMut(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if wanted(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Where the next tile of a row begins to look: the first target that may matter, and its stamps.
#[derive(Default)]
struct Cursor {
    target: usize,
    hint: usize,
}

impl<S: Stamp, C: Cell> Job<'_, S, C> {
    fn run_all(&self, context: &Context<'_>) -> Result<()> {
        let forward = &self.dims.forward;
        let (per_group, groups) = self.dims.row_groups();
        // Gradients read and written for a sample of a group, and the search.
        let targets_per_sample = (forward.targets * per_group).div_ceil(forward.samples);
        let row_bytes = (self.columns.1 - self.columns.0) * size_of::<C>() + size_of::<S>();
        let sample_bytes = (1 + targets_per_sample) * row_bytes;
        let bytes = sample_bytes.saturating_mul(forward.samples).saturating_mul(groups);
        let shared = is_worth_sharing(bytes);
        let span =
            if shared { (TASK_BYTES / sample_bytes).clamp(64, forward.samples.max(64)) } else { forward.samples };
        let spans = forward.samples.div_ceil(span);
        let body = |task: usize| {
            let (group, start) = (task / spans, task % spans * span);
            self.run(group, start, (start + span).min(forward.samples));
        };
        if shared {
            return for_each(groups * spans, context, &body);
        }
        (0..groups * spans).for_each(body);
        Ok(())
    }

    fn run(&self, group: usize, start: usize, end: usize) {
        match simd() {
            // SAFETY: the instructions were found on this machine.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => unsafe { self.run_avx2(group, start, end) },
            Simd::Baseline => self.run_with(group, start, end),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run_avx2(&self, group: usize, start: usize, end: usize) {
        self.run_with(group, start, end);
    }

    /// A row, of which `samples` are looked at.
    fn row(&self, row: usize, samples: &Range<usize>) -> Row<S, C::Sum> {
        let (stamps, targets) = (self.rows.stamps(row), self.rows.targets(row));
        // NaN compares as out of order.
        let sorted = match targets.as_slice() {
            Some(targets) => targets.iter().zip(targets.iter().skip(1)).fold(true, |sorted, (a, b)| sorted & (a <= b)),
            None => (1..targets.len()).all(|index| targets.at(index - 1) <= targets.at(index)),
        };
        let mut row = Row { stamps, targets, sorted, found: Vec::new() };
        if !sorted && row.stamps.len() > 0 {
            let (is_near, mut hint) = (row.is_near(samples, self.radius), 0);
            let near = (0..row.targets.len()).filter(|&target| is_near(row.targets.at(target)));
            let find = |target| {
                let (pick, weight) = self.find(&row, target, &mut hint);
                (target, pick, weight)
            };
            row.found = near.map(find).collect();
        }
        row
    }

    /// Which of the targets of a row touch which tile, where they are in any order.
    fn deal(&self, row: &Row<S, C::Sum>, samples: &Range<usize>, tile: usize) -> Option<Dealt> {
        let reach = |pick| row.reach_of(pick, self.radius);
        (!row.sorted).then(|| Dealt::new(&row.found, samples, tile, reach))
    }

    #[inline(always)]
    fn run_with(&self, group: usize, start: usize, end: usize) {
        let (per_group, _) = self.dims.row_groups();
        let rows = group * per_group..((group + 1) * per_group).min(self.dims.forward.batch);
        // The tiles of one row follow each other through its targets.
        let samples = start..end;
        let only = (rows.len() == 1).then(|| self.row(rows.start, &samples));
        let mut sums = [C::Sum::ZERO; TILE];
        let (first, last) = self.columns;
        for left in (first..last).step_by(MOST_COLUMNS) {
            let right = (left + MOST_COLUMNS).min(last);
            let tile = TILE / (right - left);
            let mut cursor = only.as_ref().map(|row| self.first_target(row, start));
            let dealt = only.as_ref().and_then(|row| self.deal(row, &samples, tile));
            for (number, low) in (start..end).step_by(tile).enumerate() {
                let area = Area { low, high: (low + tile).min(end), left, right };
                let sums = &mut sums[..area.size()];
                sums.fill(C::Sum::ZERO);
                match (&only, &mut cursor) {
                    (Some(row), Some(cursor)) => {
                        let dealt = dealt.as_ref().map(|dealt| dealt.of_tile(number));
                        self.gather(rows.start, row, dealt, &area, cursor, sums);
                    }
                    _ => {
                        for index in rows.clone() {
                            let row = self.row(index, &(low..area.high));
                            let mut cursor = self.first_target(&row, low);
                            let dealt = self.deal(&row, &(low..area.high), tile);
                            let dealt = dealt.as_ref().map(|dealt| dealt.of_tile(0));
                            self.gather(index, &row, dealt, &area, &mut cursor, sums);
                        }
                    }
                }
                self.store(group, &area, sums);
            }
        }
    }

    /// What a target was made of and the weight of the second sample.
    #[inline(always)]
    fn find(&self, row: &Row<S, C::Sum>, index: usize, hint: &mut usize) -> (Pick, C::Sum) {
        let target = row.targets.at(index);
        let (pick, _) = self.rules.locate(&row.stamps, target, hint);
        let Pick::Blend(first, second) = pick else {
            return (pick, C::Sum::ZERO);
        };
        let weight = C::Sum::weight(target, row.stamps.at(first), row.stamps.at(second));
        if weight == C::Sum::ZERO {
            (Pick::Take(first), weight)
        } else if weight == C::Sum::ONE {
            (Pick::Take(second), weight)
        } else {
            (pick, weight)
        }
    }

    /// The first target that may touch the samples from `low` on. Targets in any order: the first.
    fn first_target(&self, row: &Row<S, C::Sum>, low: usize) -> Cursor {
        if !row.sorted || low == 0 || row.stamps.len() == 0 {
            return Cursor::default();
        }
        let mut hint = low.min(row.stamps.len());
        let target = first_where(0, row.targets.len(), |target| {
            let reach = row.reach_of(self.find(row, target, &mut hint).0, self.radius);
            reach.map_or(row.targets.at(target) >= row.stamps.at(0), |(_, to)| to >= low)
        });
        Cursor { target, hint }
    }

    /// Adds what the targets of a row hand back to the samples of an area. `dealt`: which of those found touch it, where
    /// they are in any order.
    #[inline(always)]
    fn gather(
        &self,
        index: usize,
        row: &Row<S, C::Sum>,
        dealt: Option<&[usize]>,
        area: &Area,
        cursor: &mut Cursor,
        sums: &mut [C::Sum],
    ) {
        if row.stamps.len() == 0 {
            return;
        }
        let targets = dealt.map_or(cursor.target..row.targets.len(), |dealt| 0..dealt.len());
        let mut next = None;
        for number in targets {
            let (target, pick, weight) = match dealt {
                Some(dealt) => row.found[dealt[number]],
                None => {
                    let (pick, weight) = self.find(row, number, &mut cursor.hint);
                    (number, pick, weight)
                }
            };
            let (first, second) = match pick {
                Pick::Take(sample) => (sample, sample),
                Pick::Blend(first, second) => (first, second),
                Pick::Missing => continue,
            };
            let (from, to) = row.reach(first, second, self.radius);
            if to >= area.high && next.is_none() {
                next = Some(target);
            }
            if from >= area.high && row.sorted {
                break;
            }
            self.hand_back(index, row, target, (first, second), weight, area, sums);
        }
        cursor.target = next.unwrap_or(row.targets.len());
    }

    #[inline(always)]
    fn store(&self, group: usize, area: &Area, sums: &[C::Sum]) {
        let forward = &self.dims.forward;
        let width = area.right - area.left;
        for (sample, sums) in (area.low..area.high).zip(sums.chunks_exact(width)) {
            // SAFETY: sample < S, columns < D and group < groups, as the outputs' checks proved; no
            // other task writes these.
            unsafe {
                if self.partial.is_null() {
                    let [batch, step, column] = self.out_strides;
                    let out = self.out.offset(group as isize * batch + sample as isize * step);
                    for (c, sum) in (area.left..area.right).zip(sums) {
                        *out.offset(c as isize * column) = C::narrow(*sum);
                    }
                } else {
                    let at = (group * forward.samples + sample) * forward.width + area.left;
                    std::ptr::copy_nonoverlapping(sums.as_ptr(), self.partial.add(at), width);
                }
            }
        }
    }

    /// The sums of all groups, in order, as the result.
    fn sum_groups(&self, context: &Context<'_>) -> Result<()> {
        let forward = &self.dims.forward;
        let (groups, width) = (self.dims.row_groups().1, forward.width);
        let sample = |sample: usize| {
            for column in 0..width {
                let mut sum = C::Sum::ZERO;
                // SAFETY: as in `store`, which wrote them all.
                unsafe {
                    for group in 0..groups {
                        sum = sum + *self.partial.add((group * forward.samples + sample) * width + column);
                    }
                    let [_, step, stride] = self.out_strides;
                    *self.out.offset(sample as isize * step + column as isize * stride) = C::narrow(sum);
                }
            }
        };
        if is_worth_sharing(groups * forward.samples * width * size_of::<C::Sum>()) {
            return for_each(forward.samples, context, &sample);
        }
        (0..forward.samples).for_each(sample);
        Ok(())
    }
}
