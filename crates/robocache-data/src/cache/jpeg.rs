//! JPEG pictures from the planes of a video, baseline, colour at half the resolution.
//!
//! A decoded video has brightness and colour apart already, as JPEG wants them: going through RGB would
//! cost a conversion in both directions and twice the bytes through the pipe. Where the video keeps to
//! the limited range (16 to 235) while JPEG has the full one, the factor between them is part of
//! the quantisation, since the transform is linear. Tables are those of the standard's Annex K, scaled by
//! the quality as everyone does.

mod huffman;
mod tables;
mod transform;

use robocache::{Error, ErrorKind, Result, ensure};

use self::huffman::{Bits, Coder};
use self::tables::{CHROMA, LUMA, header, scaled};
use self::transform::{Quantiser, Rows, transposed};
use crate::video::Levels;

/// Bytes that the six blocks of a square of 16 pixels take at most, with room for the last words.
const MOST_BYTES: usize = 6 * 64 * 8 + 64;

/// The planes of a picture: brightness, then the two of colour with half the rows and columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes<'a> {
    pub(crate) luma: &'a [u8],
    pub(crate) blue: &'a [u8],
    pub(crate) red: &'a [u8],
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) levels: Levels,
}

impl<'a> Planes<'a> {
    /// Planes that lie one after the other.
    pub(crate) fn new(bytes: &'a [u8], height: usize, width: usize, levels: Levels) -> Result<Self> {
        let (half_height, half_width) = halves(height, width);
        let small = half_height * half_width;
        let parts = bytes.split_at_checked(height * width).and_then(|(luma, rest)| {
            let (blue, red) = rest.split_at_checked(small)?;
            (red.len() == small).then_some(Self { luma, blue, red, height, width, levels })
        });
        let expected = height * width + 2 * small;
        parts.ok_or_else(|| Error::invalid("pixels", format!("expected {expected} bytes, got {}", bytes.len())))
    }

    /// Every `step`th pixel as red, green and blue, as everyone converts it (ITU-R BT.601).
    pub(crate) fn pixels(&self, step: usize) -> impl Iterator<Item = [u8; 3]> {
        let (mut row, mut column) = (0, 0);
        std::iter::from_fn(move || {
            // Steps are shorter than a few rows; dividing for each pixel would take longer than all the rest.
            while column >= self.width {
                column = column.checked_sub(self.width).filter(|_| self.width > 0)?;
                row += 1;
            }
            let pixel = (row < self.height).then(|| self.pixel(row, column));
            column += step;
            pixel
        })
    }

    #[inline]
    fn pixel(&self, row: usize, column: usize) -> [u8; 3] {
        let half_width = self.width.div_ceil(2);
        let at = |plane: &[u8], place: usize| f32::from(plane.get(place).copied().unwrap_or(128));
        let small = row / 2 * half_width + column / 2;
        let (low, luma_scale, chroma_scale) = match self.levels {
            Levels::Limited => (16.0, 255.0 / 219.0, 255.0 / 224.0),
            Levels::Full => (0.0, 1.0, 1.0),
        };
        let y = (at(self.luma, row * self.width + column) - low) * luma_scale;
        let (b, r) = ((at(self.blue, small) - 128.0) * chroma_scale, (at(self.red, small) - 128.0) * chroma_scale);
        // A float becomes the nearest byte: `as` cuts off what is below 0 and above 255.
        [y + 1.402 * r, y - 0.344_136 * b - 0.714_136 * r, y + 1.772 * b].map(|value| (value + 0.5) as u8)
    }
}

/// Rows and columns of the planes of colour.
pub(crate) fn halves(height: usize, width: usize) -> (usize, usize) {
    (height.div_ceil(2), width.div_ceil(2))
}

/// What pictures of one quality share.
#[derive(Debug)]
pub(crate) struct JpegEncoder {
    /// Of brightness and of colour.
    quantisers: [Quantiser; 2],
    coders: [Coder; 2],
    tables: [[u8; 64]; 2],
    levels: Levels,
}

