//! Borrowed tensors. The constructors are the only place where a raw pointer becomes a tensor.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::str::FromStr;

use super::{DType, Element, Layout};
use crate::{Error, ErrorKind, Result};

/// Where a tensor's memory lives and an op runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// Host memory.
    Cpu,
    /// A CUDA device by ordinal.
    Cuda(u32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let ordinal = match name.split_once(':') {
            None if name == "cpu" => return Ok(Self::Cpu),
            None if name == "cuda" => Some(0),
            Some(("cuda", ordinal)) => ordinal.parse().ok(),
            _ => None,
        };
        ordinal
            .map(Self::Cuda)
            .ok_or_else(|| Error::invalid("device", format!("expected cpu, cuda or cuda:N, got {name:?}")))
    }
}

/// A read-only view of somebody else's memory.
// No more than 128 bytes, which the compiler moves without calling for it; a test holds it.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    data: *const u8,
    dtype: DType,
    device: Device,
    layout: Layout,
    lifetime: PhantomData<&'a [u8]>,
}

/// A writable view of somebody else's memory, whose elements do not overlap.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(super) view: TensorRef<'a>,
    pub(super) exclusive: PhantomData<&'a mut [u8]>,
    pub(super) zeroed: bool,
}

// SAFETY: a view is a pointer with a length; it is shared like `&[u8]`.
unsafe impl Send for TensorRef<'_> {}
// SAFETY: as above; reading through a shared view from several threads is reading `&[u8]`.
unsafe impl Sync for TensorRef<'_> {}
// SAFETY: an exclusive view moves between threads like `&mut [u8]`.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: a shared reference to it only reads the description.
unsafe impl Sync for TensorMut<'_> {}

impl<'a> TensorRef<'a> {
    /// A view of `shape` over a slice in row-major order.
    pub fn from_slice<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Self> {
        let layout = Layout::contiguous(shape, T::DTYPE)?;
        if layout.count() != data.len() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} elements do not fill shape {shape:?}", data.len()),
            ));
        }
        // SAFETY: the slice is borrowed for `'a`, and as long as the layout.
        Ok(unsafe { Self::on_host(data.as_ptr().cast(), T::DTYPE, layout) })
    }

    /// A view of host memory in row-major order.
    ///
    /// # Safety
    /// As for [`TensorRef::from_raw`]; the layout must be contiguous.
    pub(super) unsafe fn on_host(data: *const u8, dtype: DType, layout: Layout) -> Self {
        debug_assert!(layout.is_contiguous());
        Self { data, dtype, device: Device::Cpu, layout, lifetime: PhantomData }
    }

    /// A view of memory that a framework owns. Refuses null and misaligned pointers, and strides that leave the address
    /// space.
    ///
    /// # Safety
    /// Every element that `layout` reaches from `data` must be readable on `device` for `'a`,
    /// and must not be written meanwhile. `bool` elements must hold 0 or 1.
    #[inline]
    pub unsafe fn from_raw(data: *const u8, dtype: DType, device: Device, layout: Layout) -> Result<Self> {
        let view = Self { data, dtype, device, layout, lifetime: PhantomData };
        view.check().map(|()| view)
    }

    /// A view of nothing, as [`dlpack::describe_into`](super::dlpack::describe_into) is given one. A view that is made
    /// where it stays is not copied, for which the processor would wait until the copied fields are written.
    #[inline]
    pub const fn nothing() -> Self {
        let (data, device) = (std::ptr::null(), Device::Cpu);
        Self { data, dtype: DType::U8, device, layout: Layout::NONE, lifetime: PhantomData }
    }

    /// As [`TensorRef::from_raw`], in place of a view of nothing, which it stays after an error.
    ///
    /// # Safety
    /// As for [`TensorRef::from_raw`], of the layout that `shape` and `strides` make.
    pub(super) unsafe fn fill(
        &mut self,
        data: *const u8,
        (dtype, device): (DType, Device),
        (shape, strides): (&[i64], Option<&[i64]>),
    ) -> Result<()> {
        (self.data, self.dtype, self.device) = (data, dtype, device);
        let done = self.layout.fill(shape, strides, dtype).and_then(|()| self.check());
        if done.is_err() {
            *self = Self::nothing();
        }
        done
    }

    #[inline]
    fn check(&self) -> Result<()> {
        let Self { data, dtype, layout, .. } = self;
        if layout.count() > 0 {
            if data.is_null() {
                return Err(Error::new(ErrorKind::InvalidArgument, "null data pointer with elements"));
            }
            // Sizes are powers of two, and a mask is quicker than a division.
            if *data as usize & (dtype.size() - 1) != 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("data pointer is not aligned to {dtype}")));
            }
        }
        layout.extent(*dtype).map(drop)
    }

    /// Its dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where it lives.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Shape and strides.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Size of every axis.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Address of the element with all indices 0.
    #[inline]
    pub fn data(&self) -> *const u8 {
        self.data
    }

    /// Bytes of its elements, which may be more than lie in memory where elements are shared.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.layout.count() * self.dtype.size()
    }

    /// The part of it whose indices along an axis lie in a range.
    #[must_use]
    pub(crate) fn part(mut self, axis: usize, range: Range<usize>) -> Self {
        let Some(&stride) = self.layout.strides().get(axis) else { return Self::nothing() };
        let layout = self.layout.part(axis, range.len());
        if layout.count() > 0 {
            let bytes = stride.wrapping_mul(range.start as isize).wrapping_mul(self.dtype.size() as isize);
            self.data = self.data.wrapping_offset(bytes);
        }
        self.layout = layout;
        self
    }

    /// The addresses that the view can touch, for overlap checks.
    #[inline]
    pub(crate) fn address_range(&self) -> (usize, usize) {
        // What is possible was found when the view was made.
        let (low, high) = self.layout.extent(self.dtype).unwrap_or_default();
        ((self.data as usize).wrapping_add_signed(low), (self.data as usize).wrapping_add_signed(high))
    }
}

