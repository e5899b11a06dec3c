//! `cargo xtask coverage`: line coverage of the Rust code under Rust and Python tests.
//!
//! Only the crates of the workspace are instrumented: cargo calls this program in place of rustc
//! for them (`RUSTC_WORKSPACE_WRAPPER`), and it adds the flag. The Python tests run on a copy of the
//! package with the instrumented extension, so that `target/venv` stays as it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::files;
use crate::lcov::Coverage;
use crate::llvm::Tools;
use crate::process::{self, Outcome};
use crate::python::{self, Build, SOURCES, Venv};
use crate::report::{Counts, Report};
use crate::test;
use crate::workspace::Workspace;

/// Percent of lines that must be covered.
const MINIMUM: f64 = 80.0;
/// Tells this program that cargo calls it as a compiler.
const WRAPPER: &str = "ROBOCACHE_XTASK_AS_RUSTC";

pub(crate) fn called_as_rustc() -> bool {
    std::env::var_os(WRAPPER).is_some()
}

/// The compiler's path is the first argument, its arguments follow.
pub(crate) fn rustc() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(compiler) = args.next() else { return ExitCode::from(2) };
    match Command::new(compiler).args(args).arg("-Cinstrument-coverage").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(_) => ExitCode::from(2),
    }
}

pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let (flags, pytest_args) = test::split_args(args);
    let (mut install, mut html) = (false, false);
    for flag in flags {
        match flag.as_str() {
            "--install-tools" => install = true,
            "--html" => html = true,
            other => return Err(format!("coverage: unknown option '{other}'; pytest arguments go after --")),
        }
    }
    let tools = Tools::find(workspace, install)?;
    let run = Run::new(workspace)?;
    let mut report = Report::default();
    run.rust_tests(&mut report);
    run.python_tests(pytest_args, &mut report);
    report.step("coverage", || run.evaluate(&tools, html));
    Ok(report.finish())
}

struct Run<'a> {
    workspace: &'a Workspace,
    /// Own target folder: other flags than those of the ordinary builds.
    dir: PathBuf,
    profiles: PathBuf,
    /// Holds a copy of the Python package with the instrumented extension.
    site: PathBuf,
    wrapper: PathBuf,
}

impl<'a> Run<'a> {
    fn new(workspace: &'a Workspace) -> Result<Self, String> {
        let dir = workspace.target.join("coverage");
        let (profiles, site) = (dir.join("profiles"), dir.join("site"));
        for old in [&profiles, &site] {
            python::remove_dir(old)?;
            std::fs::create_dir_all(old).map_err(|e| format!("{e}: {}", old.display()))?;
        }
        let wrapper = std::env::current_exe().map_err(|e| format!("where am I: {e}"))?;
        Ok(Self { workspace, dir, profiles, site, wrapper })
    }

    fn rust_tests(&self, report: &mut Report) {
        let mut counts = Counts::default();
        report.step("rust tests", || {
            let mut cargo = self.cargo(&TEST);
            process::stream(cargo.arg("--no-fail-fast"), |line| test::add_cargo_line(&mut counts, line))
        });
        report.count("rust", counts);
    }

    fn python_tests(&self, args: &[String], report: &mut Report) {
        let mut counts = Counts::default();
        let mut made = None;
        report.step("venv", || {
            let venv = Venv::ensure(self.workspace)?;
            if !venv.has_extension(self.workspace) {
                venv.build_extension(self.workspace, Build::Incremental)?;
            }
            made = Some(venv);
            Ok(())
        });
        let built = report.step("extension", || {
            process::run(&mut self.cargo(&EXTENSION))?;
            self.stage()
        });
        match made {
            Some(venv) if built => {
                let fake = test::fake_driver(self.workspace, report);
                report.step("python tests", || {
                    let mut pytest = venv.python(self.workspace);
                    self.profiled(&mut pytest).env("PYTHONPATH", &self.site).envs(fake);
                    pytest.args(["-m", "pytest"]).args(args);
                    test::run_pytest(&mut pytest, &self.dir.join("pytest.xml"), &mut counts)
                });
            }
            _ => report.skip("python tests"),
        }
        report.count("python", counts);
    }

    /// Copies the Python sources and puts the instrumented library beside them.
    fn stage(&self) -> Result<(), String> {
        let package = self.site.join("robocache");
        files::copy_sources(&self.workspace.root.join(SOURCES).join("robocache"), &package)?;
        files::copy(&self.library(), &package.join(python::EXTENSION_FILE)).map(drop)
    }

