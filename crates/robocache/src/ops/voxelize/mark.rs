//! Occupied cells and counts on CUDA: points to bits, counts, or the grid itself.

use super::dims::Dims;
use super::place::GridArgs;
use crate::Result;
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher, PointArgs};
use crate::tensor::DType;

/// Grids of this many bytes stay in the cache that all multiprocessors of a large GPU share, where a single cell
/// is marked as fast as its bit is set: bits and a pass over them are saved. Larger ones would be read and written
/// once more for every cell. More of those whose bits are set than of those whose cells are stored.
const NEAR_SET: usize = 36 << 20;
const NEAR_STORED: usize = 16 << 20;

/// Points to cells, by the points' type and what is made of them.
pub(crate) static MARK_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("mark.cu"),
    headers: &[("crowd.cuh", include_str!("crowd.cuh"))],
    variants: || (0..3 * PointArgs::KINDS).collect(),
    entry: |number| {
        let mode = ["bits", "counts", "grid"][(number / PointArgs::KINDS) as usize];
        format!("rc_voxelize_{mode}_{}", PointArgs::name(number % PointArgs::KINDS))
    },
    options: |number| {
        let mut options = PointArgs::options::<MarkArgs>(number % PointArgs::KINDS);
        options.push(format!("-DRC_MODE={}", number / PointArgs::KINDS));
        options
    },
};

/// Points to bits by way of shared memory, by the points' type. Those of 64 bits spend their time on
/// dividing, and take more registers than so many threads have.
pub(crate) static NEAR_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("near.cu"),
    headers: &[],
    variants: || (0..PointArgs::KINDS).filter(|kind| PointArgs::name(*kind) != DType::F64.name()).collect(),
    entry: |kind| format!("rc_voxelize_near_{}", PointArgs::name(kind)),
    options: PointArgs::options::<NearArgs>,
};

/// What becomes of a point's cell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mark {
    /// A bit is set.
    Bits = 0,
    /// An `i32` is counted up.
    Counts = 1,
    /// An element of the grid becomes 1.
    Grid = 2,
}

/// Mirrors `Args` in mark.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct MarkArgs {
    grid: GridArgs,
    cells: *mut u8,
    dropped: *mut i64,
    one: u64,
    bytes: u32,
    looks: u32,
    blank: u32,
    padding: u32,
}

/// Mirrors `Args` in near.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct NearArgs {
    grid: GridArgs,
    bits: *mut u8,
    dropped: *mut i64,
    share: i64,
    parts: u32,
    words: u32,
}

/// Threads of a block in near.cu, and shared memory that is not for bits.
const NEAR_THREADS: u32 = 1024;
const OTHER_SHARED: u32 = 1024;
/// Points from which on merging what blocks have found is the smaller part.
const NEAR_POINTS: usize = 1 << 20;

/// How points are handed to blocks that hold bits in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Near {
    /// Blocks that read the same points, each for its part of the grid.
    parts: u32,
    /// Words of a part.
    words: u32,
    groups: u32,
    /// Points of a group.
    share: usize,
}

impl Near {
    /// `None` where bits are better set in global memory: for several rows, few points for each cell,
    /// or a grid of more than two parts, whose points would be read too often.
    fn plan(gpu: &GpuInfo, rows: usize, points: usize, cells: usize) -> Option<Self> {
        if rows != 1 || points < NEAR_POINTS || points / 2 < cells {
            return None;
        }
        let words = u32::try_from(cells.div_ceil(32)).ok()?;
        let parts = words.div_ceil(gpu.shared_memory.saturating_sub(OTHER_SHARED) / 4).max(1);
        let groups = gpu.multiprocessors / parts;
        if parts > 2 || groups == 0 {
            return None;
        }
        // Four points are read at once; a warp's worth keeps its loads together.
        let share = points.div_ceil(groups as usize).next_multiple_of(128);
        Some(Self { parts, words: words.div_ceil(parts), groups, share })
    }
}

