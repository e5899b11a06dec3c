//! What a check found.

use std::fmt;
use std::path::{Path, PathBuf};

use robocache::{printable, shown_path};
use serde::{Serialize, Serializer};

use crate::check::Code;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Worth knowing.
    Note,
    /// Training works, perhaps not as meant.
    Warning,
    /// An episode, or the dataset, cannot be trusted.
    Error,
}

impl Level {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// A stable name of what it is: one of [`CODES`](crate::CODES).
    pub code: &'static str,
    /// The number of the episode.
    pub episode: Option<u64>,
    /// The name of the stream.
    pub stream: Option<String>,
    /// The file, as the dataset names it.
    #[serde(serialize_with = "as_text")]
    pub path: Option<PathBuf>,
    /// What was expected, what came.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(level: Level, code: &'static Code, message: impl Into<String>) -> Self {
        Self { level, code: code.name, episode: None, stream: None, path: None, message: message.into() }
    }

    pub(crate) fn error(code: &'static Code, message: impl Into<String>) -> Self {
        Self::new(Level::Error, code, message)
    }

    pub(crate) fn warning(code: &'static Code, message: impl Into<String>) -> Self {
        Self::new(Level::Warning, code, message)
    }

    pub(crate) fn note(code: &'static Code, message: impl Into<String>) -> Self {
        Self::new(Level::Note, code, message)
    }

    pub(crate) fn episode(mut self, index: u64) -> Self {
        self.episode = Some(index);
        self
    }

    pub(crate) fn stream(mut self, name: &str) -> Self {
        self.stream = Some(name.to_owned());
        self
    }

    pub(crate) fn path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_path_buf());
        self
    }

    /// The place in words: episode, stream, file.
    pub fn place(&self) -> String {
        let episode = self.episode.map(|index| format!("episode {index}"));
        let stream = self.stream.as_deref().map(printable);
        let path = self.path.as_deref().map(shown_path);
        let parts: Vec<_> = [episode, stream, path].into_iter().flatten().collect();
        parts.join(", ")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.level.name(), self.code)?;
        let place = self.place();
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&printable(&self.message))
    }
}

/// A path in JSON, which holds text only: U+FFFD stands for bytes that are none.
fn as_text<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}

/// All that a check found.
#[derive(Debug)]
pub(crate) struct Checked {
    /// For people: many that are alike are told as one.
    pub(crate) findings: Vec<Finding>,
    /// The first error of every episode and stream that has one.
    pub(crate) errors: Vec<Finding>,
}

/// Told how far a long look is; asked whether to go on.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    /// Called after every step, from any thread.
    pub step: &'a (dyn Fn(usize, usize) + Sync),
    /// Whether to stop.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl Default for Progress<'_> {
    fn default() -> Self {
        Self { step: &|_, _| {}, interrupted: &|| false }
    }
}
