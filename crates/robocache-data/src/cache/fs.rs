//! The file system as the cache's writer uses it: few operations, so that tests can make each of
//! them fail, and drop what was not synced.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result};

use crate::limits::file_error;

/// A file that is being written.
pub(crate) trait FileOut: Write + Send {
    /// Lets the disk begin with all that was written, before `sync` waits for it. A hint.
    fn begin(&mut self) {}
    /// Waits until everything that was written is on the disk.
    fn sync(&mut self) -> std::io::Result<()>;
}

/// What the writer does to the file system.
pub(crate) trait Fs: Send + Sync + std::fmt::Debug {
    /// A new folder; its parents exist.
    fn create_dir(&self, path: &Path) -> std::io::Result<()>;
    /// A new file.
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>>;
    /// Moves a file or folder onto a name in one step; a file of that name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()>;
    /// Waits until the entries of a folder are on the disk.
    fn sync_dir(&self, path: &Path) -> std::io::Result<()>;
    /// Removes a file or a whole folder.
    fn remove(&self, path: &Path) -> std::io::Result<()>;
    /// Locks a file for as long as it is open, or says at once that someone else has done so.
    fn lock(&self, file: &File) -> std::io::Result<()> {
        // SAFETY: the descriptor is open.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// The real one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Os;

/// Bytes after which the disk is told to begin.
const BEHIND: u64 = 4 << 20;

struct OsFile {
    file: File,
    written: u64,
    /// What the disk was told of.
    begun: u64,
}

impl OsFile {
    /// Lets the disk begin once `least` bytes were written, so that less is left to wait for in the end. A hint:
    /// only `sync` makes sure, and only it reports what fails.
    fn write_behind(&mut self, least: u64) {
        #[cfg(not(target_os = "linux"))]
        let _ = least;
        #[cfg(target_os = "linux")]
        if self.written - self.begun >= least
            && let (Ok(from), Ok(count)) = (i64::try_from(self.begun), i64::try_from(self.written - self.begun))
        {
            // SAFETY: the descriptor is open.
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), from, count, libc::SYNC_FILE_RANGE_WRITE) };
            self.begun = self.written;
        }
    }
}

impl Write for OsFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        self.write_behind(BEHIND);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl FileOut for OsFile {
    fn begin(&mut self) {
        self.write_behind(1);
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync_all()
    }
}

impl Fs for Os {
    fn create_dir(&self, path: &Path) -> std::io::Result<()> {
        std::fs::create_dir(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn FileOut>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(OsFile { file, written: 0, begun: 0 }))
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> std::io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        if path.symlink_metadata()?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
    }
}

/// A folder in which things become visible whole or not at all.
#[derive(Debug)]
pub(crate) struct Folder<'f> {
    pub(crate) path: PathBuf,
    pub(crate) fs: &'f dyn Fs,
}

