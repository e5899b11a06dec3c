//! Entry points for fuzz targets and for tests on hostile files. Not part of the API.

use std::path::Path;

use robocache::{ErrorKind, Result};

use crate::Limits;

/// Opens a parquet file and reads all its columns; returns how many there are.
pub fn parquet_file(path: &Path, limits: &Limits) -> Result<usize> {
    crate::parquet::examine(path, limits)
}

/// Arbitrary bytes as a parquet file, under small limits. Every outcome is fine but a panic, an
/// abort, and two readers of ours that disagree.
#[expect(clippy::panic, reason = "this is how a fuzz target reports")]
pub fn parquet(bytes: &[u8]) {
    let name = format!("robocache-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    let limits = Limits { max_alloc: 16 << 20, max_metadata: 1 << 20, ..Limits::default() };
    let outcome = parquet_file(&path, &limits);
    std::fs::remove_file(&path).unwrap_or_default();
    if let Err(error) = outcome
        && error.kind() == ErrorKind::InvalidArgument
    {
        panic!("{error}");
    }
}

/// Arbitrary bytes as the `info.json` of a LeRobot dataset: a dataset without episodes, or an error.
pub fn info_json(bytes: &[u8]) {
    crate::lerobot::examine_info(bytes);
}

/// Arbitrary bytes as the lines of a LeRobot dataset's `episodes.jsonl` and `episodes_stats.jsonl`.
pub fn jsonl(bytes: &[u8]) {
    crate::lerobot::examine_lines(bytes);
}
