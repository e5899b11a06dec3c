//! The bytes of a file, read by position. The file is opened for each read, so that a dataset of
//! many files keeps none of them open, and refused when it is no longer the one that was checked.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{Error, ErrorKind, Result};

use crate::limits::{corrupt, file_error};

/// What tells a file from another with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// A regular file that was there when this was made.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    identity: Identity,
}

impl Source {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let (_, identity) = open(path)?;
        Ok(Self { path: path.to_path_buf(), identity })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Opens the file for some reads.
    pub(super) fn open(self: &Arc<Self>) -> Result<Reads> {
        let (file, identity) = open(&self.path)?;
        if identity != self.identity {
            return Err(Error::new(ErrorKind::FileError, "the file was changed after it was opened").path(&self.path));
        }
        Ok(Reads { source: Arc::clone(self), file, ahead: (0, Vec::new()) })
    }
}

/// The file, open.
#[derive(Debug)]
pub(super) struct Reads {
    source: Arc<Source>,
    file: File,
    /// Bytes that were read ahead, and where they lie.
    ahead: (u64, Vec<u8>),
}

impl Reads {
    pub(super) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Fails unless these bytes lie in the file; then memory may be reserved for them.
    fn within(&self, at: u64, bytes: u64) -> Result<usize> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        usize::try_from(bytes).ok().filter(|_| inside).ok_or_else(|| {
            let text = format!("{bytes} bytes at {at} lie outside the {} bytes of the file", self.bytes());
            corrupt(self.path(), text)
        })
    }

    /// The bytes of one place.
    pub(super) fn get(&self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut buffer = vec![0; self.within(at, bytes)?];
        self.read(at, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads a small place at once, which is then read piece by piece.
    pub(super) fn prefetch(&mut self, at: u64, bytes: u64) -> Result<()> {
        const SMALL: u64 = 128 << 10;
        if bytes <= SMALL {
            let mut buffer = std::mem::take(&mut self.ahead.1);
            buffer.resize(self.within(at, bytes)?, 0);
            self.read(at, &mut buffer)?;
            self.ahead = (at, buffer);
        }
        Ok(())
    }

    /// Fills `buffer` from one place.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.within(at, u64::try_from(buffer.len()).unwrap_or(u64::MAX))?;
        let from = at.checked_sub(self.ahead.0).and_then(|from| usize::try_from(from).ok());
        let known = from.and_then(|from| self.ahead.1.get(from..from.checked_add(buffer.len())?));
        if let Some(known) = known {
            buffer.copy_from_slice(known);
            return Ok(());
        }
        self.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                file_error(self.path(), "the file became shorter while it was read", error)
            }
            _ => file_error(self.path(), "cannot read", error),
        })
    }
}

fn open(path: &Path) -> Result<(File, Identity)> {
    // A pipe without a writer would block the open for ever.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| file_error(path, "cannot open", error))?;
    let meta = file.metadata().map_err(|error| file_error(path, "cannot open", error))?;
    if !meta.is_file() {
        return Err(Error::new(ErrorKind::FileError, "expected a regular file").path(path));
    }
    let identity = Identity {
        device: meta.dev(),
        inode: meta.ino(),
        bytes: meta.len(),
        changed: (meta.mtime(), meta.mtime_nsec()),
    };
    Ok((file, identity))
}
