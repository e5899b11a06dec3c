//! Features of points sorted by cell, made into a dense grid on CUDA: the kernel, its arguments, and how
//! the grid is cut.

use super::dims::{Dims, Reduce, Targets};
use super::reduce::{LANES, LONG};
use crate::cuda::{Grid, KernelFamily, Launcher, fill};
use crate::ops::cloud::Cloud;
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

/// Numbers of 16 bytes, by their type.
pub(super) const VECTOR_COLUMNS: [usize; 4] = [8, 8, 4, 2];

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
        VECTOR_COLUMNS[self.float as usize % 4]
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
    /// The features of a cloud's points, fewer than 2^32 in all.
    pub(super) fn new(features: &TensorRef<'_>, strides: [isize; 3], cloud: &Cloud) -> Self {
        Self {
            data: features.data(),
            strides: strides.map(|stride| stride as i64),
            per_row: cloud.count.max(1) as u32,
            // Then a point is found without a division. A stride along an axis of one is never used.
            flat: u32::from(cloud.batch <= 1 || cloud.count as isize * strides[1] == strides[0]),
        }
    }

    /// Nothing to read.
    pub(super) const NONE: Self = Self { data: std::ptr::null(), strides: [0; 3], per_row: 1, flat: 1 };
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
    width: u32,
    count: u32,
    reduce: u32,
    kind: u32,
    copies: u32,
    padding: u32,
}

/// Whether the features of a point lie side by side, in whole vectors of 16 bytes.
pub(super) fn whole_vectors(features: &TensorRef<'_>, strides: [isize; 3], width: usize, cloud: &Cloud) -> bool {
    let size = features.dtype().size();
    let fits = |count: usize| (count * size).is_multiple_of(16);
    let [row, point, _] = strides.map(isize::unsigned_abs);
    let rows_fit = cloud.batch <= 1 || fits(row);
    let points_fit = cloud.count <= 1 || fits(point);
    fits(width) && strides[2] == 1 && rows_fit && points_fit && (features.data() as usize).is_multiple_of(16)
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
    let size = dims.dtype.size();
    let width = u32::try_from(dims.width).map_err(|_| Error::invalid("features", "too many columns"))?;
    let vector = whole_vectors(features, dims.feature_strides, dims.width, &dims.cloud);
    let args = ReduceArgs {
        features: FeatureArgs::new(features, dims.feature_strides, &dims.cloud),
        keys: sorted.keys,
        order: sorted.order,
        out: targets.out,
        counts: targets.counts,
        cells: dims.all_cells as u64,
        width,
        count: dims.cloud.total() as u32,
        reduce: reduce as u32,
        kind: u32::from(float_number(dims.dtype)),
        copies: u32::from(dims.dtype == features.dtype() && (!vector || (targets.out as usize).is_multiple_of(16))),
        padding: 0,
    };
    let variant = ReduceVariant {
        float: u32::from(float_number(features.dtype())),
        wide: sorted.wide,
        sums: matches!(reduce, Reduce::Sum | Reduce::Mean),
        vector,
    };
    // As the kernel lays it out: a key and the number of each point, a key more on each side, crowded cells.
    let shared =
        (THREADS as u32 + 2) * if sorted.wide { 8 } else { 4 } + (THREADS as u32 + THREADS as u32 / 64 + 1) * 4;
    let grid = Grid { shared, ..Grid::for_blocks(u64::from(args.count).div_ceil(THREADS)) };
    // Most cells are empty; to fill all of them first and write some again is quicker than to ask.
    // SAFETY: the caller's promise.
    unsafe {
        let all = dims.all_cells;
        fill(
            launcher,
            &[(targets.out, all * dims.width * size, dims.fill, size), (targets.counts.cast(), all * 4, 0, 4)],
        )?;
        if args.count == 0 && !launcher.only_loads() {
            return Ok(());
        }
        launcher.launch(&REDUCE_KERNELS, variant.number(), grid, &args)
    }
}

/// Sorted points of a block.
const THREADS: u64 = 256;

const _: () = assert!(Reduce::Min as u32 == 5 && LONG == 64 && LANES == 32, "the kernels count on these");
