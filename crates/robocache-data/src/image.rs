//! JPEG and PNG images, as recordings keep them in tables and messages.

use std::io::Cursor;
use std::path::Path;

use png::{BitDepth, Transformations};
use robocache::{Error, ErrorKind, Result};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::limits::{Limits, corrupt, exceeds, guarded};

/// A decoded image, `[height, width, channels]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) size: ImageSize,
    pub(crate) pixels: Pixels,
}

/// The values of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pixels {
    U8(Vec<u8>),
    U16(Vec<u16>),
}

/// The shape of an image. One channel is gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageSize {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl ImageSize {
    /// How many values the image has; refused where pixels or bytes exceed the limits.
    fn checked(self, path: &Path, bytes_per_value: u64, limits: &Limits) -> Result<usize> {
        let Self { height, width, channels } = self;
        let pixels = (height as u64).saturating_mul(width as u64);
        if pixels > limits.max_pixels {
            let limit = limits.max_pixels;
            return Err(exceeds(path, format!("an image of {width} x {height} pixels exceeds max_pixels = {limit}")));
        }
        let values = pixels.saturating_mul(channels as u64);
        let bytes = values.saturating_mul(bytes_per_value);
        if bytes > limits.max_alloc {
            let limit = limits.max_alloc;
            return Err(exceeds(path, format!("an image of {bytes} bytes exceeds max_alloc = {limit}")));
        }
        usize::try_from(values).map_err(|_| exceeds(path, "an image larger than memory"))
    }
}

/// Decodes a JPEG or PNG image, which its first bytes tell apart. `path` is the file that it comes
/// from, for errors.
///
/// PNG: 8 and 16 bits as they are; fewer bits become 8, palettes become RGB, a transparent colour
/// becomes an alpha channel. JPEG: gray or RGB, within a few units of what libjpeg gives, since the
/// format leaves rounding open; an orientation noted by a phone is not applied.
pub(crate) fn decode_image(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Image> {
    guarded(path, "image", || match Kind::of(path, bytes)? {
        Kind::Png => decode_png(path, bytes, limits),
        Kind::Jpeg => decode_jpeg(path, bytes, limits),
    })
}

/// The shape that [`decode_image`] gives and the bits of each value, from the image's header alone.
pub(crate) fn image_header(path: &Path, bytes: &[u8], limits: &Limits) -> Result<(ImageSize, usize)> {
    guarded(path, "image", || match Kind::of(path, bytes)? {
        Kind::Png => {
            let (reader, size) = open_png(path, bytes, limits)?;
            Ok((size, if reader.output_color_type().1 == BitDepth::Sixteen { 16 } else { 8 }))
        }
        Kind::Jpeg => open_jpeg(path, bytes, limits).map(|(_, size)| (size, 8)),
    })
}

enum Kind {
    Png,
    Jpeg,
}

impl Kind {
    fn of(path: &Path, bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Ok(Self::Png);
        }
        if bytes.starts_with(b"\xff\xd8\xff") {
            return Ok(Self::Jpeg);
        }
        let start = bytes.get(..bytes.len().min(8)).unwrap_or_default().escape_ascii();
        let text = format!("neither a PNG nor a JPEG image: {} bytes that start with \"{start}\"", bytes.len());
        Err(corrupt(path, text))
    }
}

type PngReader<'a> = png::Reader<Cursor<&'a [u8]>>;

fn png_error(path: &Path, error: png::DecodingError) -> Error {
    let kind = match error {
        png::DecodingError::LimitsExceeded => ErrorKind::LimitExceeded,
        _ => ErrorKind::CorruptData,
    };
    Error::new(kind, "PNG image").caused_by(error).path(path)
}

fn open_png<'a>(path: &Path, bytes: &'a [u8], limits: &Limits) -> Result<(PngReader<'a>, ImageSize)> {
    let max = usize::try_from(limits.max_alloc).unwrap_or(usize::MAX);
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: max });
    decoder.set_transformations(Transformations::EXPAND);
    // Texts and colour profiles are not used, and may be bombs.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let reader = decoder.read_info().map_err(|error| png_error(path, error))?;
    let (width, height) = reader.info().size();
    let (color, _) = reader.output_color_type();
    let size = ImageSize {
        height: usize::try_from(height).unwrap_or(usize::MAX),
        width: usize::try_from(width).unwrap_or(usize::MAX),
        channels: color.samples(),
    };
    Ok((reader, size))
}

