//! The bytes of a file, read by position. The file stays open, and is refused when its path no
//! longer leads to it or when it is not as it was when it was checked.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{Error, ErrorKind, Result};

use crate::files::RegularFile;
use crate::limits::{corrupt, file_error};

/// What tells a file from another with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn new(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), changed: (meta.mtime(), meta.mtime_nsec()) }
    }
}

/// A regular file that was there when this was made.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: RegularFile,
    identity: Identity,
    /// Where the pages lie that were unpacked, each time.
    #[cfg(test)]
    pub(super) unpacked: std::sync::Mutex<Vec<u64>>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let file = RegularFile::open(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            identity: Identity::new(file.metadata()),
            file,
            #[cfg(test)]
            unpacked: std::sync::Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Checks that the file is still the same, for some reads.
    pub(super) fn open(self: &Arc<Self>) -> Result<Reads> {
        // What the path leads to is the open file if it has the same number: numbers are not used
        // again while a file is open. So this tells about the content too.
        let meta = std::fs::metadata(&self.path).map_err(|error| file_error(&self.path, "cannot open", error))?;
        if Identity::new(&meta) != self.identity {
            return Err(Error::new(ErrorKind::FileError, "the file was changed after it was opened").path(&self.path));
        }
        Ok(Reads { source: Arc::clone(self), ahead: (0, Vec::new()) })
    }
}

/// The file, found unchanged.
#[derive(Debug)]
pub(super) struct Reads {
    source: Arc<Source>,
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

    /// Reads a small place at once, which is then read piece by piece; `buffer` is used for it.
    pub(super) fn prefetch(&mut self, at: u64, bytes: u64, buffer: &mut Vec<u8>) -> Result<()> {
        const SMALL: u64 = 128 << 10;
        if bytes <= SMALL {
            let size = self.within(at, bytes)?;
            if self.ahead.1.capacity() < buffer.capacity() {
                std::mem::swap(&mut self.ahead.1, buffer);
            }
            let mut ahead = std::mem::take(&mut self.ahead.1);
            ahead.resize(size, 0);
            self.read(at, &mut ahead)?;
            self.ahead = (at, ahead);
        }
        Ok(())
    }

    /// The memory that was read into, for the next.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.ahead.1
    }

    /// What was read ahead of a place.
    fn known(&self, at: u64, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.ahead.0)?).ok()?;
        self.ahead.1.get(from..from.checked_add(bytes)?)
    }

    /// Whether bytes lie in what was read ahead.
    pub(super) fn is_ahead(&self, bytes: &[u8]) -> bool {
        self.ahead.1.as_ptr_range().contains(&bytes.as_ptr())
    }

    /// The bytes of one place, in `buffer` unless they were read ahead.
    pub(super) fn view<'a>(&'a self, at: u64, bytes: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let size = self.within(at, bytes)?;
        if let Some(known) = self.known(at, size) {
            return Ok(known);
        }
        grow(buffer, size, self.path())?;
        let buffer = buffer.get_mut(..size).unwrap_or_default();
        self.read(at, buffer)?;
        Ok(buffer)
    }

    /// Fills `buffer` from one place.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.source.file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                file_error(self.path(), "the file became shorter while it was read", error)
            }
            _ => file_error(self.path(), "cannot read", error),
        })
    }

    /// Notes that the page at a place was unpacked.
    #[cfg(test)]
    pub(super) fn note_unpacked(&self, at: u64) {
        self.source.unpacked.lock().unwrap().push(at);
    }
}

/// Makes a buffer at least this long; what it holds is lost.
pub(super) fn grow(buffer: &mut Vec<u8>, size: usize, path: &Path) -> Result<()> {
    if buffer.len() < size {
        buffer.clear();
        buffer.try_reserve_exact(size).map_err(|error| {
            let text = format!("cannot reserve {size} bytes for a page");
            Error::new(ErrorKind::OutOfMemory, text).caused_by(error).path(path)
        })?;
        buffer.resize(size, 0);
    }
    Ok(())
}
