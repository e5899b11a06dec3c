//! `resample` on CUDA: the choice of kernel and tile, and its arguments.

use super::{Dims, Extrapolate, Method, Resample, longest_gap, strides};
use crate::cuda::{Finding, GpuInfo, Grid, KernelFamily, Launcher, Reporter};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result};

/// The kernels of `resample`.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("resample.cu"),
    headers: &[
        ("locate.cuh", include_str!("locate.cuh")),
        ("rows.cuh", include_str!("rows.cuh")),
        ("vectors.cuh", include_str!("vectors.cuh")),
    ],
    variants: || Variant::all().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// Mirrors `Args` in resample.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    values: *const u8,
    times: *const u8,
    targets: *const u8,
    lengths: *const u8,
    target_lengths: *const u8,
    out: *mut u8,
    valid: *mut u8,
    value_strides: [i64; 3],
    time_strides: [i64; 2],
    target_strides: [i64; 2],
    out_strides: [i64; 3],
    valid_strides: [i64; 2],
    length_stride: i64,
    target_length_stride: i64,
    batch: i64,
    samples: i64,
    target_count: i64,
    vectors: i64,
    max_gap_nanoseconds: u64,
    max_gap: f64,
    missing: u64,
    code: u64,
    first_row: u64,
    reporter: Reporter,
    method: u32,
    extrapolate: u32,
    flags: u32,
    tile: u32,
    tiles: u32,
    chunks: u32,
    chunk: u32,
    rows: u32,
    per_samples: u32,
    per_targets: u32,
}

const CHECK: u32 = 1;
const WIDE_LENGTHS: u32 = 2;
const WIDE_TARGET_LENGTHS: u32 = 4;
const STAGE: u32 = 8;

/// The cells that kernels are compiled for: four that blend, four that are copied by size.
const CELLS: [(&str, &str, u32); 8] = [
    ("linear_float16", "rc::f16", 2),
    ("linear_bfloat16", "rc::bf16", 2),
    ("linear_float32", "float", 4),
    ("linear_float64", "double", 8),
    ("copy_8", "u8", 1),
    ("copy_16", "u16", 2),
    ("copy_32", "u32", 4),
    ("copy_64", "u64", 8),
];
/// The place of the first that is copied in `CELLS`.
const COPIES: u8 = 4;
/// Types of stamps that kernels are compiled for: name, type, bytes.
pub(in crate::ops) const STAMPS: [(&str, &str, u32); 3] =
    [("int64", "i64", 8), ("float64", "double", 8), ("float32", "float", 4)];

/// The place of a type in `STAMPS`.
pub(in crate::ops) fn stamp_number(dtype: DType) -> u8 {
    match dtype {
        DType::I64 => 0,
        DType::F64 => 1,
        _ => 2,
    }
}

/// Vectors of a row that one block copies; 32-bit arithmetic inside a block counts on it.
const MOST_CHUNK: u32 = 4096;
const THREADS: u32 = 256;
const MOST_TILE: u32 = 256;
/// Of short rows a block takes several: this many (as in resample.cu), and targets, bytes of stamps and bytes of
/// results in all; but there should be some blocks for each multiprocessor.
const MOST_ROWS: usize = 64;
const MOST_TARGETS: usize = 1024;
const MOST_STAMPS: usize = 24 << 10;
const MOST_RESULTS: usize = 12 << 10;
const LEAST_BLOCKS: usize = 2;
/// Bytes of a `Pick` in the kernel: two indices and a weight; with indices of 64 bits twice as many.
const PICK: u32 = 16;

