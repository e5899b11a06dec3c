//! The pictures of a stream in one episode, decoded when asked for.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use robocache::{Context, DType, Error, ErrorKind, Result, Tensor, ensure};

use crate::Limits;
use crate::image::{Pixels, decode_image};
use crate::limits::{corrupt, exceeds};
use crate::video::{self, PixelFormat, VideoFile, Wish};

/// Pictures, one per sample.
#[derive(Debug, Clone)]
pub struct Frames {
    pictures: Pictures,
    /// `[height, width, channels]`.
    shape: [usize; 3],
    dtype: DType,
    limits: Limits,
}

/// How a video of distances was quantised, in metres, as LeRobot notes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DepthCode {
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) shift: f64,
    pub(crate) logarithmic: bool,
}

impl DepthCode {
    /// Codes have 12 bits.
    const CODES: usize = 4096;

    /// Whether codes can be turned back.
    pub(crate) fn is_sound(&self) -> bool {
        let range = self.least.is_finite() && self.most.is_finite() && self.shift.is_finite();
        range && self.least < self.most && (!self.logarithmic || self.least + self.shift > 0.0)
    }

    /// Millimetres by code.
    fn table(&self) -> Arc<[u16]> {
        let Self { least, most, shift, logarithmic } = *self;
        let metres = |code: usize| {
            let part = code as f64 / (Self::CODES - 1) as f64;
            let metres = if logarithmic {
                let (low, high) = ((least + shift).ln(), (most + shift).ln());
                (low + part * (high - low)).exp() - shift
            } else {
                least + part * (most - least)
            };
            metres.clamp(least, most)
        };
        (0..Self::CODES).map(|code| (metres(code) * 1e3).round_ties_even().clamp(0.0, 65535.0) as u16).collect()
    }
}

#[derive(Debug, Clone)]
enum Pictures {
    /// PNG or JPEG, as a table holds them. The path is the table's.
    Encoded { path: PathBuf, bytes: BinaryArray },
    /// Frames of a video, by number, one per sample; for distances with what their codes mean.
    Video { file: Arc<VideoFile>, frames: Arc<[usize]>, depth: Option<Arc<[u16]>> },
    /// In messages, fetched one by one.
    Stored(Arc<dyn StoredPictures>),
}

