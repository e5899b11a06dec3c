//! How far a benchmark is, and whether to go on.

use robocache::{Error, ErrorKind, Result};
use robocache_data::Progress;

/// Counts what is done, for who waits.
pub(super) struct Steps<'a> {
    pub(super) progress: &'a Progress<'a>,
    done: usize,
    all: usize,
}

impl<'a> Steps<'a> {
    pub(super) fn new(progress: &'a Progress<'a>, all: usize) -> Self {
        (progress.step)(0, all);
        Self { progress, done: 0, all }
    }

    /// So many more are done, or need not be.
    pub(super) fn step(&mut self, count: usize) {
        self.done += count;
        (self.progress.step)(self.done, self.all);
    }

    /// An error after Ctrl-C.
    pub(super) fn go_on(&self) -> Result<()> {
        match (self.progress.interrupted)() {
            true => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}
