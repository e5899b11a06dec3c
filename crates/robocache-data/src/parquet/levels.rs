//! The hybrid of runs and bit-packed groups that levels and dictionary indices are written in.

use super::thrift::{Fault, Parsed};

/// Equal values, or values packed to `width` bits each.
pub(super) enum Run<'a> {
    Repeat { value: u32, count: usize },
    Packed { bytes: &'a [u8], count: usize },
}

/// The runs of a section that holds `left` values.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    left: usize,
}

/// Bits that a level up to `max` takes.
pub(super) fn width_of(max: i16) -> u32 {
    i16::BITS - max.max(0).leading_zeros()
}

impl<'a> Runs<'a> {
    pub(super) fn new(bytes: &'a [u8], width: u32, count: usize) -> Self {
        Self { bytes, width, left: count }
    }

    fn split(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(Fault::End)?;
        self.bytes = tail;
        Ok(head)
    }

    fn head(&mut self) -> Parsed<usize> {
        let mut value = 0usize;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = *self.split(1)? else { return Err(Fault::End) };
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Bad("a run is longer than 32 bits can say"))
    }

    /// Whether all bytes were read.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next run, cut to the values that are left; `None` when all were given.
    #[inline]
    pub(super) fn next(&mut self) -> Parsed<Option<Run<'a>>> {
        let width = self.width as usize;
        if self.left == 0 {
            return Ok(None);
        }
        if width == 0 {
            let count = std::mem::take(&mut self.left);
            return Ok(Some(Run::Repeat { value: 0, count }));
        }
        let head = self.head()?;
        if head < 2 {
            return Err(Fault::Bad("a run is empty"));
        }
        if head & 1 == 0 {
            let count = (head >> 1).min(self.left);
            let bytes = self.split(width.div_ceil(8))?;
            let value = bytes.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            self.left -= count;
            return Ok(Some(Run::Repeat { value, count }));
        }
        let groups = head >> 1;
        let count = groups.saturating_mul(8).min(self.left);
        // The last group may be cut short by its writer.
        let bytes = self.split(groups.saturating_mul(width).min(self.bytes.len()))?;
        if bytes.len() < (count * width).div_ceil(8) {
            return Err(Fault::End);
        }
        self.left -= count;
        Ok(Some(Run::Packed { bytes, count }))
    }
}

/// The bytes that a group of eight values of any width can reach into.
const WINDOW: usize = 40;

/// Unpacks groups of eight values of `WIDTH` bits; what lies beyond the bytes is 0.
fn unpack_groups<const WIDTH: usize>(bytes: &[u8], groups: &mut [[u32; 8]]) {
    let mut rest = bytes;
    for group in groups {
        let mut padded = [0; WINDOW];
        let window = rest.first_chunk::<WINDOW>().unwrap_or_else(|| {
            padded.iter_mut().zip(rest).for_each(|(slot, byte)| *slot = *byte);
            &padded
        });
        for (index, slot) in group.iter_mut().enumerate() {
            let bit = index * WIDTH;
            let word = window.get(bit / 8..).and_then(|tail| tail.first_chunk::<8>());
            let word = word.map_or(0, |word| u64::from_le_bytes(*word)) >> (bit % 8);
            // The mask leaves at most 32 bits.
            *slot = (word & ((1 << WIDTH) - 1)) as u32;
        }
        rest = rest.get(WIDTH..).unwrap_or(&[]);
    }
}

/// Calls `each` for values `from..to` of a packed run, some at a time.
#[inline]
pub(super) fn unpack<E>(
    bytes: &[u8],
    width: u32,
    from: usize,
    to: usize,
    mut each: impl FnMut(&[u32]) -> Result<(), E>,
) -> Result<(), E> {
    macro_rules! by_width {
        ($($width:literal)+) => {
            match width {
                $($width => unpack_groups::<$width>,)+
                _ => unpack_groups::<0>,
            }
        };
    }
    // A width that is known to the compiler is three times as fast.
    let unpack_groups =
        by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    const BLOCK: usize = 32;
    let mut block = [[0u32; 8]; BLOCK];
    let mut at = from / 8 * 8;
    while at < to {
        let groups = (to - at).div_ceil(8).min(BLOCK);
        let Some(block) = block.get_mut(..groups) else { break };
        unpack_groups(bytes.get(at / 8 * width as usize..).unwrap_or(&[]), block);
        let values = block.as_flattened();
        let skip = from.saturating_sub(at);
        each(values.get(skip..values.len().min(to - at)).unwrap_or(&[]))?;
        at += groups * 8;
    }
    Ok(())
}

/// What a section of levels says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    /// Levels of 0; of repetition levels, the rows that start here.
    pub(super) zeros: usize,
    /// Levels that are the largest; of definition levels, the values that are there.
    pub(super) full: usize,
    /// The first level.
    pub(super) first: Option<u32>,
}

