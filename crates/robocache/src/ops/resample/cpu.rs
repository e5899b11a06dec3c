//! `resample` on the host: rows and tiles of targets spread over all cores.

use half::{bf16, f16};

use super::cells::Cell;
use super::locate::{Pick, Rules, Stamp, Stamps};
use super::rows::Rows;
use super::{Dims, Method, Resample};
use crate::cpu::{Simd, for_each, is_worth_sharing, simd};
use crate::tensor::DType;
use crate::{Context, Outputs, Result};

/// Bytes that one task moves: long enough to hide handing it out, short enough to stay in L2.
pub(super) const TASK_BYTES: usize = 256 << 10;
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
        out_strides: super::strides(output.view()),
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
