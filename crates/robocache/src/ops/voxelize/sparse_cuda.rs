//! The sparse ops on CUDA: sorted keys become groups, groups become rows.

use super::cuda::{REPORTS, sort_points};
use super::dims::Reduce;
use super::divide::Divisor;
use super::groups::{GatherDims, GatherTargets, GatherVoxels, GroupDims, GroupPoints, GroupTargets};
use super::hard_cuda::{features_of, hard_voxels};
use super::place::GridArgs;
use super::reduce_cuda::{FeatureArgs, VECTOR_COLUMNS, whole_vectors};
use crate::cuda::{Grid, KernelFamily, Launcher, Parts, PointArgs, Sort, SortMemory};
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::TensorRef;
use crate::{Error, Outputs, Result};

/// Groups of sorted points: by the keys' width and how many of them a thread has.
pub(crate) static GROUP_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("group.cu"),
    headers: &[],
    variants: || (0..4).collect(),
    entry: |number| {
        format!("rc_voxelize_group_{}_{}", if number < 2 { 32 } else { 64 }, GROUP_ITEMS[number as usize % 2])
    },
    options: |number| {
        vec![
            format!("-DRC_KEY={}", if number < 2 { "u32" } else { "u64" }),
            format!("-DRC_ITEMS={}", GROUP_ITEMS[number as usize % 2]),
            format!("-DRC_ARGS_SIZE={}", size_of::<GroupArgs>()),
        ]
    },
};

/// Keys of a thread.
const GROUP_ITEMS: [usize; 2] = [4, 8];
/// More tiles than these make the way back longer than their work.
const MANY_TILES: usize = 512;

/// What kernels that read groups include.
pub(super) const GROUP_HEADERS: [(&str, &str); 4] = [
    ("fold.cuh", include_str!("fold.cuh")),
    ("rows.cuh", include_str!("rows.cuh")),
    ("divide.cuh", include_str!("divide.cuh")),
    ("groups.cuh", include_str!("groups.cuh")),
];

/// Rows of groups, by the features' type, whether they are summed or compared, and whether several columns can
/// be read at once.
pub(crate) static GATHER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("gather.cu"),
    headers: &GROUP_HEADERS,
    variants: || (0..16).collect(),
    entry: |number| {
        let (how, columns) = (["pick", "sum"][number as usize / 4 % 2], ["scalar", "vector"][number as usize / 8 % 2]);
        format!("rc_voxelize_gather_{how}_{columns}_{}", FLOATS[number as usize % 4].0)
    },
    options: |number| {
        let columns = if number < 8 { 1 } else { VECTOR_COLUMNS[number as usize % 4] };
        vec![
            format!("-DRC_FEATURE={}", FLOATS[number as usize % 4].1),
            format!("-DRC_COLUMNS={columns}"),
            format!("-DRC_SUMS={}", number / 4 % 2),
            format!("-DRC_ARGS_SIZE={}", size_of::<GatherArgs>()),
        ]
    },
};

/// Mirrors `Args` in group.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupArgs {
    keys: *const u8,
    order: *const u32,
    status: *mut u32,
    ticket: *mut u32,
    cells: *mut i64,
    starts: *mut i32,
    inverse: *mut i64,
    count_out: *mut i64,
    nowhere: u64,
    most: u64,
    count: u32,
    padding: u32,
}

/// Mirrors `rc::Groups` in groups.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct GroupsArgs {
    cells: *const i64,
    starts: *const i32,
    order: *const u32,
    count: *const i64,
    rows: u64,
    total: u64,
}

impl GroupsArgs {
    pub(super) fn new(op: &GatherVoxels<'_>, dims: &GatherDims) -> Self {
        Self::of([&op.cells, &op.starts, &op.order, &op.count], op.rows, dims.cloud.total())
    }

    /// What [`GroupPoints`] wrote of so many points, at most `rows` groups of it.
    pub(super) fn of([cells, starts, order, count]: [&TensorRef<'_>; 4], rows: usize, total: usize) -> Self {
        Self {
            cells: cells.data().cast(),
            starts: starts.data().cast(),
            order: order.data().cast(),
            count: count.data().cast(),
            rows: rows as u64,
            total: total as u64,
        }
    }
}

/// How rows are handed to warps: at most so many to each, fewer where they are wide, and where there are few.
pub(super) fn rows_of_warp(rows: u64, vectors: usize, launcher: &Launcher<'_>) -> u64 {
    let most = (WARP_VECTORS / vectors.max(1)).clamp(1, 32);
    let warps = u64::from(launcher.gpu().info().multiprocessors.max(1)) * FEW_WARPS;
    rows.div_ceil(warps).clamp(1, most as u64)
}

/// Mirrors `Args` in gather.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct GatherArgs {
    features: FeatureArgs,
    groups: GroupsArgs,
    coords: *mut i64,
    counts: *mut i32,
    out: *mut u8,
    shape: [Divisor; 3],
    vectors: Divisor,
    tiles: u64,
    rows: u32,
    width: u32,
    kind: u32,
    reduce: u32,
    flags: u32,
    padding: u32,
}

/// Mirror `Flags` in gather.cu.
const VECTOR_PLACES: u32 = 1;
const FEW_CELLS: u32 = 2;
const SAME_TYPE: u32 = 4;

/// Warps of a block.
pub(super) const WARPS: u64 = 8;
/// Vectors of a warp that are worth its start: four a lane.
const WARP_VECTORS: usize = 128;
/// Warps of a multiprocessor without which it waits for memory.
const FEW_WARPS: u64 = 16;

struct GroupPlan {
    sort: Sort,
    /// Of [`GROUP_KERNELS`].
    variant: u32,
    tiles: usize,
    keys: [usize; 2],
    /// The other of the two is the order that comes out.
    values: usize,
    state: usize,
    status: usize,
    parts: Parts,
}

