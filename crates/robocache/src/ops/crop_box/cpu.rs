//! `crop_box` on the host.

use std::ops::Range;

use super::{CropBox, Targets};
use crate::cpu::{Shared, for_each, vectorized};
use crate::ops::cloud::{BLOCK, Cloud, Points, PointsMut};
use crate::ops::scalar::{Real, Scalar, with_float};
use crate::{Context, Outputs, Result};

/// Points of a task.
const PART: usize = 16 << 10;

pub(super) fn crop(op: &CropBox<'_>, cloud: &Cloud, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    let targets = Targets::new(op, out);
    with_float!(op.points.dtype(), with_points, op, cloud, &targets, context)
}

/// A box and the points that may lie in it.
struct Finder<'a, T: Scalar> {
    op: &'a CropBox<'a>,
    cloud: &'a Cloud,
    points: Points<T>,
    low: [T::Compute; 3],
    high: [T::Compute; 3],
}

/// What is done with the points of a part, block by block.
trait Visitor {
    /// Points from `first` on; 1 for those that lie inside.
    fn visit(&mut self, first: usize, inside: &[u8]);
}

fn with_points<T: Scalar>(op: &CropBox<'_>, cloud: &Cloud, targets: &Targets, context: &Context<'_>) -> Result<()> {
    let [low, high] = [op.low, op.high].map(|corner| corner.map(T::Compute::from_f64));
    let finder = Finder { op, cloud, points: Points::<T>::new(&op.points, cloud), low, high };
    if op.compact {
        return compact(&finder, targets, context);
    }
    let (mask, [row_step, step]) = (Shared(targets.mask), targets.mask_strides);
    finder.for_each_part(context, &|_, row, range| {
        let mut mask = Mask { start: mask.get().wrapping_offset(row as isize * row_step), step };
        finder.visit(row, range, &mut mask);
    })
}

struct Mask {
    start: *mut u8,
    step: isize,
}

impl Visitor for Mask {
    #[inline(always)]
    fn visit(&mut self, first: usize, inside: &[u8]) {
        // SAFETY: the points exist in the mask; no other task writes them.
        unsafe {
            if self.step == 1 {
                self.start.add(first).copy_from_nonoverlapping(inside.as_ptr(), inside.len());
            } else {
                for (at, &within) in (first..).zip(inside) {
                    *self.start.offset(at as isize * self.step) = within;
                }
            }
        }
    }
}

/// Points are counted in parts, then each part is written behind those before it.
fn compact<T: Scalar>(finder: &Finder<'_, T>, targets: &Targets, context: &Context<'_>) -> Result<()> {
    let (batch, parts) = (finder.cloud.batch, finder.parts());
    let mut places = vec![0usize; batch * parts];
    let counted = Shared(places.as_mut_ptr());
    finder.for_each_part(context, &|task, row, range| {
        let mut counter = Counter(0);
        finder.visit(row, range, &mut counter);
        // SAFETY: each task has a number of its own.
        unsafe { *counted.get().add(task) = counter.0 };
    })?;
    let mut kept = vec![0; batch];
    for (places, kept) in places.chunks_exact_mut(parts).zip(&mut kept) {
        for place in places {
            *kept += std::mem::replace(place, *kept);
        }
    }
    let out = PointsMut::<T>::new(targets.out, targets.out_strides);
    let (index, [index_row, index_step]) = (Shared(targets.index), targets.index_strides);
    finder.for_each_part(context, &|task, row, range| {
        let index = index.get().wrapping_offset(row as isize * index_row);
        let mut mover = Mover { points: &finder.points, out: &out, row, next: places[task], index, index_step };
        finder.visit(row, range.clone(), &mut mover);
        // What lies behind the last of a row is written by those whose part it is.
        for slot in range.start.max(kept[row])..range.end {
            mover.set(slot, [T::narrow(f64::NAN); 3], -1);
        }
    })?;
    for (row, &kept) in kept.iter().enumerate() {
        // SAFETY: the row exists.
        unsafe { *targets.kept.offset(row as isize * targets.kept_stride) = kept as i64 };
    }
    Ok(())
}

struct Counter(usize);

impl Visitor for Counter {
    #[inline(always)]
    fn visit(&mut self, _: usize, inside: &[u8]) {
        self.0 += inside.iter().map(|&within| usize::from(within)).sum::<usize>();
    }
}

struct Mover<'a, T: Scalar> {
    points: &'a Points<T>,
    out: &'a PointsMut<T>,
    row: usize,
    next: usize,
    index: *mut i64,
    index_step: isize,
}

impl<T: Scalar> Mover<'_, T> {
    #[inline(always)]
    fn set(&mut self, slot: usize, point: [T; 3], from: i64) {
        // SAFETY: the slot exists in both, and no other task writes it.
        unsafe {
            self.out.set(self.row, slot, point);
            *self.index.offset(slot as isize * self.index_step) = from;
        }
    }
}

impl<T: Scalar> Visitor for Mover<'_, T> {
    #[inline(always)]
    fn visit(&mut self, first: usize, inside: &[u8]) {
        // Which of them lie inside, without a branch to guess wrong.
        let (mut lanes, mut count) = ([0u8; BLOCK], 0);
        for (lane, &within) in (0u8..).zip(inside) {
            lanes[count % BLOCK] = lane;
            count += usize::from(within);
        }
        for &lane in &lanes[..count] {
            let at = first + usize::from(lane);
            // SAFETY: the row and the point exist.
            let point = unsafe { self.points.at(self.row, at) };
            self.set(self.next, point.map(|number| T::narrow(number.into())), at as i64);
            self.next += 1;
        }
    }
}

impl<T: Scalar> Finder<'_, T> {
    fn parts(&self) -> usize {
        self.cloud.count.div_ceil(PART).max(1)
    }

    /// Calls `body(task, row, points)` on all cores.
    fn for_each_part(&self, context: &Context<'_>, body: &(dyn Fn(usize, usize, Range<usize>) + Sync)) -> Result<()> {
        let parts = self.parts();
        for_each(self.cloud.batch * parts, context, &|task| {
            let (row, first) = (task / parts, task % parts * PART);
            body(task, row, first..(first + PART).min(self.cloud.count));
        })
    }

    fn visit(&self, row: usize, range: Range<usize>, visitor: &mut impl Visitor) {
        let length = self.cloud.length(self.op.lengths, row);
        // SAFETY: the row and the points exist.
        unsafe { visit_part(self, row, range, length, visitor) };
    }
}

vectorized! {
    /// # Safety
    /// The row and the points must exist.
    unsafe fn visit_part[T: Scalar, V: Visitor](
        finder: &Finder<'_, T>,
        row: usize,
        range: Range<usize>,
        length: usize,
        visitor: &mut V,
    ) {
        let mut block = [[T::Compute::from_f64(0.0); BLOCK]; 3];
        for first in range.clone().step_by(BLOCK) {
            let end = (first + BLOCK).min(range.end);
            // SAFETY: the caller's promise.
            unsafe { finder.points.read(row, first, end, &mut block) };
            let mut inside = [1u8; BLOCK];
            for (axis, numbers) in block.iter().enumerate() {
                let (low, high) = (finder.low[axis], finder.high[axis]);
                for (inside, &number) in inside.iter_mut().zip(numbers) {
                    *inside &= u8::from((number >= low) & (number < high));
                }
            }
            inside[length.saturating_sub(first).min(BLOCK)..].fill(0);
            visitor.visit(first, &inside[..end - first]);
        }
    }
}
