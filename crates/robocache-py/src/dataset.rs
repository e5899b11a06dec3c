//! Datasets, as Python sees them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use robocache::{Context, Error, ErrorKind, Tensor};
use robocache_data::{Level, Limits, Progress, Samples, Span, Values};

use crate::{array, enter, errors};

/// Tells the readers where the Python package imageio-ffmpeg keeps its program.
pub(crate) fn search_ffmpeg(py: Python<'_>) {
    static ONCE: PyOnceLock<()> = PyOnceLock::new();
    ONCE.get_or_init(py, || {
        let path = py.import("sys").and_then(|sys| sys.getattr("path")).and_then(|path| path.extract::<Vec<PathBuf>>());
        let folders = path.unwrap_or_default().into_iter().map(|site| site.join("imageio_ffmpeg/binaries"));
        robocache_data::search_ffmpeg_in(folders.filter(|folder| folder.is_dir()));
    });
}

/// Opens a dataset that lies at a path.
#[pyfunction]
pub(crate) fn open_dataset(py: Python<'_>, path: PathBuf) -> PyResult<Dataset> {
    search_ffmpeg(py);
    let inner = enter::engine(py, |_| robocache_data::Dataset::open(&path, &Limits::default()))?;
    Ok(Dataset { inner: Arc::new(inner), path })
}

/// Recordings of a robot: episodes, each of several streams with their own clocks.
///
/// Opening reads the metadata only; it can be shared between threads. Made by `rc.dataset`.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Dataset {
    inner: Arc<robocache_data::Dataset>,
    path: PathBuf,
}

#[pymethods]
impl Dataset {
    /// Format and version, such as "lerobot v3.0".
    #[getter]
    fn format(&self) -> String {
        self.inner.format()
    }

    /// Where it lies.
    #[getter]
    fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Samples per second of the main clock; None where there is none.
    #[getter]
    fn fps(&self) -> Option<f64> {
        self.inner.rate()
    }

    /// All tasks, by their number.
    #[getter]
    fn tasks(&self) -> Vec<String> {
        self.inner.tasks().to_vec()
    }

    /// All streams by their names, in the dataset's order.
    #[getter]
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let streams = PyDict::new(py);
        for info in self.inner.streams() {
            streams.set_item(&info.name, StreamInfo { info: info.clone() })?;
        }
        Ok(streams)
    }

    /// All episodes, as the metadata tells of them.
    #[getter]
    fn episodes(&self) -> Episodes {
        Episodes { inner: Arc::clone(&self.inner) }
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// An episode by its place; negative ones count from the end.
    fn episode(&self, py: Python<'_>, at: isize) -> PyResult<Episode> {
        let place = place(at, self.inner.len()).ok_or_else(|| {
            let text = format!("expected -{0} to {1}, got {at}", self.inner.len(), self.inner.len().saturating_sub(1));
            errors::to_python(py, &Error::invalid("episode", text).path(&self.path))
        })?;
        let info = self.inner.episode(place).map_err(|error| errors::to_python(py, &error))?;
        Ok(Episode { inner: Arc::clone(&self.inner), place, info })
    }

    /// Looks at everything, also at what cannot be opened; returns findings, the worst first.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        check(py, &self.path)
    }

    fn __repr__(&self) -> String {
        let (format, episodes, streams) = (self.inner.format(), self.inner.len(), self.inner.streams().len());
        format!("<{format}: {episodes} episodes, {streams} streams ({})>", self.path.display())
    }
}

/// A place from the front, or from the end where it is negative.
pub(crate) fn place(at: isize, length: usize) -> Option<usize> {
    let at = if at < 0 { length.checked_sub(at.unsigned_abs())? } else { at.unsigned_abs() };
    (at < length).then_some(at)
}

fn check(py: Python<'_>, path: &Path) -> PyResult<Vec<Finding>> {
    let mut findings = enter::threads(py, |stop| {
        let interrupted = || stop.load(Ordering::Relaxed);
        let progress = Progress { interrupted: &interrupted, ..Progress::default() };
        robocache_data::Dataset::check(path, &Limits::default(), &progress)
    })?;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    Ok(findings.into_iter().map(|finding| Finding { finding }).collect())
}

