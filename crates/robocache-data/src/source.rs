//! Files of a dataset: regular files, or links to them.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
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

/// The number that the system gave the cause of an error.
pub(crate) fn cause(error: &Error) -> Option<i32> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.raw_os_error();
        }
        cause = error.source();
    }
    None
}

/// Whether the file is to blame. What a disk or a poor process cannot read now may be read another
/// time.
pub(crate) fn is_lasting(error: &Error) -> bool {
    use libc::{EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EPERM};
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::Interrupted => false,
        // What the readers say themselves has no number.
        ErrorKind::FileError => cause(error).is_none_or(|number| {
            [EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EPERM].contains(&number)
        }),
        _ => true,
    }
}

/// A regular file that is read by position; the one way in which the readers read.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: File,
    metadata: Metadata,
}

impl RegularFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, metadata) = open_regular(path)?;
        Ok(Self { file, metadata })
    }

    /// As it was when the file was opened.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads some bytes, as many as the system likes; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(test)]
        let buffer = faults::before_read(buffer)?;
        self.file.read_at(buffer, at)
    }

    /// Fills a buffer from one place, in as many reads as it takes.
    pub(crate) fn read_exact_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The whole file as it is now, or its first `most` bytes.
    pub(crate) fn read_all(&self, most: u64) -> io::Result<Vec<u8>> {
        const STEP: usize = 64 << 10;
        let mut bytes = Vec::new();
        loop {
            let left = most.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            // As much again as there is, so that large files take few reads.
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(STEP.max(bytes.len()));
            let start = bytes.len();
            bytes.resize(start.saturating_add(step), 0);
            let place = u64::try_from(start).unwrap_or(u64::MAX);
            let read = match self.read_at(bytes.get_mut(start..).unwrap_or_default(), place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
                read => Some(read?),
            };
            bytes.truncate(start.saturating_add(read.unwrap_or(0)));
            if read == Some(0) {
                return Ok(bytes);
            }
        }
    }
}

/// Bytes at both ends of a file that are looked at.
const END: u64 = 4096;

/// Size, time and both ends of a file.
pub(crate) fn fingerprint(path: &Path) -> Result<Vec<u8>> {
    let file = RegularFile::open(path)?;
    let metadata = file.metadata();
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

/// What a system may do to a reader, for tests.
#[cfg(test)]
pub(crate) mod faults {
    use std::cell::Cell;
    use std::io;

    /// How reads go wrong.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// This one fails as those of a broken disk do; they count from 0.
        Error(usize),
        /// Each gives one byte only.
        OneByte,
        /// Every other one is interrupted by a signal.
        Interrupted,
    }

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    /// Does work whose reads on this thread go wrong, and counts them.
    pub(crate) fn during<T>(fault: Option<Fault>, work: impl FnOnce() -> T) -> (T, usize) {
        FAULT.set(fault);
        READS.set(0);
        let done = work();
        FAULT.set(None);
        (done, READS.get())
    }

    pub(super) fn before_read(buffer: &mut [u8]) -> io::Result<&mut [u8]> {
        let number = READS.get();
        READS.set(number + 1);
        match FAULT.get() {
            Some(Fault::Error(nth)) if nth == number => Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(Fault::Interrupted) if number.is_multiple_of(2) => Err(io::Error::from_raw_os_error(libc::EINTR)),
            Some(Fault::OneByte) => Ok(buffer.get_mut(..1).unwrap_or_default()),
            _ => Ok(buffer),
        }
    }
}
