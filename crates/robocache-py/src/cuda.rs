//! Streams, warming up and waiting, as Python sees them.

use std::cell::Cell;
use std::thread::LocalKey;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use robocache::{DType, Device, Error, ErrorKind, OutputSpec, Result, did_you_mean};

use crate::input::{Framework, Input};
use crate::stream::Stream;
use crate::torch::Torch;
use crate::wheels::search_wheels;
use crate::{enter, errors};

impl Stream {
    /// The caller's choice, else the current stream of the framework that `data` belongs to.
    pub(crate) fn of(data: &Input<'_>, chosen: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let py = data.object.py();
        let Device::Cuda(ordinal) = data.device() else {
            let given = chosen.is_some();
            return if given {
                Err(Error::invalid("stream", "the data lives on the CPU, which has no streams"))
            } else {
                Ok(Self::default())
            };
        };
        // Before torch is asked, whose words in a forked child would be about something else.
        robocache::cuda::ensure_usable()?;
        search_wheels(py);
        let refused = |error: PyErr| errors::from_python(py, ErrorKind::InvalidArgument, "stream", &error);
        let current = match (data.framework, Torch::loaded(py)) {
            (Framework::Torch, Some(torch)) => torch.current_stream(py, ordinal).map_err(refused)?,
            _ => current_cupy_stream(&data.object)?,
        };
        let Some(chosen) = chosen else {
            return Ok(Self::new(current, false));
        };
        let handle = ["cuda_stream", "ptr"]
            .into_iter()
            .find_map(|name| chosen.getattr(name).ok())
            .unwrap_or_else(|| chosen.clone());
        let handle = handle.extract::<usize>().map_err(|_| {
            Error::invalid(
                "stream",
                format!("expected an integer handle or a torch stream, got {}", crate::options::type_name(chosen)),
            )
        })?;
        // 1 is another name of the default stream, which torch knows as 0.
        let handle = if handle == 1 { 0 } else { handle };
        Ok(Self::new(handle, handle != current))
    }

    /// Runs `allocate` with this stream as torch's current one: new memory must not be what earlier
    /// work on another stream still writes to. The result may be used on torch's own stream too.
    pub(crate) fn during<'py>(
        &self,
        like: &Input<'py>,
        allocate: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.foreign || like.framework != Framework::Torch {
            return allocate();
        }
        let cuda = like.object.py().import("torch")?.getattr("cuda")?;
        let device = like.object.getattr("device")?;
        let current = cuda.call_method1("current_stream", (&device,))?;
        let external = cuda.getattr("ExternalStream")?.call1((self.handle, &device))?;
        let guard = cuda.call_method1("stream", (external,))?;
        guard.call_method0("__enter__")?;
        let made = allocate();
        let none = like.object.py().None();
        guard.call_method1("__exit__", (&none, &none, &none))?;
        let made = made?;
        made.call_method1("record_stream", (current,))?;
        Ok(made)
    }

    /// Tells torch that tensors are in use on this stream, so that their memory is not reused
    /// before the stream has passed. On torch's own stream that is so anyway.
    pub(crate) fn keep_alive<'a, 'py: 'a>(&self, tensors: impl IntoIterator<Item = &'a Input<'py>>) -> PyResult<()> {
        if !self.foreign {
            return Ok(());
        }
        for tensor in tensors {
            if tensor.framework == Framework::Torch {
                let external = tensor.object.py().import("torch")?.getattr("cuda")?.getattr("ExternalStream")?;
                let stream = external.call1((self.handle, tensor.object.getattr("device")?))?;
                tensor.object.call_method1("record_stream", (stream,))?;
            }
        }
        Ok(())
    }
}

fn cupy<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyModule>> {
    let py = object.py();
    let module = object.get_type().module().map(|name| name.to_string()).unwrap_or_default();
    if module.split('.').next() == Some("cupy") {
        return py.import("cupy").map_err(|error| errors::from_python(py, ErrorKind::Unsupported, "values", &error));
    }
    let name = crate::options::type_name(object);
    Err(Error::unsupported(
        "values",
        format!("{name} on CUDA: on a GPU, torch and CuPy are supported; pass it on by DLPack"),
    ))
}

