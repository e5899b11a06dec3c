//! `cargo xtask test`: Rust tests, Python tests, and how many of them ran.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Outcome};
use crate::python::{Build, Venv};
use crate::report::{Counts, Report};
use crate::workspace::Workspace;

/// Scales loops of random cases, 1 where it is not set.
const SCALE: &str = "ROBOCACHE_TEST_SCALE";

/// How many of the random cases a run tries, where the user does not say.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cases {
    All,
    /// A part, for CI; a nightly job tries more than all.
    Some,
}

impl Cases {
    fn scale(self, tests: &mut Command) {
        if matches!(self, Self::Some) && std::env::var_os(SCALE).is_none() {
            tests.env(SCALE, "0.3");
        }
    }
}

pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let (flags, pytest_args) = split_args(args);
    let (mut rust, mut python) = (true, true);
    for flag in flags {
        match flag.as_str() {
            "--rust" => python = false,
            "--python" => rust = false,
            other => return Err(format!("test: unknown option '{other}'; pytest arguments go after --")),
        }
    }
    if !rust && !python {
        return Err("test: --rust and --python exclude each other".to_owned());
    }
    let mut report = Report::default();
    let mut venv = None;
    if python {
        venv = set_up(workspace, &mut report);
    }
    if rust {
        rust_tests(workspace, venv.as_ref(), Cases::All, &mut report);
    }
    if python {
        python_tests(workspace, venv.as_ref(), Cases::All, pytest_args, &mut report);
    }
    Ok(report.finish())
}

/// Own flags, and what stands after `--`.
pub(crate) fn split_args(args: &[String]) -> (&[String], &[String]) {
    match args.iter().position(|arg| arg == "--") {
        Some(at) => (args.get(..at).unwrap_or_default(), args.get(at + 1..).unwrap_or_default()),
        None => (args, &[]),
    }
}

/// The steps `venv` and `extension`; none when one failed.
fn set_up(workspace: &Workspace, report: &mut Report) -> Option<Venv> {
    set_up_with(workspace, || Venv::ensure(workspace), report)
}

/// The same with an environment that `make` gives.
pub(crate) fn set_up_with(
    workspace: &Workspace,
    make: impl FnOnce() -> Result<Venv, String>,
    report: &mut Report,
) -> Option<Venv> {
    let mut made = None;
    report.step("venv", || {
        made = Some(make()?);
        Ok(())
    });
    let Some(venv) = made else {
        report.skip("extension");
        return None;
    };
    report.step("extension", || venv.build_extension(workspace, Build::Incremental)).then_some(venv)
}

/// The step `rust tests`, documentation tests included. Videos are decoded with the program of the
/// Python package imageio-ffmpeg, where there is an environment.
pub(crate) fn rust_tests(workspace: &Workspace, venv: Option<&Venv>, cases: Cases, report: &mut Report) {
    let mut counts = Counts::default();
    report.step("rust tests", || {
        let mut cargo = workspace.cargo();
        if std::env::var_os(FFMPEG).is_none()
            && let Some(program) = venv.and_then(|venv| wheel_ffmpeg(workspace, venv))
        {
            cargo.env(FFMPEG, program);
        }
        cargo.args(["test", "--release", "--workspace", "--no-fail-fast"]);
        cases.scale(&mut cargo);
        let result = process::stream(&mut cargo, |line| add_cargo_line(&mut counts, line));
        judge(result, counts)
    });
    report.count("rust", counts);
}

/// Names the program that decodes videos.
const FFMPEG: &str = "ROBOCACHE_FFMPEG";

fn wheel_ffmpeg(workspace: &Workspace, venv: &Venv) -> Option<String> {
    let ask = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())";
    let output = venv.python(workspace).args(["-c", ask]).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The step `python tests`; without an environment it is noted as not run.
pub(crate) fn python_tests(
    workspace: &Workspace,
    venv: Option<&Venv>,
    cases: Cases,
    args: &[String],
    report: &mut Report,
) {
    let mut counts = Counts::default();
    match venv {
        None => report.skip("python tests"),
        Some(venv) => {
            let xml = workspace.target.join("pytest.xml");
            let fake = fake_driver(workspace, report);
            report.step("python tests", || {
                let mut pytest = venv.python(workspace);
                pytest.args(["-m", "pytest"]).args(side_by_side(args)).args(args).envs(fake);
                cases.scale(&mut pytest);
                run_pytest(&mut pytest, &xml, &mut counts)
            });
        }
    }
    report.count("python", counts);
}

