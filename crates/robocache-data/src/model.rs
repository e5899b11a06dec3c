//! What every format is read as: a dataset of episodes, each of several streams with their own
//! clocks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::ops::resample::Method;
use robocache::{Context, DType, Error, ErrorKind, Result, Tensor, ensure};
use serde::{Deserialize, Serialize};

use crate::findings::{Checked, Finding, Progress};
use crate::frames::Frames;
use crate::limits::file_error;
use crate::source::{ensure_path, is_nothing};
use crate::{Limits, lerobot};

/// What a stream records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One number per sample.
    Scalar,
    /// Several numbers per sample.
    Vector,
    /// Pictures that are stored one by one.
    Image,
    /// Pictures in a video file.
    Video,
    /// Distances, as pictures.
    Depth,
    /// Points in space.
    PointCloud,
    /// Words.
    Text,
}

impl Kind {
    /// Whether its samples are pictures.
    pub(crate) const fn is_picture(self) -> bool {
        matches!(self, Self::Image | Self::Video | Self::Depth)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Image => "image",
            Self::Video => "video",
            Self::Depth => "depth",
            Self::PointCloud => "point_cloud",
            Self::Text => "text",
        }
    }
}

/// How values between samples are made, unless the user says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// On the line between both samples.
    Linear,
    /// The nearer sample.
    Nearest,
    /// The sample before.
    Previous,
    /// The sample after.
    Next,
    /// A smooth curve that does not overshoot.
    Cubic,
    /// Along the shortest rotation, of quaternions.
    Slerp,
    /// Around the shorter way.
    Angle,
    /// Two columns of a rotation matrix, made orthonormal again.
    Rot6d,
}

impl Interpolation {
    /// Every method.
    pub const ALL: [Self; 8] =
        [Self::Linear, Self::Nearest, Self::Previous, Self::Next, Self::Cubic, Self::Slerp, Self::Angle, Self::Rot6d];

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Nearest => "nearest",
            Self::Previous => "previous",
            Self::Next => "next",
            Self::Cubic => "cubic",
            Self::Slerp => "slerp",
            Self::Angle => "angle",
            Self::Rot6d => "rot6d",
        }
    }

    /// The method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// What the engine calls it.
    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Linear => Method::Linear,
            Self::Nearest => Method::Nearest,
            Self::Previous => Method::Previous,
            Self::Next => Method::Next,
            Self::Cubic => Method::Cubic,
            Self::Slerp => Method::Slerp,
            Self::Angle => Method::Angle,
            Self::Rot6d => Method::Rot6d,
        }
    }
}

/// The interpolation of some columns of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// How.
    pub method: Interpolation,
    /// The first column.
    pub start: usize,
    /// The column after the last.
    pub end: usize,
}

/// Spans must cover the columns once, and blending needs floats.
pub(crate) fn ensure_spans(name: &str, spans: &[Span], width: usize, dtype: Option<DType>) -> Result<()> {
    let mut next = 0;
    for span in spans {
        ensure!(
            span.start == next && span.end > span.start,
            "methods",
            "{name:?}: columns {next} on are not covered once"
        );
        let (method, count) = (span.method.method(), span.end - span.start);
        ensure!(
            method.copies() || dtype.is_some_and(DType::is_float),
            "methods",
            "{name:?}: {} needs floats",
            span.method.name()
        );
        ensure!(
            count.is_multiple_of(method.columns()),
            "methods",
            "{name:?}: {method} takes {} columns at a time, got {count}",
            method.columns()
        );
        next = span.end;
    }
    ensure!(next == width, "methods", "{name:?}: {next} of {width} columns are covered");
    Ok(())
}

/// Pictures and text are taken as a whole.
pub(crate) fn ensure_whole(name: &str, spans: &[Span]) -> Result<()> {
    let takes = matches!(spans, [all] if all.method.method().copies());
    ensure!(takes, "methods", "{name:?}: pictures and text take nearest, previous or next, for all");
    Ok(())
}

