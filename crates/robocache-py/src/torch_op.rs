//! When a call must go through the op that is registered with torch (`robocache._torch_ops`).

use std::cell::Cell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyNotImplemented, PyString, PyTuple, PyType};

use crate::cuda;
use crate::torch::{Attribute, Torch, is_of};

thread_local! {
    static BELOW_TORCH: Cell<bool> = const { Cell::new(false) };
}

/// Runs the kernel of a registered op below torch's dispatch.
#[pyfunction]
#[pyo3(signature = (kernel, *arguments))]
pub(crate) fn below_torch<'py>(
    kernel: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let _below = cuda::Switched::on(&BELOW_TORCH);
    kernel.call1(arguments)
}

/// Whether torch must see a call with these arguments, the first of which is the data: see [`must_see`].
#[pyfunction]
pub(crate) fn torch_must_see(arguments: &Bound<'_, PyTuple>) -> PyResult<bool> {
    is_for_torch(arguments.py(), |seen| {
        let mut leads = false;
        for (index, argument) in arguments.iter_borrowed().enumerate() {
            let found = seen.look_within(&argument)?;
            leads |= found && index == 0;
        }
        Ok(leads)
    })
}

/// `NotImplemented` where torch must see a call with this data and these other arguments; the caller then calls the op that
/// is registered with torch. All other calls go straight to the engine, which is several times quicker.
pub(crate) fn must_see<'py, const N: usize>(
    data: &Bound<'py, PyAny>,
    others: [Option<&Bound<'py, PyAny>>; N],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = data.py();
    let unseen = is_for_torch(py, |seen| {
        let leads = seen.look_within(data)?;
        seen.look_at_others(others)?;
        Ok(leads)
    })?;
    Ok(unseen.then(|| PyNotImplemented::get(py).to_owned().into_any()))
}

/// As [`must_see`] for streams, of which these are the [`TENSORS`].
pub(crate) fn must_see_streams<'a, 'py: 'a, const N: usize>(
    mut streams: impl Iterator<Item = &'a Tensors<'py>> + Clone,
    targets: &Bound<'py, PyAny>,
    others: [Option<&Bound<'py, PyAny>>; N],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = targets.py();
    let unseen = is_for_torch(py, |seen| {
        let mut leads = false;
        for tensors in streams.clone() {
            leads |= seen.look_at_stream(tensors)?;
        }
        // Where there are no values, the targets are the data.
        leads |= seen.look_within(targets)? && !leads && streams.all(|[values, ..]| values.is_none());
        seen.look_at_others(others)?;
        Ok(leads)
    })?;
    Ok(unseen.then(|| PyNotImplemented::get(py).to_owned().into_any()))
}

/// Whether a gradient is wanted, a mode or functorch is at work, or a tensor is of a kind that only torch knows how to
/// open. `look` looks at all tensors and says whether the data are some, which decide about the framework of the
/// results: beside data of others, tensors are only read.
fn is_for_torch(py: Python<'_>, look: impl FnOnce(&mut Seen) -> PyResult<bool>) -> PyResult<bool> {
    let Some(torch) = Torch::loaded(py).filter(|_| !cuda::is_warming_up() && !BELOW_TORCH.get()) else {
        return Ok(false);
    };
    let mut seen = Seen { torch, wanted: false, foreign: false };
    let leads = look(&mut seen)?;
    Ok(seen.wanted || (leads && (seen.foreign || torch.is_watching(py)?)))
}

/// What was seen of the tensors among some arguments.
struct Seen {
    torch: &'static Torch,
    /// Whether one of them wants a gradient.
    wanted: bool,
    /// Whether one of them is of a subclass.
    foreign: bool,
}

