//! What a sample is made of, as the user asks for it, and which samples there are.

use std::sync::OnceLock;

use robocache::ops::resample::{ColumnRange, Method, Methods};
use robocache::{DType, Error, ErrorKind, Result, ensure};

use super::normal::statistics;
use crate::cache::{Cache, CachedStream, Encoding, Summary};
use crate::model::{Interpolation, Kind, Span, ensure_spans, ensure_whole};

/// Seconds that nanoseconds of 64 bits can tell, 285 years.
const MOST_SECONDS: f64 = 9e9;

/// Seconds as nanoseconds; of what is at most `MOST_SECONDS`.
pub(crate) fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// How numbers are scaled, by the cache's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalize {
    /// Mean 0, standard deviation 1.
    MeanStd,
    /// The smallest to -1, the largest to 1.
    MinMax,
    /// The 1 % quantile to -1, the 99 % quantile to 1.
    Quantile,
}

/// The type of pictures in batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageType {
    /// As they are.
    #[default]
    U8,
    /// `float32` in [0, 1].
    F32,
}

/// Which times samples are made for.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Anchor {
    /// The frames of a LeRobot dataset.
    #[default]
    Frames,
    /// The stamps of a stream.
    Stream(String),
    /// A uniform grid over what the chosen streams of an episode have in common, samples per second.
    Rate(f64),
}

/// Everything that decides what samples look like and which there are.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowOptions {
    /// Offsets in seconds around the anchor, by stream; these get an axis of time.
    pub delta_timestamps: Vec<(String, Vec<f64>)>,
    /// Streams without offsets, at the anchor; all others where there is no list.
    pub others: Option<Vec<String>>,
    /// Which times samples are made for.
    pub anchor: Anchor,
    /// Interpolation, by stream, other than the cache's.
    pub methods: Vec<(String, Vec<Span>)>,
    /// A target this near to a stamp is that stamp, in seconds.
    pub tolerance_s: f64,
    /// Observations use only what was there at the time.
    pub causal: bool,
    /// How late a sensor's stamps are, in seconds, by stream: what was measured at `t` is stamped
    /// `t + late`.
    pub time_offset: Vec<(String, f64)>,
    /// Seconds between two samples beyond which what lies between them is padding, by stream.
    pub max_gap: Vec<(String, f64)>,
    /// Scaling by stream.
    pub normalize: Vec<(String, Normalize)>,
    /// Of pictures.
    pub image_type: ImageType,
    /// Places of the episodes that are used; all where there is no list.
    pub episodes: Option<Vec<usize>>,
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            delta_timestamps: Vec::new(),
            others: None,
            anchor: Anchor::default(),
            methods: Vec::new(),
            tolerance_s: 1e-4,
            causal: false,
            time_offset: Vec::new(),
            max_gap: Vec::new(),
            normalize: Vec::new(),
            image_type: ImageType::default(),
            episodes: None,
        }
    }
}

/// A stream of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// Its place in the cache.
    pub(crate) stream: usize,
    pub(crate) meta: CachedStream,
    /// Nanoseconds by which its stamps are late.
    pub(crate) late: i64,
    /// Nanoseconds from the anchor in its own clock, the lateness included.
    pub(crate) offsets: Vec<i64>,
    /// Whether samples have an axis of time.
    pub(crate) has_time: bool,
    pub(crate) method: Methods,
    /// Of the samples in their normal form, where the method has one and somebody asked.
    pub(crate) stats: OnceLock<Summary>,
    /// Nanoseconds between two samples that are too many.
    pub(crate) max_gap: Option<i64>,
    pub(crate) scale: Option<Scale>,
    /// The type of the result.
    pub(crate) dtype: Option<DType>,
    /// The shape of one step of the result: pictures are `[channels, height, width]`, and a single
    /// number has no axis of its own, as in LeRobot's batches.
    pub(crate) shape: Vec<usize>,
}

/// `(x - shift) * factor`, by component.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub(crate) shift: Vec<f64>,
    pub(crate) factor: Vec<f64>,
}

impl Key {
    pub(crate) fn is_picture(&self) -> bool {
        is_picture(&self.meta)
    }

    /// Bytes of one step as the cache keeps it.
    pub(crate) fn row_bytes(&self) -> usize {
        self.meta.row_bytes()
    }

    /// Numbers of one step.
    pub(crate) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether some columns have a normal form, in which they are handed out.
    pub(crate) fn has_normal_form(&self) -> bool {
        has_normal_form(&self.method)
    }

    /// The method of all columns, where it is one that takes samples as they are.
    pub(crate) fn picks(&self) -> Option<Method> {
        match self.method {
            Methods::One(method) if method.copies() => Some(method),
            _ => None,
        }
    }
}

