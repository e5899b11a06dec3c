//! The videos of cameras: whether they are there, what their index says, where episodes start in
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use robocache::{ErrorKind, Result, shown_path};

use super::super::LeRobot;
use super::super::episodes::{has, seconds};
use super::super::finding::finding_of;
use super::super::read::nanoseconds;
use super::{episodes_text, exists};
use crate::check::codes;
use crate::check::collect::Collector;
use crate::check::video::{Declared, check_file, check_frames};
use crate::findings::{Finding, Level};
use crate::parquet::ParquetFile;
use crate::video::VideoFile;

/// Parts of a frame by which an episode's place in its video may be off.
const OFFSET_WARNING: f64 = 0.1;
const OFFSET_ERROR: f64 = 0.5;
/// In seconds: below this, it is how numbers are written.
const OFFSET_ROUNDING: f64 = 1e-6;

/// A video file and the episodes in it.
#[derive(Debug)]
pub(super) struct VideoTask {
    camera: usize,
    /// By their places, in the order of the metadata; not empty.
    episodes: Vec<usize>,
    /// When each ends in the video, where the metadata says so.
    ends: Vec<Option<f64>>,
}

impl VideoTask {
    /// The video of one episode alone.
    pub(super) fn of_one(camera: usize, episode: usize) -> Self {
        Self { camera, episodes: vec![episode], ends: vec![None] }
    }
}

/// Episodes whose stamps start late, over a video that starts at 0.
#[derive(Debug, Default, Clone)]
pub(super) struct Shifted {
    episodes: u64,
    shifted: u64,
    first: Option<(u64, i64)>,
}

impl Shifted {
    pub(super) fn add(&mut self, episode: u64, shift: i64) {
        self.episodes += 1;
        if shift != 0 {
            self.shifted += 1;
            self.first.get_or_insert((episode, shift));
        }
    }

    pub(super) fn merge(&mut self, later: &Self) {
        self.episodes += later.episodes;
        self.shifted += later.shifted;
        self.first = self.first.or(later.first);
    }

    pub(super) fn finding(&self, camera: &str) -> Option<Finding> {
        let (episode, shift) = self.first?;
        let text = format!(
            "expected stamps that fit the video, {} of {} episodes are ahead of it; the first is episode {episode}, by \
             {:.3} ms; frames are found from the first stamp on",
            self.shifted,
            self.episodes,
            shift as f64 * 1e-6
        );
        Some(Finding::warning(&codes::VIDEO_SHIFTED, text).stream(camera))
    }
}

/// What is said of an episode, and what may be said of many files in the same words.
pub(super) fn split(found: Vec<Finding>, of_episode: &mut Vec<Finding>, of_file: &mut Vec<Finding>) {
    for finding in found {
        let is_own = finding.level == Level::Error || finding.episode.is_some();
        if is_own { of_episode.push(finding) } else { of_file.push(finding) }
    }
}

pub(super) fn add_to(found: Vec<Finding>, all: &mut Collector) {
    let (mut of_episode, mut of_file) = (Vec::new(), Vec::new());
    split(found, &mut of_episode, &mut of_file);
    all.extend(of_episode);
    of_file.into_iter().for_each(|finding| all.add_for_file(finding));
}

