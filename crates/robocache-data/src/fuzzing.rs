//! Entry points for fuzz targets and for tests on hostile files. Not part of the API.
//!
//! Every outcome is fine but a panic, an abort, two readers of ours that disagree, and an error that
//! blames the caller. Those that are given whole files tell whether all was read.

#![expect(clippy::panic, reason = "this is how a fuzz target reports")]

use std::panic::{set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use robocache::{Context, ErrorKind, Result};

use crate::cache::{self, Images, IngestOptions};
use crate::image::{Pixels, decode_image, image_header};
use crate::limits::{guarded, is_guarded};
use crate::{Dataset, Limits, Progress, RecordedClock, RecordedEpisodes, Recording, Values};

/// Small, so that a file that exceeds them is soon found.
fn small() -> Limits {
    Limits { max_alloc: 16 << 20, max_metadata: 1 << 20, max_pixels: 1 << 20, ..Limits::default() }
}

fn report<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => panic!("{error}"),
        outcome => outcome.map(|_| ()),
    }
}

/// Ends the process where our own code panics in `guarded`, which would take it for a third-party reader.
fn own_panics_abort() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Its hook is silent in `guarded`; this one must come first.
        let _ = guarded(Path::new(""), "nothing", || Ok(()));
        let earlier = take_hook();
        set_hook(Box::new(move |panic| {
            let own = panic.location().is_some_and(|place| place.file().contains("crates/robocache"));
            if own && is_guarded() {
                eprintln!("in a guarded reader: {panic}");
                std::process::abort();
            }
            earlier(panic);
        }));
    });
}

/// A path that no other file has. Removed when dropped, with what is in it.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("robocache-fuzz-{}-{number}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = if self.0.is_dir() { std::fs::remove_dir_all(&self.0) } else { std::fs::remove_file(&self.0) };
    }
}

/// Looks at a file with these bytes.
fn with_file<T>(bytes: &[u8], look: impl FnOnce(&Path) -> Result<T>) -> Result<()> {
    own_panics_abort();
    let path = Temporary::new();
    std::fs::write(&path.0, bytes).map_err(|error| cannot(&path.0, error))?;
    report(look(&path.0))
}

/// Opens a parquet file and reads all its columns; returns how many there are.
pub fn parquet_file(path: &Path, limits: &Limits) -> Result<usize> {
    crate::parquet::examine(path, limits)
}

/// Arbitrary bytes as a parquet file.
pub fn parquet(bytes: &[u8]) -> Result<()> {
    with_file(bytes, |path| parquet_file(path, &small()))
}

/// Arbitrary bytes as the `info.json` of a LeRobot dataset: a dataset without episodes, or an error.
pub fn info_json(bytes: &[u8]) {
    crate::lerobot::examine_info(bytes);
}

/// Arbitrary bytes as the lines of a LeRobot dataset's `episodes.jsonl` and `episodes_stats.jsonl`.
pub fn jsonl(bytes: &[u8]) {
    crate::lerobot::examine_lines(bytes);
}

/// Arbitrary bytes as a JPEG or PNG image, which has the size that its header says.
pub fn image(bytes: &[u8]) -> Result<()> {
    own_panics_abort();
    let path = Path::new("image");
    let header = image_header(path, bytes, &small());
    let image = match decode_image(path, bytes, &small()) {
        Err(error) => return report(Err::<(), _>(error)),
        Ok(image) => image,
    };
    let (values, bits) = match &image.pixels {
        Pixels::U8(values) => (values.len(), 8),
        Pixels::U16(values) => (values.len(), 16),
    };
    let count = image.size.height * image.size.width * image.size.channels;
    if values != count || !header.as_ref().is_ok_and(|header| *header == (image.size, bits)) {
        panic!("the header says {header:?}, the image has {values} values of {bits} bits and {:?}", image.size);
    }
    Ok(())
}

/// Arbitrary bytes as a URDF: a robot whose links can all be found, or an error.
pub fn urdf(bytes: &[u8]) -> Result<()> {
    own_panics_abort();
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    report(crate::parse_urdf(text, None, None, None).and_then(|robot| {
        let links: Vec<_> = robot.link_names().take(16).collect();
        robot.chain(Some(&links))
    }))
}

/// Arbitrary bytes as an MP4 file, of which the index is read.
pub fn video(bytes: &[u8]) -> Result<()> {
    with_file(bytes, |path| crate::video::examine(path, &small()))
}

/// Arbitrary bytes as an MCAP recording: all of it is checked and read, its pictures too.
pub fn mcap(bytes: &[u8]) -> Result<()> {
    with_file(bytes, |path| {
        let recording = Recording { clock: RecordedClock::Log, episodes: RecordedEpisodes::Gap(1.0) };
        report(Dataset::open_recording(path, &recording, &small()))?;
        let (_, dataset) = Dataset::open_and_check(path, &Recording::default(), &small(), &Progress::default())?;
        let Some(dataset) = dataset else { return Ok(()) };
        let read = |at: usize, stream: usize| {
            for samples in dataset.read(at, &[stream])? {
                if let Values::Frames(frames) = &samples.values {
                    frames.for_each(0..frames.len().min(8), &Context::default(), &mut |_, _| Ok(()))?;
                }
            }
            Ok(())
        };
        let all = (0..dataset.len().min(8)).flat_map(|at| (0..dataset.streams().len()).map(move |stream| (at, stream)));
        // All of them, whatever the first says.
        all.map(|(at, stream)| report(read(at, stream))).fold(Ok(()), Result::and)
    })
}

