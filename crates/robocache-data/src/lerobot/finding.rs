//! Errors of a dataset's files as findings.

use robocache::{Error, shown_path};

use super::root::Root;
use crate::check::{Code, codes};
use crate::files::is_lasting;
use crate::findings::{Finding, Level};

/// A finding with an error's text and file.
pub(super) fn finding_of(root: &Root, level: Level, code: &'static Code, error: &Error) -> Finding {
    let text = error.to_string();
    // What costs no episode keeps the code that tells what is lost.
    let code = if level < Level::Error || is_lasting(error) { code } else { &codes::UNREADABLE_NOW };
    let Some(path) = error.file() else {
        return Finding::new(level, code, text);
    };
    // The finding names the file itself, as the dataset does.
    let text = text.strip_suffix(&format!(" ({})", shown_path(path))).unwrap_or(&text);
    Finding::new(level, code, text).path(root.shown(path))
}
