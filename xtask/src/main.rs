//! Development tasks of the workspace: `cargo xtask help` lists them.
//!
//! Plain `std`, so that it builds in seconds on a machine that has nothing but Rust.

mod bundle;
mod checks;
mod ci;
mod coverage;
mod files;
mod fuzz;
mod kernels;
mod lcov;
mod llvm;
mod process;
mod python;
mod report;
mod test;
mod tree;
mod workspace;

use std::process::ExitCode;

use process::Outcome;
use workspace::Workspace;

const HELP: &str = "\
Tasks of the RoboCache workspace

  cargo xtask test [--rust|--python] [-- PYTEST ARGS]
        Makes target/venv, installs the pinned Python packages (torch among them), builds the
        extension into it, and runs the Rust and the Python tests.
  cargo xtask ci [--no-test]
        The checks of the tree, fmt, clippy, docs, ruff, mypy, stubs and kernels, then the tests.
  cargo xtask kernels [--all | ARCH...]
        Compiles every CUDA kernel with the NVRTC of target/venv, for sm_80 and sm_90, all architectures
        or those named (such as 75); fails on spills. The table is target/kernels.txt. Needs no GPU.
  cargo xtask gpu-bundle [--python 3.12] [--cubins ARCH] [DIR]
        Packs package, tests, lab and data into DIR (target/gpu-bundle) for a GPU machine without
        Rust and network; there, `run.sh OUTDIR` runs the tests. Packages that may be missing
        there are for that version of Python. With an architecture (such as 90) all kernels come
        along compiled for it.
  cargo xtask coverage [--install-tools] [--html] [-- PYTEST ARGS]
        Line coverage of the Rust code under the Rust and the Python tests; fails under 80 %.
  cargo xtask fuzz [--minutes N] [TARGET...]
        Runs the fuzz targets, or those named, for N minutes (5) each; fails on a crash. What it finds is
        in target/fuzz. Needs a nightly toolchain, and is an error without.
  cargo xtask lab NAME [ARGS]
        Runs lab/NAME.py with the freshly built extension.
  cargo xtask py [ARGS]
        Runs the Python of target/venv with the freshly built extension.
  cargo xtask help
        This text.

Environment
  ROBOCACHE_PYTHON       the Python to make target/venv with (3.10 or later)
  ROBOCACHE_NVRTC        the NVRTC for `kernels`; else that of a wheel in target/venv
  ROBOCACHE_TEST_SCALE   scales the long loops of the tests (default 1; 0.1 is quick)
";

fn main() -> ExitCode {
    if coverage::called_as_rustc() {
        return coverage::rustc();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(outcome) => outcome.exit_code(),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<Outcome, String> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(Outcome::Failed);
    };
    match command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(Outcome::Passed)
        }
        "test" => test::command(&Workspace::find()?, rest),
        "ci" => ci::command(&Workspace::find()?, rest),
        "kernels" => kernels::command(&Workspace::find()?, rest),
        "gpu-bundle" => bundle::command(&Workspace::find()?, rest),
        "coverage" => coverage::command(&Workspace::find()?, rest),
        "fuzz" => fuzz::command(&Workspace::find()?, rest),
        "lab" => python::lab(&Workspace::find()?, rest),
        "py" => python::interpreter(&Workspace::find()?, rest),
        other => Err(format!("unknown task '{other}'; `cargo xtask help` lists the tasks")),
    }
}