/// A kernel: what it moves, its stamps and the width of its accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    cell: u8,
    stamp: u8,
    /// Bytes per access; 0 when columns are not side by side.
    bytes: u8,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let cells = (0..CELLS.len() as u8).flat_map(|cell| {
            let size = CELLS[usize::from(cell)].2;
            let widths = [16u8, 8, 4, 2, 1, 0].into_iter();
            widths.filter(move |&bytes| bytes == 0 || u32::from(bytes) >= size).map(move |bytes| (cell, bytes))
        });
        let cells = cells.filter(|&(cell, bytes)| cell == Self::cell_of(cell, bytes));
        cells.flat_map(|(cell, bytes)| (0..STAMPS.len() as u8).map(move |stamp| Self { cell, stamp, bytes }))
    }

    /// What kernels with accesses of so many bytes are compiled for: copies do not ask for the elements within.
    fn cell_of(cell: u8, bytes: u8) -> u8 {
        if cell < COPIES || bytes == 0 { cell } else { COPIES + bytes.min(8).trailing_zeros() as u8 }
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

    /// Bytes per load and store.
    fn access(self) -> usize {
        if self.bytes == 0 { self.cell().2 as usize } else { usize::from(self.bytes) }
    }

    fn entry(self) -> String {
        let width = if self.bytes == 0 { "strided".to_owned() } else { self.bytes.to_string() };
        format!("rc_resample_{}_{}_{width}", self.cell().0, self.stamp().0)
    }

    fn options(self) -> Vec<String> {
        let (name, cell, size) = self.cell();
        let blends = name.starts_with("linear");
        vec![
            format!("-DRC_CELL={cell}"),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_BLEND={}", u8::from(blends)),
            format!("-DRC_BYTES={}", if self.bytes == 0 { size } else { u32::from(self.bytes) }),
            format!("-DRC_STRIDED={}", u8::from(self.bytes == 0)),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    }

    fn choose(op: &Resample<'_>, dims: &Dims, out: &TensorRef<'_>) -> Self {
        let dtype = op.values.dtype();
        let cell = match (op.plain_method().unwrap_or(Method::Linear), dtype) {
            (Method::Linear, DType::F16) => 0,
            (Method::Linear, DType::BF16) => 1,
            (Method::Linear, DType::F32) => 2,
            (Method::Linear, _) => 3,
            _ => COPIES + dtype.size().trailing_zeros() as u8,
        };
        let (stamp, bytes) = (stamp_number(op.times.dtype()), access_bytes(op, dims, out));
        Self { cell: Self::cell_of(cell, bytes), stamp, bytes }
    }
}

/// Bytes per access: the widest that bases, row lengths and row starts allow; 0 for layouts that
/// only the general kernel takes.
fn access_bytes(op: &Resample<'_>, dims: &Dims, out: &TensorRef<'_>) -> u8 {
    let (size, out_strides) = (op.values.dtype().size(), strides::<3>(out));
    // A stride along an axis of one is never used.
    let bytes = |stride: isize, count: usize| if count > 1 { stride.unsigned_abs().saturating_mul(size) } else { 0 };
    let rows = [
        bytes(dims.value_strides[0], dims.batch),
        bytes(dims.value_strides[1], dims.samples),
        bytes(out_strides[0], dims.batch),
        bytes(out_strides[1], dims.targets),
    ];
    let side_by_side = dims.width <= 1 || (dims.value_strides[2] == 1 && out_strides[2] == 1);
    let fits = |number: usize| i32::try_from(number).is_ok();
    let forward = |stride: isize, count: usize| stride >= 0 || count <= 1;
    let forward = forward(dims.value_strides[1], dims.samples) && forward(out_strides[1], dims.targets);
    if !(side_by_side && forward && fits(dims.samples) && fits(rows[1]) && fits(rows[3])) {
        return 0;
    }
    let all =
        rows.iter().fold(dims.width * size, |all, row| all | row) | op.values.data() as usize | out.data() as usize;
    // At least an element, also where nothing is there to be aligned.
    (1 << all.trailing_zeros().min(4)).max(size as u8)
}

pub(super) fn resample(
    op: &Resample<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let (valid, valid_strides) = super::valid_output(out);
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    if op.is_empty(dims) {
        return Ok(());
    }
    let variant = Variant::choose(op, dims, output.view());
    let (size, access) = (op.values.dtype().size(), variant.access());
    let vectors = dims.width * size / access;
    let gpu = launcher.gpu().info();
    let rows = rows_of_block(dims, strides(output.view()), size, variant, gpu.multiprocessors);
    let plan = match rows {
        1 => Plan::new(dims, vectors, variant, gpu)?,
        rows => Plan::of_rows(rows, dims, vectors, variant),
    };
    let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
    let max_gap = longest_gap(op.max_gap);
    let args = Args {
        values: op.values.data(),
        times: op.times.data(),
        targets: op.targets.data(),
        lengths: pointer(&op.lengths),
        target_lengths: pointer(&op.target_lengths),
        out_strides: in_bytes(strides(output.view()), size, access),
        out: output.data_mut(),
        valid,
        value_strides: in_bytes(dims.value_strides, size, access),
        time_strides: dims.time_strides.map(|stride| stride as i64),
        target_strides: dims.target_strides.map(|stride| stride as i64),
        valid_strides: valid_strides.map(|stride| stride as i64),
        length_stride: dims.length_stride as i64,
        target_length_stride: dims.target_length_stride as i64,
        batch: dims.batch as i64,
        samples: dims.samples as i64,
        target_count: dims.targets as i64,
        vectors: vectors as i64,
        max_gap_nanoseconds: (max_gap * 1e9).round() as u64,
        max_gap,
        missing: op.values.dtype().repeated_missing_bits(),
        code: u64::from(crate::ops::RESAMPLE) << 32 | u64::from(variant.stamp) << 8,
        first_row: 0,
        reporter: launcher.reporter(),
        method: op.plain_method().unwrap_or(Method::Linear) as u32,
        extrapolate: op.extrapolate as u32,
        flags: flags_of(op, plan.stage),
        tile: plan.tile,
        tiles: plan.tiles,
        chunks: plan.chunks,
        chunk: plan.chunk,
        rows: plan.rows,
        per_samples: inverse(dims.samples),
        per_targets: inverse(dims.targets),
    };
    let per_row = u64::from(plan.tiles) * u64::from(plan.chunks);
    let rows = u64::from(plan.rows);
    Grid::in_parts("targets", (dims.batch as u64).div_ceil(rows), per_row, |part, blocks| {
        let (row, grid) = (part * rows, Grid { blocks, threads: plan.threads, shared: plan.shared });
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args.at_row(row, variant.stamp().2 as usize)) }
    })
}

