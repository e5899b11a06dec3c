//! The stamps of episodes: frame numbers, and the file's own.

use std::ops::Range;

use super::super::LeRobot;
use super::super::episodes::Integers;
use super::super::read::{OUT_OF_TIME, frame_time, frame_times, nanoseconds, stamps as stamps_of};
use crate::check::codes;
use crate::check::collect::Collector;
use crate::check::quaternions::Place;
use crate::check::stamps;
use crate::check::values::Part;
use crate::findings::{Finding, Level};

/// Stamps that are off by more than this part of a period are a warning.
const DRIFT_PERIODS: f64 = 0.25;
/// What LeRobot tolerates, in nanoseconds; off by more is a note.
const DRIFT_TOLERANCE: f64 = 1e5;
/// Stamps of 32 bits are rounded by this part.
const STAMP_ROUNDING: f64 = f32::EPSILON as f64;

/// The columns of some rows that tell the time.
pub(super) struct Clock {
    pub(super) frames: Option<Integers>,
    pub(super) stamps: Option<Vec<f64>>,
    /// Whether the column that the reader takes the time from could not be read.
    pub(super) is_unreadable: bool,
}

impl Clock {
    fn frames(&self, rows: &Range<usize>) -> Option<&[i64]> {
        self.frames.as_ref()?.get(rows.clone())
    }

    /// As nanoseconds; `None` also where one is no time.
    fn stamps(&self, rows: &Range<usize>) -> Option<Vec<i64>> {
        self.stamps.as_ref()?.get(rows.clone())?.iter().map(|&stamp| nanoseconds(stamp)).collect()
    }

    /// By the rule of the reader; evenly where a stamp is no time, which is told.
    pub(super) fn times(&self, rows: &Range<usize>, fps: f64) -> Vec<i64> {
        let seconds = self.stamps.as_ref().and_then(|all| all.get(rows.clone()));
        stamps_of(self.frames(rows), seconds, rows.len(), fps).unwrap_or_else(|_| evenly(rows.len(), fps).collect())
    }

    pub(super) fn check(&self, part: &Part, fps: f64, clocks: &mut Clocks) -> Vec<Finding> {
        let mut found = Vec::new();
        let frames = self.frames(&part.rows);
        if let Some(frames) = frames {
            found.extend(stamps::check_numbers(frames));
            let time = frame_times(fps);
            if let Some((sample, frame)) = frames.iter().enumerate().find(|(_, frame)| time(**frame).is_none()) {
                let text = format!("{frame} in sample {sample}: {OUT_OF_TIME}");
                found.push(Finding::error(&codes::STAMPS_RANGE, text));
            }
            found = found.into_iter().map(|finding| finding.stream("frame_index")).collect();
        }
        let mut of_stamps = Vec::new();
        let times = self.stamps(&part.rows).unwrap_or_default();
        let raw = self.stamps.as_ref().and_then(|all| all.get(part.rows.clone())).unwrap_or_default();
        if times.len() < raw.len() {
            let bad = || raw.iter().enumerate().filter(|(_, stamp)| nanoseconds(**stamp).is_none());
            let (first, stamp) = bad().next().unwrap_or((0, &f64::NAN));
            let text =
                format!("expected times in seconds, {} are none; first in sample {first}: {stamp}", bad().count());
            of_stamps.push(Finding::error(&codes::NOT_FINITE, text));
        }
        of_stamps.extend(stamps::check(&times, Some(1e9 / fps)));
        let of_stamps = of_stamps.into_iter().map(|finding| finding.stream("timestamp"));
        found.extend(of_stamps.map(|finding| if frames.is_some() { without_effect(finding) } else { finding }));
        clocks.episodes += 1;
        if !times.is_empty() {
            clocks.add_drift(part.episode, &times, frames, fps);
        }
        let first = match frames {
            Some(frames) => frames.first().and_then(|&frame| frame_time(frame, fps)),
            None => times.first().copied(),
        };
        // Rounded stamps are near 0 as well.
        if let Some(first) = first.filter(|first| first.unsigned_abs() > 1000) {
            clocks.starts += 1;
            clocks.start.get_or_insert((part.episode, first));
        }
        found
    }
}

/// What is wrong with stamps that are not used: the samples and their times are right all the same.
fn without_effect(mut finding: Finding) -> Finding {
    if finding.level == Level::Error {
        finding.level = Level::Warning;
        finding.message.push_str("; not used, times come from frame_index");
    }
    finding
}

fn evenly(count: usize, fps: f64) -> impl Iterator<Item = i64> {
    (0..).take(count).map_while(frame_times(fps))
}

