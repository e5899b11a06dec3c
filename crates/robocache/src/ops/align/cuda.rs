//! `align` on CUDA: the kernel that a call needs, and its arguments.

use std::mem::MaybeUninit;

use super::arguments::{
    Args, CHECK, COLLECT, CUBICS, FEW, Head, MANY, MISSING, ONE, Output, RAGGED, RICH, SINGLE, STAGE, SegmentArgs,
    WIDE_LENGTHS, WIDE_TARGET_LENGTHS, ZEROS, cut, is_dense, row_step, whole_rows,
};
use super::plan::{Plan, Sizes};
use super::variant::{Mode, Variant};
use super::{Align, Arguments, Extrapolate, Method, Scale, Source, longest_gap, strides};
use crate::cuda::{Finding, Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorMut, TensorRef};
use crate::{Error, Outputs, Result, ensure};

/// The kernels of `align`.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("align.cu"),
    headers: &[
        ("locate.cuh", include_str!("locate.cuh")),
        ("rows.cuh", include_str!("rows.cuh")),
        ("blend.cuh", include_str!("blend.cuh")),
        ("streams.cuh", include_str!("streams.cuh")),
        ("part.cuh", include_str!("part.cuh")),
        ("lines.cuh", include_str!("lines.cuh")),
        ("numbers.cuh", include_str!("numbers.cuh")),
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

pub(in crate::ops) fn align(op: &Align<'_>, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
    let marks = [op.marks(out, op.valid), op.marks(out, op.age)];
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let mode = op.sources.iter().map(|source| mode_of(source, op.dtype)).max_by_key(|&mode| mode as u8);
    let segments: usize = op.sources.iter().map(Source::segments).sum();
    ensure!(segments <= MANY.1, "method", "expected at most {} column ranges in one call, got {segments}", MANY.1);
    let many = op.sources.len() > FEW.0 || segments > FEW.1;
    let copies = op.sources.iter().all(|source| matches!(source.kind(), MISSING | SINGLE));
    let place = Output::new(output.view(), op.dtype, op.batch, op.target_count);
    let mode = match (mode.unwrap_or(Mode::Lean), op.sources) {
        (Mode::Lean, [source]) if is_dense(source, &place) => Mode::One,
        (mode, _) => mode,
    };
    let variant = Variant::new(mode, op.dtype, op.targets.dtype(), (many, copies));
    match variant.mode().0 {
        Mode::Mixed => launch::<{ MANY.0 }, { MANY.1 }>(variant, op, (output, marks), launcher),
        Mode::One => {
            if launcher.only_loads() {
                // For results that lie otherwise.
                let lean = Variant::new(Mode::Lean, op.dtype, op.targets.dtype(), (many, copies));
                launch::<{ FEW.0 }, { FEW.1 }>(lean, op, (&mut *output, marks), launcher)?;
            }
            launch::<{ ONE.0 }, { ONE.1 }>(variant, op, (output, marks), launcher)
        }
        _ => launch::<{ FEW.0 }, { FEW.1 }>(variant, op, (output, marks), launcher),
    }
}

const _: () = assert!((Mode::Lean as u8) < Mode::Rich as u8 && (Mode::Rich as u8) < Mode::Mixed as u8);

/// What a source needs; of several the greatest.
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

/// Bytes of a target's results, if those of all targets lie side by side and borders of segments within sectors, of which
/// each segment would then write a part.
fn scattered_bytes(segments: &[SegmentArgs], width: usize, out: &Output) -> Option<u64> {
    let bytes = width.checked_mul(out.size)?;
    let dense = out.strides[2] == 1 && out.strides[1] == width as isize;
    let begins_within = |segment: &SegmentArgs| !(segment.column as usize * out.size).is_multiple_of(SECTOR);
    let parts = segments.len() > 1 && (!bytes.is_multiple_of(SECTOR) || segments.iter().any(begins_within));
    (dense && parts).then_some(bytes as u64)
}

/// The outputs `valid` and `age`, with their strides.
type Marks = [(*mut u8, [isize; 3]); 2];

fn launch<const STREAMS: usize, const SEGMENTS: usize>(
    plain: Variant,
    op: &Align<'_>,
    (output, [valid, age]): (&mut TensorMut<'_>, Marks),
    launcher: &Launcher<'_>,
) -> Result<()> {
    if size_of::<Args<STREAMS, SEGMENTS>>() > SMALL_ARGUMENTS && launcher.driver_version() < LARGE_ARGUMENTS_SINCE {
        let message = format!("more than {} streams, or streams of several dtypes, need a driver of CUDA 12.1", FEW.0);
        return Err(Error::unsupported("streams", message));
    }
    let (sources, mode) = (op.sources, plain.mode().0);
    let pointer = |tensor: Option<&TensorRef<'_>>| tensor.map_or(std::ptr::null(), TensorRef::data);
    let is_wide = |tensor: Option<&TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let in_bytes = |strides: [isize; 3], size: usize| strides.map(|stride| stride as i64 * size as i64);
    let wide = |strides: [isize; 3]| strides.map(|stride| stride as i64);
    let count: usize = sources.iter().map(Source::segments).sum();
    // Made here and filled in place, since it is large: to write what is never read would take as long as the plan.
    let mut args = MaybeUninit::<Args<STREAMS, SEGMENTS>>::uninit();
    let (head, streams, segments) = Args::begin(&mut args, sources.len(), count);
    let place = Output::new(output.view(), op.dtype, op.batch, op.target_count);
    let mut sizes = Sizes {
        streams: sources.len() as u32,
        batch: op.batch as u64,
        targets: op.target_count as u64,
        stamps: 0,
        shared_stamps: 0,
        samples: 0,
        joins: place.strides[1] > 0 && place.strides[0] == place.strides[1].saturating_mul(op.target_count as isize),
        scattered: None,
        cubics: false,
    };
    let mut used = 0usize;
    for (index, (source, stream)) in sources.iter().zip(&mut *streams).enumerate() {
        cut(index, source, mode, &place, &mut segments[used..])?;
        used += source.segments();
        stream.kind = source.kind();
        let step = row_step(source);
        stream.row_step = step.unwrap_or(0);
        sizes.joins &= step.is_some();
        let Some((values, dims)) = source.stream else { continue };
        if dims.samples > i32::MAX as usize {
            let text = format!("a row has fewer than 2^31 samples on a GPU, got {}", dims.samples);
            return Err((op.blame)(index, Error::unsupported("times", text)));
        }
        let max_gap = longest_gap(values.max_gap);
        let dtype = values.values.dtype();
        stream.values = values.values.data();
        stream.times = values.times.data();
        stream.lengths = pointer(values.lengths);
        stream.value_strides = in_bytes(dims.value_strides, dtype.size());
        stream.time_strides = dims.time_strides.map(|stride| stride as i64);
        stream.length_stride = dims.length_stride as i64;
        stream.samples = dims.samples as i64;
        stream.max_gap = if plain.stamp == 0 { (max_gap * 1e9).round() as u64 } else { max_gap.to_bits() };
        stream.method = values.method.plain().unwrap_or(Method::Linear) as u8;
        stream.dtype = dtype as u8;
        stream.wide_lengths = u8::from(is_wide(values.lengths));
        match values.scale {
            // What is only stored is scaled, by 1 where nothing else is said.
            None => stream.scaled = u8::from(values.is_stored()),
            Some(Scale::One(scale)) => (stream.scaled, stream.scale_all) = (1, *scale),
            Some(Scale::Columns(scale)) => {
                stream.scaled = 1;
                stream.scale = scale.data();
                stream.scale_stride = if scale.layout().count() > 1 { strides::<1>(scale)[0] as i64 } else { 0 };
            }
        }
        // From multiples of 16 bytes, for the loops that look at several at once.
        let samples = dims.samples as u64;
        sizes.samples = sizes.samples.max(samples);
        // A clock that all rows share is brought once.
        let all = if dims.time_strides[0] == 0 { &mut sizes.shared_stamps } else { &mut sizes.stamps };
        *all += samples.next_multiple_of(4);
    }
    let cubics = segments.iter().any(|segment| segment.method == Method::Cubic as u8);
    let width: usize = sources.iter().map(|source| source.width).sum();
    let near = segments.iter().all(|segment| segment.method == ZEROS || segment.near != 0);
    sizes.joins &= near;
    sizes.cubics = cubics;
    sizes.scattered = scattered_bytes(segments, width, &place);
    let whole = match sources {
        [only] if mode == Mode::Rich && near && count > 1 => whole_rows(only, &place),
        _ => None,
    };
    let mut variant = if whole.is_some() { plain.whole() } else { plain };
    let mut plan = Plan::new(variant, segments, &sizes, launcher.gpu().info())?;
    if whole.is_some() && !plan.collect {
        variant = plain;
        plan = Plan::new(variant, segments, &sizes, launcher.gpu().info())?;
    }
    let reads = whole.filter(|_| plan.collect);
    let mut staged = 0;
    for (source, stream) in sources.iter().zip(&mut *streams) {
        let Some((_, dims)) = source.stream else { continue };
        stream.staged = staged;
        let (samples, own) = (dims.samples as u64, dims.time_strides[0] != 0);
        stream.clock = if own { samples as u32 } else { 0 };
        let rows = if own { u64::from(plan.rows) } else { 1 };
        staged = staged.saturating_add(u32::try_from((samples * rows).next_multiple_of(4)).unwrap_or(u32::MAX));
    }
    let present = |(index, source): (usize, &Source<'_>)| u32::from(source.stream.is_some()) << index;
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    let ragged = op.target_lengths.is_some() || streams.iter().any(|stream| !stream.lengths.is_null());
    *head = Head {
        targets: op.targets.data(),
        target_lengths: pointer(op.target_lengths),
        out_strides: in_bytes(place.strides, op.dtype.size()),
        out: output.data_mut(),
        valid: valid.0,
        age: age.0,
        target_strides: strides::<2>(op.targets).map(|stride| stride as i64),
        valid_strides: wide(valid.1),
        age_strides: wide(age.1),
        target_length_stride: op.target_lengths.map_or(0, |lengths| strides::<1>(lengths)[0] as i64),
        target_count: op.target_count as i64,
        batch: op.batch as i64,
        missing: op.dtype.repeated_missing_bits(),
        code: op.reports.code() | u64::from(variant.stamp) << 8,
        first_row: 0,
        reporter: launcher.reporter(),
        extrapolate: op.extrapolate as u32,
        flags: flag(op.check, CHECK)
            | flag(is_wide(op.target_lengths), WIDE_TARGET_LENGTHS)
            | flag(plan.stage, STAGE)
            | flag(cubics, CUBICS)
            | reads.unwrap_or(0)
            | flag(ragged, RAGGED)
            | flag(plan.collect, COLLECT),
        rows: plan.rows,
        tile: plan.tile,
        tiles: plan.tiles,
        chunk: plan.chunk,
        chunks: plan.chunks,
        streams: sources.len() as u32,
        segments: count as u32,
        units: plan.units,
        out_dtype: op.dtype as u32,
        besides_at: plan.besides_at,
        lengths_at: plan.lengths_at,
        stamps_at: plan.stamps_at,
        present: sources.iter().enumerate().map(present).sum(),
    };
    let per_row = u64::from(plan.tiles) * u64::from(plan.chunks);
    let rows = u64::from(plan.rows);
    // More work than a grid can hold is launched in parts.
    Grid::in_parts("targets", (op.batch as u64).div_ceil(rows), per_row, |part, blocks| {
        // SAFETY: written above.
        unsafe { (&raw mut (*args.as_mut_ptr()).head.first_row).write(part * rows) };
        let grid = Grid { blocks, threads: plan.threads, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed. The kernels look at as many streams and segments as `head` tells.
        unsafe { launcher.launch(&KERNELS, variant.number(), grid, &args)? };
        if launcher.only_loads() && whole.is_some() {
            let other = if variant == plain { plain.whole() } else { plain };
            // SAFETY: as above.
            unsafe { launcher.launch(&KERNELS, other.number(), grid, &args)? };
        }
        Ok(())
    })
}

/// What kernels that look at stamps, targets and lengths are told of a call (`Flags` in rows.cuh).
pub(in crate::ops) fn flags_of(op: &Arguments<'_>, check: bool) -> u32 {
    let is_wide = |tensor: Option<&TensorRef<'_>>| tensor.is_some_and(|tensor| tensor.dtype() == DType::I64);
    let flag = |condition: bool, flag: u32| if condition { flag } else { 0 };
    flag(check, CHECK) | flag(is_wide(op.lengths), WIDE_LENGTHS) | flag(is_wide(op.target_lengths), WIDE_TARGET_LENGTHS)
}

/// What a kernel found, in the words of the CPU. `by_stream`: naming the stream.
pub(in crate::ops) fn describe(finding: &Finding, by_stream: bool) -> Error {
    let error = describe_row(finding);
    match error.argument_name() {
        _ if !by_stream => error,
        Some("targets" | "target_lengths") => error,
        _ => error.within(&format!("streams[{}]", (finding.code >> 16) & 0xff)),
    }
}

fn describe_row(finding: &Finding) -> Error {
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
