//! From a dataset to a cache: planned, done by all cores, put together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use robocache::{Error, ErrorKind, Result};

use super::done::{read_done, read_planned, unit_folder};
use super::fs::{Folder, Fs, Lock, Os, TEMPORARY};
use super::index::Index;
use super::layout::{
    CachedSource, CachedStream, FORMAT, MANIFEST, PLAN, Plan, SHARDS, Skipped, UNIT, Unit, UnitManifest, VERSION,
    to_json,
};
use super::manifest::{DoneUnit, Manifest};
use super::plan::{IngestOptions, has_changed};
use super::stats::{StreamStats, Summary};
use super::unit::remove_unit;
use super::work::Work;
use crate::Limits;
use crate::check::work::all;
use crate::dataset::Dataset;
use crate::files::{ensure_path, is_lasting, list, look};
use crate::findings::Progress;
use crate::limits::corrupt;

/// What an ingest did.
#[derive(Debug, Clone, PartialEq)]
pub struct IngestReport {
    /// Episodes in the cache now.
    pub episodes: usize,
    /// Episodes that could not be taken.
    pub skipped: Vec<Skipped>,
    /// Units that were done before.
    pub units_before: usize,
    /// Units that were done now.
    pub units_done: usize,
    /// Frames of the episodes that were taken now.
    pub frames: u64,
    /// Bytes of the cache's shards.
    pub bytes: u64,
    /// Streams that a source declares but that cannot be taken: the tag of the source, and the name.
    pub missing: Vec<(String, String)>,
}

impl IngestReport {
    fn of(manifest: &Manifest, units_before: usize, units_done: usize, frames: u64) -> Self {
        let missing = |source: &CachedSource| {
            source.missing.iter().map(|name| (source.tag.clone(), name.clone())).collect::<Vec<_>>()
        };
        Self {
            episodes: manifest.units.iter().fold(0, |all, unit| all.saturating_add(unit.episodes)),
            skipped: manifest.skipped.clone(),
            units_before,
            units_done,
            frames,
            bytes: manifest.units.iter().fold(0, |all, unit| all.saturating_add(unit.bytes)),
            missing: manifest.sources.iter().flat_map(missing).collect(),
        }
    }
}

