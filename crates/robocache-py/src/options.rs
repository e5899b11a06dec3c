//! Small options: numbers, names, devices and budgets.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString, PyTuple};
use robocache::plan::Budget;
use robocache::{DType, Device, Error, ErrorKind, Result};

/// Reads a number of seconds.
pub(crate) fn seconds(argument: &'static str, value: Option<&Bound<'_, PyAny>>) -> Result<Option<f64>> {
    value
        .map(|value| {
            value.extract::<f64>().map_err(|_| {
                Error::invalid(argument, format!("expected a number of seconds, got {}", type_name(value)))
            })
        })
        .transpose()
}

/// Reads one of an enumeration's names.
pub(crate) fn choice<T: std::str::FromStr<Err = Error>>(
    argument: &'static str,
    value: Option<&Bound<'_, PyAny>>,
    default: T,
) -> Result<T> {
    let Some(value) = value else {
        return Ok(default);
    };
    match value.cast::<PyString>() {
        Ok(name) => name.to_string_lossy().parse(),
        Err(_) => Err(Error::invalid(argument, format!("expected a name, got {}", type_name(value)))),
    }
}

/// Reads a dtype of torch, NumPy or by name.
pub(crate) fn dtype(argument: &'static str, value: Option<&Bound<'_, PyAny>>) -> Result<Option<DType>> {
    let Some(value) = value else {
        return Ok(None);
    };
    // torch.float32, numpy.float32, numpy.dtype("float32") and "float32".
    let named = value.getattr("__name__").ok().or_else(|| value.getattr("name").ok());
    let text = named.unwrap_or_else(|| value.clone()).str().map(|text| text.to_string()).unwrap_or_default();
    let name = text.strip_prefix("torch.").unwrap_or(&text);
    let known = DType::ALL.iter().copied().find(|dtype| dtype.name() == name);
    known.map(Some).ok_or_else(|| Error::invalid(argument, format!("expected a dtype such as float32, got {text}")))
}

/// Checks `max_memory`. Data that lives where it is computed is not copied in chunks, so there
/// is nothing to bound yet.
pub(crate) fn budget(value: Option<&Bound<'_, PyAny>>) -> Result<Option<Budget>> {
    let Some(value) = value else {
        return Ok(None);
    };
    if !value.is_instance_of::<PyBool>()
        && let Ok(bytes) = value.extract::<u64>()
        && bytes > 0
    {
        return Ok(Some(Budget::Bytes(bytes)));
    }
    let text = value.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    text.parse().map(Some)
}

/// Checks `device` against the device where the data lives.
pub(crate) fn device(value: Option<&Bound<'_, PyAny>>, data: Device) -> Result<()> {
    let Some(value) = value else {
        return Ok(());
    };
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return Err(match no_gpu(value.py()) {
            Some(reason) => Error::new(ErrorKind::NoDevice, format!("no GPU is usable: {reason}")),
            None => Error::new(ErrorKind::Unsupported, "several devices are not implemented yet; pass one"),
        }
        .argument("device"));
    }
    let text = value.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    if text == "auto" {
        if data == Device::Cpu {
            warn_once_about_the_cpu(value.py());
        }
        return Ok(());
    }
    if text == "cuda" && data != Device::Cpu {
        return Ok(());
    }
    let wanted: Device = text.parse()?;
    match (wanted, data) {
        (wanted, data) if wanted == data => Ok(()),
        (Device::Cuda(ordinal), Device::Cpu) => {
            let error = no_gpu(value.py()).map_or_else(
                || {
                    let count = robocache::cuda::probe().map_or(0, |gpus| gpus.len());
                    if ordinal as usize >= count {
                        return Error::invalid("device", format!("{wanted} does not exist; there are {count} GPUs"));
                    }
                    let text = "the data lives on the CPU, and streaming it through a GPU is not implemented yet";
                    Error::new(ErrorKind::Unsupported, format!("{text}; move the tensors to {wanted} first"))
                },
                |reason| Error::new(ErrorKind::NoDevice, format!("{wanted} is not usable: {reason}")),
            );
            Err(error.argument("device"))
        }
        _ => Err(Error::invalid("device", format!("the data lives on {data}, so it cannot run on {wanted}"))),
    }
}

/// Why there is no GPU, if there is none.
fn no_gpu(py: Python<'_>) -> Option<String> {
    crate::cuda::search_wheels(py);
    match robocache::cuda::probe() {
        Err(error) => Some(error.to_string()),
        Ok(gpus) => {
            let reasons = gpus.iter().map(|gpu| Some(format!("cuda:{}: {}", gpu.ordinal, gpu.refusal.as_ref()?)));
            Some(reasons.collect::<Option<Vec<_>>>()?.join("; "))
        }
    }
}

fn warn_once_about_the_cpu(py: Python<'_>) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        let reason =
            no_gpu(py).unwrap_or_else(|| "streaming host data through a GPU is not implemented yet".to_owned());
        let message = format!("device=\"auto\": computing on the CPU: {reason}");
        // A warning that cannot be logged must not fail the call.
        let _ = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("robocache",)))
            .and_then(|logger| logger.call_method1("warning", (message,)));
    }
}

/// The name of an object's type, for messages.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}
