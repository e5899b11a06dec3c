//! Datasets, as Python sees them.

pub(crate) mod info;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{PyDict, PyList, PySlice, PyString};
use robocache::{Context, Error, ErrorKind, Tensor, shown_path};
use robocache_data::{Level, Limits, Progress, Recording, Samples, Values};

pub(crate) use self::info::{Camera, EpisodeInfo, Finding, StreamInfo, method};
use crate::{array, enter, errors, options, recording};

const _: () = assert!(Level::Error as u8 > Level::Warning as u8, "the worst first");

/// Tells the readers where the Python package imageio-ffmpeg keeps its program.
pub(crate) fn search_ffmpeg(py: Python<'_>) {
    static ONCE: PyOnceLock<()> = PyOnceLock::new();
    ONCE.get_or_init(py, || {
        let path = py.import("sys").and_then(|sys| sys.getattr("path")).and_then(|path| path.extract::<Vec<PathBuf>>());
        let folders = path.unwrap_or_default().into_iter().map(|site| site.join("imageio_ffmpeg/binaries"));
        robocache_data::search_ffmpeg_in(folders.filter(|folder| folder.is_dir()));
    });
}

/// How a pickle makes a dataset: a function and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (OsString, Option<Bound<'py, PyDict>>));

/// What errors call everything here.
const OP: &str = "dataset";

/// Engine work of a dataset, whose errors say so.
fn engine<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Fn() -> bool) -> robocache::Result<T> + Send) -> PyResult<T> {
    enter::engine(py, |interrupt| work(interrupt).map_err(|error| error.op(OP)))
}

fn to_python(py: Python<'_>, error: Error) -> PyErr {
    errors::to_python(py, &error.op(OP))
}

/// A whole number from Python; one that no machine holds is refused as any other.
fn integer(number: &Bound<'_, PyAny>, argument: &'static str) -> PyResult<i64> {
    number.extract().map_err(|_| {
        let text = number.repr().map_or_else(|_| "something else".to_owned(), |text| text.to_string());
        let text: String = text.chars().take(40).collect();
        to_python(number.py(), Error::invalid(argument, format!("expected a whole number, got {text}")))
    })
}

/// Opens a dataset that lies at a path.
#[pyfunction]
#[pyo3(signature = (path, recording=None))]
pub(crate) fn open_dataset(py: Python<'_>, path: PathBuf, recording: Option<Bound<'_, PyDict>>) -> PyResult<Dataset> {
    search_ffmpeg(py);
    let recording = recording::from_python(recording.as_ref()).map_err(|error| to_python(py, error))?;
    let inner = engine(py, |_| robocache_data::Dataset::open_recording(&path, &recording, &Limits::default()))?;
    Ok(Dataset { inner: Arc::new(inner), path, recording })
}

/// Recordings of a robot: episodes, each of several streams with their own clocks.
///
/// Opening reads the metadata only; it can be shared between threads. Made by `rc.dataset`.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Dataset {
    inner: Arc<robocache_data::Dataset>,
    path: PathBuf,
    recording: Recording,
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
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// A pickle opens the dataset anew, by its path.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("robocache._core")?.getattr("open_dataset")?;
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        Ok((open, (path.into_os_string(), recording::to_python(py, &self.recording)?)))
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
    fn episode(&self, py: Python<'_>, at: &Bound<'_, PyAny>) -> PyResult<Episode> {
        let (at, count) = (integer(at, "episode")?, self.inner.len());
        let place = isize::try_from(at).ok().and_then(|at| place(at, count)).ok_or_else(|| {
            let text = match count {
                0 => format!("there are none, got {at}"),
                count => format!("expected -{count} to {}, got {at}", count - 1),
            };
            to_python(py, Error::invalid("episode", text).path(&self.path))
        })?;
        let info = self.inner.episode(place).map_err(|error| to_python(py, error))?;
        Ok(Episode { inner: Arc::clone(&self.inner), place, info })
    }

    /// Looks at everything, also at what cannot be opened; returns findings, the worst first.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        check(py, &self.path, &self.recording)
    }

    fn __repr__(&self) -> String {
        let (format, episodes, streams) = (self.inner.format(), self.inner.len(), self.inner.streams().len());
        format!("<{format}: {episodes} episodes, {streams} streams ({})>", shown_path(&self.path))
    }
}

/// A place from the front, or from the end where it is negative.
pub(crate) fn place(at: isize, length: usize) -> Option<usize> {
    let at = if at < 0 { length.checked_sub(at.unsigned_abs())? } else { at.unsigned_abs() };
    (at < length).then_some(at)
}

fn check(py: Python<'_>, path: &Path, recording: &Recording) -> PyResult<Vec<Finding>> {
    let mut findings = enter::threads(py, |stop| {
        let interrupted = || stop.load(Ordering::Relaxed);
        let progress = Progress { interrupted: &interrupted, ..Progress::default() };
        robocache_data::Dataset::open_and_check(path, recording, &Limits::default(), &progress)
            .map(|(findings, _)| findings)
            .map_err(|error| error.op("check"))
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

    /// One by its place, or a list of those in a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.inner.len();
        if let Ok(slice) = at.cast::<PySlice>() {
            let length = isize::try_from(count).unwrap_or(isize::MAX);
            let PySliceIndices { start, step, slicelength, .. } = slice.indices(length)?;
            let places = (0..slicelength).map(|nth| isize::try_from(nth).map_or(0, |nth| start + nth * step));
            let episodes = places.map(|at| self.at(py, at)).collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, episodes)?.into_any());
        }
        // Numbers that no machine holds are out of range too.
        let at = at
            .extract::<isize>()
            .or_else(|error| if error.is_instance_of::<PyOverflowError>(py) { Ok(isize::MAX) } else { Err(error) })?;
        Ok(Bound::new(py, self.at(py, at)?)?.into_any())
    }
}

