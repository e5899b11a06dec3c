//! The arguments of the kernels of `fuse`, and how the columns of its streams are cut into segments.

use std::mem::MaybeUninit;

use crate::cuda::Reporter;
use crate::ops::resample::{Arguments, ColumnRange, Dims as StreamDims, Method, strides};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Result};

use super::variant::Mode;

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
    pub(super) kept: u32,
    pub(super) scale_all: f32,
    pub(super) kind: u8,
    pub(super) method: u8,
    pub(super) dtype: u8,
    pub(super) wide_lengths: u8,
    pub(super) scaled: u8,
    pub(super) padding: [u8; 7],
}

/// Mirrors `SegmentArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentArgs {
    pub(super) first_unit: u32,
    pub(super) units: u32,
    pub(super) start: u32,
    pub(super) column: u32,
    pub(super) stream: u16,
    pub(super) method: u8,
    pub(super) per_unit: u8,
    pub(super) together: u8,
    pub(super) near: u8,
    pub(super) across: u16,
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
    pub(super) missing: u64,
    pub(super) code: u64,
    pub(super) first_row: u64,
    pub(super) reporter: Reporter,
    pub(super) extrapolate: u32,
    pub(super) flags: u32,
    pub(super) tile: u32,
    pub(super) tiles: u32,
    pub(super) chunk: u32,
    pub(super) chunks: u32,
    pub(super) streams: u32,
    pub(super) segments: u32,
    pub(super) units: u32,
    pub(super) out_dtype: u32,
    pub(super) besides_at: u32,
    pub(super) stamps_at: u32,
    pub(super) kept_bytes: u32,
    pub(super) present: u32,
    pub(super) columns_at: u32,
    pub(super) per_unit: u32,
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
pub(super) const WIDE_TARGET_LENGTHS: u32 = 4;
pub(super) const STAGE: u32 = 8;
pub(super) const CUBICS: u32 = 16;
pub(super) const RAGGED: u32 = 32;
pub(super) const KEEP: u32 = 64;
pub(super) const APART: u32 = 128;
pub(super) const COLLECT: u32 = 256;
pub(super) const FOURS: u32 = 512;

pub(super) const MISSING: u8 = 0;
pub(super) const SINGLE: u8 = 1;
pub(super) const LINE: u8 = 2;
pub(super) const RICH: u8 = 3;

/// What a segment of a missing stream is made by.
pub(super) const ZEROS: u8 = 8;
const _: () = assert!(Method::Rot6d as u32 == 7 && Method::Cubic as u32 == 4, "the kernels count on this order");

/// Streams and segments that arguments can hold: few, which are quick to hand over, or all.
pub(super) const FEW: (usize, usize) = (16, 32);
pub(super) const MANY: (usize, usize) = (super::MOST_STREAMS, 96);
/// Targets of a tile, at most.
pub(super) const MOST_TILE: u32 = 256;

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
    kept: 0,
    scale_all: 1.0,
    kind: MISSING,
    method: 0,
    dtype: 0,
    wide_lengths: 0,
    scaled: 0,
    padding: [0; 7],
};
pub(super) const EMPTY_SEGMENT: SegmentArgs = SegmentArgs {
    first_unit: 0,
    units: 0,
    start: 0,
    column: 0,
    stream: 0,
    method: ZEROS,
    per_unit: 1,
    together: 1,
    near: 0,
    across: 1,
};

/// A stream as the kernel takes it.
pub(super) struct Source<'a> {
    /// None where it is missing.
    pub(super) stream: Option<(Arguments<'a>, &'a StreamDims)>,
    pub(super) column: usize,
    pub(super) width: usize,
}

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
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Error::invalid("streams", "too many columns"));
        *to = SegmentArgs {
            first_unit: 0,
            units: narrow(((range.end - range.start) / per_unit) as u64)?,
            start: narrow(range.start as u64)?,
            column: narrow((source.column + range.start) as u64)?,
            stream: index as u16,
            method: if source.stream.is_some() { range.method as u8 } else { ZEROS },
            per_unit: per_unit as u8,
            together: together as u8,
            near: u8::from(near),
            across: 1,
        };
    }
    Ok(())
}

/// Whether the kernel can go from row to row by strides of 32 bits.
fn is_near(source: &Source<'_>, out: &Output) -> bool {
    let fits = |stride: isize, count: usize, size: usize| {
        // A stride along an axis of one is never used.
        count <= 1 || stride.checked_mul(size as isize).is_some_and(|bytes| u32::try_from(bytes).is_ok())
    };
    source.stream.is_some_and(|(op, dims)| {
        fits(dims.value_strides[1], dims.samples, op.values.dtype().size())
            && fits(out.strides[1], out.targets, out.size)
    })
}

