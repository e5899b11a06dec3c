//! `robocache cache`: what a cache holds, whether it is whole, and what can go.

mod collect;
mod list;
mod verify;

use std::path::Path;

use robocache::{Error, Result, shown_path};
use robocache_data::cache::{self, CachedSource};

use self::collect::Cleaned;
pub(crate) use self::list::{Listing, bytes_of};
use self::verify::Verified;
use crate::progress;

/// `cache ls`.
pub(crate) fn list(path: &Path) -> Result<Listing> {
    let cache = cache::Cache::open(path).map_err(in_cache)?;
    Listing::of(&cache).map_err(in_cache)
}

/// `cache verify`.
pub(crate) fn verify(path: &Path, quarantine: bool, bar: bool) -> Result<Verified> {
    let root = path.to_path_buf();
    let worked = progress::run("verify", "file", bar, move |progress| Verified::look(&root, quarantine, progress));
    worked.map(|worked| worked.result).map_err(in_cache)
}

/// `cache gc`.
pub(crate) fn collect(path: &Path) -> Result<Cleaned> {
    Cleaned::up(path).map_err(in_cache)
}

fn in_cache(error: Error) -> Error {
    error.op("cache")
}

/// The name of a source, where there are several to be told apart.
pub(crate) fn tag_among(sources: &[CachedSource], source: usize) -> Option<&str> {
    sources.get(source).filter(|_| sources.len() > 1).map(|source| source.tag.as_str())
}

/// A path in a cache, from the cache on.
fn inside(root: &Path, path: &Path) -> String {
    shown_path(path.strip_prefix(root).unwrap_or(path))
}