fn has_normal_form(methods: &Methods) -> bool {
    methods.each().any(Method::has_normal_form)
}

fn is_picture(stream: &CachedStream) -> bool {
    stream.kind.is_picture()
}

/// Whether an episode's samples of a stream lie together in the map.
pub(crate) fn lies_together(stream: &CachedStream) -> bool {
    stream.encoding == Encoding::Raw && !is_picture(stream)
}

/// Nanoseconds by which a stream's stamps are late.
pub(crate) fn lateness(name: &str, options: &WindowOptions) -> i64 {
    value(&options.time_offset, name).map_or(0, |&seconds| nanoseconds(seconds))
}

/// What an option says of a stream.
fn value<'o, T>(list: &'o [(String, T)], name: &str) -> Option<&'o T> {
    list.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The streams of a batch, with everything that was asked of them.
pub(crate) fn keys(cache: &Cache, options: &WindowOptions, interrupted: &dyn Fn() -> bool) -> Result<Vec<Key>> {
    ensure_options(cache, options)?;
    let wanted = |stream: &&CachedStream| {
        let has_offsets = value(&options.delta_timestamps, &stream.name).is_some();
        has_offsets || options.others.as_ref().is_none_or(|others| others.contains(&stream.name))
    };
    let keys: Vec<Key> = cache
        .streams()
        .iter()
        .filter(wanted)
        .map(|stream| key(cache, stream, options, interrupted))
        .collect::<Result<_>>()?;
    for key in keys.iter().filter(|key| key.has_time) {
        let taken = format!("{}_is_pad", key.name);
        let free = keys.iter().all(|other| other.name != taken);
        ensure!(free, "streams", "{taken:?} is both a stream and what says where {:?} is padding", key.name);
    }
    Ok(keys)
}

/// What can be told without looking at a stream.
fn ensure_options(cache: &Cache, options: &WindowOptions) -> Result<()> {
    let tolerance = options.tolerance_s;
    ensure!((0.0..MOST_SECONDS).contains(&tolerance), "tolerance_s", "expected seconds, got {tolerance}");
    for (name, what) in named(options) {
        cache.find(name, what)?;
    }
    for (name, late) in &options.time_offset {
        ensure!(late.abs() < MOST_SECONDS, "time_offset", "{name:?}: expected seconds, got {late}");
    }
    for (name, gap) in &options.max_gap {
        ensure!((0.0..MOST_SECONDS).contains(gap), "max_gap", "{name:?}: expected seconds, got {gap}");
        let has_time = value(&options.delta_timestamps, name).is_some();
        ensure!(has_time, "max_gap", "{name:?} has no `_is_pad`: give it offsets in delta_timestamps");
    }
    if let Anchor::Rate(rate) = options.anchor {
        ensure!(rate > 0.0 && rate <= 1e6, "rate", "expected samples per second, at most 1e6, got {rate}");
    }
    Ok(())
}

/// Every name of a stream in the options, and the option.
fn named(options: &WindowOptions) -> impl Iterator<Item = (&str, &'static str)> {
    let offsets = options.delta_timestamps.iter().map(|(name, _)| (name.as_str(), "delta_timestamps"));
    let methods = options.methods.iter().map(|(name, _)| (name.as_str(), "methods"));
    let late = options.time_offset.iter().map(|(name, _)| (name.as_str(), "time_offset"));
    let gaps = options.max_gap.iter().map(|(name, _)| (name.as_str(), "max_gap"));
    let scaled = options.normalize.iter().map(|(name, _)| (name.as_str(), "normalize"));
    let others = options.others.iter().flatten().map(|name| (name.as_str(), "streams"));
    let anchor = match &options.anchor {
        Anchor::Stream(name) => Some((name.as_str(), "anchor")),
        _ => None,
    };
    offsets.chain(methods).chain(late).chain(gaps).chain(scaled).chain(others).chain(anchor)
}

