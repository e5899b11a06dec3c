//! Ops on point clouds: against plain oracles on the host, and on a GPU, where there is one, against
//! the host bit for bit.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod depth;
mod harness;
mod points;
mod sparse;
mod voxelize;
