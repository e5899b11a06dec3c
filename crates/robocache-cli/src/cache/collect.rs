//! What a clean-up removed, for people and machines.

use std::path::{Path, PathBuf};

use robocache::Result;
use robocache_data::cache::{Cache, Collected, collect_garbage};
use serde::Serialize;

use super::inside;
use crate::output::{Outcome, Report, Style, bytes, count, json_path, plural};

/// Names that are shown; JSON has them all.
const SHOWN: usize = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Cleaned {
    #[serde(serialize_with = "json_path")]
    path: PathBuf,
    #[serde(flatten)]
    collected: Collected,
}

impl Cleaned {
    pub(super) fn up(path: &Path) -> Result<Self> {
        // Nothing is removed from a folder that is no cache.
        Cache::open(path)?;
        Ok(Self { path: path.to_path_buf(), collected: collect_garbage(path)? })
    }
}

impl Report for Cleaned {
    fn outcome(&self) -> Outcome {
        Outcome::Fine
    }

    fn text(&self, _: Style) -> String {
        let removed = &self.collected.removed;
        if removed.is_empty() {
            return "nothing to remove\n".to_owned();
        }
        let mut text = String::new();
        for path in removed.iter().take(SHOWN) {
            text += &format!("removed {}\n", inside(&self.path, path));
        }
        if let Some(more @ 1..) = removed.len().checked_sub(SHOWN) {
            text += &format!("... and {} more (--json lists all)\n", count(more as u64));
        }
        let things = plural(removed.len() as u64, "thing");
        text + &format!("{things}, {}\n", bytes(self.collected.bytes))
    }
}
