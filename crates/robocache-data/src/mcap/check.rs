//! Everything that can be found out about a recording without decoding its pictures.

use std::path::Path;

use robocache::{Error, Result};

use super::Mcap;
use super::topic::{Key, Role};
use crate::check::codes;
use crate::check::collect::Collector;
use crate::check::stamps;
use crate::check::values::{Part, Seen, look, over_all};
use crate::check::work::in_order;
use crate::files::is_lasting;
use crate::findings::{Checked, Finding, Progress};
use crate::model::{Kind, Values};

/// A clock that is off the other by more is another.
const APART: u64 = 1_000_000_000;

/// What an episode showed.
#[derive(Default)]
struct Outcome {
    findings: Vec<Finding>,
    /// By stream.
    seen: Vec<(usize, Seen)>,
}

impl Mcap {
    pub(super) fn check_all(&self, progress: &Progress<'_>, numbers: bool) -> Result<Checked> {
        let mut found = Collector::default();
        self.check_files(progress, numbers, &mut found)?;
        for (name, why) in &self.left_out {
            found.add(Finding::warning(&codes::STREAM_LEFT_OUT, why).stream(name));
        }
        self.check_tracks(&mut found);
        self.check_faults(&mut found);
        let mut seen: Vec<Option<Seen>> = self.streams.iter().map(|_| None).collect();
        let (all, mut done) = (self.episodes.len(), 0);
        let mut failure = None;
        let work = |at: usize| self.check_episode(at, numbers);
        in_order(all, progress, &|at, _| work(at), &mut |_, outcome: Result<Outcome>| {
            done += 1;
            (progress.step)(done, all);
            match outcome {
                Ok(outcome) => {
                    found.extend(outcome.findings);
                    for (stream, part) in outcome.seen {
                        match seen.get_mut(stream) {
                            Some(Some(whole)) => whole.merge(&part),
                            Some(none) => *none = Some(part),
                            None => {}
                        }
                    }
                }
                Err(error) => drop(failure.get_or_insert(error)),
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        for (stream, seen) in self.streams.iter().zip(&seen) {
            found.extend(seen.iter().flat_map(|seen| over_all(stream, seen)));
        }
        Ok(found.finish())
    }

    fn shown<'p>(&self, path: &'p Path) -> &'p Path {
        match path.strip_prefix(&self.path) {
            Ok(rest) if !rest.as_os_str().is_empty() => rest,
            _ => path.file_name().map_or(path, Path::new),
        }
    }

    /// Ends, indices and checksums of the files.
    fn check_files(&self, progress: &Progress<'_>, thorough: bool, found: &mut Collector) -> Result<()> {
        for (at, (file, layout)) in self.messages.files.iter().zip(&self.layouts).enumerate() {
            let path = self.shown(&file.path);
            let mut add = |finding: Finding| found.add(finding.path(path));
            let count = self.counts.get(at).copied().unwrap_or(0);
            if let Some(why) = &layout.cut {
                let text = format!("expected a footer, {why}; {count} whole messages before that are read");
                add(Finding::warning(&codes::RECORDING_CUT, text));
            }
            if layout.trailing > 0 {
                let text = format!("expected the end of the file, {} more bytes follow", layout.trailing);
                add(Finding::warning(&codes::TRAILING_BYTES, text));
            }
            if let Some(text) = layout.index_fault() {
                add(Finding::warning(&codes::INDEX_WRONG, text));
            }
            let is_whole = self.messages.pieces.iter().all(|placed| placed.file != at || placed.fault.is_none());
            if let Some(counted) = layout.counted.filter(|&counted| counted != count && is_whole) {
                let text = format!("expected {counted} messages as the statistics say, there are {count}");
                add(Finding::warning(&codes::INDEX_WRONG, text));
            }
            let chunks =
                || self.messages.pieces.iter().filter(|placed| placed.file == at && placed.piece.span.is_some());
            let unsummed = chunks().filter(|placed| placed.piece.crc.is_none()).count();
            if unsummed > 0 {
                let text = format!("expected a checksum of each chunk, {unsummed} of {} have none", chunks().count());
                add(Finding::note(&codes::CRC_MISSING, text));
            }
            if thorough && file.data_crc_is_right(layout, progress.interrupted)? == Some(false) {
                let text = "expected the checksum of the data section, the bytes have another";
                add(Finding::warning(&codes::CRC_WRONG, text));
            }
        }
        for ((file, channel), count) in &self.unknown {
            let text = format!("{count} messages are of channel {channel}, which is not defined; they are not read");
            let path = self.messages.files.get(*file).map_or(Path::new(""), |file| self.shown(&file.path));
            found.add(Finding::warning(&codes::CHANNEL_UNKNOWN, text).path(path));
        }
        Ok(())
    }

    /// Clocks and names of every track.
    fn check_tracks(&self, found: &mut Collector) {
        for (track, shared) in self.tracks.iter().zip(&self.shared) {
            let Some(topic) = self.messages.topics.get(track.topic) else { continue };
            let name = match &track.key {
                Key::Frame(child) => format!("{}/{}", topic.name, child.trim_start_matches('/')),
                _ => topic.name.clone(),
            };
            let mut add = |finding: Finding| found.add(finding.stream(&name));
            let usual = track.orders.iter().max_by_key(|(_, count)| *count);
            if let (Role::Joints { .. }, Some((first, count)), 2..) = (topic.role, usual, track.orders.len()) {
                let others = track.orders.iter().map(|(_, count)| count).sum::<u64>() - count;
                let text = format!(
                    "expected the order {:?}, {others} messages have another; all are read in one order",
                    first.iter().take(8).collect::<Vec<_>>()
                );
                add(Finding::note(&codes::NAMES_REORDERED, text));
            }
            if track.unset > 0 {
                let text = format!(
                    "expected stamps in the headers, {} of {} are 0 or no time; the log time is taken",
                    track.unset, shared.clock.messages
                );
                add(Finding::warning(&codes::STAMPS_UNSET, text));
            }
            let clock = &shared.clock;
            let seconds = |time: i64| time as f64 * 1e-9;
            if clock.unsorted > 0 {
                let text = format!(
                    "expected messages by their stamps, {} of {} come late; they are sorted",
                    clock.unsorted, clock.messages
                );
                add(Finding::note(&codes::STAMPS_UNSORTED, text));
            }
            if clock.jumps > 0 && track.unset == 0 {
                let text = format!(
                    "expected stamps that go with the log time, {} jump by up to {:.3} s; first at log time {:.6} s",
                    clock.jumps,
                    seconds(clock.largest_jump),
                    seconds(clock.first_jump)
                );
                add(Finding::warning(&codes::STAMPS_JUMP, text));
            }
            if clock.usual_delay.unsigned_abs() > APART {
                let text = format!(
                    "expected stamps near the log time, they are usually {:.3} s before it",
                    seconds(clock.usual_delay)
                );
                add(Finding::warning(&codes::CLOCKS_DISAGREE, text));
            }
        }
    }

    /// Chunks and messages that cannot be read, by episode.
    fn check_faults(&self, found: &mut Collector) {
        let finding = |piece: usize| {
            let placed = self.messages.pieces.get(piece)?;
            let path = self.messages.files.get(placed.file).map_or(Path::new(""), |file| self.shown(&file.path));
            let fault = placed.fault.as_deref()?;
            let code = if fault.contains("checksum") { &codes::CRC_WRONG } else { &codes::UNREADABLE_FILE };
            Some(Finding::error(code, fault).path(path))
        };
        for (at, pieces) in self.faults.iter().enumerate() {
            found.extend(pieces.iter().filter_map(|&piece| Some(finding(piece)?.episode(at as u64))));
        }
        if self.faults.is_empty() {
            found.extend((0..self.messages.pieces.len()).filter_map(finding));
        }
    }

    fn check_episode(&self, at: usize, numbers: bool) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let episode = at as u64;
        // A chunk that cannot be read is told already.
        if self.fault(at).is_some() {
            return Ok(outcome);
        }
        for (stream, info) in self.streams.iter().enumerate() {
            let Some(place) = self.places.get(stream) else { continue };
            let Some(track) = self.tracks.get(place.track) else { continue };
            let place_of = |finding: Finding| finding.episode(episode).stream(&info.name);
            if let Some(why) = self.bad_message(track.topic, at) {
                outcome.findings.push(place_of(Finding::error(&codes::MESSAGE_UNREADABLE, why)));
                continue;
            }
            // Words come when they come.
            if info.kind != Kind::Text {
                let times: Vec<i64> = self.entries(place.track, at).iter().map(|entry| entry.time).collect();
                outcome.findings.extend(stamps::check(&times, None).into_iter().map(place_of));
            }
            if info.kind.is_picture() || info.kind == Kind::Text || !numbers {
                continue;
            }
            match crate::model::Source::read(self, at, &[stream]) {
                Ok(samples) => {
                    if let Some(Values::Numbers(tensor)) = samples.first().map(|samples| &samples.values) {
                        let rows = tensor.shape().first().copied().unwrap_or(0);
                        for part in look(info, tensor, &[Part { episode, rows: 0..rows }])? {
                            outcome.findings.extend(part.findings);
                            outcome.seen.push((stream, part.seen));
                        }
                    }
                }
                Err(error) => outcome.findings.push(place_of(unreadable(&error)?)),
            }
        }
        Ok(outcome)
    }
}

fn unreadable(error: &Error) -> Result<Finding> {
    let code = if is_lasting(error) { &codes::MESSAGE_UNREADABLE } else { &codes::UNREADABLE_NOW };
    Ok(Finding::error(code, error.to_string()))
}
