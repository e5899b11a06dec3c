//! How fast a cache becomes batches.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use robocache::{Error, ErrorKind, Result, cpu_threads, shown_path};
use robocache_data::cache::{Cache, CachedStream, Encoding};
use robocache_data::loader::{Batch, Column, Order, Prefetch, WindowOptions, Windows, Work};
use robocache_data::{Kind, Progress};

use super::memory;
use super::report::{Measured, Row, Target, Unit};
use super::steps::Steps;
use crate::output::plural;

/// As a chunk of actions is predicted: this many steps from the anchor on.
const CHUNK: usize = 16;
const BATCHES: [u64; 2] = [64, 1024];
const AHEAD: usize = 4;
const TIME: Duration = Duration::from_secs(2);
/// On two cores, for numbers; cameras have no target of their own.
const WINDOWS_TARGET: f64 = 500e3;
const FIRST_TARGET: f64 = 0.5;
const MEMORY_TARGET: f64 = 300e6;

/// Measures with a cache.
pub(super) fn given(path: &Path, progress: &Progress<'_>) -> Result<Measured> {
    let mut steps = Steps::new(progress, 2 * BATCHES.len());
    let cache = Arc::new(Cache::open(path)?);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let has_pictures = cache.streams().iter().any(is_picture);
    for (name, label, pictures) in [("numbers", "numbers", false), ("all", "with pictures", true)] {
        for size in BATCHES {
            if pictures && !has_pictures {
                continue;
            }
            let what = format!("{label}, batches of {size}");
            let seen = run(path, pictures, size, progress)?;
            let target = (!pictures).then_some(Target::AtLeast(WINDOWS_TARGET));
            let named = |end: &str| format!("{name}_{size}_{end}");
            rows.push(Row::new(&named("windows"), format!("windows, {what}"), seen.windows, Unit::PerSecond, target));
            rows.push(Row::new(&named("bytes"), "  of batches", seen.bytes, Unit::BytesPerSecond, None));
            let target = Some(Target::Below(FIRST_TARGET));
            rows.push(Row::new(&named("first"), "  until the first batch", seen.first, Unit::Seconds, target));
            match seen.memory {
                Some(memory) => {
                    let target = Some(Target::Below(MEMORY_TARGET));
                    rows.push(Row::new(&named("memory"), "  memory beyond the files", memory, Unit::Bytes, target));
                }
                None => notes.push("This system does not say how much memory was used.".to_owned()),
            }
            steps.step(1);
        }
    }
    if !has_pictures {
        notes.push("There are no pictures.".to_owned());
    }
    notes.dedup();
    let rate = cache.sources().first().and_then(|source| source.rate).unwrap_or(0.0);
    let text = format!(
        "{}: {}, {rate} Hz. States at two frames and actions at {CHUNK}, shuffled, {}.",
        shown_path(path),
        plural(cache.len() as u64, "episode"),
        plural(cpu_threads() as u64, "thread"),
    );
    Ok(Measured::new("loader", text, rows, notes))
}

struct Seen {
    windows: f64,
    bytes: f64,
    first: f64,
    memory: Option<f64>,
}

/// Reads epoch after epoch for a while.
fn run(path: &Path, pictures: bool, size: u64, progress: &Progress<'_>) -> Result<Seen> {
    let started = Instant::now();
    // Opened anew: the first touch of every block verifies it.
    let cache = Arc::new(Cache::open(path)?);
    let options = options(&cache, pictures);
    let windows = Arc::new(Windows::new(cache, &options, &|| false)?);
    let order = Arc::new(Order::new(&windows, true, 7, None)?);
    let (mut first, mut begun, mut samples, mut bytes, mut most) = (None, Instant::now(), 0, 0, 0);
    for epoch in 0.. {
        let batches = batches(&windows, &order, epoch, size)?;
        while let Some(batch) = batches.next(progress.interrupted) {
            let batch = batch?;
            if first.is_none() {
                (first, begun) = (Some(started.elapsed()), Instant::now());
                continue;
            }
            samples += batch.tasks.len();
            bytes += size_of_batch(&batch);
            if samples.is_multiple_of(64 * 64) {
                most = most.max(memory::anonymous().unwrap_or(0));
            }
            if begun.elapsed() >= TIME {
                let seconds = begun.elapsed().as_secs_f64();
                return Ok(Seen {
                    windows: samples as f64 / seconds,
                    bytes: bytes as f64 / seconds,
                    first: first.unwrap_or_default().as_secs_f64(),
                    memory: memory::anonymous().map(|now| most.max(now) as f64),
                });
            }
        }
        if (progress.interrupted)() {
            break;
        }
    }
    Err(Error::new(ErrorKind::Interrupted, "interrupted"))
}

fn batches(windows: &Arc<Windows>, order: &Arc<Order>, epoch: u64, size: u64) -> Result<Prefetch<Batch>> {
    let (windows, order) = (Arc::clone(windows), Arc::clone(order));
    Prefetch::new(cpu_threads(), AHEAD, move |number, stop| {
        let start = number.checked_mul(size).filter(|&start| start < order.len())?;
        let epoch = order.epoch(epoch);
        let samples = (start..order.len().min(start + size)).map(|position| windows.sample(epoch.at(position)));
        let work = Work { stop, threads: 1 };
        Some(samples.collect::<Result<Vec<_>>>().and_then(|samples| windows.batch(&samples, &work)))
    })
}

/// What a policy that predicts chunks of actions asks for.
fn options(cache: &Cache, pictures: bool) -> WindowOptions {
    let rate = cache.sources().first().and_then(|source| source.rate).filter(|rate| *rate > 0.0).unwrap_or(30.0);
    let offsets = |stream: &&CachedStream| match stream.name.starts_with("action") {
        true => (0..CHUNK).map(|step| step as f64 / rate).collect(),
        false => vec![-1.0 / rate, 0.0],
    };
    let is_low = |stream: &&CachedStream| {
        matches!(stream.kind, Kind::Vector) && (stream.name.starts_with("action") || stream.name.ends_with("state"))
    };
    let low = cache.streams().iter().filter(is_low).map(|stream| (stream.name.clone(), offsets(&stream)));
    let shown = cache.streams().iter().filter(|stream| pictures && is_picture(stream));
    WindowOptions {
        delta_timestamps: low.collect(),
        others: Some(shown.map(|stream| stream.name.clone()).collect()),
        ..WindowOptions::default()
    }
}

fn is_picture(stream: &CachedStream) -> bool {
    matches!(stream.kind, Kind::Image | Kind::Video) && stream.encoding != Encoding::Text
}

fn size_of_batch(batch: &Batch) -> usize {
    let size = |(_, column): &(String, Column)| match column {
        Column::Numbers(tensor) => tensor.shape().iter().product::<usize>() * tensor.dtype().size(),
        _ => 0,
    };
    batch.columns.iter().map(size).sum()
}
