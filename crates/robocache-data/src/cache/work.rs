//! What the work on a unit shares: its inputs, the files it writes, its progress.

use std::cell::Cell;
use std::path::Path;

use super::fs::Fs;
use super::layout::{CachedSource, CachedStream, Plan};
use super::shard::ShardWriter;
use super::stats::StreamStats;
use crate::dataset::Dataset;

/// Everything that the work on a unit needs.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) root: &'a Path,
    pub(crate) fs: &'a dyn Fs,
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a CachedSource,
    pub(crate) dataset: &'a Dataset,
    pub(crate) strict: bool,
    /// How many threads it may use: those that are not busy with other units.
    pub(crate) threads: usize,
    /// Told of frames that are done.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
    pub(crate) interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// A file of the unit while it is written.
pub(super) struct Open<'a> {
    pub(super) stream: &'a CachedStream,
    /// The stream's place in the source.
    pub(super) from: usize,
    pub(super) writer: ShardWriter,
    pub(super) stats: Option<StreamStats>,
}

/// Tells of frames as they are done: pictures take the time where there are some.
pub(super) struct Told<'a> {
    pub(super) progress: &'a (dyn Fn(u64) + Sync),
    /// Files of pictures: a frame is done with its picture of the last.
    pub(super) cameras: u64,
    pub(super) pictures: Cell<u64>,
    pub(super) frames: Cell<u64>,
}

impl Told<'_> {
    pub(super) fn pictures(&self, count: u64) {
        self.pictures.set(self.pictures.get() + count);
        self.up_to(self.pictures.get() / self.cameras.max(1));
    }

    pub(super) fn up_to(&self, frames: u64) {
        let more = frames.saturating_sub(self.frames.get());
        self.frames.set(self.frames.get() + more);
        (self.progress)(more);
    }
}
