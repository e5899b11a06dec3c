//! `robocache.fuse`.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use robocache::ops::Fuse;
use robocache::ops::fuse::{Stream as EngineStream, label};
use robocache::ops::resample::Extrapolate;
use robocache::{Context, DType, Device, Error, ErrorKind, Op, Result, prepare};

use crate::cuda::Stream;
use crate::input::Input;
use crate::resample::{ScaleInput, method_of};
use crate::torch::is_of;
use crate::{errors, options, output, torch_op};

/// The attributes of a `robocache.Stream`.
struct FuseStream<'py> {
    values: Option<Bound<'py, PyAny>>,
    times: Option<Bound<'py, PyAny>>,
    method: Option<Bound<'py, PyAny>>,
    max_gap: Option<Bound<'py, PyAny>>,
    lengths: Option<Bound<'py, PyAny>>,
    scale: Option<Bound<'py, PyAny>>,
    dim: Option<usize>,
    name: Option<String>,
}

/// The tensors of a stream, kept for the call.
struct StreamInputs<'py> {
    samples: Option<(Input<'py>, Input<'py>)>,
    lengths: Option<Input<'py>>,
    scale: Option<ScaleInput<'py>>,
}

impl<'py> FuseStream<'py> {
    fn of(stream: &Bound<'py, PyAny>) -> Result<Self> {
        let parts = torch_op::parts_of(stream)
            .ok_or_else(|| Error::invalid("streams", "expected a Stream that was made by its own class"))?;
        let get = |index| parts.get_item(index).ok().filter(|part| !part.is_none());
        let text = |name: Bound<'_, PyAny>| {
            let refused = || Error::invalid("name", format!("expected text, got {}", options::type_name(&name)));
            name.extract().map_err(|_| refused())
        };
        Ok(Self {
            values: get(0),
            times: get(1),
            method: get(2),
            max_gap: get(3),
            lengths: get(4),
            scale: get(5),
            dim: get(6).map(|dim| options::whole("dim", &dim, 0)).transpose()?,
            name: get(7).map(text).transpose()?,
        })
    }

    /// Its tensors, of which `values` are known already; `device` is where they would be if it has none.
    fn inputs(&self, values: Option<Input<'py>>, device: Device, stream: &Stream) -> Result<StreamInputs<'py>> {
        let times = Input::optional("times", self.times.as_ref(), stream)?;
        let device = values.as_ref().map_or(device, Input::device);
        Ok(StreamInputs {
            samples: values.zip(times),
            lengths: Input::optional("lengths", self.lengths.as_ref(), stream)?,
            scale: ScaleInput::of(self.scale.as_ref(), device, stream)?,
        })
    }

    fn engine<'a>(&self, inputs: &'a StreamInputs<'_>) -> Result<EngineStream<'a>> {
        let view = |(values, times): &'a (Input<'_>, Input<'_>)| Ok((values.view()?, times.view()?));
        if let (Some((values, _)), Some(dim)) = (&inputs.samples, self.dim)
            && values.view()?.shape().last() != Some(&dim)
        {
            let shape = values.view()?.shape().to_vec();
            return Err(Error::invalid("dim", format!("says {dim} columns, but values have shape {shape:?}")));
        }
        Ok(EngineStream {
            name: self.name.clone(),
            samples: inputs.samples.as_ref().map(view).transpose()?,
            method: method_of(self.method.as_ref())?,
            max_gap: options::seconds("max_gap", self.max_gap.as_ref())?,
            lengths: inputs.lengths.as_ref().map(Input::view).transpose()?,
            scale: inputs.scale.as_ref().map(ScaleInput::view).transpose()?,
            dim: self.dim.unwrap_or(0),
        })
    }
}

