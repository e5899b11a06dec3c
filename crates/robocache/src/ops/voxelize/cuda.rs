//! `voxelize` on CUDA: the kernels, their arguments and the memory between them.

use super::Voxelize;
use super::dims::{CountsIn, Dims, Reduce, Targets};
use super::mark::{self, Mark, marks_grid};
use super::place::GridArgs;
use super::reduce_cuda::{SortedKeys, reduce_sorted};
use crate::cuda::{
    self, DigitArgs, Finding, KernelFamily, Launcher, Parts, PointArgs, Reports, Sort, SortMemory, clear, fill,
};
use crate::ops::rows::bad_length;
use crate::{Error, Outputs, Result};

/// Points to keys to sort by, by the points' type and the keys' width.
pub(crate) static SCATTER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("scatter.cu"),
    headers: &[],
    variants: || (0..2 * PointArgs::KINDS).collect(),
    entry: |number| {
        let mode = ["keys_32", "keys_64"][(number / PointArgs::KINDS) as usize];
        format!("rc_voxelize_{mode}_{}", PointArgs::name(number % PointArgs::KINDS))
    },
    options: |number| {
        let mut options = PointArgs::options::<ScatterArgs>(number % PointArgs::KINDS);
        options.push(format!("-DRC_MODE={}", number / PointArgs::KINDS));
        options
    },
};

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

/// Vectors of 16 bytes that a thread asks for before it writes; those from counts take a word for
/// each element.
fn write_vectors(mode: u32, bytes: usize) -> usize {
    if mode == 1 { 4 } else { bytes.min(4) }
}

/// The grid from bits or counts.
pub(crate) static WRITE_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("write.cu"),
    headers: &[("bits.cuh", include_str!("bits.cuh"))],
    variants: || (0..WRITES.len() as u32).collect(),
    entry: |number| format!("rc_voxelize_write_{}", WRITES[number as usize].0),
    options: |number| {
        let (_, mode, bytes, kind) = WRITES[number as usize];
        vec![
            format!("-DRC_MODE={mode}"),
            format!("-DRC_BYTES={bytes}"),
            format!("-DRC_NUMBER={kind}"),
            format!("-DRC_VECTORS={}", write_vectors(mode, bytes)),
            format!("-DRC_ARGS_SIZE={}", size_of::<WriteArgs>()),
        ]
    },
};

/// Mirrors `Args` in scatter.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScatterArgs {
    grid: GridArgs,
    cells: *mut u8,
    dropped: *mut i64,
    nowhere: u64,
    digits: DigitArgs,
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

/// Bytes of a bit per cell, in words.
fn mask_bytes(dims: &Dims) -> usize {
    dims.all_cells.div_ceil(32) * 4
}

