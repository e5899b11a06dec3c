//! Files of a dataset: regular files, or links to them.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use crate::limits::file_error;

/// Opens a regular file to be read.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata)> {
    let cannot = |error| file_error(path, "cannot open", error);
    // A pipe without a writer would block the open for ever.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder" } else { "a pipe or a device" };
        return Err(Error::new(ErrorKind::FileError, format!("expected a regular file, got {what}")).path(path));
    }
    Ok((file, metadata))
}

/// Bytes at both ends of a file that are looked at.
const END: u64 = 4096;

/// Size, time and both ends of a file.
pub(crate) fn fingerprint(path: &Path) -> Result<Vec<u8>> {
    let (file, metadata) = open_regular(path)?;
    let size = metadata.len();
    let mut seen = Vec::new();
    seen.extend_from_slice(&size.to_le_bytes());
    seen.extend_from_slice(&metadata.mtime().to_le_bytes());
    seen.extend_from_slice(&metadata.mtime_nsec().to_le_bytes());
    for start in [0, size.saturating_sub(END)] {
        let count = usize::try_from(size.saturating_sub(start).min(END)).unwrap_or(0);
        let mut end = vec![0; count];
        file.read_exact_at(&mut end, start).map_err(|error| file_error(path, "cannot read", error))?;
        seen.extend_from_slice(&end);
    }
    Ok(seen)
}
