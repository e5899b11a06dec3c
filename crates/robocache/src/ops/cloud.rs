//! What ops on point clouds share: points `[B,N,3]` or `[N,3]`, of which `lengths` exist.

use super::depth::Image;
use super::rows::{Batch, check_lengths, clamped_length, strides};
use super::scalar::Scalar;
use crate::cpu::prefetch;
use crate::tensor::{DType, TensorRef};
use crate::{Result, ensure};

/// Sizes and strides (in elements, 0 where shared) of a cloud.
#[derive(Debug, Clone, Copy)]
pub struct Cloud {
    pub(crate) has_batch: bool,
    pub(crate) batch: usize,
    /// Points per row.
    pub(crate) count: usize,
    /// Of the points, or of the depth that they are made from.
    pub(crate) point_strides: [isize; 3],
    pub(crate) length_stride: isize,
    /// What the points are made from, where they do not lie in memory.
    pub(crate) image: Option<Image>,
}

impl Cloud {
    /// Checks points and lengths; `batch` has taken in the other arguments.
    pub(crate) fn new(points: &TensorRef<'_>, lengths: Option<TensorRef<'_>>, mut batch: Batch) -> Result<Self> {
        check_points("points", points)?;
        batch.add("points", points, 2)?;
        check_lengths(lengths, &mut batch)?;
        let count = points.shape()[points.layout().rank() - 2];
        Ok(Self {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            count,
            point_strides: strides(points),
            length_stride: lengths.map_or(0, |lengths| strides::<1>(&lengths)[0]),
            image: None,
        })
    }

    /// Points of a row that exist, whatever `lengths` holds.
    pub(crate) fn length(&self, lengths: Option<TensorRef<'_>>, row: usize) -> usize {
        clamped_length(lengths, self.length_stride, row, self.count)
    }

    /// A shape without its batch where there is none.
    pub(crate) fn shape<'s>(&self, shape: &'s [usize]) -> &'s [usize] {
        if self.has_batch { shape } else { &shape[1..] }
    }

    /// Points of all rows, padding included.
    pub(crate) fn total(&self) -> usize {
        self.batch.saturating_mul(self.count)
    }
}

fn check_points(name: &'static str, points: &TensorRef<'_>) -> Result<()> {
    points.layout().expect_rank(name, &[2, 3], "[B,N,3] or [N,3]")?;
    let shape = points.shape();
    ensure!(shape[shape.len() - 1] == 3, name, "expected [B,N,3] or [N,3], got shape {shape:?}");
    expect_float(name, points.dtype())
}

/// Refuses everything but the float dtypes.
pub(crate) fn expect_float(name: &'static str, dtype: DType) -> Result<()> {
    ensure!(dtype.is_float(), name, "expected float16, bfloat16, float32 or float64, got {dtype}");
    Ok(())
}

/// Where points come from on the host: memory, or the pixels of depth images.
pub(crate) trait ReadPoints: Copy + Send + Sync {
    /// What a coordinate is held in.
    type Number: Scalar;
    /// What is looked up once for many points of a row.
    type Row: Copy;

    /// A row that exists.
    fn row(&self, row: usize) -> Self::Row;
    /// Reads the points `first..end` of a row, at most a block of them.
    ///
    /// # Safety
    /// They must exist, and the tensors that they come from must be alive.
    unsafe fn read(&self, row: &Self::Row, first: usize, end: usize, to: &mut Block<Compute<Self>>);
    /// The coordinates of a point.
    ///
    /// # Safety
    /// As for [`ReadPoints::read`].
    unsafe fn at(&self, row: &Self::Row, index: usize) -> [Compute<Self>; 3];
    /// Asks for a point that is soon read.
    fn prefetch(&self, row: &Self::Row, index: usize);
}

/// What points are computed with.
pub(crate) type Compute<P> = <<P as ReadPoints>::Number as Scalar>::Compute;

impl<T: Scalar> ReadPoints for Points<T> {
    type Number = T;
    type Row = usize;

    #[inline(always)]
    fn row(&self, row: usize) -> usize {
        row
    }

    #[inline(always)]
    unsafe fn read(&self, &row: &usize, first: usize, end: usize, to: &mut Block<T::Compute>) {
        // SAFETY: the caller's promise.
        unsafe { Points::read(self, row, first, end, to) }
    }

    #[inline(always)]
    unsafe fn at(&self, &row: &usize, index: usize) -> [T::Compute; 3] {
        // SAFETY: the caller's promise.
        unsafe { Points::at(self, row, index) }
    }

