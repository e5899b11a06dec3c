//! The gradient of `resample` on the host: tiles of samples, whose sums stay in the first cache,
//! spread over all cores.

use half::{bf16, f16};

use super::cells::{Cell, Number};
use super::{Dims, ResampleBackward};
use crate::cpu::{Simd, for_each, is_worth_sharing, simd};
use crate::ops::resample::{Extrapolate, Pick, Rows, Rules, Stamp, Stamps, strides};
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
    let rows = Rows::<S>::new(&op.forward, &dims.forward);
    // As `resample`: where nothing is computed, bad data spoils nothing.
    let empty = dims.forward.batch == 0 || dims.forward.targets == 0 || dims.forward.width == 0;
    if op.forward.check && !empty {
        rows.check(&op.forward, context)?;
    }
    match op.forward.values.dtype() {
        DType::F16 => compute::<S, f16>(op, &rows, dims, out, context),
        DType::BF16 => compute::<S, bf16>(op, &rows, dims, out, context),
        DType::F32 => compute::<S, f32>(op, &rows, dims, out, context),
        _ => compute::<S, f64>(op, &rows, dims, out, context),
    }
}

/// Everything that the tasks share.
struct Job<'a, S, C: Cell> {
    rows: &'a Rows<'a, S>,
    dims: &'a Dims,
    rules: Rules,
    /// The columns that the method applies to.
    columns: (usize, usize),
    grad: *const C,
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
    let job = Job::<S, C> {
        rows,
        dims,
        rules: Rules { method: op.forward.method, extrapolate: op.forward.extrapolate, max_gap: f64::INFINITY },
        columns: (0, forward.width),
        grad: op.grad.data().cast(),
        out_strides: strides(output.view()),
        out: output.data_mut().cast(),
        partial,
    };
    let (_, groups) = dims.row_groups();
    // Gradients read and written for a sample of a group, and the search.
    let targets_per_sample = (forward.targets * dims.row_groups().0).div_ceil(forward.samples);
    let sample_bytes = (1 + targets_per_sample) * (forward.width * size_of::<C>() + size_of::<S>());
    let bytes = sample_bytes.saturating_mul(forward.samples).saturating_mul(groups);
    let shared = is_worth_sharing(bytes);
    let span = if shared { (TASK_BYTES / sample_bytes).clamp(64, forward.samples.max(64)) } else { forward.samples };
    let spans = forward.samples.div_ceil(span);
    let body = |task: usize| {
        let (group, start) = (task / spans, task % spans * span);
        job.run(group, start, (start + span).min(forward.samples));
    };
    if shared {
        for_each(groups * spans, context, &body)?;
    } else {
        (0..groups * spans).for_each(body);
    }
    if dims.groups.is_some() {
        return job.sum_groups(context);
    }
    Ok(())
}

/// One row: its stamps, its targets and whether those are in order.
struct Row<S> {
    stamps: Stamps<S>,
    targets: Stamps<S>,
    sorted: bool,
    /// Where lines go on outside: the two first and the two last samples.
    ends: Option<[usize; 4]>,
}

