//! Gradients of targets that were listed by their samples, on CUDA: the choice of kernel and tile, and its arguments.

use super::call::{CELLS, Call, in_bytes};
use super::dims::Dims;
use super::find_cuda::{LinkPointers, Memory};
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher};
use crate::ops::align::ColumnRange;
use crate::{Error, Result};

/// The kernels, by what they do, their elements and the columns of a unit.
pub(crate) static GATHER_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("gather.cu"),
    headers: &[
        ("links.cuh", include_str!("links.cuh")),
        ("vjp.cuh", include_str!("vjp.cuh")),
        ("units.cuh", include_str!("units.cuh")),
        ("curve.cuh", include_str!("curve.cuh")),
    ],
    variants: || Variant::all().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// Mirrors `Args` in gather.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    grad: *const u8,
    values: *const u8,
    out: *mut u8,
    links: LinkPointers,
    gaps: *const u8,
    grad_strides: [i64; 3],
    value_strides: [i64; 3],
    steps: [i64; 3],
    out_strides: [i64; 3],
    units: i64,
    rows: i64,
    rows_per_group: i64,
    first_group: i64,
    samples: u32,
    target_count: u32,
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
}

/// Columns of a unit, 0 for weights of single columns, and how kernels are named.
const FORMS: [(u8, &str); 4] = [(0, ""), (CUBIC, "cubic_"), (4, "slerp_"), (6, "rot6d_")];
const CUBIC: u8 = 1;

/// Threads of a block.
const THREADS: u32 = 256;
/// Samples that a thread takes one after the other, where the GPU stays busy: of curves a run of them.
const SAMPLES: u32 = 4;
const RUN: u32 = 32;

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// Rows with values of their own.
    Rows,
    /// Rows that are summed up in groups.
    Partial,
    /// The groups, added up.
    Sum,
}

/// A kernel: what it does, the columns of a unit and the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    kind: Kind,
    form: u8,
    cell: u8,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let forms = FORMS.into_iter().flat_map(|(form, _)| [(Kind::Rows, form), (Kind::Partial, form)]);
        // Weights of rows with values of their own need no list.
        let kinds = forms.filter(|&kind| kind != (Kind::Rows, 0)).chain([(Kind::Sum, 0)]);
        kinds.flat_map(|(kind, form)| (0..CELLS.len() as u8).map(move |cell| Self { kind, form, cell }))
    }

    fn number(self) -> u32 {
        u32::from_le_bytes([self.cell, self.form, self.kind as u8, 0])
    }

    fn from_number(number: u32) -> Self {
        let [cell, form, kind, _] = number.to_le_bytes();
        let kind = match kind {
            0 => Kind::Rows,
            1 => Kind::Partial,
            _ => Kind::Sum,
        };
        Self { kind, form, cell }
    }

    fn cell(self) -> (&'static str, &'static str, u32) {
        CELLS[usize::from(self.cell) % CELLS.len()]
    }

    fn entry(self) -> String {
        let cell = self.cell().0;
        let form = FORMS.iter().find(|(form, _)| *form == self.form).map_or("", |(_, name)| name);
        match self.kind {
            Kind::Rows => format!("rc_resample_backward_{form}{cell}"),
            Kind::Partial => format!("rc_resample_backward_{form}partial_{cell}"),
            Kind::Sum => format!("rc_resample_backward_sum_{cell}"),
        }
    }

    fn options(self) -> Vec<String> {
        vec![
            format!("-DRC_CELL={}", self.cell().1),
            format!("-DRC_FORM={}", self.form),
            format!("-DRC_PARTIAL={}", u8::from(self.kind == Kind::Partial)),
            format!("-DRC_SUM={}", u8::from(self.kind == Kind::Sum)),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    }
}

