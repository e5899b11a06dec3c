//! How fast datasets open and their streams are read.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use robocache::{Context, Error, ErrorKind, Result, cpu_threads, shown_path};
use robocache_data::{Dataset, Ffmpeg, Kind, Limits, Progress, StreamInfo, Values};

use super::recording;
use super::report::{Measured, Row, Target, Unit};
use super::steps::Steps;
use super::synthetic::{self, Groups, JOINTS, Plan};
use super::{cpu_time, memory};
use crate::output::{count, plural, printable};

const MANY: usize = 100_000;
/// To open: there is little behind the metadata.
const TO_OPEN: Plan =
    Plan { episodes: MANY, frames: 2, episodes_per_file: 1000, groups: Groups::Large, metadata: Groups::Large };
const TO_READ: Plan =
    Plan { episodes: 1000, frames: 400, episodes_per_file: 500, groups: Groups::Large, metadata: Groups::Large };
/// What is made for it: a name of the dataset, and of who writes such ones.
const MADE: [(Groups, &str, &str); 2] =
    [(Groups::Small, "recorded", "as recorded"), (Groups::Large, "converted", "as converted")];
const OPEN_TARGET: f64 = 1.0;
const MEMORY_TARGET: f64 = 300e6;
/// Of output, per core.
const COLUMNS_TARGET: f64 = 1e9;

/// The best of so many counts, for so long at least.
const PASSES: usize = 5;
const PASS_TIME: Duration = Duration::from_millis(1500);
/// What one pass reads at most: more says nothing more.
const PASS_BYTES: usize = 256 << 20;
/// In less the work per episode is all that counts.
const LEAST_BYTES: usize = 8 << 20;
/// With less of the cores' time the numbers are not about reading alone.
const QUIET: f64 = 0.9;
const VIDEO_TIME: Duration = Duration::from_secs(3);

/// Collects rows, and stops between them.
struct Bench<'a> {
    steps: Steps<'a>,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// Shares of the cores' time that the readers had, where it was not all.
    busy: Vec<String>,
}

/// Measures with datasets that it makes in `folder`.
pub(super) fn made(folder: &Path, progress: &Progress<'_>) -> Result<Measured> {
    let mut bench = Bench::new(progress, 12);
    for (groups, name, label) in MADE {
        let path = folder.join("many");
        bench.write(&path, &Plan { metadata: groups, ..TO_OPEN })?;
        bench.open(&path, name, label)?;
        // The disk is not needed twice.
        let _ = std::fs::remove_dir_all(&path);
    }
    for (groups, name, label) in MADE {
        let path = folder.join(name);
        bench.write(&path, &Plan { groups, ..TO_READ })?;
        bench.columns(&Dataset::open(&path, &Limits::default())?, name, label)?;
    }
    recording::measure(&mut bench.rows, &mut bench.steps, folder)?;
    Ok(bench.finish(format!(
        "Datasets of LeRobot v3.0 made for this: {} episodes to open; {} episodes of {} frames to read, two streams \
         of {JOINTS} float32 each, snappy, from the page cache. As recorded: a row group per episode, and per 10 rows \
         of metadata. As converted: a row group per file, and per 1,000 rows of metadata. An MCAP recording of joint \
         states and wrenches, zstd, its bytes counted before compression.",
        count(MANY as u64),
        count(TO_READ.episodes as u64),
        TO_READ.frames,
    )))
}

/// Measures with a dataset.
pub(super) fn given(path: &Path, progress: &Progress<'_>) -> Result<Measured> {
    let mut bench = Bench::new(progress, 4);
    let dataset = bench.open(path, "given", "")?;
    bench.columns(&dataset, "given", "")?;
    bench.video(&dataset)?;
    let (path, format) = (shown_path(path), dataset.format());
    Ok(bench.finish(format!("{path}: {format}, {}.", plural(dataset.len() as u64, "episode"))))
}

impl<'a> Bench<'a> {
    fn new(progress: &'a Progress<'a>, steps: usize) -> Self {
        Self { steps: Steps::new(progress, steps), rows: Vec::new(), notes: Vec::new(), busy: Vec::new() }
    }

    fn finish(mut self, dataset: String) -> Measured {
        if !self.busy.is_empty() {
            let text = format!(
                "The readers had {} of the cores' time: other programs took it, or threads waited for each other. \
                 Measure again when it is quiet.",
                self.busy.join(", ")
            );
            self.notes.push(text);
        }
        Measured::new("readers", dataset, self.rows, self.notes)
    }

    fn write(&mut self, path: &Path, plan: &Plan) -> Result<()> {
        synthetic::write(path, plan, &|| self.steps.go_on())?;
        self.steps.step(1);
        Ok(())
    }