impl<S: Stamp> Row<S> {
    /// The outermost samples that the target may have to do with, such that they are in order where
    /// the targets are. A target on an end lies between targets that are made of two samples, where
    /// lines go on outside.
    #[inline(always)]
    fn reach(&self, first: usize, second: usize) -> (usize, usize) {
        match self.ends {
            Some([start, after_start, before_end, end]) => {
                (if first == end { before_end } else { first }, if second == start { after_start } else { second })
            }
            None => (first, second),
        }
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

/// The two first and the two last samples that exist, if there are two.
fn ends<S: Stamp>(stamps: &Stamps<S>) -> Option<[usize; 4]> {
    let length = stamps.len();
    let last_equal = |index: usize| first_where(index, length, |i| stamps.at(index) < stamps.at(i)).max(index + 1) - 1;
    let end = length.checked_sub(1)?;
    let before_end = first_where(0, end, |i| stamps.at(i) >= stamps.at(end)).checked_sub(1)?;
    let start = last_equal(0);
    let after_start = last_equal((start + 1).min(end));
    Some([start, after_start, before_end, end])
}

/// Where the next tile of a row begins to look: the first target that may matter, and its stamps.
#[derive(Default)]
struct Cursor {
    target: usize,
    hint: usize,
}

impl<S: Stamp, C: Cell> Job<'_, S, C> {
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

    fn row(&self, row: usize) -> Row<S> {
        let (stamps, targets) = (self.rows.stamps(row), self.rows.targets(row));
        // NaN compares as out of order.
        let sorted = match targets.as_slice() {
            Some(targets) => targets.iter().zip(targets.iter().skip(1)).fold(true, |sorted, (a, b)| sorted & (a <= b)),
            None => (1..targets.len()).all(|index| targets.at(index - 1) <= targets.at(index)),
        };
        let ends = if self.rules.extrapolate == Extrapolate::Linear { ends(&stamps) } else { None };
        Row { stamps, targets, sorted, ends }
    }

    #[inline(always)]
    fn run_with(&self, group: usize, start: usize, end: usize) {
        let (per_group, _) = self.dims.row_groups();
        let rows = group * per_group..((group + 1) * per_group).min(self.dims.forward.batch);
        // The tiles of one row follow each other through its targets.
        let only = (rows.len() == 1).then(|| self.row(rows.start));
        let mut sums = [C::Sum::ZERO; TILE];
        let (first, last) = self.columns;
        for left in (first..last).step_by(MOST_COLUMNS) {
            let right = (left + MOST_COLUMNS).min(last);
            let tile = TILE / (right - left);
            let mut cursor = only.as_ref().map(|row| self.first_target(row, start));
            for low in (start..end).step_by(tile) {
                let area = Area { low, high: (low + tile).min(end), left, right };
                let sums = &mut sums[..area.size()];
                sums.fill(C::Sum::ZERO);
                match (&only, &mut cursor) {
                    (Some(row), Some(cursor)) => self.gather(rows.start, row, &area, cursor, sums),
                    _ => {
                        for index in rows.clone() {
                            let row = self.row(index);
                            let mut cursor = self.first_target(&row, low);
                            self.gather(index, &row, &area, &mut cursor, sums);
                        }
                    }
                }
                self.store(group, &area, sums);
            }
        }
    }

    /// What a target was made of and the weight of the second sample.
    #[inline(always)]
    fn find(&self, row: &Row<S>, index: usize, hint: &mut usize) -> (Pick, C::Sum) {
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
    fn first_target(&self, row: &Row<S>, low: usize) -> Cursor {
        if !row.sorted || low == 0 || row.stamps.len() == 0 {
            return Cursor::default();
        }
        let mut hint = low.min(row.stamps.len());
        let target = first_where(0, row.targets.len(), |target| match self.find(row, target, &mut hint).0 {
            Pick::Take(sample) => row.reach(sample, sample).1 >= low,
            Pick::Blend(first, second) => row.reach(first, second).1 >= low,
            Pick::Missing => row.targets.at(target) >= row.stamps.at(0),
        });
        Cursor { target, hint }
    }

    /// Adds what the targets of a row hand back to the samples of an area.
    #[inline(always)]
    fn gather(&self, index: usize, row: &Row<S>, area: &Area, cursor: &mut Cursor, sums: &mut [C::Sum]) {
        if row.stamps.len() == 0 {
            return;
        }
        let start = if row.sorted { cursor.target } else { 0 };
        let mut next = None;
        for target in start..row.targets.len() {
            let (pick, weight) = self.find(row, target, &mut cursor.hint);
            let (first, second) = match pick {
                Pick::Take(sample) => (sample, sample),
                Pick::Blend(first, second) => (first, second),
                Pick::Missing => continue,
            };
            let (from, to) = row.reach(first, second);
            if to >= area.high && next.is_none() {
                next = Some(target);
            }
            if from >= area.high && row.sorted {
                break;
            }
            if first == second {
                self.add(index, target, first, C::Sum::ONE, area, sums);
            } else {
                self.add(index, target, first, weight.rest(), area, sums);
                self.add(index, target, second, weight, area, sums);
            }
        }
        cursor.target = next.unwrap_or(row.targets.len());
    }

    /// Adds the gradient of a target, times `factor`, to a sample, if that is in the area.
    #[inline(always)]
    fn add(&self, row: usize, target: usize, sample: usize, factor: C::Sum, area: &Area, sums: &mut [C::Sum]) {
        let Some(sums) = area.of_sample(sample, sums) else {
            return;
        };
        let [batch, step, column] = self.dims.grad_strides;
        // SAFETY: row < batch, target < T and columns < D, for which `check` proved the strides.
        unsafe {
            let grad = self.grad.offset(row as isize * batch + target as isize * step + area.left as isize * column);
            if column == 1 {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = factor.mul_add((*grad.add(c)).widen(), *sum);
                }
            } else {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = factor.mul_add((*grad.offset(c as isize * column)).widen(), *sum);
                }
            }
        }
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
                        sum = sum.plus(*self.partial.add((group * forward.samples + sample) * width + column));
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

/// Samples `low..high` and columns `left..right`.
struct Area {
    low: usize,
    high: usize,
    left: usize,
    right: usize,
}

impl Area {
    fn size(&self) -> usize {
        (self.high - self.low) * (self.right - self.left)
    }

    /// The sums of one sample.
    #[inline(always)]
    fn of_sample<'s, T>(&self, sample: usize, sums: &'s mut [T]) -> Option<&'s mut [T]> {
        if sample < self.low || sample >= self.high {
            return None;
        }
        let width = self.right - self.left;
        sums.get_mut((sample - self.low) * width..)?.get_mut(..width)
    }
}