impl Levels {
    /// Reads `count` levels up to `max`.
    pub(super) fn read(bytes: &[u8], max: i16, count: usize) -> Parsed<Self> {
        let width = width_of(max);
        let max = u32::try_from(max).unwrap_or(0);
        let mut levels = Self::default();
        let mut runs = Runs::new(bytes, width, count);
        while let Some(run) = runs.next()? {
            let largest = match run {
                Run::Repeat { value, count } => {
                    levels.first.get_or_insert(value);
                    levels.zeros += if value == 0 { count } else { 0 };
                    levels.full += if value == max { count } else { 0 };
                    value
                }
                Run::Packed { bytes, count } => {
                    let mut largest = 0;
                    unpack(bytes, width, 0, count, |some| {
                        levels.first = levels.first.or(some.first().copied());
                        for level in some {
                            levels.zeros += usize::from(*level == 0);
                            levels.full += usize::from(*level == max);
                            largest = largest.max(*level);
                        }
                        Ok(())
                    })?;
                    largest
                }
            };
            if largest > max {
                return Err(Fault::Bad("a level is beyond what the column's nesting allows"));
            }
        }
        Ok(levels)
    }
}

/// How many values make a cycle that is worth comparing.
const CYCLE: usize = 512;

/// Levels that repeat with a period, in a form that compares runs and packed groups at once.
pub(super) struct Pattern {
    width: u32,
    /// For each place of the period: the level there, ...
    levels: Vec<u8>,
    /// ... how many equal levels follow, ...
    equal: Vec<usize>,
    /// ... and the next eight levels, packed.
    packed: Vec<u64>,
}

impl Pattern {
    /// The same level everywhere.
    pub(super) fn constant(level: i16) -> Option<Self> {
        Self::new(vec![u8::try_from(level).ok()?], width_of(level))
    }

    /// The repetition levels of rows that are all of this shape; `None` where there are none.
    pub(super) fn of_shape(shape: &[usize]) -> Option<Self> {
        const LONGEST: usize = 1 << 20;
        let period = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        if period == 0 || period > LONGEST {
            return None;
        }
        let mut levels = vec![u8::try_from(shape.len()).ok()?; period];
        let mut block = 1;
        // Innermost first, so that the outermost level that starts at a place is what stays.
        for (axis, size) in shape.iter().enumerate().rev() {
            block *= size;
            let level = u8::try_from(axis).ok()?;
            levels.iter_mut().step_by(block).for_each(|place| *place = level);
        }
        Self::new(levels, width_of(i16::try_from(shape.len()).ok()?))
    }

    fn new(levels: Vec<u8>, width: u32) -> Option<Self> {
        let period = levels.len();
        if width > 8 || period == 0 {
            return None;
        }
        let mut equal = vec![usize::MAX; period];
        if levels.iter().any(|level| Some(level) != levels.first()) {
            // Twice around, so that a run across the end of the period is counted whole.
            let mut run = 0;
            for place in (0..2 * period).rev() {
                let next = levels.get((place + 1) % period);
                run = if levels.get(place % period) == next { run + 1 } else { 1 };
                equal.get_mut(place % period).into_iter().for_each(|slot| *slot = run);
            }
        }
        let pack = |start: usize| {
            (0..8).rev().fold(0u64, |word, next| {
                word << width | u64::from(levels.get((start + next) % period).copied().unwrap_or(0))
            })
        };
        let packed = (0..period).map(pack).collect();
        Some(Self { width, levels, equal, packed })
    }

    pub(super) fn period(&self) -> usize {
        self.levels.len()
    }

    /// Whether a section of `count` levels is this pattern from place `start` on.
    pub(super) fn matches(&self, bytes: &[u8], count: usize, start: usize) -> Parsed<bool> {
        let start = start % self.period();
        let mut at = start;
        let mut runs = Runs::new(bytes, self.width, count);
        // Bytes that decode to whole periods do so wherever they come again. Writers repeat
        // themselves, so that most of a section needs only to be compared with what was seen.
        let mut mark = (runs.bytes, runs.left);
        while let Some(run) = runs.next()? {
            let next = match run {
                Run::Repeat { value, count } => self.after_repeat(value, count, at),
                Run::Packed { bytes, count } => self.after_packed(bytes, count, at),
            };
            let Some(next) = next else { return Ok(false) };
            at = next;
            let values = mark.1 - runs.left;
            if at == start && values >= CYCLE {
                let cycle = mark.0.get(..mark.0.len() - runs.bytes.len()).unwrap_or(&[]);
                while runs.left >= values
                    && let Some(rest) = runs.bytes.strip_prefix(cycle)
                {
                    runs.bytes = rest;
                    runs.left -= values;
                }
                mark = (runs.bytes, runs.left);
            }
        }
        Ok(true)
    }

    /// The place after `count` times the level `value` from `at` on, if that is the pattern.
    fn after_repeat(&self, value: u32, mut count: usize, mut at: usize) -> Option<usize> {
        while count > 0 {
            if u32::from(*self.levels.get(at)?) != value {
                return None;
            }
            let step = count.min(*self.equal.get(at)?);
            count -= step;
            at = (at + step) % self.period();
        }
        Some(at)
    }

