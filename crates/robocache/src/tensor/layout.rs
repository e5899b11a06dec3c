//! Shape and strides without a heap allocation, and the arithmetic on them, all checked.

use std::fmt;

use super::DType;
use crate::{Error, Result, ensure};

/// Tensors have at most this many axes, as many as an op has uses for: layouts are copied around by value.
pub const MAX_RANK: usize = 5;

/// Shape and strides (in elements, of any sign) of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    shape: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
    /// How many elements there are, and whether they lie in row-major order without holes: every check asks.
    count: usize,
    dense: bool,
    rank: u8,
}

impl Layout {
    /// A row-major layout; refuses sizes that cannot exist.
    #[inline]
    pub fn contiguous(shape: &[usize], dtype: DType) -> Result<Self> {
        let mut layout = Self::empty(shape.len())?;
        let (mut size, mut strides) = (Size::new(dtype), 1isize);
        for (axis, &length) in shape.iter().enumerate().rev() {
            layout.shape[axis] = length;
            layout.strides[axis] = strides;
            size.add(length);
            // An empty axis must not make the others' strides zero; `Size` bounds the product.
            strides = strides.wrapping_mul(length.max(1) as isize);
        }
        layout.count = size.count(shape, dtype)?;
        Ok(layout)
    }

    /// A layout from shape and strides as a framework gives them; refuses negative sizes and too many axes. Strides that
    /// leave the address space are refused where the layout becomes a view.
    #[inline]
    pub fn strided(shape: &[i64], strides: Option<&[i64]>, dtype: DType) -> Result<Self> {
        let mut layout = Self::empty(0)?;
        layout.fill(shape, strides, dtype)?;
        Ok(layout)
    }

    /// As [`Layout::strided`], in place of [`Layout::NONE`].
    pub(super) fn fill(&mut self, shape: &[i64], strides: Option<&[i64]>, dtype: DType) -> Result<()> {
        let axes = shape.len();
        if axes > MAX_RANK {
            return Err(too_many(axes));
        }
        self.rank = axes as u8;
        let (mut size, mut dense) = (Size::new(dtype), true);
        // The stride that an axis has in row-major order.
        let mut expected = 1i64;
        for axis in (0..axes).rev() {
            let Ok(length) = usize::try_from(shape[axis]) else { return Err(negative(axis, shape[axis])) };
            let stride = strides.map_or(expected, |strides| strides[axis]);
            self.shape[axis] = length;
            self.strides[axis] = isize::try_from(stride).unwrap_or(isize::MAX);
            dense &= length == 1 || stride == expected;
            size.add(length);
            expected = expected.wrapping_mul(length.max(1) as i64);
        }
        self.count = size.count(&self.shape[..axes], dtype)?;
        self.dense = dense || self.count == 0;
        Ok(())
    }

    #[inline]
    fn empty(rank: usize) -> Result<Self> {
        if rank > MAX_RANK {
            return Err(too_many(rank));
        }
        Ok(Self { rank: rank as u8, ..Self::NONE })
    }

    /// No axes and, other than what [`Layout::contiguous`] makes of that, no element.
    pub(super) const NONE: Self = Self { shape: [0; MAX_RANK], strides: [0; MAX_RANK], count: 0, dense: true, rank: 0 };

