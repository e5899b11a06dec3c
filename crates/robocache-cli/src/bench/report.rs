//! What was measured, for people and machines.

use robocache::{VERSION, cpu_threads};
use serde::Serialize;

use crate::output::{Align, Outcome, Paint, Report, Style, Table, bytes, count, duration, paragraph};

#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// What was measured: `readers`, `ingest` or `loader`.
    pub(super) bench: &'static str,
    pub(super) version: &'static str,
    /// `release`, or `debug`, which no target is meant for.
    pub(super) build: &'static str,
    pub(super) threads: usize,
    /// What was read.
    pub(super) dataset: String,
    pub(super) rows: Vec<Row>,
    /// What could not be measured, and why.
    pub(super) notes: Vec<String>,
    pub(super) ok: bool,
}

impl Measured {
    pub(super) fn new(bench: &'static str, dataset: String, rows: Vec<Row>, notes: Vec<String>) -> Self {
        Self {
            bench,
            version: VERSION,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            threads: cpu_threads(),
            dataset,
            ok: rows.iter().all(|row| row.pass != Some(false)),
            rows,
            notes,
        }
    }
}

/// One number.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The same on every machine and run.
    pub(super) name: String,
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: Unit,
    pub(super) target: Option<Target>,
    /// Absent where there is no target.
    pub(super) pass: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "B/s")]
    BytesPerSecond,
    #[serde(rename = "1/s")]
    PerSecond,
    /// Of something else.
    #[serde(rename = "1")]
    Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    AtLeast(f64),
    Below(f64),
}

impl Row {
    pub(super) fn new(name: &str, what: impl Into<String>, value: f64, unit: Unit, target: Option<Target>) -> Self {
        let pass = target.map(|target| match target {
            Target::AtLeast(least) => value >= least,
            Target::Below(limit) => value < limit,
        });
        Self { name: name.to_owned(), what: what.into(), value, unit, target, pass }
    }
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => duration(value),
            Self::Bytes => bytes(value as u64),
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::PerSecond => format!("{} /s", count(value as u64)),
            Self::Share => format!("{value:.2}"),
        }
    }

    /// Targets are round numbers.
    fn target(self, target: Target) -> String {
        let (sign, value) = match target {
            Target::AtLeast(value) => (">=", value),
            Target::Below(value) => ("<", value),
        };
        match self {
            Self::Seconds => format!("{sign} {value} s"),
            Self::Bytes => format!("{sign} {} MB", value / 1e6),
            Self::BytesPerSecond => format!("{sign} {} GB/s", value / 1e9),
            Self::PerSecond => format!("{sign} {value} /s"),
            Self::Share => format!("{sign} {value}"),
        }
    }
}

impl Report for Measured {
    fn outcome(&self) -> Outcome {
        if self.ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        let mut table = Table::new(&[
            (self.bench, Align::Left),
            ("result", Align::Right),
            ("target", Align::Left),
            ("", Align::Left),
        ]);
        for row in &self.rows {
            let target = row.target.map_or_else(String::new, |target| row.unit.target(target));
            let verdict = match row.pass {
                Some(true) => ("PASS", Paint::Good),
                Some(false) => ("MISS", Paint::Bad),
                None => ("", Paint::Plain),
            };
            table.row([
                (row.what.clone(), Paint::Plain),
                (row.unit.text(row.value), Paint::Plain),
                (target, Paint::Plain),
                (verdict.0.to_owned(), verdict.1),
            ]);
        }
        let mut text = paragraph(&self.dataset) + "\n" + &table.text(style);
        let debug = (self.build == "debug").then_some("This is a debug build, many times slower than a release build.");
        let notes: Vec<&str> = self.notes.iter().map(String::as_str).chain(debug).collect();
        if !notes.is_empty() {
            text.push('\n');
            notes.iter().for_each(|note| text += &paragraph(note));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_verdicts() {
        let rows = vec![
            Row::new("a", "columns", 1.25e9, Unit::BytesPerSecond, Some(Target::AtLeast(1e9))),
            Row::new("b", "memory", 3e8, Unit::Bytes, Some(Target::Below(3e8))),
            Row::new("c", "episodes", 12_345.6, Unit::PerSecond, None),
        ];
        assert_eq!(rows.iter().map(|row| row.pass).collect::<Vec<_>>(), [Some(true), Some(false), None]);
        let (dataset, notes) = ("Of a dataset.".to_owned(), vec!["No video.".to_owned()]);
        let measured = Measured { build: "release", ..Measured::new("readers", dataset, rows, notes) };
        let expected = "\
Of a dataset.

readers      result  target
columns   1.25 GB/s  >= 1 GB/s  PASS
memory    286.1 MiB  < 300 MB   MISS
episodes  12,345 /s

No video.
";
        assert_eq!(measured.text(Style::PLAIN), expected);
        assert_eq!(measured.outcome(), Outcome::Findings);
    }
}
