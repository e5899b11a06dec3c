//! How a recording is read, as it was typed.

use clap::{Args, ValueEnum};
use robocache::{Error, Result};
use robocache_data::{RecordedClock, RecordedEpisodes, Recording};

/// How a recording is read; datasets have a clock and episodes of their own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Recordings (MCAP)")]
pub(crate) struct Recorded {
    /// Which clock stamps messages: that of their headers, or the recorder's
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = Clock::Header)]
    pub(crate) clock: Clock,
    /// A new episode starts after so many seconds without a message
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["episode_topic", "episode_ranges"])]
    pub(crate) episode_gap: Option<f64>,
    /// Messages of this topic start episodes; false or an empty text ends one
    #[arg(long, value_name = "TOPIC", conflicts_with = "episode_ranges")]
    pub(crate) episode_topic: Option<String>,
    /// An episode, in seconds from the start of the recording; may be repeated
    #[arg(long = "episode-range", value_name = "START:END")]
    pub(crate) episode_ranges: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clock {
    Header,
    Log,
}

impl Recorded {
    /// What was asked for.
    pub(crate) fn resolve(&self) -> Result<Recording> {
        let range = |text: &String| {
            let parse = || {
                let (start, end) = text.split_once(':')?;
                Some((start.parse().ok()?, end.parse().ok()?))
            };
            parse().ok_or_else(|| {
                Error::invalid("--episode-range", format!("expected START:END in seconds, got {text:?}"))
            })
        };
        let episodes = match (self.episode_gap, &self.episode_topic) {
            (Some(gap), _) => RecordedEpisodes::Gap(gap),
            (None, Some(topic)) => RecordedEpisodes::Topic(topic.clone()),
            (None, None) if self.episode_ranges.is_empty() => RecordedEpisodes::Whole,
            (None, None) => RecordedEpisodes::Ranges(self.episode_ranges.iter().map(range).collect::<Result<_>>()?),
        };
        let clock = match self.clock {
            Clock::Header => RecordedClock::Header,
            Clock::Log => RecordedClock::Log,
        };
        Ok(Recording { clock, episodes })
    }
}
