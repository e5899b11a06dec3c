//! A stable radix sort on all cores. Twin of `kernels/sort.cu`.

use super::pool::{for_each, is_worth_sharing, threads};
use super::simd::vectorized;
use crate::{Context, Result};

/// A key that is sorted, and where it was.
pub(crate) trait Item: Copy + Default + Send + Sync {
    fn new(key: u64, index: u64, packing: Packing) -> Self;
    fn key(self, packing: Packing) -> u64;
    fn index(self, packing: Packing) -> u64;
}

/// Both in one number, the key above: half the memory to move.
impl Item for u64 {
    #[inline(always)]
    fn new(key: u64, index: u64, packing: Packing) -> Self {
        key << packing.index_bits | index
    }
    #[inline(always)]
    fn key(self, packing: Packing) -> u64 {
        self >> packing.index_bits
    }
    #[inline(always)]
    fn index(self, packing: Packing) -> u64 {
        self & ((1 << packing.index_bits) - 1)
    }
}

/// For keys and indices that do not fit one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Pair {
    key: u64,
    index: u64,
}

impl Item for Pair {
    #[inline(always)]
    fn new(key: u64, index: u64, _: Packing) -> Self {
        Self { key, index }
    }
    #[inline(always)]
    fn key(self, _: Packing) -> u64 {
        self.key
    }
    #[inline(always)]
    fn index(self, _: Packing) -> u64 {
        self.index
    }
}

/// How many bits keys and indices have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing {
    key_bits: u32,
    index_bits: u32,
}

impl Packing {
    /// For `count` keys of which none is greater than `most`.
    pub(crate) fn new(count: usize, most: u64) -> Self {
        // At most 63, so that a shift by it is one.
        let index_bits = usize::BITS - count.saturating_sub(1).leading_zeros();
        Self { key_bits: u64::BITS - most.leading_zeros(), index_bits: index_bits.min(63) }
    }

    /// Whether a number holds both.
    pub(crate) fn fits(self) -> bool {
        self.key_bits + self.index_bits <= u64::BITS
    }

    /// Bytes of an item.
    pub(crate) fn item_bytes(self) -> usize {
        if self.fits() { size_of::<u64>() } else { size_of::<Pair>() }
    }
}

/// Calls `$function::<I>(..)` with the items of a packing.
macro_rules! with_item {
    ($packing:expr, $function:ident $(::<$($more:ty),+>)?, $($argument:expr),* $(,)?) => {
        if $packing.fits() {
            $function::<u64 $(, $($more),+)?>($($argument),*)
        } else {
            $function::<$crate::cpu::Pair $(, $($more),+)?>($($argument),*)
        }
    };
}
pub(crate) use with_item;

/// The most bits of a digit: as many streams are written at once, and their lines should fit the first cache.
const DIGIT: u32 = 9;
const DIGITS: usize = 1 << DIGIT;
/// As above, within a bucket.
const NEAR_DIGIT: u32 = 9;
const NEAR_DIGITS: usize = 1 << NEAR_DIGIT;
/// Up to so many items, comparing them is faster than counting digits.
const FEW: usize = 1024;
/// As above, within a bucket.
const NEAR_FEW: usize = 32;
/// Fewer items than this are not dealt into buckets.
const MANY: usize = 32 << 10;

/// Sorts by key; equal keys keep their order, given that indices ascend. `other` is as long as `items`.
/// Tells which of the two holds the result: `true` for `other`.
pub(crate) fn sort<I: Item>(items: &mut [I], other: &mut [I], packing: Packing, context: &Context<'_>) -> Result<bool> {
    let count = items.len().min(other.len());
    let (items, other) = (&mut items[..count], &mut other[..count]);
    if count <= FEW {
        items.sort_unstable_by_key(|item| (item.key(packing), item.index(packing)));
        return Ok(false);
    }
    let shared = is_worth_sharing(count * size_of::<I>());
    let mut places = vec![[0usize; DIGITS]; if shared { threads().max(1) * 2 } else { 1 }];
    if count >= MANY && packing.key_bits > DIGIT && u32::try_from(count).is_ok() {
        let top = Digit { shift: packing.key_bits - DIGIT, width: DIGIT };
        count_digits(items, &mut places, packing, top, context)?;
        let largest = (0..DIGITS).map(|digit| places.iter().map(|row| row[digit]).sum::<usize>()).max();
        // A crowd is shared by all threads below, and would be sorted by one here.
        if largest.is_some_and(|largest| largest <= count / (2 * threads())) {
            deal(items, other, &mut places, packing, top, context)?;
            return sort_buckets(other, items, &places, packing, top.shift, context);
        }
    }
    let passes = packing.key_bits.div_ceil(DIGIT);
    let width = packing.key_bits.div_ceil(passes.max(1));
    let mut swapped = false;
    for pass in 0..passes {
        let digit = Digit { shift: pass * width, width };
        let (from, to) = if swapped { (&*other, &mut *items) } else { (&*items, &mut *other) };
        count_digits(from, &mut places, packing, digit, context)?;
        // A digit that all keys share orders nothing.
        let first = digit.of(from[0], packing);
        if places.iter().map(|row| row[first]).sum::<usize>() == count {
            continue;
        }
        deal(from, to, &mut places, packing, digit, context)?;
        swapped = !swapped;
    }
    Ok(swapped)
}

