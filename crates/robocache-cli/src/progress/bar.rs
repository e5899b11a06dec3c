//! One line on a terminal that says how far something is.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::output::{count, plural};

/// Where a terminal does not say how wide it is.
const USUAL_WIDTH: usize = 80;
/// Less than this is no bar.
const LEAST_BAR: usize = 8;
const MOST_BAR: usize = 40;
/// Return, and erase to the end of the line.
const CLEAR: &str = "\r\x1b[K";

/// How far the work is.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) done: usize,
    /// 0 while it is not known.
    pub(super) total: usize,
    pub(super) elapsed: Duration,
}

/// A bar on standard error, or none.
#[derive(Debug)]
pub(super) struct Bar {
    title: &'static str,
    unit: &'static str,
    wanted: bool,
    drawn: bool,
}

impl Bar {
    pub(super) fn new(title: &'static str, unit: &'static str, wanted: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let wanted = wanted && std::io::stderr().is_terminal() && !dumb && !is_set("NO_PROGRESS");
        Self { title, unit, wanted, drawn: false }
    }

    pub(super) fn draw(&mut self, state: State) {
        if self.wanted {
            let width = terminal_size::terminal_size_of(std::io::stderr());
            let width = width.map_or(USUAL_WIDTH, |(width, _)| usize::from(width.0));
            self.drawn = true;
            print(&format!("{CLEAR}{}", line(self.title, self.unit, state, width)));
        }
    }

    /// Leaves the terminal as if nothing had been there.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            print(CLEAR);
        }
    }
}

/// A bar that cannot be drawn is not worth an error.
fn print(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// The line, at most `width - 1` wide: some terminals break a line that they are filled by.
fn line(title: &str, unit: &str, state: State, width: usize) -> String {
    let State { done, total, elapsed } = state;
    let seconds = elapsed.as_secs_f64();
    let room = width.saturating_sub(1);
    if total == 0 {
        return clip(format!("{title}  {}", clock(seconds)), room);
    }
    let done = done.min(total);
    let rate = done as f64 / seconds.max(1e-3);
    let left = match done {
        0 => "-:--".to_owned(),
        _ => clock((total - done) as f64 / rate),
    };
    let percent = done * 100 / total;
    let numbers = format!("{percent:>3} %  {}/{}", count(done as u64), plural(total as u64, unit));
    let details = format!("{numbers}  {} /s  {left} left", speed(rate));
    let bar = room.saturating_sub(title.len() + details.len() + 6).min(MOST_BAR);
    if bar < LEAST_BAR {
        return clip(format!("{title}  {details}"), room);
    }
    let filled = bar * done / total;
    format!("{title}  [{}{}]  {details}", "=".repeat(filled), " ".repeat(bar - filled))
}

fn clip(line: String, room: usize) -> String {
    line.chars().take(room).collect()
}

fn speed(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => count(rate as u64),
    }
}

/// Seconds as a clock shows them.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(done: usize, total: usize, seconds: u64, width: usize) -> String {
        line("check", "episode", State { done, total, elapsed: Duration::from_secs(seconds) }, width)
    }

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long() {
        let expected = "check  [======                  ]   25 %  500/2,000 episodes  100 /s  0:15 left";
        assert_eq!(at(500, 2000, 5, 80), expected);
        assert_eq!(at(0, 0, 65, 80), "check  1:05");
        assert!(at(0, 10, 0, 80).ends_with("0/10 episodes  0.0 /s  -:-- left"), "{}", at(0, 10, 0, 80));
        // More done than there is to do is not shown.
        assert!(at(7, 1, 1, 80).contains("100 %  1/1 episode  "), "{}", at(7, 1, 1, 80));
    }

    #[test]
    fn no_line_fills_the_terminal() {
        for width in 0..200 {
            for (done, total) in [(0, 0), (0, 1), (3, 7), (123_456, 1_000_000)] {
                let line = at(done, total, 3700, width);
                assert!(line.len() <= width.saturating_sub(1), "{width}: {line:?}");
            }
        }
        assert!(!at(3, 7, 1, 40).contains('['));
        assert_eq!(at(10, 10, 1, 300).matches('=').count(), MOST_BAR);
    }
}
