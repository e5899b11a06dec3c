//! Readers, checks, cache and loader.

mod limits;

pub use limits::Limits;