    /// Number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Size of every axis.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank()]
    }

    /// Step in elements along every axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank()]
    }

    /// Number of elements.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// First and one-past-last byte, relative to the pointer, that the layout can touch.
    #[inline]
    pub fn extent(&self, dtype: DType) -> Result<(isize, isize)> {
        if self.dense {
            // Not more than `Size` found to be possible, unless the layout was made for a smaller type.
            let bytes = self.count.checked_mul(dtype.size()).and_then(|bytes| isize::try_from(bytes).ok());
            return bytes.map(|bytes| (0, bytes)).ok_or_else(|| too_large(self.shape(), dtype));
        }
        let (mut low, mut high) = (Some(0isize), Some(1isize));
        for (&count, &stride) in self.shape().iter().zip(self.strides()) {
            let span = isize::try_from(count - 1).ok().and_then(|steps| steps.checked_mul(stride));
            let end = if stride < 0 { &mut low } else { &mut high };
            *end = end.zip(span).and_then(|(end, span)| end.checked_add(span));
        }
        let bytes = |end: Option<isize>| end?.checked_mul(isize::try_from(dtype.size()).ok()?);
        bytes(low).zip(bytes(high)).ok_or_else(|| too_large(self.shape(), dtype))
    }

    /// Whether elements lie in row-major order without holes.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.dense
    }

    /// With another size of one axis, of which it has no more.
    pub(super) fn part(mut self, axis: usize, length: usize) -> Self {
        if axis < self.rank() && length != self.shape[axis] {
            self.shape[axis] = length;
            self.count = self.shape().iter().product();
            let mut expected = 1isize;
            let mut dense = true;
            for (&size, &stride) in self.shape().iter().zip(self.strides()).rev() {
                dense &= size == 1 || stride == expected;
                expected = expected.wrapping_mul(size.max(1) as isize);
            }
            self.dense = dense || self.count == 0;
        }
        self
    }

    /// Whether two different indices may share an element, as `expand` makes them. Exact for
    /// the views that frameworks build by slicing; conservative for hand-made strides.
    pub fn overlaps_itself(&self) -> bool {
        if self.is_contiguous() {
            return false;
        }
        let mut axes = [(0usize, 0usize); MAX_RANK];
        let mut used = 0;
        for (&count, &stride) in self.shape().iter().zip(self.strides()) {
            if count > 1 {
                axes[used] = (stride.unsigned_abs(), count);
                used += 1;
            }
        }
        axes[..used].sort_unstable();
        let mut reach = 0usize;
        for &(stride, count) in &axes[..used] {
            if stride <= reach {
                return true;
            }
            reach = reach.saturating_add(stride.saturating_mul(count - 1));
        }
        false
    }

    /// Refuses a tensor whose rank is not one of `ranks`.
    #[inline]
    pub(crate) fn expect_rank(&self, argument: &'static str, ranks: &[usize], form: &str) -> Result<()> {
        ensure!(
            ranks.contains(&self.rank()),
            argument,
            "expected {form}, got {} {} of shape {:?}",
            self.rank,
            if self.rank == 1 { "axis" } else { "axes" },
            self.shape()
        );
        Ok(())
    }
}

/// The elements of a shape as its axes become known, in any order. Sizes whose element or byte count cannot be addressed
/// are refused, once, so that arithmetic on counts and bytes cannot overflow later. Empty axes do not hide it.
struct Size {
    bytes: Option<usize>,
    is_empty: bool,
    element: usize,
}

impl Size {
    #[inline]
    fn new(dtype: DType) -> Self {
        Self { bytes: Some(dtype.size()), is_empty: false, element: dtype.size() }
    }

    #[inline]
    fn add(&mut self, length: usize) {
        self.bytes = self.bytes.and_then(|bytes| bytes.checked_mul(length.max(1)));
        self.is_empty |= length == 0;
    }

    #[inline]
    fn count(&self, shape: &[usize], dtype: DType) -> Result<usize> {
        match self.bytes.filter(|&bytes| isize::try_from(bytes).is_ok()) {
            // Sizes of elements are powers of two, and a shift is quicker than a division.
            Some(bytes) => Ok(if self.is_empty { 0 } else { bytes >> self.element.trailing_zeros() }),
            None => Err(too_large(shape, dtype)),
        }
    }
}

#[cold]
fn too_many(rank: usize) -> Error {
    let text = format!("{rank} axes, at most {MAX_RANK} are supported");
    Error::new(crate::ErrorKind::InvalidArgument, text)
}

