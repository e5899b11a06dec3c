//! Gradients of rows of few columns on CUDA, where a block makes a whole row: when that is done, and its arguments.

use super::cuda::{Call, Variant, rule_of};
use super::{Dims, ResampleBackward};
use crate::Result;
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher, Parts, STATIC_SHARED};
use crate::ops::resample::{ColumnRange, Method, flags_of, stamp_number};
use crate::tensor::TensorRef;

/// The kernels, by elements, stamps and the width of accesses.
pub(crate) static NARROW_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("narrow.cu"),
    headers: &[
        ("locate.cuh", include_str!("../resample/locate.cuh")),
        ("rows.cuh", include_str!("../resample/rows.cuh")),
        ("vectors.cuh", include_str!("../resample/vectors.cuh")),
    ],
    variants: || variants().map(Variant::number).collect(),
    entry: |number| format!("rc_resample_backward_narrow_{}", Variant::from_number(number).name()),
    options: |number| {
        let mut options = Variant::from_number(number).options::<Args>();
        options.extend([format!("-DRC_THREADS={THREADS}"), format!("-DRC_BUFFERS={BUFFERS}")]);
        options
    },
};

/// Mirrors `Args` in narrow.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    grad: *const u8,
    times: *const u8,
    targets: *const u8,
    lengths: *const u8,
    target_lengths: *const u8,
    out: *mut u8,
    done: *mut u8,
    grad_stride: i64,
    out_stride: i64,
    time_strides: [i64; 2],
    target_strides: [i64; 2],
    length_stride: i64,
    target_length_stride: i64,
    first_row: i64,
    samples: u32,
    target_count: u32,
    method: u32,
    extrapolate: u32,
    flags: u32,
    bytes: u32,
    vectors: u32,
    tile: u32,
    parts: u32,
    piece: u32,
    starts_at: u32,
    room_at: u32,
    buffers_at: u32,
    buffer: u32,
}

/// Threads of a block, at most, and buffers for gradients.
const THREADS: u32 = 512;
const BUFFERS: u32 = 2;

/// What the copy engine moves.
const UNIT: usize = 16;
/// Bytes of a sample, at most: wider rows are quicker in parts (`rows_cuda`).
const MOST_BYTES: usize = 128;
/// Samples of a row, at least: else blocks have few threads.
const LEAST_SAMPLES: usize = 256;
/// Samples and targets together, at least: else blocks wait longer than they work. Samples of whole units are as quick in
/// parts for longer.
const LEAST: usize = 768;
const LEAST_OF_UNITS: usize = 2000;
/// Bytes of gradients that a buffer holds, at most.
const MOST_BUFFER: u32 = 24 << 10;

/// All but those of doubles.
fn variants() -> impl Iterator<Item = Variant> {
    Variant::all().filter(|variant| variant.cell().2 < 8)
}

/// Vectors of a thread.
fn vectors_of_thread(variant: Variant) -> u32 {
    if variant.bytes == 16 { 1 } else { 4 }
}

/// Whether rows may be made as a whole, as far as shapes tell.
fn is_narrow(op: &ResampleBackward<'_>, dims: &Dims, gpu: &GpuInfo) -> bool {
    let (forward, size) = (&dims.forward, op.grad.dtype().size());
    let bytes = forward.width.saturating_mul(size);
    let least = if bytes.is_multiple_of(UNIT) { LEAST_OF_UNITS } else { LEAST };
    let whole = |count: usize| count.saturating_mul(bytes).is_multiple_of(UNIT);
    size < 8
        && bytes <= MOST_BYTES
        && gpu.capability >= (9, 0)
        // Fewer rows leave multiprocessors without one.
        && forward.batch >= gpu.multiprocessors as usize
        && forward.samples >= LEAST_SAMPLES
        && forward.samples.saturating_add(forward.targets) >= least
        && whole(forward.samples)
        && whole(forward.targets)
        && matches!(&forward.ranges[..], [only] if matches!(only.method, Method::Linear | Method::Angle | Method::Previous))
        && dims.groups.is_none()
}

/// Bytes of memory that a call needs to tell which rows were made.
pub(super) fn workspace(op: &ResampleBackward<'_>, dims: &Dims, gpu: &GpuInfo) -> usize {
    let mut parts = Parts::default();
    if is_narrow(op, dims, gpu) {
        parts.add(dims.forward.batch);
    }
    parts.bytes()
}

