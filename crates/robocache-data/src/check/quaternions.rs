//! Quaternions: their length, and signs that flip between neighbours.

use super::channels::Number;

/// Below this, a quaternion points nowhere.
const ZERO: f64 = 1e-6;

/// A sample of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) episode: u64,
    pub(crate) sample: usize,
}

/// What is known of one quaternion of a stream after one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Quaternion {
    /// How far its length is from 1 at most, where it is not 0.
    pub(crate) off: f64,
    pub(crate) off_at: Option<Place>,
    /// How often it is 0.
    pub(crate) zeros: u64,
    pub(crate) zero_at: Option<Place>,
    /// How often its sign changes.
    pub(crate) flips: u64,
    pub(crate) flip_at: Option<Place>,
}

impl Quaternion {
    /// Of the four numbers from column `start` on, in rows of `width` numbers of one episode.
    pub(crate) fn of<T: Number>(values: &[T], width: usize, start: usize, episode: u64) -> Self {
        let mut seen = Self::default();
        let mut before = [0.0; 4];
        for (sample, row) in values.chunks_exact(width.max(1)).enumerate() {
            let Some(&[a, b, c, d]) = row.get(start..start + 4) else {
                break;
            };
            let now = [a.wide(), b.wide(), c.wide(), d.wide()];
            let dot = |other: &[f64; 4]| now.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            let norm = dot(&now).sqrt();
            let place = Place { episode, sample };
            if norm < ZERO {
                seen.zeros += 1;
                seen.zero_at.get_or_insert(place);
            } else if (norm - 1.0).abs() > seen.off {
                seen.off = (norm - 1.0).abs();
                seen.off_at = Some(place);
            }
            if dot(&before) < 0.0 {
                seen.flips += 1;
                seen.flip_at.get_or_insert(place);
            }
            before = now;
        }
        seen
    }

    /// Adds what a later part of the stream showed.
    pub(crate) fn merge(&mut self, later: &Self) {
        if later.off > self.off {
            (self.off, self.off_at) = (later.off, later.off_at);
        }
        self.zeros += later.zeros;
        self.zero_at = self.zero_at.or(later.zero_at);
        self.flips += later.flips;
        self.flip_at = self.flip_at.or(later.flip_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_zeros_and_flips_are_seen() {
        let row = |scale: f32| [9.0, 0.0, 0.6 * scale, 0.0, 0.8 * scale];
        let values = [row(1.0), row(-1.0), row(1.5), row(0.0), row(-0.9), row(f32::NAN)].concat();
        let seen = Quaternion::of(&values, 5, 1, 4);
        let at = |sample| Some(Place { episode: 4, sample });
        assert!((seen.off - 0.5).abs() < 1e-6);
        assert_eq!((seen.off_at, seen.zeros, seen.zero_at), (at(2), 1, at(3)));
        // From and to 0 there is no sign.
        assert_eq!((seen.flips, seen.flip_at), (2, at(1)));
        let mut both = Quaternion::of(&row(1.0), 5, 1, 3);
        both.merge(&seen);
        assert_eq!((both.off_at, both.zeros, both.flips), (at(2), 1, 2));
        let fine = Quaternion::of(&[row(1.0), row(1.0)].concat(), 5, 1, 0);
        assert_eq!((fine.zeros, fine.flips), (0, 0));
        assert!(fine.off < 1e-6);
    }
}
