//! What is known of the numbers of a stream after one pass: per component the range, the mean, the
//! spread and how often the ends of the range are met. Parts of a stream are merged.

use half::{bf16, f16};
use robocache::tensor::{F8E4M3, F8E5M2};

/// A number that can be counted with.
pub(crate) trait Number: Copy {
    fn wide(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty),+) => { $(impl Number for $type { fn wide(self) -> f64 { f64::from(self) } })+ };
}
numbers!(f16, bf16, f32, f64, u8, i8, u16, i16, u32, i32, bool, F8E4M3, F8E5M2);

impl Number for u64 {
    fn wide(self) -> f64 {
        self as f64
    }
}

impl Number for i64 {
    fn wide(self) -> f64 {
        self as f64
    }
}

/// Statistics per component, in vectors of one length so that the loops over a row are short.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Channels {
    /// Samples, the unusable ones included.
    pub(crate) rows: u64,
    /// Of usable numbers; infinite where there are none.
    pub(crate) min: Vec<f64>,
    pub(crate) max: Vec<f64>,
    pub(crate) mean: Vec<f64>,
    /// Sum of squares of the distances from the mean.
    squares: Vec<f64>,
    /// How many are exactly at the minimum and the maximum.
    pub(crate) at_min: Vec<u64>,
    pub(crate) at_max: Vec<u64>,
    /// How many are NaN, and infinite.
    pub(crate) nan: Vec<u64>,
    pub(crate) infinite: Vec<u64>,
}

