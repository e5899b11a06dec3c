//! `robocache.Robot`'s calls: poses, Jacobians, their gradients, and the way back to joints.

use pyo3::prelude::*;
use robocache::ops::kinematics::{Forward, ForwardBackward, InverseKinematics, JointVelocity, Tolerance};
use robocache::{Error, Op, Result};

use crate::input::Input;
use crate::points::run;
use crate::robot::{by_key, chain_of};
use crate::stream::Stream;
use crate::{errors, options, torch_op};

/// Poses of links.
#[pyfunction]
#[pyo3(signature = (q, robot, places, single, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn fk<'py>(
    q: &Bound<'py, PyAny>,
    robot: &str,
    places: Vec<usize>,
    single: bool,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    forward(q, robot, &places, single, [true, false], out, [device, stream, max_memory, chunk, progress])
}

/// Jacobians of links.
#[pyfunction]
#[pyo3(signature = (q, robot, places, single, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn jacobian<'py>(
    q: &Bound<'py, PyAny>,
    robot: &str,
    places: Vec<usize>,
    single: bool,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    forward(q, robot, &places, single, [false, true], out, [device, stream, max_memory, chunk, progress])
}

/// Poses and Jacobians of links.
#[pyfunction]
#[pyo3(signature = (q, robot, places, single, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn fk_jacobian<'py>(
    q: &Bound<'py, PyAny>,
    robot: &str,
    places: Vec<usize>,
    single: bool,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    forward(q, robot, &places, single, [true, true], out, [device, stream, max_memory, chunk, progress])
}

/// How many positions the robot with a key takes.
#[pyfunction]
pub(crate) fn robot_joints(py: Python<'_>, robot: &str) -> PyResult<usize> {
    let robot = by_key(robot).map_err(|error| errors::to_python(py, &error.op("Robot")))?;
    Ok(robot.joint_names().len())
}

fn forward<'py>(
    q: &Bound<'py, PyAny>,
    robot: &str,
    places: &[usize],
    single: bool,
    [pose, jacobian]: [bool; 2],
    out: Option<&Bound<'py, PyAny>>,
    [device, stream, max_memory, chunk, progress]: [Option<&Bound<'py, PyAny>>; 5],
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(q, [out])? {
        return Ok(unseen);
    }
    let py = q.py();
    let name = if jacobian { "jacobian" } else { "fk" };
    let fail = |error: Error| errors::to_python(py, &error.op(name));
    let q = Input::new("q", q).map_err(fail)?;
    let stream = Stream::of(&q, stream).map_err(fail)?;
    stream.go(options::way([device, max_memory, chunk, progress], q.device()).map_err(fail)?);
    let chain = chain_of(robot, places).map_err(fail)?;
    let op = Forward { q: *q.view(), chain: &chain, pose, jacobian, single };
    run(&op, &q, &[Some(&q)], out, &stream)
}

/// The gradient of poses and Jacobians, with an axis of links, in the positions.
#[pyfunction]
pub(crate) fn fk_backward<'py>(
    q: &Bound<'py, PyAny>,
    pose: Option<&Bound<'py, PyAny>>,
    jacobian: Option<&Bound<'py, PyAny>>,
    robot: &str,
    places: Vec<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = q.py();
    let fail = |error: Error| errors::to_python(py, &error.op(ForwardBackward::NAME));
    let q = Input::new("q", q).map_err(fail)?;
    let stream = Stream::of(&q, None).map_err(fail)?;
    let pose = Input::optional("grad_pose", pose, &stream).map_err(fail)?;
    let jacobian = Input::optional("grad_jacobian", jacobian, &stream).map_err(fail)?;
    let chain = chain_of(robot, &places).map_err(fail)?;
    let op = ForwardBackward {
        q: *q.view(),
        chain: &chain,
        pose: pose.as_ref().map(|pose| *pose.view()),
        jacobian: jacobian.as_ref().map(|jacobian| *jacobian.view()),
    };
    run(&op, &q, &[Some(&q), pose.as_ref(), jacobian.as_ref()], None, &stream)
}

/// Joint velocities that move a link with a twist.
#[pyfunction]
#[pyo3(signature = (q, twist, robot, places, damping, *, out=None, device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn joint_velocity<'py>(
    q: &Bound<'py, PyAny>,
    twist: &Bound<'py, PyAny>,
    robot: &str,
    places: Vec<usize>,
    damping: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(q, [Some(twist), out])? {
        return Ok(unseen);
    }
    let py = q.py();
    let fail = |error: Error| errors::to_python(py, &error.op(JointVelocity::NAME));
    let q = Input::new("q", q).map_err(fail)?;
    let stream = Stream::of(&q, stream).map_err(fail)?;
    let twist = Input::on_stream("twist", twist, &stream).map_err(fail)?;
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], q.device())?);
        Ok((chain_of(robot, &places)?, options::number("damping", damping)?))
    };
    let (chain, damping) = build().map_err(fail)?;
    let op = JointVelocity { q: *q.view(), twist: *twist.view(), chain: &chain, damping };
    run(&op, &q, &[Some(&q), Some(&twist)], out, &stream)
}

/// Joint positions that bring a link to poses: positions, whether they do, two errors, steps.
#[pyfunction]
#[pyo3(signature = (pose, q0, robot, places, position_tol, rotation_tol, max_iterations, seeds, limits, *, out=None,
    device=None, stream=None, max_memory=None, chunk=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn ik<'py>(
    pose: &Bound<'py, PyAny>,
    q0: Option<&Bound<'py, PyAny>>,
    robot: &str,
    places: Vec<usize>,
    position_tol: &Bound<'py, PyAny>,
    rotation_tol: &Bound<'py, PyAny>,
    max_iterations: &Bound<'py, PyAny>,
    seeds: &Bound<'py, PyAny>,
    limits: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    max_memory: Option<&Bound<'py, PyAny>>,
    chunk: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(unseen) = torch_op::must_see(pose, [q0, out])? {
        return Ok(unseen);
    }
    let py = pose.py();
    let fail = |error: Error| errors::to_python(py, &error.op(InverseKinematics::NAME));
    let pose = Input::new("pose", pose).map_err(fail)?;
    let stream = Stream::of(&pose, stream).map_err(fail)?;
    let q0 = Input::optional("q0", q0, &stream).map_err(fail)?;
    let chain = chain_of(robot, &places).map_err(fail)?;
    let count =
        |argument, value| -> Result<u32> { Ok(u32::try_from(options::whole(argument, value, 1)?).unwrap_or(u32::MAX)) };
    let build = || -> Result<_> {
        stream.go(options::way([device, max_memory, chunk, progress], pose.device())?);
        Ok(InverseKinematics {
            pose: *pose.view(),
            q0: q0.as_ref().map(|q0| *q0.view()),
            chain: &chain,
            tolerance: Tolerance {
                position: options::number("position_tol", position_tol)?,
                rotation: options::number("rotation_tol", rotation_tol)?,
            },
            max_iterations: count("max_iterations", max_iterations)?,
            seeds: count("seeds", seeds)?,
            limits: options::flag("limits", Some(limits), true)?,
        })
    };
    let op = build().map_err(fail)?;
    run(&op, &pose, &[Some(&pose), q0.as_ref()], out, &stream)
}
