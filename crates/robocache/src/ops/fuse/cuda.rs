//! `fuse` on CUDA: the choice of kernel and tile, and its arguments. `resample` comes here too for
//! what its own kernel does not know.

use super::plan::Plan;
use super::variant::{Mode, Variant};
use super::{Dims, Fuse};
use crate::cuda::{Finding, Grid, KernelFamily, Launcher, Reporter};
use crate::ops::resample::{ColumnRange, Dims as StreamDims, Extrapolate, Method, Resample, Scale, strides};
use crate::ops::{FUSE, RESAMPLE};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result, ensure};

/// The kernels of `fuse`.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("fuse.cu"),
    headers: &[
        ("locate.cuh", include_str!("../resample/locate.cuh")),
        ("rows.cuh", include_str!("../resample/rows.cuh")),
        ("vectors.cuh", include_str!("../resample/vectors.cuh")),
        ("blend.cuh", include_str!("blend.cuh")),
        ("streams.cuh", include_str!("streams.cuh")),
        ("units.cuh", include_str!("units.cuh")),
    ],
    variants: || Variant::all().into_iter().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// Mirrors `StreamArgs` in streams.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct StreamArgs {
    values: *const u8,
    times: *const u8,
    lengths: *const u8,
    scale: *const u8,
    value_strides: [i64; 3],
    time_strides: [i64; 2],
    length_stride: i64,
    scale_stride: i64,
    samples: i64,
    max_gap: u64,
    first_unit: u32,
    column: u32,
    staged: u32,
    first_range: u32,
    ranges: u32,
    scale_all: f32,
    kind: u8,
    method: u8,
    dtype: u8,
    numbers: u8,
    wide_lengths: u8,
    scaled: u8,
    padding: [u8; 2],
}

/// Mirrors `RangeArgs`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RangeArgs {
    start: u32,
    end: u32,
    factors: u32,
    method: u16,
    stream: u16,
}

/// Mirrors `Args`; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Args<const STREAMS: usize, const RANGES: usize> {
    targets: *const u8,
    target_lengths: *const u8,
    out: *mut u8,
    valid: *mut u8,
    age: *mut u8,
    target_strides: [i64; 2],
    out_strides: [i64; 3],
    valid_strides: [i64; 3],
    age_strides: [i64; 3],
    target_length_stride: i64,
    target_count: i64,
    missing: u64,
    code: u64,
    first_row: u64,
    reporter: Reporter,
    extrapolate: u32,
    flags: u32,
    tile: u32,
    tiles: u32,
    chunk: u32,
    chunks: u32,
    streams: u32,
    units: u32,
    across: u32,
    out_dtype: u32,
    factors: u32,
    besides_at: u32,
    factors_at: u32,
    stamps_at: u32,
    stamps: u32,
    padding: u32,
    stream: [StreamArgs; STREAMS],
    range: [RangeArgs; RANGES],
}

const CHECK: u32 = 1;
const WIDE_TARGET_LENGTHS: u32 = 4;
const STAGE: u32 = 8;
const CUBICS: u32 = 16;
const NO_FACTORS: u32 = u32::MAX;

const MISSING: u8 = 0;
const SINGLE: u8 = 1;
const LINE: u8 = 2;
const RICH: u8 = 3;

/// Streams and ranges that arguments can hold: few, which are quick to hand over, or all.
pub(super) const FEW: (usize, usize) = (16, 16);
pub(super) const MANY: (usize, usize) = (super::MOST_STREAMS, 64);
/// What every driver takes as arguments; drivers of CUDA 12.1 and newer take more.
const SMALL_ARGUMENTS: usize = 4096;
const LARGE_ARGUMENTS_SINCE: i32 = 12_010;

const MOST_BLOCKS: u64 = 0x7fff_ffff;

/// A stream as the kernel takes it; none where it is missing.
struct Source<'a> {
    stream: Option<(&'a Resample<'a>, &'a StreamDims)>,
    column: usize,
    width: usize,
}

/// What all streams share.
struct Common<'a> {
    op: u32,
    batch: usize,
    target_count: usize,
    targets: &'a TensorRef<'a>,
    target_lengths: Option<&'a TensorRef<'a>>,
    extrapolate: Extrapolate,
    check: bool,
    dtype: DType,
    valid: (*mut u8, [isize; 3]),
    age: (*mut u8, [isize; 3]),
}

