//! What a framework's module finds out about an object.

use pyo3::prelude::*;
use robocache::TensorRef;

use crate::dlpack;

/// What keeps the memory of a view.
pub(crate) enum Keep<'py> {
    Nothing,
    Copy { _copy: Bound<'py, PyAny> },
    Loan { _loan: dlpack::Loan },
}

/// What a framework module found out about an object.
pub(crate) struct Described<'py> {
    /// `'static` stands for as long as the [`Input`] lives: the object or `keep` keeps the memory, and only `view` hands
    /// it out, for shorter.
    pub(crate) tensor: TensorRef<'static>,
    pub(crate) read_only: bool,
    /// The copy that the view is of, or what DLPack lent.
    pub(crate) keep: Keep<'py>,
}