/// All tests run in a process for each core; those that were asked for in one, as a debugger wants it, and in one where
/// there is a GPU, whose memory some tests fill.
fn side_by_side(asked: &[String]) -> Vec<String> {
    // Each imports torch and JAX.
    const MOST: usize = 4;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST));
    let has_gpu = std::env::var_os("ROBOCACHE_TEST_GPU").is_some() || Path::new("/dev/nvidiactl").exists();
    if !asked.is_empty() || cores == 1 || has_gpu {
        return Vec::new();
    }
    vec![format!("--numprocesses={cores}"), "--dist=worksteal".to_owned()]
}

/// The step `fake driver`: the library that takes the place of CUDA's, and the variable that names
/// it; without it some tests are skipped, which the failed step tells.
pub(crate) fn fake_driver(workspace: &Workspace, report: &mut Report) -> Option<(&'static str, PathBuf)> {
    let mut built = None;
    report.step("fake driver", || {
        built = Some(("ROBOCACHE_FAKE_CUDA", build_fake_driver(workspace)?));
        Ok(())
    });
    built
}

pub(crate) fn build_fake_driver(workspace: &Workspace) -> Result<PathBuf, String> {
    process::run_aside(workspace.cargo().args(["build", "--release", "--quiet", "--package", "fake-cuda"]))?;
    let name = format!("{}fake_cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = workspace.target.join("release").join(name);
    if library.is_file() { Ok(library) } else { Err(format!("cargo made no {}", workspace.show(&library))) }
}

/// Runs pytest with its output passed through and takes the counts from its own report, also when
/// tests failed.
pub(crate) fn run_pytest(pytest: &mut Command, xml: &Path, counts: &mut Counts) -> Result<(), String> {
    // A report of an earlier run must not be counted when this one crashes.
    let _ = std::fs::remove_file(xml);
    pytest.arg("--junitxml").arg(xml);
    let result = process::run(pytest);
    let Ok(text) = std::fs::read_to_string(xml) else {
        return Err(result.err().unwrap_or_else(|| "pytest wrote no report".to_owned()));
    };
    *counts = parse_junit(&text).ok_or_else(|| "cannot read pytest's report".to_owned())?;
    judge(result, *counts)
}

/// A run is good when the program says so and at least one test ran.
fn judge(result: Result<(), String>, counts: Counts) -> Result<(), String> {
    result?;
    if counts.failed > 0 {
        return Err(format!("{counts}"));
    }
    if counts.passed == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(())
}

/// Adds a line like `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; ...`.
pub(crate) fn add_cargo_line(counts: &mut Counts, line: &str) {
    let Some(rest) = line.strip_prefix("test result: ") else { return };
    let numbers = rest.split_once(". ").map_or(rest, |(_, numbers)| numbers);
    for part in numbers.split(';') {
        let mut words = part.split_whitespace();
        let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match word {
            "passed" => counts.passed += number,
            "failed" => counts.failed += number,
            "ignored" => counts.skipped += number,
            _ => {}
        }
    }
}

/// The numbers of the `<testsuite ...>` elements.
fn parse_junit(text: &str) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut found = false;
    for piece in text.split("<testsuite ").skip(1) {
        let (head, _) = piece.split_once('>')?;
        let number = |name: &str| attribute(head, name).and_then(|value| value.parse::<u64>().ok());
        let (tests, failures, errors, skipped) =
            (number("tests")?, number("failures")?, number("errors")?, number("skipped")?);
        counts.failed += failures + errors;
        counts.skipped += skipped;
        counts.passed += tests.saturating_sub(failures + errors + skipped);
        found = true;
    }
    found.then_some(counts)
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_lines_add_up() {
        let mut counts = Counts::default();
        add_cargo_line(&mut counts, "running 3 tests");
        add_cargo_line(&mut counts, "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out");
        add_cargo_line(&mut counts, "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(counts, Counts { passed: 15, failed: 2, skipped: 1 });
    }

    #[test]
    fn junit_is_read() {
        let text = r#"<?xml version="1.0"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1"
            failures="2" skipped="3" tests="20" time="0.1"><testcase/></testsuite></testsuites>"#;
        assert_eq!(parse_junit(text), Some(Counts { passed: 14, failed: 3, skipped: 3 }));
        assert_eq!(parse_junit("<nothing/>"), None);
    }

    #[test]
    fn no_tests_is_a_failure() {
        assert!(judge(Ok(()), Counts::default()).is_err());
        assert!(judge(Ok(()), Counts { passed: 1, failed: 1, skipped: 0 }).is_err());
        assert!(judge(Ok(()), Counts { passed: 1, failed: 0, skipped: 9 }).is_ok());
        assert!(judge(Err("x".into()), Counts { passed: 1, failed: 0, skipped: 9 }).is_err());
    }

    #[test]
    fn arguments_after_the_dashes_are_pytests() {
        let args: Vec<String> = ["--python", "--", "-k", "x"].map(String::from).to_vec();
        let (own, rest) = split_args(&args);
        assert_eq!((own, rest), (&args[..1], &args[2..]));
    }
}
