//! A folder for a while.

use std::path::{Path, PathBuf};
use std::time::Duration;

use robocache::{Error, ErrorKind, Result};

/// Removed with all that is in it when it goes.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self> {
        let parent = std::env::temp_dir();
        let mut last = None;
        // Another process of the same number may have left one.
        for attempt in 0..100 {
            let path = parent.join(format!("robocache-bench-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) => last = Some(error),
            }
        }
        let error = Error::new(ErrorKind::FileError, "cannot make a temporary folder; TMPDIR chooses another place");
        Err(match last {
            Some(cause) => error.caused_by(cause).path(parent),
            None => error.path(parent),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // After Ctrl-C a writer may still be at it for a moment.
        for _ in 0..20 {
            if std::fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let (one, two) = (Folder::new().unwrap(), Folder::new().unwrap());
        assert_ne!(one.path(), two.path());
        std::fs::write(one.path().join("file"), "x").unwrap();
        let path = one.path().to_path_buf();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
