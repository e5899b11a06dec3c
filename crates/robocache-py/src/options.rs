//! Small options: numbers, names, devices and budgets.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};
use robocache::ops::Number;
use robocache::plan::{Budget, Way};
use robocache::{DType, Device, Error, ErrorKind, Result, did_you_mean};
use robocache_data::{Interpolation, Span};

use crate::stream::Going;

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

/// Reads `device`, `max_memory`, `chunk` and `progress`; none where all is as always.
pub(crate) fn way(
    [device, max_memory, chunk, progress]: [Option<&Bound<'_, PyAny>>; 4],
    data: Device,
) -> Result<Option<Box<Going>>> {
    if device.or(max_memory).or(chunk).or(progress).is_none() {
        return Ok(None);
    }
    let (devices, fallback) = devices(device, data)?;
    let budget = budget(max_memory)?;
    let chunk = chunk.map(|chunk| whole("chunk", chunk, 1)).transpose()?;
    let progress = progress.map(|told| progress_of(told)).transpose()?.flatten();
    let is_plain = devices.is_empty() && budget.is_none() && chunk.is_none() && progress.is_none() && !fallback;
    Ok((!is_plain).then(|| Box::new(Going { way: Way { devices, budget, chunk, fallback }, progress })))
}

/// Reads `progress`: a function of how many of how many parts are done, or a switch for a bar.
fn progress_of(value: &Bound<'_, PyAny>) -> Result<Option<Py<PyAny>>> {
    let refused = || Error::invalid("progress", format!("expected True or a function, got {}", type_name(value)));
    if let Ok(on) = value.extract::<bool>() {
        let made = || value.py().import("robocache._progress")?.getattr("bar")?.call0();
        return if on {
            made()
                .map(|bar| Some(bar.unbind()))
                .map_err(|error| crate::errors::from_python(value.py(), ErrorKind::Unsupported, "progress", &error))
        } else {
            Ok(None)
        };
    }
    if value.is_callable() { Ok(Some(value.clone().unbind())) } else { Err(refused()) }
}

/// Reads `max_memory`.
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

/// The GPUs that `device` names, for a plan.
pub(crate) fn gpus(value: Option<&Bound<'_, PyAny>>) -> Result<Vec<u32>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let one = |value: Bound<'_, PyAny>| {
        let text = value.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        match text.parse()? {
            Device::Cpu => Ok(None),
            Device::Cuda(ordinal) => Ok(Some(ordinal)),
        }
    };
    if !value.is_instance_of::<PyList>() && !value.is_instance_of::<PyTuple>() {
        return one(value.clone()).map(|gpu| gpu.into_iter().collect());
    }
    let items = value.try_iter().map_err(|_| Error::invalid("device", "expected a device or a list of some"))?;
    items.flatten().filter_map(|item| one(item).transpose()).collect()
}

/// The GPUs that data on the host is streamed through, by `device`, and whether the CPU stands in for one; none where the
/// call runs where the data lives.
fn devices(value: Option<&Bound<'_, PyAny>>, data: Device) -> Result<(Vec<u32>, bool)> {
    let Some(value) = value else {
        return Ok((Vec::new(), false));
    };
    let is_list = |value: &Bound<'_, PyAny>| value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let mut names = Vec::new();
    let mut add = |value: &Bound<'_, PyAny>| {
        if value.is_none() || is_list(value) {
            return Err(Error::invalid("device", format!("expected devices in a list, got {}", type_name(value))));
        }
        let text = value.str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
        // As one text a list comes through torch.
        names.extend(text.split(',').map(str::to_owned));
        Ok(())
    };
    if is_list(value) {
        let items = value.try_iter().map_err(|_| Error::invalid("device", "expected a device or a list of some"))?;
        items.flatten().try_for_each(|item| add(&item))?;
    } else {
        add(value)?;
    }
    match &names[..] {
        [] => Err(Error::invalid("device", "expected a device or a list of some, got an empty list")),
        [name] if name == "auto" => Ok(if data == Device::Cpu { gpu_or_cpu(value.py()) } else { (Vec::new(), false) }),
        [name] if name == "cuda" && data != Device::Cpu => Ok((Vec::new(), false)),
        [name] if name.parse::<Device>()? == data => Ok((Vec::new(), false)),
        _ => Ok((names.iter().map(|name| gpu_for(value.py(), name, data)).collect::<Result<_>>()?, false)),
    }
}

/// A GPU for data on the host.
fn gpu_for(py: Python<'_>, name: &str, data: Device) -> Result<u32> {
    let wanted: Device = name.parse()?;
    let Device::Cuda(ordinal) = wanted else {
        let text = match data {
            Device::Cpu => "the CPU cannot be one of several devices".to_owned(),
            data => format!("the data lives on {data}, so it cannot run on {wanted}"),
        };
        return Err(Error::invalid("device", text));
    };
    if data != Device::Cpu {
        let text = format!("the data lives on {data}, so it cannot run on {wanted}");
        return Err(Error::invalid("device", text));
    }
    if let Some(reason) = no_gpu(py) {
        let error = Error::new(ErrorKind::NoDevice, format!("{wanted} is not usable: {reason}"));
        return Err(error.argument("device"));
    }
    let count = robocache::cuda::probe().map_or(0, |gpus| gpus.len());
    if ordinal as usize >= count {
        return Err(Error::invalid("device", format!("{wanted} does not exist; there are {count} GPUs")));
    }
    Ok(ordinal)
}

/// What `device="auto"` means for data on the host: the first GPU that works, else the CPU.
fn gpu_or_cpu(py: Python<'_>) -> (Vec<u32>, bool) {
    if let Some(reason) = no_gpu(py) {
        warn_once_about_the_cpu(&reason);
        return (Vec::new(), true);
    }
    let works = |gpu: &robocache::cuda::GpuInfo| gpu.refusal.is_none();
    let gpus = robocache::cuda::probe().unwrap_or_default();
    (gpus.iter().find(|gpu| works(gpu)).map(|gpu| gpu.ordinal).into_iter().collect(), false)
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

fn warn_once_about_the_cpu(reason: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!("device=\"auto\": computing on the CPU: {reason}");
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
