//! What a target hands back to the samples that it was made of.

use super::area::Area;
use super::cells::{Cell, Number};
use super::cpu::Job;
use super::row::Row;
use super::vjp;
use crate::ops::align::Real;
use crate::ops::align::{Method, Stamp};

/// The four samples of a target on a curve, the gaps beside its own in units of that, and its weight.
struct Curve<T> {
    at: [usize; 4],
    before: T,
    behind: T,
    weight: T,
}

/// Reads numbers that lie `stride` apart; side by side in vectors.
///
/// # Safety
/// All of them must be there.
#[inline(always)]
unsafe fn read<C: Cell>(from: *const C, stride: isize, numbers: &mut [C::Sum]) {
    // SAFETY: the caller's promise.
    unsafe {
        if stride == 1 {
            for (c, number) in numbers.iter_mut().enumerate() {
                *number = (*from.add(c)).widen();
            }
        } else {
            for (c, number) in numbers.iter_mut().enumerate() {
                *number = (*from.offset(c as isize * stride)).widen();
            }
        }
    }
}

impl<S: Stamp, C: Cell> Job<'_, S, C> {
    /// Adds what a target hands back to its samples.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined, and the loop around it has all of them")]
    pub(super) fn hand_back(
        &self,
        index: usize,
        row: &Row<S, C::Sum>,
        target: usize,
        (first, second): (usize, usize),
        weight: C::Sum,
        area: &Area,
        sums: &mut [C::Sum],
    ) {
        let one = first == second;
        match self.rules.method {
            Method::Slerp => {
                for column in (area.left..area.right).step_by(4) {
                    let grad = self.grads::<4>(index, target, column);
                    let a = self.samples::<4>(index, first, column);
                    if one {
                        area.put(first, column, vjp::normal(a, grad), sums);
                        continue;
                    }
                    let b = self.samples::<4>(index, second, column);
                    let [to_first, to_second] = vjp::slerp(a, b, weight, grad);
                    area.put(first, column, to_first, sums);
                    area.put(second, column, to_second, sums);
                }
            }
            Method::Rot6d => {
                for column in (area.left..area.right).step_by(6) {
                    let grad = self.grads::<6>(index, target, column);
                    let a = self.samples::<6>(index, first, column);
                    if one {
                        area.put(first, column, vjp::orthonormal(a, grad), sums);
                        continue;
                    }
                    let b = self.samples::<6>(index, second, column);
                    let blended = std::array::from_fn(|i| weight.mul_add(b[i] - a[i], a[i]));
                    let handed = vjp::orthonormal(blended, grad);
                    area.put(first, column, handed.map(|x| weight.rest() * x), sums);
                    area.put(second, column, handed.map(|x| weight * x), sums);
                }
            }
            Method::Cubic if !one && weight > C::Sum::ZERO && weight < C::Sum::ONE => {
                let (stamps, gap) = (&row.stamps, S::gap(row.stamps.at(first), row.stamps.at(second)));
                let (earlier, later) = (row.before(first), row.after(second));
                // 0 where there is no further sample.
                let before = C::Sum::of(S::gap(stamps.at(earlier), stamps.at(first)) / gap);
                let behind = C::Sum::of(S::gap(stamps.at(second), stamps.at(later)) / gap);
                let curve = Curve { at: [earlier, first, second, later], before, behind, weight };
                let mut left = area.left;
                // The same twice, for a number of columns that the compiler knows.
                while left + vjp::COLUMNS <= area.right {
                    self.hand_back_curve(index, target, &curve, (left, vjp::COLUMNS), area, sums);
                    left += vjp::COLUMNS;
                }
                if left < area.right {
                    self.hand_back_curve(index, target, &curve, (left, area.right - left), area, sums);
                }
            }
            _ if one => self.add(index, target, first, C::Sum::ONE, area, sums),
            _ => {
                self.add(index, target, first, weight.rest(), area, sums);
                self.add(index, target, second, weight, area, sums);
            }
        }
    }

    /// Adds what a target on a curve hands back to its four samples, in some columns: the first, and how many.
    #[inline(always)]
    fn hand_back_curve(
        &self,
        index: usize,
        target: usize,
        curve: &Curve<C::Sum>,
        (left, width): (usize, usize),
        area: &Area,
        sums: &mut [C::Sum],
    ) {
        let mut samples = [[C::Sum::ZERO; vjp::COLUMNS]; 4];
        let mut grad = [C::Sum::ZERO; vjp::COLUMNS];
        for (sample, numbers) in curve.at.into_iter().zip(&mut samples) {
            self.read_samples(index, sample, left, &mut numbers[..width]);
        }
        self.read_grads(index, target, left, &mut grad[..width]);
        let factors = vjp::cubics(&samples, curve.before, curve.behind, curve.weight);
        for (sample, factors) in curve.at.into_iter().zip(&factors) {
            let Some(sums) = area.of_sample(sample, sums) else { continue };
            let sums = &mut sums[left - area.left..][..width];
            for ((sum, &factor), &grad) in sums.iter_mut().zip(factors).zip(&grad) {
                // A sample of weight 0 does not matter, not even where the gradient is NaN.
                *sum = if factor != C::Sum::ZERO { *sum + factor * grad } else { *sum };
            }
        }
    }

    /// Neighbouring numbers of the gradient.
    #[inline(always)]
    fn grads<const N: usize>(&self, row: usize, target: usize, column: usize) -> [C::Sum; N] {
        let mut numbers = [C::Sum::ZERO; N];
        self.read_grads(row, target, column, &mut numbers);
        numbers
    }

    /// Neighbouring numbers of a sample.
    #[inline(always)]
    fn samples<const N: usize>(&self, row: usize, sample: usize, column: usize) -> [C::Sum; N] {
        let mut numbers = [C::Sum::ZERO; N];
        self.read_samples(row, sample, column, &mut numbers);
        numbers
    }

    /// As many neighbouring numbers of the gradient as there is room for.
    #[inline(always)]
    fn read_grads(&self, row: usize, target: usize, column: usize, numbers: &mut [C::Sum]) {
        let [batch, step, stride] = self.dims.grad_strides;
        let start = row as isize * batch + target as isize * step + column as isize * stride;
        // SAFETY: row < batch, target < T and columns < D, for which `check` proved the strides.
        unsafe { read(self.grad.offset(start), stride, numbers) }
    }

    /// The same of a sample.
    #[inline(always)]
    fn read_samples(&self, row: usize, sample: usize, column: usize, numbers: &mut [C::Sum]) {
        let [batch, step, stride] = self.dims.forward.value_strides;
        let start = row as isize * batch + sample as isize * step + column as isize * stride;
        // SAFETY: row < batch, sample < S and columns < D, for which `check` proved the strides; only
        // called for methods that read values, which must be there for them.
        unsafe { read(self.values.offset(start), stride, numbers) }
    }

    /// Adds the gradient of a target, times `factor`, to a sample, if that is in the area.
    #[inline(always)]
    fn add(&self, row: usize, target: usize, sample: usize, factor: C::Sum, area: &Area, sums: &mut [C::Sum]) {
        let Some(sums) = area.of_sample(sample, sums) else {
            return;
        };
        let [batch, step, column] = self.dims.grad_strides;
        // SAFETY: row < batch, target < T and columns < D, for which `check` proved the strides.
        unsafe {
            let grad = self.grad.offset(row as isize * batch + target as isize * step + area.left as isize * column);
            if column == 1 {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = factor.mul_add((*grad.add(c)).widen(), *sum);
                }
            } else {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = factor.mul_add((*grad.offset(c as isize * column)).widen(), *sum);
                }
            }
        }
    }
}
