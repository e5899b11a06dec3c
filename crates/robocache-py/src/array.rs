//! The engine's own memory as NumPy arrays, without a copy.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use robocache::{DType, Memory, OutputSpec, Tensor};

use crate::numpy;

/// Owns a tensor for NumPy, or shares it with others that read it.
#[pyclass(frozen, module = "robocache")]
struct Owner {
    tensor: Arc<Tensor>,
    read_only: bool,
}

#[pymethods]
impl Owner {
    /// NumPy's protocol: an array over this memory keeps this object alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = self.tensor.view();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, view.shape())?)?;
        interface.set_item("typestr", type_string(view.dtype()))?;
        interface.set_item("data", (view.data() as usize, self.read_only))?;
        Ok(interface)
    }
}

fn type_string(dtype: DType) -> String {
    let kind = match dtype {
        DType::F16 | DType::F32 | DType::F64 => 'f',
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 'u',
        DType::Bool => 'b',
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 'i',
        // NumPy has none; its bits are kept.
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => 'u',
    };
    let order = if dtype.size() == 1 { '|' } else { '<' };
    format!("{order}{kind}{}", dtype.size())
}

/// A NumPy array that owns the tensor: nobody else has it.
pub(crate) fn from_tensor<'py>(py: Python<'py>, tensor: Arc<Tensor>) -> PyResult<Bound<'py, PyAny>> {
    as_array(py, Owner { tensor, read_only: false })
}

/// A NumPy array over a tensor that others read as well: it cannot be written to.
pub(crate) fn from_shared<'py>(py: Python<'py>, tensor: &Arc<Tensor>) -> PyResult<Bound<'py, PyAny>> {
    as_array(py, Owner { tensor: Arc::clone(tensor), read_only: true })
}

/// A NumPy array for an output in this memory, which is large enough for it. It lies over a buffer of ctypes, since
/// of arrays that do not NumPy lets nobody say that they are writable after all.
pub(crate) fn from_memory<'py>(py: Python<'py>, spec: &OutputSpec, memory: Memory) -> PyResult<Bound<'py, PyAny>> {
    static BYTE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static FROM_BUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (layout, dtype) = (spec.layout, spec.dtype);
    let dtype_of = match dtype {
        DType::BF16 => numpy::bfloat16(py)?,
        _ => dtype.name().into_pyobject(py)?.into_any(),
    };
    // All of the memory, whose sizes are few: ctypes makes a class for each.
    let bytes = BYTE.import(py, "ctypes", "c_uint8")?.mul(memory.bytes())?;
    let buffer = bytes.call_method1("from_address", (memory.data() as usize,))?;
    buffer.setattr("memory", Bound::new(py, Keeper { _memory: memory })?)?;
    let flat = FROM_BUFFER.import(py, "numpy", "frombuffer")?.call1((buffer, dtype_of, layout.count()))?;
    flat.call_method1("reshape", (PyTuple::new(py, layout.shape())?,))
}

/// What a buffer holds for as long as it lives.
#[pyclass(frozen, module = "robocache")]
struct Keeper {
    _memory: Memory,
}

fn as_array<'py>(py: Python<'py>, owner: Owner) -> PyResult<Bound<'py, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY.import(py, "numpy", "asarray")?.call1((owner,))
}
