//! MCAP recordings, as ROS 2 and Foxglove write them.
//!
//! Opening goes over all messages once: `layout` finds where the parts of a file are, `scan` which messages there
//! are and what they are like. `topic` says what messages mean; `cdr`, `json` and `foxglove` decode them; `streams`
//! makes streams of their fields, `episodes` cuts the recording, `read` gives the samples of an episode; `check`
//! looks at everything.

mod bag;
mod camera;
mod cdr;
mod check;
mod clock;
mod cloud;
mod decoded;
mod definitions;
mod encode;
mod episodes;
mod foxglove;
mod json;
mod layout;
mod msgdef;
mod picture;
mod piece;
mod read;
mod records;
mod scan;
mod streams;
#[cfg(test)]
mod tests;
mod topic;
mod track;
mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{Error, Result};

use self::bag::Bag;
use self::camera::{Links, Seen};
use self::clock::ClockFacts;
use self::decoded::FieldKind;
pub(crate) use self::encode::{Cdr, HEADER};
use self::episodes::{Episode, Mark};
pub(crate) use self::layout::Compression;
use self::layout::{Layout, McapFile};
use self::read::{Messages, Wanted};
use self::scan::BadMessage;
use self::streams::Place;
use self::topic::{Key, Role};
use self::track::{Entry, Track};
pub(crate) use self::write::McapWriter;
use crate::Limits;
use crate::findings::{Checked, Progress};
use crate::limits::corrupt;
use crate::model::{Camera, EpisodeInfo, Format, Opened, Samples, Source, StreamInfo};
use crate::recording::Recording;

/// Recordings of ROS 2 and Foxglove.
pub(crate) const FORMAT: Format = Format {
    looks_like: "an MCAP file, a rosbag2 folder or a folder of MCAP files",
    recognises: bag::recognises,
    open: |path, recording, limits| {
        recording.check()?;
        Ok(Opened { source: Box::new(Mcap::open(path, recording, limits)?), refusal: None })
    },
};

/// An opened recording.
#[derive(Debug)]
struct Mcap {
    path: PathBuf,
    bag: Bag,
    layouts: Vec<Layout>,
    messages: Arc<Messages>,
    /// Messages that were recorded, by file.
    counts: Vec<u64>,
    /// Without their entries.
    tracks: Vec<Track>,
    shared: Vec<Shared>,
    streams: Vec<StreamInfo>,
    places: Vec<Place>,
    left_out: Vec<(String, String)>,
    episodes: Vec<Episode>,
    infos: Vec<EpisodeInfo>,
    tasks: Vec<String>,
    bad: Vec<BadMessage>,
    bad_counts: BTreeMap<usize, u64>,
    unknown: BTreeMap<(usize, u16), u64>,
    /// By episode, the pieces that cannot be read.
    faults: Vec<Vec<usize>>,
}

/// The messages of a track by episode.
#[derive(Debug)]
struct Shared {
    /// By episode, then by time.
    entries: Vec<Entry>,
    ranges: Vec<Range<usize>>,
    clock: ClockFacts,
}

