//! Clocks: whether they go forward, and evenly.

use super::codes;
use crate::findings::Finding;

/// Stamps further apart than so many periods have samples missing between them.
const GAP_PERIODS: f64 = 3.0;

/// Things of one kind: how many, and the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) count: usize,
    pub(crate) first: usize,
}

impl Places {
    fn add(places: &mut Option<Self>, at: usize) {
        places.get_or_insert(Self { count: 0, first: at }).count += 1;
    }
}

/// What is wrong with the order of stamps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Samples before the one before them.
    pub(crate) decreases: Option<Places>,
    pub(crate) duplicates: Option<Places>,
    /// Samples long after the one before them, and the longest step.
    pub(crate) gaps: Option<Places>,
    pub(crate) longest: i64,
}

/// Looks at the steps between stamps; steps above `most` are gaps.
pub(crate) fn order(stamps: &[i64], most: i64) -> Order {
    let mut order = Order::default();
    for (at, pair) in stamps.windows(2).enumerate() {
        let &[before, now] = pair else { continue };
        let step = now.saturating_sub(before);
        if step > 0 && step <= most {
            continue;
        }
        match step {
            ..0 => Places::add(&mut order.decreases, at + 1),
            0 => Places::add(&mut order.duplicates, at + 1),
            _ => Places::add(&mut order.gaps, at + 1),
        }
        order.longest = order.longest.max(step);
    }
    order
}

/// Findings about stamps in nanoseconds. Without a period, the middle of all steps is taken.
pub(crate) fn check(stamps: &[i64], period: Option<f64>) -> Vec<Finding> {
    let Some(period) = period.or_else(|| median_step(stamps)).filter(|period| *period > 0.0) else {
        return Vec::new();
    };
    let order = order(stamps, (period * GAP_PERIODS) as i64);
    let seconds = |at: usize| stamps.get(at).map_or(0.0, |&stamp| stamp as f64 * 1e-9);
    let step = |places: Places| {
        let at = places.first;
        format!("first in sample {at}: {:.6} s after {:.6} s", seconds(at), seconds(at.saturating_sub(1)))
    };
    let mut found = Vec::new();
    if let Some(places) = order.decreases {
        let text = format!("expected stamps that ascend, {} go back; {}", places.count, step(places));
        found.push(Finding::error(&codes::STAMPS_DECREASE, text));
    }
    if let Some(places) = order.duplicates {
        let text = format!("expected one sample per stamp, {} have the stamp before; {}", places.count, step(places));
        found.push(Finding::warning(&codes::STAMPS_DUPLICATE, text));
    }
    if let Some(places) = order.gaps {
        let text = format!(
            "expected steps of {:.3} ms, {} are above {GAP_PERIODS} periods, {:.3} ms at most; {}",
            period * 1e-6,
            places.count,
            order.longest as f64 * 1e-6,
            step(places)
        );
        found.push(Finding::warning(&codes::STAMPS_GAP, text));
    }
    found
}

/// Findings about the numbers of frames.
pub(crate) fn check_numbers(frames: &[i64]) -> Vec<Finding> {
    let order = order(frames, 1);
    let frame = |at: usize| frames.get(at).copied().unwrap_or(0);
    let step = |places: Places| {
        let at = places.first;
        format!("first in sample {at}: {} after {}", frame(at), frame(at.saturating_sub(1)))
    };
    let mut found = Vec::new();
    if let Some(places) = order.decreases {
        let text = format!("expected numbers that ascend, {} go back; {}", places.count, step(places));
        found.push(Finding::error(&codes::STAMPS_DECREASE, text));
    }
    if let Some(places) = order.duplicates {
        let text = format!("expected each number once, {} repeat the one before; {}", places.count, step(places));
        found.push(Finding::warning(&codes::STAMPS_DUPLICATE, text));
    }
    if let Some(places) = order.gaps {
        let step_of = |pair: &[i64]| Some(pair.get(1)?.saturating_sub(*pair.first()?));
        let missing = frames.windows(2).filter_map(step_of).filter(|&step| step > 1).map(|step| step - 1);
        let missing = missing.fold(0i64, i64::saturating_add);
        let text = format!("expected every number, {missing} are missing in {} places; {}", places.count, step(places));
        found.push(Finding::warning(&codes::STAMPS_GAP, text));
    }
    found
}

fn median_step(stamps: &[i64]) -> Option<f64> {
    let mut steps: Vec<i64> = stamps.windows(2).filter_map(|pair| pair.get(1)?.checked_sub(*pair.first()?)).collect();
    let middle = steps.len() / 2;
    (!steps.is_empty()).then(|| *steps.select_nth_unstable(middle).1 as f64)
}

/// The largest distance from where stamps should be, positive where they are late, and its sample.
pub(crate) fn drift(pairs: impl Iterator<Item = (i64, i64)>) -> (i64, usize) {
    let off = pairs.enumerate().map(|(at, (stamp, expected))| (stamp.saturating_sub(expected), at));
    off.fold((0, 0), |worst, off| if off.0.unsigned_abs() > worst.0.unsigned_abs() { off } else { worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes_of(stamps: &[i64], period: Option<f64>) -> Vec<&'static str> {
        check(stamps, period).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn stamps_must_go_forward_evenly() {
        assert_eq!(codes_of(&[0, 10, 20, 30, 60], Some(10.0)), [""; 0]);
        assert_eq!(codes_of(&[0, 10, 10, 9, 50], Some(10.0)), ["stamps_decrease", "stamps_duplicate", "stamps_gap"]);
        // The rate is found where none is known.
        assert_eq!(codes_of(&[0, 10, 20, 30, 70], None), ["stamps_gap"]);
        assert_eq!(codes_of(&[], None), [""; 0]);
        assert_eq!(codes_of(&[5], None), [""; 0]);
        assert_eq!(codes_of(&[i64::MIN, i64::MAX], Some(10.0)), ["stamps_gap"]);
        let text = check(&[0, 10_000_000, 5_000_000], Some(1e7)).remove(0).message;
        assert_eq!(text, "expected stamps that ascend, 1 go back; first in sample 2: 0.005000 s after 0.010000 s");
    }

    #[test]
    fn numbers_of_frames_leave_none_out() {
        assert!(check_numbers(&[3, 4, 5]).is_empty());
        let text = check_numbers(&[0, 1, 4, 5, 7]).remove(0).message;
        assert_eq!(text, "expected every number, 3 are missing in 2 places; first in sample 2: 4 after 1");
        let codes: Vec<_> = check_numbers(&[0, 1, 1, 0]).iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["stamps_decrease", "stamps_duplicate"]);
    }

    #[test]
    fn drift_is_the_largest_distance() {
        assert_eq!(drift([(0, 0), (11, 10), (15, 20), (33, 30)].into_iter()), (-5, 2));
        assert_eq!(drift(std::iter::empty()), (0, 0));
    }
}
