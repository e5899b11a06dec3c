//! What a sample is made of, as the user asks for it, and which samples there are.

use robocache::{DType, Error, ErrorKind, Result, ensure};

use crate::cache::{Cache, CachedStream, Encoding};
use crate::model::{Interpolation, Kind, Span};

/// Seconds as nanoseconds.
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
    /// A uniform grid over what all streams of an episode have in common, samples per second.
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
    /// How late a sensor's stamps are, in seconds, by stream.
    pub time_offset: Vec<(String, f64)>,
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
    /// Nanoseconds from the anchor, the sensor's lateness included.
    pub(crate) offsets: Vec<i64>,
    /// Whether samples have an axis of time.
    pub(crate) has_time: bool,
    pub(crate) method: Vec<Span>,
    pub(crate) scale: Option<Scale>,
    /// The type of the result.
    pub(crate) dtype: Option<DType>,
    /// The shape of one step of the result: pictures are `[channels, height, width]`.
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
        matches!(self.meta.kind, Kind::Image | Kind::Video | Kind::Depth)
    }

    /// Bytes of one step as the cache keeps it.
    pub(crate) fn row_bytes(&self) -> usize {
        self.meta.row_bytes()
    }

    /// Numbers of one step.
    pub(crate) fn width(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The streams of a batch, with everything that was asked of them.
pub(crate) fn keys(cache: &Cache, options: &WindowOptions) -> Result<Vec<Key>> {
    let tolerance = options.tolerance_s;
    ensure!(tolerance.is_finite() && tolerance >= 0.0, "tolerance_s", "expected seconds, got {tolerance}");
    for (name, what) in named(options) {
        cache.find(name, what)?;
    }
    let wanted = |stream: &&CachedStream| {
        let has_offsets = options.delta_timestamps.iter().any(|(name, _)| *name == stream.name);
        has_offsets || options.others.as_ref().is_none_or(|others| others.contains(&stream.name))
    };
    cache.streams().iter().filter(wanted).map(|stream| key(cache, stream, options)).collect()
}

/// Every name of a stream in the options, and the option.
fn named(options: &WindowOptions) -> impl Iterator<Item = (&str, &'static str)> {
    let offsets = options.delta_timestamps.iter().map(|(name, _)| (name.as_str(), "delta_timestamps"));
    let methods = options.methods.iter().map(|(name, _)| (name.as_str(), "methods"));
    let late = options.time_offset.iter().map(|(name, _)| (name.as_str(), "time_offset"));
    let scaled = options.normalize.iter().map(|(name, _)| (name.as_str(), "normalize"));
    let others = options.others.iter().flatten().map(|name| (name.as_str(), "streams"));
    offsets.chain(methods).chain(late).chain(scaled).chain(others)
}

fn key(cache: &Cache, stream: &CachedStream, options: &WindowOptions) -> Result<Key> {
    let find = |list: &[(String, f64)]| list.iter().find(|(name, _)| *name == stream.name).map(|&(_, value)| value);
    let late = find(&options.time_offset).unwrap_or(0.0);
    ensure!(late.is_finite(), "time_offset", "{:?}: expected seconds, got {late}", stream.name);
    let given = options.delta_timestamps.iter().find(|(name, _)| *name == stream.name).map(|(_, offsets)| offsets);
    let seconds = given.cloned().unwrap_or_else(|| vec![0.0]);
    for &offset in &seconds {
        ensure!(offset.abs() < 9e9, "delta_timestamps", "{:?}: expected seconds, got {offset}", stream.name);
    }
    let mut method = stream.method.clone();
    if let Some((_, chosen)) = options.methods.iter().find(|(name, _)| *name == stream.name) {
        let width = stream.shape.iter().product();
        method = match chosen.as_slice() {
            [all] if all.start == 0 && all.end == usize::MAX => vec![Span { end: width, ..*all }],
            spans => spans.to_vec(),
        };
        ensure!(method.last().is_some_and(|last| last.end == width), "methods", "{:?}: {width} columns", stream.name);
    }
    if options.causal && !stream.name.starts_with("action") {
        // A deployed robot knows only what was measured before.
        method = vec![Span { method: Interpolation::Previous, start: 0, end: stream.shape.iter().product() }];
    }
    let is_picture = matches!(stream.kind, Kind::Image | Kind::Video | Kind::Depth);
    let normalize = options.normalize.iter().find(|(name, _)| *name == stream.name).map(|&(_, how)| how);
    let scale = normalize.map(|how| scale(cache, stream, how)).transpose()?;
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
        shape => shape.to_vec(),
    };
    Ok(Key {
        name: stream.name.clone(),
        stream: cache.stream(&stream.name)?,
        offsets: seconds.iter().map(|&offset| nanoseconds(offset) - nanoseconds(late)).collect(),
        has_time: given.is_some(),
        meta: stream.clone(),
        method,
        scale,
        dtype,
        shape,
    })
}

fn scale(cache: &Cache, stream: &CachedStream, how: Normalize) -> Result<Scale> {
    let stats = cache.stats().get(&stream.name).ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, format!("{:?} has no statistics", stream.name)).argument("normalize")
    })?;
    // What does not move is only shifted.
    let inverse = |range: f64| if range > 1e-12 { 1.0 / range } else { 1.0 };
    let ends = |low: &[f64], high: &[f64]| {
        let middle = low.iter().zip(high).map(|(low, high)| (low + high) / 2.0).collect();
        let factor = low.iter().zip(high).map(|(low, high)| inverse((high - low) / 2.0)).collect();
        Scale { shift: middle, factor }
    };
    Ok(match how {
        Normalize::MeanStd => {
            Scale { shift: stats.mean.clone(), factor: stats.std.iter().map(|&std| inverse(std)).collect() }
        }
        Normalize::MinMax => ends(&stats.min, &stats.max),
        Normalize::Quantile => ends(&stats.q01, &stats.q99),
    })
}