impl Mcap {
    fn open(path: &Path, recording: &Recording, limits: &Limits) -> Result<Self> {
        let bag = Bag::find(path, limits)?;
        let files = bag.files.iter().map(|file| McapFile::open(file)).collect::<Result<Vec<_>>>()?;
        let layouts = files.iter().map(|file| file.layout(limits)).collect::<Result<Vec<_>>>()?;
        let mut scan = scan::scan(&files, &layouts, recording.clock, limits, &Progress::default())?;
        let (streams, places, left_out) = streams::streams(&scan);
        let group = |file: usize| bag.groups.get(file).copied().unwrap_or(0);
        let groups: Vec<usize> = scan.pieces.iter().map(|placed| group(placed.file)).collect();
        let pieces = std::mem::take(&mut scan.pieces);
        let topics = std::mem::take(&mut scan.topics);
        let messages = Arc::new(Messages { files, pieces, topics, limits: *limits });
        let marks = |topic: &str| marks(&messages, &scan.tracks, &groups, topic);
        let mut episodes = episodes::episodes(&scan.tracks, &groups, &recording.episodes, marks)?;
        let mut share = |episodes: &[Episode]| -> Vec<Shared> {
            let share = |track: &mut Track| {
                track.entries.sort_unstable_by_key(|entry| (entry.piece, entry.offset));
                let clock = ClockFacts::of(&track.entries);
                let (entries, ranges) = episodes::share(&groups, episodes, std::mem::take(&mut track.entries));
                Shared { entries, ranges, clock }
            };
            scan.tracks.iter_mut().map(share).collect()
        };
        let mut shared = share(&episodes);
        let mut faults = vec![Vec::new(); episodes.len()];
        for (piece, placed) in messages.pieces.iter().enumerate().filter(|(_, placed)| placed.fault.is_some()) {
            let group = groups.get(piece).copied().unwrap_or(0);
            let touches = |episode: &Episode| {
                let overlaps = placed.piece.span.is_none_or(|(start, end)| {
                    let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
                    signed(start) < episode.end && signed(end) >= episode.start
                });
                episode.group == group && overlaps
            };
            // What it says of its times may be wrong too.
            let none = !episodes.iter().any(touches);
            for (episode, faults) in episodes.iter().zip(&mut faults) {
                if touches(episode) || none && episode.group == group {
                    faults.push(piece);
                }
            }
        }
        // Episodes without a message, unless those were lost.
        let is_used = |at: usize| {
            let has_messages = shared.iter().any(|track| track.ranges.get(at).is_some_and(|range| !range.is_empty()));
            has_messages || faults.get(at).is_some_and(|faults| !faults.is_empty())
        };
        let kept: Vec<usize> = (0..episodes.len()).filter(|&at| is_used(at)).collect();
        for track in &mut shared {
            track.ranges = kept.iter().filter_map(|&at| track.ranges.get(at).cloned()).collect();
        }
        let faults: Vec<Vec<usize>> = kept.iter().filter_map(|&at| faults.get(at).cloned()).collect();
        episodes = kept.iter().filter_map(|&at| episodes.get(at).cloned()).collect();
        let infos = infos(&shared, &episodes);
        let mut tasks: Vec<String> = Vec::new();
        for task in episodes.iter().flat_map(|episode| &episode.tasks) {
            if !tasks.contains(task) {
                tasks.push(task.clone());
            }
        }
        Ok(Self {
            path: path.to_path_buf(),
            bag,
            layouts,
            messages,
            counts: scan.messages,
            tracks: scan.tracks,
            shared,
            streams,
            places,
            left_out,
            episodes,
            infos,
            tasks,
            bad: scan.bad,
            bad_counts: scan.bad_counts,
            unknown: scan.unknown,
            faults,
        })
    }

    /// The messages of a track in an episode.
    fn entries(&self, track: usize, at: usize) -> &[Entry] {
        let shared = self.shared.get(track);
        shared.and_then(|shared| shared.entries.get(shared.ranges.get(at)?.clone())).unwrap_or_default()
    }

    /// Whether a message belongs to an episode that was recorded then; what is in none is of no use to anybody.
    fn is_in(&self, at: usize, log: i64) -> bool {
        let all = self.episodes.len() == 1;
        all || self.episodes.get(at).is_some_and(|episode| (episode.start..episode.end).contains(&log))
    }

    /// The first message of a topic in an episode that cannot be used.
    fn bad_message(&self, topic: usize, at: usize) -> Option<&str> {
        let mut of_topic = self.bad.iter().filter(|bad| bad.topic == topic);
        let found = of_topic.find(|bad| self.is_in(at, bad.log));
        // Where they are too many to be listed, no episode is sure to be without.
        let listed = self.bad.iter().filter(|bad| bad.topic == topic).count() as u64;
        let is_all = self.bad_counts.get(&topic).is_none_or(|&count| count <= listed);
        match (found, is_all) {
            (Some(bad), _) => Some(&bad.why),
            (None, true) => None,
            (None, false) => Some("too many messages of its topic cannot be decoded"),
        }
    }

    fn fault(&self, at: usize) -> Option<(&Path, &str)> {
        let piece = self.messages.pieces.get(*self.faults.get(at)?.first()?)?;
        let file = self.messages.files.get(piece.file)?;
        Some((&file.path, piece.fault.as_deref()?))
    }
}

/// Length and duration of every episode.
fn infos(shared: &[Shared], episodes: &[Episode]) -> Vec<EpisodeInfo> {
    let info = |(at, episode): (usize, &Episode)| {
        let of_tracks = || shared.iter().filter_map(|track| track.entries.get(track.ranges.get(at)?.clone()));
        let length = of_tracks().map(<[Entry]>::len).max().unwrap_or(0);
        let first = of_tracks().filter_map(|entries| entries.first()).map(|entry| entry.time).min();
        let last = of_tracks().filter_map(|entries| entries.last()).map(|entry| entry.time).max();
        let span = first.zip(last).map_or(0, |(first, last)| last.saturating_sub(first));
        EpisodeInfo {
            index: at as u64,
            length: length as u64,
            tasks: episode.tasks.clone(),
            duration: span as f64 * 1e-9,
        }
    };
    episodes.iter().enumerate().map(info).collect()
}

