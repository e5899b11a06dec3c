//! Caches, as Python sees them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use robocache::{DType, Error, Result, Tensor, shown_path};
use robocache_data::cache::{self as data, CachedStream, Choice, Encoding, Images, IngestOptions, Summary};
use robocache_data::{Limits, Progress};

use crate::dataset::{Camera, info, place, search_ffmpeg};
use crate::options::spans;
use crate::{array, enter, errors, options};

/// A cache, opened to be read. Made by `rc.open`.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Cache {
    pub(crate) inner: Arc<data::Cache>,
}

/// Opens a cache.
#[pyfunction]
pub(crate) fn open_cache(py: Python<'_>, path: PathBuf) -> PyResult<Cache> {
    let inner = enter::engine(py, |_| data::Cache::open(&path).map_err(|error| error.op("open")))?;
    Ok(Cache { inner: Arc::new(inner) })
}

#[pymethods]
impl Cache {
    /// Where it lies.
    #[getter]
    fn path(&self) -> &OsStr {
        self.inner.path().as_os_str()
    }

    /// Whether everything that was planned is there.
    #[getter]
    fn complete(&self) -> bool {
        self.inner.is_complete()
    }

    /// All streams by their names.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let streams = PyDict::new(py);
        for stream in self.inner.streams() {
            streams.set_item(&stream.name, CacheStreamInfo { stream: stream.clone() })?;
        }
        Ok(streams)
    }

    /// Where its episodes come from: a dict for each source.
    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let sources = PyList::empty(py);
        for source in self.inner.sources() {
            let dict = PyDict::new(py);
            dict.set_item("path", source.path.as_os_str())?;
            dict.set_item("format", &source.format)?;
            dict.set_item("tag", &source.tag)?;
            dict.set_item("fps", source.rate)?;
            dict.set_item("episodes", source.episodes)?;
            dict.set_item("tasks", &source.tasks)?;
            sources.append(dict)?;
        }
        Ok(sources)
    }

    /// Episodes that could not be taken, with the reason.
    #[getter]
    fn skipped(&self) -> Vec<(String, u64, String)> {
        skipped(&self.inner)
    }

    /// Numbers about each stream, as nested dicts of lists.
    fn raw_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, self.inner.stats())
    }

    /// All episodes, as the index tells of them.
    #[getter]
    fn episodes(&self) -> CacheEpisodes {
        CacheEpisodes { inner: Arc::clone(&self.inner) }
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// An episode by its place; negative ones count from the end.
    fn episode(&self, py: Python<'_>, at: isize) -> PyResult<CacheEpisode> {
        let length = self.inner.len();
        let place = place(at, length).ok_or_else(|| {
            let text = format!("expected -{length} to {}, got {at}", length.saturating_sub(1));
            errors::to_python(py, &Error::invalid("episode", text))
        })?;
        CacheEpisode::new(py, &self.inner, place)
    }

    fn __repr__(&self) -> String {
        let (episodes, streams) = (self.inner.len(), self.inner.streams().len());
        format!("<cache: {episodes} episodes, {streams} streams ({})>", shown_path(self.inner.path()))
    }
}

fn skipped(cache: &data::Cache) -> Vec<(String, u64, String)> {
    let tag = |source: usize| cache.sources().get(source).map(|source| source.tag.clone()).unwrap_or_default();
    cache.skipped().iter().map(|skip| (tag(skip.source), skip.episode, skip.reason.clone())).collect()
}

pub(crate) fn stats_dict<'py, 's, N: AsRef<str>>(
    py: Python<'py>,
    stats: impl IntoIterator<Item = (N, &'s Summary)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, summary) in stats {
        dict.set_item(name.as_ref(), summary_dict(py, summary)?)?;
    }
    Ok(dict)
}

fn summary_dict<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let Summary { min, max, mean, std, q01, q10, q50, q90, q99, .. } = summary;
    let columns = [
        ("min", min),
        ("max", max),
        ("mean", mean),
        ("std", std),
        ("q01", q01),
        ("q10", q10),
        ("q50", q50),
        ("q90", q90),
        ("q99", q99),
    ];
    for (name, values) in columns {
        dict.set_item(name, values)?;
    }
    dict.set_item("count", vec![summary.count])?;
    Ok(dict)
}

/// The episodes of a cache, a sequence.
#[pyclass(frozen, sequence, module = "robocache")]
pub(crate) struct CacheEpisodes {
    inner: Arc<data::Cache>,
}

#[pymethods]
impl CacheEpisodes {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __getitem__(&self, py: Python<'_>, at: isize) -> PyResult<CacheEpisode> {
        let place = place(at, self.inner.len()).ok_or_else(|| PyIndexError::new_err("episode out of range"))?;
        CacheEpisode::new(py, &self.inner, place)
    }

    fn __repr__(&self) -> String {
        format!("<{} episodes of {}>", self.inner.len(), shown_path(self.inner.path()))
    }
}

