//! The rows of some episodes of one file.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{Error, Tensor};

use super::super::LeRobot;
use super::super::episodes::{Integers, has, integers, seconds};
use super::super::finding::finding_of;
use super::camera::{self, Shifted};
use super::clock::{Clock, Clocks};
use super::{Plan, Totals, episodes_text, exists};
use crate::check::codes;
use crate::check::collect::Collector;
use crate::check::values::{Part, Seen, look};
use crate::check::work::Stop;
use crate::findings::{Finding, Level};
use crate::model::{Kind, StreamInfo};
use crate::parquet::{ParquetFile, Why};

/// What one task found.
pub(super) struct BlockOutcome {
    pub(super) findings: Vec<Finding>,
    /// Said of the file in words that may fit others.
    pub(super) of_file: Vec<Finding>,
    streams: Vec<Option<Seen>>,
    /// Streams of which rows could not be read, or were read for another episode.
    partial: Vec<bool>,
    clocks: Clocks,
    pub(super) shifted: Vec<Shifted>,
}

impl BlockOutcome {
    pub(super) fn add_to(self, totals: &mut Totals, found: &mut Collector) {
        found.extend(self.findings);
        self.of_file.into_iter().for_each(|finding| found.add_for_file(finding));
        for (total, seen) in totals.streams.iter_mut().zip(self.streams) {
            match (total, seen) {
                (Some(total), Some(seen)) => total.merge(&seen),
                (total, seen @ Some(_)) => *total = seen,
                (_, None) => {}
            }
        }
        totals.partial.iter_mut().zip(&self.partial).for_each(|(total, partial)| *total |= partial);
        totals.clocks.merge(&self.clocks);
        totals.shifted.iter_mut().zip(&self.shifted).for_each(|(total, shifted)| total.merge(shifted));
    }
}

/// Rows of a file, and the episodes in them.
pub(super) struct Rows<'a> {
    pub(super) path: &'a Path,
    pub(super) table: &'a ParquetFile,
    pub(super) range: Range<u64>,
    /// Rows count from the start of the range.
    pub(super) parts: Vec<(usize, Part)>,
}

impl LeRobot {
    pub(super) fn check_block(&self, plan: &Plan, task: usize, stop: &Stop) -> BlockOutcome {
        let mut out = BlockOutcome {
            findings: Vec::new(),
            of_file: Vec::new(),
            streams: self.streams.iter().map(|_| None).collect(),
            partial: vec![false; self.streams.len()],
            clocks: Clocks::default(),
            shifted: vec![Shifted::default(); self.episodes.cameras.len()],
        };
        let Some((block, &first)) = plan.blocks.get(task).and_then(|block| Some((block, block.episodes.first()?)))
        else {
            return out;
        };
        let opened = self.table_path(first).and_then(|path| Ok((self.table(first)?, path)));
        let opened = opened.and_then(|(table, path)| table.ensure_known_codec().map(|()| (table, path)));
        let (table, path): (Arc<ParquetFile>, PathBuf) = match opened {
            Ok(opened) => opened,
            // Also a file whose compression nobody here knows is told once, not for each column.
            Err(error) => {
                out.findings.extend(block.of_file.iter().map(|all| self.cannot_open(all, first, &error)));
                out.partial.fill(true);
                return out;
            }
        };
        if let Some(all) = &block.of_file {
            for mut finding in self.check_columns(&path, &table) {
                // What cannot be read is told per file, the rest may be the same in many.
                match (finding.level, all.as_slice()) {
                    (Level::Error, &[one]) => finding.episode = self.episodes.index.get(one).copied(),
                    (Level::Error, _) => {}
                    _ => {
                        out.of_file.push(finding);
                        continue;
                    }
                }
                out.findings.push(finding);
            }
            out.findings.extend(self.check_trailing_rows(all, &path, &table));
        }
        let rows = self.rows_of(&block.episodes, &path, &table, &mut out);
        let clock = self.check_bookkeeping(&rows, plan, &mut out);
        // Without cameras nobody asks for the times.
        let asks = plan.present.contains(&true) && !clock.is_unreadable;
        for (at, part) in rows.parts.iter().filter(|_| asks) {
            if stop.asked() {
                return out;
            }
            let times = clock.times(&part.rows, self.info.fps);
            self.check_episode_videos(plan, *at, &times, &mut out);
        }
        for (place, stream) in self.streams.iter().enumerate() {
            if stop.asked() {
                return out;
            }
            match stream.kind {
                Kind::Scalar | Kind::Vector | Kind::PointCloud if !plan.numbers => {}
                Kind::Scalar | Kind::Vector | Kind::PointCloud => {
                    self.check_numbers_of(plan, place, stream, &rows, &mut out)
                }
                Kind::Image => out.findings.extend(self.check_pictures(stream, &rows, stop)),
                Kind::Depth if !self.is_camera(&stream.name) => {
                    out.findings.extend(self.check_pictures(stream, &rows, stop))
                }
                Kind::Text => out.findings.extend(self.check_texts(stream, &rows, stop)),
                // Cameras were looked at with the episodes.
                Kind::Video | Kind::Depth => {}
            }
        }
        out
    }

