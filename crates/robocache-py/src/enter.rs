//! The one seam between the interpreter and work that takes time.

use std::sync::Mutex;

use pyo3::prelude::*;
use robocache::Result;

use crate::errors;

/// Does engine work with the interpreter released, so that other Python threads go on. The work is
/// given a question to ask a few times a second: whether a signal came and it should stop.
pub(crate) fn engine<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Fn() -> bool) -> Result<T> + Send) -> PyResult<T> {
    let signal = Mutex::new(None);
    let result = py.detach(|| {
        work(&|| {
            Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    if let Ok(mut signal) = signal.lock() {
                        *signal = Some(error);
                    }
                    true
                }
            })
        })
    });
    match signal.into_inner().ok().flatten() {
        Some(signal) => Err(signal),
        None => result.map_err(|error| errors::to_python(py, &error)),
    }
}
