//! Device memory for Rust callers, tests and self-tests. Ops get theirs from a framework.

use super::device::Gpu;
use super::sys::DevicePointer;
use crate::tensor::{Device, Element, Layout, TensorMut, TensorRef};
use crate::{Error, ErrorKind, Result};

/// Memory on a GPU, freed when dropped. Copies wait for the GPU.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: &'static Gpu,
    pointer: DevicePointer,
    bytes: usize,
}

impl DeviceBuffer {
    /// Reserves memory; its content is not set.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let _current = gpu.current();
        let mut pointer = 0;
        if bytes > 0 {
            // SAFETY: the pointer is valid.
            gpu.check(unsafe { (gpu.driver.alloc)(&raw mut pointer, bytes) }, &format!("allocating {bytes} bytes"))?;
        }
        Ok(Self { gpu, pointer, bytes })
    }

    /// A copy of a slice.
    pub fn from_slice<T: Element>(gpu: &'static Gpu, data: &[T]) -> Result<Self> {
        let buffer = Self::new(gpu, size_of_val(data))?;
        let _current = gpu.current();
        if buffer.bytes > 0 {
            // SAFETY: both sides hold that many bytes.
            let code = unsafe { (gpu.driver.copy_to_device)(buffer.pointer, data.as_ptr().cast(), buffer.bytes) };
            gpu.check(code, "copying to the device")?;
        }
        Ok(buffer)
    }

    /// A copy on the host, after all earlier work on the default stream.
    pub fn to_vec<T: Element + Default>(&self) -> Result<Vec<T>> {
        let mut data = vec![T::default(); self.bytes / size_of::<T>()];
        let _current = self.gpu.current();
        if !data.is_empty() {
            // SAFETY: the vector holds no more bytes than the buffer.
            let code = unsafe {
                (self.gpu.driver.copy_to_host)(data.as_mut_ptr().cast(), self.pointer, size_of_val(&data[..]))
            };
            self.gpu.check(code, "copying to the host")?;
        }
        Ok(data)
    }

    /// A read-only view in row-major order.
    pub fn view<T: Element>(&self, shape: &[usize]) -> Result<TensorRef<'_>> {
        let layout = self.layout::<T>(shape)?;
        // SAFETY: the buffer is long enough and lives as long as the view.
        unsafe {
            TensorRef::from_raw(self.pointer as *const u8, T::DTYPE, Device::Cuda(self.gpu.info().ordinal), layout)
        }
    }

    /// A writable view in row-major order.
    pub fn view_mut<T: Element>(&mut self, shape: &[usize]) -> Result<TensorMut<'_>> {
        let layout = self.layout::<T>(shape)?;
        // SAFETY: as above, and exclusive by `&mut self`.
        unsafe { TensorMut::from_raw(self.pointer as *mut u8, T::DTYPE, Device::Cuda(self.gpu.info().ordinal), layout) }
    }

    fn layout<T: Element>(&self, shape: &[usize]) -> Result<Layout> {
        let layout = Layout::contiguous(shape, T::DTYPE)?;
        if layout.count() * size_of::<T>() > self.bytes {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a buffer of {} bytes does not hold {shape:?}", self.bytes),
            ));
        }
        Ok(layout)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.pointer != 0 {
            let _current = self.gpu.current();
            // SAFETY: allocated by us and freed once. A lost device answers with an error, which
            // the next call reports.
            unsafe { (self.gpu.driver.free)(self.pointer) };
        }
    }
}
