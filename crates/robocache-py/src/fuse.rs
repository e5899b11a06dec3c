//! `robocache.fuse`.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use robocache::ops::Fuse;
use robocache::ops::fuse::{MOST_STREAMS, Stream as EngineStream, label};
use robocache::{DType, Device, Error, ErrorKind, Op, Result, ensure, prepare};

use crate::input::Inputs;
use crate::resample::{ScaleInput, extrapolate_of, method_of};
use crate::stream::Stream;
use crate::torch::is_of;
use crate::torch_op::Tensors;
use crate::{errors, options, output, torch_op};

/// An unparsed `robocache.Stream`.
struct Told<'py> {
    parts: Bound<'py, PyTuple>,
    /// Those of the parts that may be some.
    tensors: Tensors<'py>,
    dim: Option<usize>,
    name: Option<String>,
}

impl<'py> Told<'py> {
    fn of(stream: &Bound<'py, PyAny>) -> Result<Self> {
        let parts = torch_op::parts_of(stream)
            .ok_or_else(|| Error::invalid("streams", "expected a Stream that was made by its own class"))?;
        let text = |name: Borrowed<'_, '_, PyAny>| {
            let refused =
                || Error::invalid("name", format!("expected Unicode text, got {}", options::type_name(&name)));
            name.extract().map_err(|_| refused())
        };
        Ok(Self {
            dim: part(&parts, 6).map(|dim| options::whole("dim", &dim, 0)).transpose()?,
            name: part(&parts, 7).map(text).transpose()?,
            tensors: torch_op::tensors_of(&parts),
            parts,
        })
    }
}

/// Where the tensors of a stream are among the call's inputs.
#[derive(Default)]
struct Places<'py> {
    values: Option<usize>,
    times: Option<usize>,
    lengths: Option<usize>,
    scale: Option<ScaleInput<'py>>,
}

impl<'py> Told<'py> {
    /// Describes the values, which decide about the stream of the GPU.
    fn add_values(&self, inputs: &mut Inputs<'py>) -> Result<Places<'py>> {
        let [values, ..] = &self.tensors;
        let values = values.as_ref().map(|values| inputs.add("values", values, None)).transpose()?;
        Ok(Places { values, ..Places::default() })
    }

    /// Describes the other tensors; `device` is where the values would be if it has none.
    fn add_others(
        &self,
        places: &mut Places<'py>,
        device: Device,
        inputs: &mut Inputs<'py>,
        stream: &Stream,
    ) -> Result<()> {
        let [_, times, lengths, scale] = &self.tensors;
        places.times = inputs.add_optional("times", times.as_ref(), stream)?;
        places.lengths = inputs.add_optional("lengths", lengths.as_ref(), stream)?;
        if scale.is_some() {
            let device = places.values.map_or(device, |values| inputs.get(values).device());
            places.scale = ScaleInput::of(scale.as_ref(), device, stream)?;
        }
        Ok(())
    }

    fn engine<'a>(&'a self, places: &'a Places<'py>, inputs: &'a Inputs<'py>) -> Result<EngineStream<'a>> {
        let Self { parts, dim, name, .. } = self;
        let samples = inputs.view(places.values).zip(inputs.view(places.times));
        if let (Some((values, _)), Some(dim)) = (&samples, dim)
            && values.shape().last() != Some(dim)
        {
            let shape = values.shape();
            return Err(Error::invalid("dim", format!("says {dim} columns, but values have shape {shape:?}")));
        }
        Ok(EngineStream {
            name: name.as_deref(),
            samples,
            method: method_of(part(parts, 2).as_deref())?,
            max_gap: options::seconds("max_gap", part(parts, 3).as_deref())?,
            lengths: inputs.view(places.lengths),
            scale: places.scale.as_ref().map(ScaleInput::view),
            dim: dim.unwrap_or(0),
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
///     device, stream, max_memory, chunk, progress, check: as in `resample`.
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
    return_age=None, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, check=None),
    text_signature = "(streams, targets, *, out_dtype=None, extrapolate='clamp', target_lengths=None, \
    return_valid=False, return_age=False, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, check=True)")]
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
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = targets.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Fuse::NAME));
    let told = list_of(streams).map_err(fail)?;
    let tensors = told.iter().map(|stream| &stream.tensors);
    if let Some(unseen) = torch_op::must_see_streams(tensors, targets, [target_lengths, out])? {
        return Ok(unseen);
    }
    // Puts the name of a stream before what was refused about it.
    let blame =
        |index, refused: Error| fail(refused.within(&label(told.iter().map(|stream| stream.name.as_deref()), index)));
    let (mut inputs, mut streams) = (Inputs::with_room_for(2 * told.len() + 2), Vec::with_capacity(told.len()));
    for (index, stream) in told.iter().enumerate() {
        streams.push(stream.add_values(&mut inputs).map_err(|error| blame(index, error))?);
    }
    let targets = inputs.add("targets", targets, None).map_err(fail)?;
    // The first data argument, which is the targets where there are no values, decides about the framework and the
    // stream of the GPU.
    const FIRST: usize = 0;
    let gpu_stream = Stream::of(inputs.get(FIRST), stream).map_err(fail)?;
    let with_targets = inputs.get(targets).device();
    for (index, (stream, places)) in told.iter().zip(&mut streams).enumerate() {
        let added = stream.add_others(places, with_targets, &mut inputs, &gpu_stream);
        added.map_err(|error| blame(index, error))?;
    }
    let target_lengths = inputs.add_optional("target_lengths", target_lengths, &gpu_stream).map_err(fail)?;
    let mut engine = Vec::with_capacity(told.len());
    for (index, (stream, places)) in told.iter().zip(&streams).enumerate() {
        engine.push(stream.engine(places, &inputs).map_err(|error| blame(index, error))?);
    }
    let first = inputs.get(FIRST);
    let read = || -> Result<_> {
        gpu_stream.go(options::way([device, max_memory, chunk, progress], first.device())?);
        Ok((
            extrapolate_of(extrapolate)?,
            options::dtype("out_dtype", out_dtype)?,
            options::flag("return_valid", return_valid, false)?,
            options::flag("return_age", return_age, false)?,
            options::flag("check", check, true)?,
        ))
    };
    let (extrapolate, out_dtype, return_valid, return_age, check) = read().map_err(fail)?;
    let op = Fuse {
        streams: engine,
        targets: *inputs.get(targets).view(),
        extrapolate,
        target_lengths: inputs.view(target_lengths).copied(),
        out_dtype,
        return_valid,
        return_age,
        check,
    };
    let context = gpu_stream.context();
    // Large, and `map_err` would copy it.
    let mut prepared = match prepare(&op, &context) {
        Ok(prepared) => prepared,
        Err(error) => return Err(fail(error)),
    };
    let results = output::run(&mut prepared, first, out, &gpu_stream)?;
    gpu_stream.keep_alive(inputs.iter())?;
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

/// Finds the streams of a list or tuple.
fn list_of<'py>(streams: &Bound<'py, PyAny>) -> Result<Vec<Told<'py>>> {
    let mut found = Vec::with_capacity(4);
    let py = streams.py();
    let failed = |error: PyErr| errors::from_python(py, ErrorKind::InvalidArgument, "streams", &error);
    let class = torch_op::stream_class(py).map_err(failed)?;
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
        found.push(Told::of(item)?);
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
