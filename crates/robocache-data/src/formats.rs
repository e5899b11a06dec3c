//! The formats that are read, and how the one at a path is found.

use std::path::Path;

use robocache::{Error, ErrorKind, Result};

use crate::files::{ensure_path, is_nothing};
use crate::limits::file_error;
use crate::model::{Format, Opened};
use crate::recording::Recording;
use crate::{Limits, lerobot, mcap};

/// Every format. The first one that recognises a path opens it.
const FORMATS: &[Format] = &[lerobot::FORMAT, mcap::FORMAT];

/// Opens what lies at `path` by its metadata.
pub(crate) fn open(path: &Path, recording: &Recording, limits: &Limits) -> Result<Opened> {
    ensure_path(path, "path")?;
    path.metadata().map_err(|error| match is_nothing(&error) {
        true => Error::new(ErrorKind::FileError, "there is no such file or folder").path(path),
        false => file_error(path, "cannot open the dataset", error),
    })?;
    for format in FORMATS {
        if (format.recognises)(path)? {
            return (format.open)(path, recording, limits);
        }
    }
    let known: Vec<_> = FORMATS.iter().map(|format| format.looks_like).collect();
    let expected = format!("no dataset of a known format: expected {}", known.join(", or "));
    Err(Error::new(ErrorKind::Unsupported, expected).path(path))
}
