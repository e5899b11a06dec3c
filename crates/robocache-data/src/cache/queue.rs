//! Pictures on their way into a shard: made smaller and encoded by all cores, written in their order.

use std::path::Path;

use rayon::prelude::*;
use robocache::Result;

use super::layout::{CachedStream, Encoding};
use super::pictures::{Chroma, encode_jpeg, resize, resize_depth};
use super::stats::StreamStats;
use super::unit::{Open, Told, Work};
use crate::model::Kind;

/// Pictures per thread that wait to be encoded at once.
const PER_THREAD: usize = 4;
/// Bytes of them, at most.
const MOST_BYTES: usize = 64 << 20;

/// The first row of an episode and how many there are; what was seen in them.
type Written = ((u64, u64), Option<StreamStats>);

/// Pictures of episodes that share a video.
pub(super) struct Queue<'q, 'w> {
    form: Form<'w>,
    file: &'q mut Open<'w>,
    threads: usize,
    waiting: Vec<Waiting>,
    /// Memory of pictures that were written.
    spare: Vec<Vec<u8>>,
    /// By episode.
    written: Vec<Written>,
    told: &'q Told<'q>,
}

struct Waiting {
    episode: usize,
    time: i64,
    pixels: Vec<u8>,
}

impl<'q, 'w> Queue<'q, 'w> {
    /// For pictures of a shape (height, width, channels) of so many episodes.
    pub(super) fn new(
        work: &Work<'w>,
        file: &'q mut Open<'w>,
        shape: [usize; 3],
        episodes: usize,
        told: &'q Told<'q>,
    ) -> Self {
        let form = Form { stream: file.stream, shape, quality: work.source.quality, has_stats: file.stats.is_some() };
        let empty = ((0, 0), file.stats.as_ref().map(StreamStats::emptied));
        let written = vec![empty; episodes];
        Self { form, file, threads: work.threads, waiting: Vec::new(), spare: Vec::new(), written, told }
    }

    /// Takes a picture of an episode.
    pub(super) fn push(&mut self, episode: usize, time: i64, pixels: &[u8], folder: &Path) -> Result<()> {
        let mut own = self.spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(pixels);
        self.waiting.push(Waiting { episode, time, pixels: own });
        let most = (self.threads * PER_THREAD).min(MOST_BYTES / pixels.len().max(1)).max(1);
        if self.waiting.len() >= most { self.write(folder) } else { Ok(()) }
    }

    /// Writes what waits; the rows and statistics of each episode.
    pub(super) fn finish(mut self, folder: &Path) -> Result<Vec<Written>> {
        self.write(folder)?;
        Ok(self.written)
    }

    fn write(&mut self, folder: &Path) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let form = &self.form;
        let make = |waiting: &Waiting| form.make(&waiting.pixels);
        let made: Vec<Made> = match self.threads {
            1 => waiting.iter().map(make).collect::<Result<_>>()?,
            _ => waiting.par_iter().map(make).collect::<Result<_>>()?,
        };
        self.told.pictures(made.len() as u64);
        for (waiting, made) in waiting.into_iter().zip(made) {
            let row = self.file.writer.rows();
            self.file.writer.push(folder, waiting.time, made.bytes.as_deref().unwrap_or(&waiting.pixels))?;
            if let Some(((first, count), stats)) = self.written.get_mut(waiting.episode) {
                if *count == 0 {
                    *first = row;
                }
                *count += 1;
                if let (Some(all), Some(own)) = (stats, &made.stats) {
                    all.merge(own)?;
                }
            }
            self.spare.push(waiting.pixels);
        }
        Ok(())
    }
}

/// What becomes of each picture.
struct Form<'a> {
    stream: &'a CachedStream,
    /// As it comes: height, width, channels.
    shape: [usize; 3],
    quality: u8,
    has_stats: bool,
}

struct Made {
    /// What is kept; the pixels as they came where there is nothing.
    bytes: Option<Vec<u8>>,
    stats: Option<StreamStats>,
}

impl Form<'_> {
    fn make(&self, pixels: &[u8]) -> Result<Made> {
        let [height, width, channels] = self.shape;
        let kept = |at: usize| self.stream.shape.get(at).copied().unwrap_or(0);
        let size = (kept(0), kept(1));
        let resized = match size == (height, width) {
            true => None,
            false if self.stream.kind == Kind::Depth => Some(resize_depth(pixels, (height, width), size)?),
            false => Some(resize(pixels, (height, width), size, channels)?),
        };
        let pixels = resized.as_deref().unwrap_or(pixels);
        let mut stats = self.has_stats.then(|| StreamStats::new(channels));
        if let Some(stats) = &mut stats {
            stats.add_picture(pixels, channels)?;
        }
        if self.stream.encoding != Encoding::Jpeg {
            return Ok(Made { bytes: resized, stats });
        }
        // Videos have colour at half the resolution anyway.
        let chroma = if self.stream.kind == Kind::Video { Chroma::Half } else { Chroma::Full };
        let bytes = encode_jpeg(pixels, size.0, size.1, channels, self.quality, chroma)?;
        Ok(Made { bytes: Some(bytes), stats })
    }
}
