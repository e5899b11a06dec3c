//! Targets in any order: dealt to the tiles of samples that they touch, so that no tile looks at all of them.

use std::ops::Range;

use crate::ops::align::Pick;

/// A target, what it was made of, and the weight of the second sample.
pub(super) type Found<T> = (usize, Pick, T);

/// Which of some targets touch which tile; those of a tile in the order that they came in.
pub(super) struct Dealt {
    starts: Vec<usize>,
    numbers: Vec<usize>,
}

impl Dealt {
    /// Deals to tiles of `size` samples. `reach`: the outermost samples that a target may touch.
    pub(super) fn new<T>(
        found: &[Found<T>],
        samples: &Range<usize>,
        size: usize,
        reach: impl Fn(Pick) -> Option<(usize, usize)>,
    ) -> Self {
        let tiles = |pick: Pick| match reach(pick) {
            Some((from, to)) if from < samples.end && to >= samples.start => {
                let (from, to) = (from.max(samples.start), to.min(samples.end - 1));
                (from - samples.start) / size..(to - samples.start) / size + 1
            }
            _ => 0..0,
        };
        let mut starts = vec![0; samples.len().div_ceil(size) + 1];
        for (_, pick, _) in found {
            for tile in tiles(*pick) {
                starts[tile + 1] += 1;
            }
        }
        let mut all = 0;
        for start in &mut starts {
            all += *start;
            *start = all;
        }
        let (mut numbers, mut next) = (vec![0; all], starts.clone());
        for (number, (_, pick, _)) in found.iter().enumerate() {
            for tile in tiles(*pick) {
                numbers[next[tile]] = number;
                next[tile] += 1;
            }
        }
        Self { starts, numbers }
    }

    /// Which of the targets touch a tile.
    pub(super) fn of_tile(&self, tile: usize) -> &[usize] {
        &self.numbers[self.starts[tile]..self.starts[tile + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_go_to_all_tiles_that_they_touch_in_their_order() {
        let found = [(7, Pick::Blend(13, 14)), (2, Pick::Take(10)), (5, Pick::Missing), (9, Pick::Blend(9, 10))];
        let found = found.map(|(target, pick)| (target, pick, 0.0));
        let reach = |pick| match pick {
            Pick::Take(sample) => Some((sample, sample)),
            Pick::Blend(first, second) => Some((first, second)),
            Pick::Missing => None,
        };
        let dealt = Dealt::new(&found, &(10..17), 4, reach);
        assert_eq!((dealt.of_tile(0), dealt.of_tile(1)), (&[0, 1, 3][..], &[0][..]));
    }
}
