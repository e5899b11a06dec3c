//! Nearly sorting a chunk of numbers, fast.
//!
//! A chunk is dealt into buckets of equal width between its smallest and largest value. Numbers are
//! then in order but for those that share a bucket; buckets that hold many are sorted by the same
//! means or by the standard library. That costs a third of a sort, and a sketch that takes every
//! other number of the result does not need more.

use super::Real;

/// Numbers in a bucket that may stay in the order in which they came.
const FEW: usize = 16;
/// Larger buckets are dealt again, which helps where most numbers lie close together.
const MANY: usize = 512;
const BUCKETS: usize = 4096;
/// How often a bucket is dealt again before the standard sort takes over: numbers of very different
/// size, such as 1, 10^4, 10^8, lie in one bucket each time.
const DEPTH: usize = 3;

/// Scratch memory that chunks share.
#[derive(Debug, Default)]
pub(super) struct Scratch<T> {
    dealt: Vec<T>,
    digits: Vec<u16>,
}

/// Orders numbers but for those within one bucket: no number is further from its place than [`FEW`].
pub(super) fn arrange<T: Real>(values: &mut [T], scratch: &mut Scratch<T>) {
    deal(values, scratch, DEPTH);
}

fn deal<T: Real>(values: &mut [T], scratch: &mut Scratch<T>, depth: usize) {
    let (low, high) = T::bounds(values);
    let equal = low == high;
    if equal || values.is_empty() {
        return;
    }
    if depth == 0 || values.len() > usize::from(u16::MAX) {
        return values.sort_unstable_by(T::order);
    }
    let scale = T::scale(low, high, BUCKETS - 1);
    scratch.digits.clear();
    scratch.digits.extend(values.iter().map(|&value| value.digit(low, scale)));
    let mut ends = [0u16; BUCKETS];
    for &digit in &scratch.digits {
        ends[usize::from(digit) % BUCKETS] += 1;
    }
    let (mut start, mut largest) = (0u16, 0u16);
    for end in &mut ends {
        let count = *end;
        largest = largest.max(count);
        *end = start;
        start += count;
    }
    scratch.dealt.clear();
    scratch.dealt.extend_from_slice(values);
    for (&value, &digit) in scratch.dealt.iter().zip(&scratch.digits) {
        let place = &mut ends[usize::from(digit) % BUCKETS];
        if let Some(slot) = values.get_mut(usize::from(*place)) {
            *slot = value;
        }
        *place += 1;
    }
    if usize::from(largest) <= FEW {
        return;
    }
    let mut start = 0;
    for end in ends.map(usize::from) {
        let bucket = values.get_mut(start..end).unwrap_or_default();
        if bucket.len() > MANY {
            deal(bucket, scratch, depth - 1);
        } else if bucket.len() > FEW {
            bucket.sort_unstable_by(T::order);
        }
        start = end;
    }
}

/// Sorts numbers that are nearly in order.
pub(super) fn finish<T: Real>(values: &mut [T]) {
    for i in 1..values.len() {
        let value = values[i];
        let mut j = i;
        while j > 0 && value < values[j - 1] {
            values[j] = values[j - 1];
            j -= 1;
        }
        values[j] = value;
    }
}
