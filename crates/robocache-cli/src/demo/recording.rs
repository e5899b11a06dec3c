//! Episodes, the clocks of their streams and the times that values are wanted at.

use super::random::Random;

pub(super) const EPISODES: usize = 64;
/// October 2025, in nanoseconds since 1970.
const EPOCH_NS: i64 = 1_760_000_000_000_000_000;
/// Every stamp is off by up to this part of the period.
const JITTER: f64 = 0.2;
/// Every clock runs wrong by up to this part.
const DRIFT: f64 = 1e-4;

/// When the episodes happened.
#[derive(Debug)]
pub(super) struct Episodes {
    /// Nanoseconds since 1970.
    starts: Vec<i64>,
    /// Seconds.
    lengths: Vec<f64>,
}

impl Episodes {
    /// Episodes of 90 to 100 % of `seconds`, one after the other.
    pub(super) fn new(seconds: f64, random: &mut Random) -> Self {
        let (mut starts, mut lengths) = (Vec::new(), Vec::new());
        let mut now = EPOCH_NS;
        for _ in 0..EPISODES {
            now += nanoseconds(seconds + random.between(1.0, 10.0));
            starts.push(now);
            lengths.push(seconds * random.between(0.9, 1.0));
        }
        Self { starts, lengths }
    }

    /// The shortest and the longest, in seconds.
    pub(super) fn range(&self) -> (f64, f64) {
        let least = self.lengths.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.lengths.iter().copied().fold(0.0, f64::max))
    }

    /// What a stream's signal shows at a stamp: seconds from the episode's start, and each
    /// episode another part of the motion.
    pub(super) fn seconds(&self, episode: usize, stamp: i64) -> f64 {
        (stamp - self.starts[episode]) as f64 * 1e-9 + 0.7 * episode as f64
    }
}

/// Rows of stamps of different lengths in one rectangle.
#[derive(Debug)]
pub(super) struct Stamps {
    /// `[episodes, columns]`; past a row's length, zeros that nobody reads.
    pub(super) flat: Vec<i64>,
    pub(super) columns: usize,
    pub(super) lengths: Vec<i64>,
}

impl Stamps {
    pub(super) fn new(rows: &[Vec<i64>]) -> Self {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut flat = Vec::with_capacity(rows.len() * columns);
        for row in rows {
            flat.extend_from_slice(row);
            flat.resize(flat.len() + columns - row.len(), 0);
        }
        Self { flat, columns, lengths: rows.iter().map(|row| row.len() as i64).collect() }
    }

    /// A uniform grid over each episode: what training wants.
    pub(super) fn grid(episodes: &Episodes, hertz: f64) -> Self {
        let grid = |(start, seconds): (&i64, &f64)| {
            let count = (seconds * hertz) as i64;
            (0..=count).map(|index| start + nanoseconds(index as f64 / hertz)).collect()
        };
        Self::new(&episodes.starts.iter().zip(&episodes.lengths).map(grid).collect::<Vec<_>>())
    }

    pub(super) fn row(&self, episode: usize) -> &[i64] {
        let start = episode * self.columns;
        &self.flat[start..start + self.lengths[episode] as usize]
    }

    /// How many there are in all episodes.
    pub(super) fn count(&self) -> usize {
        self.lengths.iter().sum::<i64>() as usize
    }

    /// The largest step between neighbours that is not longer than `most` seconds, in seconds.
    pub(super) fn largest_step(&self, most: f64) -> f64 {
        let most = nanoseconds(most);
        let steps =
            (0..self.lengths.len()).flat_map(|episode| self.row(episode).windows(2).map(|pair| pair[1] - pair[0]));
        steps.filter(|step| *step <= most).max().unwrap_or(0) as f64 * 1e-9
    }
}

/// The clock of a stream: it starts late, runs a little wrong and jitters.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) hertz: f64,
    /// From and to in seconds of an episode: nothing arrives.
    pub(super) silence: Option<(f64, f64)>,
}

impl Clock {
    pub(super) fn stamps(&self, episodes: &Episodes, random: &mut Random) -> Stamps {
        let mut rows = Vec::new();
        for (start, seconds) in episodes.starts.iter().zip(&episodes.lengths) {
            let period = (1.0 + random.between(-DRIFT, DRIFT)) / self.hertz;
            let late = random.between(0.0, 1.0);
            let mut row = Vec::new();
            for index in 0..(seconds * self.hertz) as usize {
                let at = (index as f64 + late + random.between(-JITTER, JITTER)) * period;
                if !self.silence.is_some_and(|(from, to)| (from..to).contains(&at)) {
                    row.push(start + nanoseconds(at));
                }
            }
            rows.push(row);
        }
        Stamps::new(&rows)
    }
}

/// A recorded stream.
#[derive(Debug)]
pub(super) struct Stream<T> {
    pub(super) stamps: Stamps,
    /// `[episodes, stamps.columns, width]`.
    pub(super) values: Vec<T>,
    pub(super) width: usize,
}

impl<T: Copy + Default> Stream<T> {
    /// Records with `sample(episode, index, stamp, row)`.
    pub(super) fn new(stamps: Stamps, width: usize, mut sample: impl FnMut(usize, usize, i64, &mut [T])) -> Self {
        let mut values = vec![T::default(); stamps.flat.len() * width];
        for (episode, rows) in values.chunks_mut((stamps.columns * width).max(1)).enumerate() {
            let stamped = rows.chunks_mut(width).zip(stamps.row(episode)).enumerate();
            stamped.for_each(|(index, (row, stamp))| sample(episode, index, *stamp, row));
        }
        Self { stamps, values, width }
    }

    /// One sample.
    pub(super) fn sample(&self, episode: usize, index: usize) -> &[T] {
        let start = (episode * self.stamps.columns + index) * self.width;
        &self.values[start..start + self.width]
    }
}

pub(super) fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_increase_and_are_silent_where_asked() {
        let mut random = Random::new(3);
        let episodes = Episodes::new(2.0, &mut random);
        let clock = Clock { hertz: 100.0, silence: Some((0.5, 0.9)) };
        let stamps = clock.stamps(&episodes, &mut random);
        assert_eq!(stamps.flat.len(), EPISODES * stamps.columns);
        for episode in 0..EPISODES {
            let row = stamps.row(episode);
            assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
            let silence = row.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!((400_000_000..430_000_000).contains(&silence));
        }
        // Jitter at both ends, and the clock's own error.
        let step = stamps.largest_step(0.1);
        assert!(step > 0.012 && step <= 0.014 * (1.0 + DRIFT), "{step}");
    }

    #[test]
    fn rows_keep_their_own_lengths() {
        let stamps = Stamps::new(&[vec![1, 2], vec![3], vec![]]);
        assert_eq!((stamps.columns, stamps.count()), (2, 3));
        assert_eq!((stamps.row(0), stamps.row(1), stamps.row(2)), (&[1, 2][..], &[3][..], &[][..]));
        let stream = Stream::new(stamps, 2, |episode, index, stamp, row: &mut [i64]| {
            row.copy_from_slice(&[(10 * episode + index) as i64, stamp]);
        });
        assert_eq!(stream.values, [0, 1, 1, 2, 10, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(stream.sample(1, 0), [10, 3]);
    }
}
