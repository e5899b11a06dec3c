//! `robocache check`: everything that is wrong with a dataset.

mod report;

use std::path::{Path, PathBuf};

use robocache::Result;
use robocache_data::{Dataset, Finding, Level, Limits, Progress, Recording};

use self::report::Verdict;
use crate::flags;
use crate::progress::{self, Worked};

/// What to look at.
#[derive(Debug)]
pub(crate) struct Options {
    path: PathBuf,
    recording: Recording,
    strict: bool,
    bar: bool,
}

impl Options {
    pub(crate) fn resolve(raw: &flags::Check) -> Result<Self> {
        let recording = raw.recording.resolve().map_err(|error| error.op("check"))?;
        Ok(Self { path: raw.path.clone(), recording, strict: raw.strict, bar: !raw.format.json })
    }
}

/// What the work brings back.
#[derive(Debug)]
struct Found {
    findings: Vec<Finding>,
    /// Where the dataset opens.
    format: Option<String>,
    episodes: Option<usize>,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let (path, recording) = (options.path.clone(), options.recording.clone());
    let worked = progress::run("check", "episode", options.bar, move |progress| look(&path, &recording, progress));
    let Worked { result: found, total } = worked.map_err(|error| error.op("check"))?;
    let count = |level| found.findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings, notes) = (count(Level::Error), count(Level::Warning), count(Level::Note));
    Ok(Verdict {
        path: options.path.clone(),
        format: found.format,
        // A dataset whose metadata contradicts itself does not open, but was looked through.
        episodes: found.episodes.or((total > 0).then_some(total)),
        errors,
        warnings,
        notes,
        ok: errors == 0 && !(options.strict && warnings > 0),
        strict: options.strict,
        findings: found.findings,
    })
}

fn look(path: &Path, recording: &Recording, progress: &Progress<'_>) -> Result<Found> {
    let limits = Limits::default();
    let (findings, dataset) = Dataset::open_and_check(path, recording, &limits, progress)?;
    Ok(Found { findings, format: dataset.as_ref().map(Dataset::format), episodes: dataset.as_ref().map(Dataset::len) })
}