impl Folder<'_> {
    /// Makes the folder with its missing parents, and makes sure that their names last.
    pub(crate) fn create_all(&self) -> Result<()> {
        let mut missing: Vec<&Path> = self.path.ancestors().take_while(|path| !path.exists()).collect();
        missing.retain(|path| !path.as_os_str().is_empty());
        if missing.is_empty() {
            // Who made it may have been killed before this; a parent of others need not be readable.
            return match self.fs.sync_dir(parent(&self.path)) {
                Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
                    Err(file_error(parent(&self.path), "cannot sync the folder", error))
                }
                _ => Ok(()),
            };
        }
        while let Some(path) = missing.pop() {
            match self.fs.create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(file_error(path, "cannot make the folder", error));
                }
                _ => {}
            }
            let parent = parent(path);
            self.fs.sync_dir(parent).map_err(|error| file_error(parent, "cannot sync the folder", error))?;
        }
        Ok(())
    }

    /// A name that nobody else uses. The owner's process and when that began are part of it, so that `gc`
    /// can tell what was left behind, also where numbers of processes come again.
    pub(crate) fn temporary(&self, name: &str) -> PathBuf {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let process = std::process::id();
        let start = i32::try_from(process).ok().and_then(start_of).unwrap_or(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.path.join(format!("{TEMPORARY}{process}-{start}-{number}-{name}"));
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    /// Writes a file whole: temporary file, sync, rename, sync of the folder.
    pub(crate) fn commit_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temporary = self.temporary(name);
        let written = self.write(&temporary, bytes).and_then(|()| self.commit(&temporary, name));
        if written.is_err() {
            // The error that matters is the first.
            let _ = self.fs.remove(&temporary);
        }
        written
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let write = || {
            let mut file = self.fs.create(path)?;
            file.write_all(bytes)?;
            file.sync()
        };
        write().map_err(|error| file_error(path, "cannot write", error))
    }

    /// Gives what was written and synced under a temporary name its own.
    pub(crate) fn commit(&self, temporary: &Path, name: &str) -> Result<()> {
        let path = self.path.join(name);
        self.fs.rename(temporary, &path).map_err(|error| file_error(&path, "cannot move into place", error))?;
        self.sync()
    }

    /// Makes sure that the names in the folder last.
    pub(crate) fn sync(&self) -> Result<()> {
        self.fs.sync_dir(&self.path).map_err(|error| file_error(&self.path, "cannot sync the folder", error))
    }
}

/// The folder of a file or folder.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How temporary names begin.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// Whether a name is a temporary one whose owner has ended.
pub(crate) fn is_left_behind(name: &str) -> bool {
    let mut parts = name.strip_prefix(TEMPORARY).unwrap_or_default().splitn(4, '-');
    let process = parts.next().and_then(|text| text.parse::<i32>().ok()).filter(|&process| process > 0);
    let start = parts.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(process), Some(start), Some(_), Some(_)) = (process, start, parts.next(), parts.next()) else {
        return false;
    };
    match start_of(process) {
        Some(now) if start != 0 => now != start,
        _ => {
            // SAFETY: signal 0 only asks.
            let refused = unsafe { libc::kill(process, 0) } != 0;
            // A process of someone else may not be asked, but it is there.
            refused && std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
        }
    }
}

/// When a process began, in ticks since the machine did; `None` where that is not to be known.
fn start_of(process: i32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which can hold anything; this is the 22nd.
    let text = String::from_utf8_lossy(&text);
    text.rsplit(')').next()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The right to write to a cache, for as long as it lives; ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // To close the file would not do: a child that was forked meanwhile has it open too.
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl Lock {
    /// Takes the lock or says who has it.
    pub(crate) fn take(fs: &dyn Fs, folder: &Path) -> Result<Self> {
        let path = folder.join("lock");
        let cannot = |error| file_error(&path, "cannot open the lock", error);
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(cannot)?;
        if let Err(error) = fs.lock(&file) {
            if error.kind() == std::io::ErrorKind::WouldBlock {
                let owner = std::fs::read_to_string(&path).unwrap_or_default();
                let owner = owner.trim();
                let who = if owner.is_empty() { "another process".to_owned() } else { format!("process {owner}") };
                let text = format!("{who} is writing to this cache; wait until it is done");
                return Err(Error::new(ErrorKind::FileError, text).path(folder));
            }
            return Err(file_error(&path, "this file system cannot lock files, so writers are not safe", error));
        }
        // Only for the message above.
        let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(Self { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_ends_with_its_owner_also_where_a_child_has_inherited_it_74() {
        let folder = std::env::temp_dir().join(format!("robocache-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let lock = Lock::take(&Os, &folder).unwrap();
        // What a fork does to a descriptor.
        let inherited = lock.file.try_clone().unwrap();
        let refusal = Lock::take(&Os, &folder).unwrap_err().to_string();
        assert!(refusal.contains(&format!("process {} is writing", std::process::id())), "{refusal}");
        drop(lock);
        Lock::take(&Os, &folder).unwrap();
        drop(inherited);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
