//! One of every so many numbers of a chunk by their order, without sorting it.
//!
//! A chunk is dealt into buckets of equal width between its smallest and largest value. How many lie in
//! each is counted, and the place of one of them kept: where a bucket holds few, that one stands for
//! all of it, and a rank is off by less than the bucket holds. Where it holds more, as where a robot rests
//! or a sensor counts in steps, one still stands for all if they are equal; otherwise they are gathered,
//! and dealt again or sorted. All that costs a tenth of a sort, or a third where much is gathered.

use std::cell::RefCell;

use super::{Real, vector};

/// At most. With places and counts of this many the first level of a processor's cache is not exceeded.
const BUCKETS: usize = 12_288;
/// What holds them, so that a mask keeps within it.
const TABLE: usize = 16_384;
/// A bucket may hold one in so many of all numbers without a closer look.
const ROUGH: usize = 1365;
/// Picks that may fall into such a bucket.
const REPEATS: usize = 4;
/// Buckets that hold more are dealt again, others sorted.
const MANY: usize = 128;
/// How often a bucket is dealt again before the standard sort takes over: numbers of very different
/// size, such as 1, 10^4, 10^8, lie in one bucket each time.
const DEPTH: usize = 3;
/// Parts of a chunk that are looked at in turn.
const WAYS: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Memory that the chunks of a thread share, up to 250 KiB.
#[derive(Debug, Default)]
struct Scratch {
    /// The bucket of each number.
    digits: Vec<u16>,
    /// Of the numbers of each bucket, up to 255.
    counts: Vec<u8>,
    /// The place of one number of each bucket.
    one_of: Vec<u16>,
    /// The places of picks.
    places: Vec<u16>,
    /// The places of numbers in buckets that hold many.
    crowd: Vec<u16>,
    /// How many each of these buckets holds, then where those of it end that were moved.
    ends: Vec<u16>,
    /// Whether the numbers of such a bucket differ.
    mixed: Vec<bool>,
}

/// A bucket that holds many which are not all equal.
struct Crowded {
    /// Where its numbers are among those of such buckets.
    start: usize,
    len: usize,
    /// Its first pick, and the numbers of it before that.
    pick: usize,
    next: usize,
}

/// What is picked.
struct Picks<K> {
    /// A power of 2.
    stride: usize,
    /// How many numbers come before the next pick; less than `stride`.
    next: usize,
    /// Numbers that a bucket may hold without a closer look.
    few: u8,
    /// Which number of a bucket stands for it: the last one, or the first.
    last: bool,
    picked: Vec<K>,
}

/// One of every `stride` numbers in order, first that at `start` modulo `stride`. The stride is a power of 2 and
/// divides the number of values, which are no more than 2^15, lie between those of `span` and are left in some order.
pub(super) fn picked<T: Real>(values: &mut [T], span: (T, T), stride: usize, start: usize) -> Vec<T::Key> {
    let few = (values.len() / ROUGH).min(stride * (REPEATS - 1)).clamp(1, 254);
    // Signals are smooth: the last of a bucket is its largest while they rise. A choice by chance has no bias.
    let last = (start / stride).is_multiple_of(2);
    let picked = Vec::with_capacity(values.len() / stride);
    let mut picks = Picks { stride, next: start % stride, few: few as u8, last, picked };
    SCRATCH.with_borrow_mut(|scratch| picks.pick(values, span, scratch, DEPTH));
    picks.picked
}

impl<K: Copy + Ord> Picks<K> {
    /// Of the numbers that come next in order, which may lie in any.
    fn pick<T: Real<Key = K>>(&mut self, values: &mut [T], span: (T, T), scratch: &mut Scratch, depth: usize) {
        let (low, high) = span;
        if low == high {
            // Zeros of both signs are equal, but have an order.
            values.sort_unstable_by_key(|value| value.to_key());
            return self.take(values);
        }
        let buckets = values.len().next_power_of_two().min(BUCKETS);
        let Some(scale) = T::scale(low, high, (buckets - 1) as u16).filter(|_| depth > 0) else {
            values.sort_unstable_by_key(|value| value.to_key());
            return self.take(values);
        };
        scratch.digits.resize(values.len(), 0);
        vector::digits(values, low, scale, &mut scratch.digits);
        scratch.count(buckets, self.last);
        // Not the first that is larger, since the compiler makes vectors of this.
        let most = scratch.counts[..buckets].iter().fold(0, |most, &count| most.max(count));
        let crowded = if most > self.few {
            scratch.gather(values, self.few, buckets);
            self.walk(buckets, scratch)
        } else {
            self.walk_few(buckets, scratch);
            Vec::new()
        };
        let first = self.picked.len();
        let count = (values.len() + self.stride - 1 - self.next) / self.stride;
        // Places of picks from buckets that hold many are of other chunks, and are not used.
        let at = |&place: &u16| values.get(usize::from(place)).copied().unwrap_or_default().to_key();
        self.picked.extend(scratch.places[..count].iter().map(at));
        self.next = self.next + count * self.stride - values.len();
        if crowded.is_empty() {
            return;
        }
        let Scratch { crowd, ends, digits, mixed, .. } = scratch;
        let mut dealt = vec![T::default(); crowd.len()];
        for &place in &*crowd {
            let bucket = usize::from(digits[usize::from(place)]);
            if mixed[bucket] {
                dealt[usize::from(ends[bucket])] = values[usize::from(place)];
                ends[bucket] += 1;
            }
        }
        for Crowded { start, len, pick, next } in crowded {
            let mut own = Picks { next, picked: Vec::new(), ..*self };
            let numbers = &mut dealt[start..start + len];
            if len > MANY {
                own.pick(numbers, vector::bounds(numbers), scratch, depth - 1);
            } else {
                numbers.sort_unstable_by_key(|value| value.to_key());
                own.take(numbers);
            }
            let room = &mut self.picked[first + pick..];
            room[..own.picked.len()].copy_from_slice(&own.picked);
        }
    }

