//! `robocache.rotation.convert` and its gradient, of rows `[B,n]` or `[n]`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use robocache::ops::rotation::{Convert, ConvertBackward, Representation};
use robocache::{Error, Op, Result};

use crate::input::Input;
use crate::points::run;
use crate::stream::Stream;
use crate::{errors, options, torch_op};

/// The axes of one rotation, by the name of its representation.
pub(crate) fn shapes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let shapes = PyDict::new(py);
    for known in Representation::all() {
        shapes.set_item(known.name(), PyTuple::new(py, known.shape())?)?;
    }
    Ok(shapes)
}

fn representation(argument: &'static str, value: &Bound<'_, PyAny>) -> Result<Representation> {
    match value.cast::<PyString>() {
        Ok(name) => Representation::named(argument, &name.to_string_lossy()),
        Err(_) => Err(Error::invalid(argument, format!("expected a name, got {}", options::type_name(value)))),
    }
}

/// Rotations `[B,n]` or `[n]` (a matrix: `[B,3,3]` or `[3,3]`) in another representation.
#[pyfunction]
#[pyo3(signature = (x, source, target, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn rotation_convert<'py>(
    x: &Bound<'py, PyAny>,
    source: &Bound<'py, PyAny>,
    target: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(x, [out])? {
        return Ok(unseen);
    }
    let py = x.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Convert::NAME));
    let (source, target) =
        (representation("source", source).map_err(fail)?, representation("target", target).map_err(fail)?);
    let x = Input::new("x", x).map_err(fail)?;
    let stream = Stream::of(&x, stream).map_err(fail)?;
    stream.go(options::way([device, max_memory, chunk, progress], x.device()).map_err(fail)?);
    run(&Convert { x: *x.view(), source, target }, &x, &[Some(&x)], out, &stream)
}

/// The gradient in `x` of `rotation_convert`, from that in its result: what autograd calls.
#[pyfunction]
#[pyo3(signature = (x, grad, source, target))]
pub(crate) fn rotation_backward<'py>(
    x: &Bound<'py, PyAny>,
    grad: &Bound<'py, PyAny>,
    source: &Bound<'py, PyAny>,
    target: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let fail = |error: Error| errors::to_python(py, &error.op(ConvertBackward::NAME));
    let (source, target) =
        (representation("source", source).map_err(fail)?, representation("target", target).map_err(fail)?);
    let x = Input::new("x", x).map_err(fail)?;
    let stream = Stream::of(&x, None).map_err(fail)?;
    let grad = Input::on_stream("grad", grad, &stream).map_err(fail)?;
    let forward = Convert { x: *x.view(), source, target };
    run(&ConvertBackward { forward, grad: *grad.view() }, &x, &[Some(&x), Some(&grad)], None, &stream)
}
