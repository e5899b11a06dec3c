//! What commands print: tables for people, JSON for machines.

use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};
use std::path::Path;

pub(crate) use robocache::printable;
use robocache::{Error, ErrorKind, Result};
use robocache_data::cache::CachedSource;
use serde::{Serialize, Serializer};

/// The widest line for people.
pub(crate) const WIDTH: usize = 80;
/// Spaces between columns.
const GAP: usize = 2;

/// How a command that could do its work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fine,
    /// The command found what it looks for: exit code 1.
    Findings,
}

/// The result of a command; its fields are the JSON.
pub(crate) trait Report: Serialize {
    fn outcome(&self) -> Outcome;
    fn text(&self, style: Style) -> String;
}

/// Prints a report to standard output.
pub(crate) fn show(report: &impl Report, json: bool) -> Result<()> {
    let text = if json {
        let text = serde_json::to_string_pretty(report);
        text.map_err(|error| Error::new(ErrorKind::Unsupported, "cannot write the report as JSON").caused_by(error))?
            + "\n"
    } else {
        report.text(Style::of_stdout())
    };
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader has seen enough (`robocache demo | head -1`).
        Err(error) if error.kind() == IoErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Error::new(ErrorKind::FileError, "cannot write to standard output").caused_by(error)),
        Ok(()) => Ok(()),
    }
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colour: bool,
}

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Title,
    Good,
    /// Not wrong, but not as it should be.
    Doubtful,
    Bad,
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { colour: false };

    fn of_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colour: std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb }
    }

    pub(crate) fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Title => "1",
            Paint::Good => "32",
            Paint::Doubtful => "33",
            Paint::Bad => "1;31",
            Paint::Plain => "",
        };
        if self.colour && !code.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Which side of a column its text leans on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Debug)]
struct Cell {
    text: String,
    paint: Paint,
}

/// A table with columns as wide as their content.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let title = |(text, _): &(&str, Align)| Cell { text: (*text).to_owned(), paint: Paint::Title };
        let titles = columns.iter().map(title).collect();
        Self { columns: columns.iter().map(|&(_, align)| align).collect(), rows: vec![titles] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [(String, Paint); N]) {
        self.rows.push(cells.into_iter().map(|(text, paint)| Cell { text, paint }).collect());
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let width = |column: usize| {
            let widths = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            // Spaces wait for the next visible text, so that no line ends in them.
            let mut spaces = 0;
            for ((cell, &width), align) in row.iter().zip(&widths).zip(&self.columns) {
                let free = width - cell.text.chars().count();
                let (before, after) = match align {
                    Align::Left => (0, free),
                    Align::Right => (free, 0),
                };
                spaces += before;
                if !cell.text.is_empty() {
                    line.extend(std::iter::repeat_n(' ', spaces));
                    line.push_str(&style.paint(&cell.text, cell.paint));
                    spaces = 0;
                }
                spaces += after + GAP;
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// Breaks text at spaces into lines of at most `width` characters; longer words stay whole.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text as a paragraph of [`WIDTH`] columns, with its line end.
pub(crate) fn paragraph(text: &str) -> String {
    wrap(text, WIDTH).join("\n") + "\n"
}

/// A time span for people.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Up to two decimals.
pub(crate) fn hertz(rate: f64) -> String {
    let text = format!("{rate:.2}");
    format!("{} Hz", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Hours and minutes for those who collect data.
pub(crate) fn long_duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round();
    match seconds {
        s if s < 120.0 => format!("{seconds:.1} s"),
        s if s < 2.0 * 3600.0 => format!("{minutes} min ({seconds:.0} s)"),
        _ => format!("{} h {} min", count((minutes / 60.0).floor() as u64), minutes as u64 % 60),
    }
}

/// A count with a mark at every thousand.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A path in JSON, which holds text only: U+FFFD stands for bytes that are none.
pub(crate) fn json_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The same for sources, whose own form in a cache's files keeps such bytes.
pub(crate) fn json_sources<S: Serializer>(sources: &[CachedSource], serializer: S) -> Result<S::Ok, S::Error> {
    shown_sources(sources).serialize(serializer)
}

/// Sources with paths as they are printed.
pub(crate) fn shown_sources(sources: &[CachedSource]) -> Vec<CachedSource> {
    let shown = |source: &CachedSource| {
        let path = source.path.to_string_lossy().into_owned().into();
        CachedSource { path, ..source.clone() }
    };
    sources.iter().map(shown).collect()
}

/// Text of at most `width` characters.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

/// A number of bytes for people.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (number as f64, "B");
    for next in UNITS {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{number} B") } else { format!("{size:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_end_no_line_in_spaces() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right), ("note", Align::Left)]);
        table.row([("a".into(), Paint::Plain), ("12".into(), Paint::Good), (String::new(), Paint::Plain)]);
        let plain = table.text(Style::PLAIN);
        assert_eq!(plain, "name   n  note\na     12\n");
        let coloured = table.text(Style { colour: true });
        assert_eq!(coloured, "\x1b[1mname\x1b[0m   \x1b[1mn\x1b[0m  \x1b[1mnote\x1b[0m\na     \x1b[32m12\x1b[0m\n");
    }

    #[test]
    fn text_wraps_at_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incompressible is long", 5), ["incompressible", "is", "long"]);
        assert_eq!(wrap(" ", 5), [""; 0]);
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([count(0), count(999), count(1_000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([bytes(12), bytes(2048), bytes(25_274_793_984)], ["12 B", "2.0 KiB", "23.5 GiB"]);
        assert_eq!([plural(0, "file"), plural(1, "file"), plural(1234, "file")], ["0 files", "1 file", "1,234 files"]);
        assert_eq!([duration(2.5e-5), duration(0.0123), duration(2.0)], ["25 us", "12.3 ms", "2.00 s"]);
        assert_eq!([30.0, 29.97, 1000.0 / 3.0, 100.0].map(hertz), ["30 Hz", "29.97 Hz", "333.33 Hz", "100 Hz"]);
        assert_eq!([5.94, 600.0, 12_345.0].map(long_duration), ["5.9 s", "10 min (600 s)", "3 h 26 min"]);
    }

    #[test]
    fn long_text_is_shortened() {
        assert_eq!(
            [shorten("abcdef", 6), shorten("abcdefg", 6), shorten("ab cdefg", 6)],
            ["abcdef", "abc...", "ab..."]
        );
    }
}
