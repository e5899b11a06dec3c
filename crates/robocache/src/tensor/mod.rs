//! Borrowed and owned tensors: dtype, layout, device and a pointer.

pub mod dlpack;
mod dtype;
mod float8;
mod layout;
mod owned;
mod view;

pub use dtype::{DType, Element};
pub use float8::{F8E4M3, F8E5M2};
pub use layout::{Layout, MAX_RANK};
pub use owned::Tensor;
pub use view::{Device, TensorMut, TensorRef};
