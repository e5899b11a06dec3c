//! A tile of sums.

use super::cells::Number;

/// Samples `low..high` and columns `left..right`.
pub(super) struct Area {
    pub(super) low: usize,
    pub(super) high: usize,
    pub(super) left: usize,
    pub(super) right: usize,
}

impl Area {
    pub(super) fn size(&self) -> usize {
        (self.high - self.low) * (self.right - self.left)
    }

    /// Adds to neighbouring sums of a sample, if that is in the area.
    #[inline(always)]
    pub(super) fn put<T: Number, const N: usize>(&self, sample: usize, column: usize, numbers: [T; N], sums: &mut [T]) {
        if let Some(sums) = self.of_sample(sample, sums) {
            for (sum, number) in sums[column - self.left..].iter_mut().zip(numbers) {
                *sum = *sum + number;
            }
        }
    }

    /// The sums of one sample.
    #[inline(always)]
    pub(super) fn of_sample<'s, T>(&self, sample: usize, sums: &'s mut [T]) -> Option<&'s mut [T]> {
        if sample < self.low || sample >= self.high {
            return None;
        }
        let width = self.right - self.left;
        sums.get_mut((sample - self.low) * width..)?.get_mut(..width)
    }
}
