//! The single checks of `cargo xtask ci`.

use std::io::IsTerminal;

use crate::process;
use crate::python::{SOURCES, Venv};
use crate::workspace::Workspace;

/// A typed program that uses the package as its users do; checked, never run.
const TYPED_USAGE: &str = "crates/robocache-py/tests/typing_usage.py";
/// Names that stubtest shall not compare, each with its reason. May be absent.
const STUB_ALLOWLIST: &str = "crates/robocache-py/tests/stubtest-allowlist.txt";

pub(crate) fn fmt(workspace: &Workspace) -> Result<(), String> {
    let mut cargo = workspace.cargo();
    cargo.args(["fmt", "--all", "--check"]);
    if !std::io::stdout().is_terminal() {
        cargo.args(["--", "--color", "never"]);
    }
    process::run(&mut cargo)
}

pub(crate) fn clippy(workspace: &Workspace) -> Result<(), String> {
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"]);
    process::run(&mut cargo)
}

/// With the release profile, so that the dependencies checked for clippy serve again.
pub(crate) fn docs(workspace: &Workspace) -> Result<(), String> {
    let mut cargo = workspace.cargo();
    cargo.args(["doc", "--no-deps", "--workspace", "--release"]);
    process::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
}

pub(crate) fn ruff(workspace: &Workspace, venv: &Venv) -> Result<(), String> {
    let lint = process::run(venv.python(workspace).args(["-m", "ruff", "check"]));
    let format = process::run(venv.python(workspace).args(["-m", "ruff", "format", "--check"]));
    lint.and(format)
}

pub(crate) fn mypy(workspace: &Workspace, venv: &Venv) -> Result<(), String> {
    let sources = workspace.root.join(SOURCES);
    let mypy = || {
        let mut command = venv.python(workspace);
        command.env("MYPYPATH", &sources).args(["-m", "mypy", "--strict"]);
        command
    };
    process::run(mypy().args(["--package", "robocache"]))?;
    process::run(mypy().arg(TYPED_USAGE))
}

/// Compares the stubs with the built extension.
pub(crate) fn stubtest(workspace: &Workspace, venv: &Venv) -> Result<(), String> {
    let mut command = venv.python(workspace);
    command.env("MYPYPATH", workspace.root.join(SOURCES));
    command.args(["-m", "mypy.stubtest", "robocache._core", "--mypy-config-file", "pyproject.toml"]);
    if workspace.root.join(STUB_ALLOWLIST).is_file() {
        command.args(["--allowlist", STUB_ALLOWLIST]);
    }
    process::run(&mut command)
}