/// A signal that all episodes of a dataset may have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamInfo {
    /// Its name in the dataset.
    pub name: String,
    /// What it records.
    pub kind: Kind,
    /// Type of its numbers or pixels; `None` for text.
    #[serde(serialize_with = "serialize_dtype")]
    pub dtype: Option<DType>,
    /// Shape of one sample; pictures are `[height, width, channels]`.
    pub shape: Vec<usize>,
    /// Names of the components, as many as there are numbers in a sample, where the dataset has them.
    pub names: Option<Vec<String>>,
    /// Samples per second as the dataset declares them.
    pub rate: Option<f64>,
    /// How values between samples are made; one span for all columns in most cases.
    pub method: Vec<Span>,
}

fn serialize_dtype<S: serde::Serializer>(dtype: &Option<DType>, serializer: S) -> Result<S::Ok, S::Error> {
    dtype.map(DType::name).serialize(serializer)
}

impl StreamInfo {
    /// Numbers in one sample.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }
}

/// An episode as the metadata tells of it; nothing was read yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpisodeInfo {
    /// Its number in the dataset, which can have gaps.
    pub index: u64,
    /// How many samples the streams of the main clock have.
    pub length: u64,
    /// What the robot was told to do.
    pub tasks: Vec<String>,
    /// Seconds from its start to its end, one period after the last sample.
    pub duration: f64,
}

/// The samples of one stream in one episode.
#[derive(Debug, Clone)]
pub struct Samples {
    /// Nanoseconds, one stamp per sample.
    pub times: Arc<[i64]>,
    /// What was recorded.
    pub values: Values,
}

/// What was recorded.
#[derive(Debug, Clone)]
pub enum Values {
    /// `[samples, shape...]`.
    Numbers(Arc<Tensor>),
    /// Pictures, decoded when asked for.
    Frames(Box<Frames>),
    /// One text per sample.
    Text(Arc<[String]>),
}

