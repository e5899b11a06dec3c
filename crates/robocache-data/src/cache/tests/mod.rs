//! Safety of the cache: kills, faults, power loss, damage, several processes.
//!
//! The numbers in the names are those of docs/faults.md. Of the rows about the cache, 75 (the clock jumps
//! back) and 82 (eviction) have nothing to test: nothing is removed by age or by use, and no stamp of the
//! clock is compared with another.

mod damage;
mod errno;
mod faults;
mod gone;
mod hostile;
mod power;
mod process;
mod speed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use robocache::{Context, ErrorKind, Result, Tensor};

use super::fs::Fs;
use super::ingest::ingest_on;
use super::layout::{MANIFEST, PLAN};
use super::{Cache, Encoding, Images, IngestOptions, IngestReport, verify};
use crate::dataset::Dataset;
use crate::findings::Progress;
use crate::model::Values;
use crate::{EpisodeInfo, Limits};

/// A dataset of few episodes, part of the tree.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/lerobot_v21")
}

/// One unit per episode, one after the other, so that operations come in the same order every time.
fn options() -> IngestOptions {
    IngestOptions { images: Images::Skip, unit_frames: Some(1), workers: Some(1), ..IngestOptions::default() }
}

fn ingest_with(fs: &dyn Fs, source: &Path, out: &Path) -> Result<IngestReport> {
    ingest_on(fs, source, out, &options(), &Limits::default(), &Progress::default())
}

/// A new folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-cache-safety-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Where a cache can be made; nothing is there.
    fn out(&self) -> PathBuf {
        self.0.join("out")
    }

    fn clear(&self) {
        let _ = std::fs::remove_dir_all(self.out());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How often a long loop runs, scaled by `ROBOCACHE_TEST_SCALE`.
fn scaled(count: usize) -> usize {
    let scale = std::env::var("ROBOCACHE_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    ((count as f64 * scale) as usize).max(1)
}

/// Repeatable disorder.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }
}

/// A stream of an episode as the reader gives it.
#[derive(Debug, PartialEq)]
struct Recorded {
    times: Vec<i64>,
    /// The bytes of all numbers, or the text of each sample.
    values: Vec<Vec<u8>>,
}

/// What a cache may say, kept apart from it: the reader's values.
struct Ledger {
    episodes: BTreeMap<u64, (EpisodeInfo, BTreeMap<String, Recorded>)>,
}

/// How many streams of episodes were right, and how many were refused with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    right: usize,
    refused: usize,
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let view = tensor.view();
    // SAFETY: a contiguous host tensor.
    unsafe { std::slice::from_raw_parts(view.data(), view.layout().count() * view.dtype().size()) }.to_vec()
}

fn read(cache: &Cache, at: usize, place: usize) -> Result<Recorded> {
    let times = cache.times(at, place)?;
    let values = match cache.streams()[place].encoding {
        Encoding::Raw => vec![bytes(&cache.numbers(at, place)?)],
        _ => (0..times.len()).map(|sample| Ok(cache.item(at, place, sample)?.to_vec())).collect::<Result<_>>()?,
    };
    Ok(Recorded { times, values })
}

impl Ledger {
    fn of(source: &Path) -> Self {
        let dataset = Dataset::open(source, &Limits::default()).unwrap();
        let mut episodes = BTreeMap::new();
        for at in 0..dataset.len() {
            let info = dataset.episode(at).unwrap();
            let mut streams = BTreeMap::new();
            for (place, stream) in dataset.streams().iter().enumerate() {
                let samples = dataset.read(at, &[place]).unwrap().remove(0);
                let values = match &samples.values {
                    Values::Frames(_) => continue,
                    Values::Text(texts) => texts.iter().map(|text| text.clone().into_bytes()).collect(),
                    Values::Numbers(_) => vec![bytes(&samples.numbers(&Context::default()).unwrap())],
                };
                streams.insert(stream.name.clone(), Recorded { times: samples.times.to_vec(), values });
            }
            assert!(streams.len() > 2);
            episodes.insert(info.index, (info, streams));
        }
        Self { episodes }
    }

    fn len(&self) -> usize {
        self.episodes.len()
    }

    /// Reads all that a cache lists; what is not refused must be right.
    fn compare(&self, cache: &Cache) -> Seen {
        let mut seen = Seen::default();
        let mut indices = Vec::new();
        for at in 0..cache.len() {
            let episode = cache.episode(at).unwrap();
            let (info, streams) = &self.episodes[&episode.index];
            assert_eq!((episode.length, &episode.tasks), (info.length, &info.tasks));
            assert_eq!((episode.duration, episode.source), (info.duration, 0));
            assert_eq!(cache.streams().len(), streams.len());
            for (place, stream) in cache.streams().iter().enumerate() {
                match read(cache, at, place) {
                    Ok(recorded) => {
                        assert!(recorded == streams[&stream.name], "{} of {} is wrong", stream.name, episode.index);
                        seen.right += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::CorruptData | ErrorKind::FileError), "{error}");
                        assert!(error.file().is_some(), "{error}");
                        seen.refused += 1;
                    }
                }
            }
            indices.push(episode.index);
        }
        let listed = indices.len();
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(indices.len(), listed, "an episode is there twice");
        seen
    }

    /// A cache that nobody damaged: absent or right. How many episodes it has.
    fn judge(&self, out: &Path) -> usize {
        // Looked for first: another process may be making it.
        let must_open = out.join(PLAN).exists() || out.join(MANIFEST).exists();
        let cache = match Cache::open(out) {
            Ok(cache) => cache,
            Err(error) => {
                let is_absent = error.kind() == ErrorKind::FileError && error.to_string().contains("no cache");
                assert!(is_absent && !must_open, "{error}");
                return 0;
            }
        };
        assert_eq!(self.compare(&cache).refused, 0);
        let report = verify(out, &Progress::default()).unwrap();
        assert_eq!(report.damage, [], "nobody damaged it");
        cache.len()
    }

    /// A cache whose ingest ended well.
    fn judge_complete(&self, out: &Path) {
        assert_eq!(self.judge(out), self.len(), "{:?}", Cache::open(out).unwrap().skipped());
        assert!(Cache::open(out).unwrap().is_complete());
        let units = std::fs::read_dir(out.join("shards")).unwrap().flatten();
        let units = units.filter(|entry| entry.file_name().to_string_lossy().starts_with("unit-")).count();
        assert_eq!(units, self.len());
    }
}

/// All files under a folder, by their path in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&file, &target).unwrap();
    }
}