/// Several streams at the same targets, side by side in one tensor.
///
/// Args:
///     streams: 1 to 32 `Stream`s, each with its own rate, length, width, dtype and method. Without
///         a batch axis a stream is shared by the batch.
///     targets: `[B,T]` or `[T]`, in any order, of the type of all stamps.
///     out_dtype: the dtype of the result; otherwise `torch.promote_types` over the streams.
///     extrapolate: "clamp", "linear", "nan" or "error", for all streams.
///     target_lengths: `[B]` int32 or int64, how many targets of each row exist.
///     return_valid: also return `valid [B,T,N]`, False outside a stream's samples, in gaps larger
///         than its `max_gap`, in padding and for missing streams.
///     return_age: also return `age [B,T,N]` float32, the seconds since the newest sample at or
///         before the target; NaN before the first sample and for missing streams.
///     out: a tensor for the result, or a tuple of all results.
///     device, stream, max_memory, check: as in `resample`.
///
/// A missing modality, `Stream(None, dim=6)`, gives zeros that are not valid.
///
/// torch: gradients, `torch.compile` and `torch.func` as in `resample`; streams may be made inside a
/// compiled or mapped function.
///
/// Returns:
///     `[B,T,ΣD]` (`[T,ΣD]` without any batch), the columns in list order, then `valid` and `age`.
#[pyfunction]
#[pyo3(signature = (streams, targets, *, out_dtype=None, extrapolate=None, target_lengths=None, return_valid=None,
    return_age=None, out=None, device=None, stream=None, max_memory=None, check=None),
    text_signature = "(streams, targets, *, out_dtype=None, extrapolate='clamp', target_lengths=None, \
    return_valid=False, return_age=False, out=None, device=None, stream=None, max_memory=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn fuse<'py>(
    streams: &Bound<'py, PyAny>,
    targets: &Bound<'py, PyAny>,
    out_dtype: Option<&Bound<'py, PyAny>>,
    extrapolate: Option<&Bound<'py, PyAny>>,
    target_lengths: Option<&Bound<'py, PyAny>>,
    return_valid: Option<&Bound<'py, PyAny>>,
    return_age: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = targets.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Fuse::NAME));
    let list = list_of(streams).map_err(fail)?;
    let names = list.iter().map(|stream| stream.name.as_deref());
    let blame = |index: usize, error: Error| fail(error.within(&label(names.clone(), index)));
    // The first data argument decides about the framework and the stream of the GPU.
    let mut values = Vec::with_capacity(list.len());
    for (index, stream) in list.iter().enumerate() {
        let input = stream.values.as_ref().map(|values| Input::new("values", values)).transpose();
        values.push(input.map_err(|error| blame(index, error))?);
    }
    let targets = Input::new("targets", targets).map_err(fail)?;
    let gpu_stream = Stream::of(values.iter().flatten().next().unwrap_or(&targets), stream).map_err(fail)?;
    let mut inputs = Vec::with_capacity(list.len());
    for (index, (stream, values)) in list.iter().zip(values).enumerate() {
        inputs.push(stream.inputs(values, targets.device(), &gpu_stream).map_err(|error| blame(index, error))?);
    }
    let target_lengths = Input::optional("target_lengths", target_lengths, &gpu_stream).map_err(fail)?;
    let mut engine = Vec::with_capacity(list.len());
    for (index, (stream, inputs)) in list.iter().zip(&inputs).enumerate() {
        engine.push(stream.engine(inputs).map_err(|error| blame(index, error))?);
    }
    let first = inputs.iter().find_map(|input| input.samples.as_ref().map(|(values, _)| values)).unwrap_or(&targets);
    let build = || -> Result<_> {
        options::budget(max_memory)?;
        options::device(device, first.device())?;
        Ok(Fuse {
            extrapolate: options::choice("extrapolate", extrapolate, Extrapolate::Clamp)?,
            target_lengths: target_lengths.as_ref().map(Input::view).transpose()?,
            out_dtype: options::dtype("out_dtype", out_dtype)?,
            return_valid: options::flag("return_valid", return_valid, false)?,
            return_age: options::flag("return_age", return_age, false)?,
            check: options::flag("check", check, true)?,
            ..Fuse::new(engine, targets.view()?)
        })
    };
    let op = build().map_err(fail)?;
    let context = Context { stream: gpu_stream.handle, ..Context::default() };
    let prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&prepared, first, out, &gpu_stream)?;
    for input in &inputs {
        let samples = input.samples.iter().flat_map(|(values, times)| [values, times]);
        gpu_stream.keep_alive(samples.chain(input.lengths.as_ref()))?;
    }
    gpu_stream.keep_alive([Some(&targets), target_lengths.as_ref()].into_iter().flatten())?;
    Ok(match &results[..] {
        [] => py.None().into_bound(py),
        [only] => only.clone(),
        _ => PyTuple::new(py, results)?.into_any(),
    })
}

/// The dtype that holds the numbers of all that are named; None where there is none.
#[pyfunction]
pub(crate) fn promoted(names: Vec<String>) -> Option<&'static str> {
    let dtype_of = |name: &String| DType::ALL.iter().copied().find(|dtype| dtype.name() == name);
    let mut all = dtype_of(names.first()?)?;
    for name in names.iter().skip(1) {
        all = all.promote(dtype_of(name)?)?;
    }
    Some(all.name())
}

/// The streams of a list or tuple.
fn list_of<'py>(streams: &Bound<'py, PyAny>) -> Result<Vec<FuseStream<'py>>> {
    let py = streams.py();
    let failed = |error: PyErr| errors::from_python(py, ErrorKind::InvalidArgument, "streams", &error);
    let class = torch_op::stream_class(py).map_err(failed)?;
    let read = |(index, item): (usize, Bound<'py, PyAny>)| {
        if is_of(&item, class) {
            return FuseStream::of(&item);
        }
        let name = options::type_name(&item);
        Err(Error::invalid("streams", format!("expected a Stream at index {index}, got {name}")))
    };
    if let Ok(list) = streams.cast::<PyList>() {
        list.iter().enumerate().map(read).collect()
    } else if let Ok(tuple) = streams.cast::<PyTuple>() {
        tuple.iter().enumerate().map(read).collect()
    } else {
        let name = options::type_name(streams);
        Err(Error::invalid("streams", format!("expected a list of Stream, got {name}")))
    }
}
