//! Files of a dataset: regular files, or links to them.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result, ensure};

use crate::limits::file_error;

/// An empty path would be the current folder.
pub(crate) fn ensure_path(path: &Path, argument: &'static str) -> Result<()> {
    ensure!(!path.as_os_str().is_empty(), argument, "expected a path, got an empty one");
    Ok(())
}

/// What lies at a path, be it a link that leads nowhere; `None` where nothing does.
pub(crate) fn look(path: &Path) -> Result<Option<Metadata>> {
    match before(path, Operation::Look).and_then(|()| path.symlink_metadata()) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(file_error(path, "cannot open", error)),
    }
}

/// Whether a path leads to nothing, as far as the system tells.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The entries of a folder: their names and paths.
pub(crate) fn list(folder: &Path) -> Result<Vec<(OsString, PathBuf)>> {
    let read = || -> io::Result<_> {
        before(folder, Operation::List)?;
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| (entry.file_name(), entry.path()))).collect()
    };
    read().map_err(|error| file_error(folder, "cannot list the folder", error))
}

/// Opens a regular file to be read.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata)> {
    let is_other = |metadata: &Metadata| !metadata.is_file();
    let cannot = |error| match path.metadata() {
        // A socket cannot be opened at all.
        Ok(metadata) if is_other(&metadata) && !metadata.is_dir() => not_regular(path, &metadata),
        _ => file_error(path, "cannot open", error),
    };
    // A pipe without a writer would block the open for ever.
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = before(path, Operation::Open).and_then(|()| open()).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if is_other(&metadata) { Err(not_regular(path, &metadata)) } else { Ok((file, metadata)) }
}

#[cold]
fn not_regular(path: &Path, metadata: &Metadata) -> Error {
    let what = if metadata.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Error::new(ErrorKind::FileError, format!("expected a regular file, got {what}")).path(path)
}

/// Ways in which a path is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// What lies there.
    Look,
    /// To open a file.
    Open,
    /// To list a folder.
    List,
    /// To read bytes of an open file.
    #[cfg(test)]
    Read,
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "tests have it fail")]
fn before(_: &Path, _: Operation) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use self::faults::before;

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

/// Whether the file is to blame: there is none, or what is there is no file or damaged. What a disk, a poor
/// process or a lack of rights keeps from being read now may be read another time.
pub(crate) fn is_lasting(error: &Error) -> bool {
    use libc::{EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR};
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::Interrupted => false,
        // What the readers say themselves has no number.
        ErrorKind::FileError => {
            cause(error).is_none_or(|number| [EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR].contains(&number))
        }
        _ => true,
    }
}

/// Whether it is the rights that are lacking.
pub(crate) fn is_denied(error: &Error) -> bool {
    cause(error).is_some_and(|number| [libc::EACCES, libc::EPERM].contains(&number))
}

/// A regular file that is read by position; the one way in which the readers read.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: File,
    metadata: Metadata,
    #[cfg(test)]
    path: PathBuf,
}

impl RegularFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, metadata) = open_regular(path)?;
        Ok(Self {
            file,
            metadata,
            #[cfg(test)]
            path: path.to_path_buf(),
        })
    }

    /// As it was when the file was opened.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads some bytes, as many as the system likes; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        #[cfg(test)]
        let buffer = faults::before_read(&self.path, buffer)?;
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

/// Size, time and both ends of a file; nothing where there is no file.
pub(crate) fn fingerprint(path: &Path) -> Result<Vec<u8>> {
    let file = match RegularFile::open(path) {
        Err(error) if is_lasting(&error) => return Ok(Vec::new()),
        file => file?,
    };
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
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    use super::Operation;

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

    /// What fails for all threads: below a path, this operation, with this number.
    static BLOCKED: Mutex<Vec<(PathBuf, Operation, i32)>> = Mutex::new(Vec::new());

    /// Does work while an operation on all that lies at or below a path fails.
    pub(crate) fn while_blocked<T>(path: &Path, operation: Operation, number: i32, work: impl FnOnce() -> T) -> T {
        let row = (path.to_path_buf(), operation, number);
        BLOCKED.lock().unwrap().push(row.clone());
        let done = work();
        BLOCKED.lock().unwrap().retain(|other| *other != row);
        done
    }

    pub(super) fn before(path: &Path, operation: Operation) -> io::Result<()> {
        let blocked = BLOCKED.lock().unwrap();
        let found = blocked.iter().find(|(below, other, _)| *other == operation && path.starts_with(below));
        found.map_or(Ok(()), |(_, _, number)| Err(io::Error::from_raw_os_error(*number)))
    }

    pub(super) fn before_read<'b>(path: &Path, buffer: &'b mut [u8]) -> io::Result<&'b mut [u8]> {
        before(path, Operation::Read)?;
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