    /// The place that stands for each pick, where no bucket holds many.
    fn walk_few(&self, buckets: usize, scratch: &mut Scratch) {
        let (counts, one_of) = (&scratch.counts[..buckets], &scratch.one_of[..buckets]);
        let places = room_for_picks(&mut scratch.places, scratch.digits.len() / self.stride);
        let shift = self.stride.trailing_zeros();
        // The picks before a bucket are those of all numbers before it.
        let mut before = self.stride - 1 - self.next;
        for (&count, &place) in counts.iter().zip(one_of) {
            // As many as the bucket can have; those that it does not have are the next one's.
            let pick = before >> shift;
            places[pick..pick + REPEATS].copy_from_slice(&[place; REPEATS]);
            before += usize::from(count);
        }
    }

    /// The place that stands for each pick, but for those in crowded buckets; and these buckets.
    fn walk(&self, buckets: usize, scratch: &mut Scratch) -> Vec<Crowded> {
        let (counts, one_of) = (&scratch.counts[..buckets], &scratch.one_of[..buckets]);
        let places = room_for_picks(&mut scratch.places, scratch.digits.len() / self.stride);
        let (ends, mixed) = (&mut scratch.ends[..buckets], &scratch.mixed[..buckets]);
        let shift = self.stride.trailing_zeros();
        let (mut crowded, mut start) = (Vec::new(), 0);
        let first = self.stride - 1 - self.next;
        let mut before = first;
        for (bucket, (&count, &place)) in counts.iter().zip(one_of).enumerate() {
            let pick = before >> shift;
            if count <= self.few {
                places[pick..pick + REPEATS].copy_from_slice(&[place; REPEATS]);
                before += usize::from(count);
                continue;
            }
            let len = usize::from(ends[bucket]);
            if mixed[bucket] {
                let next = self.next + pick * self.stride - (before - first);
                // Those without a pick need not be told apart.
                crowded.extend((next < len).then_some(Crowded { start, len, pick, next }));
                ends[bucket] = start as u16;
                start += len;
            } else {
                places[pick..(before + len) >> shift].fill(place);
            }
            before += len;
        }
        crowded
    }

    /// The picks among numbers that are in order.
    fn take<T: Real<Key = K>>(&mut self, values: &[T]) {
        while let Some(value) = values.get(self.next) {
            self.picked.push(value.to_key());
            self.next += self.stride;
        }
        self.next -= values.len();
    }
}

/// Room for so many picks and one more, and for those that a bucket notes in vain.
fn room_for_picks(places: &mut Vec<u16>, picks: usize) -> &mut [u16] {
    places.clear();
    places.resize(picks + 1 + REPEATS, 0);
    places
}

impl Scratch {
    /// Counts the numbers of each bucket and notes the last or first of them.
    fn count(&mut self, buckets: usize, last: bool) {
        let Self { digits, counts, one_of, .. } = self;
        counts.resize(TABLE, 0);
        one_of.resize(TABLE, 0);
        counts[..buckets].fill(0);
        let (Some(counts), Some(one_of)) = (counts.first_chunk_mut::<TABLE>(), one_of.first_chunk_mut::<TABLE>())
        else {
            return;
        };
        let digits = digits.as_slice();
        let mut visit = |at: usize| {
            let bucket = usize::from(digits[at]) % TABLE;
            counts[bucket] = counts[bucket].saturating_add(1);
            // Chunks are not longer than 2^15.
            one_of[bucket] = at as u16;
        };
        if last {
            return interleaved(digits.len(), visit);
        }
        let end = digits.len().saturating_sub(1);
        interleaved(digits.len(), |at| visit(end - at));
    }

    /// Finds the numbers of buckets that hold more than `few`: how many each holds, and whether they differ.
    fn gather<T: Real>(&mut self, values: &[T], few: u8, buckets: usize) {
        let Self { digits, counts, one_of, crowd, ends, mixed, .. } = self;
        let (digits, counts, one_of) = (digits.as_slice(), &counts[..buckets], &one_of[..buckets]);
        crowd.resize(digits.len(), 0);
        let mut found = 0;
        for (at, &digit) in digits.iter().enumerate() {
            // Without a branch, which could not be foreseen.
            crowd[found] = at as u16;
            found += usize::from(counts[usize::from(digit)] > few);
        }
        crowd.truncate(found);
        ends.clear();
        ends.resize(buckets, 0);
        mixed.clear();
        mixed.resize(buckets, false);
        for place in crowd.iter().map(|&place| usize::from(place)) {
            let bucket = usize::from(digits[place]);
            ends[bucket] += 1;
            mixed[bucket] |= values[place] != values[usize::from(one_of[bucket])];
        }
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
