//! Tensors of the host, copied in row-major order to and from where a GPU fetches them.

use std::ops::Range;

use crate::tensor::{Layout, TensorMut, TensorRef};
use crate::{Context, Result, cpu};

/// Bytes that a task copies.
const TASK: usize = 1 << 20;

/// Elements side by side in both places, and how many runs of them there are.
struct Runs<'a> {
    layout: &'a Layout,
    /// Axes that are walked; those behind lie side by side.
    outer: usize,
    /// Elements of a run.
    length: usize,
    count: usize,
}

impl<'a> Runs<'a> {
    fn of(layout: &'a Layout) -> Self {
        let (shape, strides) = (layout.shape(), layout.strides());
        let (mut outer, mut length) = (shape.len(), 1usize);
        while outer > 0 && (shape[outer - 1] == 1 || strides[outer - 1] == length as isize) {
            length *= shape[outer - 1];
            outer -= 1;
        }
        Self { layout, outer, length, count: shape[..outer].iter().product() }
    }

    /// Where a run begins in the tensor, in elements.
    fn offset(&self, mut run: usize) -> isize {
        let mut offset = 0;
        for axis in (0..self.outer).rev() {
            let size = self.layout.shape()[axis];
            offset += (run % size) as isize * self.layout.strides()[axis];
            run /= size;
        }
        offset
    }

    /// Calls `copy` with the places, in bytes, of pieces in the tensor and in row-major order, and their length: on all
    /// cores where there is much.
    fn each(&self, size: usize, copy: impl Fn(isize, usize, usize) + Sync) -> Result<()> {
        let bytes = self.length * size;
        if self.count == 0 || bytes == 0 {
            return Ok(());
        }
        let walk = |runs: Range<usize>| {
            for run in runs {
                copy(self.offset(run) * size as isize, run * bytes, bytes);
            }
        };
        if bytes >= TASK {
            let parts = bytes.div_ceil(TASK);
            return cpu::for_each(self.count * parts, &Context::default(), &|task| {
                let (run, start) = (task / parts, task % parts * TASK);
                let offset = self.offset(run) * size as isize + start as isize;
                copy(offset, run * bytes + start, TASK.min(bytes - start));
            });
        }
        let runs = (TASK / bytes).max(1);
        let tasks = self.count.div_ceil(runs);
        cpu::for_each(tasks, &Context::default(), &|task| walk(task * runs..((task + 1) * runs).min(self.count)))
    }
}

/// Copies a tensor of the host.
///
/// # Safety
/// `to` must have room for it, and nobody else may use that.
pub(super) unsafe fn gather(tensor: &TensorRef<'_>, to: *mut u8) -> Result<()> {
    let (from, to) = (tensor.data() as usize, to as usize);
    Runs::of(tensor.layout()).each(tensor.dtype().size(), |offset, place, bytes| {
        let (from, to) = (from.wrapping_add_signed(offset) as *const u8, (to + place) as *mut u8);
        // SAFETY: within the tensor and, by the caller's promise, within the room; pieces lie apart.
        unsafe { piece(from, to, bytes) };
    })
}

/// Copies into a tensor of the host.
///
/// # Safety
/// `from` must hold as many bytes, which nobody writes, and which are 0 or 1 where they are bools.
pub(super) unsafe fn scatter(from: *const u8, tensor: &mut TensorMut<'_>) -> Result<()> {
    let (from, to) = (from as usize, tensor.data_mut() as usize);
    let layout = *tensor.view().layout();
    Runs::of(&layout).each(tensor.view().dtype().size(), |offset, place, bytes| {
        let (from, to) = ((from + place) as *const u8, to.wrapping_add_signed(offset) as *mut u8);
        // SAFETY: as above; a tensor that is written to does not overlap itself.
        unsafe { piece(from, to, bytes) };
    })
}

/// # Safety
/// Both must be good for so many bytes, and lie apart.
#[inline]
unsafe fn piece(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise. Single elements are frequent, and a call for each is slow.
    unsafe {
        match bytes {
            4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
            8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
            2 => to.cast::<[u8; 2]>().write(from.cast::<[u8; 2]>().read()),
            1 => to.write(from.read()),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, Device};

    #[test]
    fn views_are_copied_and_written_in_their_order() {
        let data: Vec<u16> = (0..24).collect();
        for (start, shape, strides) in [
            (0usize, vec![2i64, 3, 4], vec![12i64, 4, 1]),
            (0, vec![4, 3, 2], vec![1, 4, 12]),
            (23, vec![24], vec![-1]),
            (1, vec![3, 2], vec![8, 2]),
            (0, vec![2, 2, 4], vec![12, 4, 1]),
            (0, vec![5, 1], vec![0, 0]),
            (3, vec![], vec![]),
            (0, vec![0, 3], vec![3, 1]),
        ] {
            let layout = Layout::strided(&shape, Some(&strides), DType::U16).unwrap();
            let place = data[start..].as_ptr().cast();
            // SAFETY: the layouts of the table stay within the data.
            let view = unsafe { TensorRef::from_raw(place, DType::U16, Device::Cpu, layout) }.unwrap();
            let mut packed = vec![99u16; layout.count()];
            // SAFETY: as long as the view has elements.
            unsafe { gather(&view, packed.as_mut_ptr().cast()) }.unwrap();
            let mut want = Vec::new();
            for flat in 0..layout.count() {
                let (mut rest, mut at) = (flat, start as i64);
                for axis in (0..shape.len()).rev() {
                    at += (rest as i64 % shape[axis]) * strides[axis];
                    rest /= shape[axis] as usize;
                }
                want.push(data[at as usize]);
            }
            assert_eq!(packed, want);
            if layout.overlaps_itself() {
                continue;
            }
            let mut back = vec![0u16; 24];
            let place = back[start..].as_mut_ptr().cast();
            // SAFETY: as above.
            let mut view = unsafe { TensorMut::from_raw(place, DType::U16, Device::Cpu, layout) }.unwrap();
            // SAFETY: as long as the view has elements.
            unsafe { scatter(packed.as_ptr().cast(), &mut view) }.unwrap();
            let mut whole = vec![0u16; 24];
            want.iter().for_each(|&value| whole[value as usize] = value);
            assert_eq!(back, whole);
        }
    }

    #[test]
    fn large_runs_are_shared_among_tasks() {
        let data: Vec<u8> = (0..3 * TASK + 5).map(|index| (index % 251) as u8).collect();
        let view = TensorRef::from_slice(&data, &[data.len()]).unwrap();
        let mut packed = vec![0u8; data.len()];
        // SAFETY: as long as the view.
        unsafe { gather(&view, packed.as_mut_ptr()) }.unwrap();
        assert!(packed == data);
    }
}
