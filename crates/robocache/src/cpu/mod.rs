//! What all ops share on the host: the thread pool and the choice of vector instructions.

mod pool;
mod simd;
mod sort;

pub use pool::threads;
pub(crate) use pool::{for_each, is_worth_sharing};
pub use simd::features;
pub(crate) use simd::{Simd, simd};
pub(crate) use sort::{Pair, Shared, sort};
