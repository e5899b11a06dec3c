//! The arguments of the kernels of `align`, and how the columns of its streams are cut into segments.

use std::mem::MaybeUninit;

use crate::cuda::Reporter;
use crate::tensor::{DType, TensorRef};
use crate::{Error, Result};

use super::plan::{MOST_CHUNK, MOST_ROWS, MOST_SAMPLES, MOST_TARGETS, MOST_UNITS, TOO_WIDE};
use super::variant::Mode;
use super::{ColumnRange, MOST_STREAMS, Method, Source, strides};

/// Mirrors `StreamArgs` in streams.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct StreamArgs {
    pub(super) values: *const u8,
    pub(super) times: *const u8,
    pub(super) lengths: *const u8,
    pub(super) scale: *const u8,
    pub(super) value_strides: [i64; 3],
    pub(super) time_strides: [i64; 2],
    pub(super) length_stride: i64,
    pub(super) scale_stride: i64,
    pub(super) samples: i64,
    pub(super) max_gap: u64,
    pub(super) staged: u32,
    pub(super) clock: u32,
    pub(super) row_step: u32,
    pub(super) scale_all: f32,
    pub(super) kind: u8,
    pub(super) method: u8,
    pub(super) dtype: u8,
    pub(super) wide_lengths: u8,
    pub(super) scaled: u8,
    pub(super) padding: [u8; 3],
}

/// Mirrors `SegmentArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentArgs {
    pub(super) first_unit: u32,
    pub(super) units: u32,
    pub(super) start: u32,
    pub(super) column: u32,
    pub(super) inverse: u32,
    pub(super) stream: u16,
    pub(super) method: u8,
    pub(super) per_unit: u8,
    pub(super) together: u8,
    pub(super) near: u8,
    pub(super) padding: u16,
}

/// What comes before the streams in `Args`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) targets: *const u8,
    pub(super) target_lengths: *const u8,
    pub(super) out: *mut u8,
    pub(super) valid: *mut u8,
    pub(super) age: *mut u8,
    pub(super) target_strides: [i64; 2],
    pub(super) out_strides: [i64; 3],
    pub(super) valid_strides: [i64; 3],
    pub(super) age_strides: [i64; 3],
    pub(super) target_length_stride: i64,
    pub(super) target_count: i64,
    pub(super) batch: i64,
    pub(super) missing: u64,
    pub(super) code: u64,
    pub(super) first_row: u64,
    pub(super) reporter: Reporter,
    pub(super) extrapolate: u32,
    pub(super) flags: u32,
    pub(super) rows: u32,
    pub(super) tile: u32,
    pub(super) tiles: u32,
    pub(super) chunk: u32,
    pub(super) chunks: u32,
    pub(super) streams: u32,
    pub(super) segments: u32,
    pub(super) units: u32,
    pub(super) out_dtype: u32,
    pub(super) besides_at: u32,
    pub(super) lengths_at: u32,
    pub(super) stamps_at: u32,
    pub(super) present: u32,
}

impl Head {
    // SAFETY: addresses and whole numbers, those of `Reporter` included, which may all be 0.
    pub(super) const EMPTY: Self = unsafe { std::mem::zeroed() };
}

/// Mirrors `Args`; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Args<const STREAMS: usize, const SEGMENTS: usize> {
    pub(super) head: Head,
    pub(super) stream: [StreamArgs; STREAMS],
    pub(super) segment: [SegmentArgs; SEGMENTS],
}

impl<const STREAMS: usize, const SEGMENTS: usize> Args<STREAMS, SEGMENTS> {
    /// The parts that a call uses, empty; what comes behind them is not written.
    pub(super) fn begin(
        args: &mut MaybeUninit<Self>,
        streams: usize,
        segments: usize,
    ) -> (&mut Head, &mut [StreamArgs], &mut [SegmentArgs]) {
        let (streams, segments, args) = (streams.min(STREAMS), segments.min(SEGMENTS), args.as_mut_ptr());
        // SAFETY: inside of the arrays, in three parts that do not overlap, each written before it is seen.
        unsafe {
            (&raw mut (*args).head).write(Head::EMPTY);
            let stream = (&raw mut (*args).stream).cast::<StreamArgs>();
            (0..streams).for_each(|index| stream.add(index).write(EMPTY_STREAM));
            let segment = (&raw mut (*args).segment).cast::<SegmentArgs>();
            (0..segments).for_each(|index| segment.add(index).write(EMPTY_SEGMENT));
            (
                &mut (*args).head,
                std::slice::from_raw_parts_mut(stream, streams),
                std::slice::from_raw_parts_mut(segment, segments),
            )
        }
    }
}

pub(super) const CHECK: u32 = 1;
pub(super) const WIDE_LENGTHS: u32 = 2;
pub(super) const WIDE_TARGET_LENGTHS: u32 = 4;
pub(in crate::ops) const STAGE: u32 = 8;
pub(super) const CUBICS: u32 = 16;
pub(super) const RAGGED: u32 = 32;
pub(super) const COLLECT: u32 = 64;
pub(super) const FOURS: u32 = 128;

