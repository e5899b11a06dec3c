//! The ops.

pub(crate) mod align;
pub(crate) mod cloud;
pub mod crop_box;
pub mod depth;
pub mod farthest_points;
pub mod fuse;
pub(crate) mod pose;
pub mod resample;
pub mod resample_backward;
pub(crate) mod rows;
pub(crate) mod scalar;
pub mod transform_points;
pub mod unproject;
pub mod voxelize;

pub use cloud::Cloud;
pub use crop_box::CropBox;
pub use depth::{DepthImage, PointSource};
pub use farthest_points::FarthestPoints;
pub use fuse::Fuse;
pub use pose::Small;
pub use resample::Resample;
pub use resample_backward::ResampleBackward;
pub use scalar::Number;
pub use transform_points::TransformPoints;
pub use unproject::Unproject;
pub use voxelize::Voxelize;

use crate::Error;
use crate::cuda::{Finding, KernelFamily};

/// The number of `resample` in reports of kernels.
pub(crate) const RESAMPLE: u32 = 1;
/// The number of `fuse`.
pub(crate) const FUSE: u32 = 2;
/// The number of `voxelize`.
pub(crate) const VOXELIZE: u32 = 16;
/// The number of `crop_box`.
pub(crate) const CROP_BOX: u32 = 17;
/// The number of `farthest_points`.
pub(crate) const FARTHEST_POINTS: u32 = 18;

/// What a kernel of op number `op` found, as the error that the CPU would raise.
pub(crate) fn describe_finding(op: u32, finding: &Finding) -> Error {
    match op {
        RESAMPLE => align::describe_finding(finding, false).op("resample"),
        FUSE => align::describe_finding(finding, true).op("fuse"),
        VOXELIZE => voxelize::describe_finding(finding).op("voxelize"),
        CROP_BOX => crop_box::describe_finding(finding).op("crop_box"),
        FARTHEST_POINTS => farthest_points::describe_finding(finding).op("farthest_points"),
        _ => Error::invalid("input", format!("bad data in row {}", finding.row)),
    }
}

/// The kernels of all ops.
pub(crate) fn kernel_families() -> Vec<&'static KernelFamily> {
    vec![
        &align::KERNELS,
        &resample_backward::ROW_KERNELS,
        &resample_backward::FIND_KERNELS,
        &resample_backward::GATHER_KERNELS,
        &crate::cuda::CLEAR_KERNELS,
        &crate::cuda::SCAN_KERNELS,
        &crate::cuda::SORT_KERNELS,
        &crop_box::KERNELS,
        &farthest_points::KERNELS,
        &transform_points::KERNELS,
        &unproject::KERNELS,
        &voxelize::MARK_KERNELS,
        &voxelize::NEAR_KERNELS,
        &voxelize::SCATTER_KERNELS,
        &voxelize::WRITE_KERNELS,
        &voxelize::REDUCE_KERNELS,
        &voxelize::GROUP_KERNELS,
        &voxelize::GATHER_KERNELS,
        &voxelize::HARD_KERNELS,
        &voxelize::PIXEL_KERNELS,
        &voxelize::BACKWARD_KERNELS,
    ]
}
