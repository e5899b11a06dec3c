//! `robocache bench`: what this machine does, beside what it should do.

mod cpu_time;
mod folder;
mod memory;
mod readers;
mod report;
mod synthetic;

use std::path::PathBuf;

use robocache::Result;

use self::folder::Folder;
use self::report::Measured;
use crate::flags::{self, BenchCommand};
use crate::progress;

/// What to measure.
#[derive(Debug)]
pub(crate) enum Options {
    Readers {
        /// A dataset; else some are made.
        path: Option<PathBuf>,
        bar: bool,
    },
}

impl Options {
    pub(crate) fn resolve(raw: &flags::Bench) -> Self {
        match &raw.what {
            BenchCommand::Readers(raw) => Self::Readers { path: raw.path.clone(), bar: !raw.format.json },
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Measured> {
    let Options::Readers { path, bar } = options;
    let measured = match path {
        Some(path) => {
            let path = path.clone();
            progress::run("bench", "step", *bar, move |progress| readers::given(&path, progress))
        }
        None => {
            // Held here, so that it is removed after Ctrl-C too.
            let folder = Folder::new()?;
            let path = folder.path().to_path_buf();
            progress::run("bench", "step", *bar, move |progress| readers::made(&path, progress))
        }
    };
    measured.map(|worked| worked.result).map_err(|error| error.op("bench"))
}
