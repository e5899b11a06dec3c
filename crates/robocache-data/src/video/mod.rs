//! Video files: what an MP4 file says of its frames, and the frames themselves.
//!
//! The index is read here, without decoding: the container's own timestamps are what the frames of
//! a recording are found by. Decoding is the `ffmpeg` program's work, as a child process.

mod boxes;
mod child;
mod codec;
mod decode;
mod ffmpeg;
mod fragments;
mod index;
mod plan;
mod report;
mod samples;
#[cfg(test)]
mod tests;

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use robocache::{Context, Error, ErrorKind, Result};

pub use ffmpeg::{Ffmpeg, search_ffmpeg_in};

use crate::files::RegularFile;
use crate::limits::{Limits, corrupt, file_error};
use index::Edits;
use samples::Sample;

/// What decoded frames look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PixelFormat {
    /// Packed RGB, 8 bits each: `[height, width, 3]` bytes, as ffmpeg converts the video's colours.
    Rgb8,
    /// The luma samples as they were coded, as little-endian `u16`: `[height, width, 2]` bytes.
    /// For depth video of more than 8 bits; values keep the stream's own depth (12 bits give 0..4095).
    Gray16,
    /// Planes as they were coded: luma, then the two of colour with half the rows and columns, 8 bits each.
    /// For videos that are coded so, in the colours that JPEG has.
    Yuv420,
}

impl PixelFormat {
    /// Bytes of a frame.
    fn bytes(self, width: u16, height: u16) -> u64 {
        let (width, height) = (u64::from(width), u64::from(height));
        match self {
            Self::Rgb8 => 3 * width * height,
            Self::Gray16 => 2 * width * height,
            Self::Yuv420 => width * height + 2 * width.div_ceil(2) * height.div_ceil(2),
        }
    }
}

/// Which numbers mean black and white in planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Levels {
    /// 16 and 235; colours from 16 to 240.
    Limited,
    /// 0 and 255, as in JPEG.
    Full,
}

/// A decoded frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pixels<'a> {
    /// Packed, in the format that was asked for.
    Packed(&'a [u8]),
    /// Planes as [`PixelFormat::Yuv420`] has them.
    Planes(&'a [u8], Levels),
}

/// How frames are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) format: PixelFormat,
    /// Threads of the decoder.
    pub(crate) threads: usize,
}

/// An MP4 file's own account of its first video track.
///
/// Frames are numbered in the order in which they are shown. Rotation that a phone may have noted
/// is not applied: sizes and pixels are those of the bitstream.
#[derive(Debug)]
pub(crate) struct VideoFile {
    path: PathBuf,
    stamp: (u64, Option<SystemTime>),
    limits: Limits,
    track: u32,
    codec: String,
    width: u16,
    height: u16,
    timescale: u32,
    /// All coded frames by time; edits may show only part of them.
    samples: Vec<Sample>,
    /// The first coded frame that is shown.
    first: usize,
    /// Of the frames that are shown, in nanoseconds.
    times: Vec<i64>,
    short: Option<String>,
}

