//! `cargo xtask ci`: all checks, then the tests.

use crate::process::Outcome;
use crate::python::Venv;
use crate::report::Report;
use crate::test::Cases;
use crate::workspace::Workspace;
use crate::{checks, kernels, test, tree};

/// Cheap checks stop the run; once the extension is built everything runs, so that one run shows
/// all that is wrong. The table is printed in any case.
pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let tests = match args {
        [] => true,
        [flag] if flag == "--no-test" => false,
        _ => return Err("ci: takes no argument but --no-test".to_owned()),
    };
    let mut report = Report::default();
    steps(workspace, tests, &mut report);
    Ok(report.finish())
}

fn steps(workspace: &Workspace, tests: bool, report: &mut Report) {
    let cheap = [report.step("tree", || tree::check(workspace)), report.step("fmt", || checks::fmt(workspace))];
    if cheap.contains(&false) {
        return;
    }
    let venv = std::thread::scope(|scope| {
        // Packages come over the network while the compiler works.
        let coming = scope.spawn(|| Venv::ensure(workspace));
        if !report.step("clippy", || checks::clippy(workspace)) {
            return None;
        }
        report.step("docs", || checks::docs(workspace));
        let arrived = || coming.join().unwrap_or_else(|_| Err("the thread that made it panicked".to_owned()));
        Some(test::set_up_with(workspace, arrived, report))
    });
    let Some(venv) = venv else {
        return;
    };
    if let Some(venv) = &venv {
        report.step("ruff", || checks::ruff(workspace, venv));
        report.step("mypy", || checks::mypy(workspace, venv));
        report.step("stubs", || checks::stubtest(workspace, venv));
        report.step("kernels", || kernels::compile(workspace, venv, &kernels::USUAL));
    }
    if tests {
        test::rust_tests(workspace, venv.as_ref(), Cases::Some, report);
        test::python_tests(workspace, venv.as_ref(), Cases::Some, &[], report);
    }
}
