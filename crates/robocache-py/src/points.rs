//! `robocache.transform_points`, `crop_box`, `unproject` and `farthest_points`.

use pyo3::prelude::*;
use robocache::ops::{CropBox, FarthestPoints, TransformPoints, Unproject};
use robocache::{Error, Op, Result, prepare};

use crate::input::Input;
use crate::source::{Images, small, small_input};
use crate::stream::Stream;
use crate::voxelize::one_or_tuple;
use crate::{errors, options, output, torch_op};

/// Prepares, runs and hands out the results.
pub(crate) fn run<'py, O: Op>(
    op: &O,
    like: &Input<'py>,
    inputs: &[Option<&Input<'py>>],
    out: Option<&Bound<'py, PyAny>>,
    stream: &Stream,
) -> PyResult<Bound<'py, PyAny>> {
    let py = like.object.py();
    let mut prepared = prepare(op, &stream.context()).map_err(|error| errors::to_python(py, &error))?;
    let results = output::run(&mut prepared, like, out, stream)?;
    stream.keep_alive(inputs.iter().copied().flatten())?;
    one_or_tuple(py, results)
}

/// Points in another frame: `R p + t`.
///
/// Args:
///     points: `[B,N,3]` or `[N,3]` floats.
///     pose: a matrix `[4,4]` or `[3,4]`, or seven numbers, xyz and a quaternion xyzw (which is
///         normalised), with a batch or without. A pose without a batch may be anything on the host;
///         one with a batch lives with the points. It is rounded to what the points compute in:
///         float32, or float64 for float64 points.
///     out: a tensor for the result; it must not overlap the inputs.
///     device: None or where the data lives. Data on the host can be streamed through a GPU, a list of GPUs, or
///         "auto", the first that works (docs/multi-gpu.md).
///     stream: a CUDA stream instead of the current one.
///     max_memory, chunk, progress: as in `resample`.
///
/// Returns:
///     `[B,N,3]` or `[N,3]` in the framework and dtype of `points`: the same bits on CPU and GPU. There are
///     no gradients.
#[pyfunction]
#[pyo3(signature = (points, pose, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn transform_points<'py>(
    points: &Bound<'py, PyAny>,
    pose: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(points, [Some(pose), out])? {
        return Ok(unseen);
    }
    let py = points.py();
    let fail = |error: Error| errors::to_python(py, &error.op(TransformPoints::NAME));
    let points = Input::new("points", points).map_err(fail)?;
    let stream = Stream::of(&points, stream).map_err(fail)?;
    let pose = small_input("pose", pose, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], points.device())?);
        Ok(TransformPoints { points: *points.view(), pose: small(&pose, points.device()) })
    };
    let op = build().map_err(fail)?;
    run(&op, &points, &[Some(&points), Some(&pose)], out, &stream)
}

/// The mask of `robocache.crop_box`, or with `compact` `(points, index, kept)` of full length.
#[pyfunction]
#[pyo3(signature = (points, low, high, *, lengths=None, compact=None, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, check=None),
    text_signature = "(points, low, high, *, lengths=None, compact=False, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, \
    check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn crop_box<'py>(
    points: &Bound<'py, PyAny>,
    low: &Bound<'py, PyAny>,
    high: &Bound<'py, PyAny>,
    lengths: Option<&Bound<'py, PyAny>>,
    compact: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = points.py();
    let fail = |error: Error| errors::to_python(py, &error.op(CropBox::NAME));
    let points = Input::new("points", points).map_err(fail)?;
    let stream = Stream::of(&points, stream).map_err(fail)?;
    let lengths = Input::optional("lengths", lengths, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], points.device())?);
        Ok(CropBox {
            points: *points.view(),
            low: options::three_numbers("low", low, false)?,
            high: options::three_numbers("high", high, false)?,
            lengths: lengths.as_ref().map(Input::view).copied(),
            compact: options::flag("compact", compact, false)?,
            check: options::flag("check", check, true)?,
        })
    };
    let op = build().map_err(fail)?;
    run(&op, &points, &[Some(&points), lengths.as_ref()], out, &stream)
}