/// Some bits of a key.
#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    width: u32,
}

impl Digit {
    #[inline(always)]
    fn of<I: Item>(self, item: I, packing: Packing) -> usize {
        (item.key(packing) >> self.shift) as usize & ((1 << self.width) - 1)
    }
}

/// The items of a task, of so many tasks.
fn chunk_of<I>(items: &[I], task: usize, tasks: usize) -> &[I] {
    let chunk = items.len().div_ceil(tasks).max(1);
    &items[(task * chunk).min(items.len())..((task + 1) * chunk).min(items.len())]
}

/// Counts the digits of all items, in a row for each task.
fn count_digits<I: Item>(
    items: &[I],
    places: &mut [[usize; DIGITS]],
    packing: Packing,
    digit: Digit,
    context: &Context<'_>,
) -> Result<()> {
    let (tasks, table) = (places.len(), Shared(places.as_mut_ptr()));
    for_each(tasks, context, &|task| {
        // SAFETY: each task has a row of its own.
        unsafe { count_part(chunk_of(items, task, tasks), &mut *table.get().add(task), packing, digit) };
    })
}

vectorized! {
    /// # Safety
    /// Nothing is asked for: unsafe as all that is compiled for instruction sets.
    unsafe fn count_part[I: Item](items: &[I], counts: &mut [usize; DIGITS], packing: Packing, digit: Digit) {
        counts.fill(0);
        for &item in items {
            counts[digit.of(item, packing)] += 1;
        }
    }
}

/// Moves items to where their counted digits say; `places` then holds where the items of each task end.
fn deal<I: Item>(
    items: &[I],
    to: &mut [I],
    places: &mut [[usize; DIGITS]],
    packing: Packing,
    digit: Digit,
    context: &Context<'_>,
) -> Result<()> {
    let mut next = 0;
    for digit in 0..1 << digit.width {
        for row in &mut *places {
            next += std::mem::replace(&mut row[digit], next);
        }
    }
    let (tasks, table, target) = (places.len(), Shared(places.as_mut_ptr()), Shared(to.as_mut_ptr()));
    for_each(tasks, context, &|task| {
        // SAFETY: each task has a row of its own; the counted places of all tasks are different and within `to`.
        unsafe {
            let own = &mut *table.get().add(task);
            deal_part(chunk_of(items, task, tasks), target.get(), own, packing, digit);
        }
    })
}

vectorized! {
    /// # Safety
    /// The places must be counted, and be within `to`, where nobody else uses them.
    unsafe fn deal_part[I: Item](items: &[I], to: *mut I, places: &mut [usize; DIGITS], packing: Packing, digit: Digit) {
        for &item in items {
            let place = &mut places[digit.of(item, packing)];
            // SAFETY: the caller's promise.
            unsafe { *to.add(*place) = item };
            *place += 1;
        }
    }
}

/// Sorts what was dealt by the digit above so many `bits`, bucket by bucket: most are small enough for a
/// core's cache, so that the other passes do not go through memory. Tells whether the result is in `dealt`.
fn sort_buckets<I: Item>(
    dealt: &mut [I],
    other: &mut [I],
    places: &[[usize; DIGITS]],
    packing: Packing,
    bits: u32,
    context: &Context<'_>,
) -> Result<bool> {
    let passes = bits.div_ceil(NEAR_DIGIT);
    let width = bits.div_ceil(passes.max(1));
    // The last task's items of a digit end where the next digit begins.
    let ends = &places[places.len() - 1];
    let (first, second) = (Shared(dealt.as_mut_ptr()), Shared(other.as_mut_ptr()));
    for_each(DIGITS, context, &|digit| {
        let start = digit.checked_sub(1).map_or(0, |before| ends[before]);
        // SAFETY: buckets lie side by side within both, and each is sorted by one task.
        let (bucket, spare) = unsafe {
            let length = ends[digit] - start;
            (
                std::slice::from_raw_parts_mut(first.get().add(start), length),
                std::slice::from_raw_parts_mut(second.get().add(start), length),
            )
        };
        // SAFETY: nothing is asked for.
        unsafe { sort_bucket(bucket, spare, packing, passes, width) };
    })?;
    Ok(passes.is_multiple_of(2))
}