/// What kernels that look at stamps, targets and lengths are told of a call (`Flags` in rows.cuh). `stage`: stamps are
/// brought to shared memory.
pub(in crate::ops) fn flags_of(op: &Resample<'_>, stage: bool) -> u32 {
    let is_wide = |tensor: &Option<TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    flag(op.check, CHECK)
        | flag(is_wide(&op.lengths), WIDE_LENGTHS)
        | flag(is_wide(&op.target_lengths), WIDE_TARGET_LENGTHS)
        | flag(stage, STAGE)
}

impl Args {
    /// The same for the rows from `row` on; only for batches that one grid cannot hold.
    fn at_row(mut self, row: u64, stamp: usize) -> Self {
        if row == 0 {
            return self;
        }
        self.first_row = row;
        let row = row as i64;
        self.batch -= row;
        let shift = |stride: i64, size: usize| (row * stride) as isize * size as isize;
        self.values = self.values.wrapping_offset(shift(self.value_strides[0], 1));
        self.out = self.out.wrapping_offset(shift(self.out_strides[0], 1));
        self.times = self.times.wrapping_offset(shift(self.time_strides[0], stamp));
        self.targets = self.targets.wrapping_offset(shift(self.target_strides[0], stamp));
        let wide = |flag: u32| if self.flags & flag != 0 { 8 } else { 4 };
        if !self.lengths.is_null() {
            self.lengths = self.lengths.wrapping_offset(shift(self.length_stride, wide(WIDE_LENGTHS)));
        }
        if !self.target_lengths.is_null() {
            self.target_lengths =
                self.target_lengths.wrapping_offset(shift(self.target_length_stride, wide(WIDE_TARGET_LENGTHS)));
        }
        if !self.valid.is_null() {
            self.valid = self.valid.wrapping_offset(shift(self.valid_strides[0], 1));
        }
        self
    }
}

/// Strides in bytes; that of the columns from one access to the next.
fn in_bytes(strides: [isize; 3], size: usize, access: usize) -> [i64; 3] {
    let [batch, row, column] = strides.map(|stride| stride as i64 * size as i64);
    [batch, row, column * (access / size) as i64]
}

/// 2^32 over a number, rounded up: the high half of a product with it is the quotient, where both are below 2^16.
/// 0 for 1, as `part_of` in the kernel takes it.
fn inverse(number: usize) -> u32 {
    u32::try_from((1u64 << 32).div_ceil(number.max(1) as u64)).unwrap_or(0)
}

