//! How fast datasets become caches.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use robocache::{Error, ErrorKind, Result, cpu_threads, shown_path};
use robocache_data::cache::{self, Choice, IngestOptions};
use robocache_data::{Dataset, Ffmpeg, Kind, Limits, Progress, StreamInfo};

use super::report::{Measured, Row, Target, Unit};
use super::steps::Steps;
use super::synthetic::{self, Groups, JOINTS, Plan};
use crate::output::plural;

/// To ingest: enough that files and folders do not count.
const NUMBERS: Plan =
    Plan { episodes: 4000, frames: 400, episodes_per_file: 500, groups: Groups::Large, metadata: Groups::Large };
/// Of the cache's shards, per core.
const NUMBERS_TARGET: f64 = 300e6;
/// Of the speed of `ffmpeg -f null` with the same files and threads.
const VIDEO_TARGET: f64 = 0.9;
/// In less only files and folders count.
const LEAST_BYTES: u64 = 64 << 20;
const LEAST_FRAMES: u64 = 1000;
/// The best of so many counts.
const PASSES: usize = 3;

struct Bench<'a> {
    folder: &'a Path,
    steps: Steps<'a>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Measures with a dataset of numbers that it makes in `folder`.
pub(super) fn made(folder: &Path, progress: &Progress<'_>) -> Result<Measured> {
    let mut bench = Bench::new(folder, progress, 3);
    let source = folder.join("numbers");
    synthetic::write(&source, &NUMBERS, &|| bench.steps.go_on())?;
    bench.steps.step(1);
    bench.numbers(&source)?;
    let dataset = format!(
        "A dataset of LeRobot v3.0 made for this: {} episodes of {} frames, two streams of {JOINTS} float32 each, \
         snappy. From the page cache, with statistics, checksums and fsync.",
        NUMBERS.episodes, NUMBERS.frames
    );
    Ok(Measured::new("ingest", dataset, bench.rows, bench.notes))
}

/// Measures with a dataset.
pub(super) fn given(path: &Path, folder: &Path, progress: &Progress<'_>) -> Result<Measured> {
    let mut bench = Bench::new(folder, progress, 4);
    bench.numbers(path)?;
    bench.video(path)?;
    let dataset = Dataset::open(path, &Limits::default())?;
    let text = format!("{}: {}, {}.", shown_path(path), dataset.format(), plural(dataset.len() as u64, "episode"));
    Ok(Measured::new("ingest", text, bench.rows, bench.notes))
}

impl<'a> Bench<'a> {
    fn new(folder: &'a Path, progress: &'a Progress<'a>, steps: usize) -> Self {
        Self { folder, steps: Steps::new(progress, steps), rows: Vec::new(), notes: Vec::new() }
    }

    /// Ingests some streams several times, each into a new cache: bytes and the best time.
    fn best(&self, source: &Path, streams: &[String], workers: usize) -> Result<(u64, u64, f64)> {
        let choice = |name: &String| Choice { from: name.clone(), to: None, dtype: None };
        let options = IngestOptions {
            streams: Some(streams.iter().map(choice).collect()),
            workers: Some(workers),
            ..IngestOptions::default()
        };
        let quiet = Progress { step: &|_, _| {}, ..*self.steps.progress };
        let (mut bytes, mut frames, mut best) = (0, 0, f64::INFINITY);
        for pass in 0..PASSES {
            let out = self.folder.join(format!("cache-{pass}"));
            let started = Instant::now();
            let report = cache::ingest(source, &out, &options, &Limits::default(), &quiet)?;
            best = best.min(started.elapsed().as_secs_f64());
            (bytes, frames) = (report.bytes, report.frames);
            let _ = std::fs::remove_dir_all(&out);
        }
        Ok((bytes, frames, best))
    }

