//! Small options: numbers, names, devices and budgets.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};
use robocache::ops::Number;
use robocache::plan::Budget;
use robocache::{DType, Device, Error, ErrorKind, Result, did_you_mean};
use robocache_data::{Interpolation, Span};

/// Whether an object is a switch, which is no number: one of Python's or of NumPy's, also in an array or a tensor.
fn is_switch(value: &Bound<'_, PyAny>) -> bool {
    // Most are numbers of Python's, which saves the question.
    if value.is_exact_instance_of::<PyFloat>() || value.is_exact_instance_of::<PyInt>() {
        return false;
    }
    let holds_some = || {
        let dtype = value.getattr("dtype").and_then(|dtype| dtype.str());
        dtype.is_ok_and(|dtype| ["bool", "torch.bool"].iter().any(|name| dtype.to_string_lossy() == *name))
    };
    value.extract::<bool>().is_ok() || holds_some()
}

/// Reads a switch.
pub(crate) fn flag(argument: &'static str, value: Option<&Bound<'_, PyAny>>, default: bool) -> Result<bool> {
    let refused = |value| Error::invalid(argument, format!("expected True or False, got {}", type_name(value)));
    value.map_or(Ok(default), |value| value.extract::<bool>().map_err(|_| refused(value)))
}

/// Reads a number of seconds.
pub(crate) fn seconds(argument: &'static str, value: Option<&Bound<'_, PyAny>>) -> Result<Option<f64>> {
    let read = |value: &Bound<'_, PyAny>| {
        let refused = || Error::invalid(argument, format!("expected a number of seconds, got {}", type_name(value)));
        if is_switch(value) { Err(refused()) } else { value.extract::<f64>().map_err(|_| refused()) }
    };
    value.map(read).transpose()
}

/// Reads a number.
pub(crate) fn number(argument: &'static str, value: &Bound<'_, PyAny>) -> Result<f64> {
    let refused = || Error::invalid(argument, format!("expected a number, got {}", type_name(value)));
    if is_switch(value) || value.is_instance_of::<PyString>() {
        return Err(refused());
    }
    value.extract::<f64>().map_err(|_| refused())
}

/// Reads a number of which integers stay exact.
pub(crate) fn exact_number(argument: &'static str, value: &Bound<'_, PyAny>) -> Result<Number> {
    if !is_switch(value)
        && let Ok(whole) = value.call_method0("__index__").and_then(|index| index.extract::<i128>())
    {
        return Ok(whole.into());
    }
    // Integers of more bits than that are larger than what any integer dtype holds, rounded or not.
    number(argument, value).map(Number::Real)
}

/// Reads the name of a stream. Python's texts may hold half a surrogate pair, which no name has.
pub(crate) fn key<'a>(name: &'a Bound<'_, PyString>) -> Result<Cow<'a, str>> {
    name.to_cow().map_err(|_| {
        Error::invalid("stream", format!("there is no {:?}, which is no Unicode text", name.to_string_lossy()))
    })
}

/// Reads three numbers, or one that stands for all three where `one` says so.
pub(crate) fn three_numbers(argument: &'static str, value: &Bound<'_, PyAny>, one: bool) -> Result<[f64; 3]> {
    let expected = if one { "a number or three" } else { "three numbers" };
    let refused = |got: String| Error::invalid(argument, format!("expected {expected}, got {got}"));
    if one && let Ok(number) = number(argument, value) {
        return Ok([number; 3]);
    }
    if value.is_instance_of::<PyString>() {
        return Err(refused("a text".to_owned()));
    }
    let items = value.try_iter().map_err(|_| refused(type_name(value)))?;
    let mut numbers = Vec::new();
    for item in items.take(4) {
        numbers.push(number(argument, &item.map_err(|_| refused(type_name(value)))?)?);
    }
    numbers.try_into().map_err(|numbers: Vec<f64>| {
        refused(if numbers.len() > 3 { "more".to_owned() } else { numbers.len().to_string() })
    })
}

/// Reads a whole number from `least` on.
pub(crate) fn whole(argument: &'static str, value: &Bound<'_, PyAny>, least: usize) -> Result<usize> {
    let refused = || {
        let text = value.repr().map_or_else(|_| type_name(value), |text| text.to_string_lossy().into_owned());
        Error::invalid(argument, format!("expected a whole number from {least} on, got {text}"))
    };
    if is_switch(value) {
        return Err(refused());
    }
    let index = value.call_method0("__index__").map_err(|_| refused())?;
    index.extract::<usize>().ok().filter(|number| *number >= least).ok_or_else(refused)
}

