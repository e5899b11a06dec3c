//! The ops.

pub(crate) mod align;
pub(crate) mod cloud;
pub mod crop_box;
pub mod depth;
pub mod farthest_points;
pub mod fuse;
pub mod kinematics;
pub(crate) mod pose;
pub mod resample;
pub mod resample_backward;
pub mod rotation;
pub(crate) mod rows;
pub(crate) mod scalar;
pub mod transform_points;
pub(crate) mod trig;
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

use crate::cuda::{KernelFamily, KernelVariant};

impl KernelVariant<'static> {
    /// Every kernel that the engine can ask for.
    pub fn all() -> Vec<Self> {
        let variants = |&family: &&'static KernelFamily| {
            (family.variants)().into_iter().map(move |variant| Self::new(family, variant, None))
        };
        FAMILIES.iter().flat_map(variants).collect()
    }
}

/// The kernels of all ops. An op that has some adds them here.
static FAMILIES: &[&KernelFamily] = &[
    &align::KERNELS,
    &resample_backward::ROW_KERNELS,
    &resample_backward::FIND_KERNELS,
    &resample_backward::GATHER_KERNELS,
    &crate::cuda::CLEAR_KERNELS,
    &crate::cuda::SCAN_KERNELS,
    &crate::cuda::SORT_KERNELS,
    &crop_box::KERNELS,
    &kinematics::FORWARD_KERNELS,
    &kinematics::BACKWARD_KERNELS,
    &kinematics::INVERSE_KERNELS,
    &kinematics::VELOCITY_KERNELS,
    &farthest_points::KERNELS,
    &rotation::KERNELS,
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
];
