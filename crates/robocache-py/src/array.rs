//! The engine's own memory as NumPy arrays, without a copy.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use robocache::{DType, Layout, Memory, OutputSpec, Tensor};

/// Owns memory for NumPy, or shares it with others that read it.
#[pyclass(frozen, module = "robocache")]
struct Owner {
    address: usize,
    /// Row-major.
    layout: Layout,
    dtype: DType,
    read_only: bool,
    _keep: Keep,
}

enum Keep {
    Tensor { _tensor: Arc<Tensor> },
    Memory { _memory: Memory },
}

#[pymethods]
impl Owner {
    /// NumPy's protocol: an array over this memory keeps this object alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, self.layout.shape())?)?;
        interface.set_item("typestr", type_string(self.dtype))?;
        interface.set_item("data", (self.address, self.read_only))?;
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
    of_tensor(py, tensor, false)
}

/// A NumPy array over a tensor that others read as well: it cannot be written to.
pub(crate) fn from_shared<'py>(py: Python<'py>, tensor: &Arc<Tensor>) -> PyResult<Bound<'py, PyAny>> {
    of_tensor(py, Arc::clone(tensor), true)
}

/// A NumPy array for an output in this memory, which is large enough for it.
pub(crate) fn from_memory<'py>(py: Python<'py>, spec: &OutputSpec, memory: Memory) -> PyResult<Bound<'py, PyAny>> {
    let (address, layout, dtype) = (memory.data() as usize, spec.layout, spec.dtype);
    let array =
        as_array(py, Owner { address, layout, dtype, read_only: false, _keep: Keep::Memory { _memory: memory } })?;
    if dtype == DType::BF16 {
        return array.call_method1("view", (py.import("ml_dtypes")?.getattr("bfloat16")?,));
    }
    Ok(array)
}

fn of_tensor<'py>(py: Python<'py>, tensor: Arc<Tensor>, read_only: bool) -> PyResult<Bound<'py, PyAny>> {
    let view = tensor.view();
    let (address, layout, dtype) = (view.data() as usize, *view.layout(), view.dtype());
    as_array(py, Owner { address, layout, dtype, read_only, _keep: Keep::Tensor { _tensor: tensor } })
}

fn as_array<'py>(py: Python<'py>, owner: Owner) -> PyResult<Bound<'py, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY.import(py, "numpy", "asarray")?.call1((owner,))
}
