//! Which parts of a video are decoded to get at the frames that are wanted. No input or output.

use std::fmt::Write as _;

use super::samples::Sample;

/// Frames that are decoded for nothing rather than starting a decoder again: a start costs about
/// as much as these.
const WORTH_A_START: usize = 32;

/// Ranges that one decoder is asked for. Its filter tries them all for each frame.
const MAX_RANGES: usize = 64;

/// What one run of the decoder gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Coded frames that come out, as inclusive ranges of indices by time, ascending.
    pub(super) ranges: Vec<(usize, usize)>,
    /// The frame that decoding starts at; 0 is the start of the file.
    pub(super) start: usize,
}

impl Segment {
    /// How many frames come out.
    pub(super) fn len(&self) -> usize {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The frames that come out.
    pub(super) fn frames(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Where to seek to, in microseconds: behind the start, so that rounding cannot lead before it,
    /// and before the next frame.
    pub(super) fn seek(&self, samples: &[Sample], timescale: u32) -> Option<i64> {
        let start = samples.get(self.start)?.time;
        if self.start == 0 || start < 0 {
            return None;
        }
        let next = samples.get(self.start + 1).map_or(start, |sample| sample.time);
        let half_units = i128::from(start) + i128::from(next);
        let scale = 2 * i128::from(timescale);
        i64::try_from((half_units * 1_000_000 + scale - 1) / scale).ok()
    }

    /// The expression that lets these frames pass: time in seconds, between the neighbours.
    pub(super) fn filter(&self, samples: &[Sample], timescale: u32) -> String {
        let time = |index: usize| samples.get(index).map(|sample| sample.time as f64);
        let seconds = |units: f64| units / f64::from(timescale);
        let mut text = String::new();
        for &(first, last) in &self.ranges {
            let (Some(low), Some(high)) = (time(first), time(last)) else { continue };
            let below = first.checked_sub(1).and_then(time).unwrap_or(low - 1.0);
            let above = time(last + 1).unwrap_or(high + 1.0);
            let plus = if text.is_empty() { "" } else { "+" };
            let (low, high) = (seconds((low + below) / 2.0), seconds((high + above) / 2.0));
            // Writing to a string cannot fail.
            let _ = write!(text, "{plus}between(t,{low},{high})");
        }
        text
    }
}

/// Plans how to decode `wanted`, ascending indices of `samples`, which are sorted by time.
pub(super) fn segments(samples: &[Sample], wanted: impl IntoIterator<Item = usize>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for frame in wanted {
        let first = equal_run_start(samples, frame);
        match segments.last_mut().and_then(|segment| Some((segment.ranges.last_mut()?, segment.start))) {
            Some((range, _)) if first <= range.1 + 1 => range.1 = range.1.max(equal_run_end(samples, frame)),
            Some((range, start)) => {
                let key = keyframe(samples, first, range.1.max(start));
                let fresh = (first, equal_run_end(samples, frame));
                if key.is_some_and(|key| key - range.1 > WORTH_A_START) {
                    segments.push(Segment { ranges: vec![fresh], start: key.unwrap_or(0) });
                } else if let Some(segment) = segments.last_mut() {
                    segment.ranges.push(fresh);
                }
            }
            None => {
                let start = keyframe(samples, first, 0).unwrap_or(0);
                segments.push(Segment { ranges: vec![(first, equal_run_end(samples, frame))], start });
            }
        }
    }
    for segment in &mut segments {
        merge(&mut segment.ranges);
    }
    segments
}

/// The last keyframe at or before `frame`, but after `lowest`.
fn keyframe(samples: &[Sample], frame: usize, lowest: usize) -> Option<usize> {
    let range = samples.get(lowest..=frame)?;
    range.iter().rposition(|sample| sample.key).map(|index| lowest + index)
}

/// Frames of one time cannot be told apart by the filter: they pass together.
fn equal_run_start(samples: &[Sample], frame: usize) -> usize {
    let time = samples.get(frame).map(|sample| sample.time);
    let equal = samples.get(..frame).unwrap_or_default().iter().rev();
    frame - equal.take_while(|sample| Some(sample.time) == time).count()
}

fn equal_run_end(samples: &[Sample], frame: usize) -> usize {
    let time = samples.get(frame).map(|sample| sample.time);
    let equal = samples.get(frame + 1..).unwrap_or_default().iter();
    frame + equal.take_while(|sample| Some(sample.time) == time).count()
}

/// Joins the ranges with the smallest gaps until they are few.
fn merge(ranges: &mut Vec<(usize, usize)>) {
    if ranges.len() <= MAX_RANGES {
        return;
    }
    let gaps = ranges.windows(2).map(|pair| match pair {
        [before, after] => after.0 - before.1,
        _ => 0,
    });
    let mut order: Vec<(usize, usize)> = gaps.enumerate().map(|(index, gap)| (gap, index)).collect();
    order.sort_unstable();
    let mut joined = vec![false; ranges.len()];
    for &(_, index) in order.iter().take(ranges.len() - MAX_RANGES) {
        if let Some(flag) = joined.get_mut(index) {
            *flag = true;
        }
    }
    let mut kept: Vec<(usize, usize)> = Vec::with_capacity(MAX_RANGES);
    let mut join_next = false;
    for (range, join) in ranges.iter().zip(joined) {
        match kept.last_mut() {
            Some(last) if join_next => last.1 = range.1,
            _ => kept.push(*range),
        }
        join_next = join;
    }
    *ranges = kept;
}
