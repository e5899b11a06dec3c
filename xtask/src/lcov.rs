//! Reads what `llvm-cov export --format=lcov` writes and sums it up per file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Covered and all lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) covered: usize,
    pub(crate) all: usize,
}

impl Lines {
    pub(crate) fn percent(self) -> f64 {
        if self.all == 0 { 100.0 } else { 100.0 * self.covered as f64 / self.all as f64 }
    }
}

/// Lines per file, by path relative to the root.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Coverage {
    files: BTreeMap<String, Lines>,
}

impl Coverage {
    /// Takes the files that `counts` agrees to. `source` gives a file's text, from which the lines
    /// of its test module are left out: tests covering themselves say nothing.
    pub(crate) fn parse(
        lcov: &str,
        root: &Path,
        counts: impl Fn(&str) -> bool,
        source: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let mut hits: BTreeMap<String, BTreeMap<usize, bool>> = BTreeMap::new();
        let mut current: Option<String> = None;
        for line in lcov.lines() {
            if let Some(path) = line.strip_prefix("SF:") {
                let path = Path::new(path);
                let relative = path.strip_prefix(root).unwrap_or(path).display().to_string();
                current = counts(&relative).then_some(relative);
            } else if let (Some(path), Some(data)) = (&current, line.strip_prefix("DA:")) {
                let mut fields = data.split(',');
                let number = fields.next().and_then(|text| text.parse::<usize>().ok());
                let hit = fields.next().is_some_and(|count| count != "0");
                if let Some(number) = number {
                    *hits.entry(path.clone()).or_default().entry(number).or_default() |= hit;
                }
            }
        }
        let mut files = BTreeMap::new();
        for (path, lines) in hits {
            let end = source(&path).map_or(usize::MAX, |text| test_module_start(&text));
            let mut sum = Lines::default();
            for (_, hit) in lines.range(..end) {
                sum.all += 1;
                sum.covered += usize::from(*hit);
            }
            files.insert(path, sum);
        }
        Self { files }
    }

    pub(crate) fn total(&self) -> Lines {
        let mut total = Lines::default();
        for lines in self.files.values() {
            total.covered += lines.covered;
            total.all += lines.all;
        }
        total
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.files.keys().map(String::len).max().unwrap_or(0).max(8);
        writeln!(f, "{:<width$} {:>7} {:>7} {:>7}", "file", "lines", "missed", "%")?;
        for (path, lines) in &self.files {
            row(f, width, path, *lines)?;
        }
        row(f, width, "all", self.total())
    }
}

fn row(f: &mut fmt::Formatter<'_>, width: usize, name: &str, lines: Lines) -> fmt::Result {
    let missed = lines.all - lines.covered;
    writeln!(f, "{name:<width$} {:>7} {missed:>7} {:>7.1}", lines.all, lines.percent())
}

/// The line (from 1) of the `#[cfg(test)]` above a module; such modules end their files.
fn test_module_start(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    for (index, pair) in lines.windows(2).enumerate() {
        if let [first, second] = pair {
            let module = second.starts_with("mod ") && second.trim_end().ends_with('{');
            if first.trim() == "#[cfg(test)]" && module {
                return index + 1;
            }
        }
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/r/crates/a/src/x.rs\nDA:1,5\nDA:2,0\nDA:9,7\nend_of_record\n\
                        SF:/elsewhere/y.rs\nDA:1,1\nend_of_record\n\
                        SF:/r/crates/a/src/x.rs\nDA:2,3\nDA:3,0\nend_of_record\n";

    #[test]
    fn lines_of_the_workspace_are_counted_once() {
        let source = |_: &str| Some("1\n2\n3\n\n\n\n#[cfg(test)]\nmod tests {\n}\n".to_owned());
        let coverage = Coverage::parse(LCOV, Path::new("/r"), |path| path.starts_with("crates/"), source);
        assert_eq!(coverage.total(), Lines { covered: 2, all: 3 });
        assert!((coverage.total().percent() - 66.666).abs() < 0.01);
        assert!(coverage.to_string().contains("crates/a/src/x.rs"));
    }

    #[test]
    fn a_file_without_a_test_module_counts_whole() {
        let coverage = Coverage::parse(LCOV, Path::new("/r"), |_| true, |_| None);
        assert_eq!(coverage.total(), Lines { covered: 4, all: 5 });
        assert_eq!(test_module_start("#[cfg(test)]\nuse x;\n"), usize::MAX);
    }

    #[test]
    fn nothing_is_fully_covered() {
        assert!((Lines::default().percent() - 100.0).abs() < f64::EPSILON);
    }
}
