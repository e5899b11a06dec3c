//! `fuse` on CUDA: the choice of kernel and tile, and its arguments. `resample` comes here too for
//! what its own kernel does not know.

use std::mem::MaybeUninit;

use super::arguments::{
    APART, Args, CHECK, COLLECT, CUBICS, FEW, Head, KEEP, LINE, MANY, Output, RAGGED, RICH, STAGE, SegmentArgs, Source,
    WIDE_TARGET_LENGTHS, ZEROS, cut, room, row_bytes, whole_rows,
};
use super::plan::{Plan, Sizes};
use super::variant::{Mode, Variant, WHOLE_THREADS};
use super::{Dims, Fuse};
use crate::cuda::{Finding, Grid, KernelFamily, Launcher};
use crate::ops::resample::{Dims as StreamDims, Extrapolate, Method, Resample, Scale, longest_gap, strides};
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
        ("part.cuh", include_str!("part.cuh")),
        ("copy.cuh", include_str!("copy.cuh")),
        ("kept.cuh", include_str!("kept.cuh")),
        ("numbers.cuh", include_str!("numbers.cuh")),
        ("pairs.cuh", include_str!("pairs.cuh")),
        ("units.cuh", include_str!("units.cuh")),
        ("whole.cuh", include_str!("whole.cuh")),
    ],
    variants: || Variant::all().into_iter().map(Variant::number).collect(),
    entry: |number| Variant::from_number(number).entry(),
    options: |number| Variant::from_number(number).options(),
};

/// What every driver takes as arguments; drivers of CUDA 12.1 and newer take more.
const SMALL_ARGUMENTS: usize = 4096;
const LARGE_ARGUMENTS_SINCE: i32 = 12_010;

/// Bytes that the memory reads and writes at least.
const SECTOR: usize = 32;

const MOST_BLOCKS: u64 = 0x7fff_ffff;

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

