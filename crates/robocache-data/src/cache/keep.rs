//! Keeping a cache: verification and cleaning up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use robocache::{Error, Result};
use serde::Serialize;

use super::Cache;
use super::blocks::BLOCK;
use super::fs::{Folder, Fs, Lock, Os, is_left_behind};
use super::ingest::merge_on;
use super::layout::{MANIFEST, PLAN, Plan, QUARANTINE, SHARDS, read_json, unit_name};
use super::manifest::Manifest;
use crate::check::work::{Stop, in_order};
use crate::files::{ensure_path, is_lasting, look};
use crate::findings::Progress;
use crate::limits::file_error;

/// A part of a cache that cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The unit that it is of; the plan is of none.
    pub unit: Option<usize>,
    /// What is wrong with it.
    pub message: String,
    /// The first byte of the bad block, where it is one block.
    pub offset: Option<u64>,
    /// The places of the episodes that it held.
    pub episodes: Vec<usize>,
}

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Files that were read.
    pub files: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// What cannot be trusted.
    pub damage: Vec<Damage>,
}

/// Reads every byte of a cache and compares all checksums. What cannot be read now is no damage but an error: the file
/// may be fine.
pub fn verify(root: &Path, progress: &Progress<'_>) -> Result<VerifyReport> {
    let cache = Cache::open(root)?;
    let work: Vec<(usize, usize)> =
        cache.manifest.units.iter().flat_map(|unit| (0..cache.streams().len()).map(move |s| (unit.unit, s))).collect();
    let mut seen = Vec::with_capacity(work.len());
    let look_at = |task: usize, _: &Stop| work.get(task).map(|&(unit, stream)| cache.look_at(unit, stream));
    in_order(work.len(), progress, &look_at, &mut |task, found: Option<Result<(u64, Vec<Damage>)>>| {
        seen.extend(found);
        (progress.step)(task + 1, work.len());
    })?;
    let mut report = VerifyReport { files: 0, bytes: 0, damage: Vec::new() };
    // Readers do without the plan, but the next ingest does not.
    let plan = root.join(PLAN);
    if look(&plan)?.is_some()
        && let Err(error) = read_json::<Plan>(&plan)
    {
        let error = lasting(error)?;
        report.damage.push(Damage {
            path: plan,
            unit: None,
            message: error.to_string(),
            offset: None,
            episodes: Vec::new(),
        });
    }
    for seen in seen {
        let (bytes, damage) = seen?;
        report.files += usize::from(bytes > 0);
        report.bytes += bytes;
        for damage in damage {
            // A unit whose own description is bad shows up once for every stream.
            if !report.damage.contains(&damage) {
                report.damage.push(damage);
            }
        }
    }
    Ok(report)
}

/// An error that tells of damage; any other one ends the verification.
fn lasting(error: Error) -> Result<Error> {
    if is_lasting(&error) { Ok(error) } else { Err(error) }
}

impl Cache {
    /// Bytes of a file, and what is wrong with it.
    fn look_at(&self, unit: usize, stream: usize) -> Result<(u64, Vec<Damage>)> {
        let of_unit: Vec<usize> = (0..self.len()).filter(|&at| self.index.unit(at) == unit).collect();
        let whole = |error: &Error| Damage {
            path: error.file().unwrap_or(&self.root).to_path_buf(),
            unit: Some(unit),
            message: error.to_string(),
            offset: None,
            episodes: of_unit.clone(),
        };
        let facts = match self.unit(unit) {
            Ok(open) => open.manifest.files.iter().find(|file| file.stream == stream),
            Err(error) => return Ok((0, vec![whole(&lasting(error)?)])),
        };
        let Some(facts) = facts else {
            return Ok((0, Vec::new()));
        };
        let shard = match self.shard(unit, stream) {
            Ok(shard) => shard,
            Err(error) => return Ok((facts.bytes, vec![whole(&lasting(error)?)])),
        };
        let damage = |block: usize| {
            let rows = shard.rows_of_block(block);
            let touches = |at: &usize| {
                let (first, count) = self.index.rows(*at, stream);
                rows.iter().any(|rows| first < rows.end && first + count > rows.start)
            };
            Damage {
                path: shard.path().to_path_buf(),
                unit: Some(unit),
                message: format!("the checksum of block {block} is wrong"),
                offset: Some((block * BLOCK) as u64),
                episodes: of_unit.iter().copied().filter(touches).collect(),
            }
        };
        Ok((facts.bytes, shard.verify().into_iter().map(damage).collect()))
    }
}

/// Moves units with damage into the folder `quarantine` of the cache, and makes known what is left.
/// The next ingest of their source does them again. Returns where they are now.
pub fn quarantine(root: &Path, report: &VerifyReport) -> Result<Vec<PathBuf>> {
    let _lock = Lock::take(&Os, root)?;
    let units: BTreeSet<usize> = report.damage.iter().filter_map(|damage| damage.unit).collect();
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let place = Folder { path: root.join(QUARANTINE), fs: &Os };
    place.create_all()?;
    let mut moved = Vec::new();
    for unit in units {
        let name = unit_name(unit);
        let from = root.join(SHARDS).join(&name);
        if from.symlink_metadata().is_err() {
            continue;
        }
        // It may have been damaged before.
        let free =
            (0..).map(|time| place.path.join(format!("{name}-{time}"))).find(|to| to.symlink_metadata().is_err());
        let to = free.unwrap_or_else(|| place.path.join(&name));
        Os.rename(&from, &to).map_err(|error| file_error(&from, "cannot move the unit", error))?;
        moved.push(to);
    }
    place.sync()?;
    merge_on(&Os, root)?;
    Ok(moved)
}

/// What a clean-up removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Files and folders.
    pub removed: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes what crashed writers left behind, what is in quarantine, and indices that no manifest names. Nothing that a
/// reader has open is changed: it is only unlinked. What living processes write is kept: units are
/// done without the lock.
pub fn collect_garbage(root: &Path) -> Result<Collected> {
    ensure_path(root, "path")?;
    let path = root.join(MANIFEST);
    if look(&path)?.is_none() && look(&root.join(PLAN))?.is_none() {
        return Err(super::no_cache(root));
    }
    let _lock = Lock::take(&Os, root)?;
    let manifest: Option<Manifest> = if look(&path)?.is_some() { Some(read_json(&path)?) } else { None };
    // The old index goes only after the manifest that does without it has come to stay.
    Os.sync_dir(root).map_err(|error| file_error(root, "cannot sync the folder", error))?;
    let mut collected = Collected { removed: Vec::new(), bytes: 0 };
    for folder in [root.to_path_buf(), root.join(SHARDS)] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_old_index = name.starts_with("index-")
                && name.ends_with(".arrow")
                && manifest.as_ref().is_some_and(|manifest| manifest.index != name);
            let is_quarantine = name == QUARANTINE && folder == root;
            if is_left_behind(&name) || is_old_index || is_quarantine {
                let path = entry.path();
                collected.bytes += size(&path);
                let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                removed.map_err(|error| file_error(&path, "cannot remove", error))?;
                collected.removed.push(path);
            }
        }
    }
    collected.removed.sort();
    Ok(collected)
}

fn size(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            std::fs::read_dir(path).map(|entries| entries.flatten().map(|entry| size(&entry.path())).sum()).unwrap_or(0)
        }
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}
