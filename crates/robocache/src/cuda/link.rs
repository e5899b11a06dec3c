//! Pinned memory, and how fast bytes get to a GPU and about it.

use super::buffer::DeviceBuffer;
use super::device::Gpu;
use crate::Result;

/// Host memory that a GPU reads and writes by itself; freed when dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    gpu: &'static Gpu,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference only tells where it is.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Memory whose content is not set.
    pub(crate) fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self> {
        let mut start = std::ptr::null_mut();
        if bytes > 0 {
            let _current = gpu.current()?;
            // SAFETY: the pointer is valid; 1 is portable.
            let code = unsafe { (gpu.driver.host_alloc)(&raw mut start, bytes, 1) };
            gpu.check(code, &format!("allocating {bytes} bytes of pinned memory"))?;
        }
        Ok(Self { gpu, start: start.cast(), bytes })
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.start.is_null() {
            // A lost device answers with an error, which the next call reports.
            if let Ok(_current) = self.gpu.current() {
                // SAFETY: allocated by us and freed once; nothing is queued that touches it.
                unsafe { (self.gpu.driver.free_host)(self.start.cast()) };
            }
        }
    }
}

/// A way of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// About the memory of a GPU.
    Within,
    /// From pinned memory of the host.
    Up,
}

impl Link {
    /// A copy of so many bytes that waits until they are there.
    pub(crate) fn copy(self, gpu: &'static Gpu, bytes: usize) -> Result<impl FnMut() -> Result<()> + use<>> {
        let to = DeviceBuffer::new(gpu, bytes)?;
        let from = DeviceBuffer::new(gpu, if self == Self::Within { bytes } else { 0 })?;
        let pinned = Pinned::new(gpu, if self == Self::Up { bytes } else { 0 })?;
        Ok(move || {
            let _current = gpu.current()?;
            // SAFETY: all are as long, and nobody else has them.
            let code = unsafe {
                match self {
                    Self::Within => (gpu.driver.copy_on_device)(to.address(), from.address(), bytes),
                    Self::Up => (gpu.driver.copy_to_device)(to.address(), pinned.start().cast(), bytes),
                }
            };
            gpu.check(code, "copying")?;
            gpu.wait_for_stream(0)
        })
    }
}
