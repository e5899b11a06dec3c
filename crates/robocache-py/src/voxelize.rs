//! `robocache.voxelize` and `voxelize_depth`: the dense form, and the two halves of the sparse one.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use robocache::ops::voxelize::{GatherVoxels, Grid, GroupPoints, Reduce, VoxelizeBackward};
use robocache::ops::{Number, Voxelize};
use robocache::{Error, Op, Result, prepare};

use crate::input::Input;
use crate::source::Source;
use crate::{errors, options, output};

/// The dense form of `robocache.voxelize`, whose documentation tells the rules.
#[pyfunction]
#[pyo3(signature = (points, features=None, *, origin, voxel_size, shape, reduce=None, lengths=None, dtype=None,
    fill=None, return_counts=None, return_dropped=None, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None,
    check=None),
    text_signature = "(points, features=None, *, origin, voxel_size, shape, reduce='occupancy', lengths=None, \
    dtype=None, fill=0, return_counts=False, return_dropped=False, out=None, device=None, stream=None, \
    max_memory=None, chunk=None, progress=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn voxelize<'py>(
    points: &Bound<'py, PyAny>,
    features: Option<&Bound<'py, PyAny>>,
    origin: &Bound<'py, PyAny>,
    voxel_size: &Bound<'py, PyAny>,
    shape: &Bound<'py, PyAny>,
    reduce: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    fill: Option<&Bound<'py, PyAny>>,
    return_counts: Option<&Bound<'py, PyAny>>,
    return_dropped: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = points.py();
    let name = Source::op(points);
    let fail = |error: Error| errors::to_python(py, &error.op(name));
    let (points, stream) = Source::new(points, stream).map_err(fail)?;
    let features = Input::optional("features", features, &stream).map_err(fail)?;
    let lengths = Input::optional("lengths", lengths, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], points.first().device())?);
        Ok(Voxelize {
            features: features.as_ref().map(Input::view).copied(),
            reduce: options::choice("reduce", reduce, Reduce::Occupancy)?,
            lengths: lengths.as_ref().map(Input::view).copied(),
            dtype: options::dtype("dtype", dtype)?,
            fill: fill.map_or(Ok(Number::Whole(0)), |fill| options::exact_number("fill", fill))?,
            return_counts: options::flag("return_counts", return_counts, false)?,
            return_dropped: options::flag("return_dropped", return_dropped, false)?,
            check: options::flag("check", check, true)?,
            ..Voxelize::new(points.view(), grid(origin, voxel_size, shape)?)
        })
    };
    let op = build().map_err(fail)?;
    let context = stream.context();
    let mut prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&mut prepared, points.first(), out, &stream)?;
    stream.keep_alive(points.inputs().into_iter().chain(&features).chain(&lengths))?;
    one_or_tuple(py, results)
}

/// Points grouped by cell: `(cells, starts, order, inverse, dropped, count)`. The first half of a
/// sparse `robocache.voxelize`.
#[pyfunction]
#[pyo3(signature = (points, *, origin, voxel_size, shape, lengths=None, max_voxels=None, device=None,
    stream=None, max_memory=None, chunk=None, progress=None, check=None),
    text_signature = "(points, *, origin, voxel_size, shape, lengths=None, max_voxels=None, device=None, \
    stream=None, max_memory=None, chunk=None, progress=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn group_points<'py>(
    points: &Bound<'py, PyAny>,
    origin: &Bound<'py, PyAny>,
    voxel_size: &Bound<'py, PyAny>,
    shape: &Bound<'py, PyAny>,
    lengths: Option<&Bound<'py, PyAny>>,
    max_voxels: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = points.py();
    let name = Source::op(points);
    let fail = |error: Error| errors::to_python(py, &error.op(name));
    let (points, stream) = Source::new(points, stream).map_err(fail)?;
    let lengths = Input::optional("lengths", lengths, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], points.first().device())?);
        Ok(GroupPoints {
            points: points.view(),
            grid: grid(origin, voxel_size, shape)?,
            lengths: lengths.as_ref().map(Input::view).copied(),
            max_voxels: max_voxels.map(|most| options::whole("max_voxels", most, 0)).transpose()?,
            check: options::flag("check", check, true)?,
        })
    };
    let op = build().map_err(fail)?;
    let context = stream.context();
    let mut prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&mut prepared, points.first(), None, &stream)?;
    stream.keep_alive(points.inputs().into_iter().chain(&lengths))?;
    one_or_tuple(py, results)
}

