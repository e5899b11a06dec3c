//! `manifest.json`: what a cache holds now, and whether it makes sense.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use robocache::{DType, Result};
use serde::{Deserialize, Serialize};

use super::layout::{CachedSource, CachedStream, Encoding, Plan, Skipped, read_json};
use super::stats::{StreamStats, Summary};
use crate::limits::corrupt;
use crate::model::ensure_spans;

/// A unit that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneUnit {
    /// Its number.
    pub unit: usize,
    /// Its episodes that were taken.
    pub episodes: usize,
    /// Bytes of its files.
    pub bytes: u64,
    /// CRC-32C of its `unit.json`.
    pub crc32c: u32,
}

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// Whether all units of the plan are done.
    pub(crate) complete: bool,
    pub(crate) sources: Vec<CachedSource>,
    pub(crate) streams: Vec<CachedStream>,
    pub(crate) units: Vec<DoneUnit>,
    pub(crate) index: String,
    pub(crate) index_crc32c: Vec<u32>,
    pub(crate) stats: BTreeMap<String, Summary>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Manifest {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let manifest: Self = read_json(path)?;
        manifest.fault().map_or(Ok(manifest), |fault| Err(corrupt(path, fault)))
    }

    /// What contradicts itself: a checksum tells of damage, not of who wrote it.
    fn fault(&self) -> Option<String> {
        fault(&self.sources, &self.streams)
            .or_else(|| self.stats.iter().find_map(|(name, summary)| self.fault_of_stats(name, summary)))
            .or_else(|| {
                let lost = self.skipped.iter().find(|skipped| skipped.source >= self.sources.len())?;
                Some(format!("skipped: there is no source {}", lost.source))
            })
    }

    fn fault_of_stats(&self, name: &str, summary: &Summary) -> Option<String> {
        let Some(stream) = self.streams.iter().find(|stream| stream.name == name) else {
            return Some(format!("stats: there is no stream {name:?}"));
        };
        if i64::try_from(summary.count).is_err() {
            return Some(format!("stats of {name:?}: there are no {} samples", summary.count));
        }
        let (width, all) = (StreamStats::of(stream).0.width(), summary.widths());
        let wrong = all.into_iter().find(|&found| found != width)?;
        Some(format!("stats of {name:?}: expected {width} components, got {wrong}"))
    }
}

impl Plan {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let plan: Self = read_json(path)?;
        fault(&plan.sources, &plan.streams).map_or(Ok(plan), |fault| Err(corrupt(path, fault)))
    }
}

fn fault(sources: &[CachedSource], streams: &[CachedStream]) -> Option<String> {
    let mut names = HashSet::new();
    let twice = streams.iter().find(|stream| !names.insert(&stream.name));
    twice.map(|stream| format!("streams: two are called {:?}", stream.name)).or_else(|| {
        streams
            .iter()
            .find_map(|stream| Some(format!("stream {:?}: {}", stream.name, fault_of_stream(stream)?)))
            .or_else(|| {
                sources
                    .iter()
                    .find_map(|source| Some(format!("source {:?}: {}", source.tag, fault_of_source(source, streams)?)))
            })
    })
}

fn fault_of_stream(stream: &CachedStream) -> Option<String> {
    let dtype = stream.number_type();
    if dtype.is_none() && stream.encoding != Encoding::Text {
        return Some(format!("there is no dtype {:?}", stream.dtype));
    }
    let count = stream.shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    let bytes = count.and_then(|count| count.checked_mul(dtype.map_or(1, DType::size)));
    let Some(width) = count.filter(|_| bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())) else {
        return Some(format!("no sample has the shape {:?}", stream.shape));
    };
    if stream.kind.is_picture() && stream.shape.len() != 3 {
        return Some(format!("pictures are height, width, channels, got {:?}", stream.shape));
    }
    if stream.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Some(format!("expected a rate above 0, got {:?}", stream.rate));
    }
    ensure_spans(&stream.name, &stream.method, width, dtype).err().map(|error| error.to_string())
}

fn fault_of_source(source: &CachedSource, streams: &[CachedStream]) -> Option<String> {
    if let Some((name, place)) = source.streams.iter().find(|(_, place)| *place >= streams.len()) {
        return Some(format!("{name:?} is stream {place} of {}", streams.len()));
    }
    let rate = source.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0))?;
    Some(format!("expected a rate above 0, got {rate}"))
}