    /// A file that cannot be opened, with all episodes that it should hold.
    fn cannot_open(&self, all: &[usize], first: usize, error: &Error) -> Finding {
        let lost: Vec<u64> = all.iter().filter_map(|&at| self.episodes.index.get(at).copied()).collect();
        let is_missing = self.table_path(first).is_ok_and(|path| !exists(&path));
        let mut finding = if is_missing {
            let path = self.table_path(first).unwrap_or_default();
            Finding::error(&codes::MISSING_FILE, format!("expected a file with {}", episodes_text(&lost)))
                .path(self.root.shown(&path))
        } else {
            let mut finding = finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, error);
            finding.message = format!("expected a file with {}: {}", episodes_text(&lost), finding.message);
            finding
        };
        finding.episode = if let [one] = *lost { Some(one) } else { None };
        finding
    }

    /// Version 3: rows after the last episode of a file.
    fn check_trailing_rows(&self, all: &[usize], path: &Path, table: &ParquetFile) -> Option<Finding> {
        if self.has_one_file_per_episode() {
            return None;
        }
        let end = all.iter().map(|&at| self.claimed_rows(at).end).max().unwrap_or(0);
        (table.rows() > end).then(|| {
            let text = format!("expected {end} rows for the episodes of the metadata, the file has {}", table.rows());
            Finding::warning(&codes::RANGES_DO_NOT_TILE, text).path(self.root.shown(path))
        })
    }

    /// The rows that the episodes really have.
    fn rows_of<'a>(
        &self,
        episodes: &[usize],
        path: &'a Path,
        table: &'a ParquetFile,
        out: &mut BlockOutcome,
    ) -> Rows<'a> {
        let count = table.rows();
        let mut found = Vec::new();
        for &at in episodes {
            let number = self.episodes.index.get(at).copied().unwrap_or_default();
            let claimed = self.claimed_rows(at);
            let (rows, text) = if self.has_one_file_per_episode() {
                let text = format!("expected {} rows as the metadata says, the file has {count}", claimed.end);
                (0..count, (claimed.end != count).then_some(text))
            } else {
                let Range { start, end } = claimed;
                let text = format!("expected rows {start} to {end} for this episode, the file has {count}");
                (start.min(count)..end.min(count), (end > count).then_some(text))
            };
            if let Some(text) = text {
                out.partial.fill(true);
                let finding = Finding::error(&codes::LENGTH_DIFFERS, text).episode(number);
                out.findings.push(finding.path(self.root.shown(path)));
            }
            found.push((at, number, rows));
        }
        let start = found.iter().map(|(_, _, rows)| rows.start).min().unwrap_or(0);
        let end = found.iter().map(|(_, _, rows)| rows.end).max().unwrap_or(0);
        let place = |row: u64| usize::try_from(row.saturating_sub(start)).unwrap_or(usize::MAX);
        let parts = found
            .into_iter()
            .map(|(at, episode, rows)| (at, Part { episode, rows: place(rows.start)..place(rows.end) }))
            .collect();
        Rows { path, table, range: start..end, parts }
    }

    /// Columns that number the rows; what they say of the clock.
    fn check_bookkeeping(&self, rows: &Rows<'_>, plan: &Plan, out: &mut BlockOutcome) -> Clock {
        let mut unreadable = Vec::new();
        let mut whole = |column: &str| {
            let read = || integers(rows.path, rows.table, column, rows.range.clone());
            let numbers = has(rows.table, column).then(read)?;
            numbers.map_err(|error| unreadable.push((column.to_owned(), error))).ok()
        };
        let (episodes, index) = (whole("episode_index"), whole("index"));
        let (tasks, frames) = (whole("task_index"), whole("frame_index"));
        let read = || seconds(rows.path, rows.table, "timestamp", rows.range.clone());
        let stamps = has(rows.table, "timestamp").then(read);
        let stamps =
            stamps.and_then(|read| read.map_err(|error| unreadable.push(("timestamp".to_owned(), error))).ok());
        let clock = if has(rows.table, "frame_index") { "frame_index" } else { "timestamp" };
        let is_unreadable = unreadable.iter().any(|(column, _)| column == clock);
        for (column, error) in unreadable {
            // The reader does without the others.
            let is_used = [clock, "episode_index", "task_index"].contains(&&*column);
            let level = if is_used { Level::Error } else { Level::Warning };
            let finding = finding_of(&self.root, level, &codes::UNREADABLE_FILE, &error);
            out.findings.push(finding.stream(&column));
        }
        let clock = Clock { frames, stamps, is_unreadable };
        for (at, part) in &rows.parts {
            let place = |finding: Finding| finding.episode(part.episode).path(self.root.shown(rows.path));
            let start = plan.first_index.get(*at).copied().unwrap_or(0);
            let wrong = [
                part_of(&episodes, part).and_then(|found| wrong_episode(found, part)),
                part_of(&index, part).and_then(|found| out.clocks.add_index(part.episode, found, start)),
                part_of(&tasks, part).and_then(|found| self.unknown_task(found)),
            ];
            out.findings.extend(wrong.into_iter().flatten().map(place));
            let found = clock.check(part, self.info.fps, &mut out.clocks);
            out.findings.extend(found.into_iter().map(place));
        }
        clock
    }

    fn unknown_task(&self, tasks: &[i64]) -> Option<Finding> {
        let is_known = |task: i64| {
            let text = usize::try_from(task).ok().and_then(|task| self.tasks.get(task));
            text.is_some_and(|text| !text.is_empty())
        };
        // A list that cannot be read was reported.
        let first = tasks.iter().position(|&task| !self.tasks.is_empty() && !is_known(task))?;
        let (task, most) = (tasks.get(first)?, self.tasks.len() - 1);
        let text = format!("expected a task of 0 to {most}, got {task} in sample {first}");
        Some(Finding::warning(&codes::TASK_UNKNOWN, text).stream("task_index"))
    }

    fn check_numbers_of(
        &self,
        plan: &Plan,
        place: usize,
        stream: &StreamInfo,
        rows: &Rows<'_>,
        out: &mut BlockOutcome,
    ) {
        let is_partial = |out: &mut BlockOutcome| out.partial.iter_mut().skip(place).take(1).for_each(|p| *p = true);
        // What does not fit was reported with the columns of the file.
        if rows.table.number_type(&stream.name).is_none_or(|found| Some(found) != stream.dtype) {
            is_partial(out);
            return;
        }
        if Seen::bytes(stream.width()) > self.root.limits.max_alloc {
            is_partial(out);
            let text = format!("its samples of shape {:?} are too large to be looked at (max_alloc)", stream.shape);
            out.of_file.push(Finding::warning(&codes::UNREADABLE_FILE, text).stream(&stream.name));
            return;
        }
        let parts: Vec<Part> = rows.parts.iter().map(|(_, part)| part.clone()).collect();
        let read = |range| rows.table.fitting_numbers(&stream.name, range, &stream.shape);
        if let Ok(tensor) = read(rows.range.clone()) {
            self.take_numbers(plan, place, stream, &tensor, &parts, out);
            return;
        }
        // Which episodes are at fault.
        for part in parts {
            let [start, end] = [part.rows.start, part.rows.end].map(|row| rows.range.start.saturating_add(row as u64));
            match read(start..end) {
                Ok(tensor) => {
                    let all = Part { episode: part.episode, rows: 0..part.rows.len() };
                    self.take_numbers(plan, place, stream, &tensor, &[all], out);
                }
                Err(unfit) => {
                    is_partial(out);
                    let finding = finding_of(&self.root, Level::Error, misfit(unfit.why), &unfit.error);
                    out.findings.push(finding.episode(part.episode).stream(&stream.name));
                }
            }
        }
    }

    fn take_numbers(
        &self,
        plan: &Plan,
        place: usize,
        stream: &StreamInfo,
        tensor: &Tensor,
        parts: &[Part],
        out: &mut BlockOutcome,
    ) {
        let Ok(looks) = look(stream, tensor, parts) else {
            return;
        };
        for (part, look) in parts.iter().zip(looks) {
            out.findings.extend(look.findings);
            out.findings.extend(plan.stats.compare_episode(stream, place, part.episode, &look.seen));
            match out.streams.get_mut(place) {
                Some(Some(seen)) => seen.merge(&look.seen),
                Some(empty) => *empty = Some(look.seen),
                None => {}
            }
        }
    }

    /// Version 2, where a video belongs to one episode: the file and its frames. Version 3: the
    /// frames only, since the file is a task of its own.
    fn check_episode_videos(&self, plan: &Plan, at: usize, times: &[i64], out: &mut BlockOutcome) {
        for (place, camera) in self.episodes.cameras.iter().enumerate() {
            if !plan.present.get(place).copied().unwrap_or(false) {
                continue;
            }
            if self.has_one_file_per_episode() {
                let found = self.check_video(Some(&camera::VideoTask::of_one(place, at)));
                camera::split(found, &mut out.findings, &mut out.of_file);
            }
            let (found, shift) = self.check_video_frames(at, &camera.key, times);
            let number = self.episodes.index.get(at).copied().unwrap_or_default();
            out.findings.extend(found.map(|finding| finding.episode(number).stream(&camera.key)));
            if let Some(shifted) = out.shifted.get_mut(place) {
                shifted.add(number, shift);
            }
        }
    }
}

/// An episode's rows of a column.
fn part_of<'a>(column: &'a Option<Integers>, part: &Part) -> Option<&'a [i64]> {
    column.as_ref()?.get(part.rows.clone())
}

/// What it means that numbers could not be read.
fn misfit(why: Why) -> &'static crate::check::Code {
    match why {
        Why::Shape => &codes::SHAPE_DIFFERS,
        Why::Null => &codes::NOT_FINITE,
        Why::Unreadable => &codes::UNREADABLE_FILE,
    }
}

fn wrong_episode(found: &[i64], part: &Part) -> Option<Finding> {
    let is_wrong = |&&other: &&i64| u64::try_from(other) != Ok(part.episode);
    let count = found.iter().filter(is_wrong).count();
    let (first, other) = found.iter().enumerate().find(|(_, other)| is_wrong(other))?;
    let text = format!("expected rows of this episode, {count} say another; first sample {first}: episode {other}");
    Some(Finding::error(&codes::WRONG_EPISODE, text))
}
