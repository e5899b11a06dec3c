//! The ops, one folder each.

pub mod resample;

pub use resample::Resample;