#[cold]
fn negative(axis: usize, length: i64) -> Error {
    Error::new(crate::ErrorKind::InvalidArgument, format!("axis {axis} has size {length}"))
}

#[cold]
fn too_large(shape: &[usize], dtype: DType) -> Error {
    Error::new(
        crate::ErrorKind::InvalidArgument,
        format!("shape {shape:?} of {dtype} is larger than the address space"),
    )
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape())?;
        if !self.is_contiguous() {
            write!(f, " with strides {:?}", self.strides())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Device, TensorRef};

    fn strided(shape: &[i64], strides: &[i64]) -> Layout {
        Layout::strided(shape, Some(strides), DType::F32).unwrap()
    }

    #[test]
    fn sizes_that_cannot_exist_are_refused() {
        let half = 1usize << 32;
        for shape in [&[half, half][..], &[half, half, 0], &[usize::MAX], &[1 << 61, 1]] {
            let error = Layout::contiguous(shape, DType::F32).unwrap_err();
            assert!(error.to_string().contains("address space"), "{error}");
        }
        assert!(Layout::contiguous(&[1 << 60], DType::U8).is_ok());
    }

    #[test]
    fn a_view_is_moved_without_a_call() {
        assert!(size_of::<TensorRef<'_>>() <= 128);
    }

    #[test]
    fn rank_and_negative_sizes_are_refused() {
        assert!(Layout::contiguous(&[1; 9], DType::U8).unwrap_err().to_string().contains("9 axes"));
        assert!(Layout::strided(&[-1], None, DType::U8).unwrap_err().to_string().contains("size -1"));
    }

    #[test]
    fn strides_that_leave_the_address_space_are_refused() {
        for stride in [i64::MAX / 2, i64::MIN / 2, i64::MAX] {
            let layout = strided(&[3, 2], &[stride, 1]);
            assert!(layout.extent(DType::F32).is_err());
            // SAFETY: nothing is read.
            assert!(unsafe { TensorRef::from_raw(std::ptr::dangling(), DType::F32, Device::Cpu, layout) }.is_err());
        }
    }

    #[test]
    fn layouts_made_for_a_smaller_type_are_refused() {
        let layout = Layout::contiguous(&[1 << 61], DType::U8).unwrap();
        // SAFETY: nothing is read.
        let view =
            |dtype| unsafe { TensorRef::from_raw(std::ptr::dangling::<u64>().cast(), dtype, Device::Cpu, layout) };
        assert!(view(DType::U8).is_ok());
        assert!(view(DType::F64).unwrap_err().to_string().contains("address space"));
    }

    #[test]
    fn extent_covers_negative_strides() {
        assert_eq!(strided(&[4, 3], &[-3, 1]).extent(DType::F32).unwrap(), (-36, 12));
        assert_eq!(strided(&[0, 3], &[3, 1]).extent(DType::F32).unwrap(), (0, 0));
    }

    #[test]
    fn contiguity_ignores_axes_of_one() {
        assert!(strided(&[1, 4, 3], &[999, 3, 1]).is_contiguous());
        assert!(!strided(&[4, 3], &[1, 4]).is_contiguous());
    }

    #[test]
    fn nothing_is_contiguous() {
        assert!(Layout::contiguous(&[2, 0, 3], DType::F32).unwrap().is_contiguous());
        assert!(strided(&[2, 0, 3], &[0, 3, 1]).is_contiguous());
    }

    #[test]
    fn expanded_and_overlapping_layouts_are_found() {
        assert!(strided(&[5, 3], &[0, 1]).overlaps_itself());
        assert!(strided(&[5, 3], &[2, 1]).overlaps_itself());
        assert!(!strided(&[5, 3], &[3, 1]).overlaps_itself());
        assert!(!strided(&[5, 3], &[-3, 1]).overlaps_itself());
        assert!(!strided(&[1, 3], &[0, 1]).overlaps_itself());
        assert!(!strided(&[3, 5], &[1, 3]).overlaps_itself());
    }
}
