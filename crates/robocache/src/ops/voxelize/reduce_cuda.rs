//! Features of points sorted by cell, made into a dense grid on CUDA: the kernel, its arguments, and how
//! the grid is cut.

use super::reduce::{LANES, LONG};
use super::{Dims, Reduce, Targets};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::TensorRef;
use crate::{Error, Result};

/// Features of sorted points, by their type, the keys' width, whether they are summed or compared, and
/// whether several columns can be read at once.
pub(crate) static REDUCE_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("reduce.cu"),
    headers: &[("fold.cuh", include_str!("fold.cuh")), ("rows.cuh", include_str!("rows.cuh"))],
    variants: || (0..32).collect(),
    entry: |number| {
        let name = ReduceVariant::of(number);
        let columns = if name.vector { "vector" } else { "scalar" };
        let how = if name.sums { "sum" } else { "pick" };
        let kind = FLOATS[name.float as usize].0;
        format!("rc_voxelize_reduce_{how}_{columns}_{kind}_{}", if name.wide { 64 } else { 32 })
    },
    options: |number| {
        let name = ReduceVariant::of(number);
        let (kind, columns) = (FLOATS[name.float as usize].1, if name.vector { name.columns() } else { 1 });
        vec![
            format!("-DRC_FEATURE={kind}"),
            format!("-DRC_TYPE={}", name.float),
            format!("-DRC_KEY={}", if name.wide { "u64" } else { "u32" }),
            format!("-DRC_COLUMNS={columns}"),
            format!("-DRC_SUMS={}", u32::from(name.sums)),
            format!("-DRC_ARGS_SIZE={}", size_of::<ReduceArgs>()),
        ]
    },
};

/// A kernel of [`REDUCE_KERNELS`].
#[derive(Debug, Clone, Copy)]
struct ReduceVariant {
    float: u32,
    wide: bool,
    sums: bool,
    vector: bool,
}

impl ReduceVariant {
    fn of(number: u32) -> Self {
        Self { float: number % 4, wide: number & 4 != 0, sums: number & 8 != 0, vector: number & 16 != 0 }
    }

    fn number(self) -> u32 {
        self.float + 4 * u32::from(self.wide) + 8 * u32::from(self.sums) + 16 * u32::from(self.vector)
    }

    /// Numbers in 16 bytes.
    fn columns(self) -> usize {
        [8, 8, 4, 2][self.float as usize % 4]
    }
}

/// Mirrors `rc::Features` in fold.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FeatureArgs {
    data: *const u8,
    strides: [i64; 3],
    per_row: u32,
    flat: u32,
}

impl FeatureArgs {
    /// Features of so many points per row, fewer than 2^32 in all.
    pub(super) fn new(features: &TensorRef<'_>, strides: [isize; 3], per_row: usize) -> Self {
        Self {
            data: features.data(),
            strides: strides.map(|stride| stride as i64),
            per_row: per_row.max(1) as u32,
            flat: u32::from(per_row as isize * strides[1] == strides[0]),
        }
    }
}

/// Mirrors `Args` in reduce.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ReduceArgs {
    features: FeatureArgs,
    keys: *const u8,
    order: *const u32,
    out: *mut u8,
    counts: *mut i32,
    cells: u64,
    fill: u64,
    width: u32,
    count: u32,
    tiles: u32,
    tile: u32,
    group: u32,
    slabs: u32,
    slab: u32,
    stage: u32,
    reduce: u32,
    kind: u32,
    element_bytes: u32,
    aligned: u32,
}

/// How a dense grid of features is cut: tiles of cells that a block makes in shared memory, and slabs
/// of columns where not even one cell fits.
#[derive(Debug, Clone, Copy)]
struct Cut {
    tile: u32,
    tiles: u32,
    slab: u32,
    slabs: u32,
    /// Tiles of a block, which looks for its first point once.
    group: u32,
    /// Bytes of a tile.
    stage: u32,
}

impl Cut {
    /// Bytes of a tile: enough for all threads of a block, few enough for several blocks.
    const BYTES: usize = 16_384;