/// What is said once of all episodes.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    episodes: u64,
    /// The largest distance from the rate: nanoseconds, and where.
    drift: Option<(i64, Place)>,
    /// Episodes above a quarter of a period, and above what LeRobot tolerates.
    far: u64,
    near: u64,
    /// Episodes that do not start at 0, and the first of them.
    starts: u64,
    start: Option<(u64, i64)>,
    /// Episodes whose rows are numbered from elsewhere on: how many, the first, and its first
    /// number, expected and found.
    offsets: u64,
    offset: Option<(u64, u64, i64)>,
}

impl Clocks {
    fn add_drift(&mut self, episode: u64, times: &[i64], frames: Option<&[i64]>, fps: f64) {
        let first = times.first().copied().unwrap_or(0);
        let (off, sample) = match frames {
            Some(frames) => {
                let expected = frame_times(fps);
                // A number that is no time is told by itself.
                stamps::drift(times.iter().zip(frames).map(|(&time, &frame)| (time, expected(frame).unwrap_or(time))))
            }
            // Without numbers, the rate counts from the first stamp.
            None => stamps::drift(
                times.iter().zip(evenly(times.len(), fps)).map(|(&time, even)| (time.saturating_sub(first), even)),
            ),
        };
        let distance = off.unsigned_abs() as f64;
        let rounding = times.get(sample).map_or(0.0, |time| time.unsigned_abs() as f64 * STAMP_ROUNDING);
        if distance <= DRIFT_TOLERANCE + rounding {
            return;
        }
        *(if distance > 1e9 / fps * DRIFT_PERIODS { &mut self.far } else { &mut self.near }) += 1;
        if self.drift.is_none_or(|(worst, _)| off.unsigned_abs() > worst.unsigned_abs()) {
            self.drift = Some((off, Place { episode, sample }));
        }
    }

    /// Looks at the numbers of an episode's rows in the dataset, which should count from `start`.
    pub(super) fn add_index(&mut self, episode: u64, index: &[i64], start: u64) -> Option<Finding> {
        let &first = index.first()?;
        let is_next = |(at, number): &(usize, &i64)| number.checked_sub(first) == i64::try_from(*at).ok();
        if let Some((at, number)) = index.iter().enumerate().find(|pair| !is_next(pair)) {
            let text = format!("expected numbers one after the other from {first} on, got {number} in sample {at}");
            return Some(Finding::warning(&codes::INDEX_DIFFERS, text).stream("index"));
        }
        if u64::try_from(first) != Ok(start) {
            self.offsets += 1;
            self.offset.get_or_insert((episode, start, first));
        }
        None
    }

    /// Adds what later episodes showed.
    pub(super) fn merge(&mut self, later: &Self) {
        self.episodes += later.episodes;
        self.far += later.far;
        self.near += later.near;
        self.starts += later.starts;
        self.start = self.start.or(later.start);
        self.offsets += later.offsets;
        self.offset = self.offset.or(later.offset);
        let distance = |drift: &Option<(i64, Place)>| drift.map_or(0, |(off, _)| off.unsigned_abs());
        if distance(&later.drift) > distance(&self.drift) {
            self.drift = later.drift;
        }
    }

    pub(super) fn finish(&self, dataset: &LeRobot, found: &mut Collector) {
        if let Some((off, place)) = self.drift {
            let text = format!(
                "expected stamps at {} per second, off by up to {:+.3} ms in sample {} of episode {}; {} of {} episodes \
                 are off by more than {}",
                dataset.info.fps,
                off as f64 * 1e-6,
                place.sample,
                place.episode,
                if self.far > 0 { self.far } else { self.near },
                self.episodes,
                if self.far > 0 { "a quarter of a period" } else { "0.1 ms" },
            );
            let make = if self.far > 0 { Finding::warning } else { Finding::note };
            found.add(make(&codes::STAMPS_DRIFT, text).episode(place.episode).stream("timestamp"));
        }
        if let Some((episode, first)) = self.start {
            let text = format!(
                "expected stamps from 0 on, {} of {} episodes start later; the first is episode {episode} at {:.3} s",
                self.starts,
                self.episodes,
                first as f64 * 1e-9
            );
            found.add(Finding::note(&codes::STAMPS_START, text));
        }
        if let Some((episode, expected, got)) = self.offset {
            let text = format!(
                "expected it to start with row {expected} of the dataset, it starts with {got}; {} of {} episodes start elsewhere",
                self.offsets, self.episodes
            );
            found.add(Finding::warning(&codes::INDEX_DIFFERS, text).episode(episode).stream("index"));
        }
    }
}
