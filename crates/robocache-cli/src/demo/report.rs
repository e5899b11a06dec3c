//! What the demo found, for people and machines.

use serde::Serialize;

use super::journey::Journey;
use crate::output::{Align, Outcome, Paint, Report, Style, Table, count, duration, paragraph};

#[derive(Debug, Serialize)]
pub(crate) struct Story {
    pub(super) episodes: usize,
    pub(super) shortest_seconds: f64,
    pub(super) longest_seconds: f64,
    pub(super) target_rate_hz: f64,
    /// Per stream.
    pub(super) targets: usize,
    pub(super) max_gap_seconds: f64,
    pub(super) device: String,
    pub(super) threads: usize,
    pub(super) vector_instructions: &'static str,
    pub(super) streams: Vec<StreamReport>,
    /// From an MCAP recording to batches.
    pub(super) recorded: Journey,
    pub(super) float32_stamps: Float32Stamps,
    pub(super) ok: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct StreamReport {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) dtype: &'static str,
    pub(super) width: usize,
    pub(super) rate_hz: f64,
    pub(super) samples: usize,
    pub(super) method: String,
    pub(super) valid: usize,
    pub(super) valid_fraction: f64,
    /// Targets whose `valid` is not what a slow search says.
    pub(super) wrong_valid: usize,
    pub(super) max_error: f64,
    pub(super) bound: f64,
    pub(super) ok: bool,
    pub(super) timing: Timing,
}

/// Of the fastest run. The only part that differs between two runs of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Timing {
    pub(super) seconds: f64,
    pub(super) values_per_second: f64,
    /// Touched samples, stamps, targets and results, each once.
    pub(super) bytes_per_second: f64,
}

/// The same alignment of a stream with stamps that were cast to float32 seconds.
#[derive(Debug, Serialize)]
pub(super) struct Float32Stamps {
    pub(super) stream: &'static str,
    /// What the engine says about such stamps.
    pub(super) refusal: Option<String>,
    /// What comes out with the check off.
    pub(super) unchecked_max_error: f64,
    pub(super) unit: &'static str,
}

impl Report for Story {
    fn outcome(&self) -> Outcome {
        if self.ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        let sections = [
            paragraph(&self.opening()),
            self.recorded().text(style),
            paragraph(&self.setting()),
            self.aligned().text(style) + &paragraph(LEGEND),
            paragraph(&self.contrast()),
            paragraph(&self.journey()),
            style.paint(paragraph(&self.ending()).trim_end(), if self.ok { Paint::Good } else { Paint::Bad }) + "\n",
        ];
        sections.join("\n")
    }
}

const LEGEND: &str = "error: the largest difference from the truth at valid targets. allowed: for linear h^2/8 times \
    the largest second derivative, h the largest step between samples, and float rounding; for the others none.";

impl Story {
    fn opening(&self) -> String {
        format!(
            "{} episodes of {:.1} to {:.1} s from an arm with 7 joints, made in memory: {} streams, each on a clock \
             of its own with jitter, drift and int64 nanosecond stamps.",
            self.episodes,
            self.shortest_seconds,
            self.longest_seconds,
            self.streams.len()
        )
    }

    fn setting(&self) -> String {
        let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        format!(
            "Aligned to {} Hz on the {} ({threads}, {}), valid where samples are at most {} s apart:",
            self.target_rate_hz, self.device, self.vector_instructions, self.max_gap_seconds
        )
    }

    fn recorded(&self) -> Table {
        let mut table = Table::new(&[
            ("stream", Align::Left),
            ("what", Align::Left),
            ("type", Align::Left),
            ("rate", Align::Right),
            ("samples", Align::Right),
        ]);
        for stream in &self.streams {
            let rate = format!("{} Hz", stream.rate_hz);
            let samples = count(stream.samples as u64);
            let cells = [stream.name.into(), stream.what.into(), stream.dtype.into(), rate, samples];
            table.row(cells.map(|text| (text, Paint::Plain)));
        }
        table
    }