    fn new(dims: &Dims) -> Result<Self> {
        let size = dims.dtype.size();
        let row = (dims.width * size).max(1);
        // Eight cells, of two bytes each at least, are a multiple of 16 bytes.
        let tile = if row <= Self::BYTES / 4 { (Self::BYTES / row / 8 * 8).clamp(8, 4096) } else { 1 };
        let slab = if tile > 1 { dims.width } else { dims.width.min(Self::BYTES / size) };
        let slabs = dims.width.div_ceil(slab.max(1)).max(1);
        let tiles = dims.all_cells.div_ceil(tile);
        let blocks = tiles.checked_mul(slabs).filter(|&blocks| blocks < 1 << 31 && dims.width < 1 << 31);
        blocks.ok_or_else(|| Error::invalid("shape", "too many cells"))?;
        let group = (tiles / 4096).clamp(1, 8);
        let stage = (tile * slab * size).next_multiple_of(16);
        Ok(Self {
            tile: tile as u32,
            tiles: tiles as u32,
            slab: slab as u32,
            slabs: slabs as u32,
            group: group as u32,
            stage: stage as u32,
        })
    }

    /// Whether tiles start at multiples of 16 bytes where the grid does.
    fn is_aligned(&self, dims: &Dims) -> bool {
        let size = dims.dtype.size();
        let bytes =
            [self.tile as usize * dims.width * size, if self.slabs > 1 { self.slab as usize * size } else { 0 }];
        bytes.iter().all(|bytes| bytes.is_multiple_of(16))
    }
}

/// Whether the features of a point lie side by side, in whole vectors of 16 bytes.
fn whole_vectors(features: &TensorRef<'_>, dims: &Dims) -> bool {
    let size = features.dtype().size();
    let fits = |count: usize| (count * size).is_multiple_of(16);
    let [row, point, column] = dims.feature_strides.map(isize::unsigned_abs);
    let rows_fit = dims.cloud.batch <= 1 || fits(row);
    let points_fit = dims.cloud.count <= 1 || fits(point);
    fits(dims.width) && column == 1 && rows_fit && points_fit && (features.data() as usize).is_multiple_of(16)
}

/// Points sorted by cell, on the GPU.
pub(super) struct SortedKeys {
    pub(super) keys: *const u8,
    pub(super) order: *const u32,
    /// Keys of 64 bits instead of 32.
    pub(super) wide: bool,
}

/// Writes the grid, and the counts where they are wanted.
///
/// # Safety
/// As for [`Launcher::launch`]; the keys are those of `dims`.
pub(super) unsafe fn reduce_sorted(
    reduce: Reduce,
    features: &TensorRef<'_>,
    dims: &Dims,
    sorted: &SortedKeys,
    targets: &Targets,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let cut = Cut::new(dims)?;
    let size = dims.dtype.size();
    let args = ReduceArgs {
        features: FeatureArgs::new(features, dims.feature_strides, dims.cloud.count),
        keys: sorted.keys,
        order: sorted.order,
        out: targets.out,
        counts: targets.counts,
        cells: dims.all_cells as u64,
        fill: (0..8 / size).fold(0, |bits, place| bits | dims.fill << (8 * size * place)),
        width: dims.width as u32,
        count: dims.cloud.total() as u32,
        tiles: cut.tiles,
        tile: cut.tile,
        group: cut.group,
        slabs: cut.slabs,
        slab: cut.slab,
        stage: cut.stage,
        reduce: reduce as u32,
        kind: u32::from(float_number(dims.dtype)),
        element_bytes: size as u32,
        aligned: u32::from(cut.is_aligned(dims) && (targets.out as usize).is_multiple_of(16)),
    };
    let variant = ReduceVariant {
        float: u32::from(float_number(features.dtype())),
        wide: sorted.wide,
        sums: matches!(reduce, Reduce::Sum | Reduce::Mean),
        vector: whole_vectors(features, dims),
    };
    // As the kernel lays it out: the tile, two tables of a number per thread, and counts.
    let counts = if args.counts.is_null() { 0 } else { 4 * args.tile };
    let shared = args.stage + 2 * 4 * 256 + counts;
    let blocks = u64::from(cut.tiles.div_ceil(cut.group)) * u64::from(cut.slabs);
    let grid = Grid { shared, ..Grid::for_blocks(blocks) };
    // SAFETY: the caller's promise.
    unsafe { launcher.launch(&REDUCE_KERNELS, variant.number(), grid, &args) }
}

const _: () = assert!(Reduce::Min as u32 == 5 && LONG == 64 && LANES == 32, "the kernels count on these");
