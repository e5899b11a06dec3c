//! The command line `robocache`.
//!
//! Raw flags (`flags`) become options that hold only what makes sense, options are run, and a
//! command hands back a report that `output` prints for people or as JSON.

mod bench;
mod cache;
mod check;
mod demo;
mod doctor;
mod export;
mod flags;
mod fold;
mod ingest;
mod inspect;
mod output;
mod plan;
mod plot;
mod progress;
mod streams;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;
use robocache::{ErrorKind, Result, printable};

use crate::flags::{CacheCommand, Command, Flags};
use crate::output::{Outcome, Report, show};

/// The exit code of a command that could not do its work, wrong usage included.
const ERROR: i32 = 2;
/// The exit code that shells give for Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Runs with the arguments of a command line, program name first; returns the exit code:
/// 0 when all is well, 1 when the command found something wrong, 2 after an error,
/// 130 after Ctrl-C.
pub fn main(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> i32 {
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(message) => {
            // Help and version arrive here too. Where nobody reads them, nobody misses them.
            let _ = print(&message);
            return message.exit_code();
        }
    };
    match run(&flags.command) {
        Ok(Outcome::Fine) => 0,
        Ok(Outcome::Findings) => 1,
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            if let Some(text) = flags.command.after_interrupt() {
                let _ = writeln!(std::io::stderr(), "robocache: {text}");
            }
            INTERRUPTED
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "robocache: {error}");
            ERROR
        }
    }
}

/// Arguments are repeated in messages, and what is in them must not reach the terminal as it is.
fn print(message: &clap::Error) -> std::io::Result<()> {
    let text = message.render().to_string();
    let text = text.split('\n').map(printable).collect::<Vec<_>>().join("\n");
    if message.use_stderr() {
        std::io::stderr().write_all(text.as_bytes())
    } else {
        let mut out = std::io::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }
}

fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Demo(raw) => finish(&demo::run(&demo::Options::resolve(raw)?)?, raw.format.json),
        Command::Doctor(raw) => finish(&doctor::run(), raw.format.json),
        Command::Inspect(raw) => finish(&inspect::run(&inspect::Options::resolve(raw)?)?, raw.format.json),
        Command::Check(raw) => finish(&check::run(&check::Options::resolve(raw)?)?, raw.format.json),
        Command::Ingest(raw) => finish(&ingest::run(&ingest::Options::resolve(raw)?)?, raw.format.json),
        Command::Export(raw) => finish(&export::run(&export::Options::resolve(raw)?)?, raw.format.json),
        Command::Cache(raw) => match &raw.what {
            CacheCommand::Ls(raw) => finish(&cache::list(&raw.path)?, raw.format.json),
            CacheCommand::Verify(raw) => {
                finish(&cache::verify(&raw.path, raw.quarantine, !raw.format.json)?, raw.format.json)
            }
            CacheCommand::Gc(raw) => finish(&cache::collect(&raw.path)?, raw.format.json),
        },
        Command::Plan(raw) => finish(&plan::run(raw)?, raw.format.json),
        Command::Bench(raw) => {
            let options = bench::Options::resolve(raw);
            finish(&bench::run(&options)?, !options.bar)
        }
    }
}

fn finish(report: &impl Report, json: bool) -> Result<Outcome> {
    show(report, json)?;
    Ok(report.outcome())
}
