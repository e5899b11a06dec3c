//! `voxelize` on CUDA: the kernels, their arguments and the memory between them.

use super::reduce::{LANES, LONG};
use super::{CountsIn, Dims, Grid, Reduce, Targets, Voxelize};
use crate::cuda::{self, CloudArgs, Finding, KernelFamily, Launcher, Parts, Sort, SortMemory, clear};
use crate::ops::rows::bad_length;
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result};

/// Points to cells, by the points' type and what is made of them.
pub(crate) static SCATTER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("scatter.cu"),
    headers: &[],
    variants: || (0..16).collect(),
    entry: |number| {
        let mode = ["bits", "counts", "keys_32", "keys_64"][number as usize / 4];
        format!("rc_voxelize_{mode}_{}", FLOATS[number as usize % 4].0)
    },
    options: |number| {
        vec![
            format!("-DRC_POINT={}", FLOATS[number as usize % 4].1),
            format!("-DRC_MODE={}", number / 4),
            format!("-DRC_ARGS_SIZE={}", size_of::<ScatterArgs>()),
        ]
    },
};

const BITS: u32 = 0;
const COUNTS: u32 = 4;
const KEYS: u32 = 8;
const WIDE_KEYS: u32 = 12;

/// What is written to the grid, and bytes and type of an element.
const WRITES: [(&str, u32, usize, &str); 12] = [
    ("bits_8", 1, 1, "u8"),
    ("bits_16", 1, 2, "u16"),
    ("bits_32", 1, 4, "u32"),
    ("bits_64", 1, 8, "u64"),
    ("occupied_8", 2, 1, "u8"),
    ("occupied_16", 2, 2, "u16"),
    ("occupied_32", 2, 4, "u32"),
    ("occupied_64", 2, 8, "u64"),
    ("count_int32", 3, 4, "i32"),
    ("count_int64", 3, 8, "i64"),
    ("count_float32", 3, 4, "float"),
    ("count_float64", 3, 8, "double"),
];

/// The grid from bits or counts.
pub(crate) static WRITE_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("write.cu"),
    headers: &[],
    variants: || (0..WRITES.len() as u32).collect(),
    entry: |number| format!("rc_voxelize_write_{}", WRITES[number as usize].0),
    options: |number| {
        let (_, mode, bytes, kind) = WRITES[number as usize];
        vec![
            format!("-DRC_MODE={mode}"),
            format!("-DRC_BYTES={bytes}"),
            format!("-DRC_NUMBER={kind}"),
            format!("-DRC_ARGS_SIZE={}", size_of::<WriteArgs>()),
        ]
    },
};

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

/// Mirrors `rc::GridArgs` in `kernels/grid.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct GridArgs {
    origin: [f64; 3],
    size: [f64; 3],
    shape: [i64; 3],
    cells: u64,
}

impl GridArgs {
    pub(super) fn new(grid: &Grid, points: DType, cells: u64) -> Self {
        let rounded = |number: f64| if points == DType::F64 { number } else { f64::from(number as f32) };
        Self {
            origin: grid.origin.map(rounded),
            size: grid.voxel_size.map(rounded),
            shape: grid.shape.map(|cells| cells as i64),
            cells,
        }
    }
}

/// Mirrors `Args` in scatter.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScatterArgs {
    cloud: CloudArgs,
    grid: GridArgs,
    cells: *mut u8,
    dropped: *mut i64,
    nowhere: u64,
    looks: u64,
}

/// Mirrors `Args` in write.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct WriteArgs {
    cells: *const u8,
    out: *mut u8,
    count: u64,
    fill: u64,
    one: u64,
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
        let bytes = [self.tile as usize * dims.width * size, if self.slabs > 1 { self.slab as usize * size } else { 0 }];
        bytes.iter().all(|bytes| bytes.is_multiple_of(16))
    }
}

/// The memory of the sorted way.
struct Sorted {
    sort: Sort,
    keys: [usize; 2],
    values: [usize; 2],
    state: usize,
    parts: Parts,
}

