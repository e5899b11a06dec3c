//! Pictures in messages: compressed ones as they are, raw ones as rows of pixels.

use std::path::Path;

use robocache::{DType, Result};

use super::decoded::{Decoded, Field, slot};
use crate::Limits;
use crate::frames::Stored;
use crate::image::image_header;
use crate::limits::{corrupt, exceeds};

/// Where the parts of a picture's message are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureSlots {
    /// Of compressed ones.
    pub(super) format: Option<usize>,
    pub(super) raw: Option<RawSlots>,
    pub(super) data: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawSlots {
    height: usize,
    width: usize,
    encoding: usize,
    is_bigendian: usize,
    step: usize,
}

impl PictureSlots {
    pub(super) fn of(fields: &[Field]) -> Option<Self> {
        let find = |path: &str| slot(fields, path);
        let data = find("data")?;
        if let Some(format) = find("format") {
            return Some(Self { format: Some(format), raw: None, data });
        }
        let raw = RawSlots {
            height: find("height")?,
            width: find("width")?,
            encoding: find("encoding")?,
            is_bigendian: find("is_bigendian")?,
            step: find("step")?,
        };
        Some(Self { format: None, raw: Some(raw), data })
    }
}

/// What pictures of a topic are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureShape {
    /// `[height, width, channels]`.
    pub(super) shape: [usize; 3],
    pub(super) dtype: DType,
    pub(super) is_depth: bool,
}

/// How raw pixels lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pixels {
    /// Bytes of a pixel, and the places of its channels in it.
    Bytes(usize, &'static [usize]),
    U16,
    /// Metres.
    F32,
}

fn pixels(encoding: &str) -> Option<Pixels> {
    Some(match encoding {
        "rgb8" | "8UC3" => Pixels::Bytes(3, &[0, 1, 2]),
        "bgr8" => Pixels::Bytes(3, &[2, 1, 0]),
        "rgba8" => Pixels::Bytes(4, &[0, 1, 2]),
        "bgra8" => Pixels::Bytes(4, &[2, 1, 0]),
        "mono8" | "8UC1" => Pixels::Bytes(1, &[0]),
        "mono16" | "16UC1" => Pixels::U16,
        "32FC1" => Pixels::F32,
        _ => return None,
    })
}

/// Bytes in front of the PNG of a compressed depth picture.
const DEPTH_HEAD: usize = 12;

/// What a message's picture is like; `Err` says why it is not read.
pub(super) fn shape(
    slots: &PictureSlots,
    decoded: &Decoded,
    message: &[u8],
    limits: &Limits,
) -> Result<PictureShape, String> {
    let data = decoded.bytes(slots.data, message);
    let Some(raw) = &slots.raw else {
        let format = slots.format.and_then(|slot| decoded.text(slot, message)).unwrap_or_default();
        let is_depth = format.contains("compressedDepth");
        if is_depth && !format.contains("16UC1") {
            return Err(format!("depth pictures of format {format:?} are not read"));
        }
        let (size, bits) =
            image_header(Path::new(""), encoded(data, is_depth), limits).map_err(|error| error.to_string())?;
        some_pixels(size.height, size.width)?;
        let dtype = if is_depth || bits == 16 { DType::U16 } else { DType::U8 };
        return Ok(PictureShape { shape: [size.height, size.width, size.channels], dtype, is_depth });
    };
    let encoding = decoded.text(raw.encoding, message).unwrap_or_default();
    let size = |slot| decoded.u32(slot).map_or(0, |number| number as usize);
    let (height, width) = (size(raw.height), size(raw.width));
    some_pixels(height, width)?;
    let found = pixels(&encoding).ok_or_else(|| format!("pictures of encoding {encoding:?} are not read"))?;
    let (channels, dtype) = match found {
        Pixels::Bytes(_, places) => (places.len(), DType::U8),
        _ => (1, DType::U16),
    };
    Ok(PictureShape { shape: [height, width, channels], dtype, is_depth: dtype == DType::U16 })
}

fn some_pixels(height: usize, width: usize) -> Result<(), String> {
    if height > 0 && width > 0 {
        return Ok(());
    }
    Err(format!("expected a picture of at least 1 x 1, got {width} x {height}"))
}

fn encoded(data: &[u8], is_depth: bool) -> &[u8] {
    if is_depth { data.get(DEPTH_HEAD..).unwrap_or_default() } else { data }
}

/// Hands out a message's picture.
pub(super) fn give(
    slots: &PictureSlots,
    decoded: &Decoded,
    message: &[u8],
    expected: &PictureShape,
    path: &Path,
    limits: &Limits,
    sink: &mut dyn FnMut(Stored<'_>) -> Result<()>,
) -> Result<()> {
    let data = decoded.bytes(slots.data, message);
    let Some(raw) = &slots.raw else {
        return sink(Stored::Encoded(encoded(data, expected.is_depth)));
    };
    let found = shape(slots, decoded, message, limits).map_err(|why| corrupt(path, why))?;
    if found != *expected {
        let text = format!("expected a picture of {:?} {}, got {:?}", expected.shape, expected.dtype, found.shape);
        return Err(corrupt(path, text));
    }
    let [height, width, channels] = found.shape;
    if (height as u64).saturating_mul(width as u64) > limits.max_pixels {
        return Err(exceeds(
            path,
            format!("a picture of {width} x {height} exceeds max_pixels ({})", limits.max_pixels),
        ));
    }
    let encoding = decoded.text(raw.encoding, message).unwrap_or_default();
    let Some(kind) = pixels(&encoding) else { return Err(corrupt(path, "a picture of another encoding")) };
    let size = match kind {
        Pixels::Bytes(size, _) => size,
        Pixels::U16 => 2,
        Pixels::F32 => 4,
    };
    let step = decoded.u32(raw.step).map_or(0, |step| step as usize);
    let row = width.saturating_mul(size);
    let needed = step.saturating_mul(height.saturating_sub(1)).saturating_add(row);
    if step < row || needed > data.len() {
        let text = format!("expected {height} rows of {row} bytes, {step} apart, the picture has {}", data.len());
        return Err(corrupt(path, text));
    }
    let is_bigendian = decoded.u8(raw.is_bigendian).unwrap_or(0) != 0;
    let mut out = Vec::with_capacity(height * width * channels * expected.dtype.size());
    for row_at in 0..height {
        let bytes = data.get(row_at * step..row_at * step + row).unwrap_or_default();
        match kind {
            Pixels::Bytes(size, places) if places.len() == size && places.is_sorted() => out.extend_from_slice(bytes),
            Pixels::Bytes(size, places) => {
                for pixel in bytes.chunks_exact(size) {
                    out.extend(places.iter().filter_map(|&place| pixel.get(place)));
                }
            }
            Pixels::U16 => out.extend(bytes.as_chunks::<2>().0.iter().flat_map(|&pixel| {
                let pixel = if is_bigendian { u16::from_be_bytes(pixel) } else { u16::from_le_bytes(pixel) };
                pixel.to_le_bytes()
            })),
            Pixels::F32 => out.extend(bytes.as_chunks::<4>().0.iter().flat_map(|&pixel| {
                let metres = if is_bigendian { f32::from_be_bytes(pixel) } else { f32::from_le_bytes(pixel) };
                // What is not seen is 0, as in pictures of 16 bits; a cast bounds the rest.
                ((metres * 1e3).round_ties_even() as u16).to_le_bytes()
            })),
        }
    }
    sink(Stored::Raw(&out))
}
