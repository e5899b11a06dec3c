//! Findings that say the same of several episodes become one.

use std::collections::HashMap;
use std::path::Path;

use robocache_data::{Finding, Level};

use crate::output::{WIDTH, count, printable, wrap};

/// Lines that are shown; JSON has them all.
const LINES_SHOWN: usize = 8;
const INDENT: usize = 4;
/// Ranges of episodes that a line names.
const RANGES_SHOWN: usize = 6;

/// What is the same in all findings of a line.
#[derive(Debug, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) level: Level,
    pub(crate) code: &'a str,
    stream: Option<&'a str>,
    /// Only where it is one file: episodes of version 2 have a file each.
    path: Option<&'a Path>,
    pub(crate) message: &'a str,
    episodes: Vec<u64>,
    /// How many findings these are.
    pub(crate) count: usize,
}

/// Errors first, then by code in the order in which they were found.
pub(crate) fn fold(findings: &[Finding]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut known = HashMap::new();
    let mut first = HashMap::new();
    for finding in findings {
        let (stream, message) = (finding.stream.as_deref(), finding.message.as_str());
        let next = first.len();
        first.entry(finding.code).or_insert(next);
        // What is about no episode stays apart: it has nothing to be folded by.
        let path = finding.path.as_deref().filter(|_| finding.episode.is_none());
        let key = (finding.level.name(), finding.code, stream, message, path);
        let at = *known.entry(key).or_insert(lines.len());
        match lines.get_mut(at) {
            Some(line) => {
                line.count += 1;
                line.episodes.extend(finding.episode);
                if line.path != finding.path.as_deref() {
                    line.path = None;
                }
            }
            None => lines.push(Line {
                level: finding.level,
                code: finding.code,
                stream,
                path: finding.path.as_deref(),
                message,
                episodes: finding.episode.into_iter().collect(),
                count: 1,
            }),
        }
    }
    lines.sort_by_key(|line| (std::cmp::Reverse(line.level), first.get(line.code).copied()));
    lines
}

impl Line<'_> {
    /// Episodes, stream and file.
    pub(crate) fn place(&self) -> String {
        let path = self.path.map(|path| path.display().to_string());
        let parts = [episodes(&self.episodes), self.stream.map(str::to_owned), path];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Lines for people, the first of many.
pub(crate) fn lines_text(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    for line in lines.iter().take(LINES_SHOWN) {
        let place = line.place();
        let separator = if place.is_empty() { "" } else { ": " };
        let sentence = printable(&format!("{place}{separator}{}", line.message));
        for (index, part) in wrap(&sentence, WIDTH - INDENT).into_iter().enumerate() {
            // What belongs to the same finding stands further in.
            text += &format!("{}{part}\n", " ".repeat(if index == 0 { INDENT / 2 } else { INDENT }));
        }
    }
    let hidden: usize = lines.iter().skip(LINES_SHOWN).map(|line| line.count).sum();
    if hidden > 0 {
        text += &format!("  ... and {} more (--json lists all)\n", count(hidden as u64));
    }
    text
}

/// Episodes as ranges, where there are any.
pub(crate) fn episodes(numbers: &[u64]) -> Option<String> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in &sorted {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |&(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let texts: Vec<_> = ranges.iter().take(RANGES_SHOWN).map(range).collect();
    let hidden: u64 = ranges.iter().skip(RANGES_SHOWN).map(|(first, last)| last - first + 1).sum();
    let more = if hidden == 0 { String::new() } else { format!(" and {} more", count(hidden)) };
    match sorted.len() {
        0 => None,
        1 => Some(format!("episode {}", texts.join(""))),
        _ => Some(format!("episodes {}{more}", texts.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, code: &'static str, episode: Option<u64>, message: &str) -> Finding {
        Finding { level, code, episode, stream: None, path: None, message: message.to_owned() }
    }

    #[test]
    fn episodes_are_ranges() {
        assert_eq!(episodes(&[]), None);
        assert_eq!(episodes(&[7]).unwrap(), "episode 7");
        assert_eq!(episodes(&[3, 1, 2, 2, 9]).unwrap(), "episodes 1-3, 9");
        let even: Vec<u64> = (0..20).map(|n| 2 * n).collect();
        assert_eq!(episodes(&even).unwrap(), "episodes 0, 2, 4, 6, 8, 10 and 14 more");
        assert_eq!(episodes(&[u64::MAX, u64::MAX - 1]).unwrap(), format!("episodes {}-{}", u64::MAX - 1, u64::MAX));
    }

    #[test]
    fn what_says_the_same_is_one_line_and_errors_come_first() {
        let findings = [
            finding(Level::Warning, "gap", Some(1), "a gap"),
            finding(Level::Error, "nan", Some(2), "NaN"),
            finding(Level::Warning, "gap", Some(2), "a gap"),
            finding(Level::Warning, "gap", Some(5), "another"),
            finding(Level::Note, "old", None, "an old version"),
        ];
        let lines = fold(&findings);
        let seen: Vec<_> = lines.iter().map(|line| (line.code, line.place(), line.count)).collect();
        let expected = [
            ("nan", "episode 2".to_owned(), 1),
            ("gap", "episodes 1-2".to_owned(), 2),
            ("gap", "episode 5".to_owned(), 1),
            ("old", String::new(), 1),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn files_are_named_where_there_is_one() {
        let at = |episode, path: &str| Finding {
            path: Some(path.into()),
            ..finding(Level::Error, "short", episode, "short")
        };
        let (one, two) = (at(Some(0), "a"), at(Some(1), "a"));
        assert_eq!(fold(&[one.clone(), two])[0].place(), "episodes 0-1, a");
        assert_eq!(fold(&[one, at(Some(1), "b")])[0].place(), "episodes 0-1");
        let apart = [at(None, "a"), at(None, "b")];
        assert_eq!(fold(&apart).iter().map(Line::place).collect::<Vec<_>>(), ["a", "b"]);
    }
}
