//! `robocache.resample`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyList, PyTuple};
use robocache::ops::Resample;
use robocache::ops::resample::{ColumnRange, Extrapolate, Method, Methods, Scale};
use robocache::{Device, Error, Op, Result, prepare};

use crate::input::{Input, Inputs};
use crate::stream::Stream;
use crate::{errors, options, output, torch_op};

/// Values of a stream at other times than it was recorded at.
///
/// Args:
///     values: `[B,S,D]` or `[S,D]`. Any dtype for "nearest", "previous" and "next", floats for the
///         methods that blend, or what stores them: float8 (e4m3fn, e5m2), int8 with a `scale`.
///     times: stamps of the samples, `[B,S]` or `[S]`, not decreasing: int64 nanoseconds, float64
///         or float32 seconds. Differences are taken in this type, so epoch nanoseconds are exact.
///     targets: `[B,T]` or `[T]`, in any order, of the type of `times`.
///     method: "linear", "nearest" (a tie takes the earlier sample), "previous", "next", "cubic"
///         (monotone, PCHIP), "slerp" (quaternions xyzw, four columns each, along the shorter arc,
///         unit length), "angle" (around the shorter way, in [-pi, pi); NaN for numbers too large to hold an
///         angle: 2**24 and more, of float64 2**53), "rot6d" (six columns each,
///         blended and made orthonormal again), or column ranges that cover every column once:
///         `[("linear", 0, 7), ("slerp", 7, 11), ("previous", 11, 12)]`.
///     extrapolate: "clamp", "linear" (the line through the two outermost samples, only with "linear"
///         and "cubic"), "nan" or "error".
///     lengths, target_lengths: `[B]` int32 or int64, how many samples and targets of each row
///         exist; the rest is padding and does not matter. Padded targets give NaN (integers 0).
///     max_gap: seconds; a target between samples further apart is not valid.
///     scale: what values of int8 or float8 are multiplied with: a number or `[D]` float32. The result is
///         float32, as it is for float8 without a scale.
///     out_dtype: a float dtype for the result instead of that of `values`.
///     return_valid: also return `valid [B,T]`, False outside the samples, in gaps and in padding.
///     out: a tensor for the result, or `(out, valid)`; it must not overlap the inputs.
///     device: None or where the data lives. Data on the host can be streamed through a GPU, a list of GPUs, or
///         "auto", the first that works (docs/multi-gpu.md).
///     stream: a CUDA stream (an integer handle or a torch stream) instead of the current one.
///     max_memory: bytes, a size like "2GiB", or "auto": the call runs in parts that take no more, with the same bits
///         (docs/memory.md). Where one row takes more, its targets are cut.
///     chunk: rows of a part, instead; targets where there is one row.
///     progress: True shows a bar, a function is called with the parts that are done and all of them.
///     check: look for unsorted, NaN or infinite stamps and bad lengths, and raise with the row
///         and index. On CUDA nothing waits: bad rows become NaN (integers 0), and the next call on
///         the device or `synchronize()` raises. Without it, bad data gives unspecified values.
///
/// What has no batch axis, or a batch of 1, is shared by the batch. Values and times may have
/// different dtypes; f16 and bf16 compute in f32. A target that hits a stamp returns that sample
/// exactly ("slerp", "angle" and "rot6d": in normal form); of equal stamps only the last exists. NaN in values reaches only the targets
/// whose weight on it is not zero. A NaN target gives NaN.
///
/// torch: gradients pass through the values (backward, once), in every method and float dtype; they are
/// the same in every run, and summed in one order on all devices ("cubic", "slerp" and "rot6d": to rounding).
/// `torch.compile`, `torch.func.vmap` and tensor subclasses go through the op
/// `torch.ops.robocache.resample`; other calls go straight to the engine. The gradient is quickest where
/// the targets of a row are in order.
///
/// Returns:
///     `[B,T,D]` (`[T,D]` without any batch) in the framework and dtype of `values`.
#[pyfunction]
// `_ops.py` calls it by position, which is quicker; all others by keyword.
#[pyo3(signature = (values, times, targets, method=None, extrapolate=None, lengths=None,
    target_lengths=None, max_gap=None, scale=None, out_dtype=None, return_valid=None, out=None, device=None, stream=None,
    max_memory=None, chunk=None, progress=None, check=None),
    text_signature = "(values, times, targets, *, method='linear', extrapolate='clamp', lengths=None, \
    target_lengths=None, max_gap=None, scale=None, out_dtype=None, return_valid=False, out=None, device=None, \
    stream=None, max_memory=None, chunk=None, progress=None, check=True)")]
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
    scale: Option<&Bound<'py, PyAny>>,
    out_dtype: Option<&Bound<'py, PyAny>>,
    return_valid: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(values, [Some(times), Some(targets), lengths, target_lengths, scale, out])?
    {
        return Ok(unseen);
    }
    let py = values.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Resample::NAME));
    let mut inputs = Inputs::with_room_for(5);
    let values = inputs.add("values", values, None).map_err(fail)?;
    let stream = Stream::of(inputs.get(values), stream).map_err(fail)?;
    let mut add = |name, object| inputs.add(name, object, Some(&stream));
    let (times, targets) = (add("times", times).map_err(fail)?, add("targets", targets).map_err(fail)?);
    let mut optional = |name, object| inputs.add_optional(name, object, &stream);
    let lengths = optional("lengths", lengths).map_err(fail)?;
    let target_lengths = optional("target_lengths", target_lengths).map_err(fail)?;
    let scale = ScaleInput::of(scale, inputs.get(values).device(), &stream).map_err(fail)?;
    let view = |place| *inputs.get(place).view();
    let build = || -> Result<_> {
        let values = view(values);
        stream.go(options::way([device, max_memory, chunk, progress], values.device())?);
        Ok(Resample {
            method: method_of(method)?,
            extrapolate: extrapolate_of(extrapolate)?,
            lengths: lengths.map(view),
            target_lengths: target_lengths.map(view),
            max_gap: options::seconds("max_gap", max_gap)?,
            scale: scale.as_ref().map(ScaleInput::view),
            out_dtype: options::dtype("out_dtype", out_dtype)?,
            return_valid: options::flag("return_valid", return_valid, false)?,
            check: options::flag("check", check, true)?,
            ..Resample::new(values, view(times), view(targets))
        })
    };
    let op = build().map_err(fail)?;
    let context = stream.context();
    // Large, and `map_err` would copy it.
    let mut prepared = match prepare(&op, &context) {
        Ok(prepared) => prepared,
        Err(error) => return Err(fail(error)),
    };
    let results = output::run(&mut prepared, inputs.get(values), out, &stream)?;
    stream.keep_alive(inputs.iter())?;
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (None, _) => Ok(py.None().into_bound(py)),
        (Some(result), None) => Ok(result),
        (result, valid) => Ok((result, valid).into_pyobject(py)?.into_any()),
    }
}