/// Queues all rows, if they are narrow; for each of them `done` then tells whether it was made.
pub(super) fn sum_narrow(
    call: &Call<'_>,
    range: &ColumnRange,
    done: *mut u8,
    launcher: &Launcher<'_>,
) -> Result<Option<*const u8>> {
    let gpu = launcher.gpu().info();
    if !is_narrow(call.op, call.dims, gpu) || !is_dense(call) {
        return Ok(None);
    }
    let (forward, size) = (&call.dims.forward, call.op.grad.dtype().size());
    let bytes = forward.width * size;
    let variant = Variant {
        cell: call.cell(),
        stamp: stamp_number(call.op.forward.times.dtype()),
        bytes: 1 << bytes.trailing_zeros().min(UNIT.trailing_zeros()),
    };
    let Some(plan) = Plan::new(forward.samples, forward.targets, bytes as u32, variant, gpu) else {
        return Ok(None);
    };
    let args = args(call, range, &plan, done);
    Grid::in_parts("values", forward.batch as u64, 1, |row, blocks| {
        let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU, as does the workspace; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&NARROW_KERNELS, variant.number(), grid, &Args { first_row: row as i64, ..args }) }
    })?;
    Ok(Some(done))
}

/// Whether samples follow on each other, and rows begin where the copy engine can take them.
fn is_dense(call: &Call<'_>) -> bool {
    let (forward, size) = (&call.dims.forward, call.op.grad.dtype().size());
    let follows = |strides: [isize; 3], count: usize| {
        (forward.width == 1 || strides[2] == 1)
            && (count <= 1 || strides[1] == forward.width as isize)
            && (strides[0].unsigned_abs().wrapping_mul(size)).is_multiple_of(UNIT)
    };
    follows(call.dims.grad_strides, forward.targets)
        && follows(call.out_strides, forward.samples)
        && call.op.grad.data().addr().is_multiple_of(UNIT)
        && call.out.addr().is_multiple_of(UNIT)
}

fn args(call: &Call<'_>, range: &ColumnRange, plan: &Plan, done: *mut u8) -> Args {
    let (forward, op) = (&call.dims.forward, &call.op.forward);
    let size = call.op.grad.dtype().size() as i64;
    let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
    Args {
        grad: call.op.grad.data(),
        times: op.times.data(),
        targets: op.targets.data(),
        lengths: pointer(&op.lengths),
        target_lengths: pointer(&op.target_lengths),
        out: call.out,
        done,
        grad_stride: call.dims.grad_strides[0] as i64 * size,
        out_stride: call.out_strides[0] as i64 * size,
        time_strides: forward.time_strides.map(|stride| stride as i64),
        target_strides: forward.target_strides.map(|stride| stride as i64),
        length_stride: forward.length_stride as i64,
        target_length_stride: forward.target_length_stride as i64,
        first_row: 0,
        samples: forward.samples as u32,
        target_count: forward.targets as u32,
        method: rule_of(range) as u32,
        extrapolate: op.extrapolate as u32,
        // Whatever is to be checked: `rows_cuda` judges what the kernel leaves.
        flags: flags_of(op, false),
        bytes: plan.bytes,
        vectors: plan.vectors,
        tile: plan.tile,
        parts: plan.parts,
        piece: plan.piece,
        starts_at: plan.starts_at,
        room_at: plan.room_at,
        buffers_at: plan.buffers_at,
        buffer: plan.buffer,
    }
}

/// How a row is cut, and where things lie in shared memory.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    bytes: u32,
    vectors: u32,
    tile: u32,
    parts: u32,
    piece: u32,
    starts_at: u32,
    room_at: u32,
    buffers_at: u32,
    buffer: u32,
    threads: u32,
    shared: u32,
}

