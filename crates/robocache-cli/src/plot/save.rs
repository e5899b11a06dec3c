//! Saving a picture: all of it or nothing.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result};

use super::{Scene, svg};

/// A file to save a picture to.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
}

impl Target {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
        if !is_svg {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected a file that ends in .svg").path(path));
        }
        let target = Self { path: path.to_path_buf() };
        if path.is_dir() {
            return Err(Error::new(ErrorKind::FileError, "cannot save: it is a folder").path(path));
        }
        let folder = target.folder();
        if !folder.is_dir() {
            return Err(Error::new(ErrorKind::FileError, "cannot save: there is no such folder").path(folder));
        }
        Ok(target)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Writes beside the target and renames, so that no reader sees half of it.
    pub(crate) fn save(&self, scene: &Scene) -> Result<()> {
        let text = svg::write(scene);
        let mut name = OsStr::new(".").to_owned();
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = self.folder().join(name);
        let write = || {
            let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        write().map_err(|error| {
            // Perhaps it was never made.
            let _ = std::fs::remove_file(&temporary);
            Error::new(ErrorKind::FileError, "cannot save").caused_by(error).path(&self.path)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_taken() {
        for name in ["a.png", "a", "svg", ".svg", "a.svg.gz"] {
            let error = Target::new(Path::new(name)).unwrap_err();
            assert_eq!(error.to_string(), format!("expected a file that ends in .svg ({name})"));
        }
        assert!(Target::new(Path::new("a.SVG")).is_ok() && Target::new(Path::new("./a.b.svg")).is_ok());
        let error = Target::new(Path::new("no/where/a.svg")).unwrap_err();
        assert_eq!(error.to_string(), "cannot save: there is no such folder (no/where)");
    }
}
