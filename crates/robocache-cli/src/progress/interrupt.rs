//! Ctrl-C as a question instead of an end.

use std::sync::atomic::{AtomicU32, Ordering};

/// How often Ctrl-C was pressed.
static PRESSED: AtomicU32 = AtomicU32::new(0);

extern "C" fn note(_signal: libc::c_int) {
    PRESSED.fetch_add(1, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed while it was being caught.
pub(super) fn is_interrupted() -> bool {
    PRESSED.load(Ordering::Relaxed) > 0
}

/// Whether it was pressed again.
pub(super) fn is_insisted_on() -> bool {
    PRESSED.load(Ordering::Relaxed) > 1
}

/// Catches Ctrl-C while it lives; then it does again what it did before.
#[derive(Debug)]
pub(super) struct Caught {
    before: Option<libc::sighandler_t>,
}

impl Caught {
    pub(super) fn new() -> Self {
        PRESSED.store(0, Ordering::Relaxed);
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only adds to an atomic, which is allowed at any point of a program.
        let before = unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
        let caught = Self { before: (before != libc::SIG_ERR).then_some(before) };
        if before == libc::SIG_IGN {
            // A program in the background, which does not listen to the keyboard: it stays so.
            drop(caught);
            return Self { before: None };
        }
        caught
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: `before` is what the system said was in place.
            unsafe { libc::signal(libc::SIGINT, before) };
        }
    }
}
