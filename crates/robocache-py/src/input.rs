//! Python objects as tensor views.

use pyo3::prelude::*;
use robocache::{DType, Device, Error, Result, TensorMut, TensorRef};

use crate::described::{Described, Keep};
use crate::stream::Stream;
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
    described: Described<'py>,
    /// All of its memory is 0.
    zeroed: bool,
    name: &'static str,
}

/// Arguments, described in place: moving them costs store-forwarding stalls.
pub(crate) struct Inputs<'py>(Vec<Input<'py>>);

impl<'py> Inputs<'py> {
    pub(crate) fn with_room_for(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Describes an argument, which will be used on `stream`, unless that is the framework's own; returns its place.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        object: &Bound<'py, PyAny>,
        stream: Option<&Stream>,
    ) -> Result<usize> {
        let place = self.0.len();
        self.0.push(Input::blank(name, object.clone()));
        self.0[place].describe(stream.map(|stream| stream.handle))?;
        Ok(place)
    }

    /// As [`Inputs::add`] for an argument that may be `None`.
    pub(crate) fn add_optional(
        &mut self,
        name: &'static str,
        object: Option<&Bound<'py, PyAny>>,
        stream: &Stream,
    ) -> Result<Option<usize>> {
        object.map(|object| self.add(name, object, Some(stream))).transpose()
    }

    /// Adds an output that was just allocated; `zeroed` where all its elements are 0.
    pub(crate) fn add_fresh(&mut self, name: &'static str, object: Bound<'py, PyAny>, zeroed: bool) -> Result<()> {
        let place = self.0.len();
        self.0.push(Input { zeroed, ..Input::blank(name, object) });
        self.0[place].describe(None)
    }

    pub(crate) fn get(&self, place: usize) -> &Input<'py> {
        &self.0[place]
    }

    /// The view of an argument that may be absent.
    pub(crate) fn view(&self, place: Option<usize>) -> Option<&TensorRef<'_>> {
        place.map(|place| self.0[place].view())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Input<'py>> {
        self.0.iter()
    }

    /// The views that ops write to.
    pub(crate) fn views_mut(&mut self) -> Result<Vec<TensorMut<'_>>> {
        let mut views = Vec::with_capacity(self.0.len());
        for input in &mut self.0 {
            views.push(input.view_mut()?);
        }
        Ok(views)
    }
}

impl<'py> Input<'py> {
    /// Describes the first data argument without copying where its framework allows it.
    pub(crate) fn new(name: &'static str, object: &Bound<'py, PyAny>) -> Result<Self> {
        let mut input = Self::blank(name, object.clone());
        input.describe(None).map(|()| input)
    }

    /// Describes a further argument, which will be used on `stream`.
    pub(crate) fn on_stream(name: &'static str, object: &Bound<'py, PyAny>, stream: &Stream) -> Result<Self> {
        let mut input = Self::blank(name, object.clone());
        input.describe(Some(stream.handle)).map(|()| input)
    }

    #[inline]
    fn blank(name: &'static str, object: Bound<'py, PyAny>) -> Self {
        let described = Described { tensor: TensorRef::nothing(), read_only: false, keep: Keep::Nothing };
        Self { object, framework: Framework::NumPy, described, zeroed: false, name }
    }

    /// As [`Input::on_stream`] for an argument that may be `None`.
    pub(crate) fn optional(
        name: &'static str,
        object: Option<&Bound<'py, PyAny>>,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        object.map(|object| Self::on_stream(name, object, stream)).transpose()
    }

    fn describe(&mut self, consumer: Option<usize>) -> Result<()> {
        let (name, object) = (self.name, &self.object);
        let done = if let Some(torch) = torch::Torch::of(object) {
            self.framework = Framework::Torch;
            torch.describe(name, object, &mut self.described)
        } else {
            let other = if numpy::is_array(object) {
                numpy::describe(name, object)
            } else if object.hasattr("__dlpack__").unwrap_or(false) {
                self.framework = Framework::DlPack;
                dlpack::describe(name, object, consumer)
            } else {
                numpy::convert(name, object)
            };
            other.map(|described| self.described = described)
        };
        done.map_err(|error| error.argument(name))
    }

    /// The type of the data.
    pub(crate) fn dtype(&self) -> DType {
        self.described.tensor.dtype()
    }

    /// Where the data lives.
    pub(crate) fn device(&self) -> Device {
        self.described.tensor.device()
    }

    /// The view that ops take.
    pub(crate) fn view(&self) -> &TensorRef<'_> {
        &self.described.tensor
    }

    /// The view that ops write to.
    fn view_mut(&mut self) -> Result<TensorMut<'_>> {
        let refused = |why: &str| Err(Error::invalid(self.name, format!("cannot be written: {why}")));
        if self.described.read_only {
            return refused("it is read-only");
        }
        if matches!(self.described.keep, Keep::Copy { .. }) {
            let name = options::type_name(&self.object);
            return refused(&format!(
                "this {name} can only be read as a copy (byte order, alignment, or not an array)"
            ));
        }
        // SAFETY: the framework describes its own memory, which `object` or `keep` keeps alive, and nothing reads through
        // the view meanwhile; writing races are the caller's, as with every framework's `out=`.
        let view = unsafe { TensorMut::from_view(self.described.tensor) };
        let view = view.map_err(|error| error.argument(self.name))?;
        Ok(if self.zeroed { view.zeroed() } else { view })
    }
}
