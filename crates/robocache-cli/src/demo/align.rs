//! Aligning a stream with the engine, and the slow check of what came out.

use std::time::Instant;

use robocache::ops::Resample;
use robocache::ops::resample::Method;
use robocache::{Context, DType, Element, Result, Tensor, TensorRef, prepare};

use super::recording::{Stamps, Stream, nanoseconds};

/// Seconds: values between samples further apart are marked as not valid.
pub(super) const MAX_GAP: f64 = 0.1;
/// The best of so many runs counts; the first ones warm up threads and memory.
const RUNS: usize = 5;

/// A stream at the targets.
#[derive(Debug)]
pub(super) struct Aligned {
    pub(super) out: Tensor,
    pub(super) valid: Tensor,
    /// Of the fastest run.
    pub(super) seconds: f64,
}

/// Aligns a stream to the targets and takes the time.
pub(super) fn align<T: Element>(stream: &Stream<T>, targets: &Stamps, method: Method) -> Result<Aligned> {
    let times = rectangle(&stream.stamps.flat, &stream.stamps)?;
    let wanted = rectangle(&targets.flat, targets)?;
    let op = Resample { method: method.into(), ..arguments(stream, targets, times, wanted)? };
    let prepared = prepare(&op, &Context::default())?;
    let episodes = targets.lengths.len();
    let mut out = Tensor::zeros(&[episodes, targets.columns, stream.width], T::DTYPE)?;
    let mut valid = Tensor::zeros(&[episodes, targets.columns], DType::Bool)?;
    let mut seconds = f64::INFINITY;
    for _ in 0..RUNS {
        let mut views = [out.view_mut(), valid.view_mut()];
        let started = Instant::now();
        prepared.run(&mut views, &Context::default())?;
        seconds = seconds.min(started.elapsed().as_secs_f64());
    }
    Ok(Aligned { out, valid, seconds })
}

/// The op for stamps of any type.
pub(super) fn arguments<'a, T: Element>(
    stream: &'a Stream<T>,
    targets: &'a Stamps,
    times: TensorRef<'a>,
    wanted: TensorRef<'a>,
) -> Result<Resample<'a>> {
    let episodes = targets.lengths.len();
    let values = TensorRef::from_slice(&stream.values, &[episodes, stream.stamps.columns, stream.width])?;
    Ok(Resample {
        lengths: Some(TensorRef::from_slice(&stream.stamps.lengths, &[episodes])?),
        target_lengths: Some(TensorRef::from_slice(&targets.lengths, &[episodes])?),
        max_gap: Some(MAX_GAP),
        return_valid: true,
        ..Resample::new(values, times, wanted)
    })
}

/// Stamps as a tensor, `flat` perhaps of another type than they were recorded in.
pub(super) fn rectangle<'a, S: Element>(flat: &'a [S], stamps: &Stamps) -> Result<TensorRef<'a>> {
    TensorRef::from_slice(flat, &[stamps.lengths.len(), stamps.columns])
}

/// What a target is made of, found the slow and simple way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    /// The first and the last sample that matter.
    first: usize,
    last: usize,
    valid: bool,
}

fn find(stamps: &[i64], target: i64, method: Method) -> Found {
    let after = stamps.partition_point(|stamp| *stamp <= target);
    let one = |index, valid| Found { first: index, last: index, valid };
    let Some(before) = after.checked_sub(1) else {
        return one(0, false);
    };
    if stamps[before] == target {
        return one(before, true);
    }
    if after == stamps.len() {
        return one(before, false);
    }
    let valid = stamps[after] - stamps[before] <= nanoseconds(MAX_GAP);
    match method {
        Method::Previous => one(before, valid),
        Method::Next => one(after, valid),
        Method::Nearest if target - stamps[before] <= stamps[after] - target => one(before, valid),
        Method::Nearest => one(after, valid),
        // The demo blends along lines only.
        _ => Found { first: before, last: after, valid },
    }
}

