//! A stable radix sort on all cores. Twin of `kernels/sort.cu`.

use super::pool::{for_each, is_worth_sharing, threads};
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
/// Up to so many items, comparing them is faster than counting digits.
const FEW: usize = 1024;

/// Sorts by key; equal keys keep their order, given that indices ascend. `other` is as long as `items`.
/// Tells which of the two holds the result: `true` for `other`.
pub(crate) fn sort<I: Item>(items: &mut [I], other: &mut [I], packing: Packing, context: &Context<'_>) -> Result<bool> {
    let count = items.len().min(other.len());
    if count <= FEW {
        items.sort_unstable_by_key(|item| (item.key(packing), item.index(packing)));
        return Ok(false);
    }
    let shared = is_worth_sharing(count * size_of::<I>());
    let tasks = if shared { threads().max(1) * 2 } else { 1 };
    let chunk = count.div_ceil(tasks).max(1);
    let mut places = vec![[0usize; DIGITS]; tasks];
    let passes = packing.key_bits.div_ceil(DIGIT);
    let width = packing.key_bits.div_ceil(passes.max(1));
    let digits = 1 << width;
    let mut swapped = false;
    for pass in 0..passes {
        let shift = pass * width;
        let (from, to) = if swapped { (&*other, &mut *items) } else { (&*items, &mut *other) };
        let chunk_of = |task: usize| &from[(task * chunk).min(count)..((task + 1) * chunk).min(count)];
        let digit = |item: I| (item.key(packing) >> shift) as usize & (digits - 1);
        let table = Shared(places.as_mut_ptr());
        let count_digits = |task: usize| {
            // SAFETY: each task has a row of its own.
            let own = unsafe { &mut *table.get().add(task) };
            own.fill(0);
            for &item in chunk_of(task) {
                own[digit(item)] += 1;
            }
        };
        for_each(tasks, context, &count_digits)?;
        // A digit that all keys share orders nothing.
        let first = digit(from[0]);
        if places.iter().map(|row| row[first]).sum::<usize>() == count {
            continue;
        }
        let mut next = 0;
        for digit in 0..digits {
            for row in &mut places {
                next += std::mem::replace(&mut row[digit], next);
            }
        }
        let (table, target) = (Shared(places.as_mut_ptr()), Shared(to.as_mut_ptr()));
        let deal = |task: usize| {
            // SAFETY: as above; the counted places of all tasks are different and within `to`.
            unsafe {
                let own = &mut *table.get().add(task);
                for &item in chunk_of(task) {
                    let place = &mut own[digit(item)];
                    *target.get().add(*place) = item;
                    *place += 1;
                }
            }
        };
        for_each(tasks, context, &deal)?;
        swapped = !swapped;
    }
    Ok(swapped)
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
        for count in [0, 1, 2, 15, 16, 17, 127, 128, 129, 1024, 1025, 4095, 4096, 4097, 70_000] {
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
