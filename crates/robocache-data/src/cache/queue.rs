//! Pictures on their way into a shard: several videos are decoded at once, their pictures made smaller and
//! encoded where they were decoded, and written in their order.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use robocache::{Context, Error, ErrorKind, Result};

use super::jpeg::{JpegEncoder, Planes, halves};
use super::layout::{CachedStream, Encoding};
use super::pictures::{Chroma, encode_jpeg, resize, resize_depth};
use super::stats::StreamStats;
use super::work::{Open, Told, Work};
use crate::check::work::all;
use crate::findings::Progress;
use crate::frames::Frames;
use crate::model::{Kind, Samples};
use crate::video::{Levels, PixelFormat, Pixels, Wish};

/// Pictures per thread that wait to be encoded at once.
const PER_THREAD: usize = 4;
/// Bytes of them, at most; and of encoded ones that wait to be written, of all videos that are decoded at once.
const MOST_BYTES: usize = 64 << 20;
/// JPEG makes at least this of a picture, but for the worst.
const JPEG_RATIO: usize = 4;

/// The pictures of an episode: its number, its stamps, and where they are.
pub(super) type Part = (usize, Samples, Frames);

/// The first row of an episode and how many there are; what was seen in them.
pub(super) type Written = ((u64, u64), Option<StreamStats>);

/// A picture that is ready to be written.
struct Made {
    /// Its place in the group.
    episode: usize,
    time: i64,
    bytes: Vec<u8>,
    stats: Option<StreamStats>,
}

/// What comes from who decodes.
enum Step {
    Pictures(Vec<Made>),
    End(Result<()>),
}

/// What became of a group.
pub(super) struct Outcome {
    /// By episode.
    pub(super) written: Vec<Written>,
    /// Episodes from the first on whose pictures all came.
    pub(super) complete: usize,
    pub(super) outcome: Result<()>,
}

/// Decodes groups of episodes that share a video and hands each to `take` with its number, in their
/// order. Where a failure leaves episodes of a group behind, `take` gives how many are dealt with, and
/// the others are tried anew.
pub(super) fn write_groups<'w>(
    work: &Work<'w>,
    file: &mut Open<'w>,
    groups: &[&[Part]],
    (folder, told): (&Path, &Told<'_>),
    take: &mut dyn FnMut(&[Part], Outcome) -> Result<usize>,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let interrupted = || stop.load(Ordering::Relaxed) || (work.interrupted)();
    let at_once = work.threads.min(groups.len()).max(1);
    let form = Form {
        stream: file.stream,
        quality: work.source.quality,
        encoders: [Levels::Limited, Levels::Full].map(|levels| JpegEncoder::new(work.source.quality, levels)),
        has_stats: file.stats.is_some(),
        interrupted: &interrupted,
    };
    let mut target = Target { file, folder, told };
    let (next, mut senders, mut receivers) = (AtomicUsize::new(0), Vec::new(), Vec::new());
    for group in groups {
        let (sender, receiver) = sync_channel(form.waiting(group, work.threads));
        senders.push(Mutex::new(Some(sender)));
        receivers.push(receiver);
    }
    std::thread::scope(|scope| {
        for _ in 0..if at_once > 1 { at_once } else { 0 } {
            scope.spawn(|| {
                let _closing = Closing { senders: &senders };
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(group), Some(sender)) = (groups.get(at), senders.get(at).and_then(taken)) else { break };
                    let gone = |_| Error::new(ErrorKind::Interrupted, "interrupted");
                    // The last ones need not leave anything to others.
                    let threads = work.threads / at_once.min(groups.len() - at);
                    let done = form.decode(group, threads, &mut |made| sender.send(Step::Pictures(made)).map_err(gone));
                    // Nobody listens where the work was given up.
                    let _ = sender.send(Step::End(done));
                }
            });
        }
        let write = || {
            for (&group, receiver) in groups.iter().zip(receivers) {
                let outcome = match at_once {
                    1 => target.decode(&form, group, work.threads)?,
                    _ => target.receive(group, &receiver)?,
                };
                let mut rest = group;
                let mut done = take(rest, outcome)?;
                while done < rest.len() {
                    rest = rest.get(done..).unwrap_or_default();
                    let outcome = target.decode(&form, rest, 1)?;
                    done = take(rest, outcome)?;
                }
            }
            Ok(())
        };
        let outcome = write();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn taken(sender: &Mutex<Option<SyncSender<Step>>>) -> Option<SyncSender<Step>> {
    sender.lock().ok().and_then(|mut sender| sender.take())
}

/// If a decoder panics, its receivers must not block.
struct Closing<'a> {
    senders: &'a [Mutex<Option<SyncSender<Step>>>],
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.senders.iter().for_each(|sender| drop(taken(sender)));
        }
    }
}

