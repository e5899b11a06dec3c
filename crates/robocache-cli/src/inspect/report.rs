//! What a dataset holds, for people and machines.

use std::path::PathBuf;

use robocache::shown_path;
use robocache_data::StreamInfo;
use serde::Serialize;

use super::look::{Stream, Unreadable};
use crate::cache::Listing;
use crate::output::{
    Align, Outcome, Paint, Report, Style, Table, WIDTH, bytes, count, hertz, json_path, long_duration, plural,
    printable, shorten, wrap,
};
use crate::streams::{LEAST_NAME, method, shape, shorten_middle};

const TASKS_SHOWN: usize = 5;
/// What the names of the facts take.
const FACT_WIDTH: usize = 10;
/// Lines of names of one stream.
const NAME_LINES: usize = 2;
/// Episodes that cannot be read, by name.
const EPISODES_SHOWN: usize = 3;

/// What the folder turned out to be.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Inspected {
    Dataset(Summary),
    Cache(Listing),
}

impl Report for Inspected {
    fn outcome(&self) -> Outcome {
        Outcome::Fine
    }

    fn text(&self, style: Style) -> String {
        match self {
            Self::Dataset(summary) => summary.text(style),
            Self::Cache(listing) => listing.text(style),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(serialize_with = "json_path")]
    pub(super) path: PathBuf,
    pub(super) format: String,
    pub(super) episodes: usize,
    /// Samples of the main clock.
    pub(super) frames: u64,
    pub(super) duration_seconds: f64,
    /// Of the files that the metadata speaks of and that exist.
    pub(super) bytes: u64,
    /// As declared, of the main clock.
    pub(super) rate_hz: Option<f64>,
    pub(super) tasks: Vec<String>,
    /// Absent where there is no episode.
    pub(super) lengths: Option<Lengths>,
    pub(super) looked_at: Looked,
    pub(super) streams: Vec<Stream>,
    /// Where the timeline was drawn to.
    pub(super) plot: Option<String>,
}

/// Frames of an episode.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Lengths {
    min: u64,
    median: u64,
    max: u64,
}

impl Lengths {
    pub(super) fn new(mut lengths: Vec<u64>) -> Option<Self> {
        lengths.sort_unstable();
        let median = *lengths.get(lengths.len() / 2)?;
        Some(Self { min: *lengths.first()?, median, max: *lengths.last()? })
    }
}

/// Where rates, jitter and gaps come from.
#[derive(Debug, Serialize)]
pub(super) struct Looked {
    /// How many.
    pub(super) episodes: usize,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Report for Summary {
    fn outcome(&self) -> Outcome {
        Outcome::Fine
    }

    fn text(&self, style: Style) -> String {
        let mut parts = vec![self.facts(style)];
        if !self.streams.is_empty() {
            parts.push(self.clocks(style));
            parts.push(self.components(style));
        }
        let mut doubts = self.doubts().into_iter().map(|(text, paint)| paint_lines(&text, paint, style)).peekable();
        if doubts.peek().is_some() {
            parts.push(doubts.collect());
        }
        if let Some(plot) = &self.plot {
            parts.push(format!("The timeline is in {}\n", printable(plot)));
        }
        parts.join("\n")
    }
}

impl Summary {
    fn facts(&self, style: Style) -> String {
        let mut rows = vec![("format", self.format.clone()), ("episodes", count(self.episodes as u64))];
        let rate = self.rate_hz.map_or_else(String::new, |rate| format!(" at {}", hertz(rate)));
        rows.push(("frames", format!("{}{rate}", count(self.frames))));
        rows.push(("duration", long_duration(self.duration_seconds)));
        if let Some(Lengths { min, median, max }) = self.lengths {
            let [min, median, max] = [min, median, max].map(count);
            rows.push(("lengths", format!("{min} to {max} frames, median {median}")));
        }
        rows.push(("size", bytes(self.bytes)));
        rows.push(("tasks", if self.tasks.is_empty() { "none".to_owned() } else { count(self.tasks.len() as u64) }));
        for task in self.tasks.iter().take(TASKS_SHOWN) {
            rows.push(("", shorten(&printable(task), WIDTH - FACT_WIDTH)));
        }
        if self.tasks.len() > TASKS_SHOWN {
            rows.push(("", format!("... and {} more", count((self.tasks.len() - TASKS_SHOWN) as u64))));
        }
        let path = shown_path(&self.path);
        let mut table = Table::new(&[("dataset", Align::Left), (&path, Align::Left)]);
        for (name, value) in rows {
            table.row([(name.to_owned(), Paint::Plain), (value, Paint::Plain)]);
        }
        table.text(style)
    }