pub(super) fn workspace(op: &Voxelize<'_>, dims: &Dims) -> Result<usize> {
    if op.reduce.uses_features() {
        let plan = Sorted::new(dims).map_err(|error| error.argument(op.points.argument()))?;
        return Ok(plan.parts.bytes());
    }
    let mut parts = Parts::default();
    match op.counts_in(dims) {
        CountsIn::Nothing if marks_grid(dims) => 0,
        // Clusters need none, but whether there are any depends on the GPU and on the result's address.
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
    let targets = op.targets(dims, out)?;
    if dims.cloud.batch == 0 {
        return Ok(());
    }
    let scratch = Parts::base(out.workspace());
    let job = Job { op, dims, targets, scratch, launcher };
    if op.reduce.uses_features() { job.features() } else { job.cells() }
}

/// Writes keys of 32 bits, or of 64 where they are `wide`.
///
/// # Safety
/// As for [`Launcher::launch`].
unsafe fn launch_scatter(launcher: &Launcher<'_>, wide: bool, points: PointArgs, args: ScatterArgs) -> Result<()> {
    let variant = points.kind() + if wide { PointArgs::KINDS } else { 0 };
    let grid = points.grid();
    // Blocks count digits for themselves first; the fewer there are, the less is added up.
    let most = launcher.gpu().info().multiprocessors * 4;
    let grid = cuda::Grid { blocks: grid.blocks.min(most.max(1)), shared: args.digits.shared(), ..grid };
    // SAFETY: the caller's promise.
    unsafe { points.launch(launcher, &SCATTER_KERNELS, variant, grid, args) }
}

/// Writes the key of every point and sorts them; as [`Sort::run`]. `also` are cleared on the way.
///
/// # Safety
/// As for [`Launcher::launch`].
pub(super) unsafe fn sort_points(
    launcher: &Launcher<'_>,
    (points, grid): (PointArgs, GridArgs),
    dropped: (*mut i64, usize),
    nowhere: u64,
    sort: &Sort,
    memory: &SortMemory,
    also: [(*mut u8, usize); 2],
) -> Result<usize> {
    let digits = sort.digits(memory);
    let args = ScatterArgs { grid, cells: memory.keys[0], dropped: dropped.0, nowhere, digits };
    // SAFETY: the caller's promise.
    unsafe {
        let [one, other] = also;
        clear(launcher, &[sort.state_area(memory), (dropped.0.cast(), dropped.1 * 8), one, other])?;
        launch_scatter(launcher, sort.wide, points, args)?;
        sort.run(launcher, memory)
    }
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

    fn points_and_grid(&self) -> Result<(PointArgs, GridArgs)> {
        let (op, dims) = (self.op, self.dims);
        let points = PointArgs::new(&op.points, op.lengths, &dims.cloud, op.check, Some(&REPORTS), self.launcher)?;
        Ok((points, GridArgs::new(&op.grid, op.points.dtype(), dims.cells as u64)))
    }

    /// Finds the cells of all points; `mark` tells what becomes of them.
    fn mark(&self, mark: Mark, cells: *mut u8) -> Result<()> {
        let points = self.points_and_grid()?;
        // SAFETY: the views were checked against dims and live on this GPU, as does the workspace;
        // the framework keeps them until the stream has passed.
        unsafe { mark::launch(self.launcher, mark, points, cells, self.targets.dropped, self.dims) }
    }

    fn write(&self, name: &str, cells: *const u8) -> Result<()> {
        let dims = self.dims;
        let variant = WRITES.iter().position(|(known, ..)| *known == name).unwrap_or(0);
        let args =
            WriteArgs { cells, out: self.targets.out, count: dims.all_cells as u64, fill: dims.fill, one: dims.one };
        let (_, mode, bytes, _) = WRITES[variant];
        let items = args.count.div_ceil((16 / bytes * write_vectors(mode, bytes)) as u64);
        // SAFETY: as in `mark`.
        unsafe { self.launcher.launch(&WRITE_KERNELS, variant as u32, cuda::Grid::for_items(items), &args) }
    }

    /// Occupancy and counts.
    fn cells(&self) -> Result<()> {
        let (op, dims) = (self.op, self.dims);
        let bits = 8 * dims.dtype.size();
        let counts_in = op.counts_in(dims);
        let counts = match counts_in {
            CountsIn::Nothing if marks_grid(dims) => {
                let (out, size) = (self.targets.out, dims.dtype.size());
                let (dropped, bytes) = self.dropped_area();
                // SAFETY: as in `mark`.
                unsafe {
                    fill(self.launcher, &[(out, dims.all_cells * size, dims.fill, size), (dropped, bytes, 0, 8)])?
                };
                return self.mark(Mark::Grid, out);
            }
            CountsIn::Nothing => {
                // SAFETY: as in `mark`.
                unsafe { clear(self.launcher, &[(self.scratch, mask_bytes(dims)), self.dropped_area()])? };
                let points = self.points_and_grid()?;
                // SAFETY: as in `mark`.
                unsafe { mark::launch_bits(self.launcher, points, self.scratch, self.targets.dropped, dims)? };
                return self.write(&format!("bits_{bits}"), self.scratch);
            }
            CountsIn::Counts => self.targets.counts.cast(),
            CountsIn::Out => self.targets.out,
            CountsIn::Workspace => self.scratch,
        };
        // SAFETY: as in `mark`.
        unsafe { clear(self.launcher, &[(counts, dims.all_cells * 4), self.dropped_area()])? };
        self.mark(Mark::Counts, counts)?;
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
        let at = |part: usize| self.scratch.wrapping_add(part);
        let memory = SortMemory {
            keys: plan.keys.map(at),
            values: plan.values.map(|part| at(part).cast()),
            state: at(plan.state).cast(),
        };
        let points = self.points_and_grid()?;
        let dropped = (self.targets.dropped, dims.cloud.batch);
        let nowhere = dims.all_cells as u64;
        // SAFETY: as in `mark`; the workspace has these parts.
        unsafe {
            let also = [(std::ptr::null_mut(), 0); 2];
            let sorted = sort_points(self.launcher, points, dropped, nowhere, &plan.sort, &memory, also)?;
            let keys = SortedKeys { keys: memory.keys[sorted], order: memory.values[sorted], wide: plan.sort.wide };
            reduce_sorted(op.reduce, &features, dims, &keys, &self.targets, self.launcher)
        }
    }
}

/// What kernels find in data.
pub(super) static REPORTS: Reports = Reports::new(|finding| describe(finding).op("voxelize"));

/// What a kernel found, in the words of the CPU.
fn describe(finding: &Finding) -> Error {
    bad_length(finding.row, finding.first as i64, finding.second)
}