impl Sorted {
    fn new(dims: &Dims) -> Result<Self> {
        let total = dims.cloud.total();
        let sort = Sort::new(total, dims.all_cells as u64)?;
        let mut parts = Parts::default();
        Ok(Self {
            sort,
            keys: [(); 2].map(|()| parts.add(total * sort.key_bytes())),
            values: [(); 2].map(|()| parts.add(total * 4)),
            state: parts.add(sort.state_bytes()),
            parts,
        })
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

/// Bytes of a bit per cell, in words.
fn mask_bytes(dims: &Dims) -> usize {
    dims.all_cells.div_ceil(32) * 4
}

pub(super) fn workspace(op: &Voxelize<'_>, dims: &Dims) -> Result<usize> {
    if op.reduce.uses_features() {
        return Ok(Sorted::new(dims)?.parts.bytes());
    }
    let mut parts = Parts::default();
    match CountsIn::of(op, dims) {
        CountsIn::Nothing => parts.add(mask_bytes(dims)),
        CountsIn::Workspace => parts.add(dims.all_cells.saturating_mul(4)),
        CountsIn::Counts | CountsIn::Out => 0,
    };
    Ok(parts.bytes())
}

pub(super) fn voxelize(
    op: &Voxelize<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let targets = Targets::new(op, out)?;
    if dims.cloud.batch == 0 {
        return Ok(());
    }
    let scratch = Parts::base(out.workspace());
    let job = Job { op, dims, targets, scratch, launcher };
    if op.reduce.uses_features() { job.features() } else { job.cells() }
}

/// # Safety
/// As for [`Launcher::launch`].
unsafe fn launch_scatter(launcher: &Launcher<'_>, mode: u32, points: DType, args: &ScatterArgs) -> Result<()> {
    let variant = mode + u32::from(float_number(points));
    // SAFETY: the caller's promise.
    unsafe { launcher.launch(&SCATTER_KERNELS, variant, args.cloud.grid(), args) }
}

/// Writes the key of every point, to be sorted by.
///
/// # Safety
/// As for [`Launcher::launch`].
#[expect(clippy::too_many_arguments, reason = "they are fields of the kernel's arguments")]
pub(super) unsafe fn scatter_keys(
    launcher: &Launcher<'_>,
    points: DType,
    cloud: CloudArgs,
    grid: GridArgs,
    keys: *mut u8,
    dropped: *mut i64,
    nowhere: u64,
    wide: bool,
) -> Result<()> {
    let args = ScatterArgs { cloud, grid, cells: keys, dropped, nowhere, looks: 0 };
    // SAFETY: the caller's promise.
    unsafe { launch_scatter(launcher, if wide { WIDE_KEYS } else { KEYS }, points, &args) }
}

struct Job<'a> {
    op: &'a Voxelize<'a>,
    dims: &'a Dims,
    targets: Targets,
    scratch: *mut u8,
    launcher: &'a Launcher<'a>,
}

impl Job<'_> {
    fn dropped_area(&self) -> (*mut u8, usize) {
        (self.targets.dropped.cast(), self.dims.cloud.batch * 8)
    }

    /// Finds the cells of all points; `mode` tells what becomes of them.
    fn scatter(&self, mode: u32, cells: *mut u8) -> Result<()> {
        let (op, dims) = (self.op, self.dims);
        let args = ScatterArgs {
            cloud: CloudArgs::new(&op.points, op.lengths, &dims.cloud, op.check, crate::ops::VOXELIZE, self.launcher),
            grid: GridArgs::new(&op.grid, op.points.dtype(), dims.cells as u64),
            cells,
            dropped: self.targets.dropped,
            nowhere: dims.all_cells as u64,
            looks: u64::from(dims.cloud.count > dims.cells),
        };
        // SAFETY: the views were checked against dims and live on this GPU, as does the workspace;
        // the framework keeps them until the stream has passed.
        unsafe { launch_scatter(self.launcher, mode, op.points.dtype(), &args) }
    }

