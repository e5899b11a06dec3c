//! What calls do and take: counters, memory, plans, and the engine's log as Python's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use robocache::metrics::{self, Counts, Record};
use robocache::plan::{self, Way};
use robocache::{Device, Error, ErrorKind, Result, cuda};

use crate::wheels::search_wheels;
use crate::{errors, options};

/// Hands what the engine logs to `logging.getLogger("robocache")`.
struct Bridge;

impl log::Log for Bridge {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let level = match record.level() {
            log::Level::Error => 40,
            log::Level::Warn => 30,
            log::Level::Info => 20,
            log::Level::Debug | log::Level::Trace => 10,
        };
        // While the interpreter ends nobody listens any more, and what cannot be logged must not fail the call.
        Python::try_attach(|py| {
            static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let logger = LOGGER.get_or_try_init(py, || {
                py.import("logging")?.call_method1("getLogger", ("robocache",)).map(Bound::unbind)
            });
            let logged = logger.and_then(|logger| {
                let logger = logger.bind(py);
                if logger.call_method1(intern!(py, "isEnabledFor"), (level,))?.is_truthy()? {
                    logger.call_method1(intern!(py, "log"), (level, "%s", record.args().to_string()))?;
                }
                Ok(())
            });
            drop(logged);
        });
    }

    fn flush(&self) {}
}

/// From here on the engine's log is Python's.
pub(crate) fn bridge_log() {
    static BRIDGE: Bridge = Bridge;
    if log::set_logger(&BRIDGE).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
}

static NVTX: AtomicBool = AtomicBool::new(false);

/// The range of a call that Nsight shows, until it is dropped; none where these were not asked for.
pub(crate) struct Range<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Range<'py> {
    pub(crate) fn of(py: Python<'py>, op: &str) -> Self {
        if !NVTX.load(Ordering::Relaxed) {
            return Self(None);
        }
        let begun = nvtx(py).and_then(|nvtx| {
            nvtx.call_method1("range_push", (format!("robocache.{op}"),))?;
            Ok(nvtx)
        });
        Self(begun.ok())
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        if let Some(nvtx) = &self.0 {
            let _ = nvtx.call_method0("range_pop");
        }
    }
}

fn nvtx(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("torch")?.getattr("cuda")?.getattr("nvtx")
}

/// Whether times are counted and ranges shown from here on; None leaves it as it is.
#[pyfunction]
#[pyo3(signature = (timing=None, nvtx=None))]
pub(crate) fn watch_calls(py: Python<'_>, timing: Option<bool>, nvtx: Option<bool>) -> PyResult<()> {
    if let Some(on) = nvtx {
        let can = || {
            let nvtx = self::nvtx(py)?;
            nvtx.call_method1("range_push", ("robocache",))?;
            nvtx.call_method0("range_pop")
        };
        if on && let Err(error) = can() {
            let error = errors::from_python(py, ErrorKind::Unsupported, "nvtx", &error);
            return Err(errors::to_python(py, &error.while_doing("asking torch for NVTX").op("metrics")));
        }
        NVTX.store(on, Ordering::Relaxed);
    }
    if let Some(on) = timing {
        metrics::time_calls(on);
    }
    Ok(())
}

/// The counters of all ops that were called, by name: dicts of numbers; `times` only where some were counted.
#[pyfunction]
#[pyo3(signature = (reset=false))]
pub(crate) fn call_counts(py: Python<'_>, reset: bool) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for (name, counts) in metrics::counts() {
        let Counts { calls, bytes, chunks, fallbacks, errors, times } = counts;
        let one = PyDict::new(py);
        let numbers =
            [("calls", calls), ("bytes", bytes), ("chunks", chunks), ("fallbacks", fallbacks), ("errors", errors)];
        for (key, number) in numbers {
            one.set_item(key, number)?;
        }
        if times.iter().any(|count| *count > 0) {
            one.set_item("times", PyList::new(py, times)?)?;
        }
        all.set_item(name, one)?;
    }
    if reset {
        metrics::reset();
    }
    Ok(all)
}

/// Records the memory of calls while it is open.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct MemoryRecorder(Mutex<Option<metrics::MemoryProfile>>);

#[pymethods]
impl MemoryRecorder {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Some(metrics::MemoryProfile::new())))
    }

    /// What was recorded: `(op, device, bytes in, out, temporary, chunks, bytes free, seconds)` for each call.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let records = self.0.lock().ok().and_then(|profile| Some(profile.as_ref()?.records())).unwrap_or_default();
        let row = |Record { op, device, bytes, chunks, free, after }: Record| {
            let bytes = (bytes.input, bytes.output, bytes.temporary);
            (op, device.to_string(), bytes.0, bytes.1, bytes.2, chunks, free, after.as_secs_f64())
        };
        PyList::new(py, records.into_iter().map(row))
    }

    /// Records no longer, and forgets.
    fn close(&self) {
        drop(self.0.lock().ok().and_then(|mut profile| profile.take()));
    }
}

/// Memory by device: dicts of bytes.
#[pyfunction]
pub(crate) fn device_memory(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    let host = PyDict::new(py);
    host.set_item("free", robocache::available_bytes())?;
    host.set_item("kept", robocache::kept_bytes())?;
    all.set_item("cpu", host)?;
    for (gpu, lost) in cuda::used_gpus() {
        let one = PyDict::new(py);
        one.set_item("total", gpu.info().memory)?;
        one.set_item("free", gpu.free_bytes())?;
        one.set_item("lost", lost)?;
        all.set_item(Device::Cuda(gpu.info().ordinal).to_string(), one)?;
    }
    Ok(all)
}

/// What a call takes: the numbers of `robocache.Plan`, and its text.
#[pyfunction]
#[pyo3(signature = (op, sizes, device=None, max_memory=None, chunk=None, resident=false))]
#[expect(clippy::type_complexity, reason = "a row of numbers")]
pub(crate) fn plan_call(
    py: Python<'_>,
    op: &str,
    sizes: Vec<(String, String)>,
    device: Option<&Bound<'_, PyAny>>,
    max_memory: Option<&Bound<'_, PyAny>>,
    chunk: Option<&Bound<'_, PyAny>>,
    resident: bool,
) -> PyResult<(String, [u64; 3], usize, u64, Option<u64>, Option<f64>, bool, String)> {
    let fail = |error: Error| errors::to_python(py, &error.op("plan"));
    let read = || -> Result<_> {
        let budget = options::budget(max_memory)?;
        let chunk = chunk.map(|chunk| options::whole("chunk", chunk, 1)).transpose()?;
        let gpus = options::gpus(device)?;
        let home = gpus.first().filter(|_| resident).map_or(Device::Cpu, |&ordinal| Device::Cuda(ordinal));
        let devices = if resident { Vec::new() } else { gpus };
        Ok((home, Way { devices, budget, chunk, fallback: false }))
    };
    let (home, way) = read().map_err(fail)?;
    if home != Device::Cpu || !way.devices.is_empty() {
        search_wheels(py);
    }
    let plan = py.detach(|| plan::plan(op, &sizes, home, &way)).map_err(fail)?;
    let bytes = [plan.bytes.input, plan.bytes.output, plan.bytes.temporary];
    let text = plan.to_string();
    let device = plan.device.to_string();
    Ok((device, bytes, plan.chunks, plan.in_flight, plan.limit, plan.seconds, plan.fits, text))
}