/// Pictures that a format keeps one by one and fetches when they are asked for.
pub(crate) trait StoredPictures: fmt::Debug + Send + Sync {
    fn len(&self) -> usize;
    /// The file, for errors.
    fn path(&self) -> &Path;
    /// Hands out one of them.
    fn with(&self, sample: usize, sink: &mut dyn FnMut(Stored<'_>) -> Result<()>) -> Result<()>;
}

/// A picture as it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// PNG or JPEG.
    Encoded(&'a [u8]),
    /// Pixels in the shape and the type of all, little-endian.
    Raw(&'a [u8]),
}

impl Frames {
    pub(crate) fn encoded(path: &Path, bytes: BinaryArray, shape: [usize; 3], dtype: DType, limits: &Limits) -> Self {
        Self { pictures: Pictures::Encoded { path: path.to_path_buf(), bytes }, shape, dtype, limits: *limits }
    }

    pub(crate) fn video(file: Arc<VideoFile>, frames: Vec<usize>, depth: Option<DepthCode>, limits: &Limits) -> Self {
        let (channels, dtype) = if depth.is_some() { (1, DType::U16) } else { (3, DType::U8) };
        let shape = [file.height(), file.width(), channels];
        let depth = depth.map(|code| code.table());
        Self { pictures: Pictures::Video { file, frames: frames.into(), depth }, shape, dtype, limits: *limits }
    }

    pub(crate) fn stored(pictures: Arc<dyn StoredPictures>, shape: [usize; 3], dtype: DType, limits: &Limits) -> Self {
        Self { pictures: Pictures::Stored(pictures), shape, dtype, limits: *limits }
    }

    /// Whether these pictures come after `earlier` in the same video, so that one pass decodes both.
    pub(crate) fn follows(&self, earlier: &Self) -> bool {
        match (&self.pictures, &earlier.pictures) {
            (Pictures::Video { file, frames, .. }, Pictures::Video { file: before, frames: others, .. }) => {
                file.path() == before.path()
                    && frames.first().zip(others.last()).is_some_and(|(next, last)| next > last)
            }
            _ => false,
        }
    }

    /// Pictures that follow each other, as one; the first alone where they do not.
    pub(crate) fn join(parts: &[Self]) -> Option<Self> {
        let mut joined = parts.first()?.clone();
        let all_follow = parts.windows(2).all(|pair| pair[1].follows(&pair[0]));
        if let Pictures::Video { frames, .. } = &mut joined.pictures
            && all_follow
        {
            let numbers = |part: &Self| match &part.pictures {
                Pictures::Video { frames, .. } => frames.to_vec(),
                Pictures::Encoded { .. } | Pictures::Stored(_) => Vec::new(),
            };
            *frames = parts.iter().flat_map(numbers).collect();
        }
        Some(joined)
    }

    /// How many pictures there are.
    pub fn len(&self) -> usize {
        match &self.pictures {
            Pictures::Encoded { bytes, .. } => bytes.len(),
            Pictures::Video { frames, .. } => frames.len(),
            Pictures::Stored(pictures) => pictures.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[height, width, channels]` of each.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// `U8`, or `U16` for distances: millimetres in a video, what was stored in pictures.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of one decoded picture.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    fn ensure_range(&self, range: &Range<usize>) -> Result<()> {
        let inside = range.start <= range.end && range.end <= self.len();
        ensure!(inside, "range", "expected samples within 0..{}, got {range:?}", self.len());
        Ok(())
    }

    /// Decodes pictures and hands the bytes of each (little-endian) to `sink` with its number. They
    /// come in the order of the numbers, unless the video's order is another.
    pub fn for_each(
        &self,
        range: Range<usize>,
        context: &Context<'_>,
        sink: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.visit(range, Wish::alone(PixelFormat::Rgb8), context, &mut |sample, pixels| match pixels {
            video::Pixels::Packed(pixels) => sink(sample, pixels),
            video::Pixels::Planes(..) => Err(Error::invalid("frames", "planes, where packed pixels were wanted")),
        })
    }

    /// The same, with planes where they are wanted and the video has them; distances stay what they are.
    pub(crate) fn visit(
        &self,
        range: Range<usize>,
        wish: Wish,
        context: &Context<'_>,
        sink: &mut dyn FnMut(usize, video::Pixels<'_>) -> Result<()>,
    ) -> Result<()> {
        self.ensure_range(&range)?;
        match &self.pictures {
            Pictures::Encoded { path, bytes } => {
                for sample in range {
                    ensure_going_on(context)?;
                    if bytes.is_null(sample) {
                        return Err(corrupt(path, format!("picture {sample} is missing")));
                    }
                    let mut sink = |sample: usize, pixels: &[u8]| sink(sample, video::Pixels::Packed(pixels));
                    self.decode_one(path, bytes.value(sample), sample, &mut sink)?;
                }
                Ok(())
            }
            Pictures::Stored(pictures) => {
                let path = pictures.path();
                for sample in range {
                    ensure_going_on(context)?;
                    let mut sink = |sample: usize, pixels: &[u8]| sink(sample, video::Pixels::Packed(pixels));
                    pictures.with(sample, &mut |picture| match picture {
                        Stored::Encoded(bytes) => self.decode_one(path, bytes, sample, &mut sink),
                        Stored::Raw(pixels) => sink(sample, pixels),
                    })?;
                }
                Ok(())
            }
            Pictures::Video { file, frames, depth } => {
                let wanted = frames.get(range.clone()).unwrap_or_default();
                let mut samples: Vec<(usize, usize)> = wanted.iter().copied().zip(range).collect();
                samples.sort_unstable();
                let mut unique: Vec<usize> = samples.iter().map(|&(frame, _)| frame).collect();
                unique.dedup();
                let mut samples = samples.as_slice();
                let format = if depth.is_some() { PixelFormat::Gray16 } else { wish.format };
                let mut distances = Vec::new();
                file.decode(&unique, Wish { format, ..wish }, context, &mut |frame, pixels| {
                    let pixels = match (depth, pixels) {
                        (Some(table), video::Pixels::Packed(codes)) => {
                            millimetres(codes, table, &mut distances);
                            video::Pixels::Packed(&distances)
                        }
                        (_, pixels) => pixels,
                    };
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
        bytes: &[u8],
        sample: usize,
        sink: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = |error: Error| error.while_doing(format!("decoding picture {sample}"));
        let image = decode_image(path, bytes, &self.limits).map_err(place)?;
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
        match (&image.pixels, self.dtype) {
            (Pixels::U8(pixels), DType::U8) => sink(sample, pixels),
            (Pixels::U16(pixels), DType::U16) => sink(sample, &little_endian(pixels.iter().copied())),
            // Near distances fit 8 bits, and some writers keep no more.
            (Pixels::U8(pixels), DType::U16) => sink(sample, &little_endian(pixels.iter().copied().map(u16::from))),
            (pixels, dtype) => {
                let bits = if matches!(pixels, Pixels::U8(_)) { 8 } else { 16 };
                Err(corrupt(path, format!("picture {sample} has {bits} bits per value, expected {dtype}")))
            }
        }
    }

    /// Decodes pictures into one tensor `[samples, height, width, channels]`.
    pub fn decode(&self, range: Range<usize>, context: &Context<'_>) -> Result<Tensor> {
        self.ensure_range(&range)?;
        let [height, width, channels] = self.shape;
        let count = range.len();
        let bytes = (self.bytes() as u64).saturating_mul(count as u64);
        if bytes > self.limits.max_alloc {
            let text = format!(
                "{count} pictures take {bytes} bytes, more than max_alloc ({}); read fewer at a time with frames(start, stop)",
                self.limits.max_alloc
            );
            return Err(exceeds(self.path(), text));
        }
        let mut tensor = Tensor::zeros(&[count, height, width, channels], self.dtype)?;
        let size = height * width * channels;
        let (first, mut seen) = (range.start, 0);
        let start = |sample: usize| sample.saturating_sub(first).saturating_mul(size);
        match self.dtype {
            DType::U16 => {
                let all = tensor.as_mut_slice::<u16>()?;
                self.for_each(range, context, &mut |sample, picture| {
                    let place = all.get_mut(start(sample)..).and_then(|rest| rest.get_mut(..size));
                    let (pixels, rest) = picture.as_chunks::<2>();
                    if let Some(place) = place.filter(|place| place.len() == pixels.len() && rest.is_empty()) {
                        place.iter_mut().zip(pixels).for_each(|(place, pixel)| *place = u16::from_le_bytes(*pixel));
                        seen += 1;
                    }
                    Ok(())
                })?;
            }
            _ => {
                let all = tensor.as_mut_slice::<u8>()?;
                self.for_each(range, context, &mut |sample, picture| {
                    let place = all.get_mut(start(sample)..).and_then(|rest| rest.get_mut(..size));
                    if let Some(place) = place.filter(|place| place.len() == picture.len()) {
                        place.copy_from_slice(picture);
                        seen += 1;
                    }
                    Ok(())
                })?;
            }
        }
        if seen != count {
            return Err(corrupt(self.path(), format!("{seen} of {count} pictures could be decoded")));
        }
        Ok(tensor)
    }

    fn path(&self) -> &Path {
        match &self.pictures {
            Pictures::Encoded { path, .. } => path,
            Pictures::Video { file, .. } => file.path(),
            Pictures::Stored(pictures) => pictures.path(),
        }
    }
}

fn ensure_going_on(context: &Context<'_>) -> Result<()> {
    if context.interrupt.is_some_and(|interrupt| interrupt()) {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
    }
    Ok(())
}

/// Pixels of 16 bits as bytes.
fn little_endian(pixels: impl Iterator<Item = u16>) -> Vec<u8> {
    pixels.flat_map(u16::to_le_bytes).collect()
}

/// Codes of 12 bits as millimetres, both little-endian.
fn millimetres(codes: &[u8], table: &[u16], out: &mut Vec<u8>) {
    out.clear();
    for code in codes.as_chunks::<2>().0 {
        let code = usize::from(u16::from_le_bytes(*code));
        out.extend_from_slice(&table.get(code).or(table.last()).copied().unwrap_or(0).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    #[test]
    fn depth_pictures_of_8_and_16_bits_keep_their_values() {
        let values: Vec<u16> = vec![1, 2, 300, 4000, 65535, 0];
        let wide =
            png(png::BitDepth::Sixteen, &values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<_>>());
        let narrow = png(png::BitDepth::Eight, &[1, 2, 3, 200, 255, 0]);
        let frames = |dtype, pictures: &[Vec<u8>]| {
            let bytes = BinaryArray::from_iter_values(pictures);
            Frames::encoded(Path::new("x.parquet"), bytes, [2, 3, 1], dtype, &Limits::default())
        };
        let decode = |frames: &Frames| frames.decode(0..frames.len(), &Context::default());
        let both = decode(&frames(DType::U16, &[wide.clone(), narrow.clone()])).unwrap();
        assert_eq!(both.shape(), [2, 2, 3, 1]);
        assert_eq!(both.as_slice::<u16>().unwrap(), [&values[..], &[1, 2, 3, 200, 255, 0]].concat());
        let error = decode(&frames(DType::U8, &[narrow, wide])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptData);
        assert!(error.to_string().contains("picture 1 has 16 bits per value, expected uint8"), "{error}");
    }

    #[test]
    fn depth_codes_span_the_range() {
        let linear = DepthCode { least: 0.0, most: 4.095, shift: 0.0, logarithmic: false };
        assert!(linear.table().iter().enumerate().all(|(code, &mm)| usize::from(mm) == code));
        let logarithmic = DepthCode { least: 0.01, most: 10.0, shift: 3.5, logarithmic: true };
        let table = logarithmic.table();
        assert_eq!((table[0], table[4095]), (10, 10_000));
        // 3.51 * (13.5 / 3.51)^(1244 / 4095) - 3.5, in an independent calculator.
        assert_eq!(table[1244], 1785);
        assert!(!DepthCode { least: -4.0, ..logarithmic }.is_sound());
        let mut out = Vec::new();
        millimetres(&[1, 0, 255, 255], &linear.table(), &mut out);
        assert_eq!(out, [1, 0, 255, 15]);
    }
}
