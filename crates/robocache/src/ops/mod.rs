//! The ops, one folder each.

pub mod fuse;
pub mod resample;
pub mod resample_backward;

pub use fuse::Fuse;
pub use resample::Resample;
pub use resample_backward::ResampleBackward;

use crate::Error;
use crate::cuda::{Finding, KernelFamily};

/// The number of `resample` in reports of kernels.
pub(crate) const RESAMPLE: u32 = 1;
/// The number of `fuse`.
pub(crate) const FUSE: u32 = 2;

/// What a kernel of op number `op` found, as the error that the CPU would raise.
pub(crate) fn describe_finding(op: u32, finding: &Finding) -> Error {
    match op {
        RESAMPLE => resample::describe_finding(finding).op("resample"),
        FUSE => fuse::describe_finding(finding).op("fuse"),
        _ => Error::invalid("input", format!("bad data in row {}", finding.row)),
    }
}

/// The kernels of all ops.
pub(crate) fn kernel_families() -> Vec<&'static KernelFamily> {
    vec![&resample::KERNELS, &resample_backward::KERNELS, &fuse::KERNELS]
}