impl Channels {
    /// Nothing seen yet.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            rows: 0,
            min: vec![f64::INFINITY; width],
            max: vec![f64::NEG_INFINITY; width],
            mean: vec![0.0; width],
            squares: vec![0.0; width],
            at_min: vec![0; width],
            at_max: vec![0; width],
            nan: vec![0; width],
            infinite: vec![0; width],
        }
    }

    /// Of rows of `width` numbers.
    pub(crate) fn of<T: Number>(values: &[T], width: usize) -> Self {
        let mut channels = Self::new(width);
        if width == 0 {
            return channels;
        }
        let rows = || values.chunks_exact(width);
        channels.rows = rows().len() as u64;
        channels.find_ranges(rows());
        // One that is not finite shows in the sum, which is cheaper than to look at each.
        if channels.mean.iter().any(|sum| !sum.is_finite()) {
            channels.find_ranges_of_finite(rows());
        }
        for column in 0..width {
            let usable = channels.usable(column);
            let (mean, low, high) = (channels.mean[column], channels.min[column], channels.max[column]);
            // The range bounds the mean whatever rounding did.
            channels.mean[column] = if usable == 0 { 0.0 } else { (mean / usable as f64).clamp(low, high) };
        }
        channels.find_spread(rows());
        channels
    }

    /// Minimum, maximum and sums; the sums wait in `mean`.
    fn find_ranges<'a, T: Number + 'a>(&mut self, rows: impl Iterator<Item = &'a [T]>) {
        for row in rows {
            let columns = row.iter().zip(&mut self.min).zip(&mut self.max).zip(&mut self.mean);
            for (((value, min), max), sum) in columns {
                let value = value.wide();
                *min = if value < *min { value } else { *min };
                *max = if value > *max { value } else { *max };
                *sum += value;
            }
        }
    }

    fn find_ranges_of_finite<'a, T: Number + 'a>(&mut self, rows: impl Iterator<Item = &'a [T]>) {
        *self = Self { rows: self.rows, ..Self::new(self.min.len()) };
        for row in rows {
            for (column, value) in row.iter().enumerate() {
                let value = value.wide();
                if value.is_finite() {
                    self.min[column] = self.min[column].min(value);
                    self.max[column] = self.max[column].max(value);
                    self.mean[column] += value;
                } else if value.is_nan() {
                    self.nan[column] += 1;
                } else {
                    self.infinite[column] += 1;
                }
            }
        }
    }

    /// What needs the range and the mean. Numbers that are not finite change nothing.
    fn find_spread<'a, T: Number + 'a>(&mut self, rows: impl Iterator<Item = &'a [T]>) {
        let all_finite = self.not_finite() == 0;
        for row in rows {
            let ends = self.min.iter().zip(&self.max).zip(&mut self.at_min).zip(&mut self.at_max);
            let spread = self.mean.iter().zip(&mut self.squares);
            for ((value, (((min, max), at_min), at_max)), (mean, squares)) in row.iter().zip(ends).zip(spread) {
                let value = value.wide();
                let distance = value - mean;
                *squares += if all_finite || value.is_finite() { distance * distance } else { 0.0 };
                *at_min += u64::from(value == *min);
                *at_max += u64::from(value == *max);
            }
        }
    }

    /// Adds the numbers of another part of the same stream.
    pub(crate) fn merge(&mut self, other: &Self) {
        for column in 0..self.min.len().min(other.min.len()) {
            let (ours, theirs) = (self.usable(column) as f64, other.usable(column) as f64);
            if theirs > 0.0 {
                let distance = other.mean[column] - self.mean[column];
                let all = ours + theirs;
                self.mean[column] += distance * (theirs / all);
                self.squares[column] += other.squares[column] + distance * distance * (ours * theirs / all);
            }
            let met = |end: f64, other: f64, ours: u64, theirs: u64, theirs_is_further: bool| match () {
                () if end == other => ours + theirs,
                () if theirs_is_further => theirs,
                () => ours,
            };
            let (low, lower) = (self.min[column], other.min[column]);
            self.at_min[column] = met(low, lower, self.at_min[column], other.at_min[column], lower < low);
            self.min[column] = low.min(lower);
            let (high, higher) = (self.max[column], other.max[column]);
            self.at_max[column] = met(high, higher, self.at_max[column], other.at_max[column], higher > high);
            self.max[column] = high.max(higher);
            self.nan[column] += other.nan[column];
            self.infinite[column] += other.infinite[column];
        }
        self.rows += other.rows;
    }

    /// Finite numbers of a component.
    pub(crate) fn usable(&self, column: usize) -> u64 {
        self.rows - self.nan[column] - self.infinite[column]
    }

    pub(crate) fn not_finite(&self) -> u64 {
        self.nan.iter().chain(&self.infinite).sum()
    }

    /// The standard deviation of the numbers that are there.
    pub(crate) fn std(&self, column: usize) -> f64 {
        (self.squares[column] / (self.usable(column) as f64).max(1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_textbook() {
        let channels = Channels::of(&[1.0f32, 5.0, 2.0, 5.0, 4.0, 7.0, 1.0, 5.0], 2);
        assert_eq!(
            (channels.rows, channels.min.as_slice(), channels.max.as_slice()),
            (4, &[1.0, 5.0][..], &[4.0, 7.0][..])
        );
        assert_eq!(channels.mean, [2.0, 5.5]);
        assert_eq!((channels.at_min.as_slice(), channels.at_max.as_slice()), (&[2, 3][..], &[1, 1][..]));
        assert_eq!(channels.std(0), 1.5f64.sqrt());
        assert_eq!(Channels::of(&[true, false, true], 1).mean, [2.0 / 3.0]);
        assert_eq!(Channels::of(&[i64::MAX], 1).max, [i64::MAX as f64]);
    }

    #[test]
    fn parts_merge_to_the_whole() {
        let values: Vec<f64> = (0..3000).map(|n| ((n * 7919) % 101) as f64 / 7.0 - 3.0).collect();
        let whole = Channels::of(&values, 3);
        let mut merged = Channels::new(3);
        for part in values.chunks(21) {
            merged.merge(&Channels::of(part, 3));
        }
        merged.merge(&Channels::new(3));
        assert_eq!((merged.rows, &merged.min, &merged.max), (whole.rows, &whole.min, &whole.max));
        assert_eq!((&merged.at_min, &merged.at_max), (&whole.at_min, &whole.at_max));
        for column in 0..3 {
            assert!((merged.mean[column] - whole.mean[column]).abs() < 1e-12);
            assert!((merged.std(column) - whole.std(column)).abs() < 1e-12);
        }
    }

    #[test]
    fn what_is_not_finite_is_counted_and_left_out() {
        let values = [1.0f32, f32::NAN, 3.0, f32::INFINITY, f32::NEG_INFINITY, 2.0];
        let channels = Channels::of(&values, 1);
        assert_eq!((channels.nan[0], channels.infinite[0], channels.usable(0)), (1, 2, 3));
        assert_eq!((channels.min[0], channels.max[0], channels.mean[0]), (1.0, 3.0, 2.0));
        assert_eq!((channels.at_min[0], channels.at_max[0]), (1, 1));
        assert!((channels.std(0) - (2.0f64 / 3.0).sqrt()).abs() < 1e-15);
        let none = Channels::of(&[f64::NAN], 1);
        assert_eq!((none.usable(0), none.mean[0], none.std(0)), (0, 0.0, 0.0));
        // Finite numbers whose sum is not.
        let huge = Channels::of(&[f64::MAX, f64::MAX], 1);
        assert_eq!((huge.usable(0), huge.mean[0]), (2, f64::MAX));
    }
}
