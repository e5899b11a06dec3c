//! How regular the stamps of a stream are.

use serde::Serialize;

/// A step this many times the median is a gap: at least one sample is missing.
pub(crate) const GAP: f64 = 1.5;

/// Steps between stamps, of one stream in several episodes.
#[derive(Debug, Default)]
pub(super) struct Steps {
    nanoseconds: Vec<i64>,
    largest: Option<Gap>,
    samples: u64,
}

/// The longest time without a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Gap {
    pub(super) seconds: f64,
    pub(super) episode: u64,
    /// From the stream's first stamp in the episode.
    pub(super) at_seconds: f64,
}

/// What the stamps say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Clock {
    pub(super) samples: u64,
    /// From the median step.
    pub(super) rate_hz: Option<f64>,
    /// 99 of 100 steps are this close to the median.
    pub(super) jitter_seconds: f64,
    pub(super) largest_gap: Gap,
    /// Steps of more than 1.5 times the median.
    pub(super) gaps: u64,
    /// Stamps that are not after the one before.
    pub(super) backward: u64,
}

impl Steps {
    /// Adds an episode.
    pub(super) fn add(&mut self, episode: u64, times: &[i64]) {
        self.samples += times.len() as u64;
        let first = times.first().copied().unwrap_or(0);
        for pair in times.windows(2) {
            let &[before, after] = pair else { continue };
            let step = after.saturating_sub(before);
            self.nanoseconds.push(step);
            let seconds = seconds(step);
            if self.largest.is_none_or(|gap| seconds > gap.seconds) {
                let at_seconds = seconds_between(first, before);
                self.largest = Some(Gap { seconds, episode, at_seconds });
            }
        }
    }

    /// Nothing where no episode has two samples.
    pub(super) fn clock(mut self) -> Option<Clock> {
        let largest_gap = self.largest?;
        let median = median(&mut self.nanoseconds)?;
        let gaps = self.nanoseconds.iter().filter(|&&step| step as f64 > GAP * median as f64).count();
        let backward = self.nanoseconds.iter().filter(|&&step| step <= 0).count();
        let mut off: Vec<u64> = self.nanoseconds.iter().map(|step| step.abs_diff(median)).collect();
        let place = (off.len() * 99).div_ceil(100).saturating_sub(1);
        let (_, &mut jitter, _) = off.select_nth_unstable(place);
        Some(Clock {
            samples: self.samples,
            rate_hz: (median > 0).then(|| 1e9 / median as f64),
            jitter_seconds: jitter as f64 * 1e-9,
            largest_gap,
            gaps: gaps as u64,
            backward: backward as u64,
        })
    }
}

/// The middle one; the upper of two.
pub(super) fn median(numbers: &mut [i64]) -> Option<i64> {
    let middle = numbers.len() / 2;
    (middle < numbers.len()).then(|| *numbers.select_nth_unstable(middle).1)
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// Exact at today's date, where stamps have 19 digits.
pub(super) fn seconds_between(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(times: &[i64]) -> Option<Clock> {
        let mut steps = Steps::default();
        steps.add(4, times);
        steps.clock()
    }

    #[test]
    fn a_regular_stream_has_no_jitter_and_no_gap() {
        let start = 1_760_000_000_000_000_000;
        let times: Vec<i64> = (0..100).map(|n| start + n * 20_000_000).collect();
        let clock = clock(&times).unwrap();
        assert_eq!((clock.samples, clock.rate_hz, clock.jitter_seconds), (100, Some(50.0), 0.0));
        assert_eq!((clock.gaps, clock.backward), (0, 0));
        assert_eq!(clock.largest_gap, Gap { seconds: 0.02, episode: 4, at_seconds: 0.0 });
    }

    #[test]
    fn gaps_jitter_and_steps_back_are_seen() {
        let mut times: Vec<i64> = (0..101).map(|n| n * 10_000_000 + if n % 2 == 0 { 100_000 } else { 0 }).collect();
        times.extend([1_200_000_000, 1_200_000_000, 1_190_000_000]);
        let clock = clock(&times).unwrap();
        assert_eq!((clock.gaps, clock.backward), (1, 2));
        assert!((clock.largest_gap.seconds - 0.1999).abs() < 1e-9 && (clock.largest_gap.at_seconds - 1.0).abs() < 1e-9);
        // The median is one of the two sorts of steps; the other is 0.2 ms off.
        assert!(clock.jitter_seconds >= 0.000_2, "{clock:?}");
        assert!((99.0..101.1).contains(&clock.rate_hz.unwrap()), "{clock:?}");
    }

    #[test]
    fn odd_stamps_do_no_harm() {
        assert_eq!(clock(&[]), None);
        assert_eq!(clock(&[5]), None);
        let same = clock(&[5, 5, 5]).unwrap();
        assert_eq!((same.rate_hz, same.backward), (None, 2));
        let far = clock(&[i64::MIN, i64::MAX, 0]).unwrap();
        assert_eq!(far.backward, 1);
    }
}
