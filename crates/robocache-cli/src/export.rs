//! `robocache export`: a cache in a format that other tools open.

use std::path::PathBuf;

use robocache::{Error, Result, shown_path};
use robocache_data::export;
use serde::Serialize;

use crate::flags;
use crate::output::{Outcome, Report, Style, bytes, json_path, plural};
use crate::progress;

/// What to write.
#[derive(Debug)]
pub(crate) struct Options {
    cache: PathBuf,
    out: PathBuf,
    bar: bool,
}

impl Options {
    pub(crate) fn resolve(raw: &flags::Export) -> Result<Self> {
        let flags::ExportFormat::Mcap = raw.to;
        let beside = || {
            let name = raw.cache.file_name()?.to_string_lossy().into_owned();
            Some(raw.cache.with_file_name(format!("{name}-mcap")))
        };
        let out = raw.out.clone().or_else(beside);
        let out = out.ok_or_else(|| Error::invalid("OUT", "expected a folder to write into").op("export"))?;
        Ok(Self { cache: raw.cache.clone(), out, bar: !raw.format.json })
    }
}

/// What was written.
#[derive(Debug, Serialize)]
pub(crate) struct Exported {
    #[serde(serialize_with = "json_path")]
    path: PathBuf,
    episodes: usize,
    messages: u64,
    bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<Exported> {
    let (cache, out) = (options.cache.clone(), options.out.clone());
    let worked = progress::run("export", "episode", options.bar, move |progress| {
        export::to_mcap(&cache, &out, progress).map(|report| (report, out.clone()))
    });
    let (report, path) = worked.map_err(|error| error.op("export"))?.result;
    Ok(Exported { path, episodes: report.episodes, messages: report.messages, bytes: report.bytes })
}

impl Report for Exported {
    fn outcome(&self) -> Outcome {
        Outcome::Fine
    }

    fn text(&self, _: Style) -> String {
        format!(
            "{}: {} in {}, {}\n",
            shown_path(&self.path),
            plural(self.messages, "message"),
            plural(self.episodes as u64, "file"),
            bytes(self.bytes)
        )
    }
}
