//! Gradients of methods that are linear in the values, on CUDA: the choice of kernel and tile, and its arguments.

use super::call::{CELLS, Call, in_bytes, rule_of};
use super::dims::Dims;
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher};
use crate::ops::align::{ColumnRange, Extrapolate, STAGE, STAMPS, flags_of, stamp_number};
use crate::tensor::TensorRef;
use crate::{Error, Result, ensure};

/// A kernel of methods that are linear in the values: its elements, its stamps and the width of its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    cell: u8,
    stamp: u8,
    bytes: u8,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        (0..CELLS.len() as u8).flat_map(|cell| {
            let size = CELLS[usize::from(cell)].2;
            let widths = [16u8, 8, 4, 2].into_iter().filter(move |&bytes| u32::from(bytes) >= size);
            widths.flat_map(move |bytes| (0..STAMPS.len() as u8).map(move |stamp| Self { cell, stamp, bytes }))
        })
    }

    fn number(self) -> u32 {
        u32::from_le_bytes([self.cell, self.stamp, self.bytes, 0])
    }

    fn from_number(number: u32) -> Self {
        let [cell, stamp, bytes, _] = number.to_le_bytes();
        Self { cell, stamp, bytes }
    }

    fn cell(self) -> (&'static str, &'static str, u32) {
        CELLS[usize::from(self.cell) % CELLS.len()]
    }

    fn stamp(self) -> (&'static str, &'static str, u32) {
        STAMPS[usize::from(self.stamp) % STAMPS.len()]
    }

    /// Its name behind that of the kernel.
    fn name(self) -> String {
        format!("{}_{}_{}", self.cell().0, self.stamp().0, self.bytes)
    }

    /// What all such kernels are told; `A` are their arguments.
    fn options<A>(self) -> Vec<String> {
        vec![
            format!("-DRC_CELL={}", self.cell().1),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_BYTES={}", self.bytes),
            format!("-DRC_ARGS_SIZE={}", size_of::<A>()),
        ]
    }
}

/// The kernels, by elements, stamps and the width of accesses.
pub(crate) static ROW_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("rows.cu"),
    headers: &[
        ("locate.cuh", include_str!("../align/locate.cuh")),
        ("rows.cuh", include_str!("../align/rows.cuh")),
        ("pick.cuh", include_str!("pick.cuh")),
        ("add.cuh", include_str!("add.cuh")),
        ("walk.cuh", include_str!("walk.cuh")),
        ("unordered.cuh", include_str!("unordered.cuh")),
    ],
    variants: || Variant::all().map(Variant::number).collect(),
    entry: |number| format!("rc_resample_backward_{}", Variant::from_number(number).name()),
    options: |number| {
        let variant = Variant::from_number(number);
        let mut options = variant.options::<Args>();
        options.push(format!("-DRC_PICK_SIZE={}", pick_bytes(variant)));
        options
    },
};

/// Mirrors `Args` in rows.cu; the kernels assert the size.
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
    first_row: i64,
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

/// Threads of a block; fewer where there are blocks enough and each thread had little to do.
const THREADS: u32 = 256;
const FEWER_THREADS: [(u32, u32); 2] = [(2048, 128), (8192, 192)];
/// Samples of a tile that is not made larger, of doubles and of others.
const LARGE_TILES: [u32; 2] = [512, 1024];
/// Targets that are looked up at a time, at least and at most, likewise.
const PIECES: [(u64, u64); 2] = [(64, 1024), (256, 1792)];
/// Samples and targets of a row are fewer: the largest number stands for none.
const MOST: usize = i32::MAX as usize;

/// Bytes of a `Pick` of the kernel: two indices and two weights.
fn pick_bytes(variant: Variant) -> u32 {
    if variant.cell().2 == 8 { 32 } else { 16 }
}

/// Bytes per access: the widest that bases, row lengths and row starts allow.
fn access_bytes(call: &Call<'_>, range: &ColumnRange) -> u8 {
    let (size, forward, grad) = (call.grad.dtype().size(), &call.dims.forward, call.dims.grad_strides);
    let width = range.end - range.start;
    if width > 1 && (grad[2] != 1 || call.out_strides[2] != 1) {
        return size as u8;
    }
    // A stride along an axis of one is never used.
    let bytes = |stride: isize, count: usize| if count > 1 { stride.unsigned_abs().saturating_mul(size) } else { 0 };
    let rows = [
        bytes(grad[0], forward.batch),
        bytes(grad[1], forward.targets),
        bytes(call.out_strides[0], forward.batch),
        bytes(call.out_strides[1], forward.samples),
    ];
    let offset = range.start * size;
    let bases = (call.grad.data() as usize + offset) | (call.out as usize + offset);
    let all = rows.iter().fold(width * size, |all, row| all | row) | bases;
    (1 << all.trailing_zeros().min(4)).max(size as u8)
}

