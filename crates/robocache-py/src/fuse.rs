//! `robocache.fuse` and `robocache.Stream`.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};
use robocache::ops::Fuse;
use robocache::ops::fuse::Stream as EngineStream;
use robocache::ops::resample::Extrapolate;
use robocache::{Context, Error, Op, Result, prepare};

use crate::cuda::Stream;
use crate::input::Input;
use crate::resample::{ScaleInput, method_of};
use crate::{errors, options, output, torch_op};

/// One signal with its own clock, for `fuse`.
///
/// Args:
///     values: `[B,S,D]` or `[S,D]`; None for a modality that was not recorded.
///     times: stamps `[B,S]` or `[S]`, of the type of the targets.
///     method: as in `resample`, a name or column ranges.
///     max_gap: seconds; a target between samples further apart is not valid.
///     lengths: `[B]`, how many samples of each row exist.
///     scale: what values of int8 or float8 are multiplied with, a number or `[D]` float32.
///     dim: the columns of a missing modality.
///     name: what errors call the stream.
#[pyclass(frozen, module = "robocache", name = "FuseStream", get_all)]
pub(crate) struct FuseStream {
    values: Option<Py<PyAny>>,
    times: Option<Py<PyAny>>,
    method: Option<Py<PyAny>>,
    max_gap: Option<Py<PyAny>>,
    lengths: Option<Py<PyAny>>,
    scale: Option<Py<PyAny>>,
    dim: Option<usize>,
    name: Option<String>,
}

#[pymethods]
impl FuseStream {
    #[new]
    #[pyo3(signature = (values=None, times=None, *, method=None, max_gap=None, lengths=None, scale=None, dim=None, name=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        values: Option<Py<PyAny>>,
        times: Option<Py<PyAny>>,
        method: Option<Py<PyAny>>,
        max_gap: Option<Py<PyAny>>,
        lengths: Option<Py<PyAny>>,
        scale: Option<Py<PyAny>>,
        dim: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let fail =
            |argument: &'static str, text: String| errors::to_python(py, &Error::invalid(argument, text).op("Stream"));
        let dim = dim
            .map(|dim| {
                dim.extract::<usize>()
                    .map_err(|_| fail("dim", format!("expected a number of columns, got {}", options::type_name(dim))))
            })
            .transpose()?;
        let name = name
            .map(|name| {
                name.extract::<String>()
                    .map_err(|_| fail("name", format!("expected text, got {}", options::type_name(name))))
            })
            .transpose()?;
        match (&values, &times) {
            (Some(_), None) => return Err(fail("times", "expected stamps for the values, got None".to_owned())),
            (None, Some(_)) => return Err(fail("values", "expected samples for the times, got None".to_owned())),
            (None, None) if dim.is_none() => {
                return Err(fail("dim", "a stream without values needs dim=, its number of columns".to_owned()));
            }
            _ => {}
        }
        Ok(Self { values, times, method, max_gap, lengths, scale, dim, name })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let shape = |object: &Option<Py<PyAny>>| {
            object.as_ref().and_then(|object| Some(object.bind(py).getattr("shape").ok()?.str().ok()?.to_string()))
        };
        let name = self.name.as_ref().map_or_else(String::new, |name| format!("{name:?}, "));
        match shape(&self.values) {
            Some(shape) => format!("Stream({name}values of shape {shape})"),
            None => format!("Stream({name}missing, dim={})", self.dim.unwrap_or(0)),
        }
    }
}

/// The tensors of a stream, kept for the call.
struct StreamInputs<'py> {
    samples: Option<(Input<'py>, Input<'py>)>,
    lengths: Option<Input<'py>>,
    scale: Option<ScaleInput<'py>>,
}

impl FuseStream {
    fn inputs<'py>(&self, py: Python<'py>, values: Option<Input<'py>>, stream: &Stream) -> Result<StreamInputs<'py>> {
        let bound = |object: &Option<Py<PyAny>>| object.as_ref().map(|object| object.bind(py).clone());
        let times = bound(&self.times).map(|times| Input::on_stream("times", &times, stream)).transpose()?;
        let device = values.as_ref().map(Input::device);
        Ok(StreamInputs {
            samples: values.zip(times),
            lengths: Input::optional("lengths", bound(&self.lengths).as_ref(), stream)?,
            scale: device
                .map(|device| ScaleInput::of(bound(&self.scale).as_ref(), device, stream))
                .transpose()?
                .flatten(),
        })
    }

