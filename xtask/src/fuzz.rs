//! `cargo xtask fuzz`: runs the targets of `fuzz` one after the other, without cargo-fuzz.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::files;
use crate::process::{self, Outcome};
use crate::python;
use crate::workspace::Workspace;

/// What cargo-fuzz gives the compiler: coverage for libFuzzer, checks of addresses and of overflows.
const RUSTFLAGS: [&str; 11] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "--cfg",
    "fuzzing",
];

/// One allocation may take what the `Limits` of the targets allow, and what readers need beside it.
/// Functions are not printed by name: to look each one up takes a second.
const LIBFUZZER: [&str; 7] = [
    "-timeout=30",
    "-rss_limit_mb=4096",
    "-malloc_limit_mb=256",
    "-max_len=32768",
    "-detect_leaks=0",
    "-print_final_stats=1",
    "-print_funcs=0",
];

pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let (minutes, targets) = parse(args, &known(workspace)?)?;
    let host = nightly(workspace)?;
    let dir = workspace.target.join("fuzz");
    build(workspace, &host, &dir)?;
    let mut runs = Vec::new();
    for target in targets {
        runs.push(run(workspace, &dir, &host, target, minutes)?);
    }
    println!("\n{:<12} {:>12} {:>8} {:>8} {:>9}  crashes", "target", "executions", "seconds", "per s", "coverage");
    runs.iter().for_each(|run| println!("{run}"));
    Ok(if runs.iter().all(|run| run.crashes.is_empty()) { Outcome::Passed } else { Outcome::Failed })
}

/// The minutes for each target, and the targets: those named, or all.
fn parse(args: &[String], known: &[String]) -> Result<(u64, Vec<String>), String> {
    let (mut minutes, mut targets) = (5, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => {
                let number = args.next().and_then(|text| text.parse().ok()).filter(|&number| number > 0);
                minutes = number.ok_or("fuzz: --minutes: expected a whole number above 0")?;
            }
            name if known.iter().any(|target| target == name) => targets.push(name.to_owned()),
            other => return Err(format!("fuzz: unknown target '{other}'; there are {}", known.join(", "))),
        }
    }
    Ok((minutes, if targets.is_empty() { known.to_vec() } else { targets }))
}

fn known(workspace: &Workspace) -> Result<Vec<String>, String> {
    let sources = files::names(&workspace.root.join("fuzz/fuzz_targets"))?;
    Ok(sources.iter().filter_map(|name| Some(name.to_str()?.strip_suffix(".rs")?.to_owned())).collect())
}

/// The host of the nightly toolchain, which alone knows sanitizers.
fn nightly(workspace: &Workspace) -> Result<String, String> {
    let text = process::capture(workspace.command("rustup").args(["run", "nightly", "rustc", "-vV"]));
    let host = text.as_ref().ok().and_then(|text| text.lines().find_map(|line| line.strip_prefix("host: ")));
    host.map(str::to_owned).ok_or_else(|| {
        let why = text.err().unwrap_or_default();
        let why = why.lines().next().unwrap_or_default();
        format!("fuzz: nothing was run, for want of a nightly toolchain: {why}\n  rustup toolchain install nightly")
    })
}

