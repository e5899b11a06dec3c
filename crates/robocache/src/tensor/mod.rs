//! Borrowed and owned tensors: dtype, layout, device and a pointer.

pub mod dlpack;
mod dtype;
mod layout;
mod owned;
mod view;

pub use dtype::{DType, Element};
pub use layout::{Layout, MAX_RANK};
pub use owned::Tensor;
pub use view::{Device, TensorMut, TensorRef};