pub(super) fn fuse(op: &Fuse<'_>, dims: &Dims<'_>, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
    if op.is_empty(dims) {
        return Ok(());
    }
    let (valid_place, age_place) = op.output_places();
    let common = Common {
        op: FUSE,
        batch: dims.batch,
        target_count: dims.targets,
        targets: &op.targets,
        target_lengths: op.target_lengths.as_ref(),
        extrapolate: op.extrapolate,
        check: op.check,
        dtype: dims.dtype,
        valid: super::per_stream(out, valid_place),
        age: super::per_stream(out, age_place),
    };
    let source = |part: &'_ super::Part<'_>| (part.column, part.width);
    let sources = dims.parts.iter().map(|part| {
        let (column, width) = source(part);
        Source { stream: part.stream.as_ref().map(|(op, dims)| (op, dims)), column, width }
    });
    launch(&sources.collect::<Vec<_>>(), &common, out, launcher)
}

/// `resample` with methods, columns or dtypes that its own kernel does not know.
pub(in crate::ops) fn align(
    op: &Resample<'_>,
    dims: &StreamDims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let (valid, [batch, step]) = crate::ops::resample::valid_output(out);
    let common = Common {
        op: RESAMPLE,
        batch: dims.batch,
        target_count: dims.targets,
        targets: &op.targets,
        target_lengths: op.target_lengths.as_ref(),
        extrapolate: op.extrapolate,
        check: op.check,
        dtype: op.result_dtype(),
        valid: (valid, [batch, step, 0]),
        age: (std::ptr::null_mut(), [0; 3]),
    };
    launch(&[Source { stream: Some((op, dims)), column: 0, width: dims.width }], &common, out, launcher)
}

fn launch(
    sources: &[Source<'_>],
    common: &Common<'_>,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let mode = sources.iter().map(|source| mode_of(source, common.dtype)).max_by_key(|&mode| mode as u8);
    let ranges: usize =
        sources.iter().filter(|source| kind_of(source) == RICH).map(|source| source.ranges().len()).sum();
    ensure!(ranges <= MANY.1, "method", "expected at most {} column ranges in one call, got {ranges}", MANY.1);
    let many = sources.len() > FEW.0 || ranges > FEW.1;
    let variant = Variant::new(mode.unwrap_or(Mode::Lean), common.dtype, common.targets.dtype(), many);
    if variant.mode().0 == Mode::Mixed {
        launch_with::<{ MANY.0 }, { MANY.1 }>(variant, sources, common, output, launcher)
    } else {
        launch_with::<{ FEW.0 }, { FEW.1 }>(variant, sources, common, output, launcher)
    }
}

impl Source<'_> {
    fn ranges(&self) -> &[ColumnRange] {
        self.stream.map_or(&[], |(_, dims)| &dims.ranges)
    }
}

fn kind_of(source: &Source<'_>) -> u8 {
    match source.stream.map(|(op, _)| op.method.plain()) {
        None => MISSING,
        Some(Some(Method::Linear)) => LINE,
        Some(Some(_)) => SINGLE,
        Some(None) => RICH,
    }
}

/// The place of a dtype in the list that the kernels share.
fn dtype_number(dtype: DType) -> u32 {
    DType::ALL.iter().position(|&known| known == dtype).unwrap_or(0) as u32
}

fn mode_of(source: &Source<'_>, out: DType) -> Mode {
    let Some((op, _)) = source.stream else { return Mode::Lean };
    let rich = kind_of(source) == RICH;
    if op.values.dtype() != out || op.is_stored() || (rich && !out.is_float()) {
        Mode::Mixed
    } else if rich {
        Mode::Rich
    } else {
        Mode::Lean
    }
}

