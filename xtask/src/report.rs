//! The steps of a task, their minutes, and the counts of tests.

use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::process::Outcome;

/// How many tests ran, from the tools' own reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Ok,
    Failed(String),
    Skipped,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    state: State,
    took: Duration,
}

/// Collects the steps; [`Report::finish`] prints the table.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    counts: Vec<(&'static str, Counts)>,
}

impl Report {
    /// Prints a heading, does the step, remembers how it went. True when it succeeded.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<(), String>) -> bool {
        println!("\n=== {name} ===");
        let _ = std::io::stdout().flush();
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let state = match result {
            Ok(()) => State::Ok,
            Err(message) => {
                println!("{name}: FAILED: {message}");
                State::Failed(message)
            }
        };
        let ok = state == State::Ok;
        self.steps.push(Step { name, state, took });
        ok
    }

    /// A step that could not run because an earlier one failed.
    pub(crate) fn skip(&mut self, name: &'static str) {
        self.steps.push(Step { name, state: State::Skipped, took: Duration::ZERO });
    }

    pub(crate) fn count(&mut self, name: &'static str, counts: Counts) {
        self.counts.push((name, counts));
    }

    /// Prints table, failures and counts.
    pub(crate) fn finish(self) -> Outcome {
        let text = self.to_string();
        println!("\n{text}");
        if self.steps.iter().all(|step| step.state == State::Ok) { Outcome::Passed } else { Outcome::Failed }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:<8} {:>7}", "step", "result", "minutes")?;
        for step in &self.steps {
            let result = match step.state {
                State::Ok => "ok",
                State::Failed(_) => "FAILED",
                State::Skipped => "not run",
            };
            writeln!(f, "{:<16} {:<8} {:>7.2}", step.name, result, minutes(step.took))?;
        }
        let total = self.steps.iter().map(|step| step.took).sum();
        writeln!(f, "{:<16} {:<8} {:>7.2}", "all", "", minutes(total))?;
        for step in &self.steps {
            if let State::Failed(message) = &step.state {
                writeln!(f, "{}: FAILED: {}", step.name, message.lines().next().unwrap_or_default())?;
            }
        }
        for (name, counts) in &self.counts {
            writeln!(f, "{name}: {counts}")?;
        }
        Ok(())
    }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_stand_alone_on_their_lines() {
        let mut report = Report::default();
        assert!(report.step("one", || Ok(())));
        assert!(!report.step("two", || Err("broken\nmore".into())));
        report.skip("three");
        report.count("rust", Counts { passed: 3, failed: 1, skipped: 2 });
        let text = report.to_string();
        assert!(text.lines().any(|line| line == "rust: 3 passed, 1 failed, 2 skipped"), "{text}");
        assert!(text.lines().any(|line| line == "two: FAILED: broken"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("three") && line.contains("not run")), "{text}");
        assert_eq!(report.finish(), Outcome::Failed);
    }
}