/// Arbitrary bytes as a stream's file of a cache, with checksums that fit.
pub fn shard(bytes: &[u8]) -> Result<()> {
    with_file(bytes, |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        cache::examine::shard(path.parent().unwrap_or(path), &name, bytes)
    })
}

/// Arbitrary bytes as the table of episodes of a cache, with checksums that fit.
pub fn index(bytes: &[u8]) -> Result<()> {
    with_file(bytes, |path| cache::examine::index(path, bytes))
}

/// Files of the sample datasets that [`Samples::dataset`] replaces, by the first byte of its input.
pub const REPLACED: [&str; 11] = [
    "lerobot_v21/meta/info.json",
    "lerobot_v21/meta/episodes.jsonl",
    "lerobot_v21/meta/tasks.jsonl",
    "lerobot_v21/meta/episodes_stats.jsonl",
    "lerobot_v21/meta/modality.json",
    "lerobot_v21/data/chunk-000/episode_000000.parquet",
    "lerobot_v30/meta/info.json",
    "lerobot_v30/meta/tasks.parquet",
    "lerobot_v30/meta/stats.json",
    "lerobot_v30/meta/episodes/chunk-000/file-000.parquet",
    "lerobot_v30/data/chunk-000/file-001.parquet",
];

/// Copies of the sample datasets and caches of one of them, in which one file at a time is replaced.
#[derive(Debug)]
pub struct Samples(Temporary);

impl Samples {
    /// From `testdata`.
    pub fn new(testdata: &Path) -> Result<Self> {
        own_panics_abort();
        let root = Temporary::new();
        for name in ["lerobot_v21", "lerobot_v30"] {
            copy(&testdata.join(name), &root.0.join(name))?;
        }
        let options = IngestOptions { images: Images::Skip, unit_frames: Some(1), ..IngestOptions::default() };
        let whole = root.0.join("whole");
        cache::ingest(&root.0.join("lerobot_v21"), &whole, &options, &Limits::default(), &Progress::default())?;
        // As an ingest leaves it that was cut off before its end: opened by its plan and its units.
        copy(&whole, &root.0.join("open"))?;
        let manifest = root.0.join("open/manifest.json");
        std::fs::remove_file(&manifest).map_err(|error| cannot(&manifest, error))?;
        Ok(Self(root))
    }

    /// Arbitrary bytes as one of the files in [`REPLACED`], which the first byte selects: all of the dataset
    /// is checked and read, but no picture.
    pub fn dataset(&self, bytes: &[u8]) -> Result<()> {
        let Some((&first, bytes)) = bytes.split_first() else { return Ok(()) };
        let Some(name) = REPLACED.get(usize::from(first) % REPLACED.len()) else { return Ok(()) };
        let root = self.0.0.join(name.split('/').next().unwrap_or_default());
        replaced(&self.0.0.join(name), bytes, || {
            let (_, dataset) = Dataset::open_and_check(&root, &Recording::default(), &small(), &Progress::default())?;
            let Some(dataset) = dataset else {
                return Dataset::open(&root, &small()).map(|_| ());
            };
            dataset.fingerprint()?;
            let streams: Vec<usize> = (0..dataset.streams().len()).collect();
            let read = |at| report(dataset.recorded_times(at)).and(report(dataset.read(at, &streams)));
            // All of them, whatever the first says.
            (0..dataset.len().min(8)).map(read).fold(Ok(()), Result::and)
        })
    }

    /// Arbitrary bytes as a JSON file of a cache, all but its checksum: the cache is opened and read.
    pub fn cache_json(&self, bytes: &[u8]) -> Result<()> {
        let (whole, open) = (self.0.0.join("whole"), self.0.0.join("open"));
        let (text, path) = cache::examine::forged(&whole, &open, bytes)?;
        let root = if path.starts_with(&whole) { whole } else { open };
        replaced(&path, &text, || cache::examine::cache(&root))
    }
}

/// Looks at a file with other bytes.
fn replaced<T>(path: &Path, bytes: &[u8], look: impl FnOnce() -> Result<T>) -> Result<()> {
    let kept = std::fs::read(path).ok();
    std::fs::write(path, bytes).map_err(|error| cannot(path, error))?;
    let outcome = report(look());
    let _ = match kept {
        Some(kept) => std::fs::write(path, kept),
        None => std::fs::remove_file(path),
    };
    outcome
}

fn cannot(path: &Path, error: std::io::Error) -> robocache::Error {
    crate::limits::file_error(path, "cannot prepare", error)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|error| cannot(to, error))?;
    for entry in std::fs::read_dir(from).map_err(|error| cannot(from, error))?.flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to)?;
        } else {
            std::fs::copy(&path, &to).map_err(|error| cannot(&path, error))?;
        }
    }
    Ok(())
}
