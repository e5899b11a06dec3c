//! Engine errors as Python exceptions.

use std::path::Path;

use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use robocache::{Error, ErrorKind};

/// The class in `robocache._errors` for a kind. Classes with two parents are written in Python.
fn class<'py>(py: Python<'py>, kind: ErrorKind) -> PyResult<Bound<'py, PyType>> {
    let name = match kind {
        ErrorKind::InvalidArgument => "InvalidArgument",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::OutOfMemory => "OutOfMemory",
        ErrorKind::FileError => "FileError",
        ErrorKind::CorruptData => "CorruptData",
        ErrorKind::LimitExceeded => "LimitExceeded",
        ErrorKind::NoDevice => "NoDevice",
        ErrorKind::DeviceLost => "DeviceLost",
        ErrorKind::Interrupted => return Ok(py.get_type::<PyKeyboardInterrupt>()),
    };
    Ok(py.import("robocache._errors")?.getattr(name)?.cast_into::<PyType>()?)
}

/// The exception for an engine error.
#[cold]
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let made = class(py, error.kind()).and_then(|class| {
        if error.kind() == ErrorKind::Interrupted {
            return class.call0();
        }
        make(py, &class, error)
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception for a key that a mapping does not have.
#[cold]
pub(crate) fn unknown_key(py: Python<'_>, error: &Error) -> PyErr {
    let class = py.import("robocache._errors").and_then(|module| Ok(module.getattr("UnknownKey")?.cast_into()?));
    match class.and_then(|class| make(py, &class, error)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn make<'py>(py: Python<'py>, class: &Bound<'py, PyType>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let place = PyDict::new(py);
    place.set_item("op", error.op_name())?;
    place.set_item("argument", error.argument_name())?;
    place.set_item("path", error.file().map(Path::as_os_str))?;
    class.call((error.to_string(),), Some(&place))
}

/// An engine error that says what Python said, for conversions that failed inside a framework.
#[cold]
pub(crate) fn from_python(py: Python<'_>, kind: ErrorKind, argument: &'static str, error: &PyErr) -> Error {
    let text = error.value(py).to_string();
    let first = text.lines().next().unwrap_or_default().to_owned();
    Error::new(kind, first).argument(argument)
}

/// Whether the exception says that memory ran out, on a GPU too: torch has a class for that.
pub(crate) fn is_any_out_of_memory(py: Python<'_>, error: &PyErr) -> bool {
    let of_torch = || error.get_type(py).name().is_ok_and(|name| name.to_string_lossy() == "OutOfMemoryError");
    is_out_of_memory(py, error) || of_torch()
}

/// Whether the exception says that memory ran out on the host. torch's CPU allocator raises a
/// plain `RuntimeError`.
pub(crate) fn is_out_of_memory(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyMemoryError>(py) || {
        let text = error.value(py).to_string();
        text.contains("DefaultCPUAllocator") || text.contains("not enough memory")
    }
}