pub(super) const MISSING: u8 = 0;
pub(super) const SINGLE: u8 = 1;
pub(super) const LINE: u8 = 2;
pub(super) const RICH: u8 = 3;

/// What a segment of a missing stream is made by.
pub(super) const ZEROS: u8 = 8;
const _: () = assert!(Method::Rot6d as u32 == 7 && Method::Cubic as u32 == 4, "the kernels count on this order");

/// Streams and segments that arguments can hold: the fewer, the quicker they are handed over.
pub(super) const ONE: (usize, usize) = (1, 1);
pub(super) const FEW: (usize, usize) = (16, 32);
pub(super) const MANY: (usize, usize) = (MOST_STREAMS, 96);
pub(super) const EMPTY_STREAM: StreamArgs = StreamArgs {
    values: std::ptr::null(),
    times: std::ptr::null(),
    lengths: std::ptr::null(),
    scale: std::ptr::null(),
    value_strides: [0; 3],
    time_strides: [0; 2],
    length_stride: 0,
    scale_stride: 0,
    samples: 0,
    max_gap: 0,
    staged: 0,
    clock: 0,
    row_step: 0,
    scale_all: 1.0,
    kind: MISSING,
    method: 0,
    dtype: 0,
    wide_lengths: 0,
    scaled: 0,
    padding: [0; 3],
};
pub(super) const EMPTY_SEGMENT: SegmentArgs = SegmentArgs {
    first_unit: 0,
    units: 0,
    start: 0,
    column: 0,
    inverse: 0,
    stream: 0,
    method: ZEROS,
    per_unit: 1,
    together: 1,
    near: 0,
    padding: 0,
};

impl Source<'_> {
    /// How its columns are made: ranges, where they are not all of one plain method.
    pub(super) fn kind(&self) -> u8 {
        match self.stream.map(|(op, _)| op.method.plain()) {
            None => MISSING,
            Some(Some(Method::Linear)) => LINE,
            Some(Some(_)) => SINGLE,
            Some(None) => RICH,
        }
    }

    pub(super) fn segments(&self) -> usize {
        if self.kind() == RICH { self.ranges().len() } else { 1 }
    }

    fn ranges(&self) -> &[ColumnRange] {
        self.stream.map_or(&[], |(_, dims)| &dims.ranges)
    }
}

/// What the output is like, for the accesses to it.
pub(super) struct Output {
    pub(super) address: usize,
    pub(super) size: usize,
    pub(super) strides: [isize; 3],
    pub(super) batch: usize,
    pub(super) targets: usize,
}

impl Output {
    pub(super) fn new(out: &TensorRef<'_>, dtype: DType, batch: usize, targets: usize) -> Self {
        Self { address: out.data() as usize, size: dtype.size(), strides: strides::<3>(out), batch, targets }
    }
}

/// Writes the segments of a stream to `to`; the plan numbers their units.
pub(super) fn cut(index: usize, source: &Source<'_>, mode: Mode, out: &Output, to: &mut [SegmentArgs]) -> Result<()> {
    let method = source.stream.and_then(|(op, _)| op.method.plain()).unwrap_or(Method::Linear);
    let only = [ColumnRange { method, start: 0, end: source.width }];
    let ranges = if source.kind() == RICH { source.ranges() } else { &only };
    let near = is_near(source, out);
    for (range, to) in ranges.iter().zip(to) {
        let (per_unit, together) = unit(range, source, mode, out, near);
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Error::invalid("values", TOO_WIDE));
        *to = SegmentArgs {
            first_unit: 0,
            units: narrow(((range.end - range.start) / per_unit) as u64)?,
            start: narrow(range.start as u64)?,
            column: narrow((source.column + range.start) as u64)?,
            inverse: 0,
            stream: index as u16,
            method: if source.stream.is_some() { range.method as u8 } else { ZEROS },
            per_unit: per_unit as u8,
            together: together as u8,
            near: u8::from(near),
            padding: 0,
        };
    }
    Ok(())
}

/// Whether 31 bits tell how far the samples and the targets of a block lie from its first ones, in bytes.
fn is_near(source: &Source<'_>, out: &Output) -> bool {
    // A stride along an axis of one is never used.
    let span = |axes: [(isize, usize); 3], size: usize| {
        let parts =
            axes.map(|(stride, count)| if count > 1 { stride.checked_mul(count as isize - 1) } else { Some(0) });
        let sum = parts.into_iter().try_fold(1, |sum: isize, part| sum.checked_add(part.filter(|part| *part >= 0)?));
        sum.and_then(|sum| sum.checked_mul(size as isize)).is_some_and(|bytes| i32::try_from(bytes).is_ok())
    };
    source.stream.is_some_and(|(op, dims)| {
        // Only rows share a block that are short, and have few units, of 16 bytes at most.
        let few = |most: u64, of_each: usize| most as usize / of_each.max(1);
        let units = out.targets.saturating_mul(source.width * out.size / 16);
        let rows = few(MOST_ROWS, 1).min(few(MOST_SAMPLES, dims.samples)).min(few(MOST_UNITS, units));
        let rows = rows.clamp(1, dims.batch.max(1));
        let [row, sample, column] = dims.value_strides;
        let targets = out.targets.saturating_mul(rows).min(MOST_TARGETS as usize);
        span([(row, rows), (sample, dims.samples), (column, dims.width)], op.values.dtype().size())
            && span([(0, 0), (out.strides[1], targets), (out.strides[2], source.width)], out.size)
    })
}

