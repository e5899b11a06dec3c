//! Objects of any framework through the Python side of DLPack.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use robocache::tensor::dlpack::{
    DlDevice, DlManagedTensor, DlManagedTensorVersioned, FLAG_READ_ONLY, MAJOR_VERSION, describe as describe_tensor,
};
use robocache::{Device, Error, ErrorKind, Result};

use crate::described::{Described, Keep};
use crate::errors;

const NAME: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// A tensor that a producer lent, given back when dropped.
#[derive(Debug)]
pub(crate) enum Loan {
    Legacy(NonNull<DlManagedTensor>),
    Versioned(NonNull<DlManagedTensorVersioned>),
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the loan owns the tensor, and a deleter is called once.
        unsafe {
            match self {
                Self::Legacy(tensor) => {
                    if let Some(delete) = tensor.as_ref().deleter {
                        delete(tensor.as_ptr());
                    }
                }
                Self::Versioned(tensor) => {
                    if let Some(delete) = tensor.as_ref().deleter {
                        delete(tensor.as_ptr());
                    }
                }
            }
        }
    }
}

/// Borrows a tensor from an object with `__dlpack__`.
///
/// On a GPU, `consumer` is the stream that the tensor will be used on, for which the producer makes
/// its work ready; none when that is the producer's own.
pub(crate) fn describe<'py>(
    name: &'static str,
    object: &Bound<'py, PyAny>,
    consumer: Option<usize>,
) -> Result<Described<'py>> {
    let py = object.py();
    let refused = |error: PyErr| errors::from_python(py, ErrorKind::Unsupported, name, &error);
    let mut on_gpu = false;
    if object.hasattr("__dlpack_device__").unwrap_or(false) {
        let device = object.call_method0("__dlpack_device__").map_err(refused)?;
        // Refuse foreign devices before the producer synchronises or copies anything. The type
        // may be an enumeration, so it is read as an integer.
        let device_type = device.get_item(0).and_then(|kind| kind.extract::<i32>()).map_err(refused)?;
        let device_id = device.get_item(1).and_then(|id| id.extract::<i32>()).map_err(refused)?;
        on_gpu = Device::from_dlpack(DlDevice { device_type, device_id })? != Device::Cpu;
    }
    let module = object.get_type().module().map(|name| name.to_string()).unwrap_or_default();
    let is_jax = module.starts_with("jax");
    if is_jax && on_gpu {
        let text = "JAX arrays on a GPU are not supported; torch and CuPy are";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let capsule = capsule(object, on_gpu.then_some(consumer)).map_err(refused)?;
    let (loan, read_only) = take(&capsule)?;
    let tensor = match &loan {
        // SAFETY: the loan owns the tensor; its version was checked in `take`.
        Loan::Legacy(tensor) => unsafe { &tensor.as_ref().tensor },
        // SAFETY: as above.
        Loan::Versioned(tensor) => unsafe { &tensor.as_ref().tensor },
    };
    // SAFETY: a producer fills shape and strides with `ndim` elements, and keeps the memory for as long as the loan.
    let tensor = unsafe { describe_tensor(tensor)? };
    // JAX arrays never change, whatever their capsule says.
    let read_only = read_only || is_jax;
    Ok(Described { tensor, read_only, keep: Keep::Loan { _loan: loan } })
}

/// Asks for a versioned tensor, and for a plain one from producers that do not know versions.
fn capsule<'py>(object: &Bound<'py, PyAny>, gpu: Option<Option<usize>>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("max_version", PyTuple::new(py, [MAJOR_VERSION, 0])?)?;
    match gpu {
        None => {}
        Some(None) => options.set_item("stream", -1)?,
        // 0 is ambiguous in DLPack; the default stream is 1.
        Some(Some(consumer)) => options.set_item("stream", consumer.max(1))?,
    }
    match object.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
            options.del_item("max_version")?;
            object.call_method("__dlpack__", (), Some(&options))
        }
        result => result,
    }
}

fn take(capsule: &Bound<'_, PyAny>) -> Result<(Loan, bool)> {
    let pointer = |name: &CStr| -> Option<NonNull<c_void>> {
        // SAFETY: any object may be asked; the name is compared before a pointer is returned.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
                return None;
            }
            NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    let (pointer, versioned) = match (pointer(VERSIONED_NAME), pointer(NAME)) {
        (Some(pointer), _) => (pointer, true),
        (None, Some(pointer)) => (pointer, false),
        (None, None) => {
            return Err(Error::new(ErrorKind::InvalidArgument, "__dlpack__ did not return an unused DLPack capsule"));
        }
    };
    let used = if versioned { VERSIONED_USED } else { USED };
    // SAFETY: the capsule is valid; renaming it makes the tensor ours, and its destructor idle.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        let _ = PyErr::take(capsule.py());
        return Err(Error::new(ErrorKind::InvalidArgument, "the DLPack capsule cannot be taken over"));
    }
    if !versioned {
        return Ok((Loan::Legacy(pointer.cast()), false));
    }
    let loan = Loan::Versioned(pointer.cast());
    // SAFETY: version, manager and deleter stay in place in all major versions.
    let tensor = unsafe { pointer.cast::<DlManagedTensorVersioned>().as_ref() };
    if tensor.version.major > MAJOR_VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "DLPack version {}.{}, this build reads {MAJOR_VERSION}.x",
                tensor.version.major, tensor.version.minor
            ),
        ));
    }
    Ok((loan, tensor.flags & FLAG_READ_ONLY != 0))
}
