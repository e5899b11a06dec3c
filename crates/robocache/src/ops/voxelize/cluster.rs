//! Occupancy of large grids on GPUs with clusters: one launch, bits in the shared memory of several blocks.

use super::Dims;
use super::mark::marks_grid;
use super::place::GridArgs;
use crate::Result;
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher, PointArgs};
use crate::tensor::DType;

/// Points to grids, by the points' type. Those of 64 bits spend their time on dividing, see mark.rs.
pub(crate) static CLUSTER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("cluster.cu"),
    headers: &[("bits.cuh", include_str!("bits.cuh")), ("crowd.cuh", include_str!("crowd.cuh"))],
    variants: || (0..PointArgs::KINDS).filter(|kind| PointArgs::name(*kind) != DType::F64.name()).collect(),
    entry: |kind| format!("rc_voxelize_cluster_{}", PointArgs::name(kind)),
    options: PointArgs::options::<ClusterArgs>,
};

/// Mirrors `Args` in cluster.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct ClusterArgs {
    grid: GridArgs,
    out: *mut u8,
    dropped: *mut i64,
    fill: u64,
    one: u64,
    parts: u32,
    words: u32,
    bytes: u32,
    padding: u32,
}

/// Blocks of a cluster and threads of a block, as in cluster.cu.
const BLOCKS: usize = 8;
const THREADS: u32 = 256;
/// Cells that lie side by side in one block, and their words.
const CHUNK: usize = 4096;
const CHUNK_WORDS: usize = CHUNK / 32;
/// Words of a block, at most: what lets four blocks share a multiprocessor.
const MOST_WORDS: usize = 8192;

/// Bytes of bits that stay in the cache of all multiprocessors beside what is written.
const NEAR_BITS: usize = 16 << 20;
/// Clusters for each multiprocessor: it holds half a one.
const CLUSTERS: usize = 3;

/// How the grid of a row is handed to clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clusters {
    /// Clusters that share a row.
    parts: u32,
    /// Words of bits of a block.
    words: u32,
    /// Of all rows.
    blocks: u32,
}

impl Clusters {
    /// `None` where there are no clusters, too few cells for all multiprocessors, so many points that it costs
    /// more to read them for every part than to write the grid, rows that are no whole vectors, or grids so small
    /// that cells are stored at once.
    pub(super) fn plan(gpu: &GpuInfo, points: &PointArgs, dims: &Dims, out: *const u8) -> Option<Self> {
        let fits = gpu.capability >= (9, 0) && !matches!(points, PointArgs::Cloud(_, DType::F64));
        // Bits of all rows that stay in the cache are set there as fast; what then counts is the writing.
        let fits = fits && (dims.dtype.size() == 1 || dims.all_cells / 8 > NEAR_BITS);
        if !fits || marks_grid(dims) || dims.cells > 1 << 31 || !out.addr().is_multiple_of(16) {
            return None;
        }
        let point_bytes = dims.cloud.count.checked_mul(points.bytes())?;
        Self::of_rows(gpu.multiprocessors as usize, dims.cloud.batch, point_bytes, dims.cells, dims.dtype.size())
    }

    /// As [`Clusters::plan`], by the bytes of a row's points, its cells, and the bytes of a cell.
    fn of_rows(multiprocessors: usize, rows: usize, point_bytes: usize, cells: usize, size: usize) -> Option<Self> {
        let row_bytes = cells.checked_mul(size)?;
        if rows == 0 || !row_bytes.is_multiple_of(16) {
            return None;
        }
        let chunks = cells.div_ceil(CHUNK).max(1);
        let least = chunks.div_ceil(BLOCKS * MOST_WORDS / CHUNK_WORDS);
        // Clusters come and go as a whole, so there should be several for each that runs at once; but every part
        // reads the points anew.
        let many = (multiprocessors * CLUSTERS).div_ceil(rows).min(row_bytes / point_bytes.saturating_mul(2).max(1));
        let parts = many.min(chunks.div_ceil(BLOCKS)).max(least);
        let words = chunks.div_ceil(parts).div_ceil(BLOCKS) * CHUNK_WORDS;
        let read = point_bytes.checked_mul(parts)?;
        let blocks = u32::try_from(rows.checked_mul(parts)?.checked_mul(BLOCKS)?).ok()?;
        if read > row_bytes || (blocks as usize) < multiprocessors || blocks > i32::MAX as u32 {
            return None;
        }
        Some(Self { parts: parts as u32, words: words as u32, blocks })
    }

    /// Writes the grid, and how many points of a row are outside of it.
    ///
    /// # Safety
    /// As for [`Launcher::launch`].
    pub(super) unsafe fn launch(
        self,
        launcher: &Launcher<'_>,
        (points, grid): (PointArgs, GridArgs),
        dims: &Dims,
        out: *mut u8,
        dropped: *mut i64,
    ) -> Result<()> {
        let Self { parts, words, blocks } = self;
        let (fill, one, bytes) = (dims.fill, dims.one, dims.dtype.size() as u32);
        let args = ClusterArgs { grid, out, dropped, fill, one, parts, words, bytes, padding: 0 };
        let blocks = Grid { blocks, threads: THREADS, shared: words * 4 };
        // SAFETY: the caller's promise; the parts hold all cells of a row.
        unsafe { points.launch(launcher, &CLUSTER_KERNELS, points.kind(), blocks, args) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_cells_of_all_rows() {
        for (rows, count, cells) in [(32, 16_384, 1 << 21), (16, 65_536, 1 << 24), (40, 1, 16), (17, 999, 8_000_048)] {
            let plan = Clusters::of_rows(132, rows, count * 12, cells, 4).unwrap();
            let Clusters { parts, words, blocks } = plan;
            assert!(parts as usize * BLOCKS * words as usize * 32 >= cells, "{plan:?}");
            assert!((words as usize).is_multiple_of(CHUNK_WORDS) && words as usize <= MOST_WORDS, "{plan:?}");
            assert_eq!(blocks as usize, rows * parts as usize * BLOCKS);
        }
        assert_eq!(Clusters::of_rows(132, 32, 0, 1 << 21, 1).map(|plan| (plan.parts, plan.words)), Some((13, 640)));
        let read = 65_536 * 12;
        assert_eq!(Clusters::of_rows(132, 16, read, 1 << 24, 1).map(|plan| (plan.parts, plan.words)), Some((10, 6656)));
        // Too few rows, too many points, no whole vectors.
        assert_eq!(Clusters::of_rows(132, 16, 0, 1 << 12, 1), None);
        assert_eq!(Clusters::of_rows(132, 40, 1 << 20, 1 << 18, 1), None);
        assert_eq!(Clusters::of_rows(132, 40, 12, (1 << 18) + 1, 1), None);
    }
}
