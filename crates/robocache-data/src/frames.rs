//! The pictures of a stream in one episode, decoded when asked for.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use robocache::{Context, DType, Error, ErrorKind, Result, Tensor, ensure};

use crate::Limits;
use crate::image::{Pixels, decode_image};
use crate::limits::{corrupt, exceeds};
use crate::video::{PixelFormat, VideoFile};

/// Pictures, one per sample.
#[derive(Debug, Clone)]
pub struct Frames {
    pictures: Pictures,
    /// `[height, width, channels]`.
    shape: [usize; 3],
    limits: Limits,
}

#[derive(Debug, Clone)]
enum Pictures {
    /// PNG or JPEG, as a table holds them. The path is the table's.
    Encoded { path: PathBuf, bytes: BinaryArray },
    /// Frames of a video, by number, one per sample.
    Video { file: Arc<VideoFile>, frames: Arc<[usize]> },
}

impl Frames {
    pub(crate) fn encoded(path: &Path, bytes: BinaryArray, shape: [usize; 3], limits: &Limits) -> Self {
        Self { pictures: Pictures::Encoded { path: path.to_path_buf(), bytes }, shape, limits: *limits }
    }

    pub(crate) fn video(file: Arc<VideoFile>, frames: Vec<usize>, limits: &Limits) -> Self {
        let shape = [file.height(), file.width(), 3];
        Self { pictures: Pictures::Video { file, frames: frames.into() }, shape, limits: *limits }
    }

    /// How many pictures there are.
    pub fn len(&self) -> usize {
        match &self.pictures {
            Pictures::Encoded { bytes, .. } => bytes.len(),
            Pictures::Video { frames, .. } => frames.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[height, width, channels]` of each; 8 bits per channel.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Bytes of one decoded picture.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product()
    }

    /// Decodes pictures and hands each to `sink` with its number. They come in the order of the
    /// numbers, unless the video's order is another.
    pub fn for_each(
        &self,
        range: Range<usize>,
        context: &Context<'_>,
        sink: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        ensure!(
            range.start <= range.end && range.end <= self.len(),
            "range",
            "expected samples within 0..{}, got {range:?}",
            self.len()
        );
        match &self.pictures {
            Pictures::Encoded { path, bytes } => {
                for sample in range {
                    if context.interrupt.is_some_and(|interrupt| interrupt()) {
                        return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
                    }
                    self.decode_one(path, bytes, sample, sink)?;
                }
                Ok(())
            }
            Pictures::Video { file, frames } => {
                let wanted = frames.get(range.clone()).unwrap_or_default();
                let mut samples: Vec<(usize, usize)> = wanted.iter().copied().zip(range).collect();
                samples.sort_unstable();
                let mut unique: Vec<usize> = samples.iter().map(|&(frame, _)| frame).collect();
                unique.dedup();
                let mut samples = samples.as_slice();
                file.decode(&unique, PixelFormat::Rgb8, context, &mut |frame, pixels| {
                    // A frame can stand for several samples where the video is slower than the clock.
                    while let [(first, sample), rest @ ..] = samples
                        && *first == frame
                    {
                        sink(*sample, pixels)?;
                        samples = rest;
                    }
                    Ok(())
                })
            }
        }
    }

    fn decode_one(
        &self,
        path: &Path,
        bytes: &BinaryArray,
        sample: usize,
        sink: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = |error: Error| error.while_doing(format!("decoding picture {sample}"));
        if bytes.is_null(sample) {
            return Err(corrupt(path, format!("picture {sample} is missing")));
        }
        let image = decode_image(path, bytes.value(sample), &self.limits).map_err(place)?;
        let [height, width, channels] = self.shape;
        let size = image.size;
        if [size.height, size.width, size.channels] != self.shape {
            return Err(corrupt(
                path,
                format!(
                    "picture {sample} is {} x {} with {} channels, expected {height} x {width} with {channels}",
                    size.height, size.width, size.channels
                ),
            ));
        }
        match &image.pixels {
            Pixels::U8(pixels) => sink(sample, pixels),
            Pixels::U16(_) => {
                Err(Error::new(ErrorKind::Unsupported, "pictures of 16 bits are not read yet").path(path))
            }
        }
    }

    /// Decodes pictures into one tensor `[samples, height, width, channels]`.
    pub fn decode(&self, range: Range<usize>, context: &Context<'_>) -> Result<Tensor> {
        let [height, width, channels] = self.shape;
        let count = range.len();
        let bytes = (self.bytes() as u64).saturating_mul(count as u64);
        if bytes > self.limits.max_alloc {
            let text = format!(
                "{count} pictures take {bytes} bytes, more than max_alloc ({}); read fewer at a time",
                self.limits.max_alloc
            );
            return Err(exceeds(self.path(), text));
        }
        let mut tensor = Tensor::zeros(&[count, height, width, channels], DType::U8)?;
        let pixels = tensor.as_mut_slice::<u8>()?;
        let (size, first, mut seen) = (self.bytes(), range.start, 0);
        self.for_each(range, context, &mut |sample, picture| {
            let start = (sample - first) * size;
            if let Some(place) = pixels.get_mut(start..start + size).filter(|place| place.len() == picture.len()) {
                place.copy_from_slice(picture);
                seen += 1;
            }
            Ok(())
        })?;
        if seen != count {
            return Err(corrupt(self.path(), format!("{seen} of {count} pictures could be decoded")));
        }
        Ok(tensor)
    }

    fn path(&self) -> &Path {
        match &self.pictures {
            Pictures::Encoded { path, .. } => path,
            Pictures::Video { file, .. } => file.path(),
        }
    }
}