/// Where pictures are written to.
struct Target<'q, 'w> {
    file: &'q mut Open<'w>,
    folder: &'q Path,
    told: &'q Told<'q>,
}

impl Target<'_, '_> {
    fn nothing(&self, group: &[Part]) -> Vec<Written> {
        vec![((0, 0), self.file.stats.as_ref().map(StreamStats::emptied)); group.len()]
    }

    /// Decodes a group here.
    fn decode(&mut self, form: &Form<'_>, group: &[Part], threads: usize) -> Result<Outcome> {
        let mut written = self.nothing(group);
        let mut failure = None;
        let outcome = form.decode(group, threads, &mut |made| {
            self.write(made, &mut written).map_err(|error| {
                failure = Some(error);
                Error::new(ErrorKind::Interrupted, "cannot write")
            })
        });
        // A failure to write does not go by with an episode.
        failure.map_or_else(|| Ok(ended(group, written, outcome)), Err)
    }

    /// Writes what another thread decodes.
    fn receive(&mut self, group: &[Part], receiver: &Receiver<Step>) -> Result<Outcome> {
        let mut written = self.nothing(group);
        loop {
            match receiver.recv() {
                Ok(Step::Pictures(made)) => self.write(made, &mut written)?,
                Ok(Step::End(outcome)) => return Ok(ended(group, written, outcome)),
                Err(_) => return Err(Error::new(ErrorKind::Interrupted, "a decoder's thread has ended")),
            }
        }
    }

    fn write(&mut self, made: Vec<Made>, written: &mut [Written]) -> Result<()> {
        self.told.pictures(made.len() as u64);
        for made in made {
            let row = self.file.writer.rows();
            self.file.writer.push(self.folder, made.time, &made.bytes)?;
            if let Some(((first, count), stats)) = written.get_mut(made.episode) {
                if *count == 0 {
                    *first = row;
                }
                *count += 1;
                if let (Some(all), Some(own)) = (stats, &made.stats) {
                    all.merge(own)?;
                }
            }
        }
        Ok(())
    }
}

fn ended(group: &[Part], written: Vec<Written>, outcome: Result<()>) -> Outcome {
    let is_whole = |(part, written): &(&Part, &Written)| part.2.len() as u64 == written.0.1;
    let complete = group.iter().zip(&written).take_while(is_whole).count();
    Outcome { written, complete, outcome }
}

/// What becomes of each picture.
struct Form<'a> {
    stream: &'a CachedStream,
    quality: u8,
    /// For planes, by their levels.
    encoders: [JpegEncoder; 2],
    has_stats: bool,
    interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// A decoded picture.
struct Waiting {
    episode: usize,
    time: i64,
    pixels: Vec<u8>,
    /// Of planes.
    levels: Option<Levels>,
}

