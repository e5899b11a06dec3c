//! The files of a recording: one, those of a rosbag2 folder, or a folder of recordings.

use std::path::{Component, Path, PathBuf};

use robocache::{Error, ErrorKind, Result};

use super::records::MAGIC;
use super::topic::natural;
use crate::Limits;
use crate::files::{RegularFile, list, look};
use crate::limits::{corrupt, exceeds, file_error};

/// What a rosbag2 folder describes itself with.
const METADATA: &str = "metadata.yaml";

/// The files, in order, and the recording that each is of.
#[derive(Debug)]
pub(super) struct Bag {
    pub(super) files: Vec<PathBuf>,
    pub(super) groups: Vec<usize>,
    pub(super) metadata: Option<PathBuf>,
}

/// Whether a path is a recording, by its name or its first bytes.
pub(super) fn recognises(path: &Path) -> Result<bool> {
    if path.is_dir() {
        return Ok(look(&path.join(METADATA))?.is_some() || !recordings(path)?.is_empty());
    }
    if path.extension().is_some_and(|end| end == "mcap") {
        return Ok(true);
    }
    let file = RegularFile::open(path)?;
    let mut start = [0; MAGIC.len()];
    if file.metadata().len() < start.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut start, 0).map_err(|error| file_error(path, "cannot read", error))?;
    Ok(start == *MAGIC)
}

/// The recordings in a folder, by name.
fn recordings(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = list(folder)?.into_iter().map(|(_, path)| path).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "mcap"));
    found.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(found)
}

impl Bag {
    pub(super) fn find(path: &Path, limits: &Limits) -> Result<Self> {
        if !path.is_dir() {
            return Ok(Self { files: vec![path.to_path_buf()], groups: vec![0], metadata: None });
        }
        let metadata = path.join(METADATA);
        if look(&metadata)?.is_none() {
            // Without a description, every file is a recording of its own.
            let files = recordings(path)?;
            return Ok(Self { groups: (0..files.len()).collect(), files, metadata: None });
        }
        let file = RegularFile::open(&metadata)?;
        let text = file.read_all(limits.max_metadata).map_err(|error| file_error(&metadata, "cannot read", error))?;
        if text.len() as u64 >= limits.max_metadata {
            return Err(exceeds(&metadata, format!("more metadata than max_metadata ({})", limits.max_metadata)));
        }
        let files = files(path, &metadata, &String::from_utf8_lossy(&text))?;
        Ok(Self { groups: vec![0; files.len()], files, metadata: Some(metadata) })
    }
}

/// The files that the description of a folder lists.
fn files(folder: &Path, metadata: &Path, text: &str) -> Result<Vec<PathBuf>> {
    let value = |key: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        found.map(|value| unquoted(value).to_owned())
    };
    let unsupported = |text: String| Err(Error::new(ErrorKind::Unsupported, text).path(metadata));
    match value("storage_identifier") {
        Some(storage) if storage != "mcap" => {
            return unsupported(format!(
                "expected a bag that is stored as mcap, got {storage:?}; convert it with `ros2 bag convert`"
            ));
        }
        Some(_) => {}
        None => return Err(corrupt(metadata, "expected the description of a rosbag2 folder, with storage_identifier")),
    }
    let mut files = Vec::new();
    let after = text.lines().skip_while(|line| !line.trim_start().starts_with("relative_file_paths:")).skip(1);
    for line in after {
        let Some(name) = line.trim().strip_prefix('-') else { break };
        let name = unquoted(name);
        let mut parts = Path::new(name).components();
        if name.is_empty() || name.contains('\0') || !parts.all(|part| matches!(part, Component::Normal(_))) {
            let shown: String = name.chars().take(80).collect();
            return Err(corrupt(metadata, format!("it names a file {shown:?} outside of the folder")));
        }
        if !name.ends_with(".mcap") {
            return unsupported(format!(
                "expected files that end in .mcap, got {name:?}; unpack compressed ones first"
            ));
        }
        files.push(folder.join(name));
    }
    if files.is_empty() {
        return Err(corrupt(metadata, "expected relative_file_paths, there are none"));
    }
    Ok(files)
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_bags_are_read() {
        let of = |text: &str| files(Path::new("/bag"), Path::new("/bag/metadata.yaml"), text);
        let text = "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: mcap\n  relative_file_paths:\n    \
                    - bag_0.mcap\n    - \"bag_1.mcap\"\n  duration:\n    nanoseconds: 1\n";
        assert_eq!(of(text).unwrap(), [Path::new("/bag/bag_0.mcap"), Path::new("/bag/bag_1.mcap")]);
        let error = of(&text.replace("mcap\n  rel", "sqlite3\n  rel")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(of(&text.replace("bag_0.mcap", "bag_0.mcap.zstd")).unwrap_err().kind(), ErrorKind::Unsupported);
        for outside in ["../x.mcap", "/etc/x.mcap", "a/../../x.mcap", ""] {
            let error = of(&text.replace("bag_0.mcap", outside)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptData, "{outside}");
        }
        assert!(of("a: b").is_err());
    }
}
