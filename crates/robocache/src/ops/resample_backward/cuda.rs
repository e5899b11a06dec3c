//! The gradient of `resample` on CUDA: the choice of kernel and tile, and its arguments.

use super::{Dims, ResampleBackward};
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher};
use crate::ops::resample::{ColumnRange, Extrapolate, Method, STAMPS, stamp_number, strides};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result};

/// The kernels of the gradient of `resample`.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("resample_backward.cu"),
    headers: &[
        ("locate.cuh", include_str!("../resample/locate.cuh")),
        ("rows.cuh", include_str!("../resample/rows.cuh")),
        ("vjp.cuh", include_str!("vjp.cuh")),
        ("pick.cuh", include_str!("pick.cuh")),
        ("add.cuh", include_str!("add.cuh")),
        ("walk.cuh", include_str!("walk.cuh")),
        ("unordered.cuh", include_str!("unordered.cuh")),
        ("curve.cuh", include_str!("curve.cuh")),
    ],
    variants: || Variant::all().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// Mirrors `Args` in resample_backward.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    grad: *const u8,
    values: *const u8,
    times: *const u8,
    targets: *const u8,
    lengths: *const u8,
    target_lengths: *const u8,
    out: *mut u8,
    grad_strides: [i64; 3],
    value_strides: [i64; 3],
    steps: [i64; 3],
    time_strides: [i64; 2],
    target_strides: [i64; 2],
    out_strides: [i64; 3],
    length_stride: i64,
    target_length_stride: i64,
    samples: i64,
    target_count: i64,
    vectors: i64,
    rows: i64,
    rows_per_group: i64,
    first_group: i64,
    method: u32,
    extrapolate: u32,
    flags: u32,
    reach: u32,
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    piece: u32,
    most: u32,
}

const CHECK: u32 = 1;
const WIDE_LENGTHS: u32 = 2;
const WIDE_TARGET_LENGTHS: u32 = 4;
const STAGE: u32 = 8;

const CELLS: [(&str, &str, u32); 4] =
    [("float16", "rc::f16", 2), ("bfloat16", "rc::bf16", 2), ("float32", "float", 4), ("float64", "double", 8)];

/// Methods that are not linear in the values: columns of a unit, and how kernels are named.
const FORMS: [(u8, &str); 3] = [(1, "cubic_"), (4, "slerp_"), (6, "rot6d_")];

/// Threads of a block; fewer where there are blocks enough and each thread had little to do.
const THREADS: u32 = 256;
const FEWER_THREADS: [(u32, u32); 2] = [(2048, 128), (8192, 192)];
/// Blocks that a grid can hold.
const MOST_BLOCKS: u64 = 0x7fff_ffff;
/// Samples of a tile that is not made larger.
const LARGE_TILE: u32 = 512;
/// The same for kernels that walk along runs of samples.
const LARGE_WALKED: u32 = 1024;
/// Targets that are looked up at a time, at least and at most.
const PIECES: (u64, u64) = (64, 1024);
/// The same for kernels that walk, which look up more.
const WALKED: (u64, u64) = (256, 1792);

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

