//! The CUDA backend: everything that ops share on NVIDIA GPUs.
//!
//! Work is queued on the caller's stream. A warm call allocates nothing, loads nothing and waits
//! for nothing. Nothing here is touched before the first CUDA tensor arrives.

mod buffer;
mod clear;
mod cloud;
mod compile;
mod device;
mod disk;
mod driver;
mod lane;
mod launch;
mod link;
mod nvrtc;
mod pages;
mod pipeline;
mod points;
mod report;
mod scan;
mod sort;
mod sys;
#[cfg(test)]
mod tests;

pub use buffer::DeviceBuffer;
pub(crate) use clear::{CLEAR_KERNELS, clear, fill};
pub(crate) use cloud::{CloudArgs, PointsOut};
pub(crate) use compile::Special;
pub use compile::{ARCHITECTURES, Compiled, KernelVariant};
pub use device::{Gpu, GpuInfo, gpu, is_only_gpu, probe, synchronize, used_gpus};
pub(crate) use disk::hash as stable_hash;
pub(crate) use launch::{Grid, KernelFamily, Parts};
pub use launch::{Launcher, STATIC_SHARED};
pub(crate) use link::Link;
pub use nvrtc::search_also;
pub(crate) use pipeline::stream;
pub(crate) use points::PointArgs;
pub(crate) use report::{Finding, Reporter, Reports};
pub(crate) use scan::{SCAN_KERNELS, Scan};
pub(crate) use sort::{DigitArgs, SORT_KERNELS, Sort, SortMemory};

/// A raw `CUstream`; 0 is the default stream.
pub type StreamHandle = usize;

/// Whether the driver can be used at all: it is there, and was not inherited through `fork`.
pub fn ensure_usable() -> crate::Result<()> {
    driver::driver().map(drop)
}
