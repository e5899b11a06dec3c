//! `resample` on the host: rows and tiles of targets spread over all cores.

use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};

use super::cells::Cell;
use super::locate::{Pick, Rules, Stamp, Stamps};
use super::{Dims, Extrapolate, Method, Resample};
use crate::cpu::{Simd, for_each, is_worth_sharing, simd};
use crate::ops::rows::{clamped_length, given_length, strides};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Outputs, Result};

/// Bytes that one task moves: long enough to hide handing it out, short enough to stay in L2.
const TASK_BYTES: usize = 256 << 10;
/// Outputs from this size on are written past the caches: they would not stay there anyway, and
/// an ordinary store first reads what it overwrites.
const STREAM_BYTES: usize = 64 << 20;
/// Targets that are looked up before their rows are read.
const AHEAD: usize = 16;

pub(super) fn resample(op: &Resample<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    match op.times.dtype() {
        DType::I64 => with_stamps::<i64>(op, dims, out, context),
        DType::F64 => with_stamps::<f64>(op, dims, out, context),
        _ => with_stamps::<f32>(op, dims, out, context),
    }
}

fn with_stamps<S: Stamp>(
    op: &Resample<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    if op.is_empty(dims) {
        return Ok(());
    }
    let rows = Rows::<S>::new(op, dims);
    if op.check {
        rows.check(op, context)?;
    }
    let dtype = op.values.dtype();
    match (op.method, dtype) {
        (Method::Linear, DType::F32) => compute::<S, f32>(op, rows, out, context),
        (Method::Linear, DType::F64) => compute::<S, f64>(op, rows, out, context),
        (Method::Linear, DType::F16) => compute::<S, f16>(op, rows, out, context),
        (Method::Linear, DType::BF16) => compute::<S, bf16>(op, rows, out, context),
        // All other methods copy samples, so only their size matters.
        _ => match dtype.size() {
            1 => compute::<S, u8>(op, rows, out, context),
            2 => compute::<S, u16>(op, rows, out, context),
            4 => compute::<S, u32>(op, rows, out, context),
            _ => compute::<S, u64>(op, rows, out, context),
        },
    }
}

/// The rows of a batch: stamps, targets and how many of each exist.
struct Rows<'a, S> {
    dims: &'a Dims,
    times: *const S,
    targets: *const S,
    lengths: Option<TensorRef<'a>>,
    target_lengths: Option<TensorRef<'a>>,
}

// SAFETY: the pointers come from tensor views, which are Sync.
unsafe impl<S: Sync> Sync for Rows<'_, S> {}

impl<'a, S: Stamp> Rows<'a, S> {
    fn new(op: &Resample<'a>, dims: &'a Dims) -> Self {
        Self {
            dims,
            times: op.times.data().cast(),
            targets: op.targets.data().cast(),
            lengths: op.lengths,
            target_lengths: op.target_lengths,
        }
    }

    fn stamps(&self, row: usize) -> Stamps<S> {
        let dims = self.dims;
        let len = clamped_length(self.lengths, dims.length_stride, row, dims.samples);
        // SAFETY: row < batch and len <= S, and `check` proved that these strides fit the view.
        unsafe { Stamps::new(self.times.offset(row as isize * dims.time_strides[0]), dims.time_strides[1], len) }
    }

    fn targets(&self, row: usize) -> Stamps<S> {
        let dims = self.dims;
        let len = clamped_length(self.target_lengths, dims.target_length_stride, row, dims.targets);
        // SAFETY: as for `stamps`.
        unsafe { Stamps::new(self.targets.offset(row as isize * dims.target_strides[0]), dims.target_strides[1], len) }
    }

    /// Looks for bad data in all rows before anything is written, and names the first bad row.
    fn check(&self, op: &Resample<'_>, context: &Context<'_>) -> Result<()> {
        let dims = self.dims;
        let lengths = [
            ("lengths", &self.lengths, dims.length_stride, dims.samples),
            ("target_lengths", &self.target_lengths, dims.target_length_stride, dims.targets),
        ];
        for (name, lengths, stride, most) in lengths {
            let Some(lengths) = lengths else { continue };
            for row in 0..dims.batch {
                let given = given_length(lengths, stride, row);
                if !usize::try_from(given).is_ok_and(|given| given <= most) {
                    return Err(Error::invalid(name, format!("row {row} is {given}, expected 0 to {most}")));
                }
            }
        }
        let bounded = op.extrapolate == Extrapolate::Error;
        // Shared stamps are the same in every row, unless the rows' lengths or targets differ.
        let shared = dims.time_strides[0] == 0 && dims.length_stride == 0 && !bounded;
        let rows = if shared { dims.batch.min(1) } else { dims.batch };
        let check_row = |row: usize| {
            let stamps = self.stamps(row);
            check_stamps(&stamps, row)?;
            if bounded { check_targets(&stamps, &self.targets(row), row) } else { Ok(()) }
        };
        let bytes = rows.saturating_mul((dims.samples + if bounded { dims.targets } else { 0 }) * size_of::<S>());
        if !is_worth_sharing(bytes) {
            return (0..rows).try_for_each(check_row);
        }
        let per_task = (TASK_BYTES / (bytes / rows).max(1)).max(1);
        let first_bad = AtomicUsize::new(usize::MAX);
        for_each(rows.div_ceil(per_task), context, &|task| {
            let start = task * per_task;
            for row in start..(start + per_task).min(rows) {
                if check_row(row).is_err() {
                    first_bad.fetch_min(row, Ordering::Relaxed);
                }
            }
        })?;
        match first_bad.into_inner() {
            usize::MAX => Ok(()),
            row => check_row(row),
        }
    }
}