/// An episode of a cache: a mapping from names to streams, which are read when asked for.
///
/// A name that is not there raises `InvalidArgument`, which here is a `KeyError` too.
#[pyclass(frozen, mapping, module = "robocache")]
pub(crate) struct CacheEpisode {
    inner: Arc<data::Cache>,
    place: usize,
    info: data::CachedEpisode,
}

impl CacheEpisode {
    fn new(py: Python<'_>, inner: &Arc<data::Cache>, place: usize) -> PyResult<Self> {
        let info = inner.episode(place).map_err(|error| errors::to_python(py, &error))?;
        Ok(Self { inner: Arc::clone(inner), place, info })
    }

    fn find(&self, name: &Bound<'_, PyString>) -> Result<usize> {
        self.inner.stream(&options::key(name)?)
    }

    fn stream(&self, stream: usize) -> CacheStream {
        CacheStream { inner: Arc::clone(&self.inner), episode: self.place, stream }
    }
}

#[pymethods]
impl CacheEpisode {
    /// The calibration of a camera, by the name of its stream: intrinsics, and extrinsics where it is fixed.
    fn camera(&self, py: Python<'_>, name: &str) -> PyResult<Camera> {
        let cameras = self.inner.cameras(self.place).map_err(|error| errors::to_python(py, &error))?;
        info::camera(py, cameras, name)
    }

    /// Its number in its source.
    #[getter]
    fn index(&self) -> u64 {
        self.info.index
    }

    /// Its source's number.
    #[getter]
    fn source(&self) -> usize {
        self.info.source
    }

    /// How many samples it has.
    #[getter]
    fn length(&self) -> u64 {
        self.info.length
    }

    /// What the robot was told to do.
    #[getter]
    fn tasks(&self) -> Vec<String> {
        self.info.tasks.clone()
    }

    /// Seconds from its start to its end.
    #[getter]
    fn duration(&self) -> f64 {
        self.info.duration
    }

    /// Its streams by name, not read yet.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let streams = PyDict::new(py);
        for (stream, info) in self.inner.streams().iter().enumerate() {
            streams.set_item(&info.name, self.stream(stream))?;
        }
        Ok(streams)
    }

    fn __getitem__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<CacheStream> {
        let stream = self.find(name).map_err(|error| errors::unknown_key(py, &error))?;
        Ok(self.stream(stream))
    }

    /// A stream by its name, or `default` where there is none.
    #[pyo3(signature = (name, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(name) {
            Ok(stream) => Ok(Some(Bound::new(py, self.stream(stream))?.into_any())),
            Err(_) => Ok(default),
        }
    }

    /// The names of the streams.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.streams(py)?.call_method0("keys")
    }

    /// The streams.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.streams(py)?.call_method0("values")
    }

    /// Names and streams.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.streams(py)?.call_method0("items")
    }

    fn __len__(&self) -> usize {
        self.inner.streams().len()
    }

    fn __contains__(&self, name: &Bound<'_, PyString>) -> bool {
        self.find(name).is_ok()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = PyList::new(py, self.inner.streams().iter().map(|stream| &stream.name))?;
        names.call_method0("__iter__")
    }

    fn __repr__(&self) -> String {
        format!("<episode {}: {} samples, {:.2} s>", self.info.index, self.info.length, self.info.duration)
    }
}

/// One stream of one episode of a cache.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct CacheStream {
    inner: Arc<data::Cache>,
    episode: usize,
    stream: usize,
}

#[pymethods]
impl CacheStream {
    /// Stamps of the samples in nanoseconds, `[S]`.
    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = enter::engine(py, |_| {
            let times = self.inner.times(self.episode, self.stream)?;
            Tensor::from_slice(&times, &[times.len()])
        })?;
        array::from_tensor(py, Arc::new(tensor))
    }

    /// The samples: `[S, ...]`, bfloat16 as float32, pictures decoded to uint8 `[S,H,W,C]`, text as a list.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (at, stream) = (self.episode, self.stream);
        let encoding = self.inner.streams().get(stream).map_or(Encoding::Raw, |stream| stream.encoding);
        let tensor = match encoding {
            Encoding::Raw => enter::engine(py, |_| self.inner.wide_numbers(at, stream))?,
            Encoding::Jpeg => enter::engine(py, |_| {
                let count = self.inner.times(at, stream)?.len();
                self.inner.pictures(at, stream, 0..count)
            })?,
            Encoding::Text => {
                let texts = enter::engine(py, |_| {
                    let count = self.inner.times(at, stream)?.len();
                    let text = |sample| Ok(String::from_utf8_lossy(self.inner.item(at, stream, sample)?).into_owned());
                    (0..count).map(text).collect::<Result<Vec<_>>>()
                })?;
                return Ok(PyList::new(py, texts)?.into_any());
            }
        };
        array::from_tensor(py, Arc::new(tensor))
    }

    fn __repr__(&self) -> String {
        let episode = self.inner.episode(self.episode).map_or(0, |info| info.index);
        format!("<{} of episode {episode}>", self.inner.streams().get(self.stream).map(shown).unwrap_or_default())
    }
}