/// One name, or a list of `(name, start, end)`.
pub(crate) fn method_of(method: Option<&Bound<'_, PyAny>>) -> Result<Methods> {
    // The default, which most calls have, is told without reading it.
    let Some(method) = method.filter(|method| !method.is(intern!(method.py(), "linear"))) else {
        return Ok(Method::Linear.into());
    };
    if !method.is_instance_of::<PyList>() && !method.is_instance_of::<PyTuple>() {
        return options::choice("method", Some(method), Method::Linear).map(Methods::One);
    }
    let mut ranges = Vec::new();
    for item in method.try_iter().into_iter().flatten().flatten() {
        // Files of settings have lists where Python has tuples.
        let parts = item.cast::<PyList>().map_or_else(|_| item.clone(), |list| list.to_tuple().into_any());
        let (name, start, end) = parts.extract::<(String, usize, usize)>().map_err(|_| {
            let given = item.repr().map_or_else(|_| options::type_name(&item), |text| text.to_string());
            let expected = "expected (name, start, end) for a range of columns, with whole numbers from 0 on";
            Error::invalid("method", format!("{expected}, got {given}"))
        })?;
        ranges.push(ColumnRange { method: name.parse()?, start, end });
    }
    Ok(Methods::Ranges(ranges))
}

/// What happens outside the samples.
pub(crate) fn extrapolate_of(extrapolate: Option<&Bound<'_, PyAny>>) -> Result<Extrapolate> {
    let other = extrapolate.filter(|name| !name.is(intern!(name.py(), "clamp")));
    options::choice("extrapolate", other, Extrapolate::Clamp)
}

/// What values are multiplied with: a number of the host, or a tensor where the data lives.
pub(crate) enum ScaleInput<'py> {
    Number(f32),
    Tensor(Box<Input<'py>>),
}

impl<'py> ScaleInput<'py> {
    pub(crate) fn of(scale: Option<&Bound<'py, PyAny>>, device: Device, stream: &Stream) -> Result<Option<Self>> {
        let Some(scale) = scale else {
            return Ok(None);
        };
        // NumPy's float64 is one of Python's, too.
        if let Ok(number) = scale.extract::<f32>()
            && (scale.is_instance_of::<PyFloat>() || scale.getattr("shape").is_err())
        {
            return Ok(Some(Self::Number(number)));
        }
        let input = Input::on_stream("scale", scale, stream)?;
        // A number in a host tensor may stand beside data on a GPU.
        if input.device() == Device::Cpu
            && device != Device::Cpu
            && let Ok(number) = scale.call_method0("item").and_then(|number| number.extract::<f32>())
        {
            return Ok(Some(Self::Number(number)));
        }
        Ok(Some(Self::Tensor(Box::new(input))))
    }

    pub(crate) fn view(&self) -> Scale<'_> {
        match self {
            Self::Number(number) => Scale::One(*number),
            Self::Tensor(input) => Scale::Columns(input.view()),
        }
    }
}
