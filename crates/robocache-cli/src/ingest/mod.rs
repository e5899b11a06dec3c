//! `robocache ingest`: from a dataset to a cache.

mod options;
mod report;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use robocache::{Error, ErrorKind, Result};
use robocache_data::cache::{self, Cache, CachedSource, IngestOptions, IngestReport, Plan};
use robocache_data::{Limits, Progress};

pub(crate) use self::options::Options;
use self::options::Work;
use self::report::{Done, Ingested, OneUnit, Planned, Skips};
use crate::cache::{Listing, bytes_of};
use crate::progress;

/// Where the plan lies in a cache.
const PLAN: &str = "plan.json";
/// What units have after Ctrl-C to take back what they had begun, and the rest to be made known.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Options) -> Result<Done> {
    let (out, work) = (options.out.clone(), options.work.clone());
    let job = move |progress: &Progress<'_>| match work {
        Work::All { source, options } => all(&source, &out, &options, progress).map(Done::Ingested),
        Work::Plan { source, options } => {
            let plan = cache::plan(&source, &out, &options, &Limits::default(), progress)?;
            Ok(Done::Planned(Planned { plan }))
        }
        Work::Unit { unit, strict } => {
            ensure_planned(&out)?;
            let skipped = cache::process_unit(&out, unit, strict, &Limits::default(), progress)?;
            let sources = if skipped.is_empty() { Vec::new() } else { sources(&out)? };
            Ok(Done::Unit(OneUnit { unit, ok: skipped.is_empty(), skips: Skips { skipped, sources } }))
        }
        Work::Merge => merge(&out).map(Done::Ingested),
    };
    let worked = progress::run_with_grace("ingest", "frame", options.bar, GRACE, job);
    worked.map(|worked| worked.result).map_err(|error| error.op("ingest"))
}

fn all(source: &Path, out: &Path, options: &IngestOptions, progress: &Progress<'_>) -> Result<Ingested> {
    // What is wrong with a cache that is there already the ingest says itself.
    let before = Cache::open(out).ok();
    let started = Instant::now();
    let report = cache::ingest(source, out, options, &Limits::default(), progress)?;
    let seconds = started.elapsed().as_secs_f64();
    let units = before.as_ref().map_or(0, |cache| cache.units().len());
    let bytes = before.as_ref().map_or(0, bytes_of);
    // After a crash there may have been more than the manifest said.
    let bytes_done = (units == report.units_before).then(|| report.bytes.saturating_sub(bytes));
    ingested(out, report, bytes_done, Some(seconds))
}

fn merge(out: &Path) -> Result<Ingested> {
    ensure_planned(out)?;
    let report = cache::merge(out)?;
    ingested(out, report, None, None)
}

fn ingested(out: &Path, report: IngestReport, bytes_done: Option<u64>, seconds: Option<f64>) -> Result<Ingested> {
    let listing = Listing::of(&Cache::open(out)?)?;
    Ok(Ingested {
        path: out.to_path_buf(),
        ok: report.skipped.is_empty(),
        complete: listing.complete,
        episodes: listing.episodes,
        frames: listing.frames,
        bytes: listing.bytes,
        units_before: report.units_before,
        units_done: report.units_done,
        frames_done: report.frames,
        bytes_done,
        seconds,
        missing: report.missing,
        skips: Skips { skipped: report.skipped, sources: listing.sources },
    })
}

/// The sources of a plan; opening the cache would take all units that are done.
fn sources(out: &Path) -> Result<Vec<CachedSource>> {
    let path = out.join(PLAN);
    let failed = |text: &str| Error::new(ErrorKind::CorruptData, text).path(&path);
    let bytes = std::fs::read(&path).map_err(|error| failed("cannot read").caused_by(error))?;
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|error| failed("expected a plan").caused_by(error))?;
    Ok(plan.sources)
}

/// Nothing is made of a folder without a plan.
fn ensure_planned(out: &Path) -> Result<()> {
    let plan = out.join(PLAN);
    match plan.metadata() {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let text = "there is no plan in this folder; make one with robocache ingest --plan SRC OUT";
            Err(Error::new(ErrorKind::FileError, text).path(out))
        }
        Err(error) => Err(Error::new(ErrorKind::FileError, "cannot open").caused_by(error).path(&plan)),
    }
}