fn build(workspace: &Workspace, host: &str, dir: &Path) -> Result<(), String> {
    let context = |e: std::io::Error| format!("{e}: fuzz/Cargo.lock");
    let (ours, lock) = (workspace.root.join("Cargo.lock"), workspace.root.join("fuzz/Cargo.lock"));
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    // The versions that the product is built with; cargo adds what is only needed here.
    if time(&lock).ok() < Some(time(&ours).map_err(context)?) {
        files::copy(&ours, &lock)?;
    }
    let mut cargo = workspace.command("rustup");
    cargo.args(["run", "nightly", "cargo", "build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    cargo.args(["--target", host, "--target-dir"]).arg(dir);
    process::run(cargo.env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\u{1f}")))
}

/// How a target's run went.
#[derive(Debug)]
struct Run {
    target: String,
    log: String,
    seconds: u64,
    /// The inputs that made it fail, or why it ended otherwise.
    crashes: Vec<String>,
}

/// New inputs go to `target/fuzz/corpus`; the ones in `fuzz/corpus` are only read.
fn run(workspace: &Workspace, dir: &Path, host: &str, target: String, minutes: u64) -> Result<Run, String> {
    let folder = |what: &str| -> Result<PathBuf, String> {
        let folder = dir.join(what).join(&target);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{e}: {}", folder.display()))?;
        Ok(folder)
    };
    let (corpus, artifacts, scratch) = (folder("corpus")?, folder("artifacts")?, folder("scratch")?);
    let path = folder("log")?.join("log.txt");
    let log = File::create(&path).map_err(|e| format!("{e}: {}", path.display()))?;
    let context = |e: std::io::Error| format!("{e}: {}", path.display());
    println!("{target}: {minutes} minutes; log: {}", workspace.show(&path));
    let before = files::names(&artifacts)?;
    let mut fuzzer = workspace.command(dir.join(host).join("release").join(&target));
    fuzzer.args(LIBFUZZER).arg(format!("-max_total_time={}", minutes * 60));
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(artifacts.join(""));
    fuzzer.arg(prefix).arg(corpus).arg(workspace.root.join("fuzz/corpus").join(&target));
    fuzzer.env("TMPDIR", &scratch).env("RUST_BACKTRACE", "1");
    fuzzer.stdout(log.try_clone().map_err(context)?).stderr(log);
    let start = Instant::now();
    let ended = process::run(&mut fuzzer);
    let seconds = start.elapsed().as_secs();
    python::remove_dir(&scratch)?;
    let log = String::from_utf8_lossy(&std::fs::read(&path).map_err(context)?).into_owned();
    // An input that is only slow is kept too.
    let new = |name: &&OsString| !before.contains(name) && !name.to_string_lossy().starts_with("slow-unit-");
    let names = files::names(&artifacts)?;
    let mut crashes: Vec<_> = names.iter().filter(new).map(|name| workspace.show(&artifacts.join(name))).collect();
    crashes.extend(ended.err().filter(|_| crashes.is_empty()));
    Ok(Run { target, log, seconds, crashes })
}

impl Run {
    /// The number behind the last `name` of the log.
    fn number(&self, name: &str) -> u64 {
        let rest = self.log.rsplit_once(name).map_or("", |(_, rest)| rest).trim_start();
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (executions, coverage) = (self.number("number_of_executed_units:"), self.number(" cov: "));
        let (seconds, speed) = (self.seconds, executions / self.seconds.max(1));
        write!(f, "{:<12} {executions:>12} {seconds:>8} {speed:>8} {coverage:>9}  ", self.target)?;
        if self.crashes.is_empty() { f.write_str("none") } else { f.write_str(&self.crashes.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_minutes_are_read() {
        let known = ["a", "b"].map(str::to_owned);
        let parse = |args: &[&str]| parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>(), &known);
        assert_eq!(parse(&[]), Ok((5, known.to_vec())));
        assert_eq!(parse(&["--minutes", "20", "b"]), Ok((20, vec!["b".to_owned()])));
        assert!(parse(&["--minutes", "0"]).unwrap_err().contains("--minutes"));
        assert!(parse(&["c"]).unwrap_err().contains("a, b"));
    }

    #[test]
    fn the_last_numbers_of_a_log_count() {
        let log = "#2 INITED cov: 7 ft: 9\n#9 NEW    cov: 12 ft: 30 corp: 2\nstat::number_of_executed_units: 1200\n";
        let run = Run { target: "a".to_owned(), log: log.to_owned(), seconds: 30, crashes: Vec::new() };
        assert_eq!(run.to_string().split_whitespace().collect::<Vec<_>>(), ["a", "1200", "30", "40", "12", "none"]);
    }
}
