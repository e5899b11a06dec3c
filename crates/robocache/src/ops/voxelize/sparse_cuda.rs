//! The sparse ops on CUDA: sorted keys become groups, groups become rows.

use super::cuda::sort_points;
use super::place::GridArgs;
use super::reduce_cuda::FeatureArgs;
use super::sparse::{GatherDims, GatherTargets, GatherVoxels, GroupDims, GroupPoints, GroupTargets};
use crate::cuda::{Grid, KernelFamily, Launcher, Parts, PointArgs, Scan, Sort, SortMemory};
use crate::ops::depth::PointSource;
use crate::ops::scalar::{FLOATS, float_number};
use crate::{Outputs, Result};

/// Groups of sorted points: flags, then rows; for keys of 32 and of 64 bits.
pub(crate) static GROUP_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("group.cu"),
    headers: &[],
    variants: || (0..4).collect(),
    entry: |number| {
        format!("rc_voxelize_group_{}_{}", ["flags", "rows"][number as usize % 2], if number < 2 { 32 } else { 64 })
    },
    options: |number| {
        vec![
            format!("-DRC_STAGE={}", number % 2),
            format!("-DRC_KEY={}", if number < 2 { "u32" } else { "u64" }),
            format!("-DRC_ARGS_SIZE={}", size_of::<GroupArgs>()),
        ]
    },
};

/// Rows of groups, by the features' type.
pub(crate) static GATHER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("gather.cu"),
    headers: &[("fold.cuh", include_str!("fold.cuh"))],
    variants: || (0..4).collect(),
    entry: |number| format!("rc_voxelize_gather_{}", FLOATS[number as usize % 4].0),
    options: |number| {
        vec![
            format!("-DRC_FEATURE={}", FLOATS[number as usize % 4].1),
            format!("-DRC_ARGS_SIZE={}", size_of::<GatherArgs>()),
        ]
    },
};

/// The coordinates of hard voxels from pixels.
pub(crate) static PIXEL_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("pixels.cu"),
    headers: &[],
    variants: || vec![0],
    entry: |_| "rc_voxelize_pixels".to_owned(),
    options: |_| PointArgs::options::<PixelVoxelArgs>(PointArgs::KINDS - 1),
};

/// Rows of hard voxels to a block of pixels.cu.
const PIXEL_ROWS: u64 = 64;

/// Mirrors `Args` in pixels.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct PixelVoxelArgs {
    cells: *const i64,
    starts: *const i32,
    order: *const i32,
    count: *const i64,
    voxels: *mut u8,
    row_cells: u64,
    rows: u64,
    total: u64,
    width: i64,
    max_points: i64,
    voxel_kind: u32,
    padding: u32,
}

/// Mirrors `Args` in group.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupArgs {
    keys: *const u8,
    order: *const u32,
    sums: *mut u32,
    cells: *mut i64,
    starts: *mut i32,
    order_out: *mut i32,
    inverse: *mut i64,
    count_out: *mut i64,
    nowhere: u64,
    most: u64,
    count: u64,
}

/// Mirrors `Args` in gather.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct GatherArgs {
    features: FeatureArgs,
    points: *const u8,
    point_strides: [i64; 3],
    cells: *const i64,
    starts: *const i32,
    order: *const i32,
    count: *const i64,
    coords: *mut i64,
    counts: *mut i32,
    out: *mut u8,
    voxels: *mut u8,
    shape: [i64; 3],
    row_cells: u64,
    rows: u64,
    total: u64,
    width: i64,
    max_points: i64,
    point_kind: u32,
    kind: u32,
    voxel_kind: u32,
    reduce: u32,
    tile: u32,
    padding: u32,
}

struct GroupPlan {
    sort: Sort,
    scan: Scan,
    keys: [usize; 2],
    values: [usize; 2],
    state: usize,
    sums: usize,
    scan_state: usize,
    parts: Parts,
}

impl GroupPlan {
    fn new(dims: &GroupDims) -> Result<Self> {
        let total = dims.cloud.total();
        let sort = Sort::new(total, dims.all_cells)?;
        // One more behind the last: the sum of all.
        let scan = Scan { count: total + 1 };
        let mut parts = Parts::default();
        Ok(Self {
            sort,
            scan,
            keys: [(); 2].map(|()| parts.add(total * sort.key_bytes())),
            values: [(); 2].map(|()| parts.add(total * 4)),
            state: parts.add(sort.state_bytes()),
            sums: parts.add(scan.number_bytes()),
            scan_state: parts.add(scan.state_bytes()),
            parts,
        })
    }
}

pub(super) fn group_workspace(dims: &GroupDims) -> Result<usize> {
    Ok(GroupPlan::new(dims)?.parts.bytes())
}

