//! Checks on the streams of any format. A format brings its episodes here and adds what only it
//! can know.
//!
//! Every finding has one of the codes in [`CODES`], which is the list for users. `channels`,
//! `values` and `quaternions` look at numbers, `stamps` at clocks, `stats` compares with declared
//! statistics, `video` looks at the index of videos; `work` shares episodes between threads and
//! `collect` puts findings in order.

pub(crate) mod channels;
pub(crate) mod codes;
pub(crate) mod collect;
pub(crate) mod quaternions;
pub(crate) mod stamps;
pub(crate) mod stats;
pub(crate) mod values;
pub(crate) mod video;
pub(crate) mod work;

pub use codes::{CODES, Code};
