//! What datasets say of their episodes and streams, and what checks find.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use robocache::{Error, Tensor};
use robocache_data::Span;

use crate::{array, errors};

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

/// How a camera sees, and where it is.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Camera {
    pub(crate) camera: robocache_data::Camera,
}

#[pymethods]
impl Camera {
    /// The stream of its pictures.
    #[getter]
    fn stream(&self) -> &str {
        &self.camera.stream
    }

    /// Height and width that the intrinsics are for.
    #[getter]
    fn size(&self) -> (usize, usize) {
        self.camera.size.into()
    }

    /// `[3, 3]`, in pixels.
    #[getter]
    fn intrinsics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        matrix(py, &self.camera.intrinsics, &[3, 3])
    }

    /// `[4, 4]`, from the camera to the frame `base`; None where no fixed transforms lead there.
    #[getter]
    fn extrinsics<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.camera.extrinsics.as_ref().map(|numbers| matrix(py, numbers, &[4, 4])).transpose()
    }

    /// What the numbers of the distortion mean, such as "plumb_bob".
    #[getter]
    fn distortion_model(&self) -> &str {
        &self.camera.distortion_model
    }

    /// The distortion, as its model counts.
    #[getter]
    fn distortion(&self) -> Vec<f64> {
        self.camera.distortion.clone()
    }

    /// The frame of the camera.
    #[getter]
    fn frame(&self) -> &str {
        &self.camera.frame
    }

    /// The frame that the camera is fixed to.
    #[getter]
    fn base(&self) -> Option<&str> {
        self.camera.base.as_deref()
    }

    fn __repr__(&self) -> String {
        let [height, width] = self.camera.size;
        format!("<camera of {}: {width} x {height}>", self.camera.stream)
    }
}

fn matrix<'py>(py: Python<'py>, numbers: &[f64], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let tensor = Tensor::from_slice(numbers, shape).map_err(|error| errors::to_python(py, &error))?;
    array::from_tensor(py, Arc::new(tensor))
}

/// The camera of a stream, among those of an episode.
pub(crate) fn camera(py: Python<'_>, cameras: Vec<robocache_data::Camera>, name: &str) -> PyResult<Camera> {
    let names: Vec<String> = cameras.iter().map(|camera| camera.stream.clone()).collect();
    let found = cameras.into_iter().find(|camera| camera.stream == name);
    found.map(|camera| Camera { camera }).ok_or_else(|| {
        let names = names.iter().map(String::as_str);
        errors::unknown_key(py, &Error::no_such("camera", "calibrated cameras", name, names))
    })
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
