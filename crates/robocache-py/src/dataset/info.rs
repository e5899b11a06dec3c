//! What datasets say of their episodes and streams, and what checks find.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use robocache_data::Span;

/// What the metadata tells of an episode.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct EpisodeInfo {
    pub(super) info: robocache_data::EpisodeInfo,
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
    pub(super) info: robocache_data::StreamInfo,
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
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.info.shape)
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
    pub(super) finding: robocache_data::Finding,
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