/// Numbers per unit: as many as one access of at most 16 bytes can take on both sides.
fn numbers_per_unit(source: &Source<'_>, mode: Mode, common: &Common<'_>, out: &TensorRef<'_>) -> usize {
    let Some((op, dims)) = source.stream else { return 1 };
    let (size, out_size) = (op.values.dtype().size(), common.dtype.size());
    let out_strides = strides::<3>(out);
    let side_by_side = dims.width <= 1 || (dims.value_strides[2] == 1 && out_strides[2] == 1);
    let fits = |stride: isize, size: usize| i32::try_from(stride.unsigned_abs().saturating_mul(size)).is_ok();
    let near = fits(dims.value_strides[1], size) && fits(out_strides[1], out_size);
    if !side_by_side || !near || (mode == Mode::Mixed && (!op.is_float() || size == 8 || out_size == 8)) {
        return 1;
    }
    // In numbers; a stride along an axis of one is never used.
    let used = |stride: isize, count: usize| if count > 1 { stride.unsigned_abs() } else { 0 };
    let places = dims.width
        | used(dims.value_strides[0], dims.batch)
        | used(dims.value_strides[1], dims.samples)
        | used(out_strides[0], common.batch)
        | used(out_strides[1], common.target_count);
    let aligned = |address: usize, size: usize| 1usize << (address / size).trailing_zeros().min(4);
    let out_address = (out.data() as usize).wrapping_add(source.column * out_size);
    let numbers = aligned(places, 1).min(aligned(op.values.data() as usize, size)).min(aligned(out_address, out_size));
    let most = 16 / size.max(out_size);
    match (mode, kind_of(source)) {
        (Mode::Mixed, _) => {
            if numbers >= 4 {
                4
            } else {
                1
            }
        }
        (_, RICH) => {
            if numbers >= most {
                most
            } else {
                1
            }
        }
        _ => numbers.min(most),
    }
}