impl JpegEncoder {
    /// For pictures of a quality, 1 to 100.
    pub(crate) fn new(quality: u8, levels: Levels) -> Self {
        let tables = [scaled(&LUMA, quality), scaled(&CHROMA, quality)];
        let full = levels == Levels::Full;
        // The level that becomes 0, in the video's own measure, and what its steps are worth.
        let (middle, step) = if full { (128.0, 1.0) } else { (16.0 + 128.0 * 219.0 / 255.0, 255.0 / 219.0) };
        Self {
            quantisers: [
                Quantiser::new(&tables[0], middle, step),
                Quantiser::new(&tables[1], 128.0, if full { 1.0 } else { 255.0 / 224.0 }),
            ],
            coders: [Coder::luma(), Coder::chroma()],
            tables,
            levels,
        }
    }

    /// Encodes a picture.
    pub(crate) fn encode(&self, picture: &Planes<'_>) -> Result<Vec<u8>> {
        let Planes { height, width, .. } = *picture;
        ensure!(picture.levels == self.levels, "pixels", "the picture has other levels than the encoder");
        let side = |size: usize| u16::try_from(size).ok().filter(|&size| size > 0);
        let (Some(rows), Some(columns)) = (side(height), side(width)) else {
            let text = format!("cannot encode a picture: expected 1 to 65535 rows and columns, got {height} x {width}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        };
        let head = header(rows, columns, &self.tables);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the machine has these.
            return Ok(unsafe { self.blocks_avx2(picture) }.finish(head));
        }
        Ok(self.blocks(picture, transposed).finish(head))
    }

    /// The same, compiled for newer processors: twice as fast.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn blocks_avx2(&self, picture: &Planes<'_>) -> Bits {
        self.blocks(picture, |rows| transform::transposed_avx2(rows))
    }

    #[inline(always)]
    fn blocks(&self, picture: &Planes<'_>, transpose: impl Fn(&Rows) -> Rows) -> Bits {
        let Planes { height, width, .. } = *picture;
        let mut bits = Bits::new(height * width / 4);
        let (half_height, half_width) = halves(height, width);
        let luma = Plane { bytes: picture.luma, height, width };
        let blue = Plane { bytes: picture.blue, height: half_height, width: half_width };
        let red = Plane { bytes: picture.red, height: half_height, width: half_width };
        let mut before = [0; 3];
        for row in 0..height.div_ceil(16) {
            for column in 0..width.div_ceil(16) {
                bits.reserve(MOST_BYTES);
                let (down, right) = (2 * row, 2 * column);
                let places = [
                    (0, &luma, down, right),
                    (0, &luma, down, right + 1),
                    (0, &luma, down + 1, right),
                    (0, &luma, down + 1, right + 1),
                    (1, &blue, row, column),
                    (2, &red, row, column),
                ];
                for (component, plane, row, column) in places {
                    let part = component.min(1);
                    let block = self.quantisers[part].apply(&plane.block(row, column), &transpose);
                    self.coders[part].put(&block, &mut before[component], &mut bits);
                }
            }
        }
        bits
    }
}

/// One plane of a picture.
#[derive(Clone, Copy)]
struct Plane<'a> {
    bytes: &'a [u8],
    height: usize,
    width: usize,
}

impl Plane<'_> {
    /// Eight rows of eight; past the edge its last row and column go on.
    #[inline(always)]
    fn block(&self, row: usize, column: usize) -> [[u8; 8]; 8] {
        let (top, left) = (row * 8, column * 8);
        let mut block = [[0; 8]; 8];
        let whole = top + 8 <= self.height && left + 8 <= self.width;
        for (down, out) in block.iter_mut().enumerate() {
            let line = (top + down).min(self.height - 1) * self.width;
            if let (true, Some(pixels)) = (whole, self.bytes.get(line + left..).and_then(<[u8]>::first_chunk::<8>)) {
                *out = *pixels;
                continue;
            }
            for (right, out) in out.iter_mut().enumerate() {
                *out = self.bytes.get(line + (left + right).min(self.width - 1)).copied().unwrap_or(0);
            }
        }
        block
    }
}

#[cfg(test)]
mod tests;
