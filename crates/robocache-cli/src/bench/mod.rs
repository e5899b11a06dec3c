//! `robocache bench`: what this machine does, beside what it should do.

mod cpu_time;
mod folder;
mod ingest;
mod loader;
mod memory;
mod readers;
mod recording;
mod report;
mod steps;
mod synthetic;

use std::path::PathBuf;

use robocache::Result;

pub(crate) use self::folder::Folder;
use self::report::Measured;
use crate::flags::{self, BenchCommand};
use crate::progress;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Options {
    what: What,
    /// A dataset; else some are made.
    path: Option<PathBuf>,
    /// For people; machines get JSON and no bar.
    pub(crate) bar: bool,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Readers,
    Ingest,
    Loader,
}

impl Options {
    pub(crate) fn resolve(raw: &flags::Bench) -> Self {
        let (what, raw) = match &raw.what {
            BenchCommand::Readers(raw) => (What::Readers, &raw.rest),
            BenchCommand::Ingest(raw) => (What::Ingest, &raw.rest),
            BenchCommand::Loader(raw) => {
                return Self { what: What::Loader, path: Some(raw.path.clone()), bar: !raw.format.json };
            }
        };
        Self { what, path: raw.path.clone(), bar: !raw.format.json }
    }
}

pub(crate) fn run(options: &Options) -> Result<Measured> {
    let (what, given) = (options.what, options.path.clone());
    // Held here, so that it is removed after Ctrl-C too.
    let folder = Folder::new()?;
    let scratch = folder.path().to_path_buf();
    let measured = progress::run("bench", "step", options.bar, move |progress| match (what, given) {
        (What::Readers, Some(path)) => readers::given(&path, progress),
        (What::Readers, None) => readers::made(&scratch, progress),
        (What::Ingest, Some(path)) => ingest::given(&path, &scratch, progress),
        (What::Ingest, None) => ingest::made(&scratch, progress),
        (What::Loader, path) => loader::given(&path.unwrap_or_default(), progress),
    });
    measured.map(|worked| worked.result).map_err(|error| error.op("bench"))
}