impl Form<'_> {
    /// Batches of a group that may wait to be written.
    fn waiting(&self, group: &[Part], threads: usize) -> usize {
        let kept = match self.stream.encoding {
            Encoding::Jpeg => self.stream.row_bytes() / JPEG_RATIO,
            _ => self.stream.row_bytes(),
        };
        let bytes = group.first().map_or(1, |part| part.2.bytes());
        // Each has its share, and no more than is of use.
        (MOST_BYTES / (kept * together(bytes, threads) * threads).max(1)).clamp(1, 128)
    }

    /// Decodes the pictures of a group in one go and sends them as they are kept.
    fn decode(&self, group: &[Part], threads: usize, send: &mut dyn FnMut(Vec<Made>) -> Result<()>) -> Result<()> {
        let frames: Vec<Frames> = group.iter().map(|(_, _, frames)| frames.clone()).collect();
        let Some(joined) = Frames::join(&frames) else {
            return Ok(());
        };
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frames| {
                *end += frames.len();
                Some(*end)
            })
            .collect();
        let (shape, together) = (joined.shape(), together(joined.bytes(), threads));
        let (mut waiting, mut spare): (Vec<Waiting>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
        let (mut current, mut in_order) = (0, 0);
        let interrupt = || (self.interrupted)();
        let context = Context { interrupt: Some(&interrupt), ..Context::default() };
        let planes = self.stream.encoding == Encoding::Jpeg && self.stream.kind == Kind::Video;
        let format = if planes { PixelFormat::Yuv420 } else { PixelFormat::Rgb8 };
        let wish = Wish { format, threads };
        let outcome = joined.visit(0..joined.len(), wish, &context, &mut |sample, pixels| {
            if sample != in_order {
                return Err(Error::new(ErrorKind::CorruptData, "the video's order is not that of the stamps"));
            }
            in_order += 1;
            while ends.get(current).is_some_and(|&end| sample >= end) {
                current += 1;
            }
            let start = current.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
            let time = group.get(current).and_then(|part| part.1.times.get(sample - start)).copied();
            let (bytes, levels) = match pixels {
                Pixels::Packed(bytes) => (bytes, None),
                Pixels::Planes(bytes, levels) => (bytes, Some(levels)),
            };
            let mut pixels = spare.pop().unwrap_or_default();
            pixels.clear();
            pixels.extend_from_slice(bytes);
            waiting.push(Waiting { episode: current, time: time.unwrap_or_default(), pixels, levels });
            if waiting.len() < together {
                return Ok(());
            }
            send(self.make_all(&mut waiting, shape, threads, &mut spare)?)
        });
        // What was decoded before a failure counts.
        let rest = self.make_all(&mut waiting, shape, threads, &mut spare).and_then(send);
        outcome.and(rest)
    }

    fn make_all(
        &self,
        waiting: &mut Vec<Waiting>,
        shape: [usize; 3],
        threads: usize,
        spare: &mut Vec<Vec<u8>>,
    ) -> Result<Vec<Made>> {
        let make = |waiting: Waiting| self.make(waiting, shape);
        let made: Vec<(Made, Option<Vec<u8>>)> = match threads {
            0 | 1 => waiting.drain(..).map(make).collect::<Result<_>>()?,
            _ => {
                let each: Vec<Mutex<Option<Waiting>>> = waiting.drain(..).map(|one| Mutex::new(Some(one))).collect();
                let taken = |at: usize| each.get(at)?.lock().unwrap_or_else(PoisonError::into_inner).take();
                let make = |at: usize| taken(at).map(make).transpose();
                all(each.len(), &Progress::default(), &make)?.into_iter().flatten().collect()
            }
        };
        let keep = |(made, memory): (Made, Option<Vec<u8>>)| {
            spare.extend(memory);
            made
        };
        Ok(made.into_iter().map(keep).collect())
    }

    /// A picture as it is kept, and its memory where that is another.
    fn make(&self, waiting: Waiting, [height, width, channels]: [usize; 3]) -> Result<(Made, Option<Vec<u8>>)> {
        let Waiting { episode, time, pixels, levels } = waiting;
        let kept = |at: usize| self.stream.shape.get(at).copied().unwrap_or(0);
        let (from, to) = ((height, width), (kept(0), kept(1)));
        let resized = match levels {
            _ if from == to => None,
            Some(levels) => Some(resize_planes(&Planes::new(&pixels, height, width, levels)?, to)?),
            None if self.stream.kind == Kind::Depth => Some(resize_depth(&pixels, from, to)?),
            None => Some(resize(&pixels, from, to, channels)?),
        };
        let final_pixels = resized.as_deref().unwrap_or(&pixels);
        let mut stats = self.has_stats.then(|| StreamStats::new(channels));
        let encoded = match levels {
            Some(levels) => {
                let planes = Planes::new(final_pixels, to.0, to.1, levels)?;
                stats.as_mut().map_or(Ok(()), |stats| stats.add_planes(&planes))?;
                let [limited, full] = &self.encoders;
                Some(if levels == Levels::Full { full } else { limited }.encode(&planes)?)
            }
            None => {
                stats.as_mut().map_or(Ok(()), |stats| stats.add_picture(final_pixels, channels))?;
                // Videos have colour at half the resolution anyway.
                let chroma = if self.stream.kind == Kind::Video { Chroma::Half } else { Chroma::Full };
                let encode = || encode_jpeg(final_pixels, to.0, to.1, channels, self.quality, chroma);
                (self.stream.encoding == Encoding::Jpeg).then(encode).transpose()?
            }
        };
        let (bytes, memory) = match encoded.or(resized) {
            Some(bytes) => (bytes, Some(pixels)),
            None => (pixels, None),
        };
        Ok((Made { episode, time, bytes, stats }, memory))
    }
}

/// Pictures of a size that are encoded at once.
fn together(bytes: usize, threads: usize) -> usize {
    (threads * PER_THREAD).min(MOST_BYTES / bytes.max(1)).max(1)
}

/// Planes of another size.
fn resize_planes(planes: &Planes<'_>, to: (usize, usize)) -> Result<Vec<u8>> {
    let small = (halves(planes.height, planes.width), halves(to.0, to.1));
    let mut out = resize(planes.luma, (planes.height, planes.width), to, 1)?;
    out.extend(resize(planes.blue, small.0, small.1, 1)?);
    out.extend(resize(planes.red, small.0, small.1, 1)?);
    Ok(out)
}
