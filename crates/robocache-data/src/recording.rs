//! How recordings are read that have several clocks and no episodes of their own.

use robocache::{Error, ErrorKind, Result, ensure};
use serde::{Deserialize, Serialize};

/// Which clock stamps the messages of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedClock {
    /// The stamps in their headers; the log time where a message has none.
    #[default]
    Header,
    /// When the recorder received them.
    Log,
}

impl RecordedClock {
    /// The clock of that name.
    pub fn from_name(argument: &'static str, name: &str) -> Result<Self> {
        match name {
            "header" => Ok(Self::Header),
            "log" => Ok(Self::Log),
            other => Err(Error::invalid(argument, format!("expected header or log, got {other:?}"))),
        }
    }
}

/// How a recording is cut into episodes, by log time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedEpisodes {
    /// It is one.
    #[default]
    Whole,
    /// A new one starts after so many seconds without a message.
    Gap(f64),
    /// The messages of a topic start one. True starts and false ends one; a text is its task, an empty one ends it.
    Topic(String),
    /// From one second of the recording to another.
    Ranges(Vec<(f64, f64)>),
}

/// How a recording is read; formats with episodes of their own take the default only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recording {
    /// Which clock stamps its messages.
    pub clock: RecordedClock,
    /// Where its episodes start and end.
    pub episodes: RecordedEpisodes,
}

impl Recording {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.episodes {
            RecordedEpisodes::Whole => {}
            RecordedEpisodes::Gap(seconds) => {
                let is_time = (0.0..9e9).contains(seconds) && *seconds > 0.0;
                ensure!(is_time, "episode_gap", "expected seconds above 0, got {seconds}");
            }
            RecordedEpisodes::Topic(topic) => ensure!(!topic.is_empty(), "episode_topic", "expected a topic"),
            RecordedEpisodes::Ranges(ranges) => {
                ensure!(!ranges.is_empty(), "episode_ranges", "expected at least one range");
                for &(start, end) in ranges {
                    let is_range = (0.0..9e9).contains(&start) && (0.0..9e9).contains(&end) && start < end;
                    ensure!(is_range, "episode_ranges", "expected seconds from start to end, got {start} to {end}");
                }
                let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
                ensure!(apart, "episode_ranges", "expected ranges in order that do not overlap");
            }
        }
        Ok(())
    }

    /// For formats that have episodes and a clock of their own.
    pub(crate) fn ensure_default(&self, format: &str) -> Result<()> {
        if self.is_default() {
            return Ok(());
        }
        let argument = if self.clock == RecordedClock::default() { "episodes" } else { "clock" };
        let text = format!("{format} datasets have episodes and stamps of their own");
        Err(Error::new(ErrorKind::InvalidArgument, text).argument(argument))
    }
}
