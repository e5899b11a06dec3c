//! What the check found, for people and machines.

use std::path::PathBuf;

use robocache_data::{Finding, Level};
use serde::Serialize;

use crate::fold::{Line, fold, lines_text};
use crate::output::{Outcome, Paint, Report, Style, count, json_path, plural};

#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    #[serde(serialize_with = "json_path")]
    pub(super) path: PathBuf,
    /// Absent where the dataset does not open.
    pub(super) format: Option<String>,
    pub(super) episodes: Option<usize>,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) notes: usize,
    /// Whether warnings count as errors do.
    pub(super) strict: bool,
    pub(super) ok: bool,
    pub(super) findings: Vec<Finding>,
}

impl Report for Verdict {
    fn outcome(&self) -> Outcome {
        if self.ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        let lines = fold(&self.findings);
        let mut rest = lines.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|line| (line.level, line.code) == (first.level, first.code)).count();
            let (group, after) = rest.split_at(alike);
            text += &group_text(first.level, first.code, group, style);
            text.push('\n');
            rest = after;
        }
        text + &style.paint(&self.closing(), self.paint()) + "\n"
    }
}

impl Verdict {
    fn closing(&self) -> String {
        let counts = [(self.errors, "error"), (self.warnings, "warning"), (self.notes, "note")];
        let counts = counts.map(|(number, noun)| plural(number as u64, noun)).join(", ");
        match self.episodes {
            Some(episodes) => format!("{counts} in {}", plural(episodes as u64, "episode")),
            None => counts,
        }
    }

    fn paint(&self) -> Paint {
        match (self.ok, self.warnings) {
            (false, _) => Paint::Bad,
            (true, 0) => Paint::Good,
            (true, _) => Paint::Doubtful,
        }
    }
}

/// All findings of one code.
fn group_text(level: Level, code: &str, lines: &[Line<'_>], style: Style) -> String {
    let paint = match level {
        Level::Error => Paint::Bad,
        Level::Warning => Paint::Doubtful,
        Level::Note => Paint::Plain,
    };
    let total: usize = lines.iter().map(|line| line.count).sum();
    let times = if total == 1 { String::new() } else { format!("  {} times", count(total as u64)) };
    let text = format!("{} {}{times}\n", style.paint(level.name(), paint), style.paint(code, Paint::Title));
    text + &lines_text(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WIDTH;

    fn finding(level: Level, code: &'static str, episode: u64, message: &str) -> Finding {
        Finding { level, code, episode: Some(episode), stream: None, path: None, message: message.to_owned() }
    }

    fn verdict(findings: Vec<Finding>, strict: bool) -> Verdict {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        let (errors, warnings, notes) = (count(Level::Error), count(Level::Warning), count(Level::Note));
        let ok = errors == 0 && !(strict && warnings > 0);
        let (path, format) = (PathBuf::from("x"), None);
        Verdict { path, format, episodes: Some(20), errors, warnings, notes, strict, ok, findings }
    }

    #[test]
    fn many_findings_stay_readable() {
        let mut findings: Vec<_> = (0..20).map(|n| finding(Level::Warning, "gap", n, &format!("gap {n}"))).collect();
        findings.push(finding(Level::Error, "nan", 3, &format!("\x1b[31m{}", "a long text ".repeat(20))));
        let verdict = verdict(findings, false);
        assert_eq!(verdict.outcome(), Outcome::Findings);
        let text = verdict.text(Style::PLAIN);
        assert!(text.starts_with("error nan\n  episode 3: \\u{1b}[31ma long"), "{text}");
        assert!(text.contains("\nwarning gap  20 times\n  episode 0: gap 0\n"), "{text}");
        assert!(text.contains("  episode 7: gap 7\n  ... and 12 more (--json lists all)\n"), "{text}");
        assert!(text.ends_with("\n1 error, 20 warnings, 0 notes in 20 episodes\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH && !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn warnings_count_when_asked_to() {
        let findings = || vec![finding(Level::Warning, "gap", 1, "a gap")];
        assert_eq!(verdict(findings(), false).outcome(), Outcome::Fine);
        assert_eq!(verdict(findings(), true).outcome(), Outcome::Findings);
        assert_eq!(verdict(Vec::new(), true).text(Style::PLAIN), "0 errors, 0 warnings, 0 notes in 20 episodes\n");
    }
}