fn shown(stream: &CachedStream) -> String {
    format!("{} {}: {} {:?}", stream.kind.name(), stream.name, stream.dtype, stream.shape)
}

/// What a cache says of a stream.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct CacheStreamInfo {
    stream: CachedStream,
}

#[pymethods]
impl CacheStreamInfo {
    /// Its name in the cache.
    #[getter]
    fn name(&self) -> &str {
        &self.stream.name
    }

    /// "scalar", "vector", "image", "video", "depth", "point_cloud" or "text".
    #[getter]
    fn kind(&self) -> &'static str {
        self.stream.kind.name()
    }

    /// NumPy's name of the type; "string" for text.
    #[getter]
    fn dtype(&self) -> &str {
        &self.stream.dtype
    }

    /// Shape of one sample; pictures are `(height, width, channels)`.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.stream.shape)
    }

    /// Names of the components; None where there are none.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        self.stream.names.clone()
    }

    /// Samples per second as the source declared them.
    #[getter]
    fn rate(&self) -> Option<f64> {
        self.stream.rate
    }

    /// "raw", "jpeg" or "text".
    #[getter]
    fn encoding(&self) -> &'static str {
        match self.stream.encoding {
            Encoding::Raw => "raw",
            Encoding::Jpeg => "jpeg",
            Encoding::Text => "text",
        }
    }

    /// How values between samples are made: a name, or `(name, start, end)` for ranges of columns.
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::dataset::method(py, &self.stream.method)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", shown(&self.stream))
    }
}

/// A stream that is wanted: its name, its new name, its new type.
type Wish = (String, Option<String>, Option<String>);

/// Makes a cache of a dataset; see `rc.ingest`.
#[pyfunction]
#[pyo3(signature = (source, out, streams, methods, images, image_size, quality, strict, workers, tag, recording, step))]
#[expect(clippy::too_many_arguments, reason = "the keywords of rc.ingest")]
pub(crate) fn ingest_dataset<'py>(
    py: Python<'py>,
    source: PathBuf,
    out: PathBuf,
    streams: Option<Vec<Wish>>,
    methods: Vec<(String, Bound<'py, PyAny>)>,
    images: &str,
    image_size: Option<(usize, usize)>,
    quality: u8,
    strict: bool,
    workers: Option<usize>,
    tag: Option<String>,
    recording: Option<Bound<'py, PyDict>>,
    step: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    search_ffmpeg(py);
    let build = || -> Result<IngestOptions> {
        Ok(IngestOptions {
            streams: streams.map(|streams| streams.into_iter().map(choice).collect()).transpose()?,
            methods: methods.iter().map(|(name, method)| Ok((name.clone(), spans(method)?))).collect::<Result<_>>()?,
            images: match images {
                "jpeg" => Images::Jpeg,
                "raw" => Images::Raw,
                "skip" => Images::Skip,
                other => {
                    let text = format!("expected \"jpeg\", \"raw\" or \"skip\", got {other:?}");
                    return Err(Error::invalid("images", text));
                }
            },
            image_size,
            quality,
            strict,
            workers,
            tag,
            unit_frames: None,
            recording: crate::recording::from_python(recording.as_ref())?,
        })
    };
    let ingest_options = build().map_err(|error| errors::to_python(py, &error.op("ingest")))?;
    let (done, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let report = enter::threads_with(
        py,
        |stop| {
            let interrupted = || stop.load(Ordering::Relaxed);
            let note = |so_far: usize, all: usize| {
                done.fetch_max(so_far, Ordering::Relaxed);
                total.store(all, Ordering::Relaxed);
            };
            let progress = Progress { step: &note, interrupted: &interrupted };
            data::ingest(&source, &out, &ingest_options, &Limits::default(), &progress)
                .map_err(|error| error.op("ingest"))
        },
        || match &step {
            Some(step) => step.call1((done.load(Ordering::Relaxed), total.load(Ordering::Relaxed))).map(|_| ()),
            None => Ok(()),
        },
    )?;
    let dict = PyDict::new(py);
    dict.set_item("episodes", report.episodes)?;
    dict.set_item("frames", report.frames)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("units_before", report.units_before)?;
    dict.set_item("units_done", report.units_done)?;
    let skipped: Vec<_> = report.skipped.iter().map(|skip| (skip.episode, skip.reason.clone())).collect();
    dict.set_item("skipped", skipped)?;
    dict.set_item("missing", report.missing)?;
    Ok(dict)
}

fn choice((from, to, dtype): Wish) -> Result<Choice> {
    let find = |name: String| {
        let known = DType::ALL.iter().copied().find(|dtype| dtype.name() == name);
        known.ok_or_else(|| Error::invalid("streams", format!("{from:?}: {name:?} is not a dtype")))
    };
    let dtype = dtype.map(find).transpose()?;
    Ok(Choice { from, to, dtype })
}
