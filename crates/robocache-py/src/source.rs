//! What ops on grids take points from: a tensor, or the depth images of a `robocache._depth.DepthImage`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use robocache::ops::{DepthImage, PointSource, Small};
use robocache::{Device, Error, ErrorKind, Result};

use crate::input::Input;
use crate::stream::Stream;
use crate::torch::is_of;
use crate::{errors, options};

/// Where the points of a call come from.
pub(crate) enum Source<'py> {
    Points(Input<'py>),
    Depth(Box<Images<'py>>),
}

/// What [`DepthImage`] is made of.
pub(crate) struct Images<'py> {
    depth: Input<'py>,
    intrinsics: Input<'py>,
    extrinsics: Option<Input<'py>>,
    depth_scale: f64,
}

impl<'py> Source<'py> {
    /// The points of a call, and the stream that it runs on.
    pub(crate) fn new(points: &Bound<'py, PyAny>, stream: Option<&Bound<'py, PyAny>>) -> Result<(Self, Stream)> {
        let Some(parts) = parts_of(points) else {
            let points = Input::new("points", points)?;
            let stream = Stream::of(&points, stream)?;
            return Ok((Self::Points(points), stream));
        };
        let part = |index| parts.get_item(index).map_err(|_| Error::invalid("depth", "expected images"));
        let scale = part(3)?;
        let (images, stream) = Images::new(&part(0)?, &part(1)?, Some(&part(2)?), Some(&scale), stream)?;
        Ok((Self::Depth(Box::new(images)), stream))
    }

    /// The op that errors name.
    pub(crate) fn op(points: &Bound<'_, PyAny>) -> &'static str {
        if parts_of(points).is_some() { "voxelize_depth" } else { "voxelize" }
    }

    /// What decides about framework and device.
    pub(crate) fn first(&self) -> &Input<'py> {
        match self {
            Self::Points(points) => points,
            Self::Depth(images) => &images.depth,
        }
    }

    /// All tensors.
    pub(crate) fn inputs(&self) -> Vec<&Input<'py>> {
        match self {
            Self::Points(points) => vec![points],
            Self::Depth(images) => images.inputs(),
        }
    }

    /// As ops take it.
    pub(crate) fn view(&self) -> PointSource<'_> {
        match self {
            Self::Points(points) => (*points.view()).into(),
            Self::Depth(images) => images.view().into(),
        }
    }
}

impl<'py> Images<'py> {
    /// The images of a call, and the stream that it runs on.
    pub(crate) fn new(
        depth: &Bound<'py, PyAny>,
        intrinsics: &Bound<'py, PyAny>,
        extrinsics: Option<&Bound<'py, PyAny>>,
        depth_scale: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> Result<(Self, Stream)> {
        let depth = Input::new("depth", depth)?;
        let stream = Stream::of(&depth, stream)?;
        let intrinsics = small_input("intrinsics", intrinsics, &stream)?;
        let extrinsics = extrinsics.filter(|pose| !pose.is_none());
        let extrinsics = extrinsics.map(|pose| small_input("extrinsics", pose, &stream)).transpose()?;
        let depth_scale = depth_scale.filter(|scale| !scale.is_none());
        let depth_scale = depth_scale.map_or(Ok(1e-3), |scale| options::number("depth_scale", scale))?;
        Ok((Self { depth, intrinsics, extrinsics, depth_scale }, stream))
    }

    pub(crate) fn depth(&self) -> &Input<'py> {
        &self.depth
    }

    /// All tensors.
    pub(crate) fn inputs(&self) -> Vec<&Input<'py>> {
        [&self.depth, &self.intrinsics].into_iter().chain(&self.extrinsics).collect()
    }

    pub(crate) fn view(&self) -> DepthImage<'_> {
        let device = self.depth.device();
        DepthImage {
            depth: *self.depth.view(),
            intrinsics: small(&self.intrinsics, device),
            extrinsics: self.extrinsics.as_ref().map(|pose| small(pose, device)),
            depth_scale: self.depth_scale,
        }
    }
}

/// What a `DepthImage` was made of; none for anything else.
fn parts_of<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
    static IMAGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = IMAGE.import(object.py(), "robocache._depth", "DepthImage").ok()?;
    if !is_of(object, class) {
        return None;
    }
    object.getattr(intern!(object.py(), "_parts")).ok()?.cast_into().ok()
}

/// A few numbers beside the data: a tensor that lives with it, or anything on the host.
pub(crate) fn small_input<'py>(name: &'static str, object: &Bound<'py, PyAny>, stream: &Stream) -> Result<Input<'py>> {
    let input = Input::on_stream(name, object, stream)?;
    if input.dtype().is_float() || input.device() != Device::Cpu {
        return Ok(input);
    }
    // Whole numbers in a list are numbers too.
    let py = object.py();
    let floats = py.import("numpy").and_then(|numpy| numpy.call_method1("asarray", (object, "float64")));
    let floats = floats.map_err(|error| errors::from_python(py, ErrorKind::InvalidArgument, name, &error))?;
    Input::on_stream(name, &floats, stream)
}

/// Numbers on the host are no data where the data lives elsewhere.
pub(crate) fn small<'a>(input: &'a Input<'_>, data: Device) -> Small<'a> {
    let view = *input.view();
    if input.device() == Device::Cpu && data != Device::Cpu { Small::Host(view) } else { Small::Tensor(view) }
}
