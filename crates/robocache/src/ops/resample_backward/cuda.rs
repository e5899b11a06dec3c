//! The gradient of `resample` on CUDA: the choice of kernel and tile, and its arguments.

use super::{Dims, ResampleBackward};
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher};
use crate::ops::resample::{Extrapolate, strides};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result};

/// The kernels of the gradient of `resample`.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("resample_backward.cu"),
    headers: &[("locate.cuh", include_str!("../resample/locate.cuh"))],
    variants: || Variant::all().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// Mirrors `Args` in resample_backward.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    grad: *const u8,
    times: *const u8,
    targets: *const u8,
    lengths: *const u8,
    target_lengths: *const u8,
    out: *mut u8,
    grad_strides: [i64; 3],
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
    padding: u32,
}

const CHECK: u32 = 1;
const WIDE_LENGTHS: u32 = 2;
const WIDE_TARGET_LENGTHS: u32 = 4;
const STAGE: u32 = 8;

const CELLS: [(&str, &str, u32); 4] =
    [("float16", "rc::f16", 2), ("bfloat16", "rc::bf16", 2), ("float32", "float", 4), ("float64", "double", 8)];
const STAMPS: [(&str, &str, u32); 3] = [("int64", "i64", 8), ("float64", "double", 8), ("float32", "float", 4)];

