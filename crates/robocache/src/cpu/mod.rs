//! What all ops share on the host: the thread pool, the choice of vector instructions, memory, the sort.

mod memory;
mod pages;
mod pool;
mod simd;
mod sort;

pub use memory::{Memory, available_bytes, kept_bytes};
pub(crate) use pages::want_large_pages;
pub use pool::threads;
pub(crate) use pool::{POLL, for_each, is_worth_sharing};
pub use simd::features;
pub(crate) use simd::{Simd, prefetch, simd, vectorized};
pub(crate) use sort::{Item, Packing, Pair, Shared, sort, with_item};
