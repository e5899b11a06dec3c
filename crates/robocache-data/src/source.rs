//! Files of a dataset: regular files, or links to them.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
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