fn check_stamps<S: Stamp>(stamps: &Stamps<S>, row: usize) -> Result<()> {
    let Some(last) = stamps.len().checked_sub(1) else {
        return Ok(());
    };
    // NaN compares as out of order, so sorted stamps are finite when both ends are. One pass
    // without an early exit becomes vector instructions.
    let sorted = match stamps.as_slice() {
        Some(stamps) => stamps.iter().zip(&stamps[1..]).fold(true, |sorted, (a, b)| sorted & (a <= b)),
        None => (0..last).all(|index| stamps.at(index) <= stamps.at(index + 1)),
    };
    let (low, high) = (stamps.at(0), stamps.at(last));
    if !sorted || !low.is_finite() || !high.is_finite() {
        return Err(describe_bad_stamps(stamps, row));
    }
    if let Some(limit) = S::COARSE
        && (low.magnitude() > limit || high.magnitude() > limit)
    {
        let worst = if low.magnitude() > limit { low } else { high };
        return Err(Error::invalid("times", super::coarse_message(row as u64, &worst.to_string())));
    }
    Ok(())
}

#[cold]
fn describe_bad_stamps<S: Stamp>(stamps: &Stamps<S>, row: usize) -> Error {
    for index in 0..stamps.len() {
        let stamp = stamps.at(index);
        if !stamp.is_finite() {
            return Error::invalid("times", format!("row {row} holds {stamp} at index {index}"));
        }
        if index > 0 && stamp < stamps.at(index - 1) {
            let before = stamps.at(index - 1);
            return Error::invalid("times", format!("row {row} decreases at index {index} ({stamp} after {before})"));
        }
    }
    Error::invalid("times", format!("row {row} changed while it was read"))
}

fn check_targets<S: Stamp>(stamps: &Stamps<S>, targets: &Stamps<S>, row: usize) -> Result<()> {
    let Some(last) = stamps.len().checked_sub(1) else {
        return Ok(());
    };
    let (low, high) = (stamps.at(0), stamps.at(last));
    for index in 0..targets.len() {
        let target = targets.at(index);
        if target < low || target > high {
            let [target, low, high] = [target, low, high].map(|stamp| stamp.to_string());
            let message = super::outside_message(row as u64, index as u64, &target, &low, &high);
            return Err(Error::invalid("targets", message));
        }
    }
    Ok(())
}

/// Everything that the tasks share.
struct Job<'a, S, C> {
    rows: Rows<'a, S>,
    rules: Rules,
    missing: C,
    values: *const C,
    out: *mut C,
    out_strides: [isize; 3],
    valid: *mut u8,
    valid_strides: [isize; 2],
    /// Whether the output is too large for the caches to be of use.
    stream: bool,
}

// SAFETY: inputs are only read; every task writes its own rows and targets of the outputs.
unsafe impl<S: Sync, C: Sync> Sync for Job<'_, S, C> {}

fn compute<S: Stamp, C: Cell>(
    op: &Resample<'_>,
    rows: Rows<'_, S>,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let dims = rows.dims;
    let (valid, valid_strides) = super::valid_output(out);
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let job = Job {
        rules: Rules {
            method: op.method,
            extrapolate: op.extrapolate,
            max_gap: op.max_gap.filter(|_| !valid.is_null()).unwrap_or(f64::INFINITY),
        },
        missing: C::from_bits(op.values.dtype().missing_bits()),
        values: op.values.data().cast(),
        out_strides: strides(output.view()),
        out: output.data_mut().cast(),
        valid,
        valid_strides,
        stream: output.view().layout().count() * size_of::<C>() >= STREAM_BYTES,
        rows,
    };
    // Two samples read and one written per target, and the search.
    let target_bytes = 3 * dims.width * size_of::<C>() + 2 * size_of::<S>();
    let bytes = target_bytes.saturating_mul(dims.targets).saturating_mul(dims.batch);
    let tile = if is_worth_sharing(bytes) { (TASK_BYTES / target_bytes).max(1) } else { dims.targets };
    let tiles = dims.targets.div_ceil(tile);
    let rows_per_task = if tiles > 1 { 1 } else { (tile / dims.targets).max(1) };
    let body = |task: usize| {
        let (group, start) = (task / tiles, task % tiles * tile);
        let first = group * rows_per_task;
        for row in first..(first + rows_per_task).min(dims.batch) {
            job.run(row, start, (start + tile).min(dims.targets));
        }
    };
    if is_worth_sharing(bytes) {
        return for_each(dims.batch.div_ceil(rows_per_task) * tiles, context, &body);
    }
    for row in 0..dims.batch {
        job.run(row, 0, dims.targets);
    }
    Ok(())
}