/// Queues the columns of one method.
pub(super) fn sum_rows(call: &Call<'_>, range: &ColumnRange, launcher: &Launcher<'_>) -> Result<()> {
    let forward = &call.dims.forward;
    for (argument, count) in [("values", forward.samples), ("targets", forward.targets)] {
        ensure!(count < MOST, argument, "a row of {count} has no gradient on a GPU: fewer than 2^31 - 1 have");
    }
    let stamp = stamp_number(call.forward.times.dtype());
    let variant = Variant { cell: call.cell(), stamp, bytes: access_bytes(call, range) };
    let unit = usize::from(variant.bytes) / call.grad.dtype().size();
    let vectors = (range.end - range.start) / unit;
    let plan = Plan::new(call.dims, vectors, variant, launcher.gpu().info())?;
    let args = args(call, range, unit, vectors, &plan);
    Grid::in_parts("values", forward.batch as u64, u64::from(plan.tiles) * u64::from(plan.chunks), |row, blocks| {
        let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&ROW_KERNELS, variant.number(), grid, &Args { first_row: row as i64, ..args }) }
    })
}

fn args(call: &Call<'_>, range: &ColumnRange, unit: usize, vectors: usize, plan: &Plan) -> Args {
    let (forward, op) = (&call.dims.forward, call.forward);
    let size = call.grad.dtype().size();
    let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
    let start = |stride: isize| range.start as isize * stride * size as isize;
    Args {
        grad: call.grad.data().wrapping_offset(start(call.dims.grad_strides[2])),
        times: op.times.data(),
        targets: op.targets.data(),
        lengths: pointer(&op.lengths),
        target_lengths: pointer(&op.target_lengths),
        out: call.out.wrapping_offset(start(call.out_strides[2])),
        grad_strides: in_bytes(call.dims.grad_strides, size, unit),
        time_strides: forward.time_strides.map(|stride| stride as i64),
        target_strides: forward.target_strides.map(|stride| stride as i64),
        out_strides: in_bytes(call.out_strides, size, unit),
        length_stride: forward.length_stride as i64,
        target_length_stride: forward.target_length_stride as i64,
        samples: forward.samples as i64,
        target_count: forward.targets as i64,
        vectors: vectors as i64,
        first_row: 0,
        method: rule_of(range) as u32,
        extrapolate: op.extrapolate as u32,
        flags: flags_of(&op.arguments(), op.check) | if plan.stage { STAGE } else { 0 },
        reach: if op.extrapolate == Extrapolate::Linear { 2 } else { 1 },
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
        piece: plan.piece,
        most: plan.most,
    }
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
        // A thread has one vector at a time, so a block is no wider than its threads.
        let chunks = vectors.div_ceil(u64::from(THREADS));
        let chunk = vectors.div_ceil(chunks) as u32;
        // Samples that a block takes side by side.
        let slice = (THREADS / chunk).max(1);
        // Even, so that what lies behind it in shared memory is aligned to 16 bytes.
        let mut tile = slice.next_multiple_of(2);
        let blocks = |tile: u32| samples.div_ceil(u64::from(tile)) * chunks * forward.batch as u64;
        // Doubles would need twice the room for large tiles.
        let is_small = variant.cell().2 < 8;
        let (large_tile, (least_piece, most_piece)) =
            (LARGE_TILES[usize::from(is_small)], PIECES[usize::from(is_small)]);
        let pick = pick_bytes(variant);
        // Room for a fifth more targets than such a tile has on average, also where these are in any order: then they
        // have a number more each, and the tile's samples one instead of two bounds (unordered.cuh).
        let wanted = |tile: u32| {
            let average = (u64::from(tile) * targets).div_ceil(samples);
            let enough = average + average / 5 + 32;
            let bytes = (enough * u64::from(pick + 4) + 12).saturating_sub(u64::from(4 * tile));
            let in_any_order = bytes.div_ceil(u64::from(pick));
            if is_small { in_any_order } else { in_any_order.max(enough) }
        };
        // Larger while the GPU stays busy and there is room for the targets: every block looks at all stamps and
        // targets of its row.
        while tile < large_tile
            && u64::from(tile) < samples
            && wanted(2 * tile) <= most_piece
            && 2 * blocks(2 * tile) >= 3 * u64::from(gpu.multiprocessors)
        {
            tile *= 2;
        }
        let busy = is_small && blocks(tile) >= 4 * u64::from(gpu.multiprocessors);
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
