//! `robocache.fuse`.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use robocache::ops::Fuse;
use robocache::ops::fuse::{MOST_STREAMS, Stream as EngineStream, label};
use robocache::{Context, DType, Device, Error, ErrorKind, Op, Result, ensure, prepare};

use crate::cuda::Stream;
use crate::input::Input;
use crate::resample::{ScaleInput, extrapolate_of, method_of};
use crate::torch::is_of;
use crate::{errors, options, output, torch_op};

/// A `robocache.Stream`, and its tensors, kept for the call.
struct FuseStream<'py> {
    parts: Bound<'py, PyTuple>,
    dim: Option<usize>,
    name: Option<String>,
    values: Option<Input<'py>>,
    times: Option<Input<'py>>,
    /// Apart, since few have some.
    lengths: Option<Box<Input<'py>>>,
    scale: Option<ScaleInput<'py>>,
}

impl<'py> FuseStream<'py> {
    /// None of its tensors is described yet.
    fn of(stream: &Bound<'py, PyAny>) -> Result<Self> {
        let parts = torch_op::parts_of(stream)
            .ok_or_else(|| Error::invalid("streams", "expected a Stream that was made by its own class"))?;
        let text = |name: Borrowed<'_, '_, PyAny>| {
            let refused = || Error::invalid("name", format!("expected text, got {}", options::type_name(&name)));
            name.extract().map_err(|_| refused())
        };
        Ok(Self {
            dim: part(&parts, 6).map(|dim| options::whole("dim", &dim, 0)).transpose()?,
            name: part(&parts, 7).map(text).transpose()?,
            parts,
            values: None,
            times: None,
            lengths: None,
            scale: None,
        })
    }

    fn describe_values(&mut self) -> Result<()> {
        if let Some(values) = part(&self.parts, 0) {
            self.values = Some(Input::new("values", &values)?);
        }
        Ok(())
    }

    /// Describes the other tensors; `device` is where the values would be if it has none.
    fn describe_others(&mut self, device: Device, stream: &Stream) -> Result<()> {
        if let Some(times) = part(&self.parts, 1) {
            self.times = Some(Input::on_stream("times", &times, stream)?);
        }
        if let Some(lengths) = part(&self.parts, 4) {
            self.lengths = Some(Box::new(Input::on_stream("lengths", &lengths, stream)?));
        }
        let device = self.values.as_ref().map_or(device, Input::device);
        self.scale = ScaleInput::of(part(&self.parts, 5).as_deref(), device, stream)?;
        Ok(())
    }

    fn engine(&self) -> Result<EngineStream<'_>> {
        let samples = match (&self.values, &self.times) {
            (Some(values), Some(times)) => Some((values.view(), times.view())),
            _ => None,
        };
        if let (Some((values, _)), Some(dim)) = (&samples, self.dim)
            && values.shape().last() != Some(&dim)
        {
            let shape = values.shape();
            return Err(Error::invalid("dim", format!("says {dim} columns, but values have shape {shape:?}")));
        }
        Ok(EngineStream {
            name: self.name.as_deref(),
            samples,
            method: method_of(part(&self.parts, 2).as_deref())?,
            max_gap: options::seconds("max_gap", part(&self.parts, 3).as_deref())?,
            lengths: self.lengths.as_deref().map(Input::view),
            scale: self.scale.as_ref().map(ScaleInput::view),
            dim: self.dim.unwrap_or(0),
        })
    }
}

/// What a stream was made of: see [`torch_op::parts_of`].
fn part<'a, 'py>(parts: &'a Bound<'py, PyTuple>, index: usize) -> Option<Borrowed<'a, 'py, PyAny>> {
    parts.get_borrowed_item(index).ok().filter(|part| !part.is_none())
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
// As in `resample`: `_ops.py` calls it by position.
#[pyo3(signature = (streams, targets, out_dtype=None, extrapolate=None, target_lengths=None, return_valid=None,
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
    let mut list = list_of(streams).map_err(fail)?;
    let parts = list.iter().map(|stream| &stream.parts);
    if let Some(unseen) = torch_op::must_see_streams(parts, targets, [target_lengths, out])? {
        return Ok(unseen);
    }
    // Puts the name of a stream before what was refused about it.
    let blame = |list: &[FuseStream<'_>], (index, refused): (usize, Error)| {
        fail(refused.within(&label(list.iter().map(|stream| stream.name.as_deref()), index)))
    };
    let mut streams = list.iter_mut().enumerate();
    let described = streams.try_for_each(|(index, stream)| stream.describe_values().map_err(|error| (index, error)));
    described.map_err(|refused| blame(&list, refused))?;
    let targets = Input::new("targets", targets).map_err(fail)?;
    // The first data argument decides about the framework and the stream of the GPU.
    let first = list.iter().find_map(|stream| stream.values.as_ref()).unwrap_or(&targets);
    let gpu_stream = Stream::of(first, stream).map_err(fail)?;
    let described = list.iter_mut().enumerate().try_for_each(|(index, stream)| {
        stream.describe_others(targets.device(), &gpu_stream).map_err(|error| (index, error))
    });
    described.map_err(|refused| blame(&list, refused))?;
    let target_lengths = Input::optional("target_lengths", target_lengths, &gpu_stream).map_err(fail)?;
    let mut engine = Vec::with_capacity(list.len());
    for (index, stream) in list.iter().enumerate() {
        engine.push(stream.engine().map_err(|error| blame(&list, (index, error)))?);
    }
    let first = list.iter().find_map(|stream| stream.values.as_ref()).unwrap_or(&targets);
    let build = || -> Result<_> {
        options::budget(max_memory)?;
        options::device(device, first.device())?;
        Ok(Fuse {
            extrapolate: extrapolate_of(extrapolate)?,
            target_lengths: target_lengths.as_ref().map(Input::view).copied(),
            out_dtype: options::dtype("out_dtype", out_dtype)?,
            return_valid: options::flag("return_valid", return_valid, false)?,
            return_age: options::flag("return_age", return_age, false)?,
            check: options::flag("check", check, true)?,
            ..Fuse::new(engine, *targets.view())
        })
    };
    let op = build().map_err(fail)?;
    let context = Context { stream: gpu_stream.handle, ..Context::default() };
    let prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&prepared, first, out, &gpu_stream)?;
    for stream in &list {
        gpu_stream.keep_alive(
            [stream.values.as_ref(), stream.times.as_ref(), stream.lengths.as_deref()].into_iter().flatten(),
        )?;
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
    let mut found = Vec::new();
    let mut add = |count: usize, item: &Bound<'py, PyAny>| {
        // Before all of them are looked at.
        ensure!(
            count <= MOST_STREAMS || found.len() < MOST_STREAMS,
            "streams",
            "expected 1 to {MOST_STREAMS} streams, got {count}"
        );
        if !is_of(item, class) {
            let (index, name) = (found.len(), options::type_name(item));
            return Err(Error::invalid("streams", format!("expected a Stream at index {index}, got {name}")));
        }
        if found.is_empty() {
            found.reserve(count.min(MOST_STREAMS));
        }
        found.push(FuseStream::of(item)?);
        Ok(())
    };
    if let Ok(list) = streams.cast::<PyList>() {
        for item in list {
            add(list.len(), &item)?;
        }
    } else if let Ok(tuple) = streams.cast::<PyTuple>() {
        for item in tuple.iter_borrowed() {
            add(tuple.len(), &item)?;
        }
    } else {
        let name = options::type_name(streams);
        return Err(Error::invalid("streams", format!("expected a list of Stream, got {name}")));
    }
    Ok(found)
}
