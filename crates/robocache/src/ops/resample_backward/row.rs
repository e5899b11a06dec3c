//! A row of the host's gradient, and which samples a target of it may touch.

use std::ops::Range;

use super::unordered::Found;
use crate::ops::align::{Pick, Stamp, Stamps};

/// One row: its stamps, its targets and whether those are in order.
pub(super) struct Row<S, T> {
    pub(super) stamps: Stamps<S>,
    pub(super) targets: Stamps<S>,
    pub(super) sorted: bool,
    /// Of targets in any order those near some samples.
    pub(super) found: Vec<Found<T>>,
}

impl<S: Stamp, T> Row<S, T> {
    /// The existing sample before one.
    #[inline(always)]
    pub(super) fn before(&self, sample: usize) -> usize {
        self.stamps.distinct_before(sample).unwrap_or(sample)
    }

    /// The existing sample after one.
    #[inline(always)]
    pub(super) fn after(&self, sample: usize) -> usize {
        if sample + 1 < self.stamps.len() { self.stamps.last_equal(sample + 1) } else { sample }
    }

    /// The outermost samples that a target may have to do with, such that they are in order where the
    /// targets are: a target on a stamp lies between targets that need further samples on both sides.
    #[inline(always)]
    pub(super) fn reach(&self, mut first: usize, mut second: usize, radius: usize) -> (usize, usize) {
        let steps = if first == second { radius } else { radius.saturating_sub(1) };
        for _ in 0..steps {
            (first, second) = (self.before(first), self.after(second));
        }
        (first, second)
    }

    /// The same for what a target was made of, if it was made of anything.
    #[inline(always)]
    pub(super) fn reach_of(&self, pick: Pick, radius: usize) -> Option<(usize, usize)> {
        match pick {
            Pick::Take(sample) => Some(self.reach(sample, sample, radius)),
            Pick::Blend(first, second) => Some(self.reach(first, second, radius)),
            Pick::Missing => None,
        }
    }

    /// Whether a target lies so near that it may touch some samples; NaN does.
    pub(super) fn is_near(&self, samples: &Range<usize>, radius: usize) -> impl Fn(S) -> bool + use<S, T> {
        let last = self.stamps.len() - 1;
        let (mut first, mut second) = (Some(samples.start.min(last)), Some(samples.end.min(last)));
        for _ in 0..=radius {
            first = first.and_then(|sample| self.stamps.distinct_before(sample));
            second = second.filter(|&sample| self.after(sample) != sample).map(|sample| self.after(sample));
        }
        let at = |sample: Option<usize>| sample.map(|sample| self.stamps.at(sample));
        let (low, high) = (at(first), at(second));
        move |target| !low.is_some_and(|low| target < low) && !high.is_some_and(|high| target > high)
    }
}