    /// One row per stream, with what its stamps say.
    fn clocks(&self, style: Style) -> String {
        let titles = [
            ("stream", Align::Left),
            ("kind", Align::Left),
            ("type", Align::Left),
            ("shape", Align::Left),
            ("rate", Align::Right),
            ("jitter", Align::Right),
            ("gap", Align::Right),
        ];
        let mut table = Table::new(&titles);
        let rows: Vec<[(String, Paint); 6]> = self.streams.iter().map(clock_cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|(text, _)| text.chars().count());
            cells.chain(titles.get(column + 1).map(|(title, _)| title.len())).max().unwrap_or(0) + 2
        };
        let room = WIDTH.saturating_sub((0..6).map(width).sum()).max(LEAST_NAME);
        for (stream, row) in self.streams.iter().zip(rows) {
            // The next table has the whole name.
            let name = (shorten_middle(&printable(&stream.info.name), room), Paint::Plain);
            let [kind, dtype, shape, rate, jitter, gap] = row;
            table.row([name, kind, dtype, shape, rate, jitter, gap]);
        }
        table.text(style) + &wrap(&self.looked(), WIDTH).join("\n") + "\n"
    }

    /// Where the numbers come from and what they mean.
    fn looked(&self) -> String {
        let looked = match self.looked_at.episodes {
            0 => return "There is no episode to look at.".to_owned(),
            1 if self.episodes > 1 => format!("one of {} episodes", count(self.episodes as u64)),
            some if some < self.episodes => format!("{some} of {} episodes", count(self.episodes as u64)),
            all => format!("all {}", plural(all as u64, "episode")).replace("all 1 ", "the only "),
        };
        format!(
            "From the stamps of {looked}. rate: of the median step; jitter: how far steps are from it, 99th \
             percentile; gap: the largest step."
        )
    }

    /// How values in between are made, and what the components are.
    fn components(&self, style: Style) -> String {
        let columns = [("stream", Align::Left), ("between samples", Align::Left), ("components", Align::Left)];
        let mut table = Table::new(&columns);
        let methods: Vec<String> = self.streams.iter().map(|stream| method(&stream.info.method)).collect();
        let widest = |texts: &mut dyn Iterator<Item = usize>, title: &str| texts.max().unwrap_or(0).max(title.len());
        let names = &mut self.streams.iter().map(|stream| stream.info.name.chars().count());
        let before = widest(names, "stream") + 2 + widest(&mut methods.iter().map(String::len), "between samples") + 2;
        let room = WIDTH.saturating_sub(before).max(20);
        for (stream, method) in self.streams.iter().zip(&methods) {
            let mut first = [printable(&stream.info.name), method.clone()];
            for line in names_in(&stream.info, room) {
                let [name, method] = std::mem::take(&mut first);
                table.row([(name, Paint::Plain), (method, Paint::Plain), (line, Paint::Plain)]);
            }
        }
        table.text(style)
    }

    /// What could not be read, or is not as declared.
    fn doubts(&self) -> Vec<(String, Paint)> {
        let mut doubts = Vec::new();
        for Unreadable { episode, why } in self.looked_at.unreadable.iter().take(EPISODES_SHOWN) {
            doubts.push((format!("episode {episode} cannot be read: {why}"), Paint::Bad));
        }
        let more = self.looked_at.unreadable.len().saturating_sub(EPISODES_SHOWN);
        if more > 0 {
            doubts.push((format!("{} more of the episodes cannot be read", count(more as u64)), Paint::Bad));
        }
        // Streams on one clock have the same doubts.
        let mut shared: Vec<(Vec<&str>, String, Paint)> = Vec::new();
        for stream in &self.streams {
            for (text, paint) in stream_doubts(stream) {
                match shared.iter_mut().find(|(_, known, _)| *known == text) {
                    Some((names, ..)) => names.push(&stream.info.name),
                    None => shared.push((vec![&stream.info.name], text, paint)),
                }
            }
        }
        doubts.extend(shared.into_iter().map(|(names, text, paint)| (format!("{}: {text}", names.join(", ")), paint)));
        doubts
    }
}

/// What is doubtful about one stream.
fn stream_doubts(Stream { info, clock, unreadable }: &Stream) -> Vec<(String, Paint)> {
    let mut doubts = Vec::new();
    if let Some(Unreadable { episode, why }) = unreadable.first() {
        let others = match unreadable.len() - 1 {
            0 => String::new(),
            others => format!(", nor in {}", plural(others as u64, "other")),
        };
        // The reader names the stream as well.
        let why = why.strip_prefix(&format!("{}: ", info.name)).unwrap_or(why);
        doubts.push((format!("cannot be read in episode {episode}{others}: {why}"), Paint::Bad));
    }
    let Some(clock) = clock else { return doubts };
    if let (Some(declared), Some(found)) = (info.rate, clock.rate_hz)
        && (found / declared - 1.0).abs() > 0.01
    {
        let text = format!("declared at {}, the stamps say {}", hertz(declared), hertz(found));
        doubts.push((text, Paint::Doubtful));
    }
    if clock.gaps > 0 {
        let gap = &clock.largest_gap;
        let text = format!(
            "{}; the largest, {}, is in episode {} after {:.3} s",
            plural(clock.gaps, "gap"),
            short_duration(gap.seconds),
            gap.episode,
            gap.at_seconds
        );
        doubts.push((text, Paint::Doubtful));
    }
    if clock.backward > 0 {
        doubts.push((format!("{} not after the one before", plural(clock.backward, "stamp")), Paint::Bad));
    }
    doubts
}

