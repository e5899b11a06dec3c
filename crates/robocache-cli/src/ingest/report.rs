//! What an ingest did, for people and machines.

use std::path::{Path, PathBuf};

use robocache::shown_path;
use robocache_data::cache::{CachedSource, Plan, Skipped, Unit};
use robocache_data::{Finding, Level};
use serde::{Serialize, Serializer};

use crate::cache::tag_among;
use crate::fold::{fold, lines_text};
use crate::output::{
    Align, Outcome, Paint, Report, Style, Table, bytes, count, duration, json_path, plural, printable, shown_sources,
};

/// Units of a plan that are shown; JSON has them all.
const UNITS_SHOWN: usize = 40;

/// What came of the command.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Done {
    Ingested(Ingested),
    Planned(Planned),
    Unit(OneUnit),
}

impl Report for Done {
    fn outcome(&self) -> Outcome {
        let ok = match self {
            Self::Ingested(done) => done.ok,
            Self::Planned(_) => true,
            Self::Unit(done) => done.ok,
        };
        if ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        match self {
            Self::Ingested(done) => done.text(style),
            Self::Planned(plan) => plan.text(style),
            Self::Unit(unit) => unit.text(style),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Ingested {
    #[serde(serialize_with = "json_path")]
    pub(super) path: PathBuf,
    /// Whether no episode of the cache's sources was skipped.
    pub(super) ok: bool,
    /// Whether all that was planned is done.
    pub(super) complete: bool,
    /// These three of the whole cache.
    pub(super) episodes: usize,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) units_before: usize,
    pub(super) units_done: usize,
    pub(super) frames_done: u64,
    /// Absent where it is not known what there was before.
    pub(super) bytes_done: Option<u64>,
    /// Absent where units were only put together.
    pub(super) seconds: Option<f64>,
    /// Declared streams of which nothing can be read: the tag of the source, and the name.
    pub(super) missing: Vec<(String, String)>,
    #[serde(flatten)]
    pub(super) skips: Skips,
}

impl Ingested {
    fn text(&self, style: Style) -> String {
        let path = shown_path(&self.path);
        let mut table = Table::new(&[("cache", Align::Left), (&path, Align::Left)]);
        let mut rows = vec![
            ("episodes", count(self.episodes as u64)),
            ("frames", count(self.frames)),
            ("size", bytes(self.bytes)),
        ];
        if let Some(seconds) = self.seconds {
            rows.push(("time", self.speed(seconds)));
        }
        for (name, value) in rows {
            table.row([(name.to_owned(), Paint::Plain), (value, Paint::Plain)]);
        }
        let paint = if self.complete { Paint::Good } else { Paint::Doubtful };
        let mut text = table.text(style);
        for (tag, name) in &self.missing {
            let line = format!("warning: {} declares {}, but none of it can be read", printable(tag), printable(name));
            text += &format!("{}\n", style.paint(&line, Paint::Doubtful));
        }
        format!("{text}{}{}\n", self.skips.text(style), style.paint(&self.closing(), paint))
    }

    /// How long it took, and how fast that was.
    fn speed(&self, seconds: f64) -> String {
        let mut parts = vec![duration(seconds)];
        if self.units_done > 0 {
            let per_second = |number: u64| number as f64 / seconds.max(1e-6);
            parts.push(format!("{} frames/s", count(per_second(self.frames_done) as u64)));
            parts.extend(self.bytes_done.map(|bytes| format!("{:.1} MB/s", per_second(bytes) / 1e6)));
        }
        parts.join(", ")
    }

    fn closing(&self) -> String {
        let units = |number: usize| plural(number as u64, "unit");
        let done = match (self.units_before, self.units_done) {
            (before, 0) => format!("{} there", units(before)),
            (0, done) => format!("{} done", units(done)),
            (before, done) => format!("{} done, {} there before", units(done), units(before)),
        };
        let state = if self.complete { "the cache is complete" } else { "more is planned: the cache is not complete" };
        format!("{done}; {state}")
    }
}

/// The plan as it lies in the cache.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Planned {
    #[serde(serialize_with = "json_plan")]
    pub(super) plan: Plan,
}

fn json_plan<S: Serializer>(plan: &Plan, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    Plan { sources: shown_sources(&plan.sources), ..plan.clone() }.serialize(serializer)
}

impl Planned {
    fn text(&self, style: Style) -> String {
        let columns =
            [("unit", Align::Right), ("source", Align::Left), ("episodes", Align::Left), ("frames", Align::Right)];
        let mut table = Table::new(&columns);
        let units = &self.plan.units;
        for Unit { unit, source, first, end, frames } in units.iter().take(UNITS_SHOWN) {
            let tag = self.plan.sources.get(*source).map_or("", |source| source.tag.as_str());
            let places =
                if end - first == 1 { first.to_string() } else { format!("{first}-{}", end.saturating_sub(1)) };
            let cells = [unit.to_string(), printable(tag), places, count(*frames)];
            table.row(cells.map(|text| (text, Paint::Plain)));
        }
        let mut text = table.text(style);
        if let Some(more @ 1..) = units.len().checked_sub(UNITS_SHOWN) {
            text += &format!("... and {} more (--json lists all)\n", count(more as u64));
        }
        let frames = units.iter().fold(0u64, |all, unit| all.saturating_add(unit.frames));
        let totals = [
            plural(units.len() as u64, "unit"),
            plural(frames, "frame"),
            plural(self.plan.streams.len() as u64, "stream"),
        ];
        format!("{text}{}\n", totals.join(", "))
    }
}

/// One unit that was done for a scheduler.
#[derive(Debug, Serialize)]
pub(crate) struct OneUnit {
    pub(super) unit: usize,
    /// Whether none of its episodes was skipped.
    pub(super) ok: bool,
    #[serde(flatten)]
    pub(super) skips: Skips,
}

impl OneUnit {
    fn text(&self, style: Style) -> String {
        format!("unit {} is done\n{}", self.unit, self.skips.text(style))
    }
}

/// Episodes that could not be taken.
#[derive(Debug, Serialize)]
pub(crate) struct Skips {
    pub(super) skipped: Vec<Skipped>,
    #[serde(skip)]
    pub(super) sources: Vec<CachedSource>,
}

impl Skips {
    /// Those with the same reason are one line.
    fn text(&self, style: Style) -> String {
        if self.skipped.is_empty() {
            return String::new();
        }
        let finding = |Skipped { source, episode, reason }: &Skipped| {
            let root = self.sources.get(*source).map(|source| source.path.as_path());
            let (message, path) = root.map_or((reason.as_str(), None), |root| apart(reason, *episode, root));
            Finding {
                level: Level::Error,
                code: "skipped",
                episode: Some(*episode),
                stream: tag_among(&self.sources, *source).map(str::to_owned),
                path,
                message: message.to_owned(),
            }
        };
        let findings: Vec<Finding> = self.skipped.iter().map(finding).collect();
        let title = format!("{} skipped", plural(findings.len() as u64, "episode"));
        format!("\n{}\n{}\n", style.paint(&title, Paint::Bad), lines_text(&fold(&findings)))
    }
}

/// A reason without what each episode has its own of, its number and file; and the file.
fn apart<'a>(reason: &'a str, episode: u64, root: &Path) -> (&'a str, Option<PathBuf>) {
    let inner = reason.strip_suffix(')').and_then(|text| text.split_once(" ("));
    let found = inner.and_then(|(message, path)| Some((message, in_source(Path::new(path), root)?)));
    let (message, path) = found.map_or((reason, None), |(message, path)| (message, Some(path)));
    let trail = format!(", while reading episode {episode}");
    (message.strip_suffix(&trail).unwrap_or(message), path)
}

