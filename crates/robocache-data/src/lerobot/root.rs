//! The folder of a dataset. Paths that its metadata makes stay inside it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result};

use crate::Limits;
use crate::files::{RegularFile, list};
use crate::limits::{corrupt, exceeds, file_error};

/// What file systems allow for one name.
const MOST_NAME: usize = 255;
const MOST_PATH: usize = 4096;

/// The folder, and what reading from it may cost.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) limits: Limits,
}

impl Root {
    /// A file below the folder, by a path that metadata made. Links on disk may lead elsewhere, as
    /// they do in a hub's cache; the text of the path may not.
    pub(super) fn join(&self, relative: &str) -> Result<PathBuf> {
        let bad_name =
            |name: &str| matches!(name, "" | "." | "..") || name.len() > MOST_NAME || name.contains(['\0', '\\', ':']);
        if relative.len() > MOST_PATH || relative.split('/').any(bad_name) {
            let shown: String = relative.chars().take(80).flat_map(char::escape_debug).collect();
            return Err(corrupt(&self.info(), format!("it names a file {shown:?} outside of the dataset")));
        }
        Ok(self.path.join(relative))
    }

    pub(super) fn info(&self) -> PathBuf {
        self.path.join("meta/info.json")
    }

    /// A path as people should see it: without the folder.
    pub(super) fn shown<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.path).unwrap_or(path)
    }

    /// All bytes of a file of metadata.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let file = RegularFile::open(path)?;
        let (size, most) = (file.metadata().len(), self.limits.max_metadata);
        if size > most {
            return Err(exceeds(path, format!("{size} bytes of metadata exceed max_metadata ({most})")));
        }
        // It may grow while it is read.
        let bytes = file.read_all(most.saturating_add(1)).map_err(|error| file_error(path, "cannot read", error))?;
        if bytes.len() as u64 > most {
            return Err(exceeds(path, format!("more metadata than max_metadata ({most})")));
        }
        Ok(bytes)
    }

    /// The parquet files of a folder with chunks, `chunk-N/file-N.parquet`, in the order of their numbers.
    pub(super) fn chunked_files(&self, folder: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for (chunk, chunk_path) in numbered(&self.path.join(folder), "chunk-", "")? {
            for (file, path) in numbered(&chunk_path, "file-", ".parquet")? {
                files.push(((chunk, file), path));
            }
        }
        files.sort();
        Ok(files.into_iter().map(|(_, path)| path).collect())
    }
}

/// Entries of a folder whose names are a number between `before` and `after`.
fn numbered(folder: &Path, before: &str, after: &str) -> Result<Vec<(u64, PathBuf)>> {
    let number = |name: &OsStr| name.to_str()?.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
    Ok(list(folder)?.into_iter().filter_map(|(name, path)| Some((number(&name)?, path))).collect())
}

/// A path of files, as Python's `str.format` would make it: `data/chunk-{chunk_index:03d}/...`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Field { name: String, width: usize },
}

/// What a template's field stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    Number(u64),
    Text(&'a str),
}

impl Template {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let bad = || corrupt(path, format!("the path template {text:?} makes no sense"));
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (field, after) = after.split_once('}').ok_or_else(bad)?;
            let (name, format) = field.split_once(':').unwrap_or((field, ""));
            // "03d": at least three digits.
            let digits = format.strip_suffix('d').unwrap_or(format);
            let width = if digits.is_empty() { 0 } else { digits.parse().ok().filter(|&w| w < 20).ok_or_else(bad)? };
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Field { name: name.to_owned(), width });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { parts })
    }

    /// The path with its fields filled in.
    pub(super) fn fill(&self, fields: &[(&str, Field<'_>)]) -> Result<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Field { name, width } => match fields.iter().find(|(known, _)| known == name) {
                    Some((_, Field::Number(number))) => text.push_str(&format!("{number:0width$}")),
                    Some((_, Field::Text(value))) => text.push_str(value),
                    None => {
                        let text = format!("a path template asks for {name:?}, which nobody knows");
                        return Err(Error::new(ErrorKind::CorruptData, text));
                    }
                },
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root { path: PathBuf::from("/data/set"), limits: Limits::default() }
    }

    #[test]
    fn templates_are_filled_as_python_does() {
        let template =
            Template::parse(Path::new("i"), "v/{video_key}/chunk-{chunk_index:03d}/file-{file_index}.mp4").unwrap();
        let fields = [
            ("video_key", Field::Text("cam.top")),
            ("chunk_index", Field::Number(7)),
            ("file_index", Field::Number(1234)),
        ];
        assert_eq!(template.fill(&fields).unwrap(), "v/cam.top/chunk-007/file-1234.mp4");
        assert!(template.fill(&fields[..2]).unwrap_err().to_string().contains("file_index"));
        for bad in ["{a", "{a:x}", "{a:99d}"] {
            assert!(Template::parse(Path::new("i"), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_stay_inside_62() {
        let long = "x".repeat(4096);
        for bad in ["../../etc/passwd", "/etc/passwd", "a\0b", "C:\\x", "", "a//b", "./a", &long, "a/..", "a\\b"] {
            let error = root().join(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptData, "{bad}");
            assert!(error.to_string().contains("outside of the dataset"), "{error}");
        }
        assert_eq!(root().join("data/chunk-000/a.parquet").unwrap(), Path::new("/data/set/data/chunk-000/a.parquet"));
    }
}