    fn write(&self, name: &str, cells: *const u8) -> Result<()> {
        let dims = self.dims;
        let variant = WRITES.iter().position(|(known, ..)| *known == name).unwrap_or(0);
        let args =
            WriteArgs { cells, out: self.targets.out, count: dims.all_cells as u64, fill: dims.fill, one: dims.one };
        let vectors = args.count.div_ceil(16 / dims.dtype.size() as u64);
        // SAFETY: as in `scatter`.
        unsafe { self.launcher.launch(&WRITE_KERNELS, variant as u32, cuda::Grid::for_items(vectors), &args) }
    }

    /// Occupancy and counts.
    fn cells(&self) -> Result<()> {
        let (op, dims) = (self.op, self.dims);
        let bits = 8 * dims.dtype.size();
        let counts = match CountsIn::of(op, dims) {
            CountsIn::Nothing => {
                // SAFETY: as in `scatter`.
                unsafe { clear(self.launcher, &[(self.scratch, mask_bytes(dims)), self.dropped_area()])? };
                self.scatter(BITS, self.scratch)?;
                return self.write(&format!("bits_{bits}"), self.scratch);
            }
            CountsIn::Counts => self.targets.counts.cast(),
            CountsIn::Out => self.targets.out,
            CountsIn::Workspace => self.scratch,
        };
        // SAFETY: as in `scatter`.
        unsafe { clear(self.launcher, &[(counts, dims.all_cells * 4), self.dropped_area()])? };
        self.scatter(COUNTS, counts)?;
        match op.reduce {
            Reduce::Count if counts == self.targets.out => Ok(()),
            Reduce::Count => self.write(&format!("count_{}", dims.dtype), counts),
            _ => self.write(&format!("occupied_{bits}"), counts),
        }
    }

    /// Features along the points sorted by cell.
    fn features(&self) -> Result<()> {
        let (op, dims) = (self.op, self.dims);
        let Some(features) = op.features else {
            return Ok(());
        };
        let plan = Sorted::new(dims)?;
        let cut = Cut::new(dims)?;
        let at = |part: usize| self.scratch.wrapping_add(part);
        let memory = SortMemory {
            keys: plan.keys.map(at),
            values: plan.values.map(|part| at(part).cast()),
            state: at(plan.state).cast(),
        };
        let size = dims.dtype.size();
        // SAFETY: as in `scatter`; the workspace has these parts.
        unsafe {
            clear(self.launcher, &[self.dropped_area()])?;
            self.scatter(if plan.sort.wide { WIDE_KEYS } else { KEYS }, memory.keys[0])?;
            let sorted = plan.sort.run(self.launcher, &memory)?;
            let args = ReduceArgs {
                features: FeatureArgs::new(&features, dims.feature_strides, dims.cloud.count),
                keys: memory.keys[sorted],
                order: memory.values[sorted],
                out: self.targets.out,
                counts: self.targets.counts,
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
                reduce: op.reduce as u32,
                kind: u32::from(float_number(dims.dtype)),
                element_bytes: size as u32,
                aligned: u32::from(cut.is_aligned(dims) && (self.targets.out as usize).is_multiple_of(16)),
            };
            let variant = ReduceVariant {
                float: u32::from(float_number(features.dtype())),
                wide: plan.sort.wide,
                sums: matches!(op.reduce, Reduce::Sum | Reduce::Mean),
                vector: whole_vectors(&features, dims),
            };
            let counts = if args.counts.is_null() { 0 } else { 4 * args.tile };
            let shared = args.stage + 2 * 4 * 256 + counts;
            let blocks = u64::from(cut.tiles.div_ceil(cut.group)) * u64::from(cut.slabs);
            let grid = cuda::Grid { shared, ..cuda::Grid::for_blocks(blocks) };
            self.launcher.launch(&REDUCE_KERNELS, variant.number(), grid, &args)
        }
    }
}

/// What a kernel found, in the words of the CPU.
pub(crate) fn describe(finding: &Finding) -> Error {
    bad_length(finding.row, finding.first as i64, finding.second)
}

const _: () = assert!(Reduce::Min as u32 == 5 && LONG == 64 && LANES == 32, "the kernels count on these");