vectorized! {
    /// Sorts by the lower `passes * width` bits of keys; into `spare` where the passes are odd.
    ///
    /// # Safety
    /// Nothing is asked for, as above.
    unsafe fn sort_bucket[I: Item](bucket: &mut [I], spare: &mut [I], packing: Packing, passes: u32, width: u32) {
        if bucket.len() <= NEAR_FEW {
            bucket.sort_unstable_by_key(|item| (item.key(packing), item.index(packing)));
            if !passes.is_multiple_of(2) {
                spare.copy_from_slice(bucket);
            }
            return;
        }
        let (mut from, mut to) = (bucket, spare);
        for pass in 0..passes {
            let digit = Digit { shift: pass * width, width };
            // Of 32 bits, to clear and to add up less; `sort` deals no more items than they can count.
            let mut places = [0u32; NEAR_DIGITS];
            for &item in &*from {
                places[digit.of(item, packing)] += 1;
            }
            let mut next = 0;
            for place in &mut places[..1 << width] {
                next += std::mem::replace(place, next);
            }
            for &item in &*from {
                let place = &mut places[digit.of(item, packing)];
                to[*place as usize] = item;
                *place += 1;
            }
            std::mem::swap(&mut from, &mut to);
        }
    }
}

/// A pointer that several threads write through, each to places of its own.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

// SAFETY: whoever makes one promises that threads do not meet.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// The pointer; a method, so that closures take the whole and not its field.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<I: Item>(keys: &[u64], most: u64) {
        let packing = Packing::new(keys.len(), most);
        let mut want: Vec<_> = (0u64..).zip(keys).map(|(index, &key)| (key, index)).collect();
        let mut items: Vec<_> = want.iter().map(|&(key, index)| I::new(key, index, packing)).collect();
        want.sort_by_key(|pair| pair.0);
        let mut other = vec![I::default(); items.len()];
        let swapped = sort(&mut items, &mut other, packing, &Context::default()).unwrap();
        let sorted = if swapped { other } else { items };
        let got: Vec<_> = sorted.iter().map(|item| (item.key(packing), item.index(packing))).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn keys_are_sorted_and_equal_ones_keep_their_order() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for count in [0, 1, 2, 15, 16, 17, 127, 128, 129, 1024, 1025, 4095, 4096, 4097, 32_768, 70_000] {
            for bits in [1, 7, 8, 9, 10, 18, 19, 23, 44] {
                let most = (1u64 << bits) - 1;
                let keys: Vec<_> = (0..count).map(|_| random() & most).collect();
                check::<u64>(&keys, most);
                check::<Pair>(&keys, most);
            }
            // A digit that all share, below and above one that they do not.
            let keys: Vec<_> = (0..count).map(|_| ((random() % 400) << 9) | (5 << 20) | 3).collect();
            check::<u64>(&keys, 1 << 24);
            check::<u64>(&vec![5; count], 255);
            // Buckets of very different sizes, some of them empty.
            let keys: Vec<_> =
                (0..count).map(|at| if at % 4 == 0 { random() % (1 << 23) } else { 1 << (at % 23) }).collect();
            check::<u64>(&keys, 1 << 23);
            check::<Pair>(&keys, 1 << 23);
            // Half of the buckets full, a few items in some of the others; odd and even passes within them.
            for bits in [10, 18, 26] {
                let keys: Vec<_> = (0..count)
                    .map(|at| {
                        let top = if at % 1000 == 0 { 256 + random() % 200 } else { random() % 256 };
                        (top << (bits - 9)) | (random() % (1 << (bits - 9)))
                    })
                    .collect();
                check::<u64>(&keys, 1 << bits);
                check::<Pair>(&keys, (1 << bits) - 1);
            }
            let wide: Vec<_> = (0..count).map(|_| random() << 19).collect();
            check::<Pair>(&wide, u64::MAX);
        }
    }

    #[test]
    fn a_number_holds_key_and_index_where_their_bits_fit() {
        assert!(Packing::new(1 << 20, (1 << 44) - 1).fits());
        assert!(!Packing::new((1 << 20) + 1, (1 << 44) - 1).fits());
        assert!(Packing::new(1, u64::MAX).fits());
        assert!(!Packing::new(2, u64::MAX).fits());
        assert!(Packing::new(0, 0).fits());
    }
}