    fn aligned(&self) -> Table {
        let mut table = Table::new(&[
            ("stream", Align::Left),
            ("method", Align::Left),
            ("valid", Align::Right),
            ("error", Align::Right),
            ("allowed", Align::Right),
            ("", Align::Left),
            ("M values/s", Align::Right),
            ("GB/s", Align::Right),
        ]);
        for stream in &self.streams {
            let verdict = if stream.ok { ("ok", Paint::Good) } else { ("WRONG", Paint::Bad) };
            table.row([
                (stream.name.to_owned(), Paint::Plain),
                (stream.method.clone(), Paint::Plain),
                (format!("{:.2} %", 100.0 * stream.valid_fraction), Paint::Plain),
                (magnitude(stream.max_error), verdict.1),
                (magnitude(stream.bound), Paint::Plain),
                (verdict.0.to_owned(), verdict.1),
                (format!("{:.0}", stream.timing.values_per_second / 1e6), Paint::Plain),
                (format!("{:.1}", stream.timing.bytes_per_second / 1e9), Paint::Plain),
            ]);
        }
        table
    }

    fn contrast(&self) -> String {
        let Float32Stamps { stream, refusal, unchecked_max_error, unit } = &self.float32_stamps;
        let answer = refusal.as_ref().map_or_else(String::new, |refusal| format!("is refused (\"{refusal}\"), and "));
        let exact = self.streams.iter().find(|exact| exact.name == *stream).map_or(0.0, |exact| exact.max_error);
        format!(
            "The same with stamps cast to float32 seconds {answer}with the check off gives {stream} that are wrong \
             by up to {} {unit} instead of {} {unit}.",
            magnitude(*unchecked_max_error),
            magnitude(exact)
        )
    }

    fn journey(&self) -> String {
        let Journey { episodes, messages, lost, findings, samples, batches, streams, seconds, .. } = &self.recorded;
        let findings: Vec<_> = findings.iter().map(|(code, times)| format!("{code} ({times})")).collect();
        let errors = streams.iter().map(|stream| {
            let (error, bound) = (magnitude(stream.max_error), magnitude(stream.bound));
            format!("{} is off by at most {error} (allowed {bound})", stream.name)
        });
        let errors: Vec<_> = errors.collect();
        format!(
            "Recording, check, cache, batch: {} messages of joints and force in {episodes} episodes went into an MCAP \
             file, late by up to 3 ms and {lost} lost. The check found {}. The cache gave {} samples in {batches} \
             batches: {}. {} in all.",
            count(*messages as u64),
            findings.join(", "),
            count(*samples),
            errors.join(", "),
            duration(*seconds)
        )
    }

    fn ending(&self) -> String {
        let columns: usize = self.streams.iter().map(|stream| stream.width).sum();
        let seconds: f64 = self.streams.iter().map(|stream| stream.timing.seconds).sum();
        let wrong: Vec<_> = self.streams.iter().filter(|stream| !stream.ok).map(|stream| stream.name).collect();
        let verdict = if !self.recorded.ok {
            "but the recording did not become the batches that it should".to_owned()
        } else if wrong.is_empty() {
            "and every error is within what is allowed".to_owned()
        } else {
            format!("but these are wrong: {}", wrong.join(", "))
        };
        format!(
            "{} streams on {} clocks became one table of {} rows and {columns} columns at {} Hz: {} values in {}, \
             {verdict}.",
            self.streams.len(),
            self.streams.len(),
            count(self.targets as u64),
            self.target_rate_hz,
            count((self.targets * columns) as u64),
            duration(seconds)
        )
    }
}

/// An error as people read it: two digits, and a power of ten where it helps.
fn magnitude(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if (0.1..100.0).contains(&number) => format!("{number:.1}"),
        number => format!("{number:.1e}"),
    }
}