    /// Opens a dataset several times; the first time may be from the disk and does not count.
    fn open(&mut self, path: &Path, name: &str, label: &str) -> Result<Dataset> {
        let limits = Limits::default();
        memory::forget_peak();
        let mut dataset = Dataset::open(path, &limits)?;
        let peak = memory::peak();
        let mut seconds = Vec::new();
        for _ in 0..PASSES {
            self.steps.go_on()?;
            drop(dataset);
            let started = Instant::now();
            dataset = Dataset::open(path, &limits)?;
            seconds.push(started.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(PASSES / 2).copied().unwrap_or(f64::NAN);
        let what = labelled(&format!("opening {}", plural(dataset.len() as u64, "episode")), label);
        // The targets are for many.
        let target = |target| (dataset.len() >= MANY).then_some(Target::Below(target));
        self.rows.push(Row::new(&format!("{name}_open"), what, median, Unit::Seconds, target(OPEN_TARGET)));
        match peak {
            Some(peak) => {
                let target = target(MEMORY_TARGET);
                let name = format!("{name}_open_peak_memory");
                self.rows.push(Row::new(&name, "  peak memory", peak as f64, Unit::Bytes, target));
            }
            None => self.notes.push("This system does not say how much memory was used.".to_owned()),
        }
        self.steps.step(1);
        Ok(dataset)
    }

    /// Reads all numbers of a dataset, on one thread and on all.
    fn columns(&mut self, dataset: &Dataset, name: &str, label: &str) -> Result<()> {
        let low = |(_, stream): &(usize, &StreamInfo)| matches!(stream.kind, Kind::Scalar | Kind::Vector);
        let mut streams: Vec<usize> = dataset.streams().iter().enumerate().filter(low).map(|(at, _)| at).collect();
        // In the generated datasets `task_index` is there too, which nobody trains on.
        streams.retain(|&at| dataset.streams().get(at).is_some_and(|stream| stream.name != "task_index"));
        if dataset.is_empty() || streams.is_empty() {
            self.notes.push("There are no streams of numbers to read.".to_owned());
            self.steps.step(2);
            return Ok(());
        }
        let places = enough(dataset, &streams)?;
        if bytes_of(dataset, &streams, 0..places)? < LEAST_BYTES {
            self.notes.push("The columns are too small to be held to a target.".to_owned());
        }
        let threads = cpu_threads();
        let what = labelled("columns", label);
        for (count, suffix) in [(1, "1_thread"), (threads, "all_threads")] {
            if count == 1 && suffix == "all_threads" {
                // It is the same.
                self.steps.step(1);
                continue;
            }
            let pass = self.best_pass(dataset, &streams, places, count)?;
            let per_core = pass.bytes as f64 / pass.seconds / count as f64;
            let threads = if count == 1 { "1 thread".to_owned() } else { format!("{count} threads, per core") };
            let target = (pass.bytes >= LEAST_BYTES).then_some(Target::AtLeast(COLUMNS_TARGET));
            let rate_name = format!("{name}_columns_{suffix}");
            let rate = Row::new(&rate_name, format!("{what}, {threads}"), per_core, Unit::BytesPerSecond, target);
            let episodes = pass.episodes as f64 / pass.seconds;
            let name = format!("{name}_episodes_{suffix}");
            self.rows.push(rate);
            self.rows.push(Row::new(&name, "  episodes", episodes, Unit::PerSecond, None));
            self.steps.step(1);
        }
        Ok(())
    }

    fn best_pass(&mut self, dataset: &Dataset, streams: &[usize], places: usize, threads: usize) -> Result<Pass> {
        // The first brings the files into the page cache.
        let mut best = self.pass(dataset, streams, places, threads)?;
        let (started, cpu) = (Instant::now(), cpu_time::of_process());
        for pass in 0.. {
            if pass >= PASSES && started.elapsed() >= PASS_TIME {
                break;
            }
            let next = self.pass(dataset, streams, places, threads)?;
            if next.seconds < best.seconds {
                best = next;
            }
        }
        let cpu = cpu_time::of_process().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        let share = cpu.map(|cpu| cpu.as_secs_f64() / started.elapsed().as_secs_f64() / threads as f64);
        if let Some(share) = share.filter(|share| *share < QUIET) {
            let who = if threads == 1 { "one thread".to_owned() } else { format!("{threads} threads") };
            self.busy.push(format!("{:.0} % ({who})", share * 100.0));
        }
        Ok(best)
    }

    /// Reads the first episodes. Each thread reads consecutive ones, as an ingest does: neighbours
    /// share pages, and threads that unpack the same page wait for each other.
    fn pass(&self, dataset: &Dataset, streams: &[usize], places: usize, threads: usize) -> Result<Pass> {
        let bytes = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let interrupted = self.steps.progress.interrupted;
        let (bytes, stop, failure) = (&bytes, &stop, &failure);
        let work = |thread: usize| {
            for at in places * thread / threads..places * (thread + 1) / threads {
                if stop.load(Ordering::Relaxed) || interrupted() {
                    return;
                }
                match dataset.read(at, streams) {
                    Ok(samples) => {
                        let size = samples.iter().map(|samples| size(&samples.values)).sum();
                        bytes.fetch_add(size, Ordering::Relaxed);
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error);
                        }
                    }
                }
            }
        };
        let started = Instant::now();
        if threads == 1 {
            work(0);
        } else {
            std::thread::scope(|scope| (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread)))));
        }
        let seconds = started.elapsed().as_secs_f64();
        self.steps.go_on()?;
        match failure.lock().map(|mut failure| failure.take()) {
            Ok(None) => Ok(Pass { seconds, bytes: bytes.load(Ordering::Relaxed), episodes: places }),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(Error::new(ErrorKind::Unsupported, "a reading thread ended")),
        }
    }

    /// Decodes pictures of the first camera whose video can be read.
    fn video(&mut self, dataset: &Dataset) -> Result<()> {
        let mut cameras = (0..dataset.streams().len()).filter(|&at| {
            let is_video = dataset.streams().get(at).is_some_and(|stream| stream.kind == Kind::Video);
            is_video && !dataset.is_empty() && dataset.read(0, &[at]).is_ok()
        });
        let stream = cameras.next();
        let Some(stream) = stream else {
            self.notes.push("There is no video to decode.".to_owned());
            self.steps.step(1);
            return Ok(());
        };
        if let Err(error) = Ffmpeg::find() {
            self.notes.push(format!("Video was not measured: {error}."));
            self.steps.step(1);
            return Ok(());
        }
        let interrupt = || (self.steps.progress.interrupted)();
        let context = Context { interrupt: Some(&interrupt), ..Context::default() };
        let (started, mut frames, mut bytes, mut first) = (Instant::now(), 0u64, 0, None);
        for at in 0..dataset.len() {
            for samples in dataset.read(at, &[stream])? {
                let Values::Frames(pictures) = &samples.values else { continue };
                pictures.for_each(0..pictures.len(), &context, &mut |_, picture| {
                    first.get_or_insert_with(|| started.elapsed());
                    (frames, bytes) = (frames + 1, bytes + picture.len());
                    Ok(())
                })?;
            }
            if started.elapsed() > VIDEO_TIME {
                break;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let name = dataset.streams().get(stream).map_or("", |stream| stream.name.as_str());
        let what = format!("video frames of {}", printable(name));
        self.rows.push(Row::new("given_video_frames", what, frames as f64 / seconds, Unit::PerSecond, None));
        self.rows.push(Row::new("given_video_bytes", "  pixels", bytes as f64 / seconds, Unit::BytesPerSecond, None));
        if let Some(first) = first {
            self.rows.push(Row::new(
                "given_video_first",
                "  until the first",
                first.as_secs_f64(),
                Unit::Seconds,
                None,
            ));
        }
        self.steps.step(1);
        Ok(())
    }
}

/// With who wrote it.
fn labelled(what: &str, label: &str) -> String {
    if label.is_empty() { what.to_owned() } else { format!("{what}, {label}") }
}

/// What one pass did.
#[derive(Debug, Clone, Copy)]
struct Pass {
    seconds: f64,
    bytes: usize,
    episodes: usize,
}

/// How many episodes, from the first on, make a pass.
fn enough(dataset: &Dataset, streams: &[usize]) -> Result<usize> {
    let mut bytes = 0usize;
    for at in 0..dataset.len() {
        bytes = bytes.saturating_add(bytes_of(dataset, streams, at..at + 1)?);
        if bytes >= PASS_BYTES {
            return Ok(at + 1);
        }
    }
    Ok(dataset.len())
}

/// What the metadata says of the size of some streams.
fn bytes_of(dataset: &Dataset, streams: &[usize], episodes: Range<usize>) -> Result<usize> {
    let streams = streams.iter().filter_map(|&at| dataset.streams().get(at));
    let row: usize = streams.map(|stream| stream.width() * stream.dtype.map_or(0, |dtype| dtype.size())).sum();
    episodes.into_iter().try_fold(0usize, |sum, at| {
        let length = usize::try_from(dataset.episode(at)?.length).unwrap_or(usize::MAX);
        Ok(sum.saturating_add(length.saturating_mul(row)))
    })
}

fn size(values: &Values) -> usize {
    match values {
        Values::Numbers(numbers) => numbers.view().shape().iter().product::<usize>() * numbers.dtype().size(),
        _ => 0,
    }
}
