//! The command line as it was typed.

mod bench;
mod recorded;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::bench::{Bench, BenchCommand};
pub(crate) use self::recorded::Recorded;

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
  robocache ingest my/dataset my/cache
                                decode it once, to train from
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
    Ingest(Ingest),
    Export(Export),
    Cache(Cache),
    Bench(Bench),
    Plan(Plan),
}

impl Command {
    /// What to say after Ctrl-C, where something was begun.
    pub(crate) fn after_interrupt(&self) -> Option<&'static str> {
        match self {
            Self::Ingest(_) => Some("ingest: interrupted; running the same command again continues"),
            _ => None,
        }
    }
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

/// Summarise a dataset or a cache: episodes, streams, rates, gaps, tasks
///
/// Takes the folder of a LeRobot dataset (v2.0, v2.1, v3.0), or of a cache, of which it says what
/// `cache ls` says. Rates, jitter and gaps come from the
/// stamps of at most 64 episodes all over the dataset, fewer where reading takes long; the summary
/// says how many. A stream or an episode that cannot be read is named in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache inspect my/dataset                          what is in it
  robocache inspect my/dataset --plot lanes.svg         draw the first episode
  robocache inspect my/dataset --episode 7 --plot a.svg look at episode 7 only
  robocache inspect my/dataset --json                   all of it, for a script

Exit codes: 0 fine, 2 error. What is wrong with a dataset says `check`.")]
pub(crate) struct Inspect {
    /// The dataset, or a cache
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Look at this episode only, by its number
    #[arg(long, value_name = "N")]
    pub(crate) episode: Option<u64>,
    /// Draw when each stream has samples, in one episode (the first)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) recording: Recorded,
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
    pub(crate) recording: Recorded,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Make a cache of a dataset, or go on where an earlier ingest ended
///
/// Decodes every episode once into Arrow files that training reads without a copy. Work is cut
/// into units: one that is done is never done again, so that running the same command after
/// Ctrl-C, a crash or a full disk continues. Episodes whose files are damaged are skipped and listed;
/// what the system fails to read (a bad disk, too many open files) ends the run with its work kept.
/// A second dataset can go into the same cache, under a tag of its own.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    override_usage = "robocache ingest [OPTIONS] <SRC> <OUT>
       robocache ingest --plan [OPTIONS] <SRC> <OUT>
       robocache ingest --unit <K> [--strict] [--json] <OUT>
       robocache ingest --merge [--json] <OUT>",
    after_help = "\
Examples:
  robocache ingest my/dataset my/cache
  robocache ingest my/dataset my/cache --images skip
  robocache ingest my/dataset my/cache --image-size 224 --quality 90
  robocache ingest my/dataset my/cache --streams action,observation.state=state
  robocache ingest my/dataset my/cache --streams action:float16
  robocache ingest my/dataset my/cache --method action=previous

Streams are NAME, NAME=NEW to rename, NAME:TYPE to cast (float16, bfloat16,
float32, float64), or NAME=NEW:TYPE. Methods are linear, nearest, previous, next,
cubic, slerp, angle and rot6d; with columns as in `--method pose=linear:0-2,slerp:3-6`.

On several machines, each step by any scheduler:
  robocache ingest --plan my/dataset my/cache  print the units of work
  robocache ingest --unit 3 my/cache           do one; many at once are fine
  robocache ingest --merge my/cache            put what is done together

Exit codes: 0 fine, 1 episodes were skipped, 2 error, 130 Ctrl-C."
)]
pub(crate) struct Ingest {
    /// The dataset; not with --unit and --merge
    #[arg(
        value_name = "SRC",
        required_unless_present_any = ["unit", "merge"],
        conflicts_with_all = ["unit", "merge"]
    )]
    pub(crate) source: Option<PathBuf>,
    /// The folder of the cache: new, empty, or a cache already
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Take only these streams, separated by commas
    #[arg(long, value_name = "STREAMS", value_delimiter = ',')]
    pub(crate) streams: Option<Vec<String>>,
    /// How values between samples are made, by the name in the cache
    #[arg(long = "method", value_name = "KEY=NAME")]
    pub(crate) methods: Vec<String>,
    /// What becomes of pictures; depth is never made JPEG
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Images::Jpeg)]
    pub(crate) images: Images,
    /// Of JPEG pictures, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 95, allow_negative_numbers = true)]
    pub(crate) quality: i64,
    /// Resize pictures to this height and width
    #[arg(long, value_name = "N|HxW")]
    pub(crate) image_size: Option<String>,
    /// Stop at the first episode with an error of `check`, or that cannot be read
    #[arg(long)]
    pub(crate) strict: bool,
    /// Threads; as many as there are cores
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    /// What the dataset is called in the cache; its folder's name
    #[arg(long, value_name = "NAME")]
    pub(crate) tag: Option<String>,
    /// Only write the plan into OUT, and print its units
    #[arg(long)]
    pub(crate) plan: bool,
    /// Do one unit of the plan in OUT
    #[arg(long, value_name = "K", conflicts_with_all = ["plan", "merge"], conflicts_with_all = PLANNED)]
    pub(crate) unit: Option<usize>,
    /// Make the units in OUT that are done known to readers
    #[arg(long, conflicts_with_all = ["plan", "strict"], conflicts_with_all = PLANNED)]
    pub(crate) merge: bool,
    /// Frames of a unit, for tests
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) unit_frames: Option<u64>,
    #[command(flatten)]
    pub(crate) recording: Recorded,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// What the plan has fixed when units are done.
