//! Reading some episodes, to see what their stamps are like and whether they can be read.

use std::time::{Duration, Instant};

use robocache_data::{Dataset, Samples, StreamInfo};
use serde::Serialize;

use super::clock::{Clock, Steps};

/// Episodes at most, and what they may take: an idea of the rates is enough.
const EPISODES: usize = 64;
const PATIENCE: Duration = Duration::from_secs(3);
/// Stamps at most, over all streams.
const STAMPS: usize = 8 << 20;

/// What a look at some episodes found.
#[derive(Debug)]
pub(super) struct Look {
    /// How many were looked at.
    pub(super) episodes: usize,
    /// Those of them of which no stream can be read.
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) streams: Vec<Stream>,
}

/// An episode, or a stream of it, that cannot be read.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Unreadable {
    pub(super) episode: u64,
    pub(super) why: String,
}

/// A stream as the metadata and the stamps tell of it.
#[derive(Debug, Serialize)]
pub(super) struct Stream {
    #[serde(flatten)]
    pub(super) info: StreamInfo,
    /// Absent where there are no two stamps.
    pub(super) clock: Option<Clock>,
    /// In episodes that have readable streams.
    pub(super) unreadable: Vec<Unreadable>,
}

#[derive(Debug, Default)]
struct Seen {
    steps: Steps,
    unreadable: Vec<Unreadable>,
}

impl Look {
    /// Looks at some episodes all over the dataset.
    pub(super) fn sample(dataset: &Dataset) -> Self {
        Self::at(dataset, &spread(dataset.len(), EPISODES))
    }

    /// Looks at these episodes, or the first of them where they take long; at one in any case.
    pub(super) fn at(dataset: &Dataset, places: &[usize]) -> Self {
        let all: Vec<usize> = (0..dataset.streams().len()).collect();
        let mut seen: Vec<Seen> = all.iter().map(|_| Seen::default()).collect();
        let mut unreadable = Vec::new();
        let (started, mut episodes, mut stamps) = (Instant::now(), 0, 0);
        for &at in places {
            if episodes > 0 && (started.elapsed() > PATIENCE || stamps > STAMPS) {
                break;
            }
            episodes += 1;
            let episode = dataset.episode(at).map_or(at as u64, |episode| episode.index);
            // Rebuilt stamps are even whatever happened; those of the file tell.
            let recorded = dataset.recorded_times(at).ok().flatten();
            let mut add = |seen: &mut Seen, samples: &Samples| {
                stamps += samples.times.len();
                let recorded = recorded.as_deref().filter(|recorded| recorded.len() == samples.times.len());
                seen.steps.add(episode, recorded.unwrap_or(&samples.times));
            };
            if let Ok(samples) = dataset.read(at, &all) {
                seen.iter_mut().zip(&samples).for_each(|(seen, samples)| add(seen, samples));
                continue;
            }
            // One of them spoils the rest: each for itself.
            let mut failures = Vec::new();
            for (stream, seen) in seen.iter_mut().enumerate() {
                match dataset.read(at, &[stream]) {
                    Ok(samples) => samples.iter().for_each(|samples| add(seen, samples)),
                    Err(error) => failures.push((stream, Unreadable { episode, why: error.to_string() })),
                }
            }
            if failures.len() == all.len() {
                unreadable.extend(failures.into_iter().map(|(_, failure)| failure).next());
            } else {
                for (stream, failure) in failures {
                    seen.iter_mut().skip(stream).take(1).for_each(|seen| seen.unreadable.push(failure.clone()));
                }
            }
        }
        let stream = |(seen, info): (Seen, &StreamInfo)| Stream {
            info: info.clone(),
            clock: seen.steps.clock(),
            unreadable: seen.unreadable,
        };
        Self { episodes, unreadable, streams: seen.into_iter().zip(dataset.streams()).map(stream).collect() }
    }
}

/// At most `most` places of `count`, the ends among them, in an order that covers all early.
fn spread(count: usize, most: usize) -> Vec<usize> {
    let chosen = count.min(most);
    let place = |step: usize| match chosen {
        0 | 1 => 0,
        _ => (step as u128 * (count as u128 - 1) / (chosen as u128 - 1)) as usize,
    };
    let bits = usize::BITS - chosen.next_power_of_two().trailing_zeros();
    let reversed = (0..chosen.next_power_of_two()).map(|n: usize| n.reverse_bits().checked_shr(bits).unwrap_or(0));
    reversed.filter(|&step| step < chosen).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_all() {
        assert_eq!(spread(0, 64), [0; 0]);
        assert_eq!(spread(1, 64), [0]);
        for (count, most) in [(2, 64), (5, 64), (64, 64), (65, 64), (100_000, 64), (7, 3)] {
            let places = spread(count, most);
            let mut sorted = places.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!((sorted.len(), sorted[0], sorted[sorted.len() - 1]), (count.min(most), 0, count - 1), "{count}");
        }
        // Half of them cover the whole already.
        let half = &spread(1000, 64)[..32];
        assert!(half.iter().any(|&place| place > 900) && half.iter().any(|&place| (400..600).contains(&place)));
    }
}