/// Sets the bits of all occupied cells.
///
/// # Safety
/// As for [`Launcher::launch`].
pub(super) unsafe fn launch_bits(
    launcher: &Launcher<'_>,
    (points, grid): (PointArgs, GridArgs),
    bits: *mut u8,
    dropped: *mut i64,
    dims: &Dims,
) -> Result<()> {
    let near = Near::plan(launcher.gpu().info(), dims.cloud.batch, dims.cloud.count, dims.cells);
    let Some(near) = near.filter(|_| !matches!(points, PointArgs::Cloud(_, DType::F64))) else {
        // SAFETY: the caller's promise.
        return unsafe { launch(launcher, Mark::Bits, (points, grid), bits, dropped, dims) };
    };
    let Near { parts, words, groups, share } = near;
    let args = NearArgs { grid, bits, dropped, share: share as i64, parts, words };
    let blocks = Grid { blocks: groups * parts, threads: NEAR_THREADS, shared: words * 4 };
    // SAFETY: the caller's promise; the parts hold all cells of the one row.
    unsafe { points.launch(launcher, &NEAR_KERNELS, points.kind(), blocks, args) }
}

/// Whether occupancy is marked in the grid at once. With more points than cells, most would be stored
/// again, and looking at bits is cheaper.
pub(super) fn marks_grid(dims: &Dims) -> bool {
    let near = if dims.fill == 0 && dims.dtype.size() <= 4 { NEAR_SET } else { NEAR_STORED };
    dims.cloud.count <= dims.cells && dims.all_cells.saturating_mul(dims.dtype.size()) <= near
}

/// Marks the cells of all points in `cells`, which holds what `mark` says.
///
/// # Safety
/// As for [`Launcher::launch`].
pub(super) unsafe fn launch(
    launcher: &Launcher<'_>,
    mark: Mark,
    (points, grid): (PointArgs, GridArgs),
    cells: *mut u8,
    dropped: *mut i64,
    dims: &Dims,
) -> Result<()> {
    // A word at an end would reach beyond the grid.
    let whole_words = cells.addr().is_multiple_of(4) && (dims.all_cells * dims.dtype.size()).is_multiple_of(4);
    let args = MarkArgs {
        grid,
        cells,
        dropped,
        one: dims.one,
        bytes: dims.dtype.size() as u32,
        looks: u32::from(dims.cloud.count > dims.cells),
        blank: u32::from(dims.fill == 0 && whole_words),
        padding: 0,
    };
    let variant = mark as u32 * PointArgs::KINDS + points.kind();
    // SAFETY: the caller's promise.
    unsafe { points.launch(launcher, &MARK_KERNELS, variant, points.grid(), args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_all_cells_and_groups_all_points() {
        let h200 = GpuInfo::imagined(132, 232_448);
        for (points, cells) in
            [(10_000_000, 128 * 128 * 128), (1 << 20, 1), (3_000_001, 1_200_007), (1 << 24, 1_851_392)]
        {
            let near = Near::plan(&h200, 1, points, cells).unwrap();
            assert!(near.parts as usize * near.words as usize * 32 >= cells, "{near:?}");
            assert!(near.words * 4 + OTHER_SHARED <= h200.shared_memory && near.groups * near.parts <= 132, "{near:?}");
            assert!(near.share * near.groups as usize >= points && near.share.is_multiple_of(4), "{near:?}");
        }
        assert_eq!(Near::plan(&h200, 1, 10_000_000, 1 << 21).map(|near| near.parts), Some(2));
        // Too many rows, cells for the points, cells for shared memory, too few points.
        assert_eq!(Near::plan(&h200, 2, 10_000_000, 1 << 21), None);
        assert_eq!(Near::plan(&h200, 1, 4_000_000, 1 << 21), None);
        assert_eq!(Near::plan(&h200, 1, 1 << 28, 1 << 22), None);
        assert_eq!(Near::plan(&h200, 1, 1000, 10), None);
        assert_eq!(Near::plan(&GpuInfo::imagined(170, 101_376), 1, 10_000_000, 1 << 21), None);
        assert_eq!(Near::plan(&GpuInfo::imagined(1, 232_448), 1, 10_000_000, 1 << 21), None);
    }
}