/// The episodes of a dataset, a sequence.
#[pyclass(frozen, sequence, module = "robocache")]
pub(crate) struct Episodes {
    inner: Arc<robocache_data::Dataset>,
}

#[pymethods]
impl Episodes {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __getitem__(&self, py: Python<'_>, at: isize) -> PyResult<EpisodeInfo> {
        let place = place(at, self.inner.len()).ok_or_else(|| PyIndexError::new_err("episode out of range"))?;
        let info = self.inner.episode(place).map_err(|error| errors::to_python(py, &error))?;
        Ok(EpisodeInfo { info })
    }
}

/// What the metadata tells of an episode.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct EpisodeInfo {
    info: robocache_data::EpisodeInfo,
}

#[pymethods]
impl EpisodeInfo {
    /// Its number in the dataset.
    #[getter]
    fn index(&self) -> u64 {
        self.info.index
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

    fn __repr__(&self) -> String {
        format!("<episode {}: {} samples, {:.2} s>", self.info.index, self.info.length, self.info.duration)
    }
}

/// An episode of a dataset; its streams are read when asked for.
#[pyclass(frozen, mapping, module = "robocache")]
pub(crate) struct Episode {
    inner: Arc<robocache_data::Dataset>,
    place: usize,
    info: robocache_data::EpisodeInfo,
}

#[pymethods]
impl Episode {
    /// Its number in the dataset.
    #[getter]
    fn index(&self) -> u64 {
        self.info.index
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

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Stream> {
        let stream = self.inner.stream(name).map_err(|error| errors::to_python(py, &error))?;
        Ok(self.stream(stream))
    }

    fn __len__(&self) -> usize {
        self.inner.streams().len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.inner.stream(name).is_ok()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = PyList::new(py, self.inner.streams().iter().map(|info| &info.name))?;
        names.call_method0("__iter__")
    }

    fn __repr__(&self) -> String {
        format!("<episode {}: {} samples, {:.2} s>", self.info.index, self.info.length, self.info.duration)
    }
}

impl Episode {
    fn stream(&self, stream: usize) -> Stream {
        let inner = Arc::clone(&self.inner);
        Stream { inner, episode: self.place, stream, samples: PyOnceLock::new(), values: PyOnceLock::new() }
    }
}

/// One stream of one episode; read at the first look.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Stream {
    inner: Arc<robocache_data::Dataset>,
    episode: usize,
    stream: usize,
    samples: PyOnceLock<Samples>,
    values: PyOnceLock<Py<PyAny>>,
}

#[pymethods]
impl Stream {
    /// What the dataset says of the stream.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<StreamInfo> {
        let info = self.inner.streams().get(self.stream).cloned();
        let missing = || errors::to_python(py, &Error::invalid("stream", "there is no such stream"));
        Ok(StreamInfo { info: info.ok_or_else(missing)? })
    }

    /// Stamps of the samples in nanoseconds, `[S]`.
    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let times = &self.samples(py)?.times;
        let tensor = Tensor::from_slice(times, &[times.len()]).map_err(|error| errors::to_python(py, &error))?;
        array::from_tensor(py, Arc::new(tensor))
    }

    /// The samples: `[S, ...]`, pictures decoded to uint8 `[S,H,W,C]`, text as a list.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(values) = self.values.get(py) {
            return Ok(values.bind(py).clone());
        }
        let samples = self.samples(py)?;
        let values = match &samples.values {
            Values::Text(texts) => PyList::new(py, texts.iter())?.into_any(),
            Values::Frames(_) => {
                let place = self.place();
                let read = |interrupt: &dyn Fn() -> bool| {
                    let context = Context { interrupt: Some(interrupt), ..Context::default() };
                    samples.numbers(&context).map_err(|error| error.while_doing(place))
                };
                // Pictures are large: they are decoded anew rather than kept.
                return array::from_tensor(py, enter::engine(py, read)?);
            }
            Values::Numbers(tensor) => array::from_tensor(py, Arc::clone(tensor))?,
        };
        Ok(self.values.get_or_init(py, || values.unbind()).bind(py).clone())
    }

    /// Some of the pictures of a stream, decoded: uint8 `[stop - start,H,W,C]`.
    fn frames<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyAny>> {
        let Values::Frames(frames) = &self.samples(py)?.values else {
            let error = Error::new(ErrorKind::InvalidArgument, "the stream has no pictures; use .values");
            return Err(errors::to_python(py, &error));
        };
        let place = self.place();
        let read = |interrupt: &dyn Fn() -> bool| {
            let context = Context { interrupt: Some(interrupt), ..Context::default() };
            frames.decode(start..stop, &context).map_err(|error| error.while_doing(place))
        };
        array::from_tensor(py, Arc::new(enter::engine(py, read)?))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.samples(py)?.times.len())
    }
}