pub(super) fn fuse(op: &Fuse<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
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
    let sources = op.streams.iter().zip(&dims.parts).map(|(stream, part)| {
        let &super::Part { ref samples, column, width } = part;
        Source { stream: op.arguments(stream, Some(dims.dtype)).zip(samples.as_ref()), column, width }
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
    launch(&[Source { stream: Some((op.arguments(), dims)), column: 0, width: dims.width }], &common, out, launcher)
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
    let segments: usize = sources.iter().map(Source::segments).sum();
    ensure!(segments <= MANY.1, "method", "expected at most {} column ranges in one call, got {segments}", MANY.1);
    let many = sources.len() > FEW.0 || segments > FEW.1;
    let variant = Variant::new(mode.unwrap_or(Mode::Lean), common.dtype, common.targets.dtype(), many);
    if variant.mode().0 == Mode::Mixed {
        launch_with::<{ MANY.0 }, { MANY.1 }>(variant, sources, common, output, launcher)
    } else {
        launch_with::<{ FEW.0 }, { FEW.1 }>(variant, sources, common, output, launcher)
    }
}

fn mode_of(source: &Source<'_>, out: DType) -> Mode {
    let Some((op, _)) = source.stream else { return Mode::Lean };
    let rich = source.kind() == RICH;
    if op.values.dtype() != out || op.is_stored() || (rich && !out.is_float()) {
        Mode::Mixed
    } else if rich {
        Mode::Rich
    } else {
        Mode::Lean
    }
}

/// Samples of streams of which one warp brings and checks the stamps: others can do so with other streams.
const SHORT: i64 = 512;

/// Shared memory for a row of all streams, if to bring them near as a whole is less than to read what targets
/// need: of that, some is found in the nearest cache.
fn bytes_to_keep(sources: &[Source<'_>]) -> Option<u64> {
    let (mut all, mut most, mut rooms) = (0u64, 0u64, 0u64);
    for source in sources {
        let (whole, needed) = row_bytes(source)?;
        (all, most) = (all.checked_add(whole)?, most.checked_add(needed)?);
        rooms = rooms.checked_add(room(whole))?;
    }
    (all > 0 && all / 3 <= most / 4).then_some(rooms)
}

/// Whether all streams are blended along lines, into rows that follow on each other, and nothing else is asked for.
fn is_lines(sources: &[Source<'_>], common: &Common<'_>, out: &Output) -> bool {
    let after = |column: usize, source: &Source<'_>| (source.column == column).then_some(column + source.width);
    let width = sources.iter().try_fold(0, after);
    let follow = width.is_some_and(|width| out.targets == 1 || out.strides[1] == width as isize);
    let plain =
        |source: &Source<'_>| source.stream.is_some_and(|(op, _)| source.kind() == LINE && op.lengths.is_none());
    out.strides[2] == 1
        && follow
        && common.dtype.is_float()
        && common.target_lengths.is_none()
        && common.valid.0.is_null()
        && common.age.0.is_null()
        && sources.iter().all(plain)
}

/// Bytes of a target's results, if those of all targets lie side by side and borders of segments within sectors, of which
/// each segment would then write a part.
fn scattered_bytes(segments: &[SegmentArgs], width: usize, out: &Output) -> Option<u64> {
    let bytes = width.checked_mul(out.size)?;
    let dense = out.strides[2] == 1 && out.strides[1] == width as isize;
    let aligned = out.address.is_multiple_of(16)
        && (out.batch <= 1 || out.strides[0].unsigned_abs().wrapping_mul(out.size).is_multiple_of(16));
    let begins_within = |segment: &SegmentArgs| !(segment.column as usize * out.size).is_multiple_of(SECTOR);
    let parts = segments.len() > 1 && (!bytes.is_multiple_of(SECTOR) || segments.iter().any(begins_within));
    (dense && aligned && parts).then_some(bytes as u64)
}

fn launch_with<const STREAMS: usize, const SEGMENTS: usize>(
    variant: Variant,
    sources: &[Source<'_>],
    common: &Common<'_>,
    output: &mut crate::tensor::TensorMut<'_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    if size_of::<Args<STREAMS, SEGMENTS>>() > SMALL_ARGUMENTS && launcher.driver_version() < LARGE_ARGUMENTS_SINCE {
        let message = format!("more than {} streams, or streams of several dtypes, need a driver of CUDA 12.1", FEW.0);
        return Err(Error::unsupported("streams", message));
    }
    let mode = variant.mode().0;
    let pointer = |tensor: Option<&TensorRef<'_>>| tensor.map_or(std::ptr::null(), TensorRef::data);
    let is_wide = |tensor: Option<&TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let in_bytes = |strides: [isize; 3], size: usize| strides.map(|stride| stride as i64 * size as i64);
    let wide = |strides: [isize; 3]| strides.map(|stride| stride as i64);
    let count: usize = sources.iter().map(Source::segments).sum();
    // Made here and filled in place, since it is large: to write what is never read would take as long as the plan.
    let mut args = MaybeUninit::<Args<STREAMS, SEGMENTS>>::uninit();
    let (head, streams, segments) = Args::begin(&mut args, sources.len(), count);
    let place = Output::new(output.view(), common.dtype, common.batch, common.target_count);
    let (mut stamps, mut used) = (0u64, 0usize);
    for (index, (source, stream)) in sources.iter().zip(&mut *streams).enumerate() {
        cut(index, source, mode, &place, &mut segments[used..])?;
        used += source.segments();
        stream.kind = source.kind();
        stream.staged = u32::try_from(stamps).unwrap_or(u32::MAX);
        let Some((op, dims)) = source.stream else { continue };
        ensure!(
            dims.samples <= i32::MAX as usize,
            "times",
            "expected at most 2^31 samples in a row, got {}",
            dims.samples
        );
        let max_gap = longest_gap(op.max_gap);
        let dtype = op.values.dtype();
        stream.values = op.values.data();
        stream.times = op.times.data();
        stream.lengths = pointer(op.lengths);
        stream.value_strides = in_bytes(dims.value_strides, dtype.size());
        stream.time_strides = dims.time_strides.map(|stride| stride as i64);
        stream.length_stride = dims.length_stride as i64;
        stream.samples = dims.samples as i64;
        stream.max_gap = if variant.stamp == 0 { (max_gap * 1e9).round() as u64 } else { max_gap.to_bits() };
        stream.method = op.method.plain().unwrap_or(Method::Linear) as u8;
        stream.dtype = dtype as u8;
        stream.wide_lengths = u8::from(is_wide(op.lengths));
        match op.scale {
            // What is only stored is scaled, by 1 where nothing else is said.
            None => stream.scaled = u8::from(op.is_stored()),
            Some(Scale::One(scale)) => (stream.scaled, stream.scale_all) = (1, *scale),
            Some(Scale::Columns(scale)) => {
                stream.scaled = 1;
                stream.scale = scale.data();
                stream.scale_stride = if scale.layout().count() > 1 { strides::<1>(scale)[0] as i64 } else { 0 };
            }
        }
        // From multiples of 16 bytes, for the loops that look at several at once.
        stamps += (dims.samples as u64).next_multiple_of(4);
    }
    let cubics = segments.iter().any(|segment| segment.method == Method::Cubic as u8);
    let width = sources.iter().map(|source| source.width).sum();
    let near = segments.iter().all(|segment| segment.method == ZEROS || segment.near != 0);
    let apart = sources.len() > 1 && streams.iter().all(|stream| stream.samples <= SHORT);
    let sizes = Sizes {
        streams: sources.len() as u32,
        stamps,
        kept: bytes_to_keep(sources).filter(|_| near),
        lines: mode == Mode::Lean && apart && is_lines(sources, common, &place),
        scattered: scattered_bytes(segments, width, &place).filter(|_| mode != Mode::Lean),
        cubics,
        batch: common.batch as u64,
        targets: common.target_count as u64,
    };
    let plan = Plan::new(variant, segments, &sizes, launcher.gpu().info())?;
    let mut kept_bytes = 0;
    if let Some(mut place) = plan.kept {
        for (source, stream) in sources.iter().zip(&mut *streams) {
            let whole = row_bytes(source).map_or(0, |(whole, _)| whole);
            stream.kept = place;
            place += room(whole) as u32;
            kept_bytes += whole as u32;
        }
    }
    let whole = match sources {
        [only] if mode == Mode::Rich && near && count > 1 => whole_rows(only),
        _ => None,
    };
    let reads = whole.filter(|_| plan.collect && plan.threads <= WHOLE_THREADS);
    // Which one it is depends on the batch, too.
    let (plain, other) = (variant, if whole.is_some() { variant.whole() } else { variant.kept() });
    let variant = if plan.columns_at.is_some() || reads.is_some() { other } else { plain };
    let present = |(index, source): (usize, &Source<'_>)| u32::from(source.stream.is_some()) << index;
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    *head = Head {
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
        missing: common.dtype.repeated_missing_bits(),
        code: u64::from(common.op) << 32 | u64::from(variant.stamp) << 8,
        first_row: 0,
        reporter: launcher.reporter(),
        extrapolate: common.extrapolate as u32,
        flags: flag(common.check, CHECK)
            | flag(is_wide(common.target_lengths), WIDE_TARGET_LENGTHS)
            | flag(plan.stage, STAGE)
            | flag(cubics, CUBICS)
            | flag(plan.kept.is_some(), KEEP)
            | flag(apart, APART)
            | flag(plan.collect, COLLECT)
            | reads.unwrap_or(0)
            | flag(streams.iter().any(|stream| !stream.lengths.is_null()), RAGGED),
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
        streams: sources.len() as u32,
        segments: count as u32,
        units: plan.units,
        out_dtype: common.dtype as u32,
        besides_at: plan.besides_at,
        stamps_at: plan.stamps_at,
        kept_bytes,
        present: sources.iter().enumerate().map(present).sum(),
        columns_at: plan.columns_at.unwrap_or(0),
        per_unit: plan.columns_at.map_or(0, |_| u32::MAX / plan.units + 1),
    };
    // More work than a grid can hold is launched in parts.
    let per_row = u64::from(plan.tiles) * u64::from(plan.chunks);
    let rows_per_launch = (MOST_BLOCKS / per_row).max(1);
    let mut first_row = 0;
    while first_row < common.batch as u64 {
        // SAFETY: written above.
        unsafe { (&raw mut (*args.as_mut_ptr()).head.first_row).write(first_row) };
        let rows = rows_per_launch.min(common.batch as u64 - first_row);
        let blocks = u32::try_from(rows * per_row)
            .map_err(|_| Error::invalid("targets", "one row needs more blocks than a launch can have"))?;
        let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed. The kernels look at as many streams and segments as `head` tells.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args)? };
        if launcher.only_loads() && (sizes.lines || whole.is_some()) {
            let other = if variant == plain { other } else { plain };
            // SAFETY: as above.
            unsafe { launcher.launch(&KERNELS, other.number(), grid, &args)? };
        }
        first_row += rows;
    }
    Ok(())
}

/// What a kernel found, in the words of the CPU.
pub(crate) fn describe(finding: &Finding) -> Error {
    let error = crate::ops::resample::describe_finding(finding);
    match error.argument_name() {
        Some("targets" | "target_lengths") => error,
        _ => error.within(&format!("streams[{}]", (finding.code >> 16) & 0xff)),
    }
}