/// A kernel: what it does, its elements, its stamps and the width of its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    kind: Kind,
    /// Columns of a unit for methods that are not linear in the values, else 0.
    form: u8,
    cell: u8,
    stamp: u8,
    /// Bytes per access; 0 when columns are not side by side.
    bytes: u8,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let cells = 0..CELLS.len() as u8;
        cells.flat_map(|cell| {
            let size = CELLS[usize::from(cell)].2;
            let widths = [16u8, 8, 4, 2].into_iter().filter(move |&bytes| u32::from(bytes) >= size).chain([0]);
            let weighted = widths.map(|bytes| (Kind::Rows, 0, bytes)).chain([(Kind::Partial, 0, 0)]);
            let forms = FORMS.into_iter().flat_map(|(form, _)| [(Kind::Rows, form, 0), (Kind::Partial, form, 0)]);
            let gathering = weighted.chain(forms).flat_map(move |(kind, form, bytes)| {
                (0..STAMPS.len() as u8).map(move |stamp| Self { kind, form, cell, stamp, bytes })
            });
            gathering.chain([Self { kind: Kind::Sum, form: 0, cell, stamp: 0, bytes: 0 }])
        })
    }

    fn number(self) -> u32 {
        u32::from_le_bytes([self.cell, self.stamp, self.bytes, self.kind as u8 | self.form << 4])
    }

    fn from_number(number: u32) -> Self {
        let [cell, stamp, bytes, kind] = number.to_le_bytes();
        let form = kind >> 4;
        let kind = match kind & 15 {
            0 => Kind::Rows,
            1 => Kind::Partial,
            _ => Kind::Sum,
        };
        Self { kind, form, cell, stamp, bytes }
    }

    fn cell(self) -> (&'static str, &'static str, u32) {
        CELLS[usize::from(self.cell) % CELLS.len()]
    }

    fn stamp(self) -> (&'static str, &'static str, u32) {
        STAMPS[usize::from(self.stamp) % STAMPS.len()]
    }

    /// Bytes per load and store.
    fn access(self) -> usize {
        if self.bytes == 0 { self.cell().2 as usize } else { usize::from(self.bytes) }
    }

    /// Bytes of a `Pick` of the kernel: two indices and two weights, and for cubics four samples and two weights more.
    fn pick_bytes(self) -> u32 {
        match (self.form, self.bytes, self.cell().2) {
            (1, _, 8) => 80,
            (1, _, _) => 64,
            (_, 0, _) | (_, _, 8) => 32,
            _ => 16,
        }
    }

    fn entry(self) -> String {
        let (cell, stamp) = (self.cell().0, self.stamp().0);
        let form = FORMS.iter().find(|(form, _)| *form == self.form).map_or("", |(_, name)| name);
        match (self.kind, self.bytes) {
            (Kind::Sum, _) => format!("rc_resample_backward_sum_{cell}"),
            (Kind::Partial, _) => format!("rc_resample_backward_{form}partial_{cell}_{stamp}"),
            (Kind::Rows, 0) => format!("rc_resample_backward_{form}{cell}_{stamp}_strided"),
            (Kind::Rows, bytes) => format!("rc_resample_backward_{cell}_{stamp}_{bytes}"),
        }
    }

    fn options(self) -> Vec<String> {
        vec![
            format!("-DRC_CELL={}", self.cell().1),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_BYTES={}", self.access()),
            format!("-DRC_STRIDED={}", u8::from(self.bytes == 0)),
            format!("-DRC_FORM={}", self.form),
            format!("-DRC_PARTIAL={}", u8::from(self.kind == Kind::Partial)),
            format!("-DRC_SUM={}", u8::from(self.kind == Kind::Sum)),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
            format!("-DRC_PICK_SIZE={}", self.pick_bytes()),
        ]
    }

    fn choose(call: &Call<'_>, range: &ColumnRange) -> Self {
        let cell = match call.op.forward.values.dtype() {
            DType::F16 => 0,
            DType::BF16 => 1,
            DType::F32 => 2,
            _ => 3,
        };
        let stamp = stamp_number(call.op.forward.times.dtype());
        let form = if range.method.reads_values() { range.method.columns() as u8 } else { 0 };
        let kind = if call.dims.groups.is_some() { Kind::Partial } else { Kind::Rows };
        let bytes = if form == 0 && kind == Kind::Rows { access_bytes(call, range) } else { 0 };
        Self { kind, form, cell, stamp, bytes }
    }
}

/// What a call has to do, with its outputs.
struct Call<'a> {
    op: &'a ResampleBackward<'a>,
    dims: &'a Dims,
    out: *mut u8,
    out_strides: [isize; 3],
    /// Sums of groups, `[groups,S,D]`.
    partial: Option<*mut u8>,
}

/// Bytes per access: the widest that bases, row lengths and row starts allow; 0 for layouts that
/// only the general kernel takes.
fn access_bytes(call: &Call<'_>, range: &ColumnRange) -> u8 {
    let (size, forward, grad) = (call.op.grad.dtype().size(), &call.dims.forward, call.dims.grad_strides);
    // A stride along an axis of one is never used.
    let bytes = |stride: isize, count: usize| if count > 1 { stride.unsigned_abs().saturating_mul(size) } else { 0 };
    let rows = [
        bytes(grad[0], forward.batch),
        bytes(grad[1], forward.targets),
        bytes(call.out_strides[0], forward.batch),
        bytes(call.out_strides[1], forward.samples),
    ];
    let width = range.end - range.start;
    let side_by_side = width <= 1 || (grad[2] == 1 && call.out_strides[2] == 1);
    // One less than 2^31 samples: the largest number stands for none. Targets are counted in 32 bits, too.
    if !side_by_side || forward.samples.max(forward.targets) >= i32::MAX as usize {
        return 0;
    }
    let offset = range.start * size;
    let bases = (call.op.grad.data() as usize + offset) | (call.out as usize + offset);
    let all = rows.iter().fold(width * size, |all, row| all | row) | bases;
    (1 << all.trailing_zeros().min(4)).max(size as u8)
}

