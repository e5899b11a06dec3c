//! NumPy arrays through `__array_struct__`, which shows strides, alignment and byte order that
//! DLPack cannot express. What cannot be viewed is copied.

use std::ffi::{c_char, c_int, c_void};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use robocache::{DType, Device, Error, ErrorKind, Layout, OutputSpec, Result, TensorRef};

use crate::described::{Described, Keep};
use crate::errors;
use crate::options::type_name;

/// `PyArrayInterface` of NumPy's array interface, version 3.
#[repr(C)]
struct ArrayInterface {
    two: c_int,
    rank: c_int,
    kind: c_char,
    item_size: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
}

const ALIGNED: c_int = 0x100;
const NATIVE_ORDER: c_int = 0x200;
const WRITEABLE: c_int = 0x400;

/// The type `numpy.ndarray`; imports NumPy, which is a dependency.
fn array_type<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "numpy", "ndarray")
}

/// Whether `object` is a NumPy array.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    array_type(object.py()).is_ok_and(|class| object.is_instance(class).unwrap_or(false))
}

/// Describes an array, or a copy of it where it lies swapped or unaligned.
pub(crate) fn describe<'py>(name: &'static str, array: &Bound<'py, PyAny>) -> Result<Described<'py>> {
    if !array.get_type().is(array_type(array.py()).map_err(|error| python(array, name, &error))?)
        && array.hasattr("mask").unwrap_or(false)
    {
        return Err(Error::new(ErrorKind::Unsupported, "masked arrays are not supported; fill them first"));
    }
    match view(name, array)? {
        Some(described) => Ok(described),
        None => {
            let copy = native_copy(array).map_err(|error| python(array, name, &error))?;
            let described = view(name, &copy)?;
            let Described { tensor, .. } =
                described.ok_or_else(|| Error::new(ErrorKind::Unsupported, "array cannot be read"))?;
            Ok(Described { tensor, read_only: false, keep: Keep::Copy { _copy: copy } })
        }
    }
}

/// Makes an array of a list, a number or anything else that NumPy understands.
pub(crate) fn convert<'py>(name: &'static str, object: &Bound<'py, PyAny>) -> Result<Described<'py>> {
    let py = object.py();
    let array = py.import("numpy").and_then(|numpy| numpy.call_method1("asarray", (object,)));
    let array = array.map_err(|error| errors::from_python(py, ErrorKind::InvalidArgument, name, &error))?;
    let kind = array.getattr("dtype").and_then(|dtype| dtype.getattr("kind")).and_then(|kind| kind.extract::<char>());
    if matches!(kind, Ok('O' | 'U' | 'S')) {
        return Err(Error::invalid(name, format!("expected a tensor or numbers, got {}", type_name(object))));
    }
    let Described { tensor, keep, .. } = describe(name, &array)?;
    // The array itself, or the copy that had to be made of it.
    let keep = if matches!(keep, Keep::Nothing) { Keep::Copy { _copy: array } } else { keep };
    Ok(Described { tensor, read_only: false, keep })
}

fn python(array: &Bound<'_, PyAny>, name: &'static str, error: &PyErr) -> Error {
    errors::from_python(array.py(), ErrorKind::InvalidArgument, name, error)
}

fn native_copy<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let dtype = array.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    let options = PyDict::new(array.py());
    options.set_item("order", "C")?;
    array.call_method("astype", (dtype,), Some(&options))
}

