//! What every format is read as: episodes, each of several streams with their own clocks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::ops::resample::Method;
use robocache::{Context, DType, Error, Result, Tensor, did_you_mean, ensure};
use serde::{Deserialize, Serialize};

use crate::Limits;
use crate::findings::{Checked, Progress};
use crate::frames::Frames;
use crate::recording::Recording;

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

    /// The method of that name, which was given in an argument.
    pub fn from_name(argument: &'static str, name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            let meant = did_you_mean(name, known);
            Error::invalid(argument, format!("expected one of {}, got {name:?}{meant}", known.join(", ")))
        })
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

/// How a camera sees, and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Camera {
    /// The stream of its pictures.
    pub stream: String,
    /// Height and width that the intrinsics are for.
    pub size: [usize; 2],
    /// `[3, 3]`, row by row, in pixels.
    pub intrinsics: [f64; 9],
    /// What the distortion's numbers mean, such as "plumb_bob".
    pub distortion_model: String,
    /// As the model counts them.
    pub distortion: Vec<f64>,
    /// The frame of the camera.
    pub frame: String,
    /// The frame that it is fixed to, where transforms say so.
    pub base: Option<String>,
    /// `[4, 4]`, row by row: from the camera to that frame.
    pub extrinsics: Option<[f64; 16]>,
}

impl Camera {
    /// For pictures of another size.
    pub(crate) fn resized(mut self, height: usize, width: usize) -> Self {
        let [from_height, from_width] = self.size;
        if from_height > 0 && from_width > 0 && self.size != [height, width] {
            let (x, y) = (width as f64 / from_width as f64, height as f64 / from_height as f64);
            self.intrinsics[..3].iter_mut().for_each(|number| *number *= x);
            self.intrinsics[3..6].iter_mut().for_each(|number| *number *= y);
            self.size = [height, width];
        }
        self
    }
}

/// A format, as `formats.rs` lists it.
pub(crate) struct Format {
    /// What lies at a path of this format, as the error says that names all formats.
    pub(crate) looks_like: &'static str,
    /// Whether a path is of this format. A path that cannot be looked at is an error.
    pub(crate) recognises: fn(&Path) -> Result<bool>,
    /// Opens a path that was recognised, reading metadata only.
    pub(crate) open: fn(&Path, &Recording, &Limits) -> Result<Opened>,
}

/// A dataset that was opened.
pub(crate) struct Opened {
    pub(crate) source: Box<dyn Source>,
    /// Why it must not be used, where its metadata contradicts itself; it can still be checked.
    pub(crate) refusal: Option<Error>,
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
    /// The cameras whose calibration the source has.
    fn cameras(&self, _at: usize) -> Vec<Camera> {
        Vec::new()
    }
    /// The stamps of the main clock as the files have them, where they have any.
    fn recorded_times(&self, at: usize) -> Result<Option<Vec<i64>>>;
    /// Looks at everything; `progress` is told of every episode and can stop it.
    fn check(&self, progress: &Progress<'_>) -> Result<Checked>;
    /// Like `check`, but skips sample values; the reader validates those.
    fn check_but_numbers(&self, progress: &Progress<'_>) -> Result<Checked>;
    /// The files that the metadata speaks of, itself included, whether they exist or not.
    fn files(&self) -> Result<Vec<PathBuf>>;
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