impl<'a> TensorMut<'a> {
    /// A writable view of `shape` over a slice in row-major order.
    pub fn from_slice<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        let layout = *TensorRef::from_slice(data, shape)?.layout();
        // The pointer must come from the exclusive borrow, since it will be written through.
        // SAFETY: as in `TensorRef::from_slice`.
        let view = unsafe { TensorRef::on_host(data.as_mut_ptr().cast_const().cast(), T::DTYPE, layout) };
        Ok(Self { view, exclusive: PhantomData, zeroed: false })
    }

    /// A writable view of memory that a framework owns; refuses layouts whose elements overlap.
    ///
    /// # Safety
    /// As for [`TensorRef::from_raw`], and nothing else may read or write the elements for `'a`.
    #[inline]
    pub unsafe fn from_raw(data: *mut u8, dtype: DType, device: Device, layout: Layout) -> Result<Self> {
        // SAFETY: passed on from the caller.
        unsafe { Self::from_view(TensorRef::from_raw(data, dtype, device, layout)?) }
    }

    /// As [`TensorMut::from_raw`], of what is described already.
    ///
    /// # Safety
    /// The address must come from one that may be written to, and nothing else may read or write the elements for `'a`,
    /// through other copies of the view either.
    #[inline]
    pub unsafe fn from_view(view: TensorRef<'a>) -> Result<Self> {
        let layout = view.layout;
        if layout.overlaps_itself() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("elements of {layout:?} share memory, so it cannot be written"),
            ));
        }
        Ok(Self { view, exclusive: PhantomData, zeroed: false })
    }

    /// The same view of memory that holds nothing but zeros, as the system gives it out: the next op need not write
    /// them again, and its result is wrong where that is not so.
    #[must_use]
    pub fn zeroed(self) -> Self {
        Self { zeroed: true, ..self }
    }

    /// Says no longer that it is [`TensorMut::zeroed`].
    pub(crate) fn forget_zeros(&mut self) {
        self.zeroed = false;
    }

    /// Whether all elements are known to be 0.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// The description of the view.
    #[inline]
    pub fn view(&self) -> &TensorRef<'a> {
        &self.view
    }

    /// The part of it whose indices along some axes lie in ranges, for as long as nobody uses the whole.
    pub(crate) fn parts<'p>(&'p mut self, axes: impl IntoIterator<Item = (usize, Range<usize>)>) -> TensorMut<'p> {
        let view = axes.into_iter().fold(self.view, |view, (axis, range)| view.part(axis, range));
        TensorMut { view, exclusive: PhantomData, zeroed: self.zeroed }
    }

    /// Address of the element with all indices 0.
    #[inline]
    pub fn data_mut(&mut self) -> *mut u8 {
        self.view.data.cast_mut()
    }
}
