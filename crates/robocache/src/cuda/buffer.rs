//! Device memory for Rust callers, tests and self-tests. Ops get theirs from a framework.

use super::device::Gpu;
use super::sys::DevicePointer;
use crate::tensor::{DType, Device, Element, Layout, Tensor, TensorMut, TensorRef};
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
        let _current = gpu.current()?;
        let mut pointer = 0;
        if bytes > 0 {
            // SAFETY: the pointer is valid.
            gpu.check(unsafe { (gpu.driver.alloc)(&raw mut pointer, bytes) }, &format!("allocating {bytes} bytes"))?;
        }
        Ok(Self { gpu, pointer, bytes })
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins on the GPU.
    pub(super) fn address(&self) -> DevicePointer {
        self.pointer
    }

    /// A copy of a slice.
    pub fn from_slice<T: Element>(gpu: &'static Gpu, data: &[T]) -> Result<Self> {
        Self::from_tensor(gpu, &TensorRef::from_slice(data, &[data.len()])?)
    }

    /// A copy of a host tensor in row-major order.
    pub fn from_tensor(gpu: &'static Gpu, tensor: &TensorRef<'_>) -> Result<Self> {
        if tensor.device() != Device::Cpu || !tensor.layout().is_contiguous() {
            let text = format!("expected a row-major host tensor, got {:?} on {}", tensor.layout(), tensor.device());
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let buffer = Self::new(gpu, tensor.layout().count() * tensor.dtype().size())?;
        let _current = gpu.current()?;
        if buffer.bytes > 0 {
            // SAFETY: both sides hold that many bytes.
            let code = unsafe { (gpu.driver.copy_to_device)(buffer.pointer, tensor.data().cast(), buffer.bytes) };
            gpu.check(code, "copying to the device")?;
        }
        Ok(buffer)
    }

    /// A copy on the host, after all earlier work on the default stream.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.to_tensor(&[self.bytes / size_of::<T>()], T::DTYPE)?.as_slice()?.to_vec())
    }

    /// As [`DeviceBuffer::to_vec`], as a tensor.
    pub fn to_tensor(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let bytes = self.layout(shape, dtype)?.count() * dtype.size();
        let mut tensor = Tensor::zeros(shape, dtype)?;
        let _current = self.gpu.current()?;
        if bytes > 0 {
            let host = tensor.view_mut().data_mut();
            // SAFETY: both sides hold that many bytes.
            let code = unsafe { (self.gpu.driver.copy_to_host)(host.cast(), self.pointer, bytes) };
            self.gpu.check(code, "copying to the host")?;
            if dtype == DType::Bool {
                // SAFETY: as above. A bool that is neither 0 nor 1 must not exist, whatever a
                // kernel wrote.
                unsafe { std::slice::from_raw_parts_mut(host, bytes) }
                    .iter_mut()
                    .for_each(|byte| *byte = u8::from(*byte != 0));
            }
        }
        Ok(tensor)
    }

    /// A read-only view in row-major order.
    pub fn view(&self, shape: &[usize], dtype: DType) -> Result<TensorRef<'_>> {
        let layout = self.layout(shape, dtype)?;
        // SAFETY: the buffer is long enough and lives as long as the view.
        unsafe { TensorRef::from_raw(self.pointer as *const u8, dtype, self.device(), layout) }
    }

    /// A writable view in row-major order.
    pub fn view_mut(&mut self, shape: &[usize], dtype: DType) -> Result<TensorMut<'_>> {
        let layout = self.layout(shape, dtype)?;
        // SAFETY: as above, and exclusive by `&mut self`.
        unsafe { TensorMut::from_raw(self.pointer as *mut u8, dtype, self.device(), layout) }
    }

    fn device(&self) -> Device {
        Device::Cuda(self.gpu.info().ordinal)
    }

    fn layout(&self, shape: &[usize], dtype: DType) -> Result<Layout> {
        let layout = Layout::contiguous(shape, dtype)?;
        if layout.count() * dtype.size() > self.bytes {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a buffer of {} bytes does not hold {shape:?} of {dtype}", self.bytes),
            ));
        }
        Ok(layout)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.pointer != 0 {
            // A lost device answers with an error, which the next call reports.
            if let Ok(_current) = self.gpu.current() {
                // SAFETY: allocated by us and freed once.
                unsafe { (self.gpu.driver.free)(self.pointer) };
            }
        }
    }
}
