//! A window on its way through a batch.

use robocache::{Error, ErrorKind, Result};

use super::episodes::{Sample, View};

/// How a batch is made.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Asked before every sample and every picture: whether nobody wants the batch any more.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Threads that share the pictures.
    pub threads: usize,
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Work<'_> {
    pub(super) fn check(&self) -> Result<()> {
        if (self.stop)() { Err(Error::new(ErrorKind::Interrupted, "interrupted")) } else { Ok(()) }
    }
}

/// A sample, and when it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchored<'w> {
    pub(super) sample: Sample,
    pub(super) view: &'w View<'w>,
    pub(super) time: i64,
    /// Nanoseconds since the episode's first anchor.
    pub(super) since: i64,
}

/// A step of a window that the engine computes: it lies between samples, or its method has a normal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The window's place in its batch.
    pub(super) window: usize,
    pub(super) step: usize,
    /// When: the stamp of a sample where the step is that sample.
    pub(super) target: i64,
    /// The sample at or before it.
    pub(super) before: usize,
}