fn key(cache: &Cache, stream: &CachedStream, options: &WindowOptions, interrupted: &dyn Fn() -> bool) -> Result<Key> {
    let given = value(&options.delta_timestamps, &stream.name);
    let seconds = given.cloned().unwrap_or_else(|| vec![0.0]);
    for &offset in &seconds {
        let sound = offset.abs() < MOST_SECONDS;
        ensure!(sound, "delta_timestamps", "{:?}: expected seconds, got {offset}", stream.name);
    }
    let is_picture = is_picture(stream);
    let method = for_engine(&method(stream, options)?);
    let normalize = value(&options.normalize, &stream.name);
    let mut stats = OnceLock::new();
    if normalize.is_some() && has_normal_form(&method) {
        stats = statistics(cache, stream, &method, interrupted)?.into();
    }
    let scale = normalize.map(|&how| scale(cache, stream, how, stats.get())).transpose()?;
    let dtype = match (stream.encoding, stream.number_type()) {
        (Encoding::Text, _) => None,
        (_, dtype) if is_picture && stream.kind != Kind::Depth => match options.image_type {
            ImageType::U8 if scale.is_none() => dtype,
            _ => Some(DType::F32),
        },
        (_, Some(DType::F64)) if scale.is_some() => Some(DType::F64),
        (_, Some(_)) if scale.is_some() => Some(DType::F32),
        (_, dtype) => dtype,
    };
    let shape = match stream.shape.as_slice() {
        &[height, width, channels] if is_picture => vec![channels, height, width],
        [1] => Vec::new(),
        shape => shape.to_vec(),
    };
    let late = lateness(&stream.name, options);
    Ok(Key {
        name: stream.name.clone(),
        stream: cache.stream(&stream.name)?,
        late,
        // What was measured at the target is stamped later by as much as the sensor is late.
        offsets: seconds.iter().map(|&offset| nanoseconds(offset).saturating_add(late)).collect(),
        has_time: given.is_some(),
        method,
        stats,
        max_gap: value(&options.max_gap, &stream.name).map(|&gap| nanoseconds(gap)),
        meta: stream.clone(),
        scale,
        dtype,
        shape,
    })
}

/// The same in the words of the engine.
fn for_engine(spans: &[Span]) -> Methods {
    let range = |&Span { method, start, end }: &Span| ColumnRange { method: method.method(), start, end };
    match spans {
        [all] => Methods::One(all.method.method()),
        spans => Methods::Ranges(spans.iter().map(range).collect()),
    }
}

/// How values between samples are made.
fn method(stream: &CachedStream, options: &WindowOptions) -> Result<Vec<Span>> {
    let (name, width) = (&stream.name, stream.shape.iter().product());
    let chosen = match value(&options.methods, name).map(Vec::as_slice) {
        None => stream.method.clone(),
        Some(chosen) => {
            let spans = match chosen {
                [all] if all.start == 0 && all.end == usize::MAX => vec![Span { end: width, ..*all }],
                spans => spans.to_vec(),
            };
            if is_picture(stream) || stream.encoding == Encoding::Text {
                ensure_whole(name, &spans)?;
            }
            ensure_spans(name, &spans, width, stream.number_type())?;
            spans
        }
    };
    if options.causal && !name.starts_with("action") {
        // A deployed robot knows only what was measured before.
        return Ok(vec![Span { method: Interpolation::Previous, start: 0, end: width }]);
    }
    Ok(chosen)
}

fn scale(cache: &Cache, stream: &CachedStream, how: Normalize, own: Option<&Summary>) -> Result<Scale> {
    let name = &stream.name;
    let dtype = stream.number_type();
    let pixels = is_picture(stream) && dtype == Some(DType::U8);
    let can = pixels || dtype.is_some_and(DType::is_float) && !is_picture(stream);
    ensure!(can, "normalize", "{name:?} is {} {}; expected floats or pictures", stream.kind.name(), stream.dtype);
    let stats = own.or_else(|| cache.stats().get(name)).ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, format!("{name:?} has no statistics")).argument("normalize")
    })?;
    // What does not move is only shifted.
    let inverse = |range: f64| if range > 1e-12 { 1.0 / range } else { 1.0 };
    let ends = |low: &[f64], high: &[f64]| {
        let middle = low.iter().zip(high).map(|(low, high)| (low + high) / 2.0).collect();
        let factor = low.iter().zip(high).map(|(low, high)| inverse((high - low) / 2.0)).collect();
        Scale { shift: middle, factor }
    };
    let mut scale = match how {
        Normalize::MeanStd => {
            Scale { shift: stats.mean.clone(), factor: stats.std.iter().map(|&std| inverse(std)).collect() }
        }
        Normalize::MinMax => ends(&stats.min, &stats.max),
        Normalize::Quantile => ends(&stats.q01, &stats.q99),
    };
    if stream.kind == Kind::PointCloud {
        // All points are scaled alike.
        let points = stream.shape.first().copied().unwrap_or(0);
        scale = Scale { shift: scale.shift.repeat(points), factor: scale.factor.repeat(points) };
    }
    let width = if pixels { stream.shape.last().copied().unwrap_or(0) } else { stream.shape.iter().product() };
    let fits = scale.shift.len() == width && scale.factor.len() == width;
    ensure!(fits, "normalize", "{name:?} has statistics of {} numbers, not of {width}", scale.shift.len());
    Ok(scale)
}
