//! `robocache.resample`.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};
use robocache::ops::Resample;
use robocache::ops::resample::{Extrapolate, Method};
use robocache::{Context, Error, Op, Result, prepare};

use crate::cuda::Stream;
use crate::input::Input;
use crate::{errors, options, output, torch_op};

/// Values of a stream at other times than it was recorded at.
///
/// Args:
///     values: `[B,S,D]` or `[S,D]`. Floats for "linear"; any dtype for the other methods.
///     times: stamps of the samples, `[B,S]` or `[S]`, not decreasing: int64 nanoseconds, float64
///         or float32 seconds. Differences are taken in this type, so epoch nanoseconds are exact.
///     targets: `[B,T]` or `[T]`, in any order, of the type of `times`.
///     method: "linear", "nearest" (a tie takes the earlier sample), "previous" or "next".
///     extrapolate: "clamp", "linear" (only with method "linear"), "nan" or "error".
///     lengths, target_lengths: `[B]` int32 or int64, how many samples and targets of each row
///         exist; the rest is padding and does not matter. Padded targets give NaN (integers 0).
///     max_gap: seconds; a target between samples further apart is not valid.
///     return_valid: also return `valid [B,T]`, False outside the samples, in gaps and in padding.
///     out: a tensor for the result, or `(out, valid)`; it must not overlap the inputs.
///     device: None or where the data lives; "auto".
///     stream: a CUDA stream (an integer handle or a torch stream) instead of the current one.
///     max_memory: a budget for chunks in flight; data on the CPU is never copied, so any will do.
///     check: look for unsorted, NaN or infinite stamps and bad lengths, and raise with the row
///         and index. On CUDA nothing waits: bad rows become NaN (integers 0), and the next call on
///         the device or `synchronize()` raises. Without it, bad data gives unspecified values.
///
/// What has no batch axis, or a batch of 1, is shared by the batch. Values and times may have
/// different dtypes; f16 and bf16 compute in f32. A target that hits a stamp returns that sample
/// exactly; of equal stamps only the last sample exists. NaN in values reaches only the targets
/// whose weight on it is not zero. A NaN target gives NaN.
///
/// torch: gradients pass through the values (backward, once), in every method and float dtype; on
/// all devices they are summed in one order. `torch.compile`, `torch.func.vmap` and tensor subclasses
/// go through the op `torch.ops.robocache.resample`; other calls go straight to the engine. The
/// gradient is quickest where the targets of a row are in order.
///
/// Returns:
///     `[B,T,D]` (`[T,D]` without any batch) in the framework and dtype of `values`.
#[pyfunction]
#[pyo3(signature = (values, times, targets, *, method=None, extrapolate=None, lengths=None,
    target_lengths=None, max_gap=None, return_valid=false, out=None, device=None, stream=None,
    max_memory=None, check=true),
    text_signature = "(values, times, targets, *, method='linear', extrapolate='clamp', lengths=None, \
    target_lengths=None, max_gap=None, return_valid=False, out=None, device=None, stream=None, max_memory=None, \
    check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn resample<'py>(
    values: &Bound<'py, PyAny>,
    times: &Bound<'py, PyAny>,
    targets: &Bound<'py, PyAny>,
    method: Option<&Bound<'py, PyAny>>,
    extrapolate: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    target_lengths: Option<&Bound<'py, PyAny>>,
    max_gap: Option<&Bound<'py, PyAny>>,
    return_valid: bool,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    check: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = values.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Resample::NAME));
    let through_torch = || {
        let (return_valid, check) = (PyBool::new(py, return_valid), PyBool::new(py, check));
        let options = [
            ("method", method),
            ("extrapolate", extrapolate),
            ("lengths", lengths),
            ("target_lengths", target_lengths),
            ("max_gap", max_gap),
            ("return_valid", Some(return_valid.as_any())),
            ("out", out),
            ("device", device),
            ("stream", stream),
            ("max_memory", max_memory),
            ("check", Some(check.as_any())),
        ];
        torch_op::call(py, Resample::NAME, (values, times, targets), &options)
    };
    if torch_op::is_needed(values, &[Some(times), Some(targets), lengths, target_lengths])? {
        return through_torch();
    }
    let describe = || -> Result<_> {
        let values = Input::new("values", values)?;
        let stream = Stream::of(&values, stream)?;
        let times = Input::on_stream("times", times, &stream)?;
        let targets = Input::on_stream("targets", targets, &stream)?;
        let lengths = Input::optional("lengths", lengths, &stream)?;
        let target_lengths = Input::optional("target_lengths", target_lengths, &stream)?;
        Ok((values, stream, times, targets, lengths, target_lengths))
    };
    let (values, stream, times, targets, lengths, target_lengths) = match describe() {
        Err(_) if torch_op::may_help(py) => return through_torch(),
        described => described.map_err(fail)?,
    };

    let build = || -> Result<_> {
        options::budget(max_memory)?;
        let values = values.view()?;
        options::device(device, values.device())?;
        Ok(Resample {
            method: method_of(method)?,
            extrapolate: options::choice("extrapolate", extrapolate, Extrapolate::Clamp)?,
            lengths: lengths.as_ref().map(Input::view).transpose()?,
            target_lengths: target_lengths.as_ref().map(Input::view).transpose()?,
            max_gap: options::seconds("max_gap", max_gap)?,
            return_valid,
            check,
            ..Resample::new(values, times.view()?, targets.view()?)
        })
    };
    let op = build().map_err(fail)?;
    let context = Context { stream: stream.handle, ..Context::default() };
    let prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&prepared, &values, out, &stream)?;
    for input in [Some(&values), Some(&times), Some(&targets), lengths.as_ref(), target_lengths.as_ref()] {
        stream.keep_alive(input)?;
    }
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (None, _) => Ok(py.None().into_bound(py)),
        (Some(result), None) => Ok(result),
        (result, valid) => Ok((result, valid).into_pyobject(py)?.into_any()),
    }
}

pub(crate) fn method_of(method: Option<&Bound<'_, PyAny>>) -> Result<Method> {
    if method.is_some_and(|method| method.is_instance_of::<PyList>() || method.is_instance_of::<PyTuple>()) {
        return Err(Error::unsupported("method", "column ranges are not implemented yet; pass one name"));
    }
    options::choice("method", method, Method::Linear)
}