impl Episodes {
    fn at(&self, py: Python<'_>, at: isize) -> PyResult<EpisodeInfo> {
        let place = place(at, self.inner.len()).ok_or_else(|| PyIndexError::new_err("episode out of range"))?;
        let info = self.inner.episode(place).map_err(|error| to_python(py, error))?;
        Ok(EpisodeInfo { info })
    }
}

/// An episode of a dataset: a mapping from names to streams, which are read when asked for.
///
/// A name that is not there raises `InvalidArgument`, which here is a `KeyError` too.
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

    fn __getitem__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Stream> {
        match self.find(name) {
            Ok(stream) => Ok(self.stream(stream)),
            Err(error) if error.kind() == ErrorKind::InvalidArgument => Err(errors::unknown_key(py, &error.op(OP))),
            // A stream that is left out says why.
            Err(error) => Err(to_python(py, error)),
        }
    }

    /// The calibration of a camera, by the name of its stream: intrinsics, and extrinsics where it is fixed.
    fn camera(&self, py: Python<'_>, name: &str) -> PyResult<Camera> {
        let cameras = self.inner.cameras(self.place).map_err(|error| to_python(py, error))?;
        info::camera(py, cameras, name)
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
        let names = PyList::new(py, self.inner.streams().iter().map(|info| &info.name))?;
        names.call_method0("__iter__")
    }

    fn __repr__(&self) -> String {
        format!("<episode {}: {} samples, {:.2} s>", self.info.index, self.info.length, self.info.duration)
    }
}

impl Episode {
    fn find(&self, name: &Bound<'_, PyString>) -> robocache::Result<usize> {
        self.inner.stream(&options::key(name)?)
    }

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
        let missing = || to_python(py, Error::invalid("stream", "there is no such stream"));
        Ok(StreamInfo { info: info.ok_or_else(missing)? })
    }

    /// Stamps of the samples in nanoseconds, `[S]`.
    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let times = &self.samples(py)?.times;
        let tensor = Tensor::from_slice(times, &[times.len()]).map_err(|error| to_python(py, error))?;
        array::from_tensor(py, Arc::new(tensor))
    }

    /// The samples: `[S, ...]`, pictures decoded to uint8 `[S,H,W,C]` (depth: uint16), text as a list.
    ///
    /// Numbers are kept for the next look and shared, so that their array cannot be written to:
    /// take a `.copy()` to change it, or to give it to `torch.from_numpy`, which warns of arrays that
    /// it cannot protect. Pictures are decoded anew for each look, into an array of your own.
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
                return array::from_tensor(py, engine(py, read)?);
            }
            Values::Numbers(tensor) => array::from_shared(py, tensor)?,
        };
        Ok(self.values.get_or_init(py, || values.unbind()).bind(py).clone())
    }

    /// Some of the pictures of a stream, decoded: uint8 `[stop - start,H,W,C]` (depth: uint16).
    fn frames<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'py, PyAny>,
        stop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (start, stop) = (integer(start, "start")?, integer(stop, "stop")?);
        let Values::Frames(frames) = &self.samples(py)?.values else {
            let error = Error::new(ErrorKind::InvalidArgument, "the stream has no pictures; use .values");
            return Err(to_python(py, error));
        };
        let count = frames.len();
        let end = |number: i64| usize::try_from(number).ok().filter(|number| *number <= count);
        let Some((start, stop)) = end(start).zip(end(stop)).filter(|(start, stop)| start <= stop) else {
            let text = format!("expected 0 <= start <= stop <= {count}, got {start} and {stop}");
            return Err(to_python(py, Error::invalid("frames", text)));
        };
        let place = self.place();
        let read = |interrupt: &dyn Fn() -> bool| {
            let context = Context { interrupt: Some(interrupt), ..Context::default() };
            frames.decode(start..stop, &context).map_err(|error| error.while_doing(place))
        };
        array::from_tensor(py, Arc::new(engine(py, read)?))
    }

    fn __repr__(&self) -> String {
        let index = self.inner.episode(self.episode).map_or(0, |info| info.index);
        let text = self.inner.streams().get(self.stream).map(|info| {
            let dtype = info.dtype.map_or("string", |dtype| dtype.name());
            format!("{} {}: {dtype} {:?}", info.kind.name(), info.name, info.shape)
        });
        format!("<{} of episode {index}>", text.unwrap_or_default())
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
        let mut read = engine(py, |_| self.inner.read(self.episode, &[self.stream]))?;
        let missing = || to_python(py, Error::invalid("stream", "there is no such stream"));
        let samples = read.pop().ok_or_else(missing)?;
        Ok(self.samples.get_or_init(py, || samples))
    }

    fn place(&self) -> String {
        let name = self.inner.streams().get(self.stream).map(|info| info.name.as_str()).unwrap_or_default();
        let index = self.inner.episode(self.episode).map_or(0, |info| info.index);
        format!("decoding {name} of episode {index}")
    }
}
