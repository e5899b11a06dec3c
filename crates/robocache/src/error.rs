//! The one error type of the workspace.
//!
//! The text reads `op: argument: what is wrong`, with the path of a file last, so that a user
//! sees where to look before how it failed. Kinds are few and stable: the Python exceptions and
//! the command line's exit codes are made from them.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as a class that callers can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument has a wrong shape, type, device or content.
    InvalidArgument,
    /// The request is meaningful but not implemented, or not possible for this input.
    Unsupported,
    /// Memory could not be reserved.
    OutOfMemory,
    /// A file could not be opened, read or written.
    FileError,
    /// A file does not hold what its format promises.
    CorruptData,
    /// A limit that guards against hostile input was exceeded.
    LimitExceeded,
    /// No usable device of the requested kind.
    NoDevice,
    /// The device failed and stays unusable until the process ends.
    DeviceLost,
    /// The caller asked a long operation to stop.
    Interrupted,
}

impl ErrorKind {
    /// The kind in snake case, as users see it in `.kind` and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unsupported => "unsupported",
            Self::OutOfMemory => "out_of_memory",
            Self::FileError => "file_error",
            Self::CorruptData => "corrupt_data",
            Self::LimitExceeded => "limit_exceeded",
            Self::NoDevice => "no_device",
            Self::DeviceLost => "device_lost",
            Self::Interrupted => "interrupted",
        }
    }
}