/// A row for each group of points: `(coords, counts[, features][, voxels])`. The second half of a
/// sparse `robocache.voxelize`.
#[pyfunction]
#[pyo3(signature = (points, features, groups, rows, *, origin, voxel_size, shape, reduce=None, dtype=None,
    max_points=None, device=None, stream=None, max_memory=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn gather_voxels<'py>(
    points: &Bound<'py, PyAny>,
    features: Option<&Bound<'py, PyAny>>,
    groups: &Bound<'py, PyTuple>,
    rows: usize,
    origin: &Bound<'py, PyAny>,
    voxel_size: &Bound<'py, PyAny>,
    shape: &Bound<'py, PyAny>,
    reduce: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    max_points: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = points.py();
    let name = Source::op(points);
    let fail = |error: Error| errors::to_python(py, &error.op(name));
    let (points, stream) = Source::new(points, stream).map_err(fail)?;
    let features = Input::optional("features", features, &stream).map_err(fail)?;
    let group = |name, index| Input::on_stream(name, &groups.get_item(index)?, &stream).map_err(fail);
    let [cells, starts, order, count] =
        [group("cells", 0)?, group("starts", 1)?, group("order", 2)?, group("count", 5)?];
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, None, None], points.first().device())?);
        Ok(GatherVoxels {
            points: points.view(),
            features: features.as_ref().map(Input::view).copied(),
            grid: grid(origin, voxel_size, shape)?,
            reduce: options::choice("reduce", reduce, Reduce::Occupancy)?,
            dtype: options::dtype("dtype", dtype)?,
            max_points: max_points.map(|most| options::whole("max_points_per_voxel", most, 1)).transpose()?,
            rows,
            cells: *cells.view(),
            starts: *starts.view(),
            order: *order.view(),
            count: *count.view(),
        })
    };
    let op = build().map_err(fail)?;
    let context = stream.context();
    let mut prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&mut prepared, points.first(), None, &stream)?;
    let groups = [&cells, &starts, &order, &count];
    stream.keep_alive(points.inputs().into_iter().chain(&features).chain(groups))?;
    one_or_tuple(py, results)
}

/// The gradient of features from that of their reduction; `groups` are those of `group_points`.
#[pyfunction]
#[pyo3(signature = (points, features, grad, groups, *, reduce, sparse=false, stream=None))]
pub(crate) fn voxelize_backward<'py>(
    points: &Bound<'py, PyAny>,
    features: &Bound<'py, PyAny>,
    grad: &Bound<'py, PyAny>,
    groups: &Bound<'py, PyTuple>,
    reduce: &Bound<'py, PyAny>,
    sparse: bool,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = points.py();
    let fail = |error: Error| errors::to_python(py, &error.op(VoxelizeBackward::NAME));
    let (points, stream) = Source::new(points, stream).map_err(fail)?;
    let features = Input::on_stream("features", features, &stream).map_err(fail)?;
    let grad = Input::on_stream("grad", grad, &stream).map_err(fail)?;
    let group = |name, index| Input::on_stream(name, &groups.get_item(index)?, &stream).map_err(fail);
    let [cells, starts, order, count] =
        [group("cells", 0)?, group("starts", 1)?, group("order", 2)?, group("count", 5)?];
    let build = || -> Result<_> {
        Ok(VoxelizeBackward {
            features: *features.view(),
            points: points.view(),
            reduce: options::choice("reduce", Some(reduce), Reduce::Sum)?,
            grad: *grad.view(),
            sparse,
            cells: *cells.view(),
            starts: *starts.view(),
            order: *order.view(),
            count: *count.view(),
        })
    };
    let op = build().map_err(fail)?;
    let context = stream.context();
    let mut prepared = prepare(&op, &context).map_err(fail)?;
    let results = output::run(&mut prepared, &features, None, &stream)?;
    let others = [&features, &grad, &cells, &starts, &order, &count];
    stream.keep_alive(points.inputs().into_iter().chain(others))?;
    one_or_tuple(py, results)
}

/// The cells, from the three arguments that all ops on grids have.
pub(crate) fn grid(origin: &Bound<'_, PyAny>, voxel_size: &Bound<'_, PyAny>, shape: &Bound<'_, PyAny>) -> Result<Grid> {
    Ok(Grid {
        origin: options::three_numbers("origin", origin, false)?,
        voxel_size: options::three_numbers("voxel_size", voxel_size, true)?,
        shape: options::three_sizes("shape", shape)?,
    })
}

/// Results as Python functions return them: one by itself, several as a tuple.
pub(crate) fn one_or_tuple<'py>(py: Python<'py>, results: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    match <[_; 1]>::try_from(results) {
        Ok([result]) => Ok(result),
        Err(results) => Ok(PyTuple::new(py, results)?.into_any()),
    }
}
