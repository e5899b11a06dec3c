//! The rows of a batch on the host: their stamps, targets and lengths, and the search for bad data
//! in them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::cpu::TASK_BYTES;
use super::locate::{Stamp, Stamps};
use super::{Arguments, Dims, Extrapolate};
use crate::cpu::{for_each, is_worth_sharing};
use crate::ops::rows::{clamped_length, given_length};
use crate::tensor::TensorRef;
use crate::{Context, Error, Result};

/// The rows of a batch: stamps, targets and how many of each exist.
pub(in crate::ops) struct Rows<'a, S> {
    pub(in crate::ops) dims: &'a Dims,
    times: *const S,
    targets: *const S,
    lengths: Option<TensorRef<'a>>,
    target_lengths: Option<TensorRef<'a>>,
}

// SAFETY: the pointers come from tensor views, which are Sync.
unsafe impl<S: Sync> Sync for Rows<'_, S> {}

impl<'a, S: Stamp> Rows<'a, S> {
    pub(in crate::ops) fn new(op: &Arguments<'a>, dims: &'a Dims) -> Self {
        Self {
            dims,
            times: op.times.data().cast(),
            targets: op.targets.data().cast(),
            lengths: op.lengths.copied(),
            target_lengths: op.target_lengths.copied(),
        }
    }

    pub(in crate::ops) fn stamps(&self, row: usize) -> Stamps<S> {
        let dims = self.dims;
        let len = clamped_length(self.lengths, dims.length_stride, row, dims.samples);
        // SAFETY: row < batch and len <= S, and `check` proved that these strides fit the view.
        unsafe { Stamps::new(self.times.offset(row as isize * dims.time_strides[0]), dims.time_strides[1], len) }
    }

    pub(in crate::ops) fn targets(&self, row: usize) -> Stamps<S> {
        let dims = self.dims;
        let len = clamped_length(self.target_lengths, dims.target_length_stride, row, dims.targets);
        // SAFETY: as for `stamps`.
        unsafe { Stamps::new(self.targets.offset(row as isize * dims.target_strides[0]), dims.target_strides[1], len) }
    }

    /// Looks for bad data in all rows before anything is written, and names the first bad row.
    pub(in crate::ops) fn check(&self, extrapolate: Extrapolate, context: &Context<'_>) -> Result<()> {
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
        let bounded = extrapolate == Extrapolate::Error;
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
