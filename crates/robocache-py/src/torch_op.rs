//! The way to ops that are registered with torch, and from their kernels back to the engine.
//!
//! `robocache._torch_ops` registers the ops. A call that torch must see (a gradient, a mode, a wrapped
//! tensor) goes there; the op's kernel comes back through [`below_torch`], where torch has done its part.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::cuda;
use crate::torch::Torch;

thread_local! {
    static BELOW_TORCH: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function of this module for the kernel of a registered op: its tensors are plain, and
/// torch looks after their gradients.
#[pyfunction]
#[pyo3(signature = (function, *arguments, **options))]
pub(crate) fn below_torch<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let before = BELOW_TORCH.replace(true);
    let result = function.call(arguments, options);
    BELOW_TORCH.set(before);
    result
}

/// Whether the call must go through the registered op, as far as can be told without opening tensors.
pub(crate) fn is_needed<'a, 'py: 'a>(
    py: Python<'py>,
    values: impl IntoIterator<Item = &'a Bound<'py, PyAny>> + Clone,
    others: impl IntoIterator<Item = &'a Bound<'py, PyAny>>,
) -> PyResult<bool> {
    if BELOW_TORCH.get() || cuda::is_warming_up() {
        return Ok(false);
    }
    match values.clone().into_iter().find_map(Torch::of) {
        Some(torch) => torch.goes_through_op(py, values, others),
        None => Ok(false),
    }
}

/// Whether a tensor that could not be opened may be one that functorch wrapped, which the registered
/// op can take. Asked only after a failure, so that other calls do not pay for it.
pub(crate) fn may_help(py: Python<'_>) -> bool {
    !BELOW_TORCH.get() && Torch::loaded(py).is_some_and(|torch| torch.in_functorch(py))
}

/// Makes the call through the registered op.
#[cold]
pub(crate) fn call<'py>(
    py: Python<'py>,
    op: &str,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
    options: &[(&str, Option<&Bound<'py, PyAny>>)],
) -> PyResult<Bound<'py, PyAny>> {
    let given = PyDict::new(py);
    for (name, value) in options {
        if let Some(value) = value {
            given.set_item(name, value)?;
        }
    }
    py.import("robocache._torch_ops")?.getattr(op)?.call(arguments.into_pyobject(py)?, Some(&given))
}

/// Loads what the gradient of a call needs, when its values want one. The thread is warming up.
pub(crate) fn warm_up_gradient<'py>(
    op: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<()> {
    let py = op.py();
    let values = match (arguments.get_item(0), options) {
        (Ok(values), _) => Some(values),
        (Err(_), Some(options)) => options.get_item("values")?,
        (Err(_), None) => None,
    };
    let Some(values) = values else {
        return Ok(());
    };
    if let Some(torch) = Torch::of(&values)
        && torch.wants_grad(&values)?
    {
        let gradients = py.import("robocache._torch_ops")?.getattr("GRADIENTS")?;
        gradients.get_item(op)?.call(arguments, options)?;
    }
    Ok(())
}