const THREADS: u32 = 256;
/// Blocks that a grid can hold.
const MOST_BLOCKS: u64 = 0x7fff_ffff;
const MOST_TILE: u32 = 512;
/// Targets that are looked up at a time.
const PIECES: (u64, u64) = (64, 1024);

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
            let rows = widths.map(|bytes| (Kind::Rows, bytes)).chain([(Kind::Partial, 0)]);
            let gathering = rows.flat_map(move |(kind, bytes)| {
                (0..STAMPS.len() as u8).map(move |stamp| Self { kind, cell, stamp, bytes })
            });
            gathering.chain([Self { kind: Kind::Sum, cell, stamp: 0, bytes: 0 }])
        })
    }

    fn number(self) -> u32 {
        u32::from_le_bytes([self.cell, self.stamp, self.bytes, self.kind as u8])
    }

    fn from_number(number: u32) -> Self {
        let [cell, stamp, bytes, kind] = number.to_le_bytes();
        let kind = match kind {
            0 => Kind::Rows,
            1 => Kind::Partial,
            _ => Kind::Sum,
        };
        Self { kind, cell, stamp, bytes }
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

    fn entry(self) -> String {
        let (cell, stamp) = (self.cell().0, self.stamp().0);
        match (self.kind, self.bytes) {
            (Kind::Sum, _) => format!("rc_resample_backward_sum_{cell}"),
            (Kind::Partial, _) => format!("rc_resample_backward_partial_{cell}_{stamp}"),
            (Kind::Rows, 0) => format!("rc_resample_backward_{cell}_{stamp}_strided"),
            (Kind::Rows, bytes) => format!("rc_resample_backward_{cell}_{stamp}_{bytes}"),
        }
    }

    fn options(self) -> Vec<String> {
        vec![
            format!("-DRC_CELL={}", self.cell().1),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_BYTES={}", self.access()),
            format!("-DRC_STRIDED={}", u8::from(self.bytes == 0)),
            format!("-DRC_PARTIAL={}", u8::from(self.kind == Kind::Partial)),
            format!("-DRC_SUM={}", u8::from(self.kind == Kind::Sum)),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    }

    fn choose(op: &ResampleBackward<'_>, dims: &Dims, out: &TensorRef<'_>) -> Self {
        let cell = match op.forward.values.dtype() {
            DType::F16 => 0,
            DType::BF16 => 1,
            DType::F32 => 2,
            _ => 3,
        };
        let stamp = match op.forward.times.dtype() {
            DType::I64 => 0,
            DType::F64 => 1,
            _ => 2,
        };
        match dims.groups {
            Some(_) => Self { kind: Kind::Partial, cell, stamp, bytes: 0 },
            None => Self { kind: Kind::Rows, cell, stamp, bytes: access_bytes(op, dims, out) },
        }
    }
}

/// Bytes per access: the widest that bases, row lengths and row starts allow; 0 for layouts that
/// only the general kernel takes.
fn access_bytes(op: &ResampleBackward<'_>, dims: &Dims, out: &TensorRef<'_>) -> u8 {
    let (size, forward, out_strides) = (op.grad.dtype().size(), &dims.forward, strides::<3>(out));
    // A stride along an axis of one is never used.
    let bytes = |stride: isize, count: usize| if count > 1 { stride.unsigned_abs().saturating_mul(size) } else { 0 };
    let rows = [
        bytes(dims.grad_strides[0], forward.batch),
        bytes(dims.grad_strides[1], forward.targets),
        bytes(out_strides[0], forward.batch),
        bytes(out_strides[1], forward.samples),
    ];
    let side_by_side = forward.width <= 1 || (dims.grad_strides[2] == 1 && out_strides[2] == 1);
    // One less than 2^31 samples: the largest number stands for none.
    if !side_by_side || forward.samples >= i32::MAX as usize {
        return 0;
    }
    let all =
        rows.iter().fold(forward.width * size, |all, row| all | row) | op.grad.data() as usize | out.data() as usize;
    (1 << all.trailing_zeros().min(4)).max(size as u8)
}

pub(super) fn backward(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let forward = &dims.forward;
    let sum = match out.get(1) {
        Some(partial) => Some(partial.data_mut()),
        None => None,
    };
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    if forward.width == 0 || (forward.batch == 0 && dims.groups.is_none()) {
        return Ok(());
    }
    let variant = Variant::choose(op, dims, output.view());
    let (size, access) = (op.grad.dtype().size(), variant.access());
    let vectors = forward.width * size / access;
    let (rows_per_group, groups) = dims.row_groups();
    let plan = Plan::new(dims, vectors, variant, launcher.gpu().info())?;
    let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
    let is_wide = |tensor: &Option<TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    let final_strides = in_bytes(strides(output.view()), size, access);
    let partial_strides = [forward.samples * forward.width, forward.width, 1].map(|stride| stride as isize);
    let call = &op.forward;
    let args = Args {
        grad: op.grad.data(),
        times: call.times.data(),
        targets: call.targets.data(),
        lengths: pointer(&call.lengths),
        target_lengths: pointer(&call.target_lengths),
        out: sum.unwrap_or(output.data_mut()),
        grad_strides: in_bytes(dims.grad_strides, size, access),
        time_strides: forward.time_strides.map(|stride| stride as i64),
        target_strides: forward.target_strides.map(|stride| stride as i64),
        out_strides: if sum.is_some() {
            let sum_size = op.accumulator().size();
            in_bytes(partial_strides, sum_size, sum_size)
        } else {
            final_strides
        },
        length_stride: forward.length_stride as i64,
        target_length_stride: forward.target_length_stride as i64,
        samples: forward.samples as i64,
        target_count: forward.targets as i64,
        vectors: vectors as i64,
        rows: forward.batch as i64,
        rows_per_group: rows_per_group as i64,
        first_group: 0,
        method: call.method as u32,
        extrapolate: call.extrapolate as u32,
        flags: flag(call.check, CHECK)
            | flag(is_wide(&call.lengths), WIDE_LENGTHS)
            | flag(is_wide(&call.target_lengths), WIDE_TARGET_LENGTHS)
            | flag(plan.stage, STAGE),
        reach: if call.extrapolate == Extrapolate::Linear { 2 } else { 1 },
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
        piece: plan.piece,
        padding: 0,
    };
    // More work than a grid can hold is launched in parts.
    let per_group = u64::from(plan.tiles) * u64::from(plan.chunks);
    let groups_per_launch = (MOST_BLOCKS / per_group).max(1);
    let mut group = 0u64;
    while group < groups as u64 {
        let part = groups_per_launch.min(groups as u64 - group);
        let blocks = u32::try_from(part * per_group)
            .map_err(|_| Error::invalid("values", "one row needs more blocks than a launch can have"))?;
        let grid = Grid { blocks, threads: THREADS, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe {
            launcher.launch(&KERNELS, variant.number(), grid, &Args { first_group: group as i64, ..args })?;
        }
        group += part;
    }
    if let Some(partial) = sum {
        let variant = Variant { kind: Kind::Sum, stamp: 0, ..variant };
        let elements = forward.samples * forward.width;
        let blocks = u32::try_from(elements.div_ceil(THREADS as usize)).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        let args = Args {
            grad: partial,
            out: output.data_mut(),
            out_strides: final_strides,
            vectors: forward.width as i64,
            rows: groups as i64,
            ..args
        };
        let grid = Grid { blocks, threads: THREADS, shared: 0 };
        // SAFETY: as above; the sums were queued before on the same stream.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args)? };
    }
    Ok(())
}

/// Strides in bytes; that of the columns from one access to the next.
fn in_bytes(strides: [isize; 3], size: usize, access: usize) -> [i64; 3] {
    let [batch, row, column] = strides.map(|stride| stride as i64 * size as i64);
    [batch, row, column * (access / size) as i64]
}

/// How the work is cut.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    piece: u32,
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
        let mut tile = slice.next_multiple_of(2);
        let blocks = |tile: u32| samples.div_ceil(u64::from(tile)) * chunks * groups as u64;
        if rows_per_group == 1 {
            // Larger while the GPU stays busy, until looking at stamps and targets is little beside
            // moving gradients. A sum over many rows keeps its sums in registers: one slice.
            let looked_at = (samples + targets) * u64::from(variant.stamp().2);
            let row_bytes = u64::from(chunk) * variant.access() as u64;
            while tile < MOST_TILE
                && blocks(2 * tile) >= 8 * u64::from(gpu.multiprocessors)
                && u64::from(tile) * row_bytes < (8 * looked_at).max(16 << 10)
            {
                tile *= 2;
            }
        }
        // Room for a quarter more targets than such a tile has on average.
        let average = (u64::from(tile) * targets).div_ceil(samples);
        let piece = (average + average / 4 + 32).clamp(PIECES.0, PIECES.1).next_multiple_of(2) as u32;
        // As `Pick` in the kernel: two indices and two weights, aligned to 16 bytes.
        let pick = if variant.bytes == 0 || variant.cell().2 == 8 { 32 } else { 16 };
        let shared = piece * pick + 8 * tile;
        let stamps = samples.saturating_mul(u64::from(variant.stamp().2)).next_multiple_of(16);
        let stage = stamps <= u64::from(gpu.shared_memory.saturating_sub(shared)) / 2;
        let too_many = |_| Error::invalid("values", "one row needs more blocks than a grid can hold");
        Ok(Self {
            tile,
            tiles: u32::try_from(samples.div_ceil(u64::from(tile))).map_err(too_many)?,
            chunk,
            chunks: u32::try_from(chunks).map_err(too_many)?,
            piece,
            stage,
            shared: shared + if stage { stamps as u32 } else { 0 },
        })
    }
}