const PLANNED: [&str; 12] = [
    "streams",
    "methods",
    "images",
    "quality",
    "image_size",
    "workers",
    "tag",
    "unit_frames",
    "clock",
    "episode_gap",
    "episode_topic",
    "episode_ranges",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Images {
    Jpeg,
    Raw,
    Skip,
}

/// Write a cache in a format that other tools open
///
/// Each episode becomes an MCAP file of ROS 2 messages: arrays of numbers with a header, pictures,
/// point clouds, texts, and the task on /task. Foxglove opens them, and `inspect` and `ingest` do.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache export my/cache --to mcap        write my/cache-mcap/episode_000000.mcap, ...
  robocache export my/cache out --to mcap    write into the new folder out

Exit codes: 0 fine, 2 error, 130 Ctrl-C.")]
pub(crate) struct Export {
    /// The cache
    #[arg(value_name = "CACHE")]
    pub(crate) cache: PathBuf,
    /// A new or empty folder; the cache's name with -mcap
    #[arg(value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: ExportFormat,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Mcap,
}

/// Look after caches: list, verify, clean up
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  robocache cache ls my/cache      what is in it
  robocache cache verify my/cache  read all of it and compare checksums
  robocache cache gc my/cache      remove what crashes left behind

Exit codes: 0 fine, 1 verify found damage, 2 error, 130 Ctrl-C."
)]
pub(crate) struct Cache {
    #[command(subcommand)]
    pub(crate) what: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    Ls(CacheLs),
    Verify(CacheVerify),
    Gc(CacheGc),
}

/// Say what a cache holds: sources, streams, episodes, size
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache cache ls my/cache         what is in it
  robocache cache ls my/cache --json  the same for a script

Exit codes: 0 fine, 2 error.")]
pub(crate) struct CacheLs {
    /// The cache
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Read every byte of a cache and compare all checksums
///
/// Lists every damaged block with the episodes that it held. Readers refuse such a block by
/// themselves; the rest of the cache stays usable.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache cache verify my/cache         is all of it as it was written?
  robocache cache verify my/cache --json  every damage, for a script
  robocache cache verify my/cache --quarantine
                                          take damaged units out of it

Exit codes: 0 not damaged, 1 damaged, 2 the cache cannot be opened at all,
130 Ctrl-C.")]
pub(crate) struct CacheVerify {
    /// The cache
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Move damaged units out of the cache; running the same ingest again makes them anew
    #[arg(long)]
    pub(crate) quarantine: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Remove what crashed writers left behind
///
/// Nothing that the cache needs is removed, nor what a process that still runs is writing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache cache gc my/cache         remove, and say what
  robocache cache gc my/cache --json  the same for a script

Exit codes: 0 fine, 2 error.")]
pub(crate) struct CacheGc {
    /// The cache
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Say what a call of an op takes, before anything runs
///
/// Bytes in, out and temporary, parts that it is cut into, time at the speed at which this machine
/// moves bytes, and whether it fits. Nothing is computed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  robocache plan resample batch=256 source=500 targets=250 dim=128 dtype=bf16
  robocache plan voxelize batch=64 points=100000 shape=128,128,128 \\
      --max-memory 2GiB            in parts of at most 2 GiB
  robocache plan resample source=9 which sizes an op needs says the error

Exit codes: 0 it fits, 1 it does not, 2 error.")]
pub(crate) struct Plan {
    /// The op, such as resample
    #[arg(value_name = "OP")]
    pub(crate) op: String,
    /// Its sizes
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) sizes: Vec<String>,
    /// Where it runs: cpu, or cuda:N, which host data is streamed through
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// The data lives on the GPU already
    #[arg(long)]
    pub(crate) resident: bool,
    /// What parts in flight may take: bytes, a size like 2GiB, or auto
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_memory: Option<String>,
    /// Rows of a part
    #[arg(long, value_name = "N")]
    pub(crate) chunk: Option<std::num::NonZero<usize>>,
    #[command(flatten)]
    pub(crate) format: Format,
}