impl VideoFile {
    /// Reads the index of a file; nothing is decoded.
    ///
    /// A file whose last frames are missing is opened all the same: see [`VideoFile::short`].
    pub(crate) fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let file = RegularFile::open(path)?;
        let index = index::read(path, &file, file.metadata().len(), limits).map_err(|error| error.path(path))?;
        let mut samples = index.samples;
        if samples.is_empty() {
            return Err(corrupt(path, "the video track has no frames"));
        }
        samples.sort_by_key(|sample| sample.time);
        let (first, times) = shown(&samples, index.edits, index.timescale).map_err(|error| error.path(path))?;
        Ok(Self {
            path: path.to_path_buf(),
            stamp: stamp(file.metadata()),
            limits: *limits,
            track: index.track,
            codec: index.entry.codec,
            width: index.entry.width,
            height: index.entry.height,
            timescale: index.timescale,
            samples,
            first,
            times,
            short: index.short,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the bitstream is, by ffmpeg's name: "av1", "h264", "hevc", "mpeg4", "vp9", ...; an
    /// unknown one by the container's four letters.
    pub(crate) fn codec(&self) -> &str {
        &self.codec
    }

    /// Pixels per row.
    pub(crate) fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// Rows.
    pub(crate) fn height(&self) -> usize {
        usize::from(self.height)
    }

    /// How many frames are shown.
    pub(crate) fn frames(&self) -> usize {
        self.times.len()
    }

    /// When each frame is shown, in nanoseconds, ascending: composition times after the edit list,
    /// rounded once.
    pub(crate) fn times(&self) -> &[i64] {
        &self.times
    }

    /// Whether decoding can start at each frame.
    #[cfg(test)]
    fn keyframes(&self) -> impl Iterator<Item = bool> {
        self.shown_samples().iter().map(|sample| sample.key)
    }

    /// Why the file is shorter than its index says, where it is. The frames that are missing give
    /// an error when they are decoded.
    pub(crate) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// The first frame whose bytes the file does not have.
    pub(crate) fn first_missing(&self) -> Option<usize> {
        self.shown_samples().iter().position(|sample| !sample.whole)
    }

    /// The frame nearest to a time and how far it is off, positive where the frame is later. Of two
    /// that are equally near, the earlier one.
    pub(crate) fn nearest(&self, time_ns: i64) -> (usize, i64) {
        let after = self.times.partition_point(|&time| time < time_ns);
        let off = |index: usize| self.times.get(index).map(|time| (index, time.saturating_sub(time_ns)));
        let before = after.checked_sub(1).and_then(off);
        match (before, off(after)) {
            (Some(before), Some(after)) if after.1.unsigned_abs() < before.1.unsigned_abs() => after,
            (Some(before), _) => before,
            // A video has at least one frame.
            (None, after) => after.unwrap_or((0, i64::MAX)),
        }
    }

    /// Decodes the frames with these indices, which must ascend, and hands each to `sink` with its
    /// index. The frames that come are proved to be the ones that are meant by their timestamps. Where
    /// planes are wanted of a video that has others than those, packed RGB comes.
    ///
    /// Without an `ffmpeg` program this is `Unsupported`, with what was searched.
    pub(crate) fn decode(
        &self,
        frames: &[usize],
        wish: Wish,
        context: &Context<'_>,
        sink: &mut dyn FnMut(usize, Pixels<'_>) -> Result<()>,
    ) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.decode_with(&Ffmpeg::find()?, frames, wish, context, sink)
    }

    fn shown_samples(&self) -> &[Sample] {
        self.samples.get(self.first..).and_then(|rest| rest.get(..self.times.len())).unwrap_or_default()
    }

    /// Refuses a file that was replaced since its index was read.
    fn check_unchanged(&self) -> Result<()> {
        if stamp(RegularFile::open(&self.path)?.metadata()) == self.stamp {
            return Ok(());
        }
        Err(Error::new(ErrorKind::FileError, "the file changed since its index was read").path(&self.path))
    }

    /// Reads all of the file, to see what keeps others from reading it.
    fn ensure_readable(&self) -> Result<()> {
        let file = RegularFile::open(&self.path)?;
        let (mut buffer, mut at, length) = (vec![0; 1 << 20], 0, file.metadata().len());
        while at < length {
            let count = buffer.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let place = buffer.get_mut(..count).unwrap_or_default();
            file.read_exact_at(place, at).map_err(|error| file_error(&self.path, "cannot read", error))?;
            at += count as u64;
        }
        Ok(())
    }
}

/// For the fuzz target: everything that is made of a file's index. Returns how many frames are shown.
pub(crate) fn examine(path: &Path, limits: &Limits) -> Result<usize> {
    let video = VideoFile::open(path, limits)?;
    let mut wanted: Vec<usize> = video.times().iter().map(|&time| video.nearest(time).0).collect();
    wanted.dedup();
    if !video.times().is_sorted() || !wanted.is_sorted() || video.first_missing() >= Some(video.frames()) {
        return Err(Error::invalid("video", "frames in the wrong order"));
    }
    for segment in plan::segments(&video.samples, wanted.iter().map(|frame| video.first + frame)) {
        segment.seek(&video.samples, video.timescale);
        segment.filter(&video.samples, video.timescale);
    }
    Ok(video.frames())
}

fn stamp(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

/// The part of the sorted samples that is shown: where it starts, and its times.
fn shown(samples: &[Sample], edits: Edits, timescale: u32) -> Result<(usize, Vec<i64>)> {
    let (first, last) = if edits.listed {
        let first = samples.partition_point(|sample| sample.time < edits.start);
        (first, samples.partition_point(|sample| sample.time < edits.end))
    } else {
        (0, samples.len())
    };
    let shown = samples.get(first..last).unwrap_or_default();
    let Some(start) = shown.first() else {
        return Err(Error::new(ErrorKind::CorruptData, "the track's edit list shows none of its frames"));
    };
    // With an edit list the first frame that is shown starts the presentation, even where the edit
    // starts between two frames: ffmpeg's rule, which everyone's timestamps follow.
    let shift = if edits.listed { edits.delay.checked_sub(start.time) } else { Some(0) };
    let mut times = Vec::new();
    times
        .try_reserve_exact(shown.len())
        .map_err(|error| Error::new(ErrorKind::OutOfMemory, format!("{} frame times", shown.len())).caused_by(error))?;
    for sample in shown {
        let time = shift.and_then(|shift| nanoseconds(sample.time.checked_add(shift)?, timescale));
        let Some(time) = time else {
            let text = format!("a frame is shown at {} units of 1/{timescale} s", sample.time);
            return Err(Error::new(ErrorKind::CorruptData, text));
        };
        times.push(time);
    }
    Ok((first, times))
}

/// Media units as nanoseconds, to the nearest.
fn nanoseconds(units: i64, timescale: u32) -> Option<i64> {
    let scale = i128::from(timescale);
    let doubled = i128::from(units) * 2_000_000_000 + scale;
    i64::try_from(doubled.div_euclid(scale * 2)).ok()
}