    /// The place after `count` packed levels from `at` on, if they are the pattern.
    fn after_packed(&self, bytes: &[u8], count: usize, mut at: usize) -> Option<usize> {
        let width = self.width as usize;
        let mut left = count;
        for packed in bytes.chunks(width) {
            let word = packed.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            let step = left.min(8);
            let bits = step * width;
            let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            if (self.packed.get(at)? ^ word) & mask != 0 {
                return None;
            }
            at += step;
            while at >= self.period() {
                at -= self.period();
            }
            left -= step;
            if left == 0 {
                break;
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs levels into one bit-packed run.
    fn packed(levels: &[u8], width: u32) -> Vec<u8> {
        let groups = levels.len().div_ceil(8);
        let mut bytes = vec![u8::try_from(groups << 1 | 1).unwrap()];
        bytes.resize(1 + groups * width as usize, 0);
        for (index, level) in levels.iter().enumerate() {
            for bit in 0..width as usize {
                let at = index * width as usize + bit;
                bytes[1 + at / 8] |= (level >> bit & 1) << (at % 8);
            }
        }
        bytes
    }

    #[test]
    fn the_pattern_of_a_shape_is_what_a_writer_of_lists_gives() {
        let pattern = Pattern::of_shape(&[2, 3]).unwrap();
        assert_eq!(pattern.levels, [0, 2, 2, 1, 2, 2]);
        assert_eq!(pattern.equal, [1, 2, 1, 1, 2, 1]);
        assert_eq!(Pattern::of_shape(&[4]).unwrap().levels, [0, 1, 1, 1]);
        assert_eq!(Pattern::of_shape(&[1, 1]).unwrap().levels, [0]);
        assert!(Pattern::of_shape(&[3, 0]).is_none());
    }

    #[test]
    fn a_pattern_is_found_in_runs_and_in_packed_groups() {
        let pattern = Pattern::of_shape(&[14]).unwrap();
        let levels: Vec<u8> = (0..70).map(|at| u8::from(at % 14 != 0)).collect();
        assert_eq!(pattern.matches(&packed(&levels, 1), 70, 0), Ok(true));
        assert_eq!(pattern.matches(&packed(&levels, 1), 70, 1), Ok(false));
        assert_eq!(pattern.matches(&packed(&levels[5..], 1), 65, 5), Ok(true));
        // One zero, thirteen ones, one zero as runs.
        assert_eq!(pattern.matches(&[2, 0, 26, 1, 2, 0], 15, 0), Ok(true));
        assert_eq!(pattern.matches(&[2, 0, 28, 1, 2, 0], 16, 0), Ok(false));
        assert_eq!(pattern.matches(&[2, 0, 26, 1], 15, 0), Err(Fault::End));
        let nested = Pattern::of_shape(&[2, 3]).unwrap();
        let levels = [0, 2, 2, 1, 2, 2, 0, 2, 2, 1, 2, 2, 0];
        assert_eq!(nested.matches(&packed(&levels, 2), 13, 0), Ok(true));
        assert_eq!(Pattern::constant(3).unwrap().matches(&[200, 1, 3], 100, 0), Ok(true));
    }

    #[test]
    fn levels_are_counted_and_bounded() {
        let levels = |zeros, full, first| Ok(Levels { zeros, full, first });
        assert_eq!(Levels::read(&packed(&[0, 1, 1, 0, 1, 0], 1), 1, 6), levels(3, 3, Some(0)));
        assert_eq!(Levels::read(&[6, 1, 4, 0], 1, 5), levels(2, 3, Some(1)));
        assert_eq!(Levels::read(&[], 1, 0), levels(0, 0, None));
        assert_eq!(Levels::read(&[6, 1], 1, 5), Err(Fault::End));
        assert!(matches!(Levels::read(&[6, 3], 2, 3), Err(Fault::Bad(_))));
        assert!(matches!(Levels::read(&packed(&[1, 3, 0], 2), 2, 3), Err(Fault::Bad(_))));
        assert!(matches!(Levels::read(&[0, 1, 6, 1], 1, 3), Err(Fault::Bad("a run is empty"))));
    }

    #[test]
    fn unpacking_reads_any_width_to_the_last_bit() {
        for width in 1..=32u32 {
            let values: Vec<u32> = (0..40u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> (32 - width)).collect();
            let mut bytes = vec![0u8; 5 * width as usize];
            for (index, value) in values.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = index * width as usize + bit;
                    bytes[at / 8] |= u8::try_from(value >> bit & 1).unwrap() << (at % 8);
                }
            }
            let mut got: Vec<u32> = Vec::new();
            unpack::<()>(&bytes, width, 3, 40, |some| {
                got.extend(some);
                Ok(())
            })
            .unwrap();
            assert_eq!(got, values[3..], "width {width}");
        }
    }
}
