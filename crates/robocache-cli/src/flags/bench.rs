//! What `bench` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;

/// Measure what this machine does, beside what it should do
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  robocache bench readers         how fast datasets are opened and read
  robocache bench readers --help  options and examples of a benchmark

Exit codes: 0 every target is met, 1 one is missed, 2 error, 130 Ctrl-C."
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Readers(BenchReaders),
    Ingest(BenchIngest),
    Loader(BenchLoader),
}

/// What every benchmark of files takes.
#[derive(Debug, Args)]
pub(crate) struct BenchFiles {
    /// A dataset to measure with
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Measure how fast datasets are opened and read
///
/// Without PATH datasets are made for it in a temporary folder (TMPDIR chooses where; 400 MB),
/// one of them with 100,000 episodes. With PATH the dataset's own columns are read, and its video
/// is decoded where there is an ffmpeg. Files are read once before the clock starts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache bench readers             with datasets made for it
  robocache bench readers my/dataset  with a dataset, and its video
  robocache bench readers --json      for a record

Exit codes: 0 every target is met, 1 one is missed, 2 error, 130 Ctrl-C.")]
pub(crate) struct BenchReaders {
    #[command(flatten)]
    pub(crate) rest: BenchFiles,
}

/// Measure how fast datasets become caches
///
/// Without PATH a dataset of numbers is made for it in a temporary folder (TMPDIR chooses where;
/// 600 MB). With PATH the dataset's own numbers are ingested, and its video beside `ffmpeg -f null`,
/// which decodes the same files with the same threads and keeps nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache bench ingest             with a dataset made for it
  robocache bench ingest my/dataset  with a dataset, and its video
  robocache bench ingest --json      for a record

Exit codes: 0 every target is met, 1 one is missed, 2 error, 130 Ctrl-C.")]
pub(crate) struct BenchIngest {
    #[command(flatten)]
    pub(crate) rest: BenchFiles,
}

/// Measure how fast a cache becomes batches
///
/// Windows of all states and actions, shuffled, for two sizes of batches; then with all pictures.
/// Each time the cache is opened anew. `lab/loader.py` holds this beside LeRobot's own loader.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache bench loader my/cache         windows per second
  robocache bench loader my/cache --json  for a record

Exit codes: 0 every target is met, 1 one is missed, 2 error, 130 Ctrl-C.")]
pub(crate) struct BenchLoader {
    /// A cache to make batches of
    #[arg(value_name = "CACHE")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}
