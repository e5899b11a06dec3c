//! The Python face of the engine: conversion of tensors and errors, nothing else.

mod cuda;
mod dlpack;
mod enter;
mod errors;
mod input;
mod numpy;
mod options;
mod output;
mod resample;
mod torch;

use pyo3::prelude::*;

/// Runs the command line with the arguments of `sys.argv`; returns the exit code.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<String>) -> i32 {
    cuda::search_wheels(py);
    py.detach(|| robocache_cli::main(arguments))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", robocache::VERSION)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(resample::resample, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::warmup, module)?)?;
    Ok(())
}
