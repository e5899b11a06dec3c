//! The Python face of the engine: conversion of tensors and errors, nothing else.

mod array;
mod cache;
mod cuda;
mod dataset;
mod described;
mod dlpack;
mod enter;
mod errors;
mod fuse;
mod input;
mod kinematics;
mod loader;
mod numpy;
mod observe;
mod options;
mod output;
mod points;
mod recording;
mod resample;
mod resample_backward;
mod robot;
mod rotation;
mod source;
mod stream;
mod torch;
mod torch_op;
mod voxelize;
mod wheels;

use std::ffi::OsString;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use robocache::DType;
use robocache::ops::resample::Method;

/// Runs the command line with the arguments of `sys.argv`; returns the exit code.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
    wheels::search_wheels(py);
    dataset::search_ffmpeg(py);
    py.detach(|| robocache_cli::main(arguments))
}

/// `; did you mean "jpeg"?` for a name that resembles a known one, else nothing.
#[pyfunction]
fn did_you_mean(given: &Bound<'_, PyString>, known: Vec<String>) -> String {
    robocache::did_you_mean(&given.to_string_lossy(), known.iter().map(String::as_str))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    observe::bridge_log();
    module.add("__version__", robocache::VERSION)?;
    let dtypes = DType::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>();
    module.add("DTYPES", PyTuple::new(module.py(), dtypes)?)?;
    module.add("METHODS", PyTuple::new(module.py(), Method::names().collect::<Vec<_>>())?)?;
    module.add("ROTATIONS", rotation::shapes(module.py())?)?;
    module.add_function(wrap_pyfunction!(command_line, module)?)?;
    module.add_function(wrap_pyfunction!(did_you_mean, module)?)?;
    module.add_function(wrap_pyfunction!(resample::resample, module)?)?;
    module.add_function(wrap_pyfunction!(resample_backward::resample_backward, module)?)?;
    module.add_function(wrap_pyfunction!(torch_op::below_torch, module)?)?;
    module.add_function(wrap_pyfunction!(torch_op::torch_must_see, module)?)?;
    module.add_function(wrap_pyfunction!(fuse::fuse, module)?)?;
    module.add_function(wrap_pyfunction!(fuse::promoted, module)?)?;
    module.add_function(wrap_pyfunction!(voxelize::voxelize, module)?)?;
    module.add_function(wrap_pyfunction!(voxelize::group_points, module)?)?;
    module.add_function(wrap_pyfunction!(voxelize::gather_voxels, module)?)?;
    module.add_function(wrap_pyfunction!(voxelize::voxelize_backward, module)?)?;
    module.add_function(wrap_pyfunction!(points::transform_points, module)?)?;
    module.add_function(wrap_pyfunction!(points::crop_box, module)?)?;
    module.add_function(wrap_pyfunction!(points::unproject, module)?)?;
    module.add_function(wrap_pyfunction!(points::farthest_points, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::fk, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::jacobian, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::fk_backward, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::fk_jacobian, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::robot_joints, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::joint_velocity, module)?)?;
    module.add_function(wrap_pyfunction!(kinematics::ik, module)?)?;
    module.add_function(wrap_pyfunction!(rotation::rotation_convert, module)?)?;
    module.add_function(wrap_pyfunction!(rotation::rotation_backward, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::open_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(cache::open_cache, module)?)?;
    module.add_function(wrap_pyfunction!(cache::ingest_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::warmup, module)?)?;
    module.add_function(wrap_pyfunction!(observe::call_counts, module)?)?;
    module.add_function(wrap_pyfunction!(observe::device_memory, module)?)?;
    module.add_function(wrap_pyfunction!(observe::plan_call, module)?)?;
    module.add_function(wrap_pyfunction!(observe::watch_calls, module)?)?;
    module.add_class::<observe::MemoryRecorder>()?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<cache::CacheEpisode>()?;
    module.add_class::<cache::CacheEpisodes>()?;
    module.add_class::<cache::CacheStream>()?;
    module.add_class::<cache::CacheStreamInfo>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<dataset::Episode>()?;
    module.add_class::<dataset::Camera>()?;
    module.add_class::<dataset::EpisodeInfo>()?;
    module.add_class::<dataset::Episodes>()?;
    module.add_class::<dataset::Finding>()?;
    module.add_class::<dataset::Stream>()?;
    module.add_class::<dataset::StreamInfo>()?;
    module.add_class::<loader::Batches>()?;
    module.add_class::<loader::Order>()?;
    module.add_class::<loader::Windows>()?;
    module.add_class::<robot::Robot>()?;
    Ok(())
}