/// Rows that a block takes: several where they are short and lie side by side, as the rows of a training batch do.
fn rows_of_block(dims: &Dims, out: [isize; 3], size: usize, variant: Variant, multiprocessors: u32) -> u32 {
    let (Some(values), Some(result)) = (rows_in(dims.value_strides, dims.samples), rows_in(out, dims.targets)) else {
        return 1;
    };
    let stamps = dims.samples.saturating_mul(variant.stamp().2 as usize);
    let vectors = dims.width * size / variant.access();
    if variant.bytes == 0 || stamps > MOST_STAMPS || vectors == 0 || vectors > MOST_CHUNK as usize {
        return 1;
    }
    // A clock that all rows share is brought once.
    let own_stamps = if dims.time_strides[0] == 0 { 0 } else { stamps };
    let bytes = |rows: usize, count: usize, stride: usize| rows.saturating_mul(count).saturating_mul(stride * size);
    let fits = |&rows: &usize| {
        rows * own_stamps <= MOST_STAMPS
            && rows * dims.samples < 1 << 16
            && bytes(rows, dims.samples, values).max(bytes(rows, dims.targets, result)) < 1 << 31
    };
    let row_bytes = dims.targets.saturating_mul(dims.width * size).max(1);
    let most = (MOST_RESULTS / row_bytes)
        .min(MOST_TARGETS / dims.targets.max(1))
        .min(MOST_ROWS)
        .min(dims.batch / (LEAST_BLOCKS * multiprocessors as usize).max(1));
    (2..=most).rev().find(fits).map_or(1, |rows| rows as u32)
}

/// The stride of rows in a batch without gaps; none where there are gaps.
fn rows_in(strides: [isize; 3], count: usize) -> Option<usize> {
    let stride = usize::try_from(strides[1]).ok()?;
    (strides[0] == stride.checked_mul(count)? as isize && stride > 0).then_some(stride)
}

/// How the work is cut.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    stage: bool,
    shared: u32,
    threads: u32,
    /// Of the batch in a block.
    rows: u32,
}

impl Plan {
    /// Several whole rows in a block.
    fn of_rows(rows: u32, dims: &Dims, vectors: usize, variant: Variant) -> Self {
        let tile = dims.targets as u32;
        let clocks = if dims.time_strides[0] == 0 { 1 } else { rows };
        let stamps = clocks * dims.samples as u32 * variant.stamp().2;
        let shared = rows * tile * PICK + stamps.next_multiple_of(16);
        Self { tile, tiles: 1, chunk: vectors as u32, chunks: 1, stage: true, shared, threads: THREADS, rows }
    }

    fn new(dims: &Dims, vectors: usize, variant: Variant, gpu: &GpuInfo) -> Result<Self> {
        let chunk = u32::try_from(vectors).unwrap_or(u32::MAX).clamp(1, MOST_CHUNK);
        let chunks = (vectors as u64).div_ceil(u64::from(chunk)).max(1);
        let targets = dims.targets as u64;
        let blocks = |tile: u32| targets.div_ceil(u64::from(tile)) * chunks * dims.batch as u64;
        let multiprocessors = u64::from(gpu.multiprocessors);
        let stamps = (dims.samples as u64).saturating_mul(u64::from(variant.stamp().2)).next_multiple_of(16);
        let row_bytes = (vectors * variant.access()) as u64;
        let (mut tile, mut threads) = (MOST_TILE, THREADS);
        if blocks(tile) >= 16 * multiprocessors {
            // Plenty of work: small blocks, so that some search while others copy. Tiles grow until
            // looking at the stamps is little beside copying.
            threads = THREADS / 2;
            if row_bytes >= 256 {
                tile /= 2;
            }
            while tile < 4 * MOST_TILE
                && u64::from(tile) * row_bytes < 4 * stamps
                && blocks(2 * tile) >= 7 * multiprocessors
            {
                tile *= 2;
                threads = THREADS;
            }
        } else {
            // Blocks that must stage many stamps are better fewer, as long as there is one for each.
            let enough = if stamps > 8 << 10 { multiprocessors * 15 / 16 } else { multiprocessors * 3 / 2 };
            while tile > 8 && blocks(tile) < enough {
                tile /= 2;
            }
        }
        if let Some(forced) = forced_plan() {
            (tile, threads) = forced;
        }
        let picks = tile * if variant.bytes == 0 { 2 * PICK } else { PICK };
        // A block that takes all shared memory leaves no other to hide its waiting behind.
        let stage = stamps <= u64::from(gpu.shared_memory.saturating_sub(picks)) / 2;
        let too_many = |_| Error::invalid("targets", "one row needs more blocks than a grid can hold");
        Ok(Self {
            tile,
            tiles: u32::try_from(targets.div_ceil(u64::from(tile))).map_err(too_many)?,
            chunk,
            chunks: u32::try_from(chunks).map_err(too_many)?,
            stage,
            shared: picks + if stage { stamps as u32 } else { 0 },
            threads,
            rows: 1,
        })
    }
}