impl Stream {
    fn samples<'a>(&'a self, py: Python<'a>) -> PyResult<&'a Samples> {
        if let Some(samples) = self.samples.get(py) {
            return Ok(samples);
        }
        let mut read = enter::engine(py, |_| self.inner.read(self.episode, &[self.stream]))?;
        let missing = || errors::to_python(py, &Error::invalid("stream", "there is no such stream"));
        let samples = read.pop().ok_or_else(missing)?;
        Ok(self.samples.get_or_init(py, || samples))
    }

    fn place(&self) -> String {
        let name = self.inner.streams().get(self.stream).map(|info| info.name.as_str()).unwrap_or_default();
        let index = self.inner.episode(self.episode).map_or(0, |info| info.index);
        format!("decoding {name} of episode {index}")
    }
}

/// A method's name, or ranges of columns.
pub(crate) fn method<'py>(py: Python<'py>, spans: &[Span]) -> PyResult<Bound<'py, PyAny>> {
    let span = |span: &Span| (span.method.name(), span.start, span.end);
    match spans {
        [all] => Ok(all.method.name().into_pyobject(py)?.into_any()),
        spans => Ok(PyList::new(py, spans.iter().map(span))?.into_any()),
    }
}

/// What a dataset says of a stream.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct StreamInfo {
    info: robocache_data::StreamInfo,
}

#[pymethods]
impl StreamInfo {
    /// Its name in the dataset.
    #[getter]
    fn name(&self) -> &str {
        &self.info.name
    }

    /// "scalar", "vector", "image", "video", "depth", "point_cloud" or "text".
    #[getter]
    fn kind(&self) -> &'static str {
        self.info.kind.name()
    }

    /// NumPy's name of the type; "string" for text.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.info.dtype.map_or("string", |dtype| dtype.name())
    }

    /// Shape of one sample; pictures are `(height, width, channels)`.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.info.shape)
    }

    /// Names of the components; None where the dataset has none.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        self.info.names.clone()
    }

    /// Samples per second as the dataset declares them.
    #[getter]
    fn rate(&self) -> Option<f64> {
        self.info.rate
    }

    /// How values between samples are made: a name, or `(name, start, end)` for ranges of columns.
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        method(py, &self.info.method)
    }

    fn __repr__(&self) -> String {
        format!("<{} {}: {} {:?}>", self.info.kind.name(), self.info.name, self.dtype(), self.info.shape)
    }
}

/// Something that a check found.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Finding {
    finding: robocache_data::Finding,
}

#[pymethods]
impl Finding {
    /// "error", "warning" or "note".
    #[getter]
    fn level(&self) -> &'static str {
        self.finding.level.name()
    }

    /// A stable name of what it is.
    #[getter]
    fn code(&self) -> &'static str {
        self.finding.code
    }

    /// Episode, stream and file, in words.
    #[getter]
    fn r#where(&self) -> String {
        self.finding.place()
    }

    /// The number of the episode.
    #[getter]
    fn episode(&self) -> Option<u64> {
        self.finding.episode
    }

    /// The name of the stream.
    #[getter]
    fn stream(&self) -> Option<&str> {
        self.finding.stream.as_deref()
    }

    /// What was expected, what came.
    #[getter]
    fn message(&self) -> &str {
        &self.finding.message
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.finding)
    }
}

const _: () = assert!(Level::Error as u8 > Level::Warning as u8, "the worst first");