pub(super) fn group(
    op: &GroupPoints<'_>,
    dims: &GroupDims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let targets = GroupTargets::new(out)?;
    let base = Parts::base(out.workspace());
    let plan = GroupPlan::new(dims)?;
    let at = |part: usize| base.wrapping_add(part);
    let memory = SortMemory {
        keys: plan.keys.map(at),
        values: plan.values.map(|part| at(part).cast()),
        state: at(plan.state).cast(),
    };
    let points = PointArgs::new(&op.points, op.lengths, &dims.cloud, op.check, crate::ops::VOXELIZE, launcher)?;
    let grid = GridArgs::new(&op.grid, op.points.dtype(), dims.cells);
    let wide = plan.sort.wide;
    // SAFETY: the views were checked against dims and live on this GPU, as does the workspace; the
    // framework keeps them until the stream has passed.
    unsafe {
        let dropped = (targets.dropped, dims.cloud.batch);
        let sorted = sort_points(launcher, (points, grid), dropped, dims.all_cells, &plan.sort, &memory)?;
        let args = GroupArgs {
            keys: memory.keys[sorted],
            order: memory.values[sorted],
            sums: at(plan.sums).cast(),
            cells: targets.cells,
            starts: targets.starts,
            order_out: targets.order,
            inverse: targets.inverse,
            count_out: targets.count,
            nowhere: dims.all_cells,
            most: op.max_voxels.map_or(u64::MAX, |most| most as u64),
            count: dims.cloud.total() as u64,
        };
        let grid = Grid::for_items(args.count + 1);
        let variant = if wide { 2 } else { 0 };
        launcher.launch(&GROUP_KERNELS, variant, grid, &args)?;
        plan.scan.run(launcher, args.sums, std::ptr::null_mut(), at(plan.scan_state))?;
        launcher.launch(&GROUP_KERNELS, variant + 1, grid, &args)
    }
}

pub(super) fn gather(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let targets = GatherTargets::new(op, out)?;
    if op.rows == 0 && !launcher.only_loads() {
        return Ok(());
    }
    let (points, stand_in) = match &op.points {
        PointSource::Cloud(points) => (points.data(), points),
        // Their coordinates come by a kernel of their own, `launch_pixels`.
        PointSource::Depth(image) => (std::ptr::null(), &image.depth),
    };
    let features = op.features.unwrap_or(*stand_in);
    let kind = op.features.map_or(op.points.dtype(), |features| features.dtype());
    // About 16 KiB of results to a block.
    let row = dims.width * dims.dtype.size() + op.max_points.unwrap_or(0) * (3 + dims.width) * dims.voxel_dtype.size();
    let tile = (16_384 / (row + 36)).clamp(1, 256) as u32;
    let args = GatherArgs {
        features: FeatureArgs::new(&features, dims.feature_strides, &dims.cloud),
        points,
        point_strides: dims.cloud.point_strides.map(|stride| stride as i64),
        cells: op.cells.data().cast(),
        starts: op.starts.data().cast(),
        order: op.order.data().cast(),
        count: op.count.data().cast(),
        coords: targets.coords,
        counts: targets.counts,
        out: targets.features,
        voxels: targets.voxels,
        shape: op.grid.shape.map(|cells| cells as i64),
        row_cells: dims.cells,
        rows: op.rows as u64,
        total: dims.cloud.total() as u64,
        width: dims.width as i64,
        max_points: op.max_points.unwrap_or(0) as i64,
        point_kind: u32::from(float_number(op.points.dtype())),
        kind: u32::from(float_number(dims.dtype)),
        voxel_kind: u32::from(float_number(dims.voxel_dtype)),
        reduce: op.reduce as u32,
        tile,
        padding: 0,
    };
    let shared = 256 * 8 + 2 * 4 * tile;
    let grid = Grid { shared, ..Grid::for_blocks(args.rows.div_ceil(u64::from(tile))) };
    // SAFETY: as in `group`; the kernel clamps what it reads of the groups.
    unsafe { launcher.launch(&GATHER_KERNELS, u32::from(float_number(kind)), grid, &args)? };
    if targets.voxels.is_null() || !args.points.is_null() {
        return Ok(());
    }
    launch_pixels(op, dims, &args, launcher)
}

/// Writes the coordinates of hard voxels whose points are pixels.
fn launch_pixels(op: &GatherVoxels<'_>, dims: &GatherDims, gather: &GatherArgs, launcher: &Launcher<'_>) -> Result<()> {
    let points = PointArgs::new(&op.points, None, &dims.cloud, false, crate::ops::VOXELIZE, launcher)?;
    let args = PixelVoxelArgs {
        cells: gather.cells,
        starts: gather.starts,
        order: gather.order,
        count: gather.count,
        voxels: gather.voxels,
        row_cells: gather.row_cells,
        rows: gather.rows,
        total: gather.total,
        width: gather.width,
        max_points: gather.max_points,
        voxel_kind: gather.voxel_kind,
        padding: 0,
    };
    let grid = Grid::for_blocks(args.rows.div_ceil(PIXEL_ROWS));
    // SAFETY: as in `gather`.
    unsafe { points.launch(launcher, &PIXEL_KERNELS, 0, grid, args) }
}