/// How the result of an alignment compares with the truth.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Targets with a valid value.
    pub(super) valid: usize,
    /// Targets whose `valid` is wrong.
    pub(super) wrong_valid: usize,
    /// Over all valid targets; infinite where a value is NaN.
    pub(super) max_error: f64,
    /// Samples that at least one target needs.
    pub(super) touched: usize,
}

/// Compares with `error(episode, target, sample, values)`, the largest error of one target, whose
/// value is that of `sample` or lies between it and the next.
pub(super) fn compare<T>(
    stream: &Stream<T>,
    targets: &Stamps,
    method: Method,
    (out, valid): (&[T], &[bool]),
    mut error: impl FnMut(usize, i64, usize, &[T]) -> f64,
) -> Comparison {
    let mut result = Comparison::default();
    // Samples before this one were counted; the targets of an episode come in order.
    let mut uncounted = 0;
    for (index, (values, &valid)) in out.chunks(stream.width).zip(valid).enumerate() {
        let (episode, column) = (index / targets.columns, index % targets.columns);
        let Some(&target) = targets.row(episode).get(column) else {
            result.wrong_valid += usize::from(valid);
            continue;
        };
        let found = find(stream.stamps.row(episode), target, method);
        if column == 0 {
            uncounted = 0;
        }
        result.touched += (found.last + 1).saturating_sub(found.first.max(uncounted));
        uncounted = found.last + 1;
        result.wrong_valid += usize::from(valid != found.valid);
        if found.valid {
            result.valid += 1;
            let error = error(episode, target, found.first, values);
            result.max_error = result.max_error.max(if error.is_nan() { f64::INFINITY } else { error });
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn the_slow_search_follows_the_rules() {
        let stamps = [0, 10 * MS, 20 * MS, 420 * MS];
        let found = |target, method| {
            let Found { first, last, valid } = find(&stamps, target, method);
            (first, last, valid)
        };
        assert_eq!(found(-1, Method::Linear), (0, 0, false));
        assert_eq!(found(0, Method::Next), (0, 0, true));
        assert_eq!(found(5 * MS, Method::Linear), (0, 1, true));
        assert_eq!(found(5 * MS, Method::Nearest), (0, 0, true));
        assert_eq!(found(5 * MS + 1, Method::Nearest), (1, 1, true));
        assert_eq!(found(19 * MS, Method::Previous), (1, 1, true));
        assert_eq!(found(19 * MS, Method::Next), (2, 2, true));
        assert_eq!(found(100 * MS, Method::Linear), (2, 3, false));
        assert_eq!(found(420 * MS, Method::Linear), (3, 3, true));
        assert_eq!(found(421 * MS, Method::Linear), (3, 3, false));
    }

    #[test]
    fn wrong_results_are_found() {
        let stamps = Stamps::new(&[vec![0, 10 * MS, 20 * MS, 30 * MS], vec![5 * MS]]);
        let targets = Stamps::new(&[vec![4 * MS, 6 * MS, 25 * MS], vec![5 * MS]]);
        let stream = Stream::new(stamps, 1, |_, index, _, row: &mut [f64]| row.fill(index as f64));
        let check = |out: &[f64], valid: &[bool]| {
            let error = |_: usize, _: i64, index: usize, row: &[f64]| (row[0] - index as f64).abs();
            compare(&stream, &targets, Method::Previous, (out, valid), error)
        };
        let nan = f64::NAN;
        let (out, valid) = ([0.0, 0.0, 2.0, 0.0, nan, nan], [true, true, true, true, false, false]);
        let good = check(&out, &valid);
        assert_eq!((good.valid, good.wrong_valid, good.max_error, good.touched), (4, 0, 0.0, 3));

        assert_eq!(check(&[0.0, 1.0, 2.0, 0.0, nan, nan], &valid).max_error, 1.0);
        assert_eq!(check(&[0.0, nan, 2.0, 0.0, nan, nan], &valid).max_error, f64::INFINITY);
        assert_eq!(check(&out, &[true, false, true, true, false, false]).wrong_valid, 1);
        assert_eq!(check(&out, &[true, true, true, true, true, false]).wrong_valid, 1);
    }
}