/// Makes a cache of a dataset, or goes on where an earlier ingest ended.
pub fn ingest(
    source: &Path,
    out: &Path,
    options: &IngestOptions,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<IngestReport> {
    ingest_on(&Os, source, out, options, limits, progress)
}

pub(crate) fn ingest_on(
    fs: &dyn Fs,
    source: &Path,
    out: &Path,
    options: &IngestOptions,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<IngestReport> {
    let source = &canonical(source);
    let dataset = Dataset::open_recording(source, &options.recording, limits)?;
    let _lock = prepare(fs, out)?;
    let (plan, place) = plan_source(fs, &dataset, source, out, options, progress)?;
    let (before, work) = open_units(&plan, out, place)?;
    let done = Done::new(work.iter().fold(0, |all, unit| all.saturating_add(unit.frames)), progress);
    let step = |frames: u64| done.add(frames);
    let runner = Runner { fs, out, plan: &plan, dataset: &dataset, strict: options.strict, step: &step, progress };
    let outcome = runner.run(&work, options.workers);
    if let Err(error) = ensure_unchanged(&plan, place, &dataset) {
        // Which of them have the old content, nobody knows. What cannot be looked at now, the next run looks at.
        if is_lasting(&error) {
            remove_units(fs, out, &work)?;
        }
        return Err(error);
    }
    // What is done is made known also where the rest failed.
    let merged = merge_on(fs, out);
    let frames = outcome?;
    let manifest = merged?;
    Ok(IngestReport::of(&manifest, before, work.len(), frames))
}

/// Takes back units that cannot be trusted.
fn remove_units(fs: &dyn Fs, out: &Path, units: &[Unit]) -> Result<()> {
    let shards = Folder { path: out.join(SHARDS), fs };
    for unit in units.iter().filter(|unit| unit_folder(out, unit).symlink_metadata().is_ok()) {
        remove_unit(fs, &shards, unit)?;
    }
    shards.sync()
}

/// Plans an ingest without doing it; units of earlier sources stay as they are.
pub fn plan(
    source: &Path,
    out: &Path,
    options: &IngestOptions,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<Plan> {
    let source = &canonical(source);
    let dataset = Dataset::open_recording(source, &options.recording, limits)?;
    let _lock = prepare(&Os, out)?;
    Ok(plan_source(&Os, &dataset, source, out, options, progress)?.0)
}

/// Does one unit of a plan, for schedulers; several processes can do different units at once.
pub fn process_unit(
    out: &Path,
    unit: usize,
    strict: bool,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<Vec<Skipped>> {
    process_unit_on(&Os, out, unit, strict, limits, progress)
}

pub(crate) fn process_unit_on(
    fs: &dyn Fs,
    out: &Path,
    unit: usize,
    strict: bool,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<Vec<Skipped>> {
    ensure_path(out, "out")?;
    let plan = Plan::read(&out.join(PLAN))?;
    let unit = plan.units.get(unit).copied();
    let unit =
        unit.ok_or_else(|| Error::invalid("unit", format!("expected 0 to {}", plan.units.len().saturating_sub(1))))?;
    if let Some((manifest, _)) = read_done(&plan, out, &unit)? {
        return Ok(manifest.skipped);
    }
    let source = plan.sources.get(unit.source).ok_or_else(|| corrupt(&out.join(PLAN), "a unit has no source"))?;
    let dataset = Dataset::open_recording(&source.path, &source.recording, limits)?;
    ensure_unchanged(&plan, unit.source, &dataset)?;
    let done = Done::new(unit.frames, progress);
    let work = Work {
        root: out,
        fs,
        plan: &plan,
        source,
        dataset: &dataset,
        strict,
        threads: cores(),
        progress: &|frames| done.add(frames),
        interrupted: progress.interrupted,
    };
    let skipped = work.process(&unit)?.skipped;
    if let Err(error) = ensure_unchanged(&plan, unit.source, &dataset) {
        if is_lasting(&error) {
            remove_units(fs, out, &[unit])?;
        }
        return Err(error);
    }
    Ok(skipped)
}

/// Puts the units that are done together, so that the cache has them.
pub fn merge(out: &Path) -> Result<IngestReport> {
    let _lock = prepare(&Os, out)?;
    let manifest = merge_on(&Os, out)?;
    Ok(IngestReport::of(&manifest, manifest.units.len(), 0, 0))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Frames that are done, those of skipped episodes too, for who watches.
struct Done<'a> {
    frames: AtomicU64,
    total: u64,
    progress: &'a Progress<'a>,
}

impl<'a> Done<'a> {
    fn new(total: u64, progress: &'a Progress<'a>) -> Self {
        let done = Self { frames: AtomicU64::new(0), total, progress };
        done.add(0);
        done
    }

    fn add(&self, frames: u64) {
        // Lengths are the metadata's, which may say anything.
        let add = |so_far: u64| Some(so_far.saturating_add(frames));
        let before = self.frames.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(u64::MAX);
        let count = |frames: u64| usize::try_from(frames).unwrap_or(usize::MAX);
        (self.progress.step)(count(before.saturating_add(frames).min(self.total)), count(self.total));
    }
}

/// Makes the folders and takes the lock.
fn prepare(fs: &dyn Fs, out: &Path) -> Result<Lock> {
    ensure_path(out, "out")?;
    // The plan is looked for last: another process may be making it.
    if look(out)?.is_some() && !is_empty(out)? && look(&out.join(PLAN))?.is_none() {
        let text = "the folder has other files in it; ingest into a new or empty folder";
        return Err(Error::new(ErrorKind::FileError, text).path(out));
    }
    Folder { path: out.to_path_buf(), fs }.create_all()?;
    let lock = Lock::take(fs, out)?;
    Folder { path: out.join(SHARDS), fs }.create_all()?;
    Ok(lock)
}

/// Whether a folder holds nothing, or only what an ingest leaves that was killed in its first moment.
/// Units without a plan are of one that somebody removed.
fn is_empty(out: &Path) -> Result<bool> {
    let only = |folder: &Path, known: &[&str]| -> Result<bool> {
        let is_ours = |name: &str| known.contains(&name) || name.starts_with(TEMPORARY);
        Ok(list(folder)?.iter().all(|(name, _)| name.to_str().is_some_and(is_ours)))
    };
    let shards = out.join(SHARDS);
    Ok(only(out, &["lock", SHARDS])? && (look(&shards)?.is_none() || only(&shards, &[])?))
}

/// One path for one source, however it was written; the reader says what is wrong with it.
fn canonical(source: &Path) -> PathBuf {
    source.canonicalize().unwrap_or_else(|_| source.to_path_buf())
}

/// The plan with this source in it, and the source's number.
fn plan_source(
    fs: &dyn Fs,
    dataset: &Dataset,
    source: &Path,
    out: &Path,
    options: &IngestOptions,
    progress: &Progress<'_>,
) -> Result<(Plan, usize)> {
    let path = out.join(PLAN);
    let mut plan = if look(&path)?.is_some() { Plan::read(&path)? } else { Plan::new() };
    let name = source.file_name().map(|name| name.to_string_lossy().into_owned());
    let tag = options.tag.clone().or(name).unwrap_or_default();
    let fingerprint = dataset.fingerprint()?;
    if let Some(place) = plan.find(source, &fingerprint, &tag)? {
        plan.ensure_same_work(place, dataset, options)?;
        return Ok((plan, place));
    }
    plan.add(dataset, source, fingerprint, tag, options)?;
    let silent = Progress { step: &|_, _| {}, ..*progress };
    plan.add_errors(dataset, &dataset.episode_errors(&silent)?);
    Folder { path: out.to_path_buf(), fs }.commit_file(PLAN, &to_json(&plan)?)?;
    let place = plan.sources.len() - 1;
    Ok((plan, place))
}

/// The source must be what it was when the work was planned.
fn ensure_unchanged(plan: &Plan, source: usize, dataset: &Dataset) -> Result<()> {
    match plan.sources.get(source) {
        Some(source) if source.fingerprint != dataset.fingerprint()? => Err(has_changed(&source.path)),
        _ => Ok(()),
    }
}

/// How many units are done, and those of a source that are not.
fn open_units(plan: &Plan, out: &Path, source: usize) -> Result<(usize, Vec<Unit>)> {
    let (mut done, mut open) = (0, Vec::new());
    for unit in &plan.units {
        match read_done(plan, out, unit)? {
            Some(_) => done += 1,
            None if unit.source == source => open.push(*unit),
            None => {}
        }
    }
    Ok((done, open))
}

struct Runner<'a> {
    fs: &'a dyn Fs,
    out: &'a Path,
    plan: &'a Plan,
    dataset: &'a Dataset,
    strict: bool,
    step: &'a (dyn Fn(u64) + Sync),
    progress: &'a Progress<'a>,
}

impl Runner<'_> {
    /// Does units in threads; the first failure stops all. The frames that were taken.
    fn run(&self, units: &[Unit], workers: Option<usize>) -> Result<u64> {
        let threads = workers.unwrap_or_else(cores);
        let workers = threads.clamp(1, units.len().max(1));
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let taken = AtomicU64::new(0);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let interrupted = || stop.load(Ordering::Relaxed) || (self.progress.interrupted)();
        let work = || {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                if interrupted() {
                    break;
                }
                let done =
                    self.plan.sources.get(unit.source).ok_or_else(|| Error::invalid("plan", "no source")).and_then(
                        |source| {
                            let work = Work {
                                root: self.out,
                                fs: self.fs,
                                plan: self.plan,
                                source,
                                dataset: self.dataset,
                                strict: self.strict,
                                threads: (threads / workers).max(1),
                                progress: self.step,
                                interrupted: &interrupted,
                            };
                            work.process(unit)
                        },
                    );
                match done {
                    Ok(manifest) => {
                        let frames = manifest.episodes.iter().map(|episode| episode.length).sum();
                        taken.fetch_add(frames, Ordering::Relaxed);
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        if let Ok(mut first) = failure.lock() {
                            first.get_or_insert(error);
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        match failure.into_inner().ok().flatten() {
            Some(error) => Err(error),
            None if (self.progress.interrupted)() => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
            None => Ok(taken.into_inner()),
        }
    }
}

/// Writes the manifest and the index of what is done.
pub(super) fn merge_on(fs: &dyn Fs, out: &Path) -> Result<Manifest> {
    let (mut manifest, index) = put_together(out)?;
    let (bytes, sums) = index.to_file()?;
    let folder = Folder { path: out.to_path_buf(), fs };
    // A name of its own: readers of the old manifest keep the old index.
    let sum = sums.iter().fold(0, |all, sum| crc32c::crc32c_append(all, &sum.to_le_bytes()));
    manifest.index = format!("index-{sum:08x}.arrow");
    manifest.index_crc32c = sums;
    folder.commit_file(&manifest.index, &bytes)?;
    // A unit may have its name from a process that was killed before the name was sure to last.
    Folder { path: out.join(SHARDS), fs }.sync()?;
    folder.commit_file(MANIFEST, &to_json(&manifest)?)?;
    Ok(manifest)
}

/// The manifest and the index of the units that are done now.
pub(super) fn put_together(out: &Path) -> Result<(Manifest, Index)> {
    let plan = Plan::read(&out.join(PLAN))?;
    let nobody = Progress::default();
    let read = |at: usize| plan.units.get(at).map_or(Ok(None), |unit| read_planned(&plan, out, unit));
    let read = all(plan.units.len(), &nobody, &read)?;
    let mut units = Vec::new();
    let mut done = Vec::new();
    for (unit, read) in plan.units.iter().zip(read) {
        let Some((manifest, crc32c)) = read else {
            continue;
        };
        done.push(DoneUnit {
            unit: unit.unit,
            episodes: manifest.episodes.len(),
            bytes: manifest.files.iter().fold(0, |all, file| all.saturating_add(file.bytes)),
            crc32c,
        });
        units.push(manifest);
    }
    let stats = all(plan.streams.len(), &nobody, &|at| merged_stats(out, &plan.streams, &units, at))?;
    let names = plan.streams.iter().map(|stream| stream.name.clone());
    let stats = names.zip(stats).filter_map(|(name, stats)| Some((name, stats?)));
    let index = Index::from_units(&plan, &units)?;
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        complete: done.len() == plan.units.len(),
        stats: stats.collect::<BTreeMap<_, _>>(),
        skipped: units.iter().flat_map(|unit| unit.skipped.iter().cloned()).collect(),
        sources: plan.sources,
        streams: plan.streams,
        units: done,
        index: String::new(),
        index_crc32c: Vec::new(),
    };
    Ok((manifest, index))
}

/// What all units have seen of a stream; `None` where none of them has statistics of it.
fn merged_stats(out: &Path, streams: &[CachedStream], units: &[UnitManifest], at: usize) -> Result<Option<Summary>> {
    let Some(stream) = streams.get(at) else { return Ok(None) };
    let mut all = StreamStats::of(stream).0;
    let mut seen = false;
    for unit in units {
        let file = unit.files.iter().position(|file| file.stream == at);
        let Some(own) = file.and_then(|file| unit.stats.get(file)?.as_ref()) else { continue };
        all.merge(own).map_err(|error| {
            let text = format!("stats of {:?}: {error}", stream.name);
            corrupt(&unit_folder(out, &unit.unit).join(UNIT), text)
        })?;
        seen = true;
    }
    Ok(seen.then(|| all.summary()))
}
