//! Python objects as tensor views.

use pyo3::prelude::*;
use robocache::{DType, Device, Error, Result, TensorMut, TensorRef};

use crate::cuda::Stream;
use crate::{dlpack, numpy, options, torch};

/// Whose tensor an argument is, which decides what the results are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framework {
    Torch,
    NumPy,
    /// Anything else with DLPack.
    DlPack,
}

/// An argument, described and kept alive for the call.
pub(crate) struct Input<'py> {
    /// The object as it was given.
    pub(crate) object: Bound<'py, PyAny>,
    pub(crate) framework: Framework,
    /// `'static` stands for as long as this lives: `object` or `_keep` keeps the memory, and only `view` hands it out,
    /// for shorter.
    tensor: TensorRef<'static>,
    read_only: bool,
    zeroed: bool,
    /// The copy that the view is of, or what DLPack lent.
    _keep: Keep<'py>,
    name: &'static str,
}

pub(crate) enum Keep<'py> {
    Nothing,
    Copy { _copy: Bound<'py, PyAny> },
    Loan { _loan: dlpack::Loan },
}

/// What a framework module found out about an object.
pub(crate) struct Described<'py> {
    /// Of memory that the object or `keep` keeps alive, for [`Input`] alone.
    pub(crate) tensor: TensorRef<'static>,
    pub(crate) read_only: bool,
    pub(crate) keep: Keep<'py>,
}

impl<'py> Input<'py> {
    /// Describes the first data argument without copying where its framework allows it.
    pub(crate) fn new(name: &'static str, object: &Bound<'py, PyAny>) -> Result<Self> {
        Self::describe(name, object, None)
    }

    /// Describes a further argument, which will be used on `stream`.
    pub(crate) fn on_stream(name: &'static str, object: &Bound<'py, PyAny>, stream: &Stream) -> Result<Self> {
        Self::describe(name, object, Some(stream.handle))
    }

    /// Describes an output that was just allocated; `zeroed` where all its elements are 0.
    pub(crate) fn fresh(name: &'static str, object: Bound<'py, PyAny>, zeroed: bool) -> Result<Self> {
        let Some(torch) = torch::Torch::of(&object) else {
            return Ok(Self { zeroed, ..Self::new(name, &object)? });
        };
        let Described { tensor, read_only, keep } =
            torch.describe_plain(name, &object).map_err(|error| error.argument(name))?;
        Ok(Self { object, framework: Framework::Torch, tensor, read_only, zeroed, _keep: keep, name })
    }

    /// As [`Input::on_stream`] for an argument that may be `None`.
    pub(crate) fn optional(
        name: &'static str,
        object: Option<&Bound<'py, PyAny>>,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        object.map(|object| Self::on_stream(name, object, stream)).transpose()
    }

    fn describe(name: &'static str, object: &Bound<'py, PyAny>, consumer: Option<usize>) -> Result<Self> {
        let (framework, described) = if let Some(torch) = torch::Torch::of(object) {
            (Framework::Torch, torch.describe(name, object))
        } else if numpy::is_array(object) {
            (Framework::NumPy, numpy::describe(name, object))
        } else if object.hasattr("__dlpack__").unwrap_or(false) {
            (Framework::DlPack, dlpack::describe(name, object, consumer))
        } else {
            (Framework::NumPy, numpy::convert(name, object))
        };
        // Views are large: every `?` and `map_err` on the way may copy one.
        match described {
            Ok(Described { tensor, read_only, keep }) => {
                Ok(Self { object: object.clone(), framework, tensor, read_only, zeroed: false, _keep: keep, name })
            }
            Err(error) => Err(error.argument(name)),
        }
    }

    /// The type of the data.
    pub(crate) fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// Where the data lives.
    pub(crate) fn device(&self) -> Device {
        self.tensor.device()
    }

    /// The view that ops take.
    pub(crate) fn view(&self) -> &TensorRef<'_> {
        &self.tensor
    }

    /// The view that ops write to.
    pub(crate) fn view_mut(&mut self) -> Result<TensorMut<'_>> {
        let refused = |why: &str| Err(Error::invalid(self.name, format!("cannot be written: {why}")));
        if self.read_only {
            return refused("it is read-only");
        }
        if matches!(self._keep, Keep::Copy { .. }) {
            let name = options::type_name(&self.object);
            return refused(&format!(
                "this {name} can only be read as a copy (byte order, alignment, or not an array)"
            ));
        }
        // SAFETY: the framework describes its own memory, which `object` or `_keep` keeps alive, and nothing reads through
        // `self.tensor` meanwhile; writing races are the caller's, as with every framework's `out=`.
        let view = unsafe { TensorMut::from_view(self.tensor) };
        let view = view.map_err(|error| error.argument(self.name))?;
        Ok(if self.zeroed { view.zeroed() } else { view })
    }
}