/// `ROBOCACHE_RESAMPLE_PLAN=TILExTHREADS`: for the lab's ablations.
fn forced_plan() -> Option<(u32, u32)> {
    static PLAN: std::sync::OnceLock<Option<(u32, u32)>> = std::sync::OnceLock::new();
    *PLAN.get_or_init(|| {
        let text = std::env::var("ROBOCACHE_RESAMPLE_PLAN").ok()?;
        let (tile, threads) = text.split_once('x')?;
        let (tile, threads) = (tile.parse().ok()?, threads.parse().ok()?);
        ((1..=1024).contains(&tile) && (32..=THREADS).contains(&threads)).then_some((tile, threads))
    })
}

/// What a kernel found, in the words of the CPU.
pub(crate) fn describe(finding: &Finding) -> Error {
    let Finding { row, index, first, second, third, .. } = *finding;
    let stamp = |bits: u64| match (finding.code >> 8) & 0xff {
        0 => (bits as i64).to_string(),
        1 => f64::from_bits(bits).to_string(),
        _ => f32::from_bits(bits as u32).to_string(),
    };
    match finding.code & 0xff {
        1 => Error::invalid(
            "times",
            format!("row {row} decreases at index {index} ({} after {})", stamp(first), stamp(second)),
        ),
        2 => Error::invalid("times", format!("row {row} holds {} at index {index}", stamp(first))),
        3 => Error::invalid("times", super::coarse_message(row, &stamp(first))),
        4 => {
            let [target, low, high] = [first, second, third].map(stamp);
            Error::invalid("targets", super::outside_message(row, index, &target, &low, &high))
        }
        5 => Error::invalid("lengths", format!("row {row} is {}, expected 0 to {second}", first as i64)),
        _ => Error::invalid("target_lengths", format!("row {row} is {}, expected 0 to {second}", first as i64)),
    }
}

const _: () = assert!(Extrapolate::Error as u32 == 3 && Method::Next as u32 == 3, "the kernels count on this order");

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(batch: usize, samples: usize, targets: usize, width: usize) -> Dims {
        let rows = |count: usize| [(count * width) as isize, width as isize, 1];
        Dims {
            batch,
            samples,
            targets,
            width,
            value_strides: rows(samples),
            time_strides: [samples as isize, 1],
            target_strides: [targets as isize, 1],
            has_batch: true,
            length_stride: 0,
            target_length_stride: 0,
            ranges: super::super::Ranges::Many(Vec::new()),
        }
    }

    fn rows(dims: &Dims) -> u32 {
        let out = [(dims.targets * dims.width) as isize, dims.width as isize, 1];
        rows_of_block(dims, out, 4, Variant { cell: 2, stamp: 2, bytes: 4 }, 132)
    }

    #[test]
    fn short_rows_share_a_block() {
        assert_eq!(rows(&dims(6112, 18, 19, 7)), 23, "two blocks for each multiprocessor");
        assert_eq!(rows(&dims(1 << 20, 18, 19, 7)), 23, "12 KiB of results");
        assert_eq!(rows(&dims(1 << 20, 18, 1, 7)), 64);
        assert_eq!(rows(&dims(1 << 20, 18, 30, 1)), 34, "about 1024 targets");
        assert_eq!(rows(&dims(1 << 20, 1021, 15, 5)), 6, "their stamps take 24 KiB");
        assert_eq!(rows(&dims(64, 18, 19, 7)), 1, "too few rows");
        assert_eq!(rows(&dims(1 << 20, 18, 512, 7)), 1, "long rows");
        assert_eq!(rows(&dims(1 << 20, 1 << 14, 19, 7)), 1, "long rows of stamps");
    }

    #[test]
    fn a_shared_clock_is_brought_once_and_gaps_keep_rows_apart() {
        let mut one = dims(1 << 20, 1021, 15, 5);
        one.time_strides = [0, 1];
        assert_eq!(rows(&one), 40);
        let mut gaps = dims(1 << 20, 18, 19, 7);
        gaps.value_strides[0] += 1;
        assert_eq!(rows(&gaps), 1);
        gaps.value_strides[0] = 0;
        assert_eq!(rows(&gaps), 1);
    }

    #[test]
    fn quotients_by_multiplication_are_exact() {
        assert_eq!(inverse(1), 0);
        for number in [2usize, 3, 7, 19, 255, 1000, 65_535] {
            let by = inverse(number);
            for dividend in (0..1u64 << 16).step_by(if number < 300 { 1 } else { 7 }) {
                let quotient = (dividend * u64::from(by)) >> 32;
                assert_eq!(quotient, dividend / number as u64, "{dividend} / {number}");
            }
        }
    }
}
