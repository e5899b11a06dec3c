//! The statistics that a dataset declares: of all samples, or per episode in version 2.1.

use std::collections::HashMap;
use std::path::Path;

use robocache::Result;

use super::super::LeRobot;
use super::super::episodes::for_each_line;
use super::super::finding::finding_of;
use super::super::info::Version;
use super::Totals;
use crate::check::channels::Channels;
use crate::check::codes;
use crate::check::collect::Collector;
use crate::check::stats::{Declared, compare};
use crate::check::values::Seen;
use crate::findings::{Finding, Level};
use crate::json::Json;
use crate::model::{Kind, StreamInfo};

const WHOLE: &str = "meta/stats.json";
const PER_EPISODE: &str = "meta/episodes_stats.jsonl";

/// Per stream, in the order of the streams; `None` for those without.
type OfStreams = Vec<Option<Declared>>;

/// Declared statistics.
pub(super) enum Stats {
    None,
    Whole(OfStreams),
    /// By the numbers of the episodes.
    PerEpisode(HashMap<u64, OfStreams>),
}

impl Stats {
    pub(super) fn read(dataset: &LeRobot, found: &mut Collector) -> Self {
        let root = &dataset.root;
        let exists = |file: &str| root.path.join(file).symlink_metadata().is_ok();
        // Version 2.1 may keep the file of 2.0 besides its own.
        let per_episode = dataset.info.version == Version::V21 && exists(PER_EPISODE);
        let read = match (per_episode, exists(WHOLE)) {
            (true, _) => Self::read_lines(dataset, &root.path.join(PER_EPISODE)),
            (false, true) => Self::read_whole(dataset, &root.path.join(WHOLE)),
            (false, false) => {
                let file = if dataset.info.version == Version::V21 { PER_EPISODE } else { WHOLE };
                let text = "expected statistics, there is no such file";
                found.add(Finding::note(&codes::STATS_MISSING, text).path(Path::new(file)));
                return Self::None;
            }
        };
        read.unwrap_or_else(|error| {
            // Training can make its own.
            found.add(finding_of(root, Level::Warning, &codes::UNREADABLE_FILE, &error));
            Self::None
        })
    }

    fn read_whole(dataset: &LeRobot, path: &Path) -> Result<Self> {
        let json = Json::parse_loosely(path, &dataset.root.read(path)?, &dataset.root.limits)?;
        Ok(Self::Whole(of_streams(dataset, &json)))
    }

    fn read_lines(dataset: &LeRobot, path: &Path) -> Result<Self> {
        let mut all = HashMap::new();
        for_each_line(path, &dataset.root.read(path)?, &dataset.root.limits, |json| {
            let episode = json.get("episode_index").and_then(Json::as_count);
            if let (Some(episode), Some(stats)) = (episode, json.get("stats")) {
                all.insert(episode, of_streams(dataset, stats));
            }
            Ok(())
        })?;
        Ok(Self::PerEpisode(all))
    }

    /// Against one episode, where each has its own.
    pub(super) fn compare_episode(
        &self,
        stream: &StreamInfo,
        place: usize,
        episode: u64,
        seen: &Seen,
    ) -> Option<Finding> {
        let Self::PerEpisode(all) = self else { return None };
        let declared = all.get(&episode)?.get(place)?.as_ref()?;
        compare(stream, declared, &seen.channels).map(|finding| finding.episode(episode).path(Path::new(PER_EPISODE)))
    }

    /// Against all samples; and what has no statistics at all.
    pub(super) fn compare_all(&self, dataset: &LeRobot, totals: &Totals, found: &mut Collector) {
        match self {
            Self::None => {}
            Self::Whole(all) => {
                let seen = totals.streams.iter().zip(&totals.partial);
                for ((stream, (seen, partial)), declared) in dataset.streams.iter().zip(seen).zip(all) {
                    match declared {
                        // Why it is only a part was reported.
                        Some(declared) if !partial => {
                            let finding = match seen {
                                Some(seen) => compare(stream, declared, &seen.channels),
                                // No sample was seen.
                                None => compare(
                                    stream,
                                    &Declared { count: declared.count, ..Declared::default() },
                                    &Channels::default(),
                                ),
                            };
                            found.extend(finding.map(|finding| finding.path(Path::new(WHOLE))));
                        }
                        None if has_stats(stream) => {
                            let text = "expected statistics of the stream, the file has none";
                            let finding = Finding::note(&codes::STATS_MISSING, text).stream(&stream.name);
                            found.add(finding.path(Path::new(WHOLE)));
                        }
                        _ => {}
                    }
                }
            }
            Self::PerEpisode(all) => {
                for number in dataset.episodes.index.iter().filter(|number| !all.contains_key(number)) {
                    let text = "expected statistics of the episode, the file has none";
                    found.add(Finding::note(&codes::STATS_MISSING, text).episode(*number).path(Path::new(PER_EPISODE)));
                }
            }
        }
    }
}

/// Whether statistics are made of a stream's numbers. Those of pictures come from a few pixels of
/// a few frames, and are not compared.
fn has_stats(stream: &StreamInfo) -> bool {
    matches!(stream.kind, Kind::Scalar | Kind::Vector)
}

fn of_streams(dataset: &LeRobot, json: &Json) -> OfStreams {
    let of = |stream: &StreamInfo| {
        let stats = json.get(&stream.name).filter(|stats| stats.as_map().is_some() && has_stats(stream))?;
        let numbers = |key: &str| {
            let mut numbers = Vec::new();
            flatten(stats.get(key).unwrap_or(&Json::Null), &mut numbers);
            // A missing value and a missing list are different things.
            if stats.get(key).is_some() { numbers } else { Vec::new() }
        };
        let count = numbers("count").first().copied().flatten();
        let count = count.filter(|count| count.fract() == 0.0 && (0.0..9e15).contains(count)).map(|count| count as u64);
        Some(Declared { min: numbers("min"), max: numbers("max"), mean: numbers("mean"), std: numbers("std"), count })
    };
    dataset.streams.iter().map(of).collect()
}

/// All numbers of nested lists, in order.
fn flatten(json: &Json, numbers: &mut Vec<Option<f64>>) {
    match json {
        Json::List(list) => list.iter().for_each(|json| flatten(json, numbers)),
        Json::Bool(value) => numbers.push(Some(f64::from(*value))),
        other => numbers.push(other.as_f64()),
    }
}