pub(super) fn backward(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let partial = out.get(1).map(|partial| partial.data_mut());
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    if dims.forward.width == 0 || (dims.forward.batch == 0 && dims.groups.is_none()) {
        return Ok(());
    }
    let call = Call { op, dims, out_strides: strides(output.view()), out: output.data_mut(), partial };
    for range in &dims.forward.ranges {
        call.gather(range, launcher)?;
    }
    if partial.is_some() { call.add_groups(launcher) } else { Ok(()) }
}

impl Call<'_> {
    /// Queues the columns of one method.
    fn gather(&self, range: &ColumnRange, launcher: &Launcher<'_>) -> Result<()> {
        let variant = Variant::choose(self, range);
        let (size, access) = (self.op.grad.dtype().size(), variant.access());
        let unit = if variant.form == 0 { access / size } else { usize::from(variant.form) };
        let vectors = (range.end - range.start) / unit;
        let plan = Plan::new(self.dims, vectors, variant, launcher.gpu().info())?;
        let groups = self.dims.row_groups().1 as u64;
        let args = self.args(range, variant, unit, vectors, &plan);
        // More work than a grid can hold is launched in parts.
        let per_group = u64::from(plan.tiles) * u64::from(plan.chunks);
        let groups_per_launch = (MOST_BLOCKS / per_group).max(1);
        let mut group = 0u64;
        while group < groups {
            let part = groups_per_launch.min(groups - group);
            let blocks = u32::try_from(part * per_group)
                .map_err(|_| Error::invalid("values", "one row needs more blocks than a launch can have"))?;
            let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
            // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
            // them until the stream has passed.
            unsafe {
                launcher.launch(&KERNELS, variant.number(), grid, &Args { first_group: group as i64, ..args })?;
            }
            group += part;
        }
        Ok(())
    }

    fn args(&self, range: &ColumnRange, variant: Variant, unit: usize, vectors: usize, plan: &Plan) -> Args {
        let (forward, call) = (&self.dims.forward, &self.op.forward);
        let size = self.op.grad.dtype().size();
        let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
        let is_wide = |tensor: &Option<TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
        let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
        let (out, out_strides, out_size) = match self.partial {
            None => (self.out, self.out_strides, size),
            Some(partial) => {
                let strides = [forward.samples * forward.width, forward.width, 1].map(|stride| stride as isize);
                (partial, strides, self.op.accumulator().size())
            }
        };
        let start = |stride: isize, size: usize| range.start as isize * stride * size as isize;
        let steps = [(self.dims.grad_strides[2], size), (forward.value_strides[2], size), (out_strides[2], out_size)];
        let lines = u32::from(call.extrapolate == Extrapolate::Linear);
        Args {
            grad: self.op.grad.data().wrapping_offset(start(self.dims.grad_strides[2], size)),
            values: call.values.data().wrapping_offset(start(forward.value_strides[2], size)),
            times: call.times.data(),
            targets: call.targets.data(),
            lengths: pointer(&call.lengths),
            target_lengths: pointer(&call.target_lengths),
            out: out.wrapping_offset(start(out_strides[2], out_size)),
            grad_strides: in_bytes(self.dims.grad_strides, size, unit),
            value_strides: in_bytes(forward.value_strides, size, unit),
            steps: steps.map(|(stride, size)| stride as i64 * size as i64),
            time_strides: forward.time_strides.map(|stride| stride as i64),
            target_strides: forward.target_strides.map(|stride| stride as i64),
            out_strides: in_bytes(out_strides, out_size, unit),
            length_stride: forward.length_stride as i64,
            target_length_stride: forward.target_length_stride as i64,
            samples: forward.samples as i64,
            target_count: forward.targets as i64,
            vectors: vectors as i64,
            rows: forward.batch as i64,
            rows_per_group: self.dims.row_groups().0 as i64,
            first_group: 0,
            method: if range.method.copies() { range.method } else { Method::Linear } as u32,
            extrapolate: call.extrapolate as u32,
            flags: flag(call.check, CHECK)
                | flag(is_wide(&call.lengths), WIDE_LENGTHS)
                | flag(is_wide(&call.target_lengths), WIDE_TARGET_LENGTHS)
                | flag(plan.stage, STAGE),
            // A cubic has a sample more on each side.
            reach: if variant.form == 1 { 2 + lines } else { 1 + lines },
            tile: plan.tile,
            tiles: plan.tiles,
            chunk: plan.chunk,
            chunks: plan.chunks,
            piece: plan.piece,
            most: plan.most,
        }
    }

    /// Queues the sum over all groups.
    fn add_groups(&self, launcher: &Launcher<'_>) -> Result<()> {
        let forward = &self.dims.forward;
        let all = ColumnRange { method: Method::Linear, start: 0, end: forward.width };
        let variant = Variant { kind: Kind::Sum, stamp: 0, ..Variant::choose(self, &all) };
        let elements = forward.samples * forward.width;
        let blocks = u32::try_from(elements.div_ceil(THREADS as usize)).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        let plan = Plan { tile: 1, tiles: 1, chunk: 1, chunks: 1, threads: THREADS, ..Plan::default() };
        let args = Args {
            grad: self.partial.unwrap_or(self.out),
            out: self.out,
            out_strides: in_bytes(self.out_strides, self.op.grad.dtype().size(), 1),
            rows: self.dims.row_groups().1 as i64,
            ..self.args(&all, variant, 1, forward.width, &plan)
        };
        let grid = Grid { blocks, threads: THREADS, shared: 0 };
        // SAFETY: as in `gather`; the sums were queued before on the same stream.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args) }
    }
}