/// Depth images to points.
///
/// `z = depth * depth_scale`, `x = (u - cx) / fx * z`, `y = (v - cy) / fy * z` for the pixel in column u
/// and row v, in float32, then the extrinsics. Skew and distortion are not known.
///
/// Args:
///     depth: `[B,H,W]` or `[H,W]`: uint16 or floats.
///     intrinsics: a matrix `[3,3]`, or `fx, fy, cx, cy`; with a batch or without.
///     extrinsics: from the camera to the world, in the forms of `transform_points`' pose.
///     depth_scale: metres of one unit of depth, for all dtypes: 1.0 for depth in metres.
///     return_valid: also return `valid [B,H*W]`, False where the depth is 0, negative, NaN or infinite.
///     out: a tensor for the result, or `(out, valid)`.
///     device: None or where the data lives. Data on the host can be streamed through a GPU, a list of GPUs, or
///         "auto", the first that works (docs/multi-gpu.md).
///     stream: a CUDA stream instead of the current one.
///     max_memory, chunk, progress: as in `resample`.
///
/// Intrinsics and extrinsics without a batch may be anything on the host.
///
/// Returns:
///     `[B,H*W,3]` or `[H*W,3]` float32, row by row of the image, NaN where the depth is not valid:
///     `voxelize` and `crop_box` drop those.
#[pyfunction]
#[pyo3(signature = (depth, intrinsics, extrinsics=None, depth_scale=None, *, return_valid=None, out=None,
    device=None, stream=None, max_memory=None, chunk=None, progress=None),
    text_signature = "(depth, intrinsics, extrinsics=None, depth_scale=0.001, *, return_valid=False, out=None, \
    device=None, stream=None, max_memory=None, chunk=None, progress=None)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn unproject<'py>(
    depth: &Bound<'py, PyAny>,
    intrinsics: &Bound<'py, PyAny>,
    extrinsics: Option<&Bound<'py, PyAny>>,
    depth_scale: Option<&Bound<'py, PyAny>>,
    return_valid: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(depth, [Some(intrinsics), extrinsics, out])? {
        return Ok(unseen);
    }
    let py = depth.py();
    let fail = |error: Error| errors::to_python(py, &error.op(Unproject::NAME));
    let (images, stream) = Images::new(depth, intrinsics, extrinsics, depth_scale, stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], images.depth().device())?);
        let return_valid = options::flag("return_valid", return_valid, false)?;
        Ok(Unproject { image: images.view(), return_valid })
    };
    let op = build().map_err(fail)?;
    let inputs: Vec<_> = images.inputs().into_iter().map(Some).collect();
    run(&op, images.depth(), &inputs, out, &stream)
}

/// Points that lie far apart: each is the one farthest from all that were taken before.
///
/// Args:
///     points: `[B,N,3]` or `[N,3]` floats.
///     k: how many to take, at most N.
///     start: the first that is taken.
///     lengths: `[B]` int32 or int64, how many points of each row exist: at least k, and more than start.
///     out: a tensor for the result.
///     device: None or where the data lives. Data on the host can be streamed through a GPU, a list of GPUs, or
///         "auto", the first that works (docs/multi-gpu.md).
///     stream: a CUDA stream instead of the current one.
///     max_memory, chunk, progress: as in `resample`.
///     check: look for bad lengths. On the CPU they raise; on CUDA the row becomes -1, and the next call
///         on the device or `synchronize()` raises.
///
/// Exact: squared distances in float32 (float64 for float64 points) without contraction, a tie takes the
/// lower index, so CPU and GPU take the same points. No point is taken twice; NaN and infinite points
/// are taken last.
///
/// Returns:
///     `[B,k]` or `[k]` int64 indices, in the order in which they are taken.
#[pyfunction]
#[pyo3(signature = (points, k, start=None, *, lengths=None, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, check=None),
    text_signature = "(points, k, start=0, *, lengths=None, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None, check=True)")]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn farthest_points<'py>(
    points: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    start: Option<&Bound<'py, PyAny>>,
    lengths: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    check: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(points, [lengths, out])? {
        return Ok(unseen);
    }
    let py = points.py();
    let fail = |error: Error| errors::to_python(py, &error.op(FarthestPoints::NAME));
    let points = Input::new("points", points).map_err(fail)?;
    let stream = Stream::of(&points, stream).map_err(fail)?;
    let lengths = Input::optional("lengths", lengths, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], points.device())?);
        Ok(FarthestPoints {
            points: *points.view(),
            k: options::whole("k", k, 0)?,
            start: start.map_or(Ok(0), |start| options::whole("start", start, 0))?,
            lengths: lengths.as_ref().map(Input::view).copied(),
            check: options::flag("check", check, true)?,
        })
    };
    let op = build().map_err(fail)?;
    run(&op, &points, &[Some(&points), lengths.as_ref()], out, &stream)
}