/// A file from its source on; `None` for what is not in it.
fn in_source(path: &Path, root: &Path) -> Option<PathBuf> {
    if let Ok(inside) = path.strip_prefix(root) {
        return Some(inside.to_path_buf());
    }
    // Sources are known by their full path, but errors say it as it was typed.
    let name = root.file_name()?;
    let parts: Vec<_> = path.components().collect();
    let at = parts.iter().position(|part| part.as_os_str() == name)?;
    Some(parts.iter().skip(at + 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_numbers_do_not_keep_reasons_apart() {
        let root = Path::new("/data/arm");
        let parted = |reason| apart(reason, 7, root);
        assert_eq!(parted("too short (/data/arm/e1.parquet)"), ("too short", Some("e1.parquet".into())));
        assert_eq!(parted("too short (../arm/x/e1.parquet)"), ("too short", Some("x/e1.parquet".into())));
        assert_eq!(parted("too short, while reading episode 7 (arm/e1)"), ("too short", Some("e1".into())));
        assert_eq!(parted("too short (of 3)"), ("too short (of 3)", None));
        assert_eq!(parted("too short"), ("too short", None));
    }

    #[test]
    fn skipped_episodes_are_folded() {
        let source = |tag: &str| CachedSource {
            path: format!("/data/{tag}").into(),
            format: String::new(),
            fingerprint: String::new(),
            tag: tag.to_owned(),
            rate: None,
            episodes: 9,
            streams: Vec::new(),
            missing: Vec::new(),
            image_size: None,
            quality: 95,
            recording: robocache_data::Recording::default(),
            tasks: Vec::new(),
        };
        let skipped = |source: usize, episode: u64| Skipped {
            source,
            episode,
            reason: format!("too short, while reading episode {episode} (/data/{}/x.parquet)", ["a", "b"][source]),
        };
        let one = Skips { skipped: (1..4).map(|episode| skipped(0, episode)).collect(), sources: vec![source("a")] };
        assert_eq!(one.text(Style::PLAIN), "\n3 episodes skipped\n  episodes 1-3, x.parquet: too short\n\n");
        let two = Skips { skipped: vec![skipped(0, 1), skipped(1, 1)], sources: vec![source("a"), source("b")] };
        let lines = "  episode 1, a, x.parquet: too short\n  episode 1, b, x.parquet: too short\n";
        assert_eq!(two.text(Style::PLAIN), format!("\n2 episodes skipped\n{lines}\n"));
    }
}