/// A stride in numbers; along an axis of one it is never used.
fn used(stride: isize, count: usize) -> usize {
    if count > 1 { stride.unsigned_abs() } else { 0 }
}

/// Flags for a stream whose rows are narrow enough for a thread's registers (whole.cuh).
pub(super) fn whole_rows(source: &Source<'_>) -> Option<u32> {
    let (op, dims) = source.stream?;
    let size = op.values.dtype().size();
    let places = dims.width
        | used(dims.value_strides[0], dims.batch)
        | used(dims.value_strides[1], dims.samples)
        | (op.values.data() as usize / size);
    if size > 4 || dims.value_strides[2] != 1 || dims.ranges.iter().any(|range| range.method == Method::Cubic) {
        return None;
    }
    match (places.trailing_zeros(), dims.width) {
        (2.., 1..=12) => Some(FOURS),
        (1.., 1..=14) => Some(0),
        _ => None,
    }
}

/// Bytes of a row of values, where a block can bring them to shared memory 16 at a time, and how many
/// it would read at most, in sectors of 32 bytes, if it read for each target what that needs.
pub(super) fn row_bytes(source: &Source<'_>) -> Option<(u64, u64)> {
    let Some((op, dims)) = source.stream else { return Some((0, 0)) };
    let size = op.values.dtype().size();
    let [batch, step, column] = dims.value_strides;
    let whole = dims.samples.checked_mul(dims.width)?.checked_mul(size)?;
    let in_one = column == 1 && step == dims.width as isize;
    let aligned = (op.values.data() as usize | whole).is_multiple_of(16)
        && (dims.batch <= 1 || batch.unsigned_abs().wrapping_mul(size).is_multiple_of(16));
    let needed = 2 * dims.targets * (dims.width * size).next_multiple_of(32);
    (in_one && aligned).then_some((whole as u64, needed as u64))
}

/// Bytes of a line of the cache.
pub(super) const CACHE_LINE: u64 = 128;

/// Shared memory for a row of so many bytes: it begins as far into a line as in global memory, where it is
/// aligned to 16.
pub(super) fn room(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.saturating_add(CACHE_LINE - 16).next_multiple_of(CACHE_LINE) }
}

/// How many of `units` units threads write at once, so that few of them are idle in few steps.
pub(super) fn across(units: u32, threads: u32, tile: u32) -> u16 {
    let units = units.max(1);
    let least = units.div_ceil(threads);
    // Beside one for each round, no number of rounds takes fewer: the search ends early, since divisions take long.
    let least_steps = (u64::from(units) * u64::from(tile)).div_ceil(u64::from(threads));
    let (mut best, mut fewest) = (units.div_ceil(least), u64::MAX);
    for rounds in least..least + 8 {
        if u64::from(rounds) + least_steps >= fewest {
            break;
        }
        let across = units.div_ceil(rounds);
        let steps = u64::from(rounds) * u64::from(tile.div_ceil(threads / across) + 1);
        if steps < fewest {
            (best, fewest) = (across, steps);
        }
    }
    best as u16
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
        // Two quaternions, where an access takes them.
        Method::Slerp if mode != Mode::Mixed && possible >= 8 => most,
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
    fn threads_are_spread_over_units_so_that_few_are_idle() {
        // All of a target at once, and as many targets as there is room for.
        assert_eq!(across(128, 256, 50), 128);
        assert_eq!(across(3, 256, 50), 3);
        // More units than half of the threads: rounds of a third leave fewer idle than one round.
        assert_eq!(across(147, 256, 50), 49);
        assert_eq!(across(0, 128, 4), 1);
        for (units, threads, tile) in (1..600).flat_map(|units| {
            [64, 128, 256].into_iter().flat_map(move |threads| [1, 4, 50, 256].map(|tile| (units, threads, tile)))
        }) {
            let found = u32::from(across(units, threads, tile));
            assert!((1..=threads).contains(&found), "{units} units, {threads} threads: {found}");
            let steps = |across: u32| units.div_ceil(across) * (tile.div_ceil(threads / across) + 1);
            let least = units.div_ceil(threads);
            let fewest = (least..least + 8).map(|rounds| steps(units.div_ceil(rounds))).min();
            assert_eq!(Some(steps(found)), fewest, "{units} units, {threads} threads, {tile} targets: {found}");
        }
    }

    #[test]
    fn the_arguments_of_few_streams_fit_every_driver() {
        assert!(size_of::<Args<{ FEW.0 }, { FEW.1 }>>() <= 4096);
    }
}