fn launch_with<const STREAMS: usize, const RANGES: usize>(
    variant: Variant,
    sources: &[Source<'_>],
    common: &Common<'_>,
    output: &mut crate::tensor::TensorMut<'_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let driver = launcher.driver_version();
    if size_of::<Args<STREAMS, RANGES>>() > SMALL_ARGUMENTS && driver < LARGE_ARGUMENTS_SINCE {
        let message = format!("more than {} streams, or streams of several dtypes, need a driver of CUDA 12.1", FEW.0);
        return Err(Error::unsupported("streams", message));
    }
    let mode = variant.mode().0;
    let pointer = |tensor: Option<&TensorRef<'_>>| tensor.map_or(std::ptr::null(), TensorRef::data);
    let is_wide = |tensor: Option<&TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let in_bytes = |strides: [isize; 3], size: usize| strides.map(|stride| stride as i64 * size as i64);
    let wide = |strides: [isize; 3]| strides.map(|stride| stride as i64);
    let mut stream = [EMPTY_STREAM; STREAMS];
    let mut range = [EMPTY_RANGE; RANGES];
    let (mut units, mut stamps, mut factors, mut used, mut cubics) = (0u64, 0u64, 0u64, 0usize, false);
    for (index, (source, args)) in sources.iter().zip(&mut stream).enumerate() {
        let numbers = numbers_per_unit(source, mode, common, output.view());
        let narrow =
            |number: u64| u32::try_from(number).map_err(|_| Error::invalid("streams", "too many columns or samples"));
        *args = StreamArgs {
            first_unit: narrow(units)?,
            column: narrow(source.column as u64)?,
            staged: narrow(stamps.min(u64::from(u32::MAX)))?,
            first_range: used as u32,
            kind: kind_of(source),
            numbers: numbers as u8,
            ..EMPTY_STREAM
        };
        units += (source.width / numbers) as u64;
        let Some((op, dims)) = source.stream else { continue };
        ensure!(
            dims.samples <= i32::MAX as usize,
            "times",
            "expected at most 2^31 samples in a row, got {}",
            dims.samples
        );
        let max_gap = op.max_gap.unwrap_or(f64::INFINITY);
        let dtype = op.values.dtype();
        args.values = op.values.data();
        args.times = op.times.data();
        args.lengths = pointer(op.lengths.as_ref());
        args.value_strides = in_bytes(dims.value_strides, dtype.size());
        args.time_strides = dims.time_strides.map(|stride| stride as i64);
        args.length_stride = dims.length_stride as i64;
        args.samples = dims.samples as i64;
        args.max_gap = if variant.stamp == 0 { (max_gap * 1e9).round() as u64 } else { max_gap.to_bits() };
        args.method = op.method.plain().unwrap_or(Method::Linear) as u8;
        args.dtype = dtype_number(dtype) as u8;
        args.wide_lengths = u8::from(is_wide(op.lengths.as_ref()));
        match &op.scale {
            // What is only stored is scaled, by 1 where nothing else is said.
            None => args.scaled = u8::from(op.is_stored()),
            Some(Scale::One(scale)) => (args.scaled, args.scale_all) = (1, *scale),
            Some(Scale::Columns(scale)) => {
                args.scaled = 1;
                args.scale = scale.data();
                args.scale_stride = if scale.layout().count() > 1 { strides::<1>(scale)[0] as i64 } else { 0 };
            }
        }
        // From multiples of 16 bytes, for the loops that look at several at once.
        stamps += (dims.samples as u64).next_multiple_of(4);
        if args.kind != RICH {
            continue;
        }
        args.ranges = dims.ranges.len() as u32;
        for (own, to) in dims.ranges.iter().zip(&mut range[used..]) {
            let (start, end, method) = (own.start as u32, own.end as u32, own.method as u16);
            // Quaternions that are whole units need no factors beside them.
            let whole = own.method == Method::Slerp
                && numbers.is_multiple_of(4)
                && own.start.is_multiple_of(numbers)
                && own.end.is_multiple_of(numbers);
            let place = if whole { NO_FACTORS } else { narrow(factors)? };
            *to = RangeArgs { start, end, factors: place, method, stream: index as u16 };
            factors += match own.method {
                _ if whole => 0,
                Method::Slerp => (own.end - own.start) as u64 / 4 * 2,
                Method::Rot6d => (own.end - own.start) as u64 / 6 * 3,
                _ => 0,
            };
            cubics |= own.method == Method::Cubic;
        }
        used += dims.ranges.len();
    }
    let size = (common.batch as u64, common.target_count as u64);
    let plan = Plan::new(variant, sources.len(), units, stamps, factors, cubics, size, launcher.gpu().info())?;
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    let mut args = Args::<STREAMS, RANGES> {
        targets: common.targets.data(),
        target_lengths: pointer(common.target_lengths),
        out_strides: in_bytes(strides(output.view()), common.dtype.size()),
        out: output.data_mut(),
        valid: common.valid.0,
        age: common.age.0,
        target_strides: strides::<2>(common.targets).map(|stride| stride as i64),
        valid_strides: wide(common.valid.1),
        age_strides: wide(common.age.1),
        target_length_stride: common.target_lengths.map_or(0, |lengths| strides::<1>(lengths)[0] as i64),
        target_count: common.target_count as i64,
        missing: common.dtype.missing_bits(),
        code: u64::from(common.op) << 32 | u64::from(variant.stamp) << 8,
        first_row: 0,
        reporter: launcher.reporter(),
        extrapolate: common.extrapolate as u32,
        flags: flag(common.check, CHECK)
            | flag(is_wide(common.target_lengths), WIDE_TARGET_LENGTHS)
            | flag(plan.stage, STAGE)
            | flag(cubics, CUBICS),
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
        streams: sources.len() as u32,
        units: units as u32,
        across: plan.across,
        out_dtype: dtype_number(common.dtype),
        factors: factors as u32,
        besides_at: plan.besides_at,
        factors_at: plan.factors_at,
        stamps_at: plan.stamps_at,
        stamps: if plan.stage { stamps as u32 } else { 0 },
        padding: 0,
        stream,
        range,
    };
    // More work than a grid can hold is launched in parts.
    let per_row = u64::from(plan.tiles) * u64::from(plan.chunks);
    let rows_per_launch = (MOST_BLOCKS / per_row).max(1);
    while args.first_row < common.batch as u64 {
        let rows = rows_per_launch.min(common.batch as u64 - args.first_row);
        let blocks = u32::try_from(rows * per_row)
            .map_err(|_| Error::invalid("targets", "one row needs more blocks than a launch can have"))?;
        let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args)? };
        args.first_row += rows;
    }
    Ok(())
}

const EMPTY_STREAM: StreamArgs = StreamArgs {
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
    first_unit: 0,
    column: 0,
    staged: 0,
    first_range: 0,
    ranges: 0,
    scale_all: 1.0,
    kind: MISSING,
    method: 0,
    dtype: 0,
    numbers: 1,
    wide_lengths: 0,
    scaled: 0,
    padding: [0; 2],
};
const EMPTY_RANGE: RangeArgs = RangeArgs { start: 0, end: 0, factors: 0, method: 0, stream: 0 };

/// What a kernel found, in the words of the CPU.
pub(crate) fn describe(finding: &Finding) -> Error {
    let error = crate::ops::resample::describe_finding(finding);
    match error.argument_name() {
        Some("targets" | "target_lengths") => error,
        _ => error.within(&format!("streams[{}]", (finding.code >> 16) & 0xff)),
    }
}

const _: () = assert!(Method::Rot6d as u32 == 7 && Method::Cubic as u32 == 4, "the kernels count on this order");