    #[inline(always)]
    fn prefetch(&self, &row: &usize, index: usize) {
        let [row_step, step, axis] = self.strides;
        let point = self.data.wrapping_offset(row as isize * row_step + index as isize * step);
        prefetch(point);
        // Of packed float32 one in eight lies in two lines of the cache.
        prefetch(point.wrapping_offset(2 * axis));
    }
}

/// The coordinates of a cloud on the host.
#[derive(Clone, Copy)]
pub(crate) struct Points<T> {
    data: *const T,
    strides: [isize; 3],
}

// SAFETY: a view that is only read.
unsafe impl<T: Sync> Sync for Points<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Send for Points<T> {}

impl<T: Scalar> Points<T> {
    /// The points of a tensor that `cloud` was made from.
    pub(crate) fn new(points: &TensorRef<'_>, cloud: &Cloud) -> Self {
        Self { data: points.data().cast(), strides: cloud.point_strides }
    }

    /// Reads the points `first..end` of a row, at most a block of them.
    ///
    /// # Safety
    /// As for [`Points::at`].
    #[inline(always)]
    pub(crate) unsafe fn read(&self, row: usize, first: usize, end: usize, to: &mut Block<T::Compute>) {
        let [row_step, step, axis] = self.strides;
        if (step, axis) == (3, 1) && end - first >= BLOCK {
            // SAFETY: the caller's promise; as many points lie side by side.
            let points = unsafe {
                &*self.data.offset(row as isize * row_step + first as isize * step).cast::<[[T; 3]; BLOCK]>()
            };
            for (lane, point) in points.iter().enumerate() {
                for axis in 0..3 {
                    to[axis][lane] = point[axis].widen();
                }
            }
            return;
        }
        for (lane, index) in (first..end).enumerate().take(BLOCK) {
            // SAFETY: the caller's promise.
            let point = unsafe { self.at(row, index) };
            for axis in 0..3 {
                to[axis][lane] = point[axis];
            }
        }
    }

    /// The coordinates of a point.
    ///
    /// # Safety
    /// `row` and `index` must lie within the cloud, and its tensor must be alive.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, row: usize, index: usize) -> [T::Compute; 3] {
        let [row_step, step, axis] = self.strides;
        // SAFETY: the caller's promise; `check` proved the strides.
        unsafe {
            let point = self.data.offset(row as isize * row_step + index as isize * step);
            [(*point).widen(), (*point.offset(axis)).widen(), (*point.offset(2 * axis)).widen()]
        }
    }
}

/// Points that are looked at together.
pub(crate) const BLOCK: usize = 64;
/// So many points: x of all, y of all, z of all.
pub(crate) type Block<C> = [[C; BLOCK]; 3];

/// The coordinates of a cloud that is written on the host.
#[derive(Clone, Copy)]
pub(crate) struct PointsMut<T> {
    data: *mut T,
    strides: [isize; 3],
}

// SAFETY: whoever writes promises that threads do not meet.
unsafe impl<T: Sync> Sync for PointsMut<T> {}

impl<T: Scalar> PointsMut<T> {
    pub(crate) fn new(data: *mut u8, strides: [isize; 3]) -> Self {
        Self { data: data.cast(), strides }
    }

    /// Writes one point.
    ///
    /// # Safety
    /// `row` and `index` must lie within the cloud, and nobody else may use the point.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, row: usize, index: usize, point: [T; 3]) {
        let [row_step, step, axis_step] = self.strides;
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.data.offset(row as isize * row_step + index as isize * step);
            for (axis, number) in point.into_iter().enumerate() {
                *to.offset(axis as isize * axis_step) = number;
            }
        }
    }

    /// Writes the points `first..end` of a row, at most a block of them.
    ///
    /// # Safety
    /// As for [`PointsMut::set`], for all of them.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, row: usize, first: usize, end: usize, from: &Block<T::Compute>) {
        let [row_step, step, axis_step] = self.strides;
        let point = |lane: usize| [0, 1, 2].map(|axis: usize| T::narrow(from[axis][lane].into()));
        if (step, axis_step) == (3, 1) && end - first >= BLOCK {
            // SAFETY: the caller's promise; as many points lie side by side.
            let to = unsafe {
                &mut *self.data.offset(row as isize * row_step + first as isize * step).cast::<[[T; 3]; BLOCK]>()
            };
            for (lane, to) in to.iter_mut().enumerate() {
                *to = point(lane);
            }
            return;
        }
        for (lane, index) in (first..end).enumerate().take(BLOCK) {
            // SAFETY: the caller's promise.
            unsafe { self.set(row, index, point(lane)) };
        }
    }
}