impl GroupPlan {
    fn new(op: &GroupPoints<'_>, dims: &GroupDims) -> Result<Self> {
        let total = dims.cloud.total();
        let sort = Sort::new(total, dims.all_cells).map_err(|error| error.argument(op.points.argument()))?;
        // One more behind the last key: there the last cell ends.
        let [few, many] = GROUP_ITEMS.map(|items| (total + 1).div_ceil(256 * items));
        let more = few > MANY_TILES;
        let tiles = if more { many } else { few };
        let mut parts = Parts::default();
        Ok(Self {
            sort,
            variant: u32::from(more) + 2 * u32::from(sort.wide),
            tiles,
            keys: [(); 2].map(|()| parts.add(total * sort.key_bytes())),
            values: parts.add(total * 4),
            state: parts.add(sort.state_bytes()),
            status: parts.add(Self::status_bytes(tiles)),
            parts,
        })
    }

    /// The ticket, and a word for each tile.
    fn status_bytes(tiles: usize) -> usize {
        16 + 4 * tiles
    }
}

pub(super) fn group_workspace(op: &GroupPoints<'_>, dims: &GroupDims) -> Result<usize> {
    Ok(GroupPlan::new(op, dims)?.parts.bytes())
}

pub(super) fn group(
    op: &GroupPoints<'_>,
    dims: &GroupDims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let targets = GroupTargets::new(out)?;
    let base = Parts::base(out.workspace());
    let plan = GroupPlan::new(op, dims)?;
    let at = |part: usize| base.wrapping_add(part);
    // The sort leaves the order where it is wanted.
    let (landing, spare) = (targets.order.cast(), at(plan.values).cast());
    let memory = SortMemory {
        keys: plan.keys.map(at),
        values: if plan.sort.lands() == 0 { [landing, spare] } else { [spare, landing] },
        state: at(plan.state).cast(),
    };
    let points = PointArgs::new(&op.points, op.lengths, &dims.cloud, op.check, Some(&REPORTS), launcher)?;
    let grid = GridArgs::new(&op.grid, op.points.dtype(), dims.cells);
    // SAFETY: the views were checked against dims and live on this GPU, as does the workspace; the
    // framework keeps them until the stream has passed.
    unsafe {
        let dropped = (targets.dropped, dims.cloud.batch);
        let status = (at(plan.status), GroupPlan::status_bytes(plan.tiles));
        let inverse = (targets.inverse.cast(), dims.cloud.total() * 8);
        let also = [status, inverse];
        let sorted = sort_points(launcher, (points, grid), dropped, dims.all_cells, &plan.sort, &memory, also)?;
        let args = GroupArgs {
            keys: memory.keys[sorted],
            order: memory.values[sorted],
            status: status.0.wrapping_add(16).cast(),
            ticket: status.0.cast(),
            cells: targets.cells,
            starts: targets.starts,
            inverse: targets.inverse,
            count_out: targets.count,
            nowhere: dims.all_cells,
            most: op.max_voxels.map_or(u64::MAX, |most| most as u64),
            count: dims.cloud.total() as u32,
            padding: 0,
        };
        let grid = Grid { shared: 64, ..Grid::for_blocks(plan.tiles as u64) };
        launcher.launch(&GROUP_KERNELS, plan.variant, grid, &args)
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
    let (features, kind) = features_of(op);
    let width = u32::try_from(dims.width).ok().filter(|&width| width <= i32::MAX as u32);
    let width = width.ok_or_else(|| Error::invalid("features", "too many columns"))?;
    let vector = whole_vectors(&features, dims.feature_strides, dims.width, &dims.cloud);
    let float = u32::from(float_number(kind));
    let vectors = dims.width / if vector { VECTOR_COLUMNS[float as usize] } else { 1 };
    let rows = rows_of_warp(op.rows as u64, if targets.features.is_null() { 0 } else { vectors }, launcher);
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    let same = dims.dtype == features.dtype() && (!vector || (targets.features as usize).is_multiple_of(16));
    let cells = u128::from(dims.cells) * dims.cloud.batch.max(1) as u128;
    let args = GatherArgs {
        features: FeatureArgs::new(&features, dims.feature_strides, &dims.cloud),
        groups: GroupsArgs::new(op, dims),
        coords: targets.coords,
        counts: targets.counts,
        // Rows without columns are nothing to write.
        out: if width == 0 { std::ptr::null_mut() } else { targets.features },
        shape: op.grid.shape.map(|cells| Divisor::new(cells as u64)),
        vectors: Divisor::new(vectors as u64),
        tiles: (op.rows as u64).div_ceil(WARPS * rows),
        rows: rows as u32,
        width,
        kind: u32::from(float_number(dims.dtype)),
        reduce: op.reduce as u32,
        flags: flag((targets.coords as usize).is_multiple_of(16), VECTOR_PLACES)
            | flag(cells <= u128::from(u32::MAX), FEW_CELLS)
            | flag(same, SAME_TYPE),
        padding: 0,
    };
    let sums = !matches!(op.reduce, Reduce::Max | Reduce::Min);
    let variant = float + 4 * u32::from(sums) + 8 * u32::from(vector);
    // As the kernel lays it out: a word for each warp and for each lane.
    let grid = Grid { shared: 4 * (8 + 256), ..Grid::for_blocks(args.tiles) };
    // SAFETY: as in `group`; the kernels clamp what they read of the groups.
    unsafe {
        launcher.launch(&GATHER_KERNELS, variant, grid, &args)?;
        if op.max_points.is_none() {
            return Ok(());
        }
        hard_voxels(op, dims, targets.voxels, launcher)
    }
}
