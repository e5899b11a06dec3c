//! The order of samples: a pure function of seed and epoch, without a table of all samples.

use robocache::{Result, ensure};

/// A shuffle of `0..count`: a Feistel network over the next power of four, walked until it lands
/// inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 6;

    /// The shuffle of an epoch.
    pub fn new(count: u64, seed: u64, epoch: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mut state = mix(seed ^ mix(epoch ^ 0x5bf0_3635_d1f5_7d11));
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { count, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where a position leads; every position of `0..count` leads somewhere else in it.
    pub fn at(&self, position: u64) -> u64 {
        if self.count <= 1 {
            return 0;
        }
        let mut place = position;
        loop {
            place = self.round_trip(place);
            if place < self.count {
                return place;
            }
        }
    }

    fn round_trip(&self, place: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = ((place >> self.half_bits) & mask, place & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// A good mixing of 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Which of several groups a position draws from, in proportion to weights: a pattern that repeats,
/// so that how often each was drawn before any position is known without counting.
#[derive(Debug, Clone)]
pub(crate) struct Mixture {
    pattern: Vec<u16>,
    /// How often the group of each place was drawn before it.
    before: Vec<u32>,
    totals: Vec<u32>,
}

impl Mixture {
    /// The pattern's length, unless a small share needs a longer one.
    const PERIOD: usize = 1 << 12;
    const LONGEST: usize = 1 << 20;
    /// How often the smallest share should come in the pattern, to be drawn about as often as it asks.
    const LEAST: f64 = 8.0;

    /// A group of weight 0 is never drawn; a share too small for the longest pattern is an error.
    pub(crate) fn new<'n>(weights: &[f64], seed: u64, name: &dyn Fn(usize) -> &'n str) -> Result<Self> {
        let total: f64 = weights.iter().sum();
        ensure!(weights.len() <= usize::from(u16::MAX), "weights", "expected at most {} sources", u16::MAX);
        for (group, &weight) in weights.iter().enumerate() {
            let is_drawn = weight == 0.0 || weight / total * Self::LONGEST as f64 >= 1.0;
            let (name, share) = (name(group), weight / total);
            ensure!(is_drawn, "weights", "{name:?} has a share of {share:.1e}: at least 1e-6, or 0 to leave it out");
        }
        let least = weights.iter().filter(|&&weight| weight > 0.0).fold(f64::INFINITY, |a, &b| a.min(b)) / total;
        let mut period = Self::PERIOD;
        while period < Self::LONGEST && least * (period as f64) < Self::LEAST {
            period *= 2;
        }
        // Every group gets its share of the period, the largest remainders the rest.
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total * period as f64).collect();
        let mut counts: Vec<usize> = shares.iter().map(|share| share.floor() as usize).collect();
        let mut by_rest: Vec<usize> = (0..weights.len()).filter(|&group| weights[group] > 0.0).collect();
        by_rest.sort_by(|&a, &b| (shares[b].fract()).total_cmp(&shares[a].fract()));
        let missing = period - counts.iter().sum::<usize>().min(period);
        for &group in by_rest.iter().cycle().take(missing) {
            counts[group] += 1;
        }
        let sorted: Vec<u16> =
            counts.iter().enumerate().flat_map(|(group, &count)| std::iter::repeat_n(group as u16, count)).collect();
        let shuffle = Permutation::new(sorted.len() as u64, seed, u64::MAX);
        let pattern: Vec<u16> = (0..sorted.len()).map(|place| sorted[shuffle.at(place as u64) as usize]).collect();
        let mut totals = vec![0u32; weights.len()];
        let mut before = Vec::with_capacity(pattern.len());
        for &group in &pattern {
            let drawn = &mut totals[usize::from(group)];
            before.push(*drawn);
            *drawn += 1;
        }
        Ok(Self { pattern, before, totals })
    }

    /// The group that a position draws from, and how often it was drawn before.
    pub(crate) fn at(&self, position: u128) -> (usize, u128) {
        let period = self.pattern.len() as u128;
        let place = (position % period) as usize;
        let group = usize::from(self.pattern[place]);
        (group, position / period * u128::from(self.totals[group]) + u128::from(self.before[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_once_for_every_size() {
        for count in (0..70).chain([255, 256, 257, 1000, 4097]) {
            for epoch in 0..3 {
                let permutation = Permutation::new(count, 7, epoch);
                let mut seen: Vec<u64> = (0..count).map(|position| permutation.at(position)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{count}");
            }
        }
    }

    #[test]
    fn seeds_and_epochs_differ_and_neighbours_are_torn_apart() {
        let order = |seed, epoch| -> Vec<u64> {
            let permutation = Permutation::new(10_000, seed, epoch);
            (0..10_000).map(|position| permutation.at(position)).collect()
        };
        assert_ne!(order(0, 0), order(0, 1));
        assert_ne!(order(0, 0), order(1, 0));
        assert_eq!(order(u64::MAX, 5), order(u64::MAX, 5));
        // Of two random neighbours the distance is a third of the range on average.
        let order = order(3, 4);
        let distance: u64 = order.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        assert!((3000..3700).contains(&(distance / 10_000)), "{}", distance / 10_000);
        let kept = order.iter().enumerate().filter(|&(place, &to)| place as u64 == to).count();
        assert!(kept < 10);
    }

    fn drawn(weights: &[f64], positions: u128) -> Vec<u128> {
        let mixture = Mixture::new(weights, 9, &|_| "").unwrap();
        let mut drawn = vec![0; weights.len()];
        for position in 0..positions {
            let (group, before) = mixture.at(position);
            assert_eq!(before, drawn[group]);
            drawn[group] += 1;
        }
        drawn
    }

    #[test]
    fn mixtures_keep_their_proportions_and_count() {
        let drawn = drawn(&[3.0, 1.0, 0.0], 20_000);
        assert_eq!((drawn[2], drawn[0] / 100), (0, 150));
    }

    #[test]
    fn small_shares_are_drawn_or_refused_by_name() {
        let drawn = drawn(&[1.0, 1e-5], 3 << 20);
        assert!((28..=34).contains(&drawn[1]), "{drawn:?}");
        let error = Mixture::new(&[1.0, 1e-9], 0, &|group| ["big", "small"][group]).unwrap_err().to_string();
        assert!(error.contains("\"small\" has a share of 1.0e-9"), "{error}");
    }

    #[test]
    fn positions_of_any_epoch_are_counted() {
        let mixture = Mixture::new(&[1.0, 1.0], 0, &|_| "").unwrap();
        let position = u128::from(u32::MAX) * u128::from(u64::MAX >> 8);
        let (group, before) = mixture.at(position);
        let (_, later) = mixture.at(position + 4096);
        assert_eq!((later - before, mixture.totals[group]), (2048, 2048));
    }
}