impl LeRobot {
    /// Which cameras have files. One without any is one finding, and not looked at further.
    pub(super) fn check_cameras_exist(&self, found: &mut Collector) -> Vec<bool> {
        let mut present = Vec::new();
        for camera in &self.episodes.cameras {
            let path = |at: usize| self.video_path(at, &camera.key).ok().map(|(path, _)| path);
            let is_present = (0..self.episodes.len()).filter_map(path).any(|path| exists(&path));
            if !is_present && self.episodes.len() > 0 {
                let finding = match self.video_path(0, &camera.key) {
                    Ok((path, _)) => {
                        let (count, path) = (self.episodes.len(), shown_path(self.root.shown(&path)));
                        let text =
                            format!("expected video files, there are none of {count} episodes; the first is {path}");
                        Finding::warning(&codes::MISSING_FILES, text)
                    }
                    // A path that makes no sense, or leads out of the dataset.
                    Err(error) if error.kind() == ErrorKind::CorruptData => {
                        finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error)
                    }
                    Err(error) => finding_of(&self.root, Level::Warning, &codes::MISSING_FILES, &error),
                };
                found.add(finding.stream(&camera.key));
            }
            present.push(is_present);
        }
        present
    }

    /// Version 3: every video file of the cameras that have files.
    pub(super) fn video_tasks(&self, present: &[bool]) -> Vec<VideoTask> {
        let mut tasks = Vec::new();
        for (place, camera) in self.episodes.cameras.iter().enumerate() {
            if present.get(place) != Some(&true) {
                continue;
            }
            // Said with the metadata's own words where it cannot be read.
            let ends = self.video_ends(&camera.key).unwrap_or_default();
            let mut files: BTreeMap<_, VideoTask> = BTreeMap::new();
            for (at, known) in camera.places.iter().enumerate().take(self.episodes.len()) {
                let Some((file, _)) = known else { continue };
                let task = files.entry(*file).or_insert_with(|| VideoTask {
                    camera: place,
                    episodes: Vec::new(),
                    ends: Vec::new(),
                });
                task.episodes.push(at);
                task.ends.push(ends.get(at).copied().filter(|end| end.is_finite()));
            }
            tasks.extend(files.into_values());
        }
        tasks
    }

    fn video_ends(&self, key: &str) -> Result<Vec<f64>> {
        let mut ends = Vec::new();
        let column = format!("videos/{key}/to_timestamp");
        for path in self.root.chunked_files("meta/episodes")? {
            let table = ParquetFile::open(&path, &self.root.limits)?;
            if !has(&table, &column) {
                return Ok(Vec::new());
            }
            ends.extend(seconds(&path, &table, &column, 0..table.rows())?);
        }
        Ok(ends)
    }

    /// Looks at one video file: its index, and where the episodes are in it.
    pub(super) fn check_video(&self, task: Option<&VideoTask>) -> Vec<Finding> {
        let Some((task, &first)) = task.and_then(|task| Some((task, task.episodes.first()?))) else {
            return Vec::new();
        };
        let Some(camera) = self.episodes.cameras.get(task.camera) else {
            return Vec::new();
        };
        let numbers: Vec<u64> = task.episodes.iter().filter_map(|&at| self.episodes.index.get(at).copied()).collect();
        let opened = self.video_path(first, &camera.key).and_then(|(path, _)| Ok((self.open_video(&path)?, path)));
        let mut found = match opened {
            Ok((Some(video), path)) => self.check_index(task, &camera.key, &video, &path),
            Ok((None, path)) => {
                let text = format!("expected a video of {}", episodes_text(&numbers));
                vec![Finding::error(&codes::MISSING_FILE, text).path(self.root.shown(&path))]
            }
            Err(error) => {
                let mut finding = finding_of(&self.root, Level::Error, &codes::UNREADABLE_FILE, &error);
                finding.message = format!("expected a video of {}: {}", episodes_text(&numbers), finding.message);
                vec![finding]
            }
        };
        found.extend(self.check_offsets(task, &camera.key));
        for finding in &mut found {
            finding.stream = Some(camera.key.clone());
            // What is said of the file is the episode's, where it is the only one.
            if let ([one], None, Level::Error) = (numbers.as_slice(), finding.episode, finding.level) {
                finding.episode = Some(*one);
            }
        }
        found
    }

    /// `None` where there is no file.
    fn open_video(&self, path: &Path) -> Result<Option<Arc<VideoFile>>> {
        if exists(path) { self.video(path).map(Some) } else { Ok(None) }
    }

    fn check_index(&self, task: &VideoTask, key: &str, video: &VideoFile, path: &Path) -> Vec<Finding> {
        let feature = self.info.features.iter().find(|feature| feature.name == key);
        let stream = self.streams.iter().find(|stream| stream.name == key);
        let declared = Declared {
            codec: feature.and_then(|feature| feature.codec.as_deref()),
            shape: stream.map_or(&[], |stream| stream.shape.as_slice()),
            rate: self.info.fps,
        };
        let lengths = task.episodes.iter().filter_map(|&at| self.episodes.length.get(at));
        let samples = lengths.fold(0u64, |sum, &length| sum.saturating_add(length));
        let found = check_file(video, declared, samples);
        found.into_iter().map(|finding| finding.path(self.root.shown(path))).collect()
    }

    /// Version 3: each episode should start where the ones before it end.
    fn check_offsets(&self, task: &VideoTask, key: &str) -> Vec<Finding> {
        let Some(places) = self.episodes.cameras.get(task.camera).map(|camera| &camera.places) else {
            return Vec::new();
        };
        let fps = self.info.fps;
        let length = |at: usize| self.episodes.length.get(at).copied().unwrap_or(0);
        let start = |at: usize| places.get(at).copied().flatten().map_or(0.0, |place| place.1);
        let mut order: Vec<(usize, Option<f64>)> =
            task.episodes.iter().copied().zip(task.ends.iter().copied()).collect();
        let starts_in = |order: &[(usize, Option<f64>)]| {
            let (mut frames, mut starts) = (0u64, Worst::default());
            for &(at, _) in order {
                starts.add(at, start(at) - frames as f64 / fps, fps);
                frames = frames.saturating_add(length(at));
            }
            starts
        };
        // A video may hold its episodes in another order; a wrong start would look like that, so
        // that the order with fewer episodes off counts.
        let listed = starts_in(&order);
        order.sort_by(|(a, _), (b, _)| start(*a).total_cmp(&start(*b)).then(a.cmp(b)));
        let sorted = starts_in(&order);
        let starts = if listed.count <= sorted.count { listed } else { sorted };
        let mut ends = Worst::default();
        for &(at, end) in &order {
            end.into_iter().for_each(|end| ends.add(at, end - start(at) - length(at) as f64 / fps, fps));
        }
        let number = |at: usize| self.episodes.index.get(at).copied().unwrap_or_default();
        let path = task.episodes.first().and_then(|&at| self.video_path(at, key).ok()).map(|(path, _)| path);
        let told =
            [(starts, "start where the episodes before it end in the video"), (ends, "last as long as its samples")];
        let find = |(worst, what): (Worst, &str)| {
            let periods = worst.off.abs() * fps;
            let level = match () {
                () if periods >= OFFSET_ERROR => Level::Error,
                () if periods >= OFFSET_WARNING => Level::Warning,
                () => Level::Note,
            };
            let at = worst.at.filter(|_| worst.off.abs() > OFFSET_ROUNDING)?;
            let text = format!("expected it to {what}, off by {:+.3} ms ({periods:.3} frames)", worst.off * 1e3);
            let finding = Finding::new(level, &codes::VIDEO_OFFSET, text).episode(number(at));
            Some(path.iter().fold(finding, |finding, path| finding.path(self.root.shown(path))))
        };
        told.into_iter().filter_map(find).collect()
    }

    /// The frames of an episode's samples, and by how much its stamps are shifted. A video that
    /// cannot be opened is reported with the file.
    pub(super) fn check_video_frames(&self, at: usize, key: &str, times: &[i64]) -> (Option<Finding>, i64) {
        let Ok((path, start)) = self.video_path(at, key) else {
            return (None, 0);
        };
        let (Ok(video), Some(start)) = (self.video(&path), nanoseconds(start)) else {
            return (None, 0);
        };
        let shift = self.shift(&video, times);
        let found = check_frames(&video, times, start.saturating_sub(shift), 1e9 / self.info.fps);
        (found.map(|finding| finding.path(self.root.shown(&path))), shift)
    }
}

/// The episode that is off the most, and how many are off by what matters.
#[derive(Debug, Default, Clone, Copy)]
struct Worst {
    at: Option<usize>,
    off: f64,
    count: usize,
}

impl Worst {
    fn add(&mut self, at: usize, off: f64, fps: f64) {
        self.count += usize::from(off.abs() * fps >= OFFSET_WARNING);
        if self.at.is_none() || off.abs() > self.off.abs() {
            (self.at, self.off) = (Some(at), off);
        }
    }
}