/// Whether a sample's columns lie side by side, and all that a block writes.
pub(super) fn is_dense(source: &Source<'_>, out: &Output) -> bool {
    source.stream.is_some_and(|(_, dims)| {
        let side_by_side = dims.width <= 1 || (dims.value_strides[2] == 1 && out.strides[2] == 1);
        let one_row = out.strides[1] == dims.width as isize || out.targets * out.batch == 1;
        side_by_side && one_row && dims.width <= MOST_CHUNK as usize && is_near(source, out)
    })
}

/// How many samples lie between rows of a stream, if they lie so that several are one long row.
pub(super) fn row_step(source: &Source<'_>) -> Option<u32> {
    let Some((_, dims)) = source.stream else { return Some(0) };
    let [row, sample, _] = dims.value_strides;
    match (row, sample) {
        (0, _) => Some(0),
        (1.., 1..) if row % sample == 0 => u32::try_from(row / sample).ok(),
        _ => None,
    }
}

/// A stride in numbers; along an axis of one it is never used.
fn used(stride: isize, count: usize) -> usize {
    if count > 1 { stride.unsigned_abs() } else { 0 }
}

/// Flags for a stream whose rows are narrow enough for a thread's registers (whole.cuh), and results that lie so that
/// it can write as it reads.
pub(super) fn whole_rows(source: &Source<'_>, out: &Output) -> Option<u32> {
    let (op, dims) = source.stream?;
    let size = op.values.dtype().size();
    let places = dims.width
        | used(dims.value_strides[0], dims.batch)
        | used(dims.value_strides[1], dims.samples)
        | used(out.strides[0], out.batch)
        | ((op.values.data() as usize | out.address) / size);
    if size > 4 || dims.value_strides[2] != 1 || dims.ranges.iter().any(|range| range.method == Method::Cubic) {
        return None;
    }
    match (places.trailing_zeros(), dims.width) {
        (2.., 1..=12) => Some(FOURS),
        (1.., 1..=14) => Some(0),
        _ => None,
    }
}

/// What a product with brings the quotient of twice a number by `number` to its high half.
pub(super) fn inverse(number: u32) -> u32 {
    (u32::MAX >> 1) / number.max(1) + 1
}

/// Numbers of a unit, and how many of them one access takes: at most 16 bytes on both sides.
fn unit(range: &ColumnRange, source: &Source<'_>, mode: Mode, out: &Output, near: bool) -> (usize, usize) {
    let Some((op, dims)) = source.stream else { return (1, 1) };
    let size = op.values.dtype().size();
    let most = 16 / size.max(out.size);
    let width = range.end - range.start;
    let places = range.start
        | width
        | used(dims.value_strides[0], dims.batch)
        | used(dims.value_strides[1], dims.samples)
        | used(out.strides[0], out.batch)
        | used(out.strides[1], out.targets);
    let alignment = |place: usize| 1usize << place.trailing_zeros().min(4);
    let out_address = out.address.wrapping_add(source.column * out.size);
    let side_by_side = width <= 1 || (dims.value_strides[2] == 1 && out.strides[2] == 1);
    let possible =
        alignment(places).min(alignment(op.values.data() as usize / size)).min(alignment(out_address / out.size));
    let possible = if side_by_side && near { possible } else { 1 };
    let wanted = match range.method {
        // Doubles beside other types go one by one.
        _ if mode == Mode::Mixed && (!op.is_float() || size.max(out.size) == 8) => 1,
        Method::Rot6d => most.min(2),
        Method::Slerp | Method::Cubic | Method::Angle => most.min(4),
        _ if mode == Mode::Mixed => 4,
        _ => most,
    };
    match range.method {
        Method::Slerp => (wanted.max(4), if possible >= wanted { wanted } else { 1 }),
        Method::Rot6d => (6, if possible >= wanted { wanted } else { 1 }),
        Method::Linear | Method::Nearest | Method::Previous | Method::Next if mode != Mode::Mixed => {
            (possible.min(wanted), possible.min(wanted))
        }
        _ if possible >= wanted => (wanted, wanted),
        _ => (1, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_by_multiplication_are_exact() {
        for number in [1, 2, 3, 7, 19, 255, 1000, 2047, 2048] {
            for dividend in (0..256 * number).step_by(if number < 300 { 1 } else { 7 }) {
                let quotient = (u64::from(2 * dividend) * u64::from(inverse(number))) >> 32;
                assert_eq!(quotient, u64::from(dividend / number), "{dividend} / {number}");
            }
        }
    }

    #[test]
    fn the_arguments_of_few_streams_fit_every_driver() {
        assert!(size_of::<Args<{ FEW.0 }, { FEW.1 }>>() <= 4096);
    }
}