/// Asks for a row of samples; a hint, so any address will do.
#[inline(always)]
fn prefetch<C>(sample: *const C, width: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        const LINE: usize = 64;
        for line in 0..(width * size_of::<C>()).div_ceil(LINE).min(8) {
            // SAFETY: fetching ahead has no effect on memory and does not fault.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    sample.cast::<i8>().wrapping_add(line * LINE),
                );
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (sample, width);
}

impl<S: Stamp, C: Cell> Job<'_, S, C> {
    fn run(&self, row: usize, start: usize, end: usize) {
        match simd() {
            // SAFETY: the instructions were found on this machine.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => unsafe {
                if self.stream {
                    self.run_avx2::<true>(row, start, end);
                } else {
                    self.run_avx2::<false>(row, start, end);
                }
            },
            Simd::Baseline => self.run_with::<false, false>(row, start, end),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run_avx2<const STREAM: bool>(&self, row: usize, start: usize, end: usize) {
        self.run_with::<true, STREAM>(row, start, end);
        if STREAM {
            // What went past the caches must be there before another thread is told so.
            std::arch::x86_64::_mm_sfence();
        }
    }

    /// What a target is made of, its weight and whether it is valid.
    #[inline(always)]
    fn find(&self, stamps: &Stamps<S>, targets: &Stamps<S>, index: usize, hint: &mut usize) -> (Pick, C::Weight, bool) {
        if index >= targets.len() {
            return (Pick::Missing, C::ZERO, false);
        }
        let target = targets.at(index);
        let (pick, valid) = self.rules.locate(stamps, target, hint);
        let Pick::Blend(first, second) = pick else {
            return (pick, C::ZERO, valid);
        };
        let weight = C::weight(target, stamps.at(first), stamps.at(second));
        // A sample of weight 0 must not matter, not even as NaN.
        if weight == C::ZERO {
            (Pick::Take(first), weight, valid)
        } else if weight == C::ONE {
            (Pick::Take(second), weight, valid)
        } else {
            (pick, weight, valid)
        }
    }

    #[inline(always)]
    fn run_with<const FMA: bool, const STREAM: bool>(&self, row: usize, start: usize, end: usize) {
        let dims = self.rows.dims;
        let (stamps, targets) = (self.rows.stamps(row), self.rows.targets(row));
        let [value_batch, value_step, value_column] = dims.value_strides;
        let [out_batch, out_step, out_column] = self.out_strides;
        let dense = dims.width == 1 || (value_column == 1 && out_column == 1);
        let row_index = row as isize;
        let mut hint = 0;
        // First where a few targets lie, then their rows: the samples of the next ones are on their
        // way from memory while one is blended.
        let mut found = [(Pick::Missing, C::ZERO); AHEAD];
        for (index, slot) in (start..end).zip((0..AHEAD).cycle()) {
            if slot == 0 {
                for (later, found) in (index..end).zip(&mut found) {
                    let (pick, weight, ok) = self.find(&stamps, &targets, later, &mut hint);
                    *found = (pick, weight);
                    // SAFETY: row < batch and later < T, as the outputs' checks proved.
                    unsafe {
                        if let Pick::Take(sample) | Pick::Blend(sample, _) = pick {
                            prefetch(
                                self.values.offset(row_index * value_batch + sample as isize * value_step),
                                dims.width,
                            );
                        }
                        if !self.valid.is_null() {
                            let offset = row_index * self.valid_strides[0] + later as isize * self.valid_strides[1];
                            *self.valid.offset(offset) = u8::from(ok);
                        }
                    }
                }
            }
            let (pick, weight) = found[slot];
            if dims.width == 0 {
                continue;
            }
            // SAFETY: row < batch, index < T, columns < D and samples < S, for which `check` and
            // the outputs' checks proved the strides; no other task writes this target.
            unsafe {
                let sample = |s: usize| self.values.offset(row_index * value_batch + s as isize * value_step);
                let out = self.out.offset(row_index * out_batch + index as isize * out_step);
                match (pick, dense) {
                    (Pick::Take(s), true) => std::ptr::copy_nonoverlapping(sample(s), out, dims.width),
                    (Pick::Blend(a, b), true) => {
                        C::blend_row::<FMA, STREAM>(sample(a), sample(b), weight, out, dims.width);
                    }
                    _ => {
                        for column in 0..dims.width as isize {
                            let at = |s: usize| *sample(s).offset(column * value_column);
                            *out.offset(column * out_column) = match pick {
                                Pick::Take(s) => at(s),
                                Pick::Blend(a, b) => C::blend(at(a), at(b), weight),
                                Pick::Missing => self.missing,
                            };
                        }
                    }
                }
            }
        }
    }
}