/// Strides in bytes; that of the columns from one unit to the next.
fn in_bytes(strides: [isize; 3], size: usize, unit: usize) -> [i64; 3] {
    let [batch, row, column] = strides.map(|stride| stride as i64 * size as i64);
    [batch, row, column * unit as i64]
}

/// How the work is cut.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    piece: u32,
    most: u32,
    threads: u32,
    stage: bool,
    shared: u32,
}

impl Plan {
    fn new(dims: &Dims, vectors: usize, variant: Variant, gpu: &GpuInfo) -> Result<Self> {
        let forward = &dims.forward;
        let (samples, targets, vectors) = (forward.samples as u64, forward.targets as u64, vectors as u64);
        let (rows_per_group, groups) = dims.row_groups();
        // A thread has one vector at a time, so a block is no wider than its threads.
        let chunks = vectors.div_ceil(u64::from(THREADS));
        let chunk = vectors.div_ceil(chunks) as u32;
        // Samples that a block takes side by side.
        let slice = (THREADS / chunk).max(1);
        // Even, so that what lies behind it in shared memory is aligned to 16 bytes.
        let mut tile = slice.next_multiple_of(2);
        let blocks = |tile: u32| samples.div_ceil(u64::from(tile)) * chunks * groups as u64;
        // Kernels that walk take large tiles; doubles, which walk too, would need twice the room for them.
        let walks = variant.kind == Kind::Rows && variant.form == 0 && variant.bytes != 0 && variant.cell().2 < 8;
        let (large_tile, (least_piece, most_piece)) = if walks { (LARGE_WALKED, WALKED) } else { (LARGE_TILE, PIECES) };
        let pick = variant.pick_bytes();
        // Room for a fifth more targets than such a tile has on average, also where these are in any order: then they
        // have a number more each, and the tile's samples one instead of two bounds (unordered.cuh).
        let wanted = |tile: u32| {
            let average = (u64::from(tile) * targets).div_ceil(samples);
            let enough = average + average / 5 + 32;
            let bytes = (enough * u64::from(pick + 4) + 12).saturating_sub(u64::from(4 * tile));
            let in_any_order = bytes.div_ceil(u64::from(pick));
            if walks { in_any_order } else { in_any_order.max(enough) }
        };
        if rows_per_group == 1 {
            // Larger while the GPU stays busy and there is room for the targets: every block looks at all stamps and
            // targets of its row. A sum over many rows keeps its sums in registers: one slice.
            while tile < large_tile
                && u64::from(tile) < samples
                && wanted(2 * tile) <= most_piece
                && 2 * blocks(2 * tile) >= 3 * u64::from(gpu.multiprocessors)
            {
                tile *= 2;
            }
        }
        let busy = walks && blocks(tile) >= 4 * u64::from(gpu.multiprocessors);
        let items = u64::from(tile).min(samples) * u64::from(chunk);
        let fewer = FEWER_THREADS.iter().find(|&&(most, _)| busy && items <= u64::from(most));
        let threads = fewer.map_or(THREADS, |&(_, threads)| threads.max(chunk.next_multiple_of(32)));
        let bounds = 8 * tile;
        let piece = wanted(tile).clamp(least_piece, most_piece).next_multiple_of(2) as u32;
        // Who walks along targets in order needs no bounds.
        let most = piece + bounds / pick;
        let shared = piece * pick + bounds;
        let stamps = samples.saturating_mul(u64::from(variant.stamp().2)).next_multiple_of(16);
        let stage = stamps <= u64::from(gpu.shared_memory.saturating_sub(shared)) / 2;
        let too_many = |_| Error::invalid("values", "one row needs more blocks than a grid can hold");
        Ok(Self {
            tile,
            tiles: u32::try_from(samples.div_ceil(u64::from(tile))).map_err(too_many)?,
            chunk,
            chunks: u32::try_from(chunks).map_err(too_many)?,
            piece,
            most,
            threads,
            stage,
            shared: shared + if stage { stamps as u32 } else { 0 },
        })
    }
}
