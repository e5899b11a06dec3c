//! Readers, checks, cache and loader.
//!
//! A [`Dataset`] is what every format is read as: episodes, each of several streams with their own
//! clocks. Opening reads metadata only; episodes are read when asked for, from any thread.

pub mod cache;
mod check;
mod dataset;
pub mod export;
mod files;
mod findings;
mod formats;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod json;
mod lerobot;
mod limits;
pub mod loader;
mod mcap;
mod model;
mod parquet;
pub mod recorder;
mod recording;
mod urdf;
mod video;

pub use check::{CODES, Code};
pub use dataset::Dataset;
pub use findings::{Finding, Level, Progress};
pub use frames::Frames;
pub use limits::Limits;
pub use model::{Camera, EpisodeInfo, Interpolation, Kind, Samples, Span, StreamInfo, Values};
pub use recording::{RecordedClock, RecordedEpisodes, Recording};
pub use urdf::{parse_urdf, read_urdf_text};
pub use video::{Ffmpeg, search_ffmpeg_in};
