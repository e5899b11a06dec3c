//! What a verification found, for people and machines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use robocache::{Result, shown_path};
use robocache_data::Progress;
use robocache_data::cache::{Cache, CachedEpisode, CachedSource, Damage, VerifyReport};
use serde::Serialize;

use super::{inside, tag_among};
use crate::fold::episodes;
use crate::output::{
    Outcome, Paint, Report, Style, WIDTH, bytes, count, duration, json_path, paragraph, plural, printable, wrap,
};

/// What one checksum is about.
const BLOCK: u64 = 4 << 20;
/// Damages that are shown; JSON has them all.
const SHOWN: usize = 40;

#[derive(Debug, Serialize)]
pub(crate) struct Verified {
    #[serde(serialize_with = "json_path")]
    path: PathBuf,
    ok: bool,
    files: usize,
    bytes: u64,
    seconds: f64,
    damage: Vec<Bad>,
    /// Where damaged units are now, if they were to be moved.
    quarantined: Vec<String>,
    #[serde(skip)]
    sources: Vec<CachedSource>,
}

/// A part that cannot be trusted.
#[derive(Debug, Serialize)]
struct Bad {
    #[serde(serialize_with = "json_path")]
    path: PathBuf,
    /// Its number, where it is one block and not the whole file.
    block: Option<u64>,
    /// Where it starts.
    offset: Option<u64>,
    message: String,
    /// What it held.
    episodes: Vec<Lost>,
}

#[derive(Debug, Clone, Serialize)]
struct Lost {
    /// Among all episodes of the cache.
    at: usize,
    source: usize,
    /// Its number in the source.
    episode: u64,
}

impl Verified {
    pub(super) fn look(root: &Path, quarantine: bool, progress: &Progress<'_>) -> Result<Self> {
        let started = Instant::now();
        // Before units are moved: the places of episodes are those that were there.
        let cache = Cache::open(root)?;
        let report = robocache_data::cache::verify(root, progress)?;
        let seconds = started.elapsed().as_secs_f64();
        let moved = if quarantine { robocache_data::cache::quarantine(root, &report)? } else { Vec::new() };
        let quarantined = moved.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let VerifyReport { files, bytes, damage } = report;
        let lost = |at: usize| {
            cache.episode(at).map(|CachedEpisode { index, source, .. }| Lost { at, source, episode: index })
        };
        let bad = |Damage { path, message, offset, episodes, .. }: Damage| {
            let episodes = episodes.into_iter().map(lost).collect::<Result<Vec<_>>>()?;
            // The path stands beside it.
            let known = format!(" ({})", shown_path(&path));
            let message = message.strip_suffix(&known).map(str::to_owned).unwrap_or(message);
            Ok(Bad { path, block: offset.map(|offset| offset / BLOCK), offset, message, episodes })
        };
        let damage = damage.into_iter().map(bad).collect::<Result<Vec<_>>>()?;
        let (path, sources) = (root.to_path_buf(), cache.sources().to_vec());
        Ok(Self { path, ok: damage.is_empty(), files, bytes, seconds, damage, quarantined, sources })
    }

    /// Episodes by source.
    fn lost(&self, lost: &[Lost]) -> String {
        let mut by_source: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for Lost { source, episode, .. } in lost {
            by_source.entry(*source).or_default().push(*episode);
        }
        let part = |(source, numbers): (&usize, &Vec<u64>)| {
            let of = tag_among(&self.sources, *source).map_or_else(String::new, |tag| format!(" of {tag}"));
            Some(episodes(numbers)? + &of)
        };
        let parts: Vec<String> = by_source.iter().filter_map(part).collect();
        if parts.is_empty() { "no episode".to_owned() } else { parts.join("; ") }
    }
}

impl Report for Verified {
    fn outcome(&self) -> Outcome {
        if self.ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for bad in self.damage.iter().take(SHOWN) {
            text += &format!("{} {}\n", style.paint("damaged", Paint::Bad), inside(&self.path, &bad.path));
            let sentence = format!("{}; it held {}", bad.message, self.lost(&bad.episodes));
            for line in wrap(&printable(&sentence), WIDTH - 2) {
                text += &format!("  {line}\n");
            }
        }
        if let Some(more @ 1..) = self.damage.len().checked_sub(SHOWN) {
            text += &format!("... and {} more (--json lists all)\n", count(more as u64));
        }
        let read =
            format!("{} in {}, {}", bytes(self.bytes), plural(self.files as u64, "file"), duration(self.seconds));
        if self.ok {
            return text + &style.paint(&format!("no damage: {read}"), Paint::Good) + "\n";
        }
        let closing = format!("{}: {read}", plural(self.damage.len() as u64, "damaged part"));
        let advice = match self.quarantined.len() {
            0 => "Readers refuse the damaged parts and no others. With --quarantine their units are moved out of the \
                  cache, and running the same ingest again makes them anew."
                .to_owned(),
            moved => format!(
                "{} moved to quarantine/, which cache gc removes. Running the same ingest again makes them anew.",
                plural(moved as u64, "unit")
            ),
        };
        format!("{text}\n{}\n{}", style.paint(&closing, Paint::Bad), paragraph(&advice))
    }
}
