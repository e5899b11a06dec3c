//! The engine of RoboCache: tensors, ops and backends.
//!
//! It opens no files and knows no Python. Every op is a struct with public fields that
//! implements [`Op`]; [`run`] checks it, allocates on the host and computes:
//!
//! ```
//! use robocache::{TensorRef, ops::Resample, run};
//!
//! // A joint recorded at 0, 10 and 20 ms, wanted at 5 and 15 ms.
//! let values = [0.0f32, 1.0, 4.0];
//! let times = [0i64, 10_000_000, 20_000_000];
//! let targets = [5_000_000i64, 15_000_000];
//! let op = Resample::new(
//!     TensorRef::from_slice(&values, &[3, 1])?,
//!     TensorRef::from_slice(&times, &[3])?,
//!     TensorRef::from_slice(&targets, &[2])?,
//! );
//! let out = run(&op)?;
//! assert_eq!(out[0].as_slice::<f32>()?, [0.5, 2.5]);
//! # Ok::<(), robocache::Error>(())
//! ```

mod chunks;
mod cpu;
pub mod cuda;
mod error;
pub mod metrics;
pub mod ops;
pub mod plan;
mod run;
pub mod tensor;

pub use chunks::{Cuts, Tensors};
pub use cpu::{Memory, available_bytes, features as cpu_features, kept_bytes, threads as cpu_threads};
pub use error::{Error, ErrorKind, Result, did_you_mean, printable, shown_path};
pub use run::{Context, Op, OutputSpec, Outputs, Prepared, prepare, run};
pub use tensor::{DType, Device, Element, Layout, MAX_RANK, Tensor, TensorMut, TensorRef};

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