/// An error with the place it belongs to.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    op: Option<&'static str>,
    argument: Option<Cow<'static, str>>,
    path: Option<PathBuf>,
    message: String,
    trail: Vec<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A new error of `kind`.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            op: None,
            argument: None,
            path: None,
            message: message.into(),
            trail: Vec::new(),
            source: None,
        }))
    }

    /// Shorthand for the most common kind, about a named argument.
    #[cold]
    pub fn invalid(argument: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message).argument(argument)
    }

    /// For a name that is none of the known ones: lists these, and points at the one that was probably meant. `kind` is
    /// what they are, such as "streams".
    #[cold]
    pub fn no_such<'a>(
        argument: impl Into<Cow<'static, str>>,
        kind: &str,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<_> = known.into_iter().collect();
        let meant = did_you_mean(given, known.iter().copied());
        Self::invalid(argument, format!("there is no {given:?}; the {kind} are {}{meant}", known.join(", ")))
    }

    /// Shorthand for something that is not implemented, about a named argument.
    #[cold]
    pub fn unsupported(argument: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message).argument(argument)
    }

    /// Names the op; an op that was named before stays.
    #[must_use]
    pub fn op(mut self, op: &'static str) -> Self {
        self.0.op.get_or_insert(op);
        self
    }

    /// Names the argument; one that was named before stays.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<Cow<'static, str>>) -> Self {
        self.0.argument.get_or_insert_with(|| argument.into());
        self
    }

    /// Names the part of an op's arguments that the named argument belongs to: `streams[2].times`.
    #[must_use]
    pub fn within(mut self, part: &str) -> Self {
        let argument = self.0.argument.take();
        self.0.argument = Some(Cow::Owned(argument.map_or_else(|| part.to_owned(), |name| format!("{part}.{name}"))));
        self
    }

    /// Names the file.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.0.path.get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says what was being done, innermost first.
    #[must_use]
    pub fn while_doing(mut self, what: impl Into<String>) -> Self {
        self.0.trail.push(what.into());
        self
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The op that failed.
    pub fn op_name(&self) -> Option<&'static str> {
        self.0.op
    }

    /// The argument at fault.
    pub fn argument_name(&self) -> Option<&str> {
        self.0.argument.as_deref()
    }

    /// The file at fault.
    pub fn file(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(op) = inner.op {
            write!(f, "{op}: ")?;
        }
        if let Some(argument) = &inner.argument {
            write!(f, "{}: ", printable(argument))?;
        }
        // A compiler's messages have several lines.
        for (index, line) in inner.message.split('\n').enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "\n" }, printable(line))?;
        }
        for step in &inner.trail {
            write!(f, ", while {}", printable(step))?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {}", printable(&source.to_string()))?;
        }
        if let Some(path) = &inner.path {
            write!(f, " ({})", shown_path(path))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Text from a file as a terminal may see it: nothing in it moves the cursor or turns the line.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if letter.is_control() || turns {
            safe.extend(letter.escape_default());
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// A path as errors show it: [`printable`], with U+FFFD for bytes that are no text.
pub fn shown_path(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Returns an `InvalidArgument` about a named argument unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $argument:expr, $($message:tt)+) => {
        if $condition {
        } else {
            return Err($crate::Error::invalid($argument, format!($($message)+)));
        }
    };
}

/// `; did you mean "linear"?` for a name that resembles a known one, else nothing.
#[cold]
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // Names are short; a text of megabytes is no slip of the finger.
    const LONGEST: usize = 128;
    if given.is_empty() || given.len() > LONGEST {
        return String::new();
    }
    let lower = given.to_lowercase();
    let distance = |name: &str| {
        let name = name.to_lowercase();
        // Of dotted names people often write the last part only.
        let is_end = name.strip_suffix(&lower).is_some_and(|front| front.ends_with(['.', '/', '_']));
        if is_end { 0 } else { strsim::osa_distance(&lower, &name) }
    };
    let count = given.chars().count();
    let most = |name: &str| (count.max(name.chars().count()) / 3).max(1);
    let near = known.into_iter().map(|name| (distance(name), name)).filter(|&(distance, name)| distance <= most(name));
    let nearest = near.min_by_key(|(distance, _)| *distance);
    nearest.map_or_else(String::new, |(_, name)| format!("; did you mean {name:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_op_argument_message_and_path_last() {
        let error = Error::invalid("times", "row 3 decreases at index 17")
            .while_doing("reading episode 4")
            .path("a/b.parquet")
            .op("resample");
        assert_eq!(
            error.to_string(),
            "resample: times: row 3 decreases at index 17, while reading episode 4 (a/b.parquet)"
        );
    }

    #[test]
    fn names_from_files_are_harmless() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}c é"), "a\\u{1b}[2Jb\\n\\u{202e}c é");
        let error = Error::invalid("streams[\"\x1b[2J\"]", "bad \x1b[31m name")
            .while_doing("reading a\nb")
            .caused_by(std::io::Error::other("a\rb"))
            .path("c\n\x1b[2Jd");
        assert_eq!(
            error.to_string(),
            "streams[\"\\u{1b}[2J\"]: bad \\u{1b}[31m name, while reading a\\nb: a\\rb (c\\n\\u{1b}[2Jd)"
        );
        // What a compiler says stays as it is.
        assert_eq!(Error::new(ErrorKind::NoDevice, "line 1\n  ^").to_string(), "line 1\n  ^");
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_no_text_are_shown() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"a\xff\n"));
        assert_eq!(Error::new(ErrorKind::FileError, "gone").path(path).to_string(), "gone (a\u{fffd}\\n)");
    }

    #[test]
    fn the_innermost_name_wins() {
        let error = Error::invalid("times", "x").op("resample").op("fuse").argument("values");
        assert_eq!((error.op_name(), error.argument_name()), (Some("resample"), Some("times")));
    }

    #[test]
    fn the_cause_is_kept() {
        let error = Error::new(ErrorKind::FileError, "cannot open").caused_by(std::io::Error::other("EIO"));
        assert_eq!(error.to_string(), "cannot open: EIO");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn a_name_that_resembles_another_is_pointed_at() {
        let streams = ["observation.state", "action", "observation.images.top"];
        for (given, meant) in [("state", "observation.state"), ("acton", "action"), ("Action", "action")] {
            let text = Error::no_such("stream", "streams", given, streams).to_string();
            assert!(text.ends_with(&format!("; did you mean {meant:?}?")), "{text}");
        }
        let text = Error::no_such("stream", "streams", "gripper", streams).to_string();
        assert!(text.ends_with("the streams are observation.state, action, observation.images.top"), "{text}");
        assert_eq!(did_you_mean(&"a".repeat(1 << 20), streams), "");
        assert_eq!(did_you_mean("", streams), "");
        assert_eq!(did_you_mean("x", []), "");
        assert_eq!(did_you_mean("linr", ["nearest", "linear"]), "; did you mean \"linear\"?");
        assert_eq!(did_you_mean("top", ["stop it now", "state"]), "");
    }
}
