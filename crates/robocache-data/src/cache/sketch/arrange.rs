//! Nearly sorting a chunk of numbers, fast.
//!
//! A chunk is dealt into buckets of equal width between its smallest and largest value. Numbers are
//! then in order but for those that share a bucket; buckets that hold many are sorted by the same
//! means or by the standard library. That costs a third of a sort, and a sketch that takes every
//! other number of the result does not need more.

use super::{Real, vector};

/// Numbers in a bucket that may stay in the order in which they came.
const FEW: usize = 8;
/// Larger buckets are dealt again, which helps where most numbers lie close together.
const MANY: usize = 64;
/// At most; as many as there are numbers, so that most have one to themselves.
const BUCKETS: usize = 8192;
/// Parts of a chunk that are looked at in turn.
const WAYS: usize = 4;
/// How often a bucket is dealt again before the standard sort takes over: numbers of very different
/// size, such as 1, 10^4, 10^8, lie in one bucket each time.
const DEPTH: usize = 3;

/// Memory that chunks share.
#[derive(Debug, Default)]
pub(crate) struct Scratch<T> {
    dealt: Vec<T>,
    digits: Vec<u16>,
}

/// The numbers in order but for those within one bucket: none is further from its place than
/// [`FEW`]. `values` are left in some order.
pub(super) fn arrange<'a, T: Real>(values: &mut [T], scratch: &'a mut Scratch<T>) -> &'a [T] {
    scratch.dealt.resize(values.len(), T::default());
    deal(values, &mut scratch.dealt, &mut scratch.digits, DEPTH);
    &scratch.dealt
}

fn deal<T: Real>(values: &mut [T], dealt: &mut [T], digits: &mut Vec<u16>, depth: usize) {
    let (low, high) = vector::bounds(values);
    if low == high {
        return dealt.copy_from_slice(values);
    }
    let buckets = values.len().next_power_of_two().min(BUCKETS);
    let Some(scale) = T::scale(low, high, (buckets - 1) as u16).filter(|_| depth > 0) else {
        dealt.copy_from_slice(values);
        return dealt.sort_unstable_by_key(|value| value.to_key());
    };
    digits.resize(values.len(), 0);
    vector::digits(values, low, scale, digits);
    let mut ends = [0u16; BUCKETS];
    interleaved(digits.len(), |at| {
        ends[usize::from(digits[at]) % BUCKETS] += 1;
    });
    let (mut start, mut largest) = (0u16, 0u16);
    for end in &mut ends[..buckets] {
        let count = *end;
        largest = largest.max(count);
        *end = start;
        start += count;
    }
    interleaved(digits.len(), |at| {
        let place = &mut ends[usize::from(digits[at]) % BUCKETS];
        dealt[usize::from(*place)] = values[at];
        *place += 1;
    });
    if usize::from(largest) <= FEW {
        return;
    }
    let mut start = 0;
    for &end in &ends[..buckets] {
        let end = usize::from(end);
        if end - start <= FEW {
            start = end;
            continue;
        }
        let bucket = &mut dealt[start..end];
        if bucket.len() > MANY {
            let spare = &mut values[start..end];
            deal(bucket, spare, digits, depth - 1);
            bucket.copy_from_slice(spare);
        } else {
            bucket.sort_unstable_by_key(|value| value.to_key());
        }
        start = end;
    }
}

/// Calls with all of `0..count`, but not with neighbours one after the other: signals are smooth, and
/// a counter that is used again at once is waited for.
#[inline(always)]
fn interleaved(count: usize, mut visit: impl FnMut(usize)) {
    let part = count / WAYS;
    for at in 0..part {
        for way in 0..WAYS {
            visit(way * part + at);
        }
    }
    (part * WAYS..count).for_each(visit);
}

/// Sorts keys that are nearly in order.
pub(super) fn finish<K: Copy + Ord>(keys: &mut [K]) {
    for i in 1..keys.len() {
        let key = keys[i];
        let mut j = i;
        while j > 0 && key < keys[j - 1] {
            keys[j] = keys[j - 1];
            j -= 1;
        }
        keys[j] = key;
    }
}