/// Reads the cells along three axes.
pub(crate) fn three_sizes(argument: &'static str, value: &Bound<'_, PyAny>) -> Result<[usize; 3]> {
    let refused = || Error::invalid(argument, "expected three whole numbers (X, Y, Z)");
    if value.is_instance_of::<PyString>() {
        return Err(refused());
    }
    let mut sizes = Vec::new();
    for item in value.try_iter().map_err(|_| refused())?.take(4) {
        sizes.push(whole(argument, &item.map_err(|_| refused())?, 1)?);
    }
    sizes.try_into().map_err(|_| refused())
}

/// Reads a dtype: a name, or torch's and NumPy's own objects.
pub(crate) fn dtype(argument: &'static str, value: Option<&Bound<'_, PyAny>>) -> Result<Option<DType>> {
    const SHORT: [(&str, DType); 10] = [
        ("f16", DType::F16),
        ("bf16", DType::BF16),
        ("f32", DType::F32),
        ("f64", DType::F64),
        ("half", DType::F16),
        ("float", DType::F32),
        ("double", DType::F64),
        ("u8", DType::U8),
        ("i32", DType::I32),
        ("i64", DType::I64),
    ];
    let Some(value) = value else {
        return Ok(None);
    };
    // Python's own, which is no dtype, has 64 bits, unlike torch's `float`.
    if value.is(value.py().get_type::<PyFloat>()) {
        return Ok(Some(DType::F64));
    }
    // `np.float32` is a class, `torch.float32` and `np.dtype("float32")` are objects.
    let name = value.getattr("__name__").and_then(|name| name.extract::<String>());
    let name = name.or_else(|_| value.str().map(|text| text.to_string_lossy().into_owned())).unwrap_or_default();
    let name = name.strip_prefix("torch.").unwrap_or(&name);
    let own = DType::ALL.iter().map(|dtype| (dtype.name(), *dtype));
    let found = own.chain(SHORT).find(|(known, _)| *known == name).map(|(_, dtype)| dtype);
    found.map(Some).ok_or_else(|| {
        let meant = did_you_mean(name, DType::ALL.iter().map(|dtype| dtype.name()));
        Error::invalid(argument, format!("expected a dtype such as float32, got \"{name}\"{meant}"))
    })
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

/// Checks `max_memory`. Data that lives where it is computed is not copied in chunks, so there
/// is nothing to bound yet.
pub(crate) fn budget(value: Option<&Bound<'_, PyAny>>) -> Result<Option<Budget>> {
    let Some(value) = value else {
        return Ok(None);
    };
    if !is_switch(value)
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
    let is_list = |value: &Bound<'_, PyAny>| value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let only = if is_list(value) { only_device(value)? } else { value.clone() };
    let value = &only;
    if value.is_none() || is_list(value) {
        return Err(Error::invalid("device", format!("expected devices in a list, got {}", type_name(value))));
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

/// The device of a list of one.
fn only_device<'py>(list: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    if list.len().unwrap_or(0) > 1 {
        return Err(match no_gpu(list.py()) {
            Some(reason) => Error::new(ErrorKind::NoDevice, format!("no GPU is usable: {reason}")),
            None => Error::new(ErrorKind::Unsupported, "several devices are not implemented yet; pass one"),
        }
        .argument("device"));
    }
    list.get_item(0).map_err(|_| Error::invalid("device", "expected a device or a list of some, got an empty list"))
}

/// Why there is no GPU, if there is none.
fn no_gpu(py: Python<'_>) -> Option<String> {
    crate::wheels::search_wheels(py);
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

/// A method's name, or ranges of columns.
pub(crate) fn spans(method: &Bound<'_, PyAny>) -> Result<Vec<Span>> {
    let parse = |name: &str| Interpolation::from_name("methods", name);
    if let Ok(name) = method.extract::<String>() {
        // As wide as the stream, which only the plan knows.
        return Ok(vec![Span { method: parse(&name)?, start: 0, end: usize::MAX }]);
    }
    let ranges = method.extract::<Vec<(String, usize, usize)>>().map_err(|_| {
        let got = type_name(method);
        Error::invalid("methods", format!("expected a name or a list of (name, start, end), got {got}"))
    })?;
    ranges.iter().map(|(name, start, end)| Ok(Span { method: parse(name)?, start: *start, end: *end })).collect()
}