    fn library(&self) -> PathBuf {
        let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        self.dir.join("release").join(format!("{prefix}_core{suffix}"))
    }

    fn evaluate(&self, tools: &Tools, html: bool) -> Result<(), String> {
        let workspace = self.workspace;
        let merged = self.dir.join("merged.profdata");
        let mut merge = workspace.command(&tools.profdata);
        merge.args(["merge", "--sparse", "--output"]).arg(&merged);
        process::run(merge.args(files_with(&self.profiles, "profraw")))?;

        let mut objects = self.test_programs()?;
        if self.library().is_file() {
            objects.push(self.library().into_os_string());
        }
        let cov = |what: &str| {
            let mut command = workspace.command(&tools.cov);
            command.arg(what).arg("--instr-profile").arg(&merged);
            for object in &objects {
                command.arg("--object").arg(object);
            }
            command
        };
        let lcov = process::capture(cov("export").arg("--format=lcov"))?;
        let file = self.dir.join("lcov.info");
        std::fs::write(&file, &lcov).map_err(|e| format!("{e}: {}", file.display()))?;
        if html {
            let pages = self.dir.join("html");
            let mut show = cov("show");
            show.args(["--format=html", "--ignore-filename-regex=/(registry|rustc|tests)/", "--output-dir"]);
            process::run(show.arg(&pages))?;
            println!("pages: {}", workspace.show(&pages.join("index.html")));
        }
        let source = |path: &str| std::fs::read_to_string(workspace.root.join(path)).ok();
        let coverage = Coverage::parse(&lcov, &workspace.root, is_product, source);
        let total = coverage.total();
        println!("{coverage}\ncoverage: {:.1} % of {} lines", total.percent(), total.all);
        if total.all == 0 {
            return Err("no line was measured".to_owned());
        }
        if total.percent() < MINIMUM {
            return Err(format!("{:.1} % of lines, {MINIMUM} % are needed", total.percent()));
        }
        Ok(())
    }

    /// The programs that the tests consist of, and those that they start.
    fn test_programs(&self) -> Result<Vec<OsString>, String> {
        let mut cargo = self.cargo(&TEST);
        let messages = process::capture(cargo.args(["--no-run", "--quiet", "--message-format=json"]))?;
        Ok(executables(&messages).into_iter().map(OsString::from).collect())
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = self.workspace.cargo();
        cargo.args(args).arg("--target-dir").arg(&self.dir);
        cargo.env("RUSTC_WORKSPACE_WRAPPER", &self.wrapper).env(WRAPPER, "1");
        self.profiled(&mut cargo);
        cargo
    }

    /// A small pool of files that processes share: also the children of a fork write into it.
    fn profiled<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LLVM_PROFILE_FILE", self.profiles.join("%4m.profraw")).env("ROBOCACHE_COVERAGE", "1")
    }
}

/// Documentation tests are left out: their programs are gone before they could be evaluated.
/// The extension has no Rust tests; the Python tests cover it.
const TEST: [&str; 10] = [
    "test",
    "--release",
    "--workspace",
    "--exclude",
    "xtask",
    "--exclude",
    "robocache-py",
    "--lib",
    "--bins",
    "--tests",
];
const EXTENSION: [&str; 4] = ["build", "--release", "--package", "robocache-py"];

/// Files that count: the sources of the crates, without their test files.
fn is_product(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("crates/fake-cuda/");
    path.starts_with("crates/") && path.contains("/src/") && !is_test
}

/// The values of `"executable":"..."` in cargo's messages.
pub(crate) fn executables(messages: &str) -> Vec<String> {
    let mut list: Vec<String> = messages
        .split("\"executable\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(|path| path.replace("\\\\", "\\"))
        .collect();
    list.sort();
    list.dedup();
    list
}

fn files_with(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ext| ext == extension)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_messages() {
        let messages = "{\"a\":1,\"executable\":\"/t/one\"}\n{\"executable\":null}\n{\"executable\":\"/t/two\"}\n\
                        {\"executable\":\"/t/one\"}";
        assert_eq!(executables(messages), ["/t/one", "/t/two"]);
    }

    #[test]
    fn only_sources_count() {
        assert!(is_product("crates/robocache/src/ops/align/mod.rs"));
        assert!(!is_product("crates/robocache/tests/cases.rs"));
        assert!(!is_product("crates/robocache/src/ops/tests.rs"));
        assert!(!is_product("crates/fake-cuda/src/driver.rs"));
        assert!(!is_product("xtask/src/main.rs"));
    }
}