/// What the messages of a topic say of episodes.
fn marks(messages: &Messages, tracks: &[Track], groups: &[usize], name: &str) -> Result<Vec<(usize, i64, Mark)>> {
    let is_it = |topic: usize| messages.topics.get(topic).is_some_and(|topic| topic.name == name);
    let found: Vec<&Track> = tracks.iter().filter(|track| is_it(track.topic)).collect();
    let Some(topic) = found.first().map(|track| track.topic) else {
        let names = messages.topics.iter().map(|topic| &*topic.name);
        return Err(Error::no_such("episode_topic", "topics", name, names));
    };
    let fields = messages.topics.get(topic).map(|topic| topic.fields().to_vec()).unwrap_or_default();
    let place = |wanted: &dyn Fn(FieldKind) -> bool| {
        fields.iter().position(|field| !field.path.ends_with("frame_id") && wanted(field.kind))
    };
    let text = place(&|kind| kind == FieldKind::Text);
    let truth = place(&|kind| kind == FieldKind::Numbers(robocache::DType::Bool, Some(1)));
    let entries: Vec<Entry> = found.iter().flat_map(|track| track.entries.iter().copied()).collect();
    let jobs = entries.iter().enumerate().map(|(row, entry)| (*entry, 0, row)).collect();
    let mut marks = Vec::new();
    messages.each(
        jobs,
        &mut |_, row, message, decoded| {
            let Some(entry) = entries.get(row) else { return Ok(()) };
            let group = usize::try_from(entry.piece).ok().and_then(|piece| groups.get(piece)).copied().unwrap_or(0);
            let mark = match (text.and_then(|slot| decoded.text(slot, message)), truth) {
                (Some(text), _) if text.is_empty() => Mark::End,
                (Some(text), _) => Mark::Start(Some(text)),
                (None, Some(slot)) if decoded.u8(slot) == Some(0) => Mark::End,
                _ => Mark::Start(None),
            };
            marks.push((group, entry.log, mark));
            Ok(())
        },
        &|_| topic,
    )?;
    Ok(marks)
}

impl Source for Mcap {
    fn format(&self) -> String {
        let profile = self.layouts.iter().map(|layout| layout.profile.as_str()).find(|profile| !profile.is_empty());
        match profile {
            Some(profile) => format!("mcap {}", scan::short(profile)),
            None => "mcap".to_owned(),
        }
    }

    fn rate(&self) -> Option<f64> {
        None
    }

    fn tasks(&self) -> &[String] {
        &self.tasks
    }

    fn streams(&self) -> &[StreamInfo] {
        &self.streams
    }

    fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    fn len(&self) -> usize {
        self.infos.len()
    }

    fn episode(&self, at: usize) -> EpisodeInfo {
        let nothing = || EpisodeInfo { index: at as u64, length: 0, tasks: Vec::new(), duration: 0.0 };
        self.infos.get(at).cloned().unwrap_or_else(nothing)
    }

    fn read(&self, at: usize, streams: &[usize]) -> Result<Vec<Samples>> {
        if let Some((path, fault)) = self.fault(at) {
            return Err(corrupt(path, fault));
        }
        let wanted = |&stream: &usize| {
            let missing = || Error::invalid("streams", "no such stream");
            let (info, place) = self.streams.get(stream).zip(self.places.get(stream)).ok_or_else(missing)?;
            let track = self.tracks.get(place.track).ok_or_else(missing)?;
            if let Some(why) = self.bad_message(track.topic, at) {
                return Err(corrupt(&self.path, format!("{}: {why}", info.name)));
            }
            Ok(Wanted {
                name: &info.name,
                topic: track.topic,
                key: &track.key,
                content: &place.content,
                shape: &info.shape,
                entries: self.entries(place.track, at),
            })
        };
        let wanted = streams.iter().map(wanted).collect::<Result<Vec<_>>>()?;
        self.messages.read(&wanted)
    }

    fn cameras(&self, at: usize) -> Vec<Camera> {
        let Some(episode) = self.episodes.get(at) else { return Vec::new() };
        let (mut seen, mut links) = (Vec::new(), Links::new());
        for track in &self.tracks {
            let Some(topic) = self.messages.topics.get(track.topic) else { continue };
            match (topic.role, &track.key, &track.frame) {
                (Role::Camera(_), ..) => {
                    seen.push(Seen { topic: &topic.name, frame: track.frame.as_deref(), lenses: &track.lenses });
                }
                (_, Key::Frame(child), Some(parent)) => {
                    links.insert(child.trim_start_matches('/'), (parent.trim_start_matches('/'), &track.poses));
                }
                _ => {}
            }
        }
        camera::cameras(&self.streams, &seen, &links, episode.end)
    }

    fn recorded_times(&self, _: usize) -> Result<Option<Vec<i64>>> {
        Ok(None)
    }

    fn check(&self, progress: &Progress<'_>) -> Result<Checked> {
        self.check_all(progress, true)
    }

    fn check_but_numbers(&self, progress: &Progress<'_>) -> Result<Checked> {
        self.check_all(progress, false)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        Ok(self.bag.files.iter().chain(&self.bag.metadata).cloned().collect())
    }
}
