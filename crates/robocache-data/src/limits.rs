//! Bounds on what a file can make the readers do, and the guard around third-party readers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use robocache::{Error, ErrorKind, Result};

/// What a file may cost before it is refused with `LimitExceeded`. Applied before memory is
/// reserved; the defaults are far above what recordings need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one read may reserve beyond what the file really holds.
    pub max_alloc: u64,
    /// Bytes that decompression may make of one byte.
    pub max_ratio: u64,
    /// Levels of nesting in schemas and JSON; of JSON no more than 127 in any case.
    pub max_depth: usize,
    /// Bytes of metadata (footers, JSON files) of one file.
    pub max_metadata: u64,
    /// Pixels of one image or video frame.
    pub max_pixels: u64,
    /// Frames of one video file.
    pub max_frames: u64,
    /// How long a decoder may take without giving a frame.
    pub max_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_alloc: 1 << 30,
            max_ratio: 1000,
            max_depth: 64,
            max_metadata: 256 << 20,
            max_pixels: 1 << 26,
            max_frames: 1 << 24,
            max_stall: Duration::from_secs(60),
        }
    }
}

/// An error about the content of a file.
#[cold]
pub(crate) fn corrupt(path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::CorruptData, message).path(path)
}

/// An error about a limit that the content of a file exceeds.
#[cold]
pub(crate) fn exceeds(path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::LimitExceeded, message).path(path)
}

/// An error of the file system.
#[cold]
pub(crate) fn file_error(path: &Path, what: &str, source: std::io::Error) -> Error {
    Error::new(ErrorKind::FileError, what).caused_by(source).path(path)
}

/// Runs a third-party reader: a panic in it is an error about the file.
pub(crate) fn guarded<T>(path: &Path, what: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(corrupt(path, format!("{what}: the reader gave up on this file"))))
        .map_err(|error| error.path(path))
}
