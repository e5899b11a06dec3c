//! The gradient of `robocache.resample`, for the op that is registered with torch.

use pyo3::prelude::*;
use robocache::ops::resample::Extrapolate;
use robocache::ops::{Resample, ResampleBackward};
use robocache::{DType, Device, Error, Layout, Op, Result, TensorRef, prepare};

use crate::input::Input;
use crate::resample::method_of;
use crate::stream::Stream;
use crate::{errors, options, output};

/// The gradient in the values of `resample`, of their shape: what autograd calls.
///
/// Args:
///     grad: the gradient in the result.
///     values: those of the call; None for methods that do not read them.
///     shape: the shape of the values.
#[pyfunction]
#[pyo3(signature = (grad, values, times, targets, *, shape, method=None, extrapolate=None, lengths=None,
    target_lengths=None, check=true),
    text_signature = "(grad, values, times, targets, *, shape, method='linear', extrapolate='clamp', lengths=None, \
    target_lengths=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn resample_backward<'py>(
    grad: &Bound<'py, PyAny>,
    values: Option<&Bound<'py, PyAny>>,
    times: &Bound<'py, PyAny>,
    targets: &Bound<'py, PyAny>,
    shape: Vec<i64>,
    method: Option<&Bound<'py, PyAny>>,
    extrapolate: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    target_lengths: Option<&Bound<'py, PyAny>>,
    check: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = grad.py();
    let fail = |error: Error| errors::to_python(py, &error.op(ResampleBackward::NAME));
    let describe = || -> Result<_> {
        let grad = Input::new("grad", grad)?;
        let stream = Stream::of(&grad, None)?;
        let values = Input::optional("values", values, &stream)?;
        let times = Input::on_stream("times", times, &stream)?;
        let targets = Input::on_stream("targets", targets, &stream)?;
        let lengths = Input::optional("lengths", lengths, &stream)?;
        let target_lengths = Input::optional("target_lengths", target_lengths, &stream)?;
        Ok((grad, stream, values, times, targets, lengths, target_lengths))
    };
    let (grad, stream, values, times, targets, lengths, target_lengths) = describe().map_err(fail)?;
    let build = || -> Result<_> {
        let method = method_of(method)?;
        let view = match &values {
            Some(values) => *values.view(),
            None if method.reads_values() => {
                return Err(Error::invalid("values", "the gradient of this method depends on them, got None"));
            }
            None => without_memory(&shape, grad.dtype(), grad.device())?,
        };
        Ok(ResampleBackward {
            forward: Resample {
                method,
                extrapolate: options::choice("extrapolate", extrapolate, Extrapolate::Clamp)?,
                lengths: lengths.as_ref().map(Input::view).copied(),
                target_lengths: target_lengths.as_ref().map(Input::view).copied(),
                check,
                ..Resample::new(view, *times.view(), *targets.view())
            },
            grad: *grad.view(),
        })
    };
    let op = build().map_err(fail)?;
    if op.forward.values.shape().iter().map(|&size| size as i64).ne(shape.iter().copied()) {
        return Err(fail(Error::invalid("shape", format!("{shape:?} is not the shape of the values"))));
    }
    let context = stream.context();
    let mut prepared = prepare(&op, &context).map_err(fail)?;
    // What follows the gradient is memory for sums, which the framework takes back.
    let results = output::run(&mut prepared, &grad, None, &stream)?;
    Ok(results.into_iter().next().unwrap_or_else(|| py.None().into_bound(py)))
}

/// A description of values that nobody reads.
fn without_memory(shape: &[i64], dtype: DType, device: Device) -> Result<TensorRef<'static>> {
    let layout = Layout::strided(shape, Some(&vec![0; shape.len()]), dtype).map_err(|error| error.argument("shape"))?;
    let nowhere = std::ptr::NonNull::<u64>::dangling().as_ptr().cast();
    // SAFETY: the engine reads values only for methods that need them, for which the caller has them.
    unsafe { TensorRef::from_raw(nowhere, dtype, device, layout) }
}