fn current_cupy_stream(object: &Bound<'_, PyAny>) -> Result<usize> {
    let py = object.py();
    let stream = |module: Bound<'_, PyModule>| {
        module.getattr("cuda")?.call_method0("get_current_stream")?.getattr("ptr")?.extract::<usize>()
    };
    stream(cupy(object)?).map_err(|error| errors::from_python(py, ErrorKind::Unsupported, "stream", &error))
}

/// A new CuPy array for an output.
pub(crate) fn allocate_cupy<'py>(
    py: Python<'py>,
    op: &'static str,
    spec: &OutputSpec,
    like: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if spec.dtype == DType::BF16 {
        let error = Error::unsupported(spec.name, "CuPy has no bfloat16").op(op);
        return Err(errors::to_python(py, &error));
    }
    let module = cupy(like).map_err(|error| errors::to_python(py, &error.op(op)))?;
    module.call_method1("empty", (PyTuple::new(py, spec.layout.shape())?, spec.dtype.name()))
}

thread_local! {
    static WARMING_UP: Cell<bool> = const { Cell::new(false) };
}

/// A switch of this thread that is on until this is dropped, which a panic does, too.
pub(crate) struct Switched {
    switch: &'static LocalKey<Cell<bool>>,
    before: bool,
}

impl Switched {
    pub(crate) fn on(switch: &'static LocalKey<Cell<bool>>) -> Self {
        Self { switch, before: switch.replace(true) }
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.switch.set(self.before);
    }
}

/// Whether ops of this thread should load what they need and compute nothing.
pub(crate) fn is_warming_up() -> bool {
    WARMING_UP.get()
}

/// Compiles and loads what a call with these arguments needs, without computing: a CUDA graph that
/// contains the call can then be captured. Where values require grad, this holds for their gradient
/// too. Nothing happens for data on the CPU.
///
/// Args:
///     op: the op's name, such as "resample"; or a robot's, such as "fk", followed by the robot.
///     *arguments, **options: exactly those of the call that follows.
#[pyfunction]
#[pyo3(signature = (op, *arguments, **options))]
pub(crate) fn warmup<'py>(
    py: Python<'py>,
    op: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<()> {
    const OF_ROBOTS: [&str; 4] = ["fk", "ik", "jacobian", "joint_velocity"];
    const OPS: [&str; 9] = [
        "crop_box",
        "farthest_points",
        "fuse",
        "resample",
        "rotation.convert",
        "transform_points",
        "unproject",
        "voxelize",
        "voxelize_depth",
    ];
    let name = op.to_string_lossy();
    let of_robot = OF_ROBOTS.contains(&&*name);
    if !of_robot && !OPS.contains(&&*name) {
        let meant = did_you_mean(&name, OPS.into_iter().chain(OF_ROBOTS));
        let text = format!("expected one of {}, {}, got {name:?}{meant}", OPS.join(", "), OF_ROBOTS.join(", "));
        return Err(errors::to_python(py, &Error::invalid("op", text).op("warmup")));
    }
    let package = py.import("robocache")?.into_any();
    let package = if of_robot { package.getattr("Robot")? } else { package };
    let function = name.split('.').try_fold(package, |found, part| found.getattr(part))?;
    let _warming_up = Switched::on(&WARMING_UP);
    function.call(arguments, options)?;
    crate::torch_op::warm_up_gradient(op, arguments, options)
}

/// Waits until the work that was queued on all GPUs is done, and raises what it found in its data.
///
/// Args:
///     timeout: seconds; a GPU that is not done by then is given up: `DeviceLost`, also for all
///         later calls on it.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub(crate) fn synchronize(py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let fail = |error: Error| errors::to_python(py, &error.op("synchronize"));
    let seconds = crate::options::seconds("timeout", timeout).map_err(fail)?;
    let limit = seconds.map(|seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Error::invalid("timeout", format!("expected seconds, 0 or more, got {seconds}")))
    });
    let limit = limit.transpose().map_err(fail)?;
    enter::engine(py, |interrupt| {
        robocache::cuda::synchronize(limit, Some(interrupt)).map_err(|error| error.op("synchronize"))
    })
}
