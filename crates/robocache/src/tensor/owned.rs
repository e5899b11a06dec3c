//! Host tensors that own their memory, for Rust callers, tests and the command line.

use std::marker::PhantomData;

use super::{DType, Element, Layout, TensorMut, TensorRef};
use crate::{Error, ErrorKind, Result};

/// A contiguous host tensor.
#[derive(Debug)]
pub struct Tensor {
    // u64 words keep every dtype aligned without an allocator of our own.
    words: Vec<u64>,
    dtype: DType,
    layout: Layout,
}

impl Tensor {
    /// A tensor of zeros; fails with `OutOfMemory` when the memory cannot be had.
    pub fn zeros(shape: &[usize], dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(shape, dtype)?;
        let bytes = layout.count() * dtype.size();
        let count = bytes.div_ceil(size_of::<u64>());
        let words = zeroed(count).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {bytes} bytes for shape {shape:?} of {dtype}"))
        })?;
        Ok(Self { words, dtype, layout })
    }

    /// A tensor with the elements of a slice in row-major order.
    pub fn from_slice<T: Element>(data: &[T], shape: &[usize]) -> Result<Self> {
        let source = TensorRef::from_slice(data, shape)?;
        let mut tensor = Self::zeros(shape, T::DTYPE)?;
        // SAFETY: both hold `size_of_val(data)` bytes, as from_slice checked.
        unsafe {
            std::ptr::copy_nonoverlapping(source.data(), tensor.words.as_mut_ptr().cast(), size_of_val(data));
        }
        Ok(tensor)
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size of every axis.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The elements in row-major order; fails when `T` is another dtype.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("tensor holds {}, not {}", self.dtype, T::DTYPE),
            ));
        }
        // SAFETY: the buffer holds `count` elements of this dtype, aligned to 8 bytes, always
        // initialised; ops write only 0 and 1 into bool tensors.
        Ok(unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.layout.count()) })
    }

    /// The elements in row-major order, to be written; fails when `T` is another dtype.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = self.as_slice::<T>()?.len();
        // SAFETY: as in as_slice, which checked the dtype; the borrow is exclusive, and a `T`
        // that is written through it is a valid element.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), count) })
    }

    /// A read-only view.
    pub fn view(&self) -> TensorRef<'_> {
        // SAFETY: the buffer is ours: initialised, aligned and as long as the layout, which is row-major.
        unsafe { TensorRef::on_host(self.words.as_ptr().cast(), self.dtype, self.layout) }
    }

    /// A writable view.
    pub fn view_mut(&mut self) -> TensorMut<'_> {
        let data = self.words.as_mut_ptr().cast_const().cast();
        // SAFETY: as in `view`.
        let view = unsafe { TensorRef::on_host(data, self.dtype, self.layout) };
        TensorMut { view, exclusive: PhantomData, zeroed: false }
    }
}

/// Memory that the system gives as zeros, so that large tensors are not written twice.
fn zeroed(count: usize) -> Option<Vec<u64>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u64>(count).ok()?;
    // SAFETY: the layout has a size, as count is not 0.
    let data = unsafe { std::alloc::alloc_zeroed(layout) };
    if data.is_null() {
        return None;
    }
    // SAFETY: the global allocator gave memory for exactly `count` words, and zeros are words.
    Some(unsafe { Vec::from_raw_parts(data.cast(), count, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_round_trip_and_keep_their_type() {
        let tensor = Tensor::from_slice(&[1.5f64, -2.0, 3.0], &[3, 1]).unwrap();
        assert_eq!(tensor.as_slice::<f64>().unwrap(), [1.5, -2.0, 3.0]);
        assert!(tensor.as_slice::<f32>().unwrap_err().to_string().contains("holds float64"));
        assert!(Tensor::from_slice(&[1u8; 5], &[2, 3]).is_err());
    }

    #[test]
    fn elements_can_be_written_as_their_own_type_only() {
        let mut tensor = Tensor::zeros(&[2, 2], DType::Bool).unwrap();
        tensor.as_mut_slice::<bool>().unwrap()[3] = true;
        assert_eq!(tensor.as_slice::<bool>().unwrap(), [false, false, false, true]);
        assert!(tensor.as_mut_slice::<u8>().is_err());
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let error = Tensor::zeros(&[1 << 50], DType::F64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
}
