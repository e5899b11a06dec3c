//! Bounds on what a file can make the readers do, and the guard around third-party readers.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use robocache::{Error, ErrorKind, Result};

/// What a file may cost before it is refused with `LimitExceeded`. Applied before memory is
/// reserved; the defaults are far above what recordings need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one read may reserve beyond what the file really holds.
    pub max_alloc: u64,
    /// Bytes that decompression may make of one byte.
    pub max_ratio: u64,
    /// Levels of nesting in schemas and JSON; of JSON no more than 127 in any case.
    pub max_depth: usize,
    /// Bytes of metadata (footers, JSON files) of one file.
    pub max_metadata: u64,
    /// Pixels of one image or video frame.
    pub max_pixels: u64,
    /// Frames of one video file.
    pub max_frames: u64,
    /// How long a decoder may take without giving a frame.
    pub max_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_alloc: 1 << 30,
            max_ratio: 1000,
            max_depth: 64,
            max_metadata: 256 << 20,
            max_pixels: 1 << 26,
            max_frames: 1 << 24,
            max_stall: Duration::from_secs(60),
        }
    }
}

/// An error about the content of a file.
#[cold]
pub(crate) fn corrupt(path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::CorruptData, message).path(path)
}

/// An error about a limit that the content of a file exceeds.
#[cold]
pub(crate) fn exceeds(path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::LimitExceeded, message).path(path)
}

/// An error of the file system.
#[cold]
pub(crate) fn file_error(path: &Path, what: &str, source: std::io::Error) -> Error {
    Error::new(ErrorKind::FileError, what).caused_by(source).path(path)
}

/// Characters of a panic's message that an error repeats.
const LONGEST_MESSAGE: usize = 160;

/// Runs a third-party reader: a panic in it is an error about the file, and prints nothing.
///
/// A panic hook that the program sets after the first call of this function is on top of ours, and is
/// told of these panics too.
pub(crate) fn guarded<T>(path: &Path, what: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    unwound(what, read).map_err(|error| error.path(path))
}

/// As [`guarded`] for what comes from no file.
pub(crate) fn unwound<T>(what: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    silence_guarded_panics();
    let counted = || {
        let _inside = Inside::enter();
        read()
    };
    catch_unwind(AssertUnwindSafe(counted))
        .unwrap_or_else(|panic| Err(Error::new(ErrorKind::CorruptData, gave_up(what, &*panic))))
}

fn gave_up(what: &str, panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked");
    // The message may repeat bytes of the file.
    let message: String = message.chars().take(LONGEST_MESSAGE).flat_map(char::escape_debug).collect();
    format!("{what}: the reader gave up on this file: {message}")
}

thread_local! {
    /// How many calls of [`guarded`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in [`guarded`].
pub(crate) fn is_guarded() -> bool {
    DEPTH.get() > 0
}

/// One call of [`guarded`], until it returns or unwinds.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get().saturating_add(1));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Puts a hook before the one of the process that keeps silent about panics in [`guarded`].
fn silence_guarded_panics() {
    // Not a `Once`: a child that is forked while another thread runs one waits for ever.
    static DONE: AtomicBool = AtomicBool::new(false);
    // While this thread unwinds, hooks cannot be changed: a later call does it.
    if DONE.load(Ordering::Relaxed) || std::thread::panicking() || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_guarded() {
            earlier(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give_up(text: &str) -> Error {
        guarded::<()>(Path::new("a.file"), "part", || panic!("{text}")).unwrap_err()
    }

    #[test]
    fn a_panic_in_a_reader_is_an_error_with_its_words() {
        let error = give_up("no such \u{1b}[31mpage\n");
        assert_eq!((error.kind(), error.file()), (ErrorKind::CorruptData, Some(Path::new("a.file"))));
        let text = error.to_string();
        assert!(text.contains("part: the reader gave up on this file: no such \\u{1b}[31mpage\\n"), "{text}");
        assert!(give_up(&"long ".repeat(1000)).to_string().len() < 300);
    }

    /// In a process of its own, since the hook is the whole process's.
    #[test]
    fn only_panics_in_readers_are_silent() {
        const ROLE: &str = "ROBOCACHE_TEST_SILENT_PANICS";
        if std::env::var_os(ROLE).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", "limits::tests::only_panics_in_readers_are_silent", "--nocapture"]);
            let done = again.env(ROLE, "").output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{said}");
            assert_eq!((said.matches("hushed").count(), said.matches("loud").count()), (0, 4), "{said}");
            return;
        }
        let path = Path::new("a.file");
        let _ = catch_unwind(|| panic!("loud before"));
        let _ = catch_unwind(|| {
            // The first call of all comes while this thread unwinds.
            struct Late;
            impl Drop for Late {
                fn drop(&mut self) {
                    guarded(Path::new("a.file"), "late", || Ok(())).unwrap();
                }
            }
            let _late = Late;
            panic!("loud in front of the first call");
        });
        give_up("hushed");
        let nested = guarded::<()>(path, "outer", || {
            give_up("hushed inside");
            panic!("hushed between");
        });
        assert!(nested.unwrap_err().to_string().contains("hushed between"));
        let other = guarded(path, "a thread", || Ok(std::thread::spawn(|| panic!("loud elsewhere")).join().is_err()));
        assert!(other.unwrap());
        assert!(!is_guarded());
        let _ = catch_unwind(|| panic!("loud after"));
    }
}
