//! What the units on disk say of themselves.

use std::path::{Path, PathBuf};

use robocache::{ErrorKind, Result};

use super::layout::{Plan, SHARDS, UNIT, Unit, UnitManifest, parse_json, read_file};
use crate::files::look;
use crate::limits::corrupt;

/// Reads the `unit.json` of a unit of the plan, and sums it up; `None` where the unit is not done.
pub(super) fn read_planned(plan: &Plan, out: &Path, unit: &Unit) -> Result<Option<(UnitManifest, u32)>> {
    let path = unit_folder(out, unit).join(UNIT);
    if look(&path)?.is_none() {
        return Ok(None);
    }
    let bytes = read_file(&path)?;
    let manifest: UnitManifest = parse_json(&path, &bytes)?;
    if manifest.unit != *unit || manifest.key != plan.key(unit)? {
        return Err(corrupt(&path, "the unit is not of this plan; the ingest of its source makes it anew"));
    }
    Ok(Some((manifest, crc32c::crc32c(&bytes))))
}

/// Like [`read_planned`], for a caller that can do the unit again: a description that is damaged or of another plan
/// counts as not done.
pub(super) fn read_done(plan: &Plan, out: &Path, unit: &Unit) -> Result<Option<(UnitManifest, u32)>> {
    match read_planned(plan, out, unit) {
        Err(error) if error.kind() == ErrorKind::CorruptData => Ok(None),
        read => read,
    }
}

/// Reads `unit.json`, whose checksum must be this one.
pub(super) fn read_unit(folder: &Path, crc32c: u32) -> Result<UnitManifest> {
    let path = folder.join(UNIT);
    let bytes = read_file(&path)?;
    if crc32c != crc32c::crc32c(&bytes) {
        return Err(corrupt(&path, "its checksum is wrong"));
    }
    parse_json(&path, &bytes)
}

/// Where a unit that is done lies.
pub(crate) fn unit_folder(root: &Path, unit: &Unit) -> PathBuf {
    root.join(SHARDS).join(unit.folder())
}