    fn engine<'a>(&self, py: Python<'_>, inputs: &'a StreamInputs<'_>) -> Result<EngineStream<'a>> {
        let bound = |object: &Option<Py<PyAny>>| object.as_ref().map(|object| object.bind(py).clone());
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
            method: method_of(bound(&self.method).as_ref())?,
            max_gap: options::seconds("max_gap", bound(&self.max_gap).as_ref())?,
            lengths: inputs.lengths.as_ref().map(Input::view).transpose()?,
            scale: inputs.scale.as_ref().map(ScaleInput::view).transpose()?,
            dim: self.dim.unwrap_or(0),
        })
    }

    /// The stream's name in errors.
    fn label(&self, index: usize) -> String {
        self.name.as_ref().map_or_else(|| format!("streams[{index}]"), |name| format!("streams[{name:?}]"))
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
/// A missing modality, `Stream(None, dim=6)`, gives zeros that are not valid. torch: gradients pass
/// through the values of every stream, as in `resample`.
///
/// Returns:
///     `[B,T,ΣD]` (`[T,ΣD]` without any batch), the columns in list order, then `valid` and `age`.
#[pyfunction]
#[pyo3(signature = (streams, targets, *, out_dtype=None, extrapolate=None, target_lengths=None, return_valid=false,
    return_age=false, out=None, device=None, stream=None, max_memory=None, check=true),
    text_signature = "(streams, targets, *, out_dtype=None, extrapolate='clamp', target_lengths=None, \
    return_valid=False, return_age=False, out=None, device=None, stream=None, max_memory=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn fuse<'py>(
    streams: &Bound<'py, PyAny>,
    targets: &Bound<'py, PyAny>,
    out_dtype: Option<&Bound<'py, PyAny>>,
    extrapolate: Option<&Bound<'py, PyAny>>,
    target_lengths: Option<&Bound<'py, PyAny>>,
    return_valid: bool,
    return_age: bool,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    check: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = targets.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Fuse::NAME));
    let list = list_of(streams).map_err(fail)?;
    let blame = |index: usize, error: Error| {
        let label =
            list.get(index).map_or_else(String::new, |stream: &Bound<'_, FuseStream>| stream.get().label(index));
        fail(error.within(&label))
    };
    let tensor = |pick: fn(&FuseStream) -> &Option<Py<PyAny>>| {
        list.iter().filter_map(move |stream| Some(pick(stream.get()).as_ref()?.bind(py)))
    };
    let others = tensor(|stream| &stream.times).chain(tensor(|stream| &stream.lengths));
    if torch_op::is_needed(py, tensor(|stream| &stream.values), others.chain([targets]).chain(target_lengths))? {
        let [return_valid, return_age, check] = [return_valid, return_age, check].map(|flag| PyBool::new(py, flag));
        let options = [
            ("out_dtype", out_dtype),
            ("extrapolate", extrapolate),
            ("target_lengths", target_lengths),
            ("return_valid", Some(return_valid.as_any())),
            ("return_age", Some(return_age.as_any())),
            ("out", out),
            ("device", device),
            ("stream", stream),
            ("max_memory", max_memory),
            ("check", Some(check.as_any())),
        ];
        return torch_op::call(py, Fuse::NAME, (PyList::new(py, &list)?, targets), &options);
    }
    // The first data argument decides about the framework and the stream of the GPU.
    let mut values = Vec::with_capacity(list.len());
    for (index, stream) in list.iter().enumerate() {
        let object = stream.get().values.as_ref().map(|values| values.bind(py));
        let input = object.map(|object| Input::new("values", object)).transpose();
        values.push(input.map_err(|error| blame(index, error))?);
    }
    let targets = Input::new("targets", targets).map_err(fail)?;
    let gpu_stream = Stream::of(values.iter().flatten().next().unwrap_or(&targets), stream).map_err(fail)?;
    let mut inputs = Vec::with_capacity(list.len());
    for (index, (stream, values)) in list.iter().zip(values).enumerate() {
        inputs.push(stream.get().inputs(py, values, &gpu_stream).map_err(|error| blame(index, error))?);
    }
    let target_lengths = Input::optional("target_lengths", target_lengths, &gpu_stream).map_err(fail)?;
    let mut engine = Vec::with_capacity(list.len());
    for (index, (stream, inputs)) in list.iter().zip(&inputs).enumerate() {
        engine.push(stream.get().engine(py, inputs).map_err(|error| blame(index, error))?);
    }
    let first = inputs.iter().find_map(|input| input.samples.as_ref().map(|(values, _)| values)).unwrap_or(&targets);
    let build = || -> Result<_> {
        options::budget(max_memory)?;
        options::device(device, first.device())?;
        Ok(Fuse {
            extrapolate: options::choice("extrapolate", extrapolate, Extrapolate::Clamp)?,
            target_lengths: target_lengths.as_ref().map(Input::view).transpose()?,
            out_dtype: options::dtype("out_dtype", out_dtype)?,
            return_valid,
            return_age,
            check,
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

/// The streams of a list or tuple.
fn list_of<'py>(streams: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, FuseStream>>> {
    if !streams.is_instance_of::<PyList>() && !streams.is_instance_of::<PyTuple>() {
        let name = options::type_name(streams);
        return Err(Error::invalid("streams", format!("expected a list of Stream, got {name}")));
    }
    let mut list = Vec::new();
    for (index, item) in streams.try_iter().into_iter().flatten().flatten().enumerate() {
        list.push(item.cast_into::<FuseStream>().map_err(|error| {
            let name = options::type_name(&error.into_inner());
            Error::invalid("streams", format!("expected a Stream at index {index}, got {name}"))
        })?);
    }
    Ok(list)
}