    fn numbers(&mut self, source: &Path) -> Result<()> {
        let names = streams(source, |kind| matches!(kind, Kind::Scalar | Kind::Vector))?;
        let threads = cpu_threads();
        for (workers, name) in [(1, "numbers_1_worker"), (threads, "numbers_all_workers")] {
            if !names.is_empty() && (workers > 1 || name == "numbers_1_worker") {
                let (bytes, _, seconds) = self.best(source, &names, workers)?;
                let rate = bytes as f64 / seconds / workers as f64;
                let who = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers, per core") };
                let target = (bytes >= LEAST_BYTES).then_some(Target::AtLeast(NUMBERS_TARGET));
                self.rows.push(Row::new(name, format!("numbers, {who}"), rate, Unit::BytesPerSecond, target));
            }
            self.steps.step(1);
        }
        if names.is_empty() {
            self.notes.push("There are no streams of numbers.".to_owned());
        }
        Ok(())
    }

    /// Beside ffmpeg, which decodes the same files and throws the pictures away.
    fn video(&mut self, source: &Path) -> Result<()> {
        let names = streams(source, |kind| kind == Kind::Video)?;
        let files = videos(source);
        let ffmpeg = Ffmpeg::find();
        let (Ok(ffmpeg), false) = (ffmpeg, names.is_empty() || files.is_empty()) else {
            self.notes.push("Video was not measured: there is none, or no ffmpeg.".to_owned());
            self.steps.step(2);
            return Ok(());
        };
        let threads = cpu_threads();
        let mut best = [f64::INFINITY; 2];
        // What ffmpeg itself needs to encode is shown beside, since a null output is no encoder's measure.
        for (best, codec) in best.iter_mut().zip(["wrapped_avframe", "mjpeg"]) {
            for _ in 0..PASSES {
                self.steps.go_on()?;
                let started = Instant::now();
                for file in &files {
                    decode_to_nothing(ffmpeg.program(), file, threads, codec)?;
                }
                *best = best.min(started.elapsed().as_secs_f64());
            }
        }
        let [null, mjpeg] = best;
        self.steps.step(1);
        let (_, frames, seconds) = self.best(source, &names, threads)?;
        let cameras = names.len() as f64;
        let rate = |seconds: f64| frames as f64 * cameras / seconds;
        let row = |name: &str, what: &str, value: f64| Row::new(name, what, value, Unit::PerSecond, None);
        self.rows.push(row("video_ffmpeg_null", "frames, ffmpeg -f null", rate(null)));
        self.rows.push(row("video_ffmpeg_mjpeg", "frames, ffmpeg to MJPEG", rate(mjpeg)));
        self.rows.push(row("video_ingest", "frames, ingest as JPEG", rate(seconds)));
        let target = (frames >= LEAST_FRAMES).then_some(Target::AtLeast(VIDEO_TARGET));
        self.rows.push(Row::new("video_share", "  of ffmpeg's speed", null / seconds, Unit::Share, target));
        self.steps.step(1);
        Ok(())
    }
}

/// The names of a dataset's streams of some kind.
fn streams(source: &Path, wanted: impl Fn(Kind) -> bool) -> Result<Vec<String>> {
    let dataset = Dataset::open(source, &Limits::default())?;
    let names = |stream: &&StreamInfo| wanted(stream.kind) && stream.name != "task_index";
    let has_samples =
        |name: &String| dataset.stream(name).is_ok_and(|at| !dataset.is_empty() && dataset.read(0, &[at]).is_ok());
    Ok(dataset.streams().iter().filter(names).map(|stream| stream.name.clone()).filter(has_samples).collect())
}

/// All video files of a dataset.
fn videos(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.join("videos")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "mp4") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn decode_to_nothing(program: &Path, file: &Path, threads: usize, codec: &str) -> Result<()> {
    let mut command = Command::new(program);
    let threads = threads.to_string();
    command.args(["-nostdin", "-v", "error", "-threads", &threads, "-i"]).arg(file);
    // The best quality that it has by default.
    command
        .args(["-an", "-c:v", codec, "-threads", &threads, "-q:v", "2", "-f", "null", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let failed = || Error::new(ErrorKind::FileError, "ffmpeg cannot decode the video").path(file);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(failed()),
        Err(error) => Err(failed().caused_by(error)),
    }
}
