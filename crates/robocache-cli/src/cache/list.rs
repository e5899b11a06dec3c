//! What a cache holds, for people and machines.

use std::path::PathBuf;

use robocache::{Result, shown_path};
use robocache_data::cache::{Cache, CachedSource, CachedStream, Encoding, Skipped};
use serde::{Deserialize, Serialize};

use crate::output::{
    Align, Outcome, Paint, Report, Style, Table, WIDTH, bytes, count, hertz, json_path, json_sources, long_duration,
    plural, printable,
};
use crate::streams::{LEAST_NAME, method, shape, shorten_middle};

const SOURCES_SHOWN: usize = 8;

#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    #[serde(serialize_with = "json_path")]
    pub(crate) path: PathBuf,
    /// What the folder is: other commands print this for other folders.
    format: &'static str,
    /// Whether all that was planned is done.
    pub(crate) complete: bool,
    pub(crate) episodes: usize,
    /// Samples of the sources' main clocks.
    pub(crate) frames: u64,
    duration_seconds: f64,
    pub(crate) bytes: u64,
    /// Units that are done.
    pub(crate) units: usize,
    #[serde(serialize_with = "json_sources")]
    pub(crate) sources: Vec<CachedSource>,
    streams: Vec<Stream>,
    pub(crate) skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
struct Stream {
    #[serde(flatten)]
    info: CachedStream,
    samples: u64,
    /// Of its files; absent where a unit does not say.
    bytes: Option<u64>,
}

/// The part of a unit's `unit.json` that says how large its files are.
#[derive(Debug, Deserialize)]
struct UnitFiles {
    files: Vec<UnitFile>,
}

#[derive(Debug, Deserialize)]
struct UnitFile {
    stream: usize,
    bytes: u64,
}

impl Listing {
    pub(crate) fn of(cache: &Cache) -> Result<Self> {
        let mut streams: Vec<Stream> =
            cache.streams().iter().map(|info| Stream { info: info.clone(), samples: 0, bytes: None }).collect();
        if let Some(sizes) = sizes(cache) {
            streams.iter_mut().zip(sizes).for_each(|(stream, size)| stream.bytes = Some(size));
        }
        let (mut frames, mut duration_seconds) = (0u64, 0.0);
        for at in 0..cache.len() {
            let episode = cache.episode(at)?;
            frames = frames.saturating_add(episode.length);
            duration_seconds += episode.duration;
            for (place, stream) in streams.iter_mut().enumerate() {
                stream.samples = stream.samples.saturating_add(cache.count(at, place));
            }
        }
        Ok(Self {
            path: cache.path().to_path_buf(),
            format: "robocache cache",
            complete: cache.is_complete(),
            episodes: cache.len(),
            frames,
            duration_seconds,
            bytes: bytes_of(cache),
            units: cache.units().len(),
            sources: cache.sources().to_vec(),
            streams,
            skipped: cache.skipped().to_vec(),
        })
    }
}

/// Bytes of all units, as they say themselves.
pub(crate) fn bytes_of(cache: &Cache) -> u64 {
    cache.units().iter().fold(0, |all, unit| all.saturating_add(unit.bytes))
}

/// Bytes of each stream's files. What is wrong with a cache is for `verify` to say.
fn sizes(cache: &Cache) -> Option<Vec<u64>> {
    let mut sizes = vec![0u64; cache.streams().len()];
    for unit in cache.units() {
        let text = std::fs::read(cache.path().join(format!("shards/unit-{:06}/unit.json", unit.unit))).ok()?;
        let unit: UnitFiles = serde_json::from_slice(&text).ok()?;
        for file in unit.files {
            let size = sizes.get_mut(file.stream)?;
            *size = size.saturating_add(file.bytes);
        }
    }
    Some(sizes)
}

impl Report for Listing {
    fn outcome(&self) -> Outcome {
        Outcome::Fine
    }

    fn text(&self, style: Style) -> String {
        let mut parts = vec![self.facts(style), self.table(style)];
        if !self.complete {
            let units = plural(self.units as u64, "unit");
            let text = format!("Not complete: {units} done; run the same ingest again for the rest.");
            parts.push(style.paint(&text, Paint::Doubtful) + "\n");
        }
        if !self.skipped.is_empty() {
            let text = format!(
                "{} could not be taken (--json has the reasons).",
                plural(self.skipped.len() as u64, "episode")
            );
            parts.push(style.paint(&text, Paint::Doubtful) + "\n");
        }
        parts.join("\n")
    }
}

impl Listing {
    fn facts(&self, style: Style) -> String {
        let mut rows = vec![
            ("episodes", count(self.episodes as u64)),
            ("frames", count(self.frames)),
            ("duration", long_duration(self.duration_seconds)),
            ("size", bytes(self.bytes)),
        ];
        let mut title = "sources";
        for source in self.sources.iter().take(SOURCES_SHOWN) {
            let rate = source.rate.map_or_else(String::new, |rate| format!(" at {}", hertz(rate)));
            let episodes = plural(source.episodes as u64, "episode");
            let text = format!("{}: {}, {episodes}{rate}", source.tag, source.format);
            rows.push((std::mem::take(&mut title), printable(&text)));
        }
        if self.sources.len() > SOURCES_SHOWN {
            rows.push(("", format!("... and {} more", count((self.sources.len() - SOURCES_SHOWN) as u64))));
        }
        let path = shown_path(&self.path);
        let mut table = Table::new(&[("cache", Align::Left), (&path, Align::Left)]);
        for (name, value) in rows {
            table.row([(name.to_owned(), Paint::Plain), (value, Paint::Plain)]);
        }
        table.text(style)
    }

    /// One row per stream.
    fn table(&self, style: Style) -> String {
        let titles = [
            ("stream", Align::Left),
            ("type", Align::Left),
            ("shape", Align::Left),
            ("kept", Align::Left),
            ("between samples", Align::Left),
            ("size", Align::Right),
        ];
        let cells = |stream: &Stream| {
            let info = &stream.info;
            let kept = match info.encoding {
                Encoding::Raw => "raw",
                Encoding::Jpeg => "jpeg",
                Encoding::Text => "text",
            };
            let size = stream.bytes.map_or_else(|| "-".to_owned(), bytes);
            [printable(&info.dtype), shape(&info.shape), kept.to_owned(), method(&info.method), size]
        };
        let rows: Vec<[String; 5]> = self.streams.iter().map(cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
            cells.chain(titles.get(column + 1).map(|(title, _)| title.len())).max().unwrap_or(0) + 2
        };
        let room = WIDTH.saturating_sub((0..5).map(width).sum()).max(LEAST_NAME);
        let mut table = Table::new(&titles);
        for (stream, row) in self.streams.iter().zip(rows) {
            let name = shorten_middle(&printable(&stream.info.name), room);
            let [dtype, shape, kept, between, size] = row;
            table.row([name, dtype, shape, kept, between, size].map(|text| (text, Paint::Plain)));
        }
        table.text(style)
    }
}