impl Seen {
    /// Looks at an argument, or at what a list or tuple holds; says whether there was a tensor.
    fn look_within(&mut self, argument: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.look(argument)? {
            return Ok(true);
        }
        let mut found = false;
        if let Ok(list) = argument.cast::<PyList>() {
            for item in list {
                // Lists of anything else hold no tensors, and are not read to their end.
                if !self.look_into_stream(&item, &mut found)? {
                    break;
                }
            }
        } else if let Ok(tuple) = argument.cast::<PyTuple>() {
            for item in tuple.iter_borrowed() {
                if !self.look_into_stream(&item, &mut found)? {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Looks at a tensor or at those of a stream; says whether it is either.
    fn look_into_stream(&mut self, item: &Bound<'_, PyAny>, found: &mut bool) -> PyResult<bool> {
        if self.look(item)? {
            *found = true;
            return Ok(true);
        }
        if !is_of(item, stream_class(item.py())?) {
            return Ok(false);
        }
        if let Some(parts) = parts_of(item) {
            *found |= self.look_at_stream(&tensors_of(&parts))?;
        }
        Ok(true)
    }

    /// Looks at the tensors of a stream; says whether its values are one.
    fn look_at_stream(&mut self, tensors: &Tensors<'_>) -> PyResult<bool> {
        let mut leads = false;
        for (index, tensor) in tensors.iter().enumerate() {
            if let Some(tensor) = tensor {
                leads |= self.look(tensor)? && index == 0;
            }
        }
        Ok(leads)
    }

    /// Looks at arguments that may be there, and may be tuples.
    fn look_at_others<'py, const N: usize>(&mut self, others: [Option<&Bound<'py, PyAny>>; N]) -> PyResult<()> {
        for other in others.into_iter().flatten() {
            self.look_within(other)?;
        }
        Ok(())
    }

    fn look(&mut self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !self.torch.is_exact(object) {
            if object.is_none() || !self.torch.is_tensor(object) {
                return Ok(false);
            }
            self.foreign = true;
        }
        self.wanted = self.wanted || self.torch.wants_grad(object)?;
        Ok(true)
    }
}

/// `robocache.Stream`.
pub(crate) fn stream_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static STREAM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    STREAM.import(py, "robocache._stream", "Stream")
}

/// Which of a stream's parts may be tensors: values, times, lengths and scale.
const TENSORS: [usize; 4] = [0, 1, 4, 5];

/// These of one stream; what is None is not there.
pub(crate) type Tensors<'py> = [Option<Bound<'py, PyAny>>; TENSORS.len()];

/// The [`TENSORS`] among a stream's [`parts`](parts_of).
pub(crate) fn tensors_of<'py>(parts: &Bound<'py, PyTuple>) -> Tensors<'py> {
    TENSORS.map(|index| Some(parts.get_borrowed_item(index).ok()?.to_owned()).filter(|part| !part.is_none()))
}

/// The arguments of a stream.
const PARTS: usize = 8;

/// What a stream was made of, in the order of its arguments.
pub(crate) fn parts_of<'py>(stream: &Bound<'py, PyAny>) -> Option<Bound<'py, PyTuple>> {
    static GET: PyOnceLock<Attribute> = PyOnceLock::new();
    let py = stream.py();
    let class = stream_class(py).ok()?;
    let parts = if stream.get_type().is(class) {
        GET.get_or_try_init(py, || Attribute::of(class, "_parts")).ok()?.get(stream)
    } else {
        // A subclass may have its own.
        stream.getattr(intern!(py, "_parts"))
    };
    parts.ok()?.cast_into().ok().filter(|parts: &Bound<'_, PyTuple>| parts.len() == PARTS)
}

/// Loads what the gradient of a call needs, when one of its tensors wants one. The thread is warming up.
pub(crate) fn warm_up_gradient<'py>(
    op: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<()> {
    let py = op.py();
    let Some(torch) = Torch::loaded(py) else {
        return Ok(());
    };
    let mut seen = Seen { torch, wanted: false, foreign: false };
    for argument in arguments {
        seen.look_within(&argument)?;
    }
    for (_, option) in options.into_iter().flatten() {
        seen.look_within(&option)?;
    }
    if seen.wanted {
        let gradients = py.import("robocache._torch_ops")?.getattr("GRADIENTS")?.cast_into::<PyDict>()?;
        if let Some(load) = gradients.get_item(op)? {
            load.call(arguments, options)?;
        }
    }
    Ok(())
}