/// Queues the columns of one method. `partial`: where sums of groups go, `[groups,S,D]`; `base`: the start of the memory.
pub(super) fn gather(
    call: &Call<'_>,
    range: &ColumnRange,
    partial: Option<*mut u8>,
    (memory, base): (&Memory, *mut u8),
    launcher: &Launcher<'_>,
) -> Result<()> {
    let (dims, values) = (call.dims, &call.forward.values);
    let form = if range.method.reads_values() { range.method.columns() as u8 } else { 0 };
    let kind = if partial.is_some() { Kind::Partial } else { Kind::Rows };
    let variant = Variant { kind, form, cell: call.cell() };
    let unit = usize::from(form.max(1));
    let units = (range.end - range.start) / unit;
    let plan = Plan::new(dims, units, variant, launcher.gpu().info())?;
    let (forward, size) = (&dims.forward, values.dtype().size());
    let (out, out_strides, out_size) = match partial {
        None => (call.out, call.out_strides, size),
        Some(partial) => (partial, partial_strides(dims), call.dims.accumulator.size()),
    };
    let start = |stride: isize, size: usize| range.start as isize * stride * size as isize;
    let steps = [(dims.grad_strides[2], size), (forward.value_strides[2], size), (out_strides[2], out_size)];
    let args = Args {
        grad: call.grad.data().wrapping_offset(start(dims.grad_strides[2], size)),
        values: values.data().wrapping_offset(start(forward.value_strides[2], size)),
        out: out.wrapping_offset(start(out_strides[2], out_size)),
        links: memory.links(base),
        gaps: memory.gaps(base),
        grad_strides: in_bytes(dims.grad_strides, size, unit),
        value_strides: in_bytes(forward.value_strides, size, unit),
        steps: steps.map(|(stride, size)| stride as i64 * size as i64),
        out_strides: in_bytes(out_strides, out_size, unit),
        units: units as i64,
        rows: forward.batch as i64,
        rows_per_group: dims.row_groups().0 as i64,
        first_group: 0,
        samples: forward.samples as u32,
        target_count: forward.targets as u32,
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
    };
    Grid::in_parts(
        "values",
        dims.row_groups().1 as u64,
        u64::from(plan.tiles) * u64::from(plan.chunks),
        |group, blocks| {
            let grid = Grid { blocks, threads: plan.threads, shared: 0 };
            // SAFETY: the views were checked against dims and live on this GPU; the framework keeps them until the stream has
            // passed. The links were queued before on the same stream.
            unsafe {
                launcher.launch(&GATHER_KERNELS, variant.number(), grid, &Args { first_group: group as i64, ..args })
            }
        },
    )
}

/// Strides of the sums of groups, in elements.
fn partial_strides(dims: &Dims) -> [isize; 3] {
    [dims.forward.samples * dims.forward.width, dims.forward.width, 1].map(|stride| stride as isize)
}

/// Queues the sum over all groups.
pub(super) fn add_groups(call: &Call<'_>, partial: *mut u8, launcher: &Launcher<'_>) -> Result<()> {
    let forward = &call.dims.forward;
    let variant = Variant { kind: Kind::Sum, form: 0, cell: call.cell() };
    let args = Args {
        grad: partial,
        values: std::ptr::null(),
        out: call.out,
        links: LinkPointers::NONE,
        gaps: std::ptr::null(),
        grad_strides: [0; 3],
        value_strides: [0; 3],
        steps: [0; 3],
        out_strides: in_bytes(call.out_strides, call.grad.dtype().size(), 1),
        units: forward.width as i64,
        rows: call.dims.row_groups().1 as i64,
        rows_per_group: 1,
        first_group: 0,
        samples: forward.samples as u32,
        target_count: 0,
        tile: 1,
        tiles: 1,
        chunk: 1,
        chunks: 1,
    };
    let elements = forward.samples * forward.width;
    let blocks = u32::try_from(elements.div_ceil(THREADS as usize)).unwrap_or(u32::MAX).clamp(1, 1 << 20);
    let grid = Grid { blocks, threads: THREADS, shared: 0 };
    // SAFETY: as in `gather`; the sums were queued before on the same stream.
    unsafe { launcher.launch(&GATHER_KERNELS, variant.number(), grid, &args) }
}

/// How the work is cut.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    threads: u32,
}

impl Plan {
    fn new(dims: &Dims, units: usize, variant: Variant, gpu: &GpuInfo) -> Result<Self> {
        let (samples, units) = (dims.forward.samples as u64, units as u64);
        let groups = dims.row_groups().1 as u64;
        // A thread has one unit at a time, so a block is no wider than its threads.
        let chunks = units.div_ceil(u64::from(THREADS));
        let chunk = units.div_ceil(chunks) as u32;
        // Rows of few numbers need fewer threads.
        let threads = (samples * u64::from(chunk)).next_multiple_of(32).min(u64::from(THREADS)) as u32;
        // Samples that a block takes side by side.
        let slice = threads / chunk;
        let runs = variant.form == CUBIC && variant.kind == Kind::Rows;
        let largest = slice * if runs { RUN } else { SAMPLES };
        let blocks = |tile: u32| samples.div_ceil(u64::from(tile)) * chunks * groups;
        let mut tile = slice;
        while tile < largest && u64::from(tile) < samples && blocks(2 * tile) >= 4 * u64::from(gpu.multiprocessors) {
            tile *= 2;
        }
        let too_many = |_| Error::invalid("values", "one row needs more blocks than a grid can hold");
        Ok(Self {
            tile,
            tiles: u32::try_from(samples.div_ceil(u64::from(tile))).map_err(too_many)?,
            chunk,
            chunks: u32::try_from(chunks).map_err(too_many)?,
            threads,
        })
    }
}
