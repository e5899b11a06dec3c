//! The command line as it was typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Data engine for robot learning: aligns streams of different rates exactly
#[derive(Debug, Parser)]
#[command(
    name = "robocache",
    bin_name = "robocache",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 80,
    after_help = "\
Examples:
  robocache demo                see it work on a recording made in memory
  robocache doctor              describe this machine and test its devices
  robocache inspect my/dataset  what is in it
  robocache check my/dataset    what is wrong with it
  robocache doctor --json       for a script, as with all commands
  robocache demo --help         options and examples of a command

Exit codes: 0 fine, 1 something was found to be wrong, 2 error, 130 Ctrl-C.
Colour is off when the output is not a terminal or NO_COLOR is set, progress
bars when standard error is not a terminal or NO_PROGRESS is set."
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Doctor(Doctor),
    Inspect(Inspect),
    Check(Check),
    Bench(Bench),
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// Print JSON for machines instead of text for people
    #[arg(long)]
    pub(crate) json: bool,
}

/// Align a multi-rate recording of an arm and compare it with the truth
///
/// Makes 64 episodes of an arm with 7 joints in memory: five streams, each with its own rate,
/// clock and jitter, one of them silent for 0.4 s. Aligns them to one rate on all cores and
/// compares every value with the function that it was recorded from. The same numbers on every
/// run, apart from the times.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache demo                           60 s at 50 Hz
  robocache demo --seconds 300 --rate 200  more work, finer targets
  robocache demo --json                    all numbers, for a script

Exit codes: 0 every error is within its bound, 1 one is not, 2 error.")]
pub(crate) struct Demo {
    /// Length of the longest episode, 1 to 600
    #[arg(long, value_name = "S", default_value_t = 60.0, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Targets per second, 1 to 1000
    #[arg(long, value_name = "HZ", default_value_t = 50.0, allow_negative_numbers = true)]
    pub(crate) rate: f64,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Describe the machine and its devices, and test that they compute right
///
/// Every usable device computes small cases with known answers. A device that cannot be used is
/// listed with the reason; a missing GPU is not a failure. The first test of a GPU compiles its
/// kernels, which takes some seconds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache doctor                          what to put into a bug report
  robocache doctor --json                   the same for a script
  ROBOCACHE_NUM_THREADS=4 robocache doctor  see that a setting arrives

CUDA needs an NVIDIA driver 525 or newer (CUDA 12.0), a GPU of compute
capability 8.0 or newer, and NVRTC, which comes with torch or by `pip install
\"robocache[cuda]\"`, for drivers before 580 by `\"robocache[cuda12]\"`.

Exit codes: 0 the CPU and every other usable device compute right, 1 one does
not, 2 error.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Summarise a dataset: episodes, streams, rates, gaps, tasks
///
/// Takes the folder of a LeRobot dataset (v2.0, v2.1, v3.0). Rates, jitter and gaps come from the
/// stamps of at most 64 episodes all over the dataset, fewer where reading takes long; the summary
/// says how many. A stream or an episode that cannot be read is named in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache inspect my/dataset                          what is in it
  robocache inspect my/dataset --plot lanes.png         draw the first episode
  robocache inspect my/dataset --episode 7 --plot a.svg look at episode 7 only
  robocache inspect my/dataset --json                   all of it, for a script

Exit codes: 0 fine, 2 error. What is wrong with a dataset says `check`.")]
pub(crate) struct Inspect {
    /// The dataset
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Look at this episode only, by its number
    #[arg(long, value_name = "N")]
    pub(crate) episode: Option<u64>,
    /// Draw when each stream has samples, in one episode (the first)
    #[arg(long, value_name = "FILE.png|FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Look for everything that is wrong with a dataset
///
/// Reads all of it: counts against metadata, files that are missing or short, stamps, values,
/// videos. Errors are what training must not use, warnings what it may not expect, notes what is
/// worth knowing. What says the same of many episodes is one line; --json has every finding.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache check my/dataset           what is wrong with it
  robocache check my/dataset --strict  for a pipeline: fail on warnings too
  robocache check my/dataset --json    every finding, for a script

Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 the dataset
cannot be read at all, 130 Ctrl-C.")]
pub(crate) struct Check {
    /// The dataset
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Treat warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

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
    /// A dataset to read
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
}
