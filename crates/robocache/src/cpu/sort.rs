//! A stable radix sort on all cores. Twin of `kernels/sort.cu`.

use super::pool::{for_each, is_worth_sharing, threads};
use crate::{Context, Result};

/// What is sorted, and where it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) index: u64,
}

const DIGIT: u32 = 8;
const DIGITS: usize = 1 << DIGIT;

/// Sorts by the lower `bits` of the keys; pairs of equal keys keep their order. `other` is as long
/// as `pairs`. Tells which of the two holds the result: `true` for `other`.
pub(crate) fn sort(pairs: &mut [Pair], other: &mut [Pair], bits: u32, context: &Context<'_>) -> Result<bool> {
    let count = pairs.len().min(other.len());
    let shared = is_worth_sharing(count * size_of::<Pair>());
    let tasks = if shared { threads().max(1) * 2 } else { 1 };
    let chunk = count.div_ceil(tasks).max(1);
    let mut places = vec![[0usize; DIGITS]; tasks];
    let passes = bits.div_ceil(DIGIT);
    for pass in 0..passes {
        let shift = pass * DIGIT;
        let (from, to) = if pass % 2 == 0 { (&*pairs, &mut *other) } else { (&*other, &mut *pairs) };
        let chunk_of = |task: usize| &from[(task * chunk).min(count)..((task + 1) * chunk).min(count)];
        let digit = |pair: &Pair| (pair.key >> shift) as usize % DIGITS;
        let table = Shared(places.as_mut_ptr());
        let count_digits = |task: usize| {
            // SAFETY: each task has a row of its own.
            let own = unsafe { &mut *table.get().add(task) };
            own.fill(0);
            for pair in chunk_of(task) {
                own[digit(pair)] += 1;
            }
        };
        for_each(tasks, context, &count_digits)?;
        let mut next = 0;
        for digit in 0..DIGITS {
            for row in &mut places {
                next += std::mem::replace(&mut row[digit], next);
            }
        }
        let (table, target) = (Shared(places.as_mut_ptr()), Shared(to.as_mut_ptr()));
        let deal = |task: usize| {
            // SAFETY: as above; the counted places of all tasks are different and within `to`.
            unsafe {
                let own = &mut *table.get().add(task);
                for pair in chunk_of(task) {
                    let place = &mut own[digit(pair)];
                    *target.get().add(*place) = *pair;
                    *place += 1;
                }
            }
        };
        for_each(tasks, context, &deal)?;
    }
    Ok(passes % 2 == 1)
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

    fn check(keys: &[u64], bits: u32) {
        let mut pairs: Vec<_> = (0u64..).zip(keys).map(|(index, &key)| Pair { key, index }).collect();
        let mut want = pairs.clone();
        want.sort_by_key(|pair| pair.key);
        let mut other = vec![Pair::default(); pairs.len()];
        let swapped = sort(&mut pairs, &mut other, bits, &Context::default()).unwrap();
        assert_eq!(if swapped { other } else { pairs }, want);
    }

    #[test]
    fn pairs_are_sorted_and_equal_ones_keep_their_order() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for count in [0, 1, 2, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 70_000] {
            for bits in [1, 7, 8, 9, 23, 44] {
                let keys: Vec<_> = (0..count).map(|_| random() % (1u64 << bits)).collect();
                check(&keys, bits);
            }
            check(&vec![5; count], 8);
        }
    }
}
