//! Streams on the host: a job for each, rows and tiles of targets spread over all cores.

use half::{bf16, f16};

use super::cells::Cell;
use super::locate::{Pick, Rules, Stamp, Stamps};
use super::mixed::mixed_job;
use super::rows::Rows;
use super::{Align, Arguments, Method, strides};
use crate::cpu::{Simd, for_each, is_worth_sharing, prefetch, simd};
use crate::tensor::DType;
use crate::{Context, Outputs, Result};

/// Bytes that one task moves: long enough to hide handing it out, short enough to stay in L2.
pub(super) const TASK_BYTES: usize = 256 << 10;
/// Outputs from this size on are written past the caches: they would not stay there anyway, and
/// an ordinary store first reads what it overwrites.
const STREAM_BYTES: usize = 64 << 20;
/// Targets that are looked up before their rows are read.
const AHEAD: usize = 16;

pub(in crate::ops) fn align(op: &Align<'_>, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    match op.targets.dtype() {
        DType::I64 => with_stamps::<i64>(op, out, context),
        DType::F64 => with_stamps::<f64>(op, out, context),
        _ => with_stamps::<f32>(op, out, context),
    }
}

fn with_stamps<S: Stamp>(op: &Align<'_>, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    if op.check {
        for (index, source) in op.sources.iter().enumerate() {
            let Some((stream, dims)) = source.stream else { continue };
            Rows::<S>::new(&stream, dims).check(op.extrapolate, context).map_err(|error| (op.blame)(index, error))?;
        }
    }
    let (valid, valid_strides) = op.marks(out, op.valid);
    let (age, age_strides) = op.marks(out, op.age);
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let (view, size) = (output.view(), op.dtype.size());
    let out_strides = strides::<3>(view);
    // Rows of several streams share lines of the cache, so they stay there.
    let stream = op.sources.len() == 1 && view.layout().count() * size >= STREAM_BYTES;
    let out = output.data_mut();
    let mut jobs = Vec::with_capacity(op.sources.len());
    for (index, source) in op.sources.iter().enumerate() {
        let at =
            |data: *mut u8, stride: isize, size: usize| data.wrapping_offset(stride * index as isize * size as isize);
        let to = Destination {
            out: out.wrapping_offset(source.column as isize * out_strides[2] * size as isize),
            dtype: op.dtype,
            out_strides,
            valid: if valid.is_null() { valid } else { at(valid, valid_strides[2], 1) },
            valid_strides: [valid_strides[0], valid_strides[1]],
            age: if age.is_null() { age.cast() } else { at(age, age_strides[2], size_of::<f32>()).cast() },
            age_strides: [age_strides[0], age_strides[1]],
            stream,
        };
        jobs.push(match source.stream {
            Some((stream, dims)) => stream_job(&stream, Rows::<S>::new(&stream, dims), to),
            None => Box::new(MissingJob { width: source.width, to }),
        });
    }
    run_jobs(&jobs, op.batch, op.target_count, context)
}

/// Where a stream's results go. Strides in elements; null where something was not asked for.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) out: *mut u8,
    pub(super) dtype: DType,
    pub(super) out_strides: [isize; 3],
    pub(super) valid: *mut u8,
    pub(super) valid_strides: [isize; 2],
    pub(super) age: *mut f32,
    pub(super) age_strides: [isize; 2],
    /// Whether the output is too large for the caches to be of use.
    pub(super) stream: bool,
}

impl Destination {
    /// Writes whether a target is valid, and its age, where they are wanted.
    ///
    /// # Safety
    /// `row` and `target` must be inside the outputs, and no other task may write them.
    #[inline(always)]
    pub(super) unsafe fn mark(&self, row: isize, target: isize, valid: bool, age: impl FnOnce() -> f32) {
        // SAFETY: the caller's promise.
        unsafe {
            if !self.valid.is_null() {
                *self.valid.offset(row * self.valid_strides[0] + target * self.valid_strides[1]) = u8::from(valid);
            }
            if !self.age.is_null() {
                *self.age.offset(row * self.age_strides[0] + target * self.age_strides[1]) = age();
            }
        }
    }
}

/// Seconds since the newest sample at or before a target; `count` stamps are. NaN where there is none.
pub(super) fn age_of<S: Stamp>(stamps: &Stamps<S>, targets: &Stamps<S>, index: usize, count: usize) -> f32 {
    if index >= targets.len() || count == 0 || count > stamps.len() || targets.at(index).is_nan() {
        return f32::NAN;
    }
    targets.at(index).seconds_since(stamps.at(count - 1))
}

/// The work for one stream, cut by rows and targets.
pub(super) trait StreamJob: Sync {
    /// Bytes that one target moves, about.
    fn target_bytes(&self) -> usize;
    /// Computes the targets from `start` to `end` of a row.
    fn run(&self, row: usize, start: usize, end: usize);
}

/// A modality that was not recorded: zeros.
struct MissingJob {
    width: usize,
    to: Destination,
}

// SAFETY: every task writes its own rows and targets of the outputs.
unsafe impl Sync for MissingJob {}

impl StreamJob for MissingJob {
    fn target_bytes(&self) -> usize {
        self.width * self.to.dtype.size()
    }

