//! The command line as it was typed.

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
  robocache demo           see it work on a recording made in memory
  robocache doctor         describe this machine and test its devices
  robocache doctor --json  the same for a script
  robocache demo --help    options and examples of a command

Exit codes: 0 fine, 1 something was found to be wrong, 2 error.
Colour is off when the output is not a terminal or NO_COLOR is set."
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Doctor(Doctor),
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
