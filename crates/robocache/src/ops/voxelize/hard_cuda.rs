//! Hard voxels on CUDA: the first points of each group.

use super::cuda::REPORTS;
use super::divide::Divisor;
use super::groups::{GatherDims, GatherVoxels};
use super::reduce_cuda::FeatureArgs;
use super::sparse_cuda::{GROUP_HEADERS, GroupsArgs};
use crate::cuda::{Grid, KernelFamily, Launcher, PointArgs};
use crate::ops::depth::PointSource;
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Result};

/// By the points' type and the features'.
pub(crate) static HARD_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("hard.cu"),
    headers: &GROUP_HEADERS,
    variants: || (0..16).collect(),
    entry: |number| {
        let (point, feature) = (number as usize % 4, number as usize / 4 % 4);
        format!("rc_voxelize_hard_{}_{}", FLOATS[point].0, FLOATS[feature].0)
    },
    options: |number| {
        let (point, feature) = (number % 4, number / 4 % 4);
        vec![
            format!("-DRC_POINT={}", FLOATS[point as usize].1),
            format!("-DRC_FEATURE={}", FLOATS[feature as usize].1),
            format!("-DRC_VOXEL={}", FLOATS[voxel_number(point, feature) as usize].1),
            format!("-DRC_ARGS_SIZE={}", size_of::<HardArgs>()),
        ]
    },
};

/// The coordinates of points that are pixels.
pub(crate) static PIXEL_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("pixels.cu"),
    headers: &GROUP_HEADERS,
    variants: || vec![0],
    entry: |_| "rc_voxelize_pixels".to_owned(),
    options: |_| PointArgs::options::<PixelVoxelArgs>(PointArgs::PIXELS),
};

/// The result's type, as [`GatherDims`] has it: that of both, else double or float.
fn voxel_number(point: u32, feature: u32) -> u32 {
    if point == feature { point } else { point.max(feature).max(2) }
}

/// Mirrors `Args` in hard.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct HardArgs {
    points: FeatureArgs,
    features: FeatureArgs,
    groups: GroupsArgs,
    voxels: *mut u8,
    row: Divisor,
    point: Divisor,
    numbers: u64,
    chunks: u64,
    narrow: u32,
    whole: u32,
}

/// Mirrors `Args` in pixels.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct PixelVoxelArgs {
    groups: GroupsArgs,
    voxels: *mut u8,
    row_cells: u64,
    width: i64,
    max_points: i64,
    voxel_kind: u32,
    padding: u32,
}

/// Rows of a block of pixels.cu.
const PIXEL_ROWS: u64 = 64;

/// Bytes that a block writes at once: two vectors a thread.
const CHUNK_BYTES: u64 = 2 * 256 * 16;

/// Writes the first points of each row.
///
/// # Safety
/// As for [`Launcher::launch`].
pub(super) unsafe fn hard_voxels(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    voxels: *mut u8,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let (features, kind) = features_of(op);
    let wide = dims.width as u64 + 3;
    let of_row = wide.checked_mul(op.max_points.unwrap_or(0) as u64);
    let sizes = of_row.and_then(|numbers| Some((numbers, numbers.checked_mul(op.rows as u64)?)));
    let (of_row, numbers) = sizes.ok_or_else(|| Error::invalid("max_points_per_voxel", "too many"))?;
    let [point, feature] = [op.points.dtype(), kind].map(|dtype| u32::from(float_number(dtype)));
    let points = match &op.points {
        PointSource::Cloud(points) => FeatureArgs::new(points, dims.cloud.point_strides, &dims.cloud),
        // Their coordinates come by a kernel of their own.
        PointSource::Depth(_) => FeatureArgs::NONE,
    };
    let args = HardArgs {
        points,
        features: FeatureArgs::new(&features, dims.feature_strides, &dims.cloud),
        groups: GroupsArgs::new(op, dims),
        voxels,
        row: Divisor::new(of_row),
        point: Divisor::new(wide),
        numbers,
        chunks: numbers.saturating_mul(dims.voxel_dtype.size() as u64).div_ceil(CHUNK_BYTES),
        // With room for a vector behind the last.
        narrow: u32::from(numbers <= u64::from(u32::MAX) - 16),
        whole: u32::from((voxels as usize).is_multiple_of(16)),
    };
    if numbers == 0 && !launcher.only_loads() {
        return Ok(());
    }
    // SAFETY: the caller's promise; the kernel clamps what it reads of the groups.
    unsafe { launcher.launch(&HARD_KERNELS, point + 4 * feature, Grid::for_blocks(args.chunks), &args)? };
    if matches!(op.points, PointSource::Cloud(_)) {
        return Ok(());
    }
    let points = PointArgs::new(&op.points, None, &dims.cloud, false, Some(&REPORTS), launcher)?;
    let args = PixelVoxelArgs {
        groups: args.groups,
        voxels,
        row_cells: dims.cells,
        width: dims.width as i64,
        max_points: op.max_points.unwrap_or(0) as i64,
        voxel_kind: u32::from(float_number(dims.voxel_dtype)),
        padding: 0,
    };
    let grid = Grid::for_blocks((op.rows as u64).div_ceil(PIXEL_ROWS));
    // SAFETY: as above.
    unsafe { points.launch(launcher, &PIXEL_KERNELS, 0, grid, args) }
}

/// The features of a gather and their type. Where there are none, something else that is there, of which
/// nothing is read, and the type of the points.
pub(super) fn features_of<'a>(op: &GatherVoxels<'a>) -> (TensorRef<'a>, DType) {
    let stand_in = match &op.points {
        PointSource::Cloud(points) => *points,
        PointSource::Depth(image) => image.depth,
    };
    op.features.map_or((stand_in, op.points.dtype()), |features| (features, features.dtype()))
}

#[cfg(test)]
mod tests {
    use super::voxel_number;

    /// F16, bf16, f32, f64.
    #[test]
    fn voxels_hold_points_and_features() {
        let want = [[0, 2, 2, 3], [2, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]];
        for (point, row) in (0..).zip(want) {
            for (feature, kind) in (0..).zip(row) {
                assert_eq!(voxel_number(point, feature), kind);
            }
        }
    }
}