    fn run(&self, row: usize, start: usize, end: usize) {
        let (row, size) = (row as isize, self.to.dtype.size());
        let [batch, step, column] = self.to.out_strides;
        for target in start as isize..end as isize {
            // SAFETY: the tasks stay inside the outputs; all bits 0 are the number 0 in every dtype.
            unsafe {
                self.to.mark(row, target, false, || f32::NAN);
                for i in 0..self.width as isize {
                    let offset = row * batch + target * step + i * column;
                    self.to.out.offset(offset * size as isize).write_bytes(0, size);
                }
            }
        }
    }
}

/// Runs the jobs of all streams, target by target side by side, on all cores.
fn run_jobs(jobs: &[Box<dyn StreamJob + '_>], batch: usize, targets: usize, context: &Context<'_>) -> Result<()> {
    let target_bytes = jobs.iter().map(|job| job.target_bytes()).sum::<usize>().max(1);
    let bytes = target_bytes.saturating_mul(targets).saturating_mul(batch);
    if !is_worth_sharing(bytes) {
        for row in 0..batch {
            jobs.iter().for_each(|job| job.run(row, 0, targets));
        }
        return Ok(());
    }
    let tile = (TASK_BYTES / target_bytes).max(1);
    let tiles = targets.div_ceil(tile);
    let rows_per_task = if tiles > 1 { 1 } else { (tile / targets).max(1) };
    for_each(batch.div_ceil(rows_per_task) * tiles, context, &|task: usize| {
        let (group, start) = (task / tiles, task % tiles * tile);
        let first = group * rows_per_task;
        for row in first..(first + rows_per_task).min(batch) {
            jobs.iter().for_each(|job| job.run(row, start, (start + tile).min(targets)));
        }
    })
}

/// The work for a stream: quick where all columns have one plain method and the output's dtype.
fn stream_job<'a, S: Stamp>(op: &Arguments<'a>, rows: Rows<'a, S>, to: Destination) -> Box<dyn StreamJob + 'a> {
    let Some(method) = op.plain_method().filter(|_| to.dtype == op.values.dtype()) else {
        return mixed_job(op, rows, to);
    };
    match (method, to.dtype) {
        (Method::Linear, DType::F32) => Job::<S, f32>::boxed(op, method, rows, to),
        (Method::Linear, DType::F64) => Job::<S, f64>::boxed(op, method, rows, to),
        (Method::Linear, DType::F16) => Job::<S, f16>::boxed(op, method, rows, to),
        (Method::Linear, DType::BF16) => Job::<S, bf16>::boxed(op, method, rows, to),
        // All other methods copy samples, so only their size matters.
        _ => match to.dtype.size() {
            1 => Job::<S, u8>::boxed(op, method, rows, to),
            2 => Job::<S, u16>::boxed(op, method, rows, to),
            4 => Job::<S, u32>::boxed(op, method, rows, to),
            _ => Job::<S, u64>::boxed(op, method, rows, to),
        },
    }
}

/// Everything that the tasks share.
struct Job<'a, S, C> {
    rows: Rows<'a, S>,
    rules: Rules,
    missing: C,
    values: *const C,
    out: *mut C,
    to: Destination,
}

// SAFETY: inputs are only read; every task writes its own rows and targets of the outputs.
unsafe impl<S: Sync, C: Sync> Sync for Job<'_, S, C> {}

impl<'a, S: Stamp, C: Cell> Job<'a, S, C> {
    fn boxed(op: &Arguments<'a>, method: Method, rows: Rows<'a, S>, to: Destination) -> Box<dyn StreamJob + 'a> {
        Box::new(Self {
            rules: op.rules(method, to.valid.is_null()),
            missing: C::from_bits(to.dtype.missing_bits()),
            values: op.values.data().cast(),
            out: to.out.cast(),
            to,
            rows,
        })
    }
}

/// Asks for a row of samples; a hint, so any address will do.
#[inline(always)]
fn prefetch_row<C>(sample: *const C, width: usize) {
    const LINE: usize = 64;
    for line in 0..(width * size_of::<C>()).div_ceil(LINE).min(8) {
        prefetch(sample.cast::<u8>().wrapping_add(line * LINE));
    }
}

impl<S: Stamp, C: Cell> StreamJob for Job<'_, S, C> {
    fn target_bytes(&self) -> usize {
        // Two samples read and one written per target, and the search.
        3 * self.rows.dims.width * size_of::<C>() + 2 * size_of::<S>()
    }

    fn run(&self, row: usize, start: usize, end: usize) {
        match simd() {
            // SAFETY: the instructions were found on this machine.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => unsafe {
                if self.to.stream {
                    self.run_avx2::<true>(row, start, end);
                } else {
                    self.run_avx2::<false>(row, start, end);
                }
            },
            Simd::Baseline => self.run_with::<false, false>(row, start, end),
        }
    }
}

impl<S: Stamp, C: Cell> Job<'_, S, C> {
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
        let [out_batch, out_step, out_column] = self.to.out_strides;
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
                            prefetch_row(
                                self.values.offset(row_index * value_batch + sample as isize * value_step),
                                dims.width,
                            );
                        }
                        self.to.mark(row_index, later as isize, ok, || age_of(&stamps, &targets, later, hint));
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