fn decode_png(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Image> {
    let (mut reader, size) = open_png(path, bytes, limits)?;
    let (_, depth) = reader.output_color_type();
    let wide = depth == BitDepth::Sixteen;
    let values = size.checked(path, if wide { 2 } else { 1 }, limits)?;
    let mut data = zeros(path, if wide { values.saturating_mul(2) } else { values })?;
    let info = reader.next_frame(&mut data).map_err(|error| png_error(path, error))?;
    if info.buffer_size() != data.len() {
        // An animation whose first frame covers only a part.
        return Err(corrupt(path, format!("the PNG image gives {} of {} bytes", info.buffer_size(), data.len())));
    }
    let pixels = if wide {
        let (pairs, _) = data.as_chunks::<2>();
        Pixels::U16(pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect())
    } else {
        Pixels::U8(data)
    };
    Ok(Image { size, pixels })
}

type JpegReader<'a> = JpegDecoder<ZCursor<&'a [u8]>>;

fn jpeg_error(path: &Path, error: &DecodeErrors) -> Error {
    let kind = match error {
        DecodeErrors::Unsupported(_) => ErrorKind::Unsupported,
        DecodeErrors::LargeDimensions(_) => ErrorKind::LimitExceeded,
        _ => ErrorKind::CorruptData,
    };
    Error::new(kind, format!("JPEG image: {error}")).path(path)
}

fn open_jpeg<'a>(path: &Path, bytes: &'a [u8], limits: &Limits) -> Result<(JpegReader<'a>, ImageSize)> {
    let max = usize::try_from(limits.max_pixels).unwrap_or(usize::MAX);
    // Strict: a picture that is cut off must not come out gray at the bottom.
    let options = DecoderOptions::default().set_strict_mode(true).set_max_width(max).set_max_height(max);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| jpeg_error(path, &error))?;
    let (Some(info), Some(input)) = (decoder.info(), decoder.input_colorspace()) else {
        return Err(corrupt(path, "the JPEG image has no header"));
    };
    let output = match input {
        ColorSpace::Luma => ColorSpace::Luma,
        ColorSpace::YCbCr | ColorSpace::RGB => ColorSpace::RGB,
        other => {
            let text = format!("JPEG image in {other:?}; gray, YCbCr and RGB are read");
            return Err(Error::new(ErrorKind::Unsupported, text).path(path));
        }
    };
    decoder.set_options(options.jpeg_set_out_colorspace(output));
    let channels = output.num_components();
    Ok((decoder, ImageSize { height: info.height.into(), width: info.width.into(), channels }))
}

/// Whether a sequential JPEG has fewer colours in its first scan than in all, at different
/// resolutions: the decoder takes such a picture and gets it wrong (zune-jpeg 0.5).
fn has_scans_of_some_colours(bytes: &[u8]) -> bool {
    let mut frame: Option<(u8, bool)> = None;
    let mut rest = bytes.get(2..).unwrap_or_default();
    while let &[0xff, marker, high, low, ref after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = after.get(..length.saturating_sub(2)).unwrap_or_default();
        match marker {
            0xc0 | 0xc1 => {
                let colours = segment.get(5).copied().unwrap_or(0);
                let factors = segment.get(6..).unwrap_or_default().chunks_exact(3).map(|colour| colour[1]);
                frame = Some((colours, factors.clone().any(|factor| Some(factor) != factors.clone().next())));
            }
            0xda => {
                let first = segment.first().copied().unwrap_or(0);
                return frame.is_some_and(|(colours, mixed)| mixed && first < colours);
            }
            _ => {}
        }
        rest = after.get(length.saturating_sub(2)..).unwrap_or_default();
    }
    false
}

fn decode_jpeg(path: &Path, bytes: &[u8], limits: &Limits) -> Result<Image> {
    if has_scans_of_some_colours(bytes) {
        let text = "JPEG image with a scan for each colour at different resolutions is not read";
        return Err(Error::new(ErrorKind::Unsupported, text).path(path));
    }
    let (mut decoder, size) = open_jpeg(path, bytes, limits)?;
    let mut data = zeros(path, size.checked(path, 1, limits)?)?;
    decoder.decode_into(&mut data).map_err(|error| jpeg_error(path, &error))?;
    Ok(Image { size, pixels: Pixels::U8(data) })
}

fn zeros(path: &Path, count: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    data.try_reserve_exact(count).map_err(|error| {
        Error::new(ErrorKind::OutOfMemory, format!("{count} bytes for an image")).caused_by(error).path(path)
    })?;
    data.resize(count, 0);
    Ok(data)
}

#[cfg(test)]
mod tests;
