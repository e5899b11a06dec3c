//! Copying and measuring folders.

use std::ffi::OsString;
use std::path::Path;

/// Copies a folder without what interpreters and builds leave in it. Returns the bytes.
pub(crate) fn copy_sources(from: &Path, to: &Path) -> Result<u64, String> {
    let context = |e: std::io::Error| format!("{e}: {}", from.display());
    std::fs::create_dir_all(to).map_err(context)?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(from).map_err(context)? {
        let path = entry.map_err(context)?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() && !is_left_over(&name.to_string_lossy()) {
            bytes += copy_sources(&path, &to.join(name))?;
        } else if path.is_file() && path.extension().is_none_or(|ext| ext != "so" && ext != "pyd") {
            bytes += copy(&path, &to.join(name))?;
        }
    }
    Ok(bytes)
}

fn is_left_over(folder: &str) -> bool {
    folder == "__pycache__" || folder.starts_with('.')
}

/// Copies a file; returns its bytes.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<u64, String> {
    std::fs::copy(from, to).map_err(|e| format!("{e}: {} to {}", from.display(), to.display()))
}

/// What lies in a folder, by name.
pub(crate) fn names(folder: &Path) -> Result<Vec<OsString>, String> {
    let context = |e: std::io::Error| format!("{e}: {}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(context)?;
    let mut names = entries.map(|entry| Ok(entry.map_err(context)?.file_name())).collect::<Result<Vec<_>, String>>()?;
    names.sort();
    Ok(names)
}

/// Bytes of all files in a folder.
pub(crate) fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: &Path| if path.is_dir() { size(path) } else { path.metadata().map_or(0, |meta| meta.len()) };
    entries.map(|entry| of(&entry.path())).sum()
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{e}: {}", path.display()))
}

pub(crate) fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("{e}: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_copied_without_what_builds_leave() {
        let folder = std::env::temp_dir().join(format!("robocache-xtask-files-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        for (path, text) in [("a.py", "12345"), ("deep/b.txt", "123"), ("deep/__pycache__/c.pyc", "1"), ("d.so", "1")] {
            let path = from.join(path);
            make_dir(path.parent().unwrap()).unwrap();
            write(&path, text).unwrap();
        }
        assert_eq!(copy_sources(&from, &to), Ok(8));
        assert_eq!(size(&to), 8);
        assert_eq!(names(&to).unwrap(), ["a.py", "deep"]);
        assert!(to.join("deep/b.txt").is_file() && !to.join("d.so").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