/// `None` where the array must be copied first.
fn view<'py>(name: &'static str, array: &Bound<'py, PyAny>) -> Result<Option<Described<'py>>> {
    let py = array.py();
    let capsule = array.getattr(intern!(py, "__array_struct__")).map_err(|error| python(array, name, &error))?;
    // SAFETY: NumPy's capsule has no name and holds the structure, alive as long as the capsule.
    let interface =
        unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()).cast::<ArrayInterface>().as_ref() };
    let Some(interface) = interface.filter(|interface| interface.two == 2) else {
        let _ = PyErr::take(py);
        return Err(Error::new(ErrorKind::Unsupported, "unknown array interface"));
    };
    let dtype = dtype_of(name, array, interface)?;
    let item_size = dtype.size() as isize;
    if interface.flags & NATIVE_ORDER == 0 {
        return Ok(None);
    }
    let rank = usize::try_from(interface.rank).unwrap_or(0);
    // SAFETY: the structure holds `rank` sizes and strides.
    let (sizes, byte_strides) = unsafe {
        if rank == 0 {
            (&[][..], &[][..])
        } else {
            (std::slice::from_raw_parts(interface.shape, rank), std::slice::from_raw_parts(interface.strides, rank))
        }
    };
    // An empty or single-element array may claim any strides.
    let unaligned = interface.flags & ALIGNED == 0 || byte_strides.iter().any(|stride| stride % item_size != 0);
    if unaligned && sizes.iter().all(|&size| size != 0) {
        return Ok(None);
    }
    let shape: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    let strides: Vec<i64> = byte_strides.iter().map(|&stride| (stride / item_size) as i64).collect();
    let layout = Layout::strided(&shape, Some(&strides), dtype)?;
    // SAFETY: the array describes its own memory, which it keeps.
    let tensor = unsafe { TensorRef::from_raw(interface.data.cast(), dtype, Device::Cpu, layout)? };
    Ok(Some(Described { tensor, read_only: interface.flags & WRITEABLE == 0, keep: Keep::Nothing }))
}

fn dtype_of(argument: &'static str, array: &Bound<'_, PyAny>, interface: &ArrayInterface) -> Result<DType> {
    #[expect(clippy::cast_sign_loss, reason = "a type code is an ASCII letter")]
    let dtype = match (interface.kind as u8, interface.item_size) {
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        (b'u', 1) => DType::U8,
        (b'i', 1) => DType::I8,
        (b'u', 2) => DType::U16,
        (b'i', 2) => DType::I16,
        (b'u', 4) => DType::U32,
        (b'i', 4) => DType::I32,
        (b'u', 8) => DType::U64,
        (b'i', 8) => DType::I64,
        (b'b', 1) => DType::Bool,
        _ => {
            let name = array
                .getattr("dtype")
                .and_then(|dtype| dtype.str())
                .map_or_else(|_| "?".into(), |name| name.to_string());
            // The package ml_dtypes brings these to NumPy as types of its own.
            let own = [DType::BF16, DType::F8E4M3, DType::F8E5M2];
            if let Some(&dtype) = own.iter().find(|dtype| dtype.name() == name) {
                return Ok(dtype);
            }
            let is_time = matches!(argument, "times" | "targets") && matches!(interface.kind as u8, b'M' | b'm');
            let class = name.split('[').next().unwrap_or_default();
            let as_numbers = format!("; as nanoseconds: .astype(\"{class}[ns]\").astype(\"int64\")");
            let hint = if is_time { as_numbers.as_str() } else { "" };
            return Err(Error::new(ErrorKind::Unsupported, format!("dtype {name} is not supported{hint}")));
        }
    };
    Ok(dtype)
}

/// NumPy's bfloat16, which the package `ml_dtypes` brings.
pub(crate) fn bfloat16(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("ml_dtypes")?.getattr("bfloat16")
}

/// A new array for an output of an op. `like` lends its dtype where NumPy has none of that name.
pub(crate) fn allocate<'py>(
    py: Python<'py>,
    op: &'static str,
    spec: &OutputSpec,
    like: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let shape = PyTuple::new(py, spec.layout.shape())?;
    let empty = EMPTY.import(py, "numpy", "empty")?;
    if spec.dtype == DType::BF16 {
        let dtype = match like.getattr("dtype") {
            Ok(dtype) if is_array(like) && dtype.str()? == DType::BF16.name() => dtype,
            _ => bfloat16(py).map_err(|error| without_bfloat16(py, op, spec, error))?,
        };
        return empty.call1((shape, dtype));
    }
    empty.call1((shape, spec.dtype.name()))
}

/// Says which package is missing.
fn without_bfloat16(py: Python<'_>, op: &'static str, spec: &OutputSpec, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyImportError>(py) {
        return error;
    }
    let text = "bfloat16 arrays of NumPy need the package ml_dtypes: pip install ml_dtypes";
    errors::to_python(py, &Error::unsupported(spec.name, text).op(op))
}