/// What a stream is and what its stamps say.
fn clock_cells(Stream { info, clock, unreadable }: &Stream) -> [(String, Paint); 6] {
    let bad = |text: &str| (text.to_owned(), Paint::Bad);
    let plain = |text: String| (text, Paint::Plain);
    let [rate, jitter, gap] = match clock {
        None if !unreadable.is_empty() => [bad("unreadable"), bad(""), bad("")],
        None => ["-", "-", "-"].map(|text| plain(text.to_owned())),
        Some(clock) => {
            let gap = if clock.gaps > 0 { Paint::Doubtful } else { Paint::Plain };
            let rate = clock.rate_hz.map_or_else(|| "-".to_owned(), hertz);
            let largest = clock.largest_gap.seconds;
            [plain(rate), plain(short_duration(clock.jitter_seconds)), (short_duration(largest), gap)]
        }
    };
    let dtype = info.dtype.map_or("-", |dtype| dtype.name());
    let [kind, dtype, shape] = [info.kind.name().to_owned(), dtype.to_owned(), shape(&info.shape)].map(plain);
    [kind, dtype, shape, rate, jitter, gap]
}

/// A paragraph in one colour; later lines stand further in.
fn paint_lines(text: &str, paint: Paint, style: Style) -> String {
    let lines = wrap(&printable(text), WIDTH - 2);
    let line = |(index, line): (usize, &String)| {
        format!("{}{}\n", if index == 0 { "" } else { "  " }, style.paint(line, paint))
    };
    lines.iter().enumerate().map(line).collect()
}

/// Names of the components in lines; the middle is left out where they are many.
fn names_in(info: &StreamInfo, room: usize) -> Vec<String> {
    let names: Vec<String> = info.names.iter().flatten().map(|name| shorten(&printable(name), room - 5)).collect();
    let mut head = names.len();
    loop {
        let mut shown: Vec<&str> = names.iter().take(head).map(String::as_str).collect();
        if let (true, Some(last)) = (head < names.len(), names.last()) {
            shown.extend(["...", last]);
        }
        let lines = wrap(&shown.join(", "), room);
        if lines.len() <= NAME_LINES || head == 0 {
            return if lines.is_empty() { vec![String::new()] } else { lines };
        }
        head = if head > 1000 { 1000 } else { head - 1 };
    }
}

/// Three digits.
fn short_duration(seconds: f64) -> String {
    let (number, unit) = match seconds.abs() {
        s if s < 5e-7 => return "0 ms".to_owned(),
        s if s < 0.9995 => (seconds * 1e3, "ms"),
        s if s < 599.5 => (seconds, "s"),
        _ => (seconds / 60.0, "min"),
    };
    match number.abs() {
        n if n < 0.9995 => format!("{number:.3} {unit}"),
        n if n < 9.995 => format!("{number:.2} {unit}"),
        n if n < 99.95 => format!("{number:.1} {unit}"),
        _ => format!("{number:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let spans = [0.0, 2e-9, 0.000_02, 0.0333, 0.25, 1.5, 42.0, 1e4].map(short_duration);
        assert_eq!(spans, ["0 ms", "0 ms", "0.020 ms", "33.3 ms", "250 ms", "1.50 s", "42.0 s", "167 min"]);
    }

    #[test]
    fn lengths_have_a_middle() {
        assert_eq!(Lengths::new(vec![]), None);
        assert_eq!(Lengths::new(vec![3, 1, 2]), Some(Lengths { min: 1, median: 2, max: 3 }));
    }

    #[test]
    fn many_names_keep_their_ends() {
        let names = |count: usize| StreamInfo {
            name: "action".to_owned(),
            kind: robocache_data::Kind::Vector,
            dtype: None,
            shape: vec![count],
            names: Some((0..count).map(|n| format!("joint_{n}")).collect()),
            rate: None,
            method: Vec::new(),
        };
        assert_eq!(names_in(&names(3), 40), ["joint_0, joint_1, joint_2"]);
        let lines = names_in(&names(5000), 40);
        assert!(lines.len() == 2 && lines[1].ends_with("..., joint_4999"), "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 40), "{lines:?}");
        assert_eq!(names_in(&StreamInfo { names: None, ..names(3) }, 40), [""]);
    }
}