impl Plan {
    /// `None` where a multiprocessor has no room for two blocks.
    fn new(samples: usize, targets: usize, bytes: u32, variant: Variant, gpu: &GpuInfo) -> Option<Self> {
        let (samples, targets) = (u32::try_from(samples).ok()?, u32::try_from(targets).ok()?);
        let most = (gpu.shared_memory / 2).saturating_sub(STATIC_SHARED);
        // Ahead of everything that is multiplied.
        if samples > most / 4 || targets > most / 4 {
            return None;
        }
        let vectors = bytes / u32::from(variant.bytes);
        let parts = vectors.div_ceil(vectors_of_thread(variant));
        let unit = UNIT as u32;
        // Whole units, whatever a sample has.
        let tile = (THREADS / parts / unit * unit).min(samples.next_multiple_of(unit));
        // A quarter more targets than a tile has on average.
        let average = (u64::from(tile) * u64::from(targets)).div_ceil(u64::from(samples)) as u32;
        let piece = (average + average / 4 + 32).min(targets.max(1)).min(MOST_BUFFER / bytes);
        let buffer = (piece * bytes + unit).next_multiple_of(unit);
        let starts_at = (targets * 4).next_multiple_of(unit);
        let room_at = starts_at + ((samples + 1) * 4).next_multiple_of(unit);
        // Stamps, with room for two more; then the sums of two tiles.
        let stamp = variant.stamp().2;
        let buffers_at = room_at + ((samples + 2) * stamp).max(2 * tile * bytes).next_multiple_of(unit);
        // Targets, with room for one more; then gradients.
        let shared = buffers_at + ((targets + 1) * stamp).next_multiple_of(unit).max(BUFFERS * buffer);
        let threads = (tile * parts).next_multiple_of(32);
        (shared <= most).then_some(Self {
            bytes,
            vectors,
            tile,
            parts,
            piece,
            starts_at,
            room_at,
            buffers_at,
            buffer,
            threads,
            shared,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::ops::resample::Resample;
    use crate::tensor::{DType, Tensor};

    fn h200() -> GpuInfo {
        GpuInfo::imagined(132, 232_448)
    }

    #[test]
    fn variants_keep_their_numbers() {
        for variant in variants() {
            assert_eq!(Variant::from_number(variant.number()), variant);
        }
        assert_eq!(variants().count(), 33);
    }

    #[test]
    fn plans_have_room_for_what_kernels_put_there() {
        for variant in variants() {
            for bytes in (u32::from(variant.bytes)..=MOST_BYTES as u32).step_by(usize::from(variant.bytes)) {
                for (samples, targets) in [(256, 0), (257, 9001), (4096, 4096), (5001, 101), (1001, 7003)] {
                    let Some(plan) = Plan::new(samples, targets, bytes, variant, &h200()) else { continue };
                    let (samples, targets, stamp) = (samples as u32, targets as u32, variant.stamp().2);
                    let context = format!("{variant:?} {samples} {targets} {plan:?}");
                    assert!(plan.threads <= THREADS && plan.tile.is_multiple_of(16) && plan.tile > 0, "{context}");
                    assert!(plan.tile * plan.parts <= plan.threads, "{context}");
                    assert!(plan.parts * vectors_of_thread(variant) >= plan.vectors, "{context}");
                    assert!(plan.piece > 0 && 30 + plan.piece * bytes < plan.buffer + 16, "{context}");
                    assert!([plan.starts_at, plan.room_at, plan.buffers_at].iter().all(|at| at % 16 == 0), "{context}");
                    assert!(plan.starts_at >= 4 * targets, "{context}");
                    assert!(plan.room_at - plan.starts_at >= 4 * (samples + 1), "{context}");
                    let room = plan.buffers_at - plan.room_at;
                    assert!(room >= (samples + 2) * stamp && room >= 2 * plan.tile * bytes, "{context}");
                    let buffers = plan.shared - plan.buffers_at;
                    assert!(buffers >= (targets + 1) * stamp && buffers >= BUFFERS * plan.buffer, "{context}");
                    assert!(2 * (plan.shared + STATIC_SHARED) <= h200().shared_memory, "{context}");
                }
            }
        }
    }

    #[test]
    fn long_rows_of_few_columns_in_large_batches_are_made_as_a_whole() {
        let stamps = |rows: usize, count: usize| Tensor::zeros(&[rows, count], DType::F32).unwrap();
        let asks = |batch: usize, samples: usize, targets: usize, width: usize, dtype: DType, gpu: &GpuInfo| {
            let times = stamps(batch, samples);
            let wanted = stamps(batch, targets);
            let values = Tensor::zeros(&[batch, samples, width], dtype).unwrap();
            let grad = Tensor::zeros(&[batch, targets, width], dtype).unwrap();
            let forward = Resample::new(values.view(), times.view(), wanted.view());
            let op = ResampleBackward { forward, grad: grad.view() };
            let dims = op.check().unwrap();
            assert_eq!(is_narrow(&op, &dims, gpu), workspace(&op, &dims, gpu) >= batch);
            is_narrow(&op, &dims, gpu)
        };
        let gpu = GpuInfo::imagined(2, 232_448);
        assert!(asks(2, 512, 512, 14, DType::F32, &gpu));
        assert!(asks(2, 1024, 1024, 64, DType::F16, &gpu));
        assert!(!asks(1, 512, 512, 14, DType::F32, &gpu), "a row for each multiprocessor");
        assert!(!asks(2, 128, 1024, 14, DType::F32, &gpu), "few samples");
        assert!(!asks(2, 512, 512, 16, DType::F32, &gpu), "whole units are as quick in parts");
        assert!(!asks(2, 511, 513, 14, DType::F32, &gpu), "rows that are no whole units");
        assert!(!asks(2, 1024, 1024, 33, DType::F32, &gpu), "many columns");
        assert!(!asks(2, 512, 512, 14, DType::F64, &gpu), "doubles");
        assert!(!asks(2, 512, 512, 14, DType::F32, &GpuInfo { capability: (8, 9), ..gpu }), "no copy engine");
    }

    #[test]
    fn rows_that_are_too_long_are_left_to_others() {
        let variant = Variant { cell: 2, stamp: 2, bytes: 8 };
        assert!(Plan::new(4096, 4096, 56, variant, &h200()).is_some());
        assert!(Plan::new(20_000, 4096, 56, variant, &h200()).is_none());
        assert!(Plan::new(4096, usize::MAX, 56, variant, &h200()).is_none());
    }
}