/// What a format must offer.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    fn format(&self) -> String;
    fn rate(&self) -> Option<f64>;
    fn tasks(&self) -> &[String];
    fn streams(&self) -> &[StreamInfo];
    /// Declared streams that are not read, each with the reason.
    fn left_out(&self) -> &[(String, String)];
    fn len(&self) -> usize;
    /// Called with `at` below `len` only, as are the others.
    fn episode(&self, at: usize) -> EpisodeInfo;
    /// The samples of these streams, in the order asked for.
    fn read(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>>;
    /// The stamps of the main clock as the files have them, where they have any.
    fn recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>>;
    /// Looks at everything; `progress` is told of every episode and can stop it.
    fn check(&self, progress: &Progress<'_>) -> Result<Checked>;
    /// The same but for the numbers of streams, which who reads them looks at.
    fn check_but_numbers(&self, progress: &Progress<'_>) -> Result<Checked>;
    /// The files that the metadata speaks of, itself included, whether they exist or not.
    fn files(&self) -> Result<Vec<PathBuf>>;
}

/// A dataset of any format. Opening reads the metadata only; it can be shared between threads.
#[derive(Debug)]
pub struct Dataset {
    source: Box<dyn Source>,
}

impl Dataset {
    /// Opens what lies at `path`; the format is found by looking.
    ///
    /// Metadata that contradicts itself is refused here; [`Dataset::check`] tells all of it.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let (dataset, refusal) = Self::open_anyway(path, limits)?;
        match refusal {
            Some(error) => Err(error),
            None => Ok(dataset),
        }
    }

    fn open_anyway(path: &Path, limits: &Limits) -> Result<(Self, Option<Error>)> {
        ensure_path(path, "path")?;
        path.metadata().map_err(|error| match is_nothing(&error) {
            true => Error::new(ErrorKind::FileError, "there is no such file or folder").path(path),
            false => file_error(path, "cannot open the dataset", error),
        })?;
        if lerobot::is_dataset(path)? {
            let (source, refusal) = lerobot::open(path, limits)?;
            return Ok((Self { source: Box::new(source) }, refusal));
        }
        let expected = "expected the folder of a LeRobot dataset, with meta/info.json in it";
        Err(Error::new(ErrorKind::Unsupported, format!("no dataset of a known format: {expected}")).path(path))
    }

    /// Opens a dataset and looks at everything in it. Only metadata that cannot be read at all is
    /// an error.
    pub fn check(path: &Path, limits: &Limits, progress: &Progress<'_>) -> Result<Vec<Finding>> {
        Self::open_and_check(path, limits, progress).map(|(findings, _)| findings)
    }

    /// As [`Dataset::check`], and the dataset itself where it may be used.
    pub fn open_and_check(
        path: &Path,
        limits: &Limits,
        progress: &Progress<'_>,
    ) -> Result<(Vec<Finding>, Option<Self>)> {
        let (dataset, refusal) = Self::open_anyway(path, limits)?;
        let findings = dataset.source.check(progress)?.findings;
        Ok((findings, refusal.is_none().then_some(dataset)))
    }

    /// Looks at everything but the numbers of streams, for the first error of every episode and stream that
    /// has one.
    pub(crate) fn episode_errors(&self, progress: &Progress<'_>) -> Result<Vec<Finding>> {
        Ok(self.source.check_but_numbers(progress)?.errors)
    }

    /// Streams that are declared but not read, each with the reason.
    pub fn left_out(&self) -> &[(String, String)] {
        self.source.left_out()
    }

    /// Format and version, such as "lerobot v3.0".
    pub fn format(&self) -> String {
        self.source.format()
    }

    /// Samples per second of the main clock, where there is one.
    pub fn rate(&self) -> Option<f64> {
        self.source.rate()
    }

    /// All tasks, by their number.
    pub fn tasks(&self) -> &[String] {
        self.source.tasks()
    }

    /// All streams, in the dataset's order.
    pub fn streams(&self) -> &[StreamInfo] {
        self.source.streams()
    }

    /// The place of a stream in [`Dataset::streams`].
    pub fn stream(&self, name: &str) -> Result<usize> {
        let streams = self.streams();
        streams.iter().position(|stream| stream.name == name).ok_or_else(|| {
            if let Some((_, why)) = self.source.left_out().iter().find(|(left_out, _)| left_out == name) {
                return Error::new(ErrorKind::Unsupported, format!("{name:?} is left out: {why}")).argument("stream");
            }
            let names: Vec<_> = streams.iter().map(|stream| &*stream.name).collect();
            Error::invalid("stream", format!("there is no {name:?}; the streams are {}", names.join(", ")))
        })
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An episode, by its place.
    pub fn episode(&self, at: usize) -> Result<EpisodeInfo> {
        self.ensure_episode(at)?;
        Ok(self.source.episode(at))
    }

    /// Reads streams of an episode, by their places. Pictures are decoded later, when asked for.
    pub fn read(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>> {
        self.ensure_episode(at)?;
        for &stream in streams {
            ensure!(stream < self.streams().len(), "streams", "there is no stream {stream}");
        }
        self.source
            .read(at, streams)
            .map_err(|error| error.while_doing(format!("reading episode {}", self.source.episode(at).index)))
    }

    /// The stamps of an episode's main clock in nanoseconds as the files have them; `None` where they
    /// have none. The stamps of [`Samples`] may be rebuilt from the rate and say nothing of jitter.
    pub fn recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>> {
        self.ensure_episode(at)?;
        self.source.recorded_times(at)
    }

    /// Bytes of the files that the metadata speaks of and that exist.
    pub fn bytes(&self) -> u64 {
        self.source
            .files()
            .unwrap_or_default()
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// A number that differs when the dataset does: names, sizes, times and both ends of all files.
    /// A change in the middle of a file that keeps its size and its time is not seen.
    pub fn fingerprint(&self) -> Result<String> {
        let mut files = self.source.files()?;
        files.sort();
        let mut sum = 0;
        for path in files {
            sum = crc32c::crc32c_append(sum, path.as_os_str().as_encoded_bytes());
            sum = crc32c::crc32c_append(sum, &crate::source::fingerprint(&path)?);
        }
        Ok(format!("{sum:08x}"))
    }

    fn ensure_episode(&self, at: usize) -> Result<()> {
        ensure!(at < self.len(), "episode", "expected 0 to {}, got {at}", self.len().saturating_sub(1));
        Ok(())
    }
}

impl Samples {
    /// All samples as numbers; pictures are decoded to `[samples, height, width, channels]`.
    pub fn numbers(&self, context: &Context<'_>) -> Result<Arc<Tensor>> {
        match &self.values {
            Values::Frames(frames) => frames.decode(0..frames.len(), context).map(Arc::new),
            Values::Numbers(tensor) => Ok(Arc::clone(tensor)),
            Values::Text(_) => Err(Error::invalid("stream", "it holds text, not numbers")),
        }
    }
}
